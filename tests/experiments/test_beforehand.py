"""A comparison looked at before its first training: what is refused, and what is told."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_models import CLASSES, tiny_recipe, tiny_split

from macer.data.selection import Selection
from macer.data.sets import Rules, Split
from macer.experiments import beforehand
from macer.experiments import compare as comparison
from macer.experiments.compare import compare
from macer.recipes import CertifyRecipe, TrainRecipe
from macer.system.errors import Mistake

FIRST = tiny_recipe(loss="gaussian", k=1)
STUDENT = tiny_recipe(loss="catrs", teacher="runs/first", steps=1, epsilon=0.1)
on_tiny_data = pytest.mark.usefixtures("tiny_data")


@pytest.fixture
def tiny_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, split: str, folder: Path | None, *, rules: Rules) -> Split:
        return replace(tiny_split(seed=0 if split == "train" else 1), classes=CLASSES)

    monkeypatch.setattr(comparison, "load", load)


def compared(out: Path, *, n: int = 50, seeds: int = 1, **recipes: TrainRecipe) -> None:
    compare(
        recipes, out, seeds=seeds, settings=CertifyRecipe(n0=10, n=n), data=None,
        images=Selection(0, None, 4), device=torch.device("cpu"),
    )  # fmt: skip


# law


@pytest.mark.medium
@on_tiny_data
def test_what_is_left_is_told_before_the_first_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compared(tmp_path, first=FIRST)
    told = capsys.readouterr().err
    assert "1 model: 3 epochs of training, then 16 images to certify\n" in told
    assert "measured here" not in told  # it takes no minutes
    compared(tmp_path, first=FIRST, macer=tiny_recipe(), seeds=2)
    told = capsys.readouterr().err
    assert "4 models: 9 epochs of training, then 48 images to certify\n" in told
    compared(tmp_path, first=FIRST)
    assert "to certify" not in capsys.readouterr().err


@on_tiny_data
def test_a_long_comparison_says_how_long_it_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = []

    def measured(works: list[beforehand.Work], *_: object, **__: object) -> str:
        timed.append([work.recipe.loss.name for work in works])
        return "a day"

    monkeypatch.setattr(beforehand, "measured", measured)
    monkeypatch.setattr(beforehand, "LONG", {"cpu": 1})
    compared(tmp_path, student=STUDENT, first=FIRST)
    assert timed == [["gaussian"]]
    assert "measured here, they take a day; not counted: student\n" in capsys.readouterr().err


# refusal


@on_tiny_data
@pytest.mark.parametrize(
    ("second", "message"),
    [
        (FIRST.changed(model="lenett"), r"^unknown model 'lenett', did you mean 'lenet'\?; "),
        (FIRST.changed(labelled=65), "^labelled must be at least batch, "),
        (FIRST.changed(crop=99), "^crop must be at most the images' size, "),
        (FIRST.changed(normalise="foo"), "^unknown normalisation 'foo'"),
        (FIRST.changed(model="lenet", freeze=("conv1",)), "^init must be given with freeze, "),
        (STUDENT.changed(teacher="elsewhere"), "^no run or model at elsewhere; "),
        (STUDENT.changed(teacher=""), "^teacher must be a run or a model file with loss catrs, "),
    ],
)
def test_what_the_last_training_would_refuse_is_refused_before_the_first(
    tmp_path: Path, second: TrainRecipe, message: str
) -> None:
    with pytest.raises(Mistake, match=message):
        compared(tmp_path / "out", first=FIRST, second=second)
    assert not (tmp_path / "out").exists()


@on_tiny_data
def test_runs_and_certificates_of_other_settings_are_refused_before_the_first_training(
    tmp_path: Path,
) -> None:
    compared(tmp_path, last=FIRST)
    with pytest.raises(
        Mistake, match=r"^n must be 50, that of the certificates in \S+last/seed-0, "
    ):
        compared(tmp_path, n=60, first=FIRST, last=FIRST)
    with pytest.raises(
        Mistake, match=r"^lr must be .* to resume \S+, got 7\.0; choose another --out"
    ):
        compared(tmp_path, first=FIRST, last=FIRST.changed(lr=7.0))
    assert not (tmp_path / "first").exists()
