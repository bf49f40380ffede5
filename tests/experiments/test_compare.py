"""Recipes compared: the same seeds and images, paired differences, counted passes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from examples import log_of, random_log
from tiny_models import CLASSES, tiny_recipe, tiny_split

from macer.cli.app import main
from macer.data.selection import Selection
from macer.data.sets import Rules, Split
from macer.experiments import compare as comparison
from macer.experiments.compare import Entry, cells, compare, notes, passes_of
from macer.experiments.examination import Examination, certified
from macer.losses import LOSSES
from macer.recipes import CertifyRecipe, Loss, TrainRecipe, named_recipe, recipe_names
from macer.reporting.logs import CertificateLog, read_log
from macer.reporting.scores import average_certified_radius, paired_difference, standard_error
from macer.reporting.texts import with_error
from macer.runs.run import Run
from macer.system.errors import Mistake
from macer.training.loop import train
from macer.training.step import Trainer

CPU = torch.device("cpu")
SAMPLE = [name for name in recipe_names() if name.startswith("sample/")]


def entry(name: str, *logs: CertificateLog, passes: float = 1.0, seconds: float = 1.0) -> Entry:
    return Entry(name, TrainRecipe(), logs, passes, seconds)


@pytest.fixture
def tiny_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, split: str, folder: Path | None, *, rules: Rules) -> Split:
        return replace(tiny_split(seed=0 if split == "train" else 1), classes=CLASSES)

    monkeypatch.setattr(comparison, "load", load)


def compared(
    out: Path, recipes: dict[str, TrainRecipe], seeds: int = 2, held_out: int = 0
) -> list[Entry]:
    return compare(
        recipes,
        out,
        seeds=seeds,
        settings=CertifyRecipe(n0=10, n=50),
        data=None,
        images=Selection(0, None, 4),
        device=CPU,
        held_out=held_out,
    )


# law


def test_with_one_seed_the_table_is_the_reports():
    first, second = random_log(0), random_log(1)
    _, rows = cells([entry("a", first), entry("b", second)])
    for log, row in zip((first, second), rows, strict=True):
        assert row[2] == with_error(average_certified_radius(log), standard_error(log))
    gain, error, _ = paired_difference(second, first)
    assert rows[1][3].lstrip("+") == with_error(gain, error)
    assert rows[0][3] == ""


def test_seeds_of_the_same_quality_make_the_standard_error_smaller():
    """Averaged over seeds, the noise of training and of certifying leaves the differences."""
    random = np.random.default_rng(0)

    def log(gain: float) -> CertificateLog:
        return log_of([0] * 400, np.clip(1 + gain + 0.3 * random.normal(size=400), 0, 9).tolist())

    def error(seeds: int) -> float:
        pair = [
            entry(name, *(log(gain) for _ in range(seeds))) for name, gain in (("a", 0), ("b", 0.1))
        ]
        return float(cells(pair)[1][1][3].split("± ")[1])

    assert error(16) == pytest.approx(error(1) / 4, rel=0.15)


def test_a_recipe_has_no_difference_to_itself():
    log = random_log(0)
    _, rows = cells([entry("a", log), entry("b", log)])
    assert rows[1][3] == "+0.000 ± 0.000"


def test_costs_are_passes_and_time_relative_to_the_first():
    log = random_log(0)
    pair = [entry("a", log, passes=1.0, seconds=2.0), entry("b", log, passes=44.0, seconds=30.0)]
    assert [row[-2:] for row in cells(pair)[1]] == [["1.0", "1.0"], ["44.0", "15.0"]]


@pytest.mark.parametrize(
    ("changes", "passes"),
    [
        ({"loss": "gaussian", "k": 1}, 1),
        ({"loss": "gaussian", "k": 3}, 3),
        ({"loss": "stability", "k": 1}, 2),
        ({"loss": "consistency", "k": 2}, 2),
        ({"loss": "macer", "k": 16}, 16),
        ({"loss": "macer-consistency", "k": 8}, 8),
        ({"loss": "smoothadv", "k": 4, "steps": 10}, 44),
        ({"loss": "smoothmix", "k": 4, "steps": 4, "step_size": 1.0}, 24),
        ({"loss": "catrs", "k": 4, "steps": 4, "teacher": "run"}, 28),  # 4 of them the teacher's
        ({"loss": "macer", "k": 2, "labelled": 32}, 2),
    ],
)
def test_passes_are_counted(tmp_path, monkeypatch, changes, passes):
    monkeypatch.chdir(tmp_path)
    train(tiny_recipe(epochs=1), tiny_split(), CLASSES, Path("run"))
    assert passes_of(tiny_recipe(**changes), tiny_split(), Path("run")) == passes


def test_passes_are_those_of_all_epochs(tmp_path):
    """Sun's method attacks and votes from an epoch on."""
    train(tiny_recipe(epochs=1), tiny_split(), CLASSES, tmp_path / "run")
    recipe = tiny_recipe(loss="sun", k=4, steps=3, step_size=0.25, epochs=4)
    plain = passes_of(recipe, tiny_split(), tmp_path / "run")
    later = recipe.changed(drop_epoch=2, drop_below=0.9, attack_epoch=2)
    assert passes_of(later, tiny_split(), tmp_path / "run") > plain


