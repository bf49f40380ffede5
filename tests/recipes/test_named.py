"""Recipes by name: those of the package have published values, a file is read whole."""

from dataclasses import fields

import pytest
from desk import from_command_line

from macer.cli.app import main
from macer.losses import LOSSES, completed
from macer.losses.objective import settings_of
from macer.recipes import (
    Loss,
    TrainRecipe,
    named,
    named_recipe,
    read_recipe,
    recipe_names,
)
from macer.system.errors import Mistake

PAPER = {
    "k": 16, "gamma": 8.0, "beta": 16.0, "epochs": 440, "batch": 64, "lr": 0.01,
    "lr_schedule": "step", "lr_decays": (200, 400), "momentum": 0.9, "nesterov": False,
    "optimizer": "sgd",
    "weight_decay": 5e-4, "normalise": "none", "clip": 0.0, "ema": 0.0, "held_out": 0,
    "loss": "macer", "lam_schedule": "constant",
}  # fmt: skip
CIFAR10 = {"dataset": "cifar10", "model": "resnet110", "crop": 4, "flip": True}
MNIST = {"dataset": "mnist", "model": "lenet", "crop": 0, "flip": False, "lam": 16.0}
IMAGENET = {
    "dataset": "imagenet", "model": "resnet50", "k": 2, "epochs": 120, "batch": 256, "lr": 0.1,
    "lr_decays": (30, 60, 90), "weight_decay": 1e-4, "resized_crop": 0.08, "flip": True,
}  # fmt: skip
SHORT = {"epochs": 150, "lr_decays": (60, 120)}

# [Zhai+20, Sec. 5.1; Tables 4 to 8]
ROWS = {
    "paper/cifar10-0.25": CIFAR10 | {"sigma": 0.25, "lam": 12.0},
    "paper/cifar10-0.50": CIFAR10 | {"sigma": 0.5, "lam": 4.0},
    "paper/cifar10-1.00": CIFAR10 | {"sigma": 1.0, "lam": 12.0, "lam_schedule": "deferred"},
    "paper/cifar10-0.25-150-epochs": CIFAR10 | SHORT | {"sigma": 0.25, "lam": 12.0},
    "paper/cifar10-0.50-150-epochs": CIFAR10 | SHORT | {"sigma": 0.5, "lam": 4.0},
    "paper/svhn-0.25": CIFAR10 | {"dataset": "svhn", "sigma": 0.25, "lam": 12.0},
    "paper/svhn-0.50": CIFAR10 | {"dataset": "svhn", "sigma": 0.5, "lam": 12.0},
    "paper/imagenet-0.25": IMAGENET | {"sigma": 0.25, "lam": 6.0},
    "paper/imagenet-0.50": IMAGENET | {"sigma": 0.5, "lam": 3.0},
    "paper/imagenet-1.00": IMAGENET | {"sigma": 1.0, "lam": 3.0},
    "paper/mnist-0.25": MNIST | {"sigma": 0.25},
    "paper/mnist-0.50": MNIST | {"sigma": 0.5},
    "paper/mnist-1.00": MNIST | {"sigma": 1.0},
}


SIGMAS = (0.25, 0.5, 1.0)

