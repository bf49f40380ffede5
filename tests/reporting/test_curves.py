"""Radius–accuracy curves: title, legend and files."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from examples import log_of, random_log

from macer.data.selection import Selection
from macer.reporting import curves as curves_module
from macer.reporting.curves import conditions, draw, envelope, plot
from macer.reporting.logs import select
from macer.reporting.scores import certified_accuracy, curve
from macer.system.errors import Mistake


def test_conditions_tell_what_the_logs_share() -> None:
    log = replace(random_log(0), n=100_000)
    assert conditions([log, log]) == "images 0…199 (200) · n = 100,000 · α not recorded"
    other = replace(select(log, Selection(3)), n=None, alpha=0.5)
    assert conditions([log, other]) == "images differ · n differs · α differs"


def test_conditions_tell_of_images_that_are_missing_and_of_ordinary_noise() -> None:
    log = replace(random_log(0, 124), asked=np.arange(180), noise="ordinary")
    whole = replace(log, noise=None)
    shared = "images 0…123 (124 of 180) · n not recorded · α not recorded"
    assert conditions([whole]) == shared
    assert conditions([log, log]) == f"{shared} · ordinary noise"
    assert conditions([log, whole]) == f"{shared} · noise differs"


def test_a_legend_tells_which_log_differs_and_has_no_hidden_characters() -> None:
    log = replace(random_log(0, 124), asked=np.arange(180), noise="ordinary", name="a\n\x1b")
    figure = draw([log, random_log(1)], [curve(log), curve(random_log(1))])
    first, second = (text.get_text() for text in figure.legends[0].get_texts())
    assert re.fullmatch(r"a\\n\\x1b: ACR [\d.]+, 0…123 \(124 of 180\), ordinary noise", first)
    assert second.startswith("random1: ACR 0.1") and second.endswith(", 0…199 (200)")


@pytest.mark.medium
@pytest.mark.parametrize(
    ("suffix", "magic"),
    [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".PNG", b"\x89PNG"), (".svg", b"<?xml")],
)
def test_the_same_logs_give_the_same_picture(tmp_path: Path, suffix: str, magic: bytes) -> None:
    logs = [replace(random_log(i), name=f"_{i} $x$") for i in range(3)]
    files = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for file in files:
        plot(logs, file)
    first, second = (file.read_bytes() for file in files)
    assert first == second
    assert first.startswith(magic)
    assert b"Date" not in first and b"dc:date" not in first
    assert sorted(tmp_path.iterdir()) == files


def test_an_svg_is_xml_with_its_text_as_text(tmp_path: Path) -> None:
    odd = replace(
        random_log(0), name="a <b> & --> \x1b", dataset="cifar10", network="wide<14>", sigma=0.25
    )
    plot([odd], tmp_path / "a.svg")
    texts = [text for text in ElementTree.parse(tmp_path / "a.svg").getroot().itertext() if text]
    assert "cifar10 · σ = 0.25 · wide<14>" in texts
    assert any(text.startswith("a <b> & --> \\x1b: ACR") for text in texts)


def test_the_envelope_is_the_best_certified_accuracy_at_each_radius() -> None:
    logs = [random_log(i, 50) for i in range(3)]
    logs.append(log_of([0] * 9 + [1], [0.1] * 10))
    x, y = envelope([curve(log) for log in logs])
    for r in np.linspace(0, 1.1 * x[-1], 400):
        best = max(float(certified_accuracy(log, r)) for log in logs)
        drawn = y[np.searchsorted(x, r)] if r <= x[-1] else 0.0
        assert drawn == best, r
    assert y[-1] == 0.0 and all(np.diff(y) <= 0)


def test_an_envelope_says_that_it_was_chosen_after_seeing() -> None:
    logs = [random_log(i) for i in range(2)]
    curves = [curve(log) for log in logs]
    figure = draw(logs, curves, envelope=envelope(curves))
    *_, last = (text.get_text() for text in figure.legends[0].get_texts())
    assert last == "best of these 2 at each radius, chosen after seeing them"
    assert len(figure.axes[0].lines) == 3


def test_a_title_has_data_set_sigma_and_network_or_what_was_asked_for() -> None:
    log = replace(random_log(0), dataset="cifar10", sigma=0.5, network="wide14")
    other = replace(log, sigma=0.25, network=None)
    for logs, title, first in (
        ([log], None, "cifar10 · σ = 0.5 · wide14"),
        ([log, other], None, "cifar10"),
        ([random_log(0)], None, "images 0…199 (200) · n not recorded · α not recorded"),
        ([log], "Mine\n$x$", r"Mine\n$x$"),
    ):
        figure = draw(logs, [curve(each) for each in logs], title=title)
        assert figure.axes[0].get_title(loc="left").splitlines()[0] == first
    first, second = (
        text.get_text() for text in draw([log, other], [curve(log)] * 2).legends[0].get_texts()
    )
    assert first.endswith(", σ 0.5, wide14") and second.endswith(", σ 0.25")


def test_labels_stand_in_the_legend_in_place_of_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = []
    monkeypatch.setattr(curves_module, "save_picture", lambda figure, _: figures.append(figure))
    plot([random_log(0), random_log(1)], tmp_path / "a.svg", labels=["ours", "theirs"])
    texts = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert [text.partition(":")[0] for text in texts] == ["ours", "theirs"]
    with pytest.raises(Mistake, match=r"^labels must be as many as the logs, 2, got 1: ours$"):
        plot([random_log(0), random_log(1)], tmp_path / "a.svg", labels=["ours"])


@pytest.mark.medium
def test_a_log_without_any_certificate_can_be_drawn(tmp_path: Path) -> None:
    plot([log_of([1, -1], [0.5, 0.0])], tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


@pytest.mark.medium
def test_importing_the_report_loads_neither_torch_nor_matplotlib() -> None:
    heavy = "{'torch', 'matplotlib', 'jinja2', 'rich'} & set(sys.modules)"
    modules = ", ".join(
        f"macer.reporting.{name}" for name in ("scores", "tables", "curves", "page")
    )
    program = f"import sys, {modules}; assert not {heavy}, {heavy}"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_curves_of_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="logs must hold at least one log, got none"):
        plot([], tmp_path / "a.png")


@pytest.mark.parametrize("name", ["a.jpg", "a", "png"])
def test_pictures_other_than_png_pdf_and_svg_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Mistake, match=r"path of a plot must end in .png, .pdf or .svg, got '.*"):
        plot([random_log(0)], tmp_path / name)
