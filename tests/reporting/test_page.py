"""The page: complete, offline, and without markup from names."""

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from evidence_run import source_of, write_run
from examples import published_logs, random_log, with_classes

from macer.data.selection import Selection
from macer.reporting.evidence import LIMITS, Source, hashes
from macer.reporting.intervals import interval_text
from macer.reporting.logs import CertificateLog
from macer.reporting.page import PageOptions, drawing, simplify, write_page
from macer.reporting.pictures import Picture, PictureRow
from macer.reporting.provenance import Provenance
from macer.reporting.scores import average_certified_radius, curve, outcomes
from macer.reporting.tables import tabulate
from macer.reporting.verdict import verdicts
from macer.system.errors import Mistake

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

    VOID = ("meta", "br", "img")

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
    assert page.count(r"a\x1b\u202e&lt;b&gt;\n") == 20
    assert "<td>124 of 180</td>" in page and page.count("(124 of 180)") == 3
    assert "Ordinary noise: these certificates hold for real" in page


@pytest.mark.parametrize(
    ("value_range", "claimed", "drawn"),
    [
        (None, "in the units of the data set", "in the units of the data set"),
        ([-8.0, 8.0], "with values in [-8, 8]", "in [-8, 8]"),
    ],
)
def test_a_page_of_inputs_that_are_no_images_speaks_of_no_pixels(
    tmp_path: Path, value_range: list[float] | None, claimed: str, drawn: str
) -> None:
    run = source_of(
        write_run(tmp_path / "run", value_range=value_range, exact=False, dataset="arrays")
    )
    write_page([run.log], tmp_path / "a.html", title="a", options=PageOptions(runs=[run]))
    page = (tmp_path / "a.html").read_text("utf-8")
    assert not re.search(r"pixels? |black|white is|in \[0, 1\]|no pictures|--data", page)
    assert f"Distances are of inputs {claimed}." in page
    assert f"ℓ₂ radius (inputs {drawn})" in page


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


# the reviewer's questions


@pytest.fixture(scope="module")
def of_a_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Source]:
    """The page of a run with a family of images, and the run."""
    folder = tmp_path_factory.mktemp("reviewed")
    run = source_of(write_run(folder / "run", family=60, alpha=0.001 / 60, seed=123))
    options = PageOptions(Selection(), 0.1, [run])
    write_page([run.log], folder / "a.html", title="one", models=[run.model], options=options)
    return (folder / "a.html").read_text("utf-8"), run


def test_the_verdict_is_the_first_thing_on_the_page(of_a_run: tuple[str, Source]) -> None:
    page, run = of_a_run
    [verdict] = verdicts([run.log], 0.1)
    body = page[page.index("<body>") :]
    assert body.index(verdict.sentence) < body.index("<h2>")
    header = body[: body.index("</header>")]
    words = re.sub("<[^>]*>", "", header)
    assert f": {run.log.name} · {run.log.dataset} · σ = 0.25 · lenet · images 0…59 (60) · " in words
    assert '<span class="whole">n = 1,000</span>' in header
    assert f"{verdict.certified} of 60 images (" in body
    less, wrong, none = verdict.correct - verdict.certified, verdict.wrong, verdict.abstained
    assert min(less, wrong, none) > 0 and verdict.certified + less + wrong + none == 60
    assert (
        f"{less} got it with a smaller radius, {wrong} got a wrong answer, and {none} none" in body
    )
    assert "The radius, 0.1, is the one that was asked for (--radius)." in body


def test_the_page_has_hashes_settings_and_commands_of_the_run(of_a_run: tuple[str, Source]) -> None:
    page, run = of_a_run
    tags_of(page)
    for value in hashes(run).values():
        assert page.count(f"<code>{value}</code>") == 1
    for words in (
        '<th scope="row">seed of the noise</th><td>123</td>',
        '<th scope="row">noise</th><td>exact</td>',
        '<th scope="row">arithmetic of the network</th><td>fp32</td>',
        "macer verify RUN --data DATA --start 0 --stop 60\n",
        "macer 0.1.0, torch 2.13.0, cpu AVX2",
    ):
        assert words in page