# Published settings of the other methods, for each σ.
# [Li+19; Salman+19; Jeong+20; Jeong+21; Jeong+23; Sun+24]
METHODS = {
    "gaussian/mnist": {"k": (1, 1, 1)},
    "gaussian/cifar10": {"k": (1, 1, 1)},
    "stability/mnist": {"k": (1, 1, 1), "lam": (2.0, 2.0, 2.0)},
    "stability/cifar10": {"k": (1, 1, 1), "lam": (2.0, 2.0, 1.0)},
    "consistency/mnist": {"k": (2, 2, 2), "lam": (10.0, 5.0, 5.0), "eta": (0.5, 0.5, 0.5)},
    "consistency/cifar10": {"k": (2, 2, 2), "lam": (20.0, 10.0, 10.0), "eta": (0.5, 0.5, 0.5)},
    "smoothadv/mnist": {"k": (4, 4, 4), "epsilon": (1.0, 1.0, 1.0), "steps": (10, 10, 10)},
    "smoothadv/cifar10": {"k": (8, 2, 2), "epsilon": (1.0, 2.0, 2.0), "steps": (10, 10, 10)},
    "smoothadv/imagenet": {
        "k": (1, 1, 1), "epsilon": (1.0, 1.0, 2.0), "steps": (2, 1, 1),
        "attack": ("ddn", "pgd", "pgd"), "resized_crop": (0.08, 0.08, 0.08),
    },
    "smoothmix/mnist": {"k": (4, 4, 4), "step_size": (1.0, 1.0, 1.0), "steps": (2, 4, 8)},
    "smoothmix/cifar10": {"k": (2, 2, 2), "step_size": (0.5, 1.0, 2.0), "steps": (4, 4, 4)},
    "catrs/mnist": {"k": (4, 4, 4), "lam": (1.0, 1.0, 2.0), "steps": (4, 4, 4)},
    "catrs/cifar10": {"k": (4, 4, 4), "lam": (0.5, 1.0, 2.0), "steps": (4, 4, 4)},
    "sun/mnist": {"k": (4, 4, 4), "drop_epoch": (60, 70, 60), "drop_below": (0.5, 0.4, 0.4)},
    "sun/cifar10": {
        "k": (4, 4, 4), "drop_epoch": (60, 70, 60), "drop_below": (0.5, 0.4, 0.4),
        "step_size": (0.25, 0.25, 0.5), "steps": (3, 6, 4), "reweight_every": (10, 10, 10),
    },
}  # fmt: skip


def refused(capsys, *arguments):
    assert main(["train", *arguments]) == 2
    return capsys.readouterr().err


# law


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_the_same_by_name_and_on_the_command_line(name):
    assert from_command_line(name) == completed(named_recipe(name))


@pytest.mark.parametrize("name", recipe_names())
def test_the_name_of_a_recipe_says_its_sigma(name):
    numbers = [part for part in name.split("-") if "." in part]
    assert [float(number) for number in numbers] in ([], [named_recipe(name).sigma])


@pytest.mark.parametrize("name", [name for name in recipe_names() if "gaussian" in name])
def test_gaussian_recipes_have_one_copy_or_those_of_macer_and_no_robustness_term(name):
    recipe = named_recipe(name)
    assert recipe.loss.name in ("macer", "gaussian")  # the same for k = 1 and λ = 0
    assert recipe.loss.get("lam", 0.0) == 0.0
    assert recipe.k == 1 or name.startswith("fast/")  # which differ from MACER's by the loss alone


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_of_macers_gives_every_setting_of_its_loss(name):
    """But those that follow from others where they are left out."""
    loss = named_recipe(name).loss
    settings = settings_of(LOSSES[loss.name].loss, loss.name)
    assert {key for key in settings if settings[key].default is not None} <= set(loss)


def test_a_file_of_the_users_is_a_recipe(tmp_path):
    file = tmp_path / "mine.toml"
    table = '[loss]\nname = "stability"\nlam = 3\n'
    file.write_text(f'model = "m:f"\nlr_decays = [3, 5]\nflip = true\n{table}')
    loss = Loss("stability", lam=3.0)
    expected = TrainRecipe(model="m:f", lr_decays=(3, 5), loss=loss, flip=True)
    assert completed(named_recipe(str(file), code=["m"])) == expected
    assert from_command_line(str(file), "--code", "m") == expected


CHANGED = {
    "lam_schedule": "ramp", "cross_entropy": "copies", "attack": "ddn", "lr_schedule": "cosine",
    "optimizer": "muon", "precision": "fp32", "teacher": "run", "pseudo": "run", "lr_decays": [7],
    "step_size": 0.7, "denoiser": "dncnn", "freeze": ["conv1"], "freeze_all_but": ["fc"],
    "targets": "mean",
}  # fmt: skip


def another(name, default):
    """A value of a field or a setting that is not its default, and the same in TOML."""
    value = CHANGED.get(name) or {bool: True, str: "x", int: 3, float: 0.7}[type(default)]
    return {bool: str(value).lower(), str: f'"{value}"'}.get(type(value), value)


@pytest.mark.parametrize("field", [f.name for f in fields(TrainRecipe) if f.name != "loss"])
def test_every_field_of_a_file_counts(tmp_path, field):
    default = getattr(TrainRecipe(), field)
    file = tmp_path / "mine.toml"
    more = "labelled = 3\n" if field == "pseudo" else ""
    file.write_text(f"{field} = {another(field, default)}\n{more}")
    found = getattr(from_command_line(str(file)), field)
    assert found == getattr(named_recipe(str(file)), field)
    assert found != default


