"""The site in Chromium: the page that certifies in the browser alone, with its files; the tables.

The site is that of the folder that MACER_SITE names, as `make browser` and CI do.
"""

import json
import os
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import numpy as np
import pytest
import torch
from browser_files import (
    ALPHA,
    LOW_BITS,
    MODEL,
    PAGE,
    N,
    layers,
    look_sizes,
    radii_of_look,
    words,
)
from chromium import (
    BOTH_WIDTHS,
    LOOKS,
    chromium,
    draw_one_by_keys,
    draw_seven,
    needs_axe,
    needs_chromium,
    opened,
    overflow,
    radius,
    served,
    violations,
    wait_for_radius,
)
from onnx_file import onnx_of
from PIL import Image
from torch import Tensor

import macer
from macer.certification.anytime import ANYTIME
from macer.certification.certificate import ABSTAIN
from macer.certification.conclusions import conclude
from macer.certification.table import rounded_down
from macer.data.sets import load
from macer.reporting.leaderboard import board, boards, other_leagues
from macer.reporting.leaderboard_page import write_leaderboard
from macer.smoothing.exact_noise import BITS, levels
from macer.smoothing.tally import Tally

SITE = Path(os.environ.get("MACER_SITE", "")).resolve()
ROOT = Path(__file__).parents[1]
SIGMA = 0.5
WIDE = LOOKS["1280 light"]
GROUND = "getComputedStyle(document.body).backgroundColor"


def concluded(selection: list[int], estimation: list[int], drawn: int) -> macer.Certificate:
    """What macer concludes from the votes of one image."""
    votes0, votes = (torch.tensor([counts]) for counts in (selection, estimation))
    tallies = (Tally(counts, counts, counts) for counts in (votes0, votes))
    drawn_each = torch.tensor([drawn])
    [certificate] = conclude(
        *tallies, sigma=SIGMA, n=N, alpha=ALPHA, bound=ANYTIME, drawn=drawn_each
    )
    return certificate


def noisy(count: int) -> Tensor:
    """Noisy copies of digits."""
    images = torch.from_numpy(load("mnist-sample", "test").images[:count]) / 255
    return images + SIGMA * torch.randn(images.shape, generator=torch.Generator().manual_seed(0))


# reference: what Python writes


def test_the_onnx_model_is_the_model_of_the_zoo() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model, card = macer.load_model(MODEL)
    assert card.sigma == SIGMA
    file = onnx_of(layers(model), card.shape)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    x = noisy(400)
    [logits] = session.run(None, {"x": x.numpy()})
    with torch.inference_mode():
        expected = model(x).numpy()
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    assert (logits.argmax(1) == expected.argmax(1)).all()


@pytest.mark.medium
@pytest.mark.parametrize("look", [0, 1, 12, -1])
def test_every_radius_of_the_table_is_what_macer_concludes(look: int) -> None:
    n = look_sizes()[look]
    least, radii = radii_of_look(n, SIGMA)
    assert len(radii) == n + 1 - least
    random = np.random.default_rng(0)
    for count in {least, n, *random.integers(least, n + 1, 10).tolist()}:
        certificate = concluded([0, 100, 0], [0, count, n - count], n)
        assert certificate.label == 1
        assert certificate.radius == radii[count - least] > 0, (n, count)
    assert concluded([0, 100, 0], [0, least - 1, 0], n).radius == 0.0


@pytest.mark.medium
def test_the_looks_are_those_of_certify_anytime() -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(1, 2))
    torch.nn.init.zeros_(network[1].weight)
    image = torch.zeros(1, 1, 1, 1, dtype=torch.uint8)
    looks = macer.certify_anytime(network, image, sigma=SIGMA, n=N, alpha=ALPHA)
    assert [certificates[0].drawn for certificates in looks] == look_sizes()