# the whole


@pytest.mark.medium
def test_recipes_are_trained_and_certified_with_each_seed(tmp_path, tiny_data):
    recipes = {"plain": tiny_recipe(loss="gaussian", k=1), "macer": tiny_recipe()}
    entries = compared(tmp_path, recipes)
    assert [one.name for one in entries] == ["plain", "macer"]
    for one in entries:
        assert [log.idx.tolist() for log in one.logs] == [list(range(0, 64, 4))] * 2
        for seed in range(2):
            manifest = Run(tmp_path / one.name / f"seed-{seed}").read_manifest()
            assert (manifest["recipe"]["seed"], manifest["status"]) == (seed, "trained")
            assert manifest["recipe"]["loss"] == recipes[one.name].loss.to_dict()
    assert [one.passes for one in entries] == [1, 4]
    assert all(one.seconds > 0 for one in entries)


@pytest.mark.medium
def test_what_is_finished_is_not_done_again_and_the_table_stays(tmp_path, tiny_data, monkeypatch):
    recipes = {"plain": tiny_recipe(loss="gaussian", k=1), "macer": tiny_recipe()}
    rows = cells(compared(tmp_path, recipes))[1]
    weights = [path.read_bytes() for path in sorted(tmp_path.rglob("model.safetensors"))]
    steps = []
    taken = Trainer._take_step

    def take_step(trainer: Trainer, *arguments: object) -> None:
        steps.append(len(trainer.images))
        taken(trainer, *arguments)

    monkeypatch.setattr(Trainer, "_take_step", take_step)
    monkeypatch.setattr(comparison, "passes_of", lambda *_: 1.0)
    again = cells(compared(tmp_path, recipes))[1]
    assert steps == []
    assert [row[:5] for row in again] == [row[:5] for row in rows]
    assert [p.read_bytes() for p in sorted(tmp_path.rglob("model.safetensors"))] == weights


@pytest.mark.medium
def test_settings_are_chosen_by_held_out_images(tmp_path, tiny_data):
    """By the last ones, which no training has seen, however many it held out by itself."""
    recipes = {"plain": tiny_recipe(loss="gaussian", k=1), "macer": tiny_recipe(held_out=30)}
    entries = compared(tmp_path, recipes, held_out=20)
    training = tiny_split(seed=0)
    for one in entries:
        for seed, log in enumerate(one.logs):
            assert (log.idx.tolist(), log.split) == ([44, 48, 52, 56, 60], "train")
            assert log.label.tolist() == training.labels[log.idx].tolist()
            run = tmp_path / one.name / f"seed-{seed}"
            assert Run(run).read_recipe().held_out == max(20, recipes[one.name].held_out)
            assert not (run / "certificates.tsv").exists()
            looks = [line.get("validation_radius") for line in Run(run).read_metrics()]
            assert [look is None for look in looks] == [True, True, False]  # at the end alone
    assert notes(entries)[0].startswith("Held out: training 44…60, every 4th (5), n = 50")
    fewer = compared(tmp_path, recipes | {"plain": entries[0].recipe}, held_out=10)
    assert [log.idx.tolist() for log in fewer[1].logs] == [[56, 60]] * 2


@pytest.mark.medium
def test_a_teacher_from_elsewhere_must_have_held_the_images_out(tmp_path, tiny_data):
    for name, held_out in (("all", 0), ("few", 20)):
        recipe = tiny_recipe(loss="gaussian", k=1, held_out=held_out)
        train(recipe, tiny_split(), CLASSES, tmp_path / name)
    student = tiny_recipe(loss="catrs", teacher=str(tmp_path / "all"), steps=1, epsilon=0.1)
    with pytest.raises(Mistake, match=r"^teacher must be a run that held out at least 20 images "):
        compared(tmp_path / "out", {"student": student}, held_out=20)
    assert not (tmp_path / "out").exists()
    compared(tmp_path / "out", {"student": student})  # by test images
    student = student.changed(teacher=str(tmp_path / "few"))
    compared(tmp_path / "other", {"student": student}, seeds=1, held_out=20)


