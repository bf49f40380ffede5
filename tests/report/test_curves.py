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
from macer.errors import Mistake
from macer.report.curves import conditions, draw, plot, subject
from macer.report.logs import select
from macer.report.scores import curve


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
        random_log(0), name="a <b> & --> \x1b", subject=("cifar10", "wide<14>"), sigma=0.25
    )
    plot([odd], tmp_path / "a.svg")
    texts = [text for text in ElementTree.parse(tmp_path / "a.svg").getroot().itertext() if text]
    assert "cifar10 · wide<14> · σ = 0.25" in texts
    assert any(text.startswith("a <b> & --> \\x1b: ACR") for text in texts)


def test_a_caption_names_what_the_logs_share() -> None:
    log = replace(random_log(0), subject=("mnist", "lenet"), sigma=0.5)
    assert subject([log, log]) == "mnist · lenet · σ = 0.5"
    assert subject([log, replace(log, sigma=0.25, subject=("mnist", "wide"))]) == "mnist"
    assert subject([log, random_log(1)]) == subject([random_log(1)]) == ""


def test_a_log_without_any_certificate_can_be_drawn(tmp_path: Path) -> None:
    plot([log_of([1, -1], [0.5, 0.0])], tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_importing_the_report_loads_neither_torch_nor_matplotlib() -> None:
    heavy = "{'torch', 'matplotlib', 'jinja2', 'rich'} & set(sys.modules)"
    modules = "macer.report.scores, macer.report.tables, macer.report.curves, macer.report.page"
    program = f"import sys, {modules}; assert not {heavy}, {heavy}"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_curves_of_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="logs must hold at least one log, got none"):
        plot([], tmp_path / "a.png")


@pytest.mark.parametrize("name", ["a.jpg", "a", "png"])
def test_pictures_other_than_png_pdf_and_svg_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Mistake, match=r"path of a plot must end in .png, .pdf or .svg, got '.*"):
        plot([random_log(0)], tmp_path / name)