def test_words_are_the_thresholds() -> None:
    thresholds = levels(SIGMA).thresholds
    pairs = words(thresholds).astype(np.int64)
    assert (pairs < [2**32, 2**LOW_BITS]).all()
    assert ((pairs[:, 0] << LOW_BITS) + pairs[:, 1] == thresholds).all()


def test_what_npm_installs_is_pinned_and_names_no_host() -> None:
    package = json.loads((PAGE / "package.json").read_text("utf-8"))
    lock = json.loads((PAGE / "package-lock.json").read_text("utf-8"))["packages"]
    wanted = package["dependencies"] | package["devDependencies"]
    for name, version in wanted.items():
        assert re.fullmatch(r"[\d.]+", version)
        assert lock[f"node_modules/{name}"]["version"] == version
    found = {place: entry for place, entry in lock.items() if place}
    assert all("integrity" in entry and "resolved" not in entry for entry in found.values())


# the tables


@pytest.fixture(scope="module")
def pages() -> Iterator[str]:
    if "MACER_SITE" not in os.environ:
        pytest.skip("MACER_SITE names no built site; make browser")
    with served(SITE) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


LINES = """() => [...document.querySelectorAll("td, td small")].map((cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    const tops = [...range.getClientRects()].map((box) => box.top);
    return [cell.textContent, new Set(tops).size];
})"""
FIGURE = re.compile(r"(±\s)?[-+−]?[\d.,]+(\s±\s[\d.]+|\s†|(,\s[\d.]+)+)?")
FITS = """[...document.querySelectorAll("table[data-sortable]")]
    .map((table) => table.closest(".wide, .md-typeset__scrollwrap"))
    .every((box) => box.scrollWidth <= box.clientWidth)"""


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("look", BOTH_WIDTHS.values(), ids=BOTH_WIDTHS)
@pytest.mark.parametrize("name", ["index", "results/leaderboard", "results/measured"])
def test_every_figure_of_a_table_stands_on_one_line(
    browser: Any, pages: str, look: dict[str, Any], name: str
) -> None:
    with opened(browser, f"{pages}{name}.html", host=pages, **look) as page:
        page.wait_for_selector("table")
        found = [(text, lines) for text, lines in page.evaluate(LINES) if FIGURE.fullmatch(text)]
        assert len(found) >= 4
        assert [text for text, lines in found if lines != 1] == []
        assert overflow(page) <= 0  # a wide table scrolls in its own box


@pytest.fixture(params=["site", "--html"])
def leaderboard(request: pytest.FixtureRequest, pages: str, tmp_path: Path) -> Iterator[str]:
    """The address of the page of the site, and of that of `macer leaderboard --html`."""
    if request.param == "site":
        yield f"{pages}results/leaderboard.html"
        return
    write_leaderboard(boards(), other_leagues(), tmp_path / "leaderboard.html")
    with served(tmp_path) as address:
        yield f"{address}leaderboard.html"


def sorted_by(page: Any, column: int) -> tuple[list[str], list[int], str]:
    """The methods of the first board, the columns that it says it is sorted by, and how."""
    table = page.locator("table[data-sortable]").first
    methods = table.locator("tbody th").evaluate_all("heads => heads.map((h) => h.dataset.value)")
    titles = table.locator("thead th")
    said = titles.evaluate_all("heads => heads.map((h) => h.getAttribute('aria-sort'))")
    return methods, [i for i, how in enumerate(said) if how], said[column]


