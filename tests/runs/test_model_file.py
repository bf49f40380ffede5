"""Model files: what a card may say, and what a digest finds."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tiny_models import CLASSES

from macer.cli.app import main
from macer.runs.model_file import ModelCard
from macer.runs.trained_model import load_model, save_model
from macer.system.errors import Mistake

CARD = ModelCard(
    architecture="tiny",
    classes=CLASSES,
    shape=(1, 8, 8),
    mean=(0.0,),
    std=(1.0,),
    sigma=0.5,
    dataset="tiny",
)
pytestmark = pytest.mark.usefixtures("tiny_networks")


# what a card may say


def card_file(path: Path, **changes: object) -> Path:
    """A model file whose card differs in some fields."""
    fields = asdict(CARD) | changes
    save_file({"w": torch.zeros(1)}, path, {"macer": json.dumps(fields)})
    return path


HUGE = 10**12
CARDS = {
    "architecture": [None, 3, ["lenet"], {"a": 1}, "a\nb", "x" * 400],
    "classes": [None, HUGE, "abc", [], [1, 2], [["a"]], ["a\x1b[2J"], ["\ud800"], ["a"] * 70_000],
    "shape": [None, 3, [1, 28], [1, 28, 28, 28], [-1, 28, 28], [0, 28, 28], [1, HUGE, HUGE],
              [1.0, 28.0, 28.0], ["1", "28", "28"], {"a": 1}, [1, 10**400, 1]],
    "mean": [None, 0.0, [], [0.0, 0.0], ["0"], [None], [float("nan")], [1e39], [10**400], [[0.0]]],
    "std": [[0.0], [-1.0], [float("inf")], [1e-60], [], "1", [True]],
    "sigma": [None, "0.5", [0.5], 0.0, -0.5, float("nan"), float("inf"), 10**400, True, 1e39],
    "dataset": [None, 3, ["mnist"], "x" * 400, "a\tb"],
    "other": [1],
}  # fmt: skip


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, vs in CARDS.items() for v in vs],
                         ids=lambda value: str(value)[:20])  # fmt: skip
def test_a_card_that_cannot_be_is_one_line(tmp_path, capsys, field, value):
    file = card_file(tmp_path / "a.safetensors", **{field: value})
    assert main(["predict", str(file), "digit.png", "--device", "cpu"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and len(err) < 600
    assert err.startswith(f"macer: {file} must be a model file written by macer train: ")


@pytest.mark.parametrize(
    "text",
    ["", "{", "3", "null", "[]", '"card"', "{}", "[" * 100_000, '{"a":' * 100_000, "9" * 5000],
    ids=lambda text: text[:8],
)
def test_metadata_that_are_no_card_are_one_line(tmp_path, capsys, text):
    file = tmp_path / "a.safetensors"
    save_file({"w": torch.zeros(1)}, file, {"macer": text})
    assert main(["predict", str(file), "digit.png", "--device", "cpu"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.medium
def test_a_header_of_100_megabytes_is_not_read(tmp_path):
    file = tmp_path / "a.safetensors"
    with file.open("wb") as opened:
        opened.write((100_000_000).to_bytes(8, "little") + b"{")
        opened.truncate(100_000_008)  # takes no room
    with pytest.raises(Mistake, match=r"its header must be at most 4,194,304 bytes, got 100,000"):
        load_model(file)


# hashes


def test_a_flipped_byte_of_a_model_file_is_found_or_says_nothing_else(tmp_path):
    file, model = tmp_path / "a.safetensors", CARD.build()
    save_model(file, model.state_dict(), CARD)
    whole = file.read_bytes()
    places, found = range(0, len(whole), 5), 0
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1
        file.write_bytes(changed)
        try:
            loaded, card = load_model(file)
        except Mistake:
            found += 1
            continue
        assert card == CARD
        assert all(torch.equal(t, model.state_dict()[n]) for n, t in loaded.state_dict().items())
    assert found >= len(places) - 2  # spaces that fill up the header


def test_a_file_of_an_old_version_has_no_digest_and_is_loaded(tmp_path):
    text = json.dumps(asdict(CARD))
    save_file(CARD.build().state_dict(), tmp_path / "old", {"macer": text})
    assert load_model(tmp_path / "old")[1] == CARD
