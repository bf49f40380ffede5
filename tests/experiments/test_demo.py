"""The demo: what it writes, and the difference that it states."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from macer.cli.app import main
from macer.data.sets import Split, load
from macer.experiments import demo
from macer.recipes import CertifyRecipe, TrainRecipe, named_recipe
from macer.reporting.logs import read_log
from macer.reporting.scores import average_certified_radius, paired_difference
from macer.runs.run import Run
from macer.system.errors import Mistake

CPU = torch.device("cpu")


def tiny_recipe(name: str) -> TrainRecipe:
    return replace(named_recipe(name), epochs=6, lr=0.05, k=min(named_recipe(name).k, 2))


def little_data(name: str, split: str, folder: Path | None = None) -> Split:
    found = load(name, split, folder)
    return found.part(0, 640) if split == "train" else found


@pytest.mark.slow
def test_the_demo_trains_certifies_and_compares_both_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "named_recipe", tiny_recipe)
    monkeypatch.setattr(demo, "load", little_data)
    monkeypatch.setattr(demo, "CERTIFY", CertifyRecipe(n0=20, n=100))
    monkeypatch.setattr(demo, "SKIP", 200)
    out = tmp_path / "demo"
    assert main(["demo", "--out", str(out), "--device", "cpu"]) == 0

    gaussian, macer = (read_log(out / name) for name in ("Gaussian", "MACER"))
    for log in (gaussian, macer):
        assert log.idx.tolist() == list(range(0, 2000, 200))
        assert (log.n0, log.n, log.sigma) == (20, 100, 0.5)
    recipes = [Run(out / name).read_manifest()["recipe"] for name in ("Gaussian", "MACER")]
    assert [(recipe["k"], recipe["loss"]["lam"]) for recipe in recipes] == [
        (1, 0.0),
        (2, named_recipe("demo").loss["lam"]),
    ]
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "report.html").read_text("utf-8")
    assert "macer demo: Gaussian training against MACER" in page

    printed = capsys.readouterr().out
    for log in (gaussian, macer):
        assert f"{average_certified_radius(log):.3f} ± " in printed and log.name in printed
    gain, error, images = paired_difference(macer, gaussian)
    assert images == 10
    line = f"MACER − Gaussian: {gain:+.3f} ± {error:.3f} in ACR over the same 10 images, "
    assert any(text.startswith(line) for text in printed.splitlines())
    assert printed.endswith(f"curves: {out}/curves.png\npage:   {out}/report.html\n")


def test_the_demos_recipes_differ_in_the_objective_alone() -> None:
    gaussian, macer = (named_recipe(name) for name in demo.COMPARED.values())
    assert (gaussian.k, gaussian.loss["lam"]) == (1, 0.0)
    same = {name: gaussian.flat()[name] for name in ("k", "lam", "lam_schedule")}
    assert macer.changed(**same) == gaussian


def test_the_demo_does_not_touch_a_folder_that_exists(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="exists already; choose another --out or remove it"):
        demo.run_demo(tmp_path, CPU)
    assert list(tmp_path.iterdir()) == []