@needs_chromium
@pytest.mark.slow
def test_the_leaderboard_is_sorted_by_a_click_and_by_enter(browser: Any, leaderboard: str) -> None:
    rows = board(0.25, "every-5th").rows
    names = [row.name for row in rows]
    by_acr = [row.name for row in sorted(rows, key=lambda row: row.acr)]
    ours = [row.name for row in rows if row.runner_up]
    assert ours == ["macer record", "macer fast"]  # in the order of the runner-up's ACR too
    with opened(browser, leaderboard, host=urljoin(leaderboard, "/"), **WIDE) as page:
        assert page.evaluate(FITS)
        titles = page.locator("table[data-sortable]").first.locator("thead button")
        assert sorted_by(page, 1) == (names, [1], "ascending")
        titles.nth(2).click()
        assert sorted_by(page, 2) == (by_acr[::-1], [2], "descending")
        titles.nth(2).press("Enter")
        assert sorted_by(page, 2) == (by_acr, [2], "ascending")
        for how in ("descending", "ascending"):  # what is unknown stands below, either way
            titles.nth(3).press("Enter")
            methods, *said = sorted_by(page, 3)
            assert methods[:2] == (ours if how == "descending" else ours[::-1])
            assert said == [[3], how]
        titles.nth(0).click()
        assert sorted_by(page, 0) == (sorted(names, key=str.lower), [0], "ascending")


@needs_chromium
@needs_axe
@pytest.mark.slow
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_in_every_look_the_leaderboard_fits_and_axe_finds_nothing_in_a_table(
    browser: Any, pages: str, look: dict[str, Any]
) -> None:
    """Its tables are alike, so that one is enough."""
    with opened(browser, f"{pages}results/leaderboard.html", host=pages, **look) as page:
        page.wait_for_selector("table[data-sortable] button")
        assert overflow(page) <= 0
        assert violations(page, "document.querySelector('[data-sortable]')") == []


@needs_chromium
@needs_axe
@pytest.mark.slow
@pytest.mark.parametrize("look", BOTH_WIDTHS.values(), ids=BOTH_WIDTHS)
def test_axe_finds_nothing_serious_in_whole_pages(
    browser: Any, pages: str, look: dict[str, Any]
) -> None:
    """Of each kind one: text, tables, code, references."""
    names = ("index", "start", "results/leaderboard", "results/measured", "results/paper")
    for name in (*names, "guide/own-model", "how/smoothing", "reference/python", "json"):
        with opened(browser, f"{pages}{name}.html", host=pages, **look) as page:
            assert violations(page, impacts=("serious", "critical")) == [], name


# the page that certifies


@pytest.fixture(scope="module")
def site(pages: str) -> str:
    if not (SITE / "browser/live.html").exists():
        pytest.skip("the site was built without npm")
    return pages


@contextmanager
def start_page(
    browser: Any, site: str, look: dict[str, Any], *, name: str = "start"
) -> Iterator[tuple[Any, Any]]:
    """The start page, or the first one, and in it the frame with the page that certifies."""
    with opened(browser, f"{site}{name}.html", host=site, **look) as page:
        frame = page.locator("iframe.live")
        frame.scroll_into_view_if_needed()
        inside = frame.element_handle().content_frame()
        inside.wait_for_selector("#examples button:nth-child(12)")
        yield page, inside


@contextmanager
def alone(browser: Any, site: str) -> Iterator[Any]:
    """The page that certifies, by itself."""
    with opened(browser, f"{site}browser/live.html", host=site, **WIDE) as page:
        page.wait_for_selector("#examples button:nth-child(12)")
        yield page


def check_look(page: Any, frame: Any, look: dict[str, Any]) -> None:
    """Both fit their windows and have the colours that the reader prefers."""
    assert overflow(page) <= 0
    inner = frame.evaluate("[document.documentElement.scrollHeight, innerHeight]")
    assert inner[0] <= inner[1] + 1  # all of it is seen
    ground = frame.evaluate(GROUND)
    assert ground == page.evaluate(GROUND)
    assert (ground == "rgb(255, 255, 255)") == (look["color_scheme"] == "light")


