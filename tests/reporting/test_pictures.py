"""Pictures show changes of exactly the radius, of images that were not chosen by results."""

import base64
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from evidence_run import source_of, write_run
from PIL import Image

from macer.data.fingerprint import fingerprint
from macer.data.sets import load
from macer.reporting.evidence import Source
from macer.reporting.pictures import MOST_ROWS, PATCH, noise, patch, pictures, spread
from macer.system.errors import Mistake


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Certificates of the sample's first test images, with their labels."""
    split = load("mnist-sample", "test")
    entries = {"dataset": "mnist-sample", "data_sha256": fingerprint(split)}
    run = source_of(write_run(tmp_path_factory.mktemp("pictures") / "run", **entries))
    label = split.labels[run.log.idx]
    return replace(run, log=replace(run.log, label=label, correct=run.log.predict == label))


# law


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 2, 3)])
@pytest.mark.parametrize("radius", [0.25, 2.0])
def test_changes_have_the_length_of_the_radius(shape: tuple[int, ...], radius: float) -> None:
    x = np.full(shape, 0.4)
    for change in (spread(x, radius, np.random.default_rng(0)), patch(x, radius)):
        assert change.shape == shape
        assert np.linalg.norm(change) == pytest.approx(radius, rel=1e-12)
    assert np.count_nonzero(patch(x, radius)) <= shape[0] * PATCH * PATCH


def test_the_noise_has_standard_deviation_sigma() -> None:
    x = np.zeros((3, 100, 100))
    assert np.std(noise(x, 0.25, np.random.default_rng(0))) == pytest.approx(0.25, rel=0.02)


def test_images_are_the_first_of_the_first_classes_whatever_the_results(run: Source) -> None:
    for log in (run.log, replace(run.log, radius=run.log.radius[::-1].copy())):
        rows = pictures(replace(run, log=log), Path(), 0.5)
        assert len(rows) == MOST_ROWS
        for label, row in enumerate(rows):
            first = int(log.idx[np.argmax(log.label == label)])
            assert row.title.startswith(f"Image {first}, class {label}: ")
    assert rows == pictures(replace(run, log=log), Path(), 0.5)


def test_the_first_picture_is_the_image_and_the_others_are_not(run: Source) -> None:
    images = load("mnist-sample", "test").images
    for row in pictures(run, Path(), 0.5):
        shown = []
        for picture in row.pictures:
            head, data = picture.data.split(",")
            assert head == "data:image/png;base64"
            shown.append(np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))))
        number = int(row.title.split(",")[0].removeprefix("Image "))
        assert np.array_equal(shown[0], images[number, 0])
        assert all(not np.array_equal(shown[0], other) for other in shown[1:])


def test_the_title_says_what_came_of_the_image(run: Source) -> None:
    log = run.log
    label = log.label
    for predict, words in ((label, ": right, certified radius "), (label * 0 - 1, ": no certif")):
        changed = replace(log, predict=predict, correct=predict == label)
        rows = pictures(replace(run, log=changed), Path(), 0.5)
        assert all(words in row.title for row in rows)
    right = replace(log, predict=label, correct=label == label, radius=log.radius * 0 + 0.4999)
    rows = pictures(replace(run, log=right), Path(), 0.5)
    assert all(row.title.endswith("certified radius 0.499") for row in rows)  # never up
    changed = replace(log, predict=label * 0 + 9, correct=label == 9)
    rows = pictures(replace(run, log=changed), Path(), 0.5)
    assert all("answered as class 9, which is wrong" in row.title for row in rows)


# refusal


def test_other_images_are_refused(run: Source, tmp_path: Path) -> None:
    other = source_of(write_run(tmp_path / "run", dataset="mnist-sample"))
    with pytest.raises(Mistake, match="data must be those that the certificates of run are of"):
        pictures(other, Path(), 0.5)