@pytest.mark.parametrize(
    ("loss", "setting"),
    [(name, key) for name in LOSSES for key in completed(TrainRecipe(loss=name)).loss],
)
def test_every_setting_of_a_loss_counts_in_a_file_and_as_a_flag(tmp_path, loss, setting):
    default = completed(TrainRecipe(loss=loss)).loss[setting]
    value = another(setting, default)
    file = tmp_path / "mine.toml"
    file.write_text(f'[loss]\nname = "{loss}"\n{setting} = {value}\n')
    found = completed(named_recipe(str(file))).loss[setting]
    assert found == from_command_line(str(file)).loss[setting] != default
    flag = f"--{setting.replace('_', '-')}"
    by_flag = from_command_line("demo", "--loss", loss, flag, str(value).strip('"'))
    assert by_flag.loss[setting] == found


# known value


@pytest.mark.parametrize("name", ROWS)
def test_the_papers_rows_have_the_papers_values(name):
    recipe = named_recipe(name)
    expected = PAPER | ROWS[name]
    assert {field: recipe.flat()[field] for field in expected} == expected


def test_the_folder_of_recipes_is_read_once(monkeypatch):
    names = recipe_names()
    monkeypatch.setattr(named, "RECIPES", None)
    assert recipe_names() == names == sorted(names)


def test_every_recipe_under_the_papers_name_is_a_row_or_a_baseline():
    names = {name for name in recipe_names() if name.startswith("paper/")}
    assert {name for name in names if "gaussian" not in name} == set(ROWS)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_fast_recipes_are_macer_and_neither_they_nor_the_records_use_other_data(sigma):
    fast, record = (named_recipe(f"{name}/cifar10-{sigma:.2f}") for name in ("fast", "record"))
    assert (fast.loss.name, record.loss.name) == ("macer", "macer-hard-noise")
    # The robustness term's weight against the cross-entropy is λσ/2, the attack's length is σ.
    weight = 3.0 if sigma == 1.0 else 2.0
    assert (fast.loss["lam"] * sigma, record.loss["lam"] * sigma) == (weight, 1.0)
    assert (record.loss["steps"], record.loss["step_size"]) == (1, sigma)
    terms = (fast.loss["cross_entropy"], record.loss["cross_entropy"])
    assert terms == ("copies", "smoothed")
    for recipe in (fast, record):
        assert (recipe.pseudo, recipe.held_out) == ("", 0)


