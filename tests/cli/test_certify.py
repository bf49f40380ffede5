"""`macer certify`: a model that is damaged, or of other classes, is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
from desk import CERTIFY, refuses

from macer.runs.run import load_model, save_model


@pytest.mark.parametrize("place", [0, 100, -1])
def test_a_damaged_model_is_refused(
    place: int, copied_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = copied_run / "model.safetensors"
    content = bytearray(model.read_bytes())
    content[place] ^= 1
    model.write_bytes(content)
    line = "run/model.safetensors must have the SHA-256 its manifest names, "
    for arguments in (["certify", "run", *CERTIFY], ["predict", "run", "digit.png"]):
        refuses(capsys, copied_run, arguments, line)


def test_a_model_cut_short_is_refused_without_its_manifest_too(
    copied_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for size in (0, 5, 2000, -1):
        Path("cut.safetensors").write_bytes((copied_run / "model.safetensors").read_bytes()[:size])
        arguments = ["certify", "cut.safetensors", "--out", "new", *CERTIFY]
        line = "cut.safetensors must be a model file written by macer train: "
        refuses(capsys, Path(), arguments, line)


def test_classes_of_other_names_are_refused(
    copied_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, card = load_model("run/model.safetensors")
    other = replace(card, classes=("one", *card.classes[1:]))
    save_model(Path("other.safetensors"), model.state_dict(), other)
    line = "class 0 must be one, as other.safetensors was trained, the data set has 0; choose "
    refuses(capsys, Path(), ["certify", "other.safetensors", "--out", "new", *CERTIFY], line)