def shown_certificate(frame: Any) -> tuple[dict[str, Any], str, str]:
    """The certificate behind what is shown, its radius and its label, at one moment."""
    certificate, text, label = frame.evaluate(
        """() => {
            const [radius, label] = ["radius", "label"].map((id) => document.getElementById(id));
            return [radius.dataset.certificate, radius.textContent, label.textContent];
        }"""
    )
    return json.loads(certificate), text, label


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("look", BOTH_WIDTHS.values(), ids=BOTH_WIDTHS)
def test_the_counts_of_a_drawn_digit_give_its_radius_in_python_bit_for_bit(
    browser: Any, site: str, look: dict[str, Any], record_property: Callable[[str, str], None]
) -> None:
    with start_page(browser, site, look) as (page, frame):
        draw_seven(page, frame)
        begun, first = time.perf_counter(), wait_for_radius(frame, 0)
        seconds = time.perf_counter() - begun
        record_property(
            "measured", f"browser alone: label and radius {seconds:.2f} s after drawing"
        )
        for least in (0.0, first, 1.0):
            wait_for_radius(frame, least)
            certificate, text, label = shown_certificate(frame)
            counts = [certificate[key] for key in ("selection", "estimation", "drawn")]
            python = concluded(*counts)
            assert python.radius == certificate["radius"] > 0  # the same float
            assert rounded_down(python.radius, 4) == text
            assert str(python.label) == label == "7"
            assert python.selected == certificate["selected"]
            assert sum(counts[0]) == 100 and sum(counts[1]) == counts[2]
        frame.wait_for_selector("#copies canvas:nth-child(4)")
        assert "holds with probability 0.999" in frame.inner_text("#count")
        frame.click("#stop")
        stopped = radius(frame)
        assert stopped >= 1.0 > 0 and frame.is_enabled("#certify")
        check_look(page, frame, look)
        assert radius(frame) == stopped


@needs_chromium
@pytest.mark.slow
def test_the_counts_of_a_doubtful_digit_give_its_radius_at_every_moment(
    browser: Any, site: str
) -> None:
    """Its votes are divided, so that the look with the largest radius may be an earlier one."""
    with alone(browser, site) as page:
        page.set_input_files("#file", ROOT / "docs/pictures/nine.png")
        wait_for_radius(page, 0)
        seen = []
        while not seen or seen[-1]["samples"] < 2_400:
            certificate, text, _ = shown_certificate(page)
            counts = [certificate[key] for key in ("selection", "estimation", "drawn")]
            assert concluded(*counts).radius == certificate["radius"]
            assert rounded_down(certificate["radius"], 4) == text
            seen.append(certificate)
            page.wait_for_timeout(100)
        assert any(max(one["estimation"]) < one["drawn"] for one in seen)


