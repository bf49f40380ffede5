"""Runs whose model has offsets of its logits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import CLASSES, tiny_recipe, tiny_split

from macer.certification.target import trained_target
from macer.data.fingerprint import fingerprint
from macer.data.sets import Split
from macer.experiments.floored import Floored, raise_floor
from macer.runs.model_file import ModelCard
from macer.runs.run import Run
from macer.runs.trained_model import load_model, save_model
from macer.smoothing.streams import Purpose
from macer.system.errors import Mistake
from macer.system.files import sha256_of_file
from macer.training.loop import train
from macer.training.votes import count_votes, sampled_logits

pytestmark = pytest.mark.usefixtures("tiny_networks")
CPU = torch.device("cpu")
CARD = ModelCard(
    architecture="tiny", classes=CLASSES, shape=(1, 8, 8), mean=(0.0,), std=(1.0,), sigma=0.25,
    dataset="tiny",
)  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A trained model that says "right" of no image."""
    folder = tmp_path_factory.mktemp("model")
    recipe = tiny_recipe(loss="gaussian", k=2, epochs=30)
    model, _ = load_model(train(recipe, tiny_split(), CLASSES, folder / "run").parent)
    tensors = model.state_dict()
    tensors["1.4.bias"][2] -= 20
    save_model(folder / "tiny.safetensors", tensors, CARD)
    return str(folder / "tiny.safetensors")


def raised(name: str, folder: Path, split: Split | None = None, **changes: Any) -> Floored:
    settings: dict[str, Any] = {"at_least": 0.3, "samples": 9, "device": CPU}
    return raise_floor(name, split or tiny_split(90), folder, **settings | changes)


def right(target: Path | str, split: Split) -> list[float]:
    """The share of each class that is right on most noisy copies, of noise of its own."""
    batches = sampled_logits(
        load_model(target)[0], split.images, samples=51, sigma=0.25, seed=7,
        purpose=Purpose.VALIDATION, device=CPU,
    )  # fmt: skip
    votes = count_votes(batches).numpy()
    most = 2 * votes[np.arange(len(votes)), split.labels] > 51
    return [float(most[split.labels == c].mean()) for c in range(3)]


# law


def test_the_class_that_was_given_up_has_its_share_and_the_others_no_offset(
    tmp_path: Path, file: str
) -> None:
    made = raised(file, tmp_path / "run")
    assert [each.name for each in made.classes] == list(CLASSES)
    last = made.classes[2]
    assert last.before == 0 and last.after is not None and 0.3 <= last.after < 0.4
    assert [each.offset for each in made.classes[:2]] == [0, 0] and last.offset > 0
    others = tiny_split(300, seed=1)
    assert right(file, others)[2] == 0
    assert right(tmp_path / "run", others)[2] == pytest.approx(0.3, abs=0.15)


def test_the_run_is_complete_without_the_model_and_says_what_it_was_made_of(
    tmp_path: Path, file: str
) -> None:
    made = raised(file, tmp_path / "run", images=20)
    manifest = made.run.read_manifest()
    assert manifest["members"] == {file: sha256_of_file(Path(file))}
    assert manifest["weights_sha256"] == sha256_of_file(made.run.model)
    assert (manifest["status"], manifest["recipe"]) == ("packed", None)
    assert manifest["floor"] == {
        "at_least": 0.3,
        "offsets": [each.offset for each in made.classes],
        "images": 60,
        "samples": 9,
        "precision": "fp32",
        "data_sha256": fingerprint(tiny_split(90)),
    }
    target, card = trained_target(str(made.run.folder))
    assert card == CARD and target.sigma == 0.25
    again = raised(file, tmp_path / "again", images=20)
    assert again.run.model.read_bytes() == made.run.model.read_bytes()


def test_images_are_taken_evenly_from_each_class(
    tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, seen = tiny_split(90), []

    def spied(model: Any, images: Any, **settings: Any) -> Any:
        seen.append(images.numpy())
        return sampled_logits(model, images, **settings)

    monkeypatch.setattr("macer.experiments.floored.sampled_logits", spied)
    raised(file, tmp_path / "run", split, images=3)
    own = [np.flatnonzero(split.labels == c) for c in range(3)]
    chosen = sorted(int(each[len(each) * i // 3]) for each in own for i in range(3))
    assert np.array_equal(seen[0], split.images[chosen])


# refusal


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"at_least": 0.0}, "at_least must be in (0, 1], got 0.0"),
        ({"at_least": 1.5}, "at_least must be in (0, 1], got 1.5"),
        ({"at_least": float("nan")}, "at_least must be in (0, 1], got nan"),
        ({"images": 0}, "images must be at least 1, got 0"),
        ({"samples": 0}, "samples must be at least 1, got 0"),
    ],
)
def test_settings_out_of_range_are_refused(
    tmp_path: Path, file: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(Mistake) as refusal:
        raised(file, tmp_path / "run", **changes)
    assert str(refusal.value) == message
    assert not (tmp_path / "run").exists()


def test_other_classes_than_the_models_are_refused(tmp_path: Path, file: str) -> None:
    split = tiny_split(90)
    other = Split(split.images, split.labels, "tiny", classes=("a", "b", "c"))
    with pytest.raises(Mistake, match=f"class 0 must be left, as {file} was trained"):
        raised(file, tmp_path / "run", other)


def test_a_run_is_not_written_over(
    tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = raised(file, tmp_path / "run")
    before = made.run.model.read_bytes()
    monkeypatch.delattr("macer.experiments.floored.sampled_logits")  # nothing is computed for it
    with pytest.raises(Mistake, match="holds a run already; choose another --out"):
        raised(file, tmp_path / "run", at_least=0.5)
    assert Run(tmp_path / "run").model.read_bytes() == before
