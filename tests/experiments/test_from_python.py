"""Runs from Python: train, certify, report; the notebook of the guide runs as it stands."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from tiny_models import CLASSES, tiny_recipe, tiny_split

from macer.certification.certificate import ABSTAIN
from macer.experiments.from_python import open_run, report, train
from macer.reporting.logs import read_log
from macer.reporting.scores import average_certified_radius, certified_accuracy
from macer.system.errors import Mistake

NOTEBOOK = Path(__file__).parents[2] / "docs/guide/notebook.ipynb"
FEW = {"n0": 10, "n": 100}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run trained on arrays."""
    split = tiny_split(seed=0)
    folder = tmp_path_factory.mktemp("python") / "run"
    return train(tiny_recipe(), (split.images, split.labels), CLASSES, folder)


@pytest.fixture(scope="module")
def test_data():
    split = tiny_split(seed=1)
    return split.images, split.labels


@pytest.fixture(scope="module")
def certified(run, test_data):
    return run.certify(test_data, stop=8, **FEW)


# law


def test_a_run_is_the_path_of_its_model_file(run):
    assert Path(run) == run.folder / "model.safetensors" and Path(run).is_file()
    assert os.fspath(run) == str(run.model_file)
    assert open_run(run.folder) == run


def test_a_training_begins_with_a_run(run, tmp_path):
    split = tiny_split(seed=0)
    data = split.images, split.labels
    again = train(tiny_recipe(epochs=1), data, CLASSES, tmp_path / "again", init=run)
    assert again.manifest["init"]["sha256"] == run.manifest["weights_sha256"]
    assert again.manifest["init"]["file"] == run.folder.name


def test_a_run_tells_its_recipe_its_metrics_and_its_model(run):
    assert run.manifest["recipe"]["sigma"] == tiny_recipe().sigma
    assert [line["epoch"] for line in run.metrics] == list(range(1, tiny_recipe().epochs + 1))
    model, card = run.load()
    assert not model.training or card.classes == tuple(CLASSES)


def test_certificates_are_in_the_run_and_score_as_their_log(certified, run):
    assert certified.folder == run.folder and len(certified) == 8
    assert [record.idx for record in certified] == list(range(8))
    log = read_log(run.folder)
    assert certified.acr == pytest.approx(average_certified_radius(log), abs=1e-6)
    for radius in (0.0, 0.1, 0.3):
        [accuracy] = certified_accuracy(log, [radius])
        assert certified.accuracy(radius) == pytest.approx(accuracy)


def test_a_wrong_label_counts_nothing_however_large_its_radius(certified):
    from dataclasses import replace

    wrong = tuple(replace(r, label=(r.certificate.selected + 1) % 3) for r in certified)
    assert replace(certified, records=wrong).acr == 0
    assert replace(certified, records=wrong).accuracy() == 0
    assert certified.accuracy() == np.mean(
        [
            r.certificate.label not in (ABSTAIN,) and r.certificate.label == r.label
            for r in certified
        ]
    )


def test_certifying_continues_where_it_stopped(run, test_data, tmp_path):
    first = run.certify(test_data, stop=2, out=tmp_path, **FEW)
    both = run.certify(test_data, stop=4, out=tmp_path, **FEW)
    assert len(first) == 2 and both.records[:2] == first.records and len(both) == 4


@pytest.mark.medium
def test_a_report_has_tables_a_figure_and_a_page(certified, run, test_data, tmp_path):
    other = run.certify(test_data, stop=8, out=tmp_path / "other", seed=1, **FEW)
    made = report([run, other])
    assert [row.name for row in made.table.rows] == ["run", "other"]
    assert made.table.rows[0].acr == pytest.approx(certified.acr, abs=1e-6)
    assert made.markdown().startswith("| name") and "\\toprule" in made.latex()
    assert made.csv().startswith("name,sigma,certified_accuracy_0.00")
    assert len(made.figure().axes[0].lines) == 2
    assert made.write_page(tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    made.write_page(tmp_path / "page.html", radius=0.125)
    assert "every change of ℓ₂ length below 0.125" in (tmp_path / "page.html").read_text("utf-8")
    with pytest.raises(Mistake, match="data must be left out for run, whose images came from Pyth"):
        made.write_page(tmp_path / "page.html", data=tmp_path)
    assert made._repr_markdown_() == str(made) == made.markdown()
    assert report(certified).markdown() == report([run]).markdown() == certified._repr_markdown_()
    assert str(certified) == certified._repr_markdown_()


def test_a_report_counts_the_images_that_are_asked_for(run, certified):
    [row] = report([run], start=2, stop=7, skip=2).table.rows
    assert row.images == 3


@pytest.mark.slow
def test_the_notebook_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            exec("".join(cell["source"]), names)
    assert 0 < names["certified"].acr < 2
    assert "|" in names["table"].markdown()


# refusal


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ns": 5}, "unknown setting 'ns', did you mean 'n'?; choose from n0, n, alpha, bound"),
        ({"n": 4.5}, "n must be a whole number"),
        ({"stop": 10_000}, "stop must be at most the number of images"),
        ({"device": "tpu"}, "device must be cpu or cuda, got 'tpu'"),
    ],
)
def test_a_mistake_in_certify_is_one_line(run, test_data, tmp_path, arguments, message):
    with pytest.raises(Mistake) as caught:
        run.certify(test_data, out=tmp_path / "none", **arguments)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
    assert not (tmp_path / "none").exists()


def test_a_run_certifies_the_test_images_that_its_training_was_given(run, test_data, tmp_path):
    split = tiny_split(seed=0)
    again = train(
        tiny_recipe(), (split.images, split.labels), CLASSES, tmp_path / "again", test=test_data
    )
    mine, theirs = again.certify(stop=3, **FEW), run.certify(test_data, stop=3, out=tmp_path, **FEW)
    assert [r.certificate for r in mine] == [r.certificate for r in theirs]


def test_a_run_of_arrays_needs_its_test_images(run):
    with pytest.raises(
        Mistake, match=r"^data must be the inputs and labels, of a run that was trained on"
    ):
        run.certify()


def test_labels_beyond_the_models_classes_are_refused(run, test_data):
    images, labels = test_data
    with pytest.raises(Mistake, match=r"^labels must be below 3, the number of classes"):
        run.certify((images, labels + 1))


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(Mistake, match=r"^no run in .*: expected .*model.safetensors$"):
        open_run(tmp_path)
    with pytest.raises(Mistake, match=r"^logs must name at least one run or log file, got none$"):
        report([])