@pytest.mark.medium
def test_an_unfinished_comparison_goes_on(tmp_path, tiny_data):
    recipes = {"plain": tiny_recipe(loss="gaussian", k=1)}
    compared(tmp_path, recipes, seeds=1)
    more = compared(tmp_path, recipes | {"macer": tiny_recipe()}, seeds=2)
    assert [len(one.logs) for one in more] == [2, 2]


@pytest.mark.medium
def test_a_teacher_of_the_comparison_is_its_run_of_the_same_seed(tmp_path, tiny_data):
    student = tiny_recipe(loss="catrs", teacher="runs/plain", steps=1, epsilon=0.1)
    entries = compared(tmp_path, {"student": student, "plain": tiny_recipe(loss="gaussian", k=1)})
    assert [one.name for one in entries] == ["student", "plain"]
    for seed in range(2):
        recipe = Run(tmp_path / f"student/seed-{seed}").read_manifest()["recipe"]
        assert recipe["loss"]["teacher"] == str(tmp_path / f"plain/seed-{seed}")


def test_a_teacher_of_the_comparison_holds_out_what_its_student_does(tmp_path, tiny_data):
    """Its run elsewhere, of the name that the recipe has, is not looked for."""
    student = tiny_recipe(loss="catrs", teacher="runs/plain", steps=1, epsilon=0.1)
    recipes = {"student": student, "plain": tiny_recipe(loss="gaussian", k=1)}
    compared(tmp_path, recipes, seeds=1, held_out=20)
    for name in recipes:
        assert Run(tmp_path / name / "seed-0").read_recipe().held_out == 20


@pytest.mark.parametrize(
    ("teacher", "here"),
    [("runs/plain", True), ("elsewhere/plain", False), ("plain", False), ("runs/other", False),
     ("elsewhere/runs/plain", False), ("", False)],
)  # fmt: skip
def test_only_a_recipes_own_place_names_a_run_of_the_comparison(teacher, here):
    recipe = tiny_recipe(loss="catrs", teacher=teacher)
    recipes = {"plain": tiny_recipe(), "student": recipe}
    assert comparison.teachers_among(recipe, recipes) == ({"teacher": "plain"} if here else {})


def test_of_certificates_that_were_made_before_only_those_asked_for_count(tmp_path, tiny_data):
    recipes = {"plain": tiny_recipe(loss="gaussian", k=1)}
    compared(tmp_path, recipes, seeds=1)
    run, split = tmp_path / "plain" / "seed-0", tiny_split(seed=1)
    for start, stop, skip, idx in ((5, 33, 8, [8, 16, 24, 32]), (0, 5, 1, [0, 1, 2, 3, 4])):
        exam = Examination(split, Selection(start, stop, skip), CertifyRecipe(n0=10, n=50))
        assert certified(run, "tiny", exam, CPU).idx.tolist() == idx


