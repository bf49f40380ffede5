"""`macer certify`: a model that is damaged, or of other classes, is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
from desk import CERTIFY, refuses

from macer.certification.journal import read_journal
from macer.cli.app import main
from macer.runs.trained_model import load_model, save_model


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


@pytest.mark.medium
def test_certificates_of_another_sigma_say_what_the_model_was_trained_at(
    copied_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certify", "run", *CERTIFY, "--sigma", "0.25", "--out", "at-0.25"]) == 0
    said = "at-0.25 was trained at σ = 0.5 and certified at σ = 0.25."
    assert said in capsys.readouterr().out
    header = read_journal(Path("at-0.25/certificates.journal")).header
    assert header.sigma == 0.25
    assert read_journal(Path("run/certificates.journal")).header.sigma == 0.5
    assert main(["verify", "at-0.25", "--target", "run", "--device", "cpu"]) == 0
    assert main(["report", "at-0.25", "run", "--markdown"]) == 0
    assert said in capsys.readouterr().out
    others = ["certify", "run", *CERTIFY, "--out", "at-0.25"]
    refuses(capsys, Path("at-0.25"), others, "")
    assert main(["certify", "run", *CERTIFY, "--sigma", "0.5"]) == 0  # its own