def test_every_part_that_the_reviewers_guide_names_is_on_the_page(
    of_a_run: tuple[str, Source],
) -> None:
    page, _ = of_a_run
    guide = Path(__file__).parents[2] / "docs/guide/reviewer.md"
    named = set(re.findall(r"(?<!\*)\*([A-Z][^*\n]+)\*(?!\*)", guide.read_text("utf-8")))
    parts = set(re.findall(r"<h[23]>(.*?)</h[23]>", page))
    assert len(named) >= 10
    assert named - parts == set()


def test_images_that_are_not_counted_are_not_concealed(
    of_a_run: tuple[str, Source], tmp_path: Path
) -> None:
    page, run = of_a_run
    assert "are not counted here" not in page
    some = source_of(run.folder, Selection(0, 40))
    options = PageOptions(Selection(0, 40), runs=[some])
    write_page([some.log], tmp_path / "a.html", title="one", options=options)
    text = (tmp_path / "a.html").read_text("utf-8")
    assert "run: 20 images of its journal are not counted here" in text
    assert '<th scope="row">images</th><td>0…39 (40)</td>' in text


def test_the_page_says_whether_certificates_hold_together(
    of_a_run: tuple[str, Source], tmp_path: Path
) -> None:
    page, _ = of_a_run
    together = "60 images share one level (--family): with probability at least 1 − 0.001 none of"
    assert together in page and "Not together" not in page
    run = source_of(write_run(tmp_path / "run"))
    write_page([run.log], tmp_path / "a.html", title="one", options=PageOptions(runs=[run]))
    other = (tmp_path / "a.html").read_text("utf-8")
    assert "Not together" in other and together not in other


@pytest.mark.parametrize(("date", "shown"), [("2026-01-31", True), ("<b>", False), (7, False)])
def test_the_page_has_the_day_of_the_training(tmp_path: Path, date: object, shown: bool) -> None:
    run = source_of(write_run(tmp_path / "run"))
    manifest = tmp_path / "run/manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"date": date}))
    write_page([run.log], tmp_path / "a.html", title="one", options=PageOptions(runs=[run]))
    text = (tmp_path / "a.html").read_text("utf-8")
    assert ('<th scope="row">trained on</th><td>2026-01-31 (UTC)</td>' in text) == shown
    assert ("trained on</th>" in text) == shown


def test_the_page_says_what_does_not_follow(page: str) -> None:
    text = html.unescape(page)
    assert all(f"<li>{limit}</li>" in text for limit in LIMITS)


def test_a_class_without_an_image_is_named(tmp_path: Path) -> None:
    log = random_log(0)
    log = with_classes(log, label := np.arange(len(log.idx)) % 3, label)
    names = ("cat", "dog", "<emu>", "fox")
    for classes, said in ((4, "Without an image here: 3 (fox). Nothing"), (3, None)):
        changed = replace(log, classes=classes, class_names=names[:classes])
        write_page([changed], tmp_path / "a.html", title="a")
        text = (tmp_path / "a.html").read_text("utf-8")
        assert said in text if said else "Without an image" not in text


def test_a_class_that_is_given_up_is_named(tmp_path: Path) -> None:
    label = np.arange(200) % 60
    label[:40] = 7
    log = with_classes(random_log(0), label, np.where(label == 7, 8, label))
    names = tuple(f"<{i}>" for i in range(60))
    write_page([replace(log, class_names=names)], tmp_path / "a.html", title="a")
    text = (tmp_path / "a.html").read_text("utf-8")
    assert "<strong>Given up: 7 &lt;7&gt;.</strong>" in text
    assert '<th scope="row">7 &lt;7&gt; <strong>(given up)</strong></th>' in text
    assert text.count("(given up)") == 1


def test_pictures_are_the_pages_own(tmp_path: Path) -> None:
    row = PictureRow("<b>", (Picture("data:image/png;base64,AA==", '"<i>'),))
    write_page([random_log(0)], tmp_path / "a.html", title="a", options=PageOptions(pictures=[row]))
    text = (tmp_path / "a.html").read_text("utf-8")
    assert '<img src="data:image/png;base64,AA==" alt="&#34;&lt;i&gt;">' in text
    assert "style-src 'unsafe-inline'; img-src data:\"" in text
    assert "<b>" not in text
