"""The page: complete, offline, and without markup from names."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from examples import published_logs, random_log, with_classes

from macer.errors import Mistake
from macer.reporting.intervals import interval_text
from macer.reporting.logs import CertificateLog
from macer.reporting.page import drawing, simplify, write_page
from macer.reporting.provenance import Provenance
from macer.reporting.scores import average_certified_radius, curve, outcomes
from macer.reporting.tables import tabulate

SIGMAS = (0.25, 0.5, 1.0)  # of the published logs
MODEL = Provenance("a", "macer", "<script>alert(1)", "cifar10", "0", "ab" * 32, "cd" * 32)


@pytest.fixture(scope="module")
def macer() -> list[CertificateLog]:
    return published_logs()


@pytest.fixture(scope="module")
def page(macer: list[CertificateLog], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    settings = {"n0": 100, "n": 100_000, "alpha": 0.001, "bound": "clopper-pearson"}
    logs = [replace(log, sigma=s, **settings) for s, log in zip(SIGMAS, macer, strict=True)]
    write_page(logs, path, title="A <title> & more", models=[MODEL])
    return path.read_text("utf-8")


class Tags(HTMLParser):
    """Collects the tags of a page and checks that they close in order."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tags_of(page: str) -> list[tuple[str, dict[str, str | None]]]:
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    return tags.seen


def test_a_page_has_no_hidden_characters_and_says_what_is_missing(tmp_path: Path) -> None:
    odd = "a\x1b\u202e<b>\n"
    log = replace(
        random_log(0, 124), name=odd, bound=odd, asked=np.arange(180), noise="ordinary", alpha=0.5
    )
    write_page([log], tmp_path / "a.html", title=odd, models=[Provenance(*[odd] * 7)])
    page = (tmp_path / "a.html").read_text("utf-8")
    tags_of(page)
    assert all(line.isprintable() for line in page.split("\n"))
    assert page.count(r"a\x1b\u202e&lt;b&gt;\n") == 18
    assert "<td>124 of 180</td>" in page and page.count("(124 of 180)") == 3
    assert "Ordinary noise: these certificates hold for real" in page