@pytest.mark.medium
def test_the_command_prints_the_table_with_its_images_n_and_alpha(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for loss in ("gaussian", "consistency"):
        Path(f"{loss}.toml").write_text(
            'model = "tiny_models:tiny"\nsigma = 0.25\nk = 2\nlabelled = 64\nbatch = 32\n'
            f'epochs = 1\n[loss]\nname = "{loss}"\n'
        )
    code = ["--code", "tiny_models"]
    arguments = ["--seeds", "2", "--n0", "10", "--n", "50", "--skip", "200", "--device", "cpu"]
    assert (
        main(["compare", "gaussian.toml", "consistency.toml", "--out", "all", *arguments, *code])
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines if line.strip()]
    assert names.index("recipe") < names.index("gaussian") < names.index("consistency")
    assert "Test images 0…1800, every 200th (10), n = 50, α = 0.001, 2 seeds." in lines
    assert Path("all/consistency/seed-1/certificates.tsv").is_file()


@pytest.mark.medium
def test_the_command_takes_a_share_of_the_epochs_or_as_many_copies(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text(
        'model = "tiny_models:tiny"\nsigma = 0.25\nbatch = 32\nepochs = 8\nlr_decays = [4]\n'
        'labelled = 64\n[loss]\nname = "macer"\n'
    )
    compare = ["compare", "own.toml", "--seeds", "1", "--n0", "10", "--n", "50", "--device", "cpu"]
    compare += ["--code", "tiny_models", "--vary", "k=1,2", "--skip", "200"]
    for flags, epochs in (
        (["--out", "a", "--share", "0.25"], {"k-1": 2, "k-2": 2}),
        (["--out", "b", "--copies", "4"], {"k-1": 4, "k-2": 2}),
    ):
        assert main([*compare, *flags]) == 0
        for name, expected in epochs.items():
            recipe = Run(Path(flags[1]) / f"own-{name}" / "seed-0").read_recipe()
            assert (recipe.epochs, recipe.lr_decays) == (expected, (expected // 2,))
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if " own-k" in line]
    assert [row[-3] for row in rows] == ["2", "2", "4", "2"]
    for flags in (["--share", "0.5"], ["--vary", "epochs=4"]):
        assert main([*compare, *flags, "--copies", "4", "--out", "c"]) == 2
        told = capsys.readouterr().err
        assert told.startswith("macer: copies must be left out with --share and --vary epochs, got")
    assert not Path("c").exists()


@pytest.mark.medium
def test_a_score_gives_the_same_table_for_less_work(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("plain.toml").write_text(
        'model = "tiny_models:tiny"\nsigma = 0.25\nlabelled = 64\nepochs = 1\n'
        '[loss]\nname = "gaussian"\n'
    )
    code = ["--code", "tiny_models"]
    arguments = ["--seeds", "1", "--n0", "10", "--n", "50", "--skip", "100", "--device", "cpu"]
    tables = []
    for flag in ("--no-score", "--score"):
        assert main(["compare", "plain.toml", "--out", flag[2:], flag, *arguments, *code]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1]
    full, scored = (read_log(Path(name) / "plain" / "seed-0") for name in ("no-score", "score"))
    assert np.array_equal(full.correct, scored.correct) and not full.correct.all()
    assert full.estimated.all() and not scored.estimated.all()


# the recipes of the embedded sample


def test_the_samples_recipes_differ_in_the_objective_alone():
    shared = ("dataset", "model", "normalise", "sigma", "labelled", "epochs", "batch", "lr")
    shared += ("lr_schedule", "lr_decays", "momentum", "nesterov", "weight_decay", "clip", "ema")
    shared += ("crop", "flip", "held_out", "precision", "seed")
    settings = {tuple(getattr(named_recipe(name), field) for field in shared) for name in SAMPLE}
    assert len(settings) == 1


def test_the_sample_has_every_objective():
    # A denoiser needs a trained classifier, which a comparison does not have.
    missing = set(LOSSES) - {"denoising"} - {named_recipe(name).loss.name for name in SAMPLE}
    assert not missing, "each needs src/macer/assets/recipes/sample/NAME.toml"
    assert [f"sample/{named_recipe(name).loss.name}" for name in SAMPLE] == SAMPLE


# refusal


def test_recipes_of_two_data_sets_are_refused(tmp_path):
    recipes = {"a": tiny_recipe(), "b": tiny_recipe(dataset="mnist")}
    with pytest.raises(Mistake, match="recipes must be of one data set, got mnist, tiny"):
        compared(tmp_path, recipes)


def test_a_wrong_setting_of_the_last_recipe_is_refused_before_any_training(tmp_path, tiny_data):
    wrong = replace(tiny_recipe(), loss=Loss("macer", lam="much"))
    with pytest.raises(Mistake, match=r"^lam must be a number, got 'much'$"):
        compared(tmp_path / "out", {"a": tiny_recipe(), "b": wrong})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        (tiny_recipe(held_out=49), {}, "held_out and batch must not exceed the 64 training images"),
        (tiny_recipe(), {"held_out": 49}, "held_out and batch must not exceed the 64 training"),
        (tiny_recipe(), {"held_out": -1}, "held_out must be at least 0, got -1"),
        (tiny_recipe(), {"seeds": 0}, "seeds must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_any_training(
    tmp_path, tiny_data, recipe, changes, message
):
    recipes = {"plain": tiny_recipe(loss="gaussian", k=1), "other": recipe}
    with pytest.raises(Mistake, match=message):
        compared(tmp_path / "out", recipes, **changes)
    assert not (tmp_path / "out").exists()


def test_images_that_are_not_there_are_refused_before_any_training(tmp_path, tiny_data):
    with pytest.raises(Mistake, match="stop must be at most the number of images, 64, got 65"):
        compare(
            {"plain": tiny_recipe()}, tmp_path / "out", seeds=1,
            settings=CertifyRecipe(n0=10, n=50), data=None, images=Selection(0, 65), device=CPU,
        )  # fmt: skip
    assert not (tmp_path / "out").exists()


def test_the_notes_say_which_images_n_and_alpha():
    log = replace(log_of([0, 0], [1.0, 1.0]), n=1000, alpha=0.001)
    assert notes([entry("a", log)])[0] == "Test images 0…1 (2), n = 1,000, α = 0.001, 1 seed."