@needs_chromium
@pytest.mark.slow
def test_the_browser_finds_every_radius_in_its_table(browser: Any, site: str) -> None:
    random = np.random.default_rng(0)
    asked, expected = [], []
    for look in (0, 1, 12, -1):
        n = look_sizes()[look]
        least, radii = radii_of_look(n, SIGMA)
        counts = [0, n // 2, least - 1, least, *random.integers(least, n + 1, 20).tolist(), n]
        asked += [(look % len(look_sizes()), count) for count in counts]
        expected += [radii[count - least] if count >= least else 0.0 for count in counts]
    with alone(browser, site) as page:
        found = page.evaluate(
            """async (asked) => {
                const { Radii, roundedDown } = await import("./radii.js");
                const { looks } = await (await fetch("settings.json")).json();
                const radii = new Radii(looks, await (await fetch("radii.bin")).arrayBuffer());
                return asked.map(([look, count]) => {
                    const radius = radii.of(look, count);
                    return [radius, roundedDown(radius)];
                });
            }""",
            asked,
        )
    assert [radius for radius, _ in found] == expected
    texts = [rounded_down(radius, 4) if radius else "0.0000" for radius in expected]
    assert [text for _, text in found] == texts


@needs_chromium
@pytest.mark.slow
def test_the_noise_of_the_browser_is_exact(browser: Any, site: str) -> None:
    """Ranks of given draws, also at, just below and just above every threshold."""
    table = levels(SIGMA)
    edges = table.thresholds[(table.thresholds > 0) & (table.thresholds < 2**BITS - 1)]
    near = np.concatenate([edges - 1, edges, edges + 1]).astype(np.uint64) << np.uint64(2)
    draws = np.random.default_rng(0).integers(0, 2**64, 5_000, dtype=np.uint64)
    raw = np.concatenate([draws, near, near + np.uint64(3), np.array([0, 2**64 - 1], np.uint64)])
    ranks, undecided = table.ranks(raw)
    expected = ranks.astype(int)
    expected[undecided] = -1
    pairs = np.stack((raw >> np.uint64(32), raw & np.uint64(2**32 - 1)), axis=1)
    with alone(browser, site) as page:
        found = page.evaluate(
            """async (words) => {
                const { Noise } = await import("./noise.js");
                const file = async (name) => (await fetch(`${name}.bin`)).arrayBuffer();
                const names = ["thresholds", "guide", "floats"];
                const files = await Promise.all(names.map(file));
                const noise = new Noise(Object.fromEntries(names.map((n, i) => [n, files[i]])));
                const floats = Array.from(noise.floats);
                return [words.map(([high, low]) => noise.rank(high, low)), floats];
            }""",
            pairs.tolist(),
        )
    assert len(undecided) >= 2 * len(edges)
    assert found[0] == expected.tolist()
    assert np.array_equal(np.array(found[1], np.float32), table.floats)


@needs_chromium
@pytest.mark.slow
def test_copies_have_the_noise_of_their_draws_and_doubtful_rows_vote_for_nobody(
    browser: Any, site: str
) -> None:
    table = levels(SIGMA)
    raw = np.random.default_rng(1).integers(0, 2**64, (3, 4), dtype=np.uint64)
    raw[1, 2] = np.uint64(table.thresholds[1100]) << np.uint64(2)  # undecided
    pixels = [0, 7, 128, 255]
    expected = table.floats[table.ranks(raw)[0].astype(int) + pixels]
    with alone(browser, site) as page:
        batch, decided, votes = page.evaluate(
            """async ([pixels, words]) => {
                const { Noise, countVotes } = await import("./noise.js");
                const file = async (name) => (await fetch(`${name}.bin`)).arrayBuffer();
                const names = ["thresholds", "guide", "floats"];
                const files = await Promise.all(names.map(file));
                const noise = new Noise(Object.fromEntries(names.map((n, i) => [n, files[i]])));
                const batch = new Float32Array(12);
                const decided = noise.copies(Uint8Array.from(pixels), words.flat(), batch);
                const logits = Float32Array.of(
                    1, 2, 0,  0, 9, 0,  NaN, 9, 0,  Infinity, 0, 0,
                    0, -Infinity, 9,  5, 5, 1,  0, 0, 1);
                const rows = [true, false, true, true, true, true, true];
                return [Array.from(batch), decided, countVotes(logits, rows, 3)];
            }""",
            [pixels, np.stack((raw >> 32, raw & (2**32 - 1)), axis=-1).reshape(-1, 2).tolist()],
        )
    assert decided == [True, False, True]
    kept = np.array(batch, np.float32).reshape(3, 4)[[0, 2]]
    assert np.array_equal(kept, expected[[0, 2]])
    assert votes == [1, 1, 1]  # rows 5, 0 and 6


@needs_chromium
@pytest.mark.slow
def test_the_network_in_the_browser_is_the_zoos_and_keeps_its_rows_apart(
    browser: Any, site: str
) -> None:
    """A row has the same logits, bit for bit, whatever the other rows are."""
    x, others = noisy(100), noisy(200)[100:]
    with alone(browser, site) as page:
        found = page.evaluate(
            """async (texts) => {
                const { Votes } = await import("./votes.js");
                const [x, others] = texts.map((text) => new Float32Array(
                    Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer));
                const mixed = x.map((value, i) => Math.floor(i / 784) % 2 ? others[i] : value);
                const votes = new Votes();
                const answers = [];
                for (const batch of [x, others, mixed, x]) {
                    answers.push(Array.from((await votes.ask({ batch })).logits));
                }
                return answers;
            }""",
            [b64encode(batch.numpy().tobytes()).decode() for batch in (x, others)],
        )
    a, b, both, again = (np.array(logits, np.float32).reshape(100, 10) for logits in found)
    assert np.array_equal(a, again)
    assert np.array_equal(both[::2], a[::2]) and np.array_equal(both[1::2], b[1::2])
    model, _ = macer.load_model(MODEL)
    with torch.inference_mode():
        np.testing.assert_allclose(a, model(x).numpy(), rtol=1e-4, atol=1e-4)


@needs_chromium
@pytest.mark.slow
def test_an_abstention_is_shown_as_one(browser: Any, site: str, tmp_path: Path) -> None:
    """Two digits in one image divide the votes; two looks are all that there are."""
    settings = json.loads((SITE / "browser/settings.json").read_text("utf-8"))
    settings |= {"looks": settings["looks"][:2], "n": settings["looks"][1][0]}
    size = sum(n + 1 - least for n, least in settings["looks"])
    radii = (SITE / "browser/radii.bin").read_bytes()[: 8 * size]
    images = load("mnist-sample", "test").images[:, 0].astype(int)
    Image.fromarray(((images[1] + images[3]) // 2).astype(np.uint8)).save(tmp_path / "two.png")
    with opened(browser, f"{site}index.html", host=site, **WIDE) as page:
        page.route("**/settings.json", lambda route: route.fulfill(json=settings))
        page.route("**/radii.bin", lambda route: route.fulfill(body=radii))
        page.goto(f"{site}browser/live.html")
        page.wait_for_selector("#examples button:nth-child(12)")
        page.set_input_files("#file", tmp_path / "two.png")
        page.wait_for_function("() => document.getElementById('label').textContent === 'abstains'")
        certificate, text, _ = shown_certificate(page)
        assert text == "0.0000" and certificate["radius"] == 0.0
        counts = [certificate[key] for key in ("selection", "estimation", "drawn")]
        assert concluded(*counts).label == ABSTAIN
        assert page.inner_text("#problem").startswith("The votes of 400 copies are too divided")
        assert "400 samples" in page.inner_text("#count")
        assert "holds" not in page.inner_text("#count")


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("name", ["index", "start"])
def test_the_page_works_by_keys_and_follows_the_colours_of_the_site(
    browser: Any, site: str, name: str
) -> None:
    with start_page(browser, site, WIDE, name=name) as (page, frame):
        draw_one_by_keys(page, frame)
        wait_for_radius(frame, 0)
        assert frame.inner_text("#label") == "1"
        page.click("label[for=__palette_1]")
        frame.wait_for_function(f"() => {GROUND} === 'rgb(30, 33, 41)'")


@needs_chromium
@needs_axe
@pytest.mark.slow
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_in_every_look_the_page_fits_and_axe_finds_nothing(
    browser: Any, site: str, look: dict[str, Any]
) -> None:
    with start_page(browser, site, look) as (page, frame):
        frame.click("#examples button:nth-child(2)")
        wait_for_radius(frame, 0)
        frame.click("#stop")
        check_look(page, frame, look)
        assert violations(frame) == []
        assert violations(page, "'iframe.live'") == []


@needs_chromium
@pytest.mark.slow
@pytest.mark.usefixtures("site")
def test_opened_from_a_file_the_page_says_that_it_needs_a_server(browser: Any) -> None:
    page = browser.new_page()
    page.goto((SITE / "start.html").as_uri())
    page.locator("iframe.live").scroll_into_view_if_needed()
    line = page.frame_locator("iframe.live").locator("#unserved")
    line.wait_for(state="visible")
    assert "This part needs a server" in line.inner_text()
    page.close()
