"""Inputs of any kind, trained and certified: a table, series, and what images alone can have."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from input_networks import CLASSES, Inputs, pitches, recipe, table
from journals import ENTRIES, rewrite

import macer
from macer.certification.header import Header
from macer.certification.journal import read_journal
from macer.cli.app import main
from macer.experiments.from_python import TrainedRun, open_run, train
from macer.losses import IMAGE_LOSSES, LOSSES
from macer.runs.model_file import ModelCard
from macer.runs.names import JOURNAL
from macer.system.errors import AuditFailed, Mistake

FEW = {"n0": 20, "n": 400}
TRAINING, TEST = table(600, seed=0), table(300, seed=1)
SERIES = recipe(model="input_networks:series", sigma=0.5, lr=0.1, epochs=12, ema=0.5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """A linear network of a table, with its test rows."""
    folder = tmp_path_factory.mktemp("inputs") / "run"
    return train(recipe(held_out=88), TRAINING, CLASSES, folder, value_range=None, test=TEST)


@pytest.fixture
def audited(run: TrainedRun, tmp_path: Path) -> TrainedRun:
    """A copy of the run with certificates in it."""
    copy = tmp_path / "run"
    copy.mkdir()
    for name in ("model.safetensors", "manifest.json"):
        (copy / name).write_bytes((run.folder / name).read_bytes())
    open_run(copy).certify(TEST, stop=8, **FEW)
    return open_run(copy)


def distances(run: TrainedRun, rows: Inputs) -> np.ndarray:
    """How far each row is on its own class's side of the network's hyperplane."""
    linear = run.load()[0].get_submodule("1").double()
    w, b = (values[1] - values[0] for values in linear.parameters())
    margin = ((torch.from_numpy(rows[0]) @ w + b) / w.norm()).detach().numpy()
    return margin * np.where(rows[1] == 1, 1, -1)


# law


@pytest.mark.medium
def test_a_tables_certificates_exceed_their_distances_at_most_at_rate_alpha(
    run: TrainedRun, tmp_path: Path
):
    alpha = 0.2
    certified = run.certify(n=1000, alpha=alpha, out=tmp_path)
    distance = distances(run, TEST)
    radii = np.array([record.certificate.radius for record in certified])
    labels = np.array([record.certificate.label for record in certified])
    right = labels == TEST[1]
    assert (distance[right] > 0).mean() > 0.99
    exceeding = (radii[right] > distance[right]).mean()
    # Of 300 at the level 0.2; a tighter level would be wasted, and a looser one wrong.
    assert 0.08 < exceeding < alpha + 3 * (alpha * (1 - alpha) / right.sum()) ** 0.5
    near = right & (distance > 0.3) & (distance < 2)  # a far one is bounded by n alone
    assert np.median(distance[near] - radii[near]) < 0.1


@pytest.mark.medium
def test_a_table_is_learnt_and_its_certificates_count(run: TrainedRun, tmp_path: Path):
    certified = run.certify(out=tmp_path, n=1000)
    assert certified.accuracy() > 0.93  # two Gaussians at distance 4: Φ(2) = 0.977
    assert certified.accuracy(1.0) > 0.6 and certified.acr > 1.0
    assert not any(record.certificate.exact for record in certified)
    assert run.metrics[-1]["validation_accuracy"] > 0.9
    assert len(macer.report([certified]).table.rows) == 1


def test_the_run_says_what_its_inputs_are(run: TrainedRun, tmp_path: Path):
    model, card = run.load()
    assert (card.value_range, card.shape, card.mean, card.std) == (None, (10,), (), ())
    assert card.sigma == 1.0 and card.classes == CLASSES
    mine = run.certify(out=tmp_path, stop=6, **FEW)
    theirs = macer.certify(
        model, TEST[0][:6], sigma=card.sigma, value_range=card.value_range, **FEW
    )
    assert [record.certificate for record in mine] == theirs


@pytest.mark.medium
def test_series_are_trained_by_a_convolution_and_certified(tmp_path: Path):
    made = train(
        SERIES, pitches(400, seed=0), CLASSES, tmp_path / "run", value_range=(-1, 1),
        test=pitches(60, seed=1),
    )  # fmt: skip
    certified = made.certify(**FEW)
    assert made.load()[1].shape == (1, 64) and made.load()[1].value_range == (-1.0, 1.0)
    assert certified.accuracy(0.25) > 0.9
    header = read_journal(tmp_path / "run" / JOURNAL).header
    assert (header.value_range, header.exact) == ([-1.0, 1.0], False)


@pytest.mark.medium
def test_a_killed_training_of_series_ends_in_the_same_weights(tmp_path: Path):
    data, settings = pitches(160, seed=0), {"value_range": (-1, 1), "checkpoint_seconds": 0.0}
    whole = train(SERIES, data, CLASSES, tmp_path / "whole", **settings)

    class Killed(Exception):
        pass

    def kill(metrics: dict[str, Any]) -> None:
        if metrics["epoch"] == 5:
            raise Killed

    with pytest.raises(Killed):
        train(SERIES, data, CLASSES, tmp_path / "run", watch=kill, **settings)
    again = train(SERIES, data, CLASSES, tmp_path / "run", resume=True, **settings)
    assert again.model_file.read_bytes() == whole.model_file.read_bytes()


@pytest.mark.parametrize("loss", sorted({*LOSSES} - {*IMAGE_LOSSES}))
def test_a_volume_is_trained_by_every_loss_that_is_not_for_images(loss: str, tmp_path: Path):
    random = np.random.default_rng(0)
    data = random.normal(size=(32, 1, 4, 4, 4)), np.arange(32) % 2
    given = recipe(model="input_networks:volume", loss=macer.Loss(loss), epochs=1)
    made = train(given, data, CLASSES, tmp_path / "run", value_range=None, test=data)
    assert len(made.certify(stop=2, **FEW)) == 2


def test_harder_rows_are_dropped_and_unlabelled_ones_labelled(run: TrainedRun, tmp_path: Path):
    given = recipe(drop_epoch=1, epochs=2, labelled=300, pseudo=str(run.folder))
    made = train(
        given, TRAINING, CLASSES, tmp_path / "run", value_range=None, code=["input_networks"]
    )
    assert 0 < made.metrics[-1]["dropped_images"] < 400


def test_certifying_continues_and_other_rows_are_refused(run: TrainedRun, tmp_path: Path):
    first = run.certify(stop=3, out=tmp_path, **FEW)
    rows = tuple(torch.from_numpy(values) for values in TEST)  # the same, by hand
    both = open_run(run.folder).certify(rows, stop=6, out=tmp_path, **FEW)
    assert both.records[:3] == first.records and len(both) == 6
    with pytest.raises(Mistake, match="data_sha256"):
        run.certify((TEST[0] + 1e-3, TEST[1]), stop=6, out=tmp_path, **FEW)


def test_certificates_are_verified_with_their_data_in_python(audited: TrainedRun):
    assert audited.verify(TEST) == 8 and audited.verify(TEST, resample=2) == 2
    with pytest.raises(AuditFailed, match="data_sha256"):
        audited.verify((TEST[0], 1 - TEST[1]))


def changed_count(move: int) -> Callable[[Any], Any]:
    """A record whose counts differ, with the conclusion that follows from them."""

    def change(record: Any) -> Any:
        evidence = record.certificate
        counts = tuple(c + move * (1 if i == evidence.selected else -1)
                       for i, c in enumerate(evidence.estimation))  # fmt: skip
        return replace(record, certificate=replace(evidence, estimation=counts))

    return change


def test_the_command_verifies_what_needs_no_data_and_finds_a_changed_count(
    audited: TrainedRun, capsys: pytest.CaptureFixture[str]
):
    assert main(["verify", str(audited.folder), "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "8 of 8 images asked for: 0…7",
        "8 certificates follow from their counts",
        "model, its outputs and table are those of the journal",
    ]
    assert lines[3].startswith("data and labels not checked and nothing sampled again")
    rewrite(audited.folder, changed_count(-5))
    assert main(["verify", str(audited.folder), "--device", "cpu"]) == 1
    assert "its counts do not support its certificate" in capsys.readouterr().err


@pytest.mark.parametrize("value_range", [[0.0, 1.0], [-100.0, 100.0]])
def test_a_journal_of_another_value_range_is_not_of_the_model(
    audited: TrainedRun, value_range: list[float], capsys: pytest.CaptureFixture[str]
):
    rewrite(audited.folder, header={"value_range": value_range})
    assert main(["verify", str(audited.folder), "--device", "cpu"]) == 1
    assert "value_range is None, the journal names [" in capsys.readouterr().err
    with pytest.raises(AuditFailed, match=r"^value_range is None, the journal names"):
        audited.verify(TEST)


def test_a_journal_of_images_does_not_name_their_range_and_one_of_inputs_does():

    assert "value_range" not in ENTRIES
    older = Header.from_json(ENTRIES)
    assert older.value_range == [0.0, 1.0] and older.to_json() == ENTRIES
    for value_range in (None, [-1.0, 1.0]):
        entries = ENTRIES | {"exact": False, "value_range": value_range}
        assert Header.from_json(entries).to_json() == entries


CARD = {
    "architecture": "lenet", "classes": ["a", "b"], "shape": [1, 8, 8], "mean": [0.0],
    "std": [1.0], "sigma": 0.5, "dataset": "mnist",
}  # fmt: skip
OWN_CARD = CARD | {"shape": [7], "mean": [], "std": [], "value_range": None}


def test_a_card_of_images_does_not_name_their_range_and_one_of_inputs_does():
    assert "value_range" not in ModelCard.from_fields(CARD).to_dict()
    card = ModelCard.from_fields(OWN_CARD)
    assert card.value_range is None and card.to_dict()["value_range"] is None
    assert ModelCard.from_fields(json.loads(json.dumps(card.to_dict()))) == card


# refusal


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"crop": 2},
            "crop must be 0 with inputs of the value_range None, which are no image",
        ),
        ({"flip": True}, "flip must be False with inputs of the value_range None"),
        ({"resized_crop": 0.5}, "resized_crop must be 0.0 with inputs of the value_range None"),
        ({"normalise": "data"}, "normalise must be none with inputs of the value_range None"),
        ({"denoiser": "dncnn"}, "denoiser must be none with inputs of the value_range None"),
        ({"sigma": 1e-5}, "inputs must be at most 131,072 sigma in size"),
        ({"precision": "bf16"}, "precision must be auto or fp32 with inputs of the value_range"),
        ({"model": "lenet"}, "model 'lenet' does not take inputs of the shape 10: "),
        *(({"loss": macer.Loss(name)}, "loss must be none of smoothadv") for name in IMAGE_LOSSES),
    ],
)
def test_what_only_images_have_is_refused(changes: dict[str, Any], message: str, tmp_path: Path):
    with pytest.raises(Mistake) as caught:
        train(recipe(**changes), TRAINING, CLASSES, tmp_path / "run", value_range=None)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


X, Y = TRAINING
WITH_NAN = np.where(np.arange(10) == 3, np.nan, X)


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        ((WITH_NAN, Y), {}, "inputs must have finite float32 values, got [nan, nan]"),
        ((X * 1e38, Y), {}, "inputs must have finite float32 values, got ["),
        ((X, Y), {"value_range": (-1, 1)}, "inputs must have values in [-1, 1], got ["),
        ((X, Y), {"value_range": (1, -1)}, "value_range must be None or two numbers, the least"),
        ((X, Y), {"value_range": 3}, "value_range must be None or two numbers, the least"),
        ((X, Y), {"value_range": (0, 1)}, "images must be (images, channels, height, width) or "),
        (
            (X.astype(np.uint8), Y),
            {},
            "inputs with the value_range None must be floats, got uint8",
        ),
        (
            (X[:, 0], Y),
            {},
            "inputs must have the shape (inputs, …) with one value or more",
        ),
        ((X, Y[:5]), {}, "labels must be one per image, got 5 for 600"),
        ((X, Y + 1), {}, "labels must be below 2, the number of classes, got 2"),
        ((X, Y), {"test": (X[:, :9], Y)}, "test inputs must be 10, as those of training, got 9"),
        ((X, Y), {"test": (WITH_NAN, Y)}, "inputs must have finite float32 values"),
    ],
)
def test_a_mistake_in_the_data_is_one_line(
    data: Inputs, settings: dict[str, Any], message: str, tmp_path: Path
):
    with pytest.raises(Mistake) as caught:
        train(recipe(), data, CLASSES, tmp_path / "run", **{"value_range": None, **settings})
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_test_rows_of_another_shape_and_exact_noise_are_refused(run: TrainedRun, tmp_path: Path):
    with pytest.raises(Mistake, match=r"takes inputs of the shape 10, those of arrays are 9$"):
        run.certify((TEST[0][:, :9], TEST[1]), out=tmp_path, **FEW)
    with pytest.raises(Mistake, match=r"^exact must be False for inputs of the value_range None"):
        run.certify(exact=True, out=tmp_path, **FEW)
    with pytest.raises(Mistake, match=r"^precision must be auto or fp32 for inputs of the value_r"):
        run.certify(precision="bf16", out=tmp_path, **FEW)
    with pytest.raises(Mistake, match=r"^exact must be false with the value_range None, got True$"):
        Header.from_json(ENTRIES | {"value_range": None})


@pytest.mark.parametrize(
    "command",
    [
        "plan {}", "predict {} here.png", "serve {}", "certify {} --dataset mnist-sample",
        "attack {}", "verify {} --resample 2", "verify {} --stop 2",
    ],
)  # fmt: skip
def test_commands_for_images_refuse_the_run_in_one_line(
    audited: TrainedRun, command: str, capsys: pytest.CaptureFixture[str]
):
    assert main(command.format(audited.folder).split()) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "must be" in line or "takes inputs of" in line


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": []}, "shape must be three whole numbers, got ()"),
        ({"shape": [1] * 17}, "shape must be at most 16 sizes, got (1, 1"),
        ({"shape": [2.5]}, "shape must be three whole numbers, got [2.5]"),
        ({"mean": [0.0]}, "mean must be 0 finite numbers"),
        ({"value_range": [1.0, 0.0]}, "value_range must be None or two numbers"),
        ({"value_range": "any"}, "value_range must be null or two numbers, got any"),
        ({"value_range": [0.0, 1.0]}, "shape must be three whole numbers, got (7,)"),
    ],
)
def test_a_card_that_no_inputs_have_is_refused(changes: dict[str, Any], message: str):
    with pytest.raises(Mistake) as caught:
        ModelCard.from_fields(OWN_CARD | changes)
    assert str(caught.value).startswith(message)
