import json
import math
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from macer.cli.app import command_line, main
from macer.cli.loss_flags import train_command
from macer.errors import Mistake
from macer.losses import LOSSES, completed
from macer.losses.objective import settings_of
from macer.recipes import (
    CertifyRecipe,
    Loss,
    TrainRecipe,
    named_recipe,
    read_recipe,
    recipe_names,
)

PAPER = {
    "k": 16, "gamma": 8.0, "beta": 16.0, "epochs": 440, "batch": 64, "lr": 0.01,
    "lr_schedule": "step", "lr_decays": (200, 400), "momentum": 0.9, "nesterov": False,
    "optimizer": "sgd",
    "weight_decay": 5e-4, "normalise": False, "clip": 0.0, "ema": 0.0, "held_out": 0,
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


def from_command_line(*arguments):
    """The recipe that `macer train` would be given."""
    commands = command_line(train_command(arguments))
    _, bound, _ = commands.parse_args(["train", *arguments], exit_on_error=False, print_error=False)
    bound.apply_defaults()
    given = bound.arguments
    return replace(given["fields"], loss=Loss(given["loss"], **vars(given["settings"])))


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
def test_gaussian_recipes_have_one_copy_and_no_robustness_term(name):
    recipe = named_recipe(name)
    assert recipe.loss.name in ("macer", "gaussian")  # the same for k = 1 and λ = 0
    assert (recipe.k, recipe.loss.get("lam", 0.0)) == (1, 0.0)


def test_a_flag_overrides_the_recipe_and_leaves_its_other_fields():
    flags = ("--sigma", "0.7", "--k", "3", "--no-flip", "--lam", "2")
    changed = from_command_line("paper/cifar10-1.00", *flags)
    expected = completed(named_recipe("paper/cifar10-1.00"))
    assert changed == expected.changed(sigma=0.7, k=3, flip=False, lam=2.0)


def test_another_loss_has_its_own_defaults_and_nothing_of_the_files():
    changed = from_command_line("paper/cifar10-0.25", "--loss", "consistency", "--eta", "0.2")
    expected = replace(named_recipe("paper/cifar10-0.25"), loss=Loss("consistency", eta=0.2))
    assert changed == completed(expected)


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
    "step_size": 0.7,
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


def test_the_defaults_are_the_papers():
    default = completed(TrainRecipe()).flat()
    assert {field: default[field] for field in PAPER} == PAPER


# refusal


@pytest.mark.parametrize(
    ("field", "values", "requirement"),
    [
        *((name, (0, -0.25, math.inf, math.nan), "> 0") for name in
          ("sigma", "gamma", "beta", "lr", "filter_lr")),
        *((name, (0, -3), "at least 1") for name in ("k", "epochs", "batch", "reweight_every")),
        *((name, (-1, math.inf, math.nan), "at least 0") for name in
          ("lam", "weight_decay", "clip", "pseudo_weight")),
        *((name, (-1,), "at least 0") for name in ("drop_epoch", "crop", "held_out", "labelled")),
        *((name, (-0.1, 1.1, math.nan), "in [0, 1]") for name in ("drop_below", "resized_crop")),
        *((name, (-0.1, 1, math.nan), "in [0, 1)") for name in ("momentum", "ema")),
        ("lam_ramp", (0, 1.1, math.nan), "in (0, 1]"),
        ("lr_peak", (-0.1, 1.1, math.nan), "in [0, 1]"),
        ("seed", (-1, 2**63), "in [0, 2⁶³)"),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused(field, values, requirement):
    for value in map(type(completed(TrainRecipe()).flat()[field]), values):
        with pytest.raises(Mistake) as refusal:
            completed(TrainRecipe().changed(**{field: value}))
        assert str(refusal.value) == f"{field} must be {requirement}, got {value}"


@pytest.mark.parametrize(
    ("loss", "setting", "value", "requirement"),
    [
        ("consistency", "eta", -1.0, "at least 0"),
        ("macer-consistency", "consistency", math.nan, "at least 0"),
        ("smoothadv", "epsilon", math.inf, "at least 0"),
        ("smoothadv", "epsilon_ramp", -1, "at least 0"),
        ("smoothadv", "steps", -1, "at least 0"),
        ("smoothadv", "step_size", 0.0, "> 0"),
        ("smoothmix", "step_size", -1.0, "> 0"),
        ("sun", "attack_epoch", -1, "at least 0"),
    ],
)
def test_a_setting_out_of_range_is_refused(loss, setting, value, requirement):
    with pytest.raises(Mistake) as refusal:
        completed(TrainRecipe(loss=Loss(loss, **{setting: value})))
    assert str(refusal.value) == f"{setting} must be {requirement}, got {value}"


@pytest.mark.parametrize(
    ("loss", "setting", "value", "message"),
    [
        ("macer", "eta", 3.0, "the loss macer has no setting 'eta', did you mean 'beta'?; its "
         "settings are lam, gamma, beta, cross_entropy"),
        ("gaussian", "lam", 0.0, "the loss gaussian has no setting 'lam'; it has no settings"),
        ("macer", "lam", "12", "lam must be a number, got '12'"),
        ("macer", "cross_entropy", "both", "cross_entropy must be one of smoothed, copies, got "
         "'both'"),
        ("smoothadv", "steps", 4.5, "steps must be a whole number, got 4.5"),
        ("smoothadv", "steps", 10**9, "steps must be at most 10,000, got 1000000000"),
        ("smoothadv", "epsilon_ramp", 2**63, "epsilon_ramp must be below 2⁶³, got "
         "9223372036854775808"),
        ("smoothadv", "step_size", "x", "step_size must be a number, got 'x'"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_refused(loss, setting, value, message):
    with pytest.raises(Mistake) as refusal:
        completed(TrainRecipe(loss=Loss(loss, **{setting: value})))
    assert str(refusal.value) == message


@pytest.mark.parametrize("loss", ["gaussian", "smoothadv"])
def test_a_schedule_of_lam_without_lam_is_refused(loss):
    with pytest.raises(Mistake) as refusal:
        completed(TrainRecipe(loss=loss, lam_schedule="ramp"))
    assert str(refusal.value) == (
        f"lam_schedule must be constant with the loss {loss}, which has no setting lam, got ramp"
    )


class Network:
    def __repr__(self):
        return "Network(\n  (0): Layer()\n)"


BY_NAME = "a recipe is written into files: name it as package.module:function"
BY_FILE = "a recipe is written into files: name a run folder, a model file or zoo:NAME"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("model", Network(), f"model must be a string, got an object of type Network; {BY_NAME}"),
        ("loss", max, "loss must be a Loss, the name of one, or a table with a name and settings, "
         f"got an object of type builtin_function_or_method; {BY_NAME}"),
        ("pseudo", Network(), f"pseudo must be a string, got an object of type Network; {BY_FILE}"),
        ("dataset", 3, "dataset must be a string, got 3"),
        ("dataset", None, "dataset must be a string, got None"),
        ("sigma", "0.5", "sigma must be a number, got '0.5'"),
        ("sigma", True, "sigma must be a number, got True"),
        ("sigma", np.ones(1), "sigma must be a number, got an object of type ndarray"),
        ("lr", 10**400, f"lr must be a number that a float holds, got 1{'0' * 56}…"),
        ("lr", -(10**5000), "lr must be a number that a float holds, got a number of thousands of "
         "digits"),
        ("k", 1.5, "k must be a whole number, got 1.5"),
        ("k", np.float64(16), "k must be a whole number, got 16.0"),
        ("k", 10**5000, "k must be at most 1,000,000, got a number of thousands of digits"),
        ("flip", "yes", "flip must be True or False, got 'yes'"),
        ("flip", 1, "flip must be True or False, got 1"),
        ("optimizer", "adam", "optimizer must be one of sgd, muon, got 'adam'"),
        ("lr_decays", {1, 2}, "lr_decays must be a list, got an object of type set"),
        ("lr_decays", "12", "lr_decays must be a list, got '12'"),
        ("lr_decays", (1, "2"), "each of lr_decays must be a whole number, got '2'"),
        ("crop", 2**63, "crop must be below 2⁶³, got 9223372036854775808"),
    ],
    ids=lambda value: None if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
def test_a_value_of_a_wrong_type_is_refused(field, value, message):
    with pytest.raises(Mistake) as refusal:
        TrainRecipe(**{field: value})
    assert str(refusal.value) == message


@pytest.mark.parametrize("kind", [TrainRecipe, CertifyRecipe])
def test_every_field_has_a_type_that_is_checked(kind):
    for field in fields(kind):
        with pytest.raises(Mistake, match=f"^{field.name} must be .*, got an object of type Net"):
            kind(**{field.name: Network()})


def test_a_recipe_is_the_same_from_numbers_of_numpy_lists_and_paths():
    plain = TrainRecipe(
        sigma=0.5, k=3, flip=True, lr_decays=(1, 2), pseudo="c", labelled=3,
        loss=Loss("catrs", lam=2.0, teacher="a/b"),
    )  # fmt: skip
    other = TrainRecipe(
        sigma=np.float32(0.5), k=np.int64(3), flip=np.bool_(True), lr_decays=[np.int8(1), 2],
        pseudo=Path("c"), labelled=3,
        loss={"name": "catrs", "lam": np.int64(2), "teacher": Path("a/b")},
    )  # fmt: skip
    plain, other = completed(plain), completed(other)
    assert other == plain and hash(other) == hash(plain)
    assert repr(other) == repr(plain)
    assert json.dumps(other.to_dict()) == json.dumps(plain.to_dict())


def test_nesterov_without_momentum_is_refused():
    with pytest.raises(Mistake, match=r"momentum must be > 0 with nesterov, got 0.0"):
        TrainRecipe(nesterov=True, momentum=0.0)


@pytest.mark.parametrize("decays", [(400, 200), (200, 200)])
def test_decays_out_of_order_are_refused(decays):
    with pytest.raises(Mistake) as refusal:
        TrainRecipe(lr_decays=decays)
    assert str(refusal.value) == f"lr_decays must be ascending, got {list(decays)}"


@pytest.mark.parametrize("without", [{"lr_schedule": "cosine"}, {"lr_decays": ()}])
def test_a_lam_deferred_to_a_decay_that_never_comes_is_refused(without):
    with pytest.raises(Mistake, match="lam_schedule must not be deferred without a step schedule"):
        TrainRecipe(lam_schedule="deferred", **without)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_of_certification_out_of_range_is_refused(seed):
    with pytest.raises(Mistake) as refusal:
        CertifyRecipe(seed=seed)
    assert str(refusal.value) == f"seed must be in [0, 2⁶³), got {seed}"


@pytest.mark.parametrize("field", ["n0", "n"])
def test_more_samples_than_any_chip_draws_are_refused(field):
    with pytest.raises(Mistake) as refusal:
        CertifyRecipe(**{field: 10**13})
    assert str(refusal.value) == f"{field} must be at most 1,000,000,000,000, got 10000000000000"


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


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--k", "4.5", "Invalid value for --k: must be a whole number, got 4.5"),
        ("--batch", "0", "batch must be at least 1, got 0"),
        ("--sigmaa", "1", "unknown flag --sigmaa, did you mean 'sigma'?; the loss macer has the "),
        (
            "--eta",
            "3",
            "unknown flag --eta, did you mean 'beta'?; the loss macer has the settings ",
        ),
        ("--lam", "x", "Invalid value for --lam"),
        ("--gamma", "0", "gamma must be > 0, got 0.0"),
    ],
)
def test_a_mistaken_flag_is_refused(tmp_path, capsys, flag, value, message):
    assert message in refused(capsys, "demo", flag, value, "--out", str(tmp_path / "run"))
    assert list(tmp_path.iterdir()) == []