def height(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The step curve's value: y[i] on (x[i−1], x[i]], 0 beyond the last."""
    i = np.searchsorted(x, at, side="left")
    return np.append(y, 0.0)[i]


def test_a_simplified_curve_is_never_above_the_truth(macer: list[CertificateLog]) -> None:
    for log in macer:
        x, y = curve(log)
        simple = simplify(x, y, x[-1] / 300, 1 / 300)
        at = np.unique(np.concatenate([x, x + 1e-9, np.linspace(0, x[-1], 5000)]))
        assert np.all(height(*simple, at) <= height(x, y, at))
        assert len(simple[0]) < len(x) / 2


def test_a_simplified_curve_stays_within_its_width_or_height(macer: list[CertificateLog]) -> None:
    for log in macer:
        x, y = curve(log)
        width, tall = x[-1] / 300, 1 / 300
        simple = simplify(x, y, width, tall)
        at = np.linspace(0, x[-1], 5000)
        # A curve drawn too low is as low as the truth a width further on, or lower by a height.
        floor = np.minimum(height(x, y, at + width), height(x, y, at) - tall)
        assert np.all(height(*simple, at) >= floor - 1e-12)


def test_a_simplified_curve_keeps_its_ends(macer: list[CertificateLog]) -> None:
    for log in macer:
        x, y = curve(log)
        a, b = simplify(x, y, x[-1] / 100, 1 / 100)
        assert (a[0], b[0], a[-1], b[-1]) == (x[0], y[0], x[-1], y[-1])
        assert b[-2] == y[-2]


def test_a_curve_without_tolerance_is_unchanged(macer: list[CertificateLog]) -> None:
    x, y = curve(macer[0])
    a, b = simplify(x, y, 0, 0)
    assert np.array_equal(a, x) and np.array_equal(b, y)


def test_the_page_shows_every_acr_with_images_n_and_alpha(
    page: str, macer: list[CertificateLog]
) -> None:
    text = re.sub(r"<[^>]+>", " ", page)
    for log in macer:
        assert text.count(f"{average_certified_radius(log):.3f}") >= 3
        assert f"{log.name}: ACR {average_certified_radius(log):.3f}" in text
        for count in outcomes(log).values():
            assert f"{count:,} (" in text
    for words in (
        "0…9999 (10,000)",
        "n 100,000 · α 0.001",
        "0.001 · 10,000 = 10",
        "clopper-pearson",
    ):
        assert words in text


def test_the_page_has_every_interval_and_every_class(
    page: str, macer: list[CertificateLog]
) -> None:
    settings = {"n": 100_000, "alpha": 0.001}
    logs = [replace(log, sigma=s, **settings) for s, log in zip(SIGMAS, macer, strict=True)]
    for row in tabulate(logs).rows:
        assert f"95%: {interval_text(row.acr_interval)}<" in page
        for interval in row.accuracy_intervals:
            assert f"<small>{interval_text(interval)}</small>" in page
        assert len(row.classes) == 10
        for one in row.classes:
            for interval in one.accuracy_intervals:
                assert f"<small>{interval_text(interval)}</small>" in page
    assert page.count('<th scope="row">9</th>') == 3


def test_of_very_many_classes_the_page_has_those_with_the_lowest_acr(tmp_path: Path) -> None:
    label = np.arange(200) % 60
    log = with_classes(random_log(0), label, label)
    path = tmp_path / "many.html"
    write_page([replace(log, class_names=tuple(f"<{i}>" for i in range(60)))], path, title="a")
    text = path.read_text("utf-8")
    assert "The 50 classes with the lowest ACR, of 60; " in text
    least = min(tabulate([log]).rows[0].classes, key=lambda one: one.acr)
    assert f'<th scope="row">{least.label} &lt;{least.label}&gt;</th>' in text


def test_tags_close_in_order_and_ids_are_unique(page: str) -> None:
    ids = [attributes["id"] for _, attributes in tags_of(page) if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = re.findall(r'(?:href="|url\()#([^")]+)', page)
    assert targets and set(targets) <= set(ids)


def test_the_page_asks_nothing_of_the_network_and_runs_nothing(page: str) -> None:
    tags = tags_of(page)
    assert not {"script", "link", "img", "iframe", "image", "object"} & {tag for tag, _ in tags}
    for _, attributes in tags:
        assert "src" not in attributes
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert not name.endswith("href") or str(value).startswith("#")
    assert set(re.findall(r"https?://[^\"\s]*", page)) <= {"http://www.w3.org/1999/xlink"}
    assert "@import" not in page


def test_names_and_models_are_text_not_markup(page: str) -> None:
    assert "A &lt;title&gt; &amp; more" in page
    assert "&lt;script&gt;alert(1)" in page


def test_a_page_has_the_hashes_of_the_models_that_are_known(
    page: str, macer: list[CertificateLog], tmp_path: Path
) -> None:
    assert page.count("ab" * 32) == page.count("cd" * 32) == 1
    write_page(macer[:1], tmp_path / "a.html", title="one")
    assert "SHA-256" not in (tmp_path / "a.html").read_text("utf-8")


def test_names_in_the_drawing_are_text_not_markup(macer: list[CertificateLog]) -> None:
    svg = drawing([replace(macer[0], name="</svg><script>#010203")])
    assert "<script" not in svg
    assert svg.count("</svg>") == 1


def test_the_drawing_takes_the_pages_colour(macer: list[CertificateLog]) -> None:
    svg = drawing(macer)
    assert "currentColor" in svg
    assert not {"#000000", "#ffffff", "#010203"} & set(re.findall(r"#[0-9a-f]{6}", svg))


def test_the_page_of_three_logs_of_10000_images_is_small(page: str) -> None:
    assert len(page.encode()) < 100_000


def test_the_same_logs_give_the_same_page(macer: list[CertificateLog], tmp_path: Path) -> None:
    for name in "ab":
        write_page(macer[:1], tmp_path / f"{name}.html", title="one")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert "Compared with" not in (tmp_path / "a.html").read_text("utf-8")


def test_a_log_of_one_abstention_has_a_page(tmp_path: Path) -> None:
    one, none = np.array([0]), np.array([-1])
    log = CertificateLog("a", one, one, none, np.array([0.0]), np.array([False]))
    write_page([log, log], tmp_path / "a.html", title="one")
    assert "± ?" in (tmp_path / "a.html").read_text("utf-8")


def test_a_page_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="logs must hold at least one log, got none"):
        write_page([], tmp_path / "a.html", title="none")
