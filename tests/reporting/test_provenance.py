"""What a page says of the models."""

import json
from pathlib import Path

import pytest

from macer.reporting.provenance import Provenance, provenance
from macer.system.errors import Mistake

RECIPE = {"loss": "macer", "model": "lenet", "dataset": "mnist", "seed": 0, "sigma": 0.5}


def write(folder: Path, manifest: object) -> Path:
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


# known value


def test_a_run_says_how_it_was_trained_and_what_its_weights_are(tmp_path: Path) -> None:
    manifest = {"recipe": RECIPE, "weights_sha256": "ab" * 32, "data_sha256": "cd" * 32}
    found = provenance(write(tmp_path, manifest), "name")
    assert found == Provenance("name", "macer", "lenet", "mnist", "0", "ab" * 32, "cd" * 32)


def test_a_loss_is_shown_with_its_settings(tmp_path: Path) -> None:
    loss = {"name": "consistency", "lam": 10.0, "eta": 0.5}
    found = provenance(write(tmp_path, {"recipe": RECIPE | {"loss": loss}}), "name")
    assert found is not None and found.loss == "consistency, lam 10.0, eta 0.5"


def test_a_packed_model_has_its_weights_alone(tmp_path: Path) -> None:
    manifest = {"recipe": None, "weights_sha256": "ab" * 32, "data_sha256": None}
    found = provenance(write(tmp_path, manifest), "name")
    assert found == Provenance("name", "", "", "", "", "ab" * 32, "")


def test_a_log_without_a_run_has_no_model(tmp_path: Path) -> None:
    assert provenance(tmp_path, "name") is None
    assert provenance(tmp_path / "log.tsv.gz", "name") is None


# refusal


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_a_manifest_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(Mistake, match=r"manifest\.json must be a manifest in JSON"):
        provenance(tmp_path, "name")