@pytest.mark.parametrize("method", METHODS)
def test_the_other_methods_have_their_published_values(method):
    recipes = [named_recipe(f"{method}-{sigma:.2f}") for sigma in SIGMAS]
    for field, values in METHODS[method].items():
        assert tuple(recipe.flat()[field] for recipe in recipes) == values
    loss, dataset = method.split("/")
    for recipe, sigma in zip(recipes, SIGMAS, strict=True):
        assert (recipe.loss.name, recipe.dataset, recipe.sigma) == (loss, dataset, sigma)
        assert recipe.batch * recipe.k == 256
        optimiser = (recipe.lr, recipe.momentum, recipe.nesterov, recipe.weight_decay)
        assert optimiser == (0.01 if dataset == "mnist" else 0.1, 0.9, False, 1e-4)
        assert recipe.lr_decays == (recipe.epochs // 3, 2 * recipe.epochs // 3)


def test_every_method_has_a_recipe_for_each_data_set_and_sigma():
    folders = {method.split("/")[0] for method in METHODS}
    names = {f"{method}-{sigma:.2f}" for method in METHODS for sigma in SIGMAS}
    assert {name for name in recipe_names() if name.split("/")[0] in folders} == names


# refusal


def test_an_unknown_recipe_is_refused_with_the_nearest(capsys):
    message = (
        "unknown recipe 'dmo', did you mean 'demo'?; `macer recipes` lists them, or name a TOML"
    )
    with pytest.raises(Mistake) as refusal:
        read_recipe("dmo")
    assert str(refusal.value) == f"{message} file"
    assert refused(capsys, "dmo") == f"macer: {message} file\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"k =\n", "must be a TOML file: Invalid value (at line 1, column 4)"),
        (b"k = 1\nk = 2\n", "must be a TOML file: Cannot overwrite a value"),
        (b"\xff\xfe", "must be text in UTF-8:"),
        (b"kk = 3\n", "mine.toml has an unknown field 'kk'"),
        (b"k = 4.5\n", "mine.toml: k must be a whole number, got 4.5\n"),
        (b"k = true\n", "mine.toml: k must be a whole number, got True\n"),
        (b'k = "16"\n', "mine.toml: k must be a whole number, got '16'\n"),
        (b"k = 1e12\n", "mine.toml: k must be a whole number, got 1000000000000.0\n"),
        (b"k = 1000000000000\n", "k must be at most 1,000,000, got 1000000000000\n"),
        (b"batch = 4000\nk = 600000\n", "batch · k must be at most 2,147,483,648, got 2400000000"),
        (b"epochs = 1000000000000000\n", "epochs must be at most 1,000,000, got 10000000"),
        (b"seed = 1" + b"0" * 30, "seed must be in [0, 2⁶³), got 1000"),
        (b"k = 1" + b"0" * 5000, "must be a TOML file: Exceeds the limit"),
        (b"sigma = 1" + b"0" * 400, "mine.toml: sigma must be a number that a float holds, got 10"),
        (b"lr = 1e308\n", "lr must be at most 1e+30, got 1e+308\n"),
        (b"lr = nan\n", "lr must be > 0, got nan\n"),
        (b'flip = "yes"\n', "mine.toml: flip must be True or False, got 'yes'\n"),
        (b"sigma = 1979-05-27\n", "mine.toml: sigma must be a number, got an object of type date"),
        (b"model = {a = 1}\n", "mine.toml: model must be a string, got {'a': 1}; a recipe is"),
        (b"lr_decays = 5\n", "mine.toml: lr_decays must be a list, got 5\n"),
        (b"lr_decays = [1.5]\n", "mine.toml: each of lr_decays must be a whole number, got 1.5\n"),
        (b"lr_decays = [[1, 2], [3]]\n", "each of lr_decays must be a whole number, got [1, 2]\n"),
        (b"lr_decays = " + b"[" * 10**4, "must be a TOML file: maximum recursion depth exceeded"),
        (b"lr_decays = [-1]\n", "lr_decays must be at least 0, got [-1]\n"),
        (
            b"lr_decays = [" + b"1," * 5000 + b"]",
            "mine.toml: lr_decays must have at most 1,000 entries, got 5,000\n",
        ),
        (b"sigma = -1\n", "sigma must be > 0, got -1.0"),
        (b"loss = 5\n", "loss must be a Loss, the name of one, or a table"),
        (b"[loss]\nlam = 5\n", "loss must be a table with the name of one and its"),
        (b"[loss]\nname = 5\n", "loss must be a table with the name of one and its"),
        (b'[loss]\nname = "mcer"\n', "unknown loss 'mcer', did you mean 'macer'?"),
        (
            b'[loss]\nname = "macer"\nbta = 5\n',
            "mine.toml: the loss macer has no setting 'bta', did you mean 'beta'?",
        ),
        (b'[loss]\nname = "macer"\nlam = -1\n', "mine.toml: lam must be at least 0, got -1.0\n"),
        (
            b'loss = "gaussian"\n',
            "mine.toml must have its loss and the loss's settings in a table at its end, got loss "
            'at the top; write: [loss] name = "gaussian", each on its own line\n',
        ),
        (
            b'loss = "consistency"\nlam = 5\neta = 0.5\nbeta = 16.0\n',
            "got loss, beta, eta, lam at the top; write: "
            '[loss] name = "consistency" lam = 5 eta = 0.5, each on its own line\n',
        ),
        (
            b'lam_schedule = "rampant"\n',
            "lam_schedule must be one of constant, deferred, ramp, got 'rampant'\n",
        ),
    ],
)
def test_a_file_with_a_mistake_in_it_is_refused(tmp_path, capsys, content, message):
    file = tmp_path / "mine.toml"
    file.write_bytes(content)
    line = refused(capsys, str(file), "--out", str(tmp_path / "run"))
    assert message in line
    assert line.count("\n") == 1
    assert list(tmp_path.iterdir()) == [file]
