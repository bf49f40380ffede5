"""The reviewer's page in a real browser; tests/support/chromium.py says what it needs.

The pictures of docs/guide/reviewer.md are made, in a few minutes, by

    PYTHONPATH=tests/support python tests/reporting/test_review_screens.py docs/pictures
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from chromium import LOOKS, chromium, needs_axe, needs_chromium, opened, violations
from PIL import Image

from macer.cli.app import main

pytestmark = [pytest.mark.slow, needs_chromium]
PAPER = {"viewport": {"width": 868, "height": 1228}}  # the shape of A4


def review(folder: Path, *, n: int, skip: int) -> str:
    """The address of the page of a model of the zoo, with its pictures."""
    run, page = str(folder / "run"), folder / "review.html"
    images = ["--dataset", "mnist-sample", "--n", str(n), "--skip", str(skip), "--out", run]
    assert main(["certify", "zoo:mnist-0.50", *images]) == 0
    asked = ["--radius", "0.5", "--html", str(page), "--data", str(folder)]
    assert main(["report", run, *asked]) == 0
    return page.as_uri()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return review(tmp_path_factory.mktemp("review"), n=200, skip=100)


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_the_page_fits_a_desk_and_a_telephone_and_asks_nothing_of_the_network(
    address: str, look: dict[str, Any]
) -> None:
    with chromium() as browser, opened(browser, address, **look) as page:
        wide, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= room
        assert page.locator("section.verdict").bounding_box()["y"] < look["viewport"]["height"] / 2
        images = page.locator(".pictures img").evaluate_all("all => all.map(i => i.naturalWidth)")
        assert len(images) >= 4 and all(images)


def test_on_paper_the_words_are_dark_on_white_whatever_the_screen_likes(address: str) -> None:
    with chromium() as browser, opened(browser, address, **LOOKS["390 dark"]) as page:
        page.emulate_media(media="print")
        colours = page.evaluate("""() => {
            const style = getComputedStyle(document.body);
            return [style.color, style.backgroundColor];
        }""")
        assert colours == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]


@needs_axe
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_axe_finds_nothing(address: str, look: dict[str, Any]) -> None:
    with chromium() as browser, opened(browser, address, **look) as page:
        assert violations(page) == []


def write_pictures(folder: Path) -> None:
    """The pictures of the guide: a desk's screen, a telephone's, and the print without margins."""
    looks = {"review": LOOKS["1280 light"], "review-narrow": LOOKS["390 dark"]}
    with tempfile.TemporaryDirectory() as work, chromium() as browser:
        address = review(Path(work), n=2000, skip=4)
        for name, look in (looks | {"review-print": PAPER}).items():
            with opened(browser, address, **look) as page:
                page.emulate_media(media="print" if look is PAPER else "screen")
                page.screenshot(path=folder / f"{name}.png")
            few_colours = Image.open(folder / f"{name}.png").convert("RGB").quantize(64)
            few_colours.save(folder / f"{name}.png", optimize=True)


if __name__ == "__main__":
    write_pictures(Path(sys.argv[1]))
