"""The page in a real browser; tests/support/chromium.py says what it needs.

The pictures of docs/guide/serve.md are made by

    PYTHONPATH=tests/support python tests/server/test_page.py docs/pictures
"""

import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
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
    violations,
    wait_for_radius,
)

pytestmark = [pytest.mark.slow, needs_chromium]
WIDE = LOOKS["1280 light"]


@contextmanager
def running() -> Iterator[str]:
    """The service with the zoo's models of MNIST, as `macer serve` has it; its address."""
    import uvicorn

    from macer.cli.serve import DEFAULT
    from macer.server.app import Service
    from macer.server.limits import Keys, Limits
    from macer.server.listening import _Server, bound_socket
    from macer.server.served import Seed, load_served

    device = torch.device("cpu")
    models = load_served(DEFAULT, precision="fp32", row_by_row=False, device=device)
    made = Service(models, limits=Limits(), seed=Seed.chosen(None), keys=Keys())
    bound = bound_socket("127.0.0.1", 0)
    server = _Server(uvicorn.Config(made.front, log_level="critical"), made)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/"
    finally:
        server.handle_exit(signal.SIGTERM, None)
        thread.join(30)


@contextmanager
def ready(browser: Any, address: str, look: dict[str, Any]) -> Iterator[Any]:
    """The page with all that it loads at first."""
    with opened(browser, address, **look) as page:
        page.wait_for_selector("#examples button:nth-child(12)")
        yield page


def attack(page: Any, times: float) -> tuple[str, str]:
    """Move the slider to so many certified radii; what the page says, and whether inside."""
    page.eval_on_selector(
        "#length",
        """(slider, value) => {
            slider.value = value;
            slider.dispatchEvent(new Event('input'));
            slider.dispatchEvent(new Event('change'));
        }""",
        times,
    )
    page.wait_for_function(
        "() => document.getElementById('attack-verdict').textContent.includes('certified ball')"
    )
    verdict = page.locator("#attack-verdict")
    return verdict.inner_text(), verdict.get_attribute("data-inside")


def check_look(page: Any, look: dict[str, Any]) -> None:
    """The page fits its window and has the colours that the reader prefers."""
    assert overflow(page) <= 0
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(18, 21, 27)") == (look["color_scheme"] == "dark")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running() as at:
        yield at


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.mark.parametrize("look", BOTH_WIDTHS.values(), ids=BOTH_WIDTHS)
def test_a_drawn_digit_gets_a_label_and_a_radius_that_grows_and_holds_inside(
    browser: Any, address: str, look: dict[str, Any], record_property: Callable[[str, str], None]
) -> None:
    with ready(browser, address, look) as page:
        draw_seven(page, page)
        begun = time.perf_counter()
        first = wait_for_radius(page, 0)
        seconds = time.perf_counter() - begun
        record_property("measured", f"macer serve: label and radius {seconds:.2f} s after drawing")
        assert page.inner_text("#label") == "7"
        place = page.locator("#radius").bounding_box()  # in view, while the field is
        assert 0 <= place["y"] < look["viewport"]["height"] - place["height"]
        later = wait_for_radius(page, first)
        assert later > first
        page.wait_for_selector("#copies img:nth-child(4)")
        wait_for_radius(page, 1.2)
        page.click("#stop")
        stopped = radius(page)
        said, inside = attack(page, 0.9)
        assert inside == "true" and "falls" not in said
        said, inside = attack(page, 4.0)
        assert inside == "false" and "holds" not in said
        assert radius(page) == stopped
        check_look(page, look)


def test_keyboard_alone_reaches_everything(browser: Any, address: str) -> None:
    with ready(browser, address, WIDE) as page:
        reached = set()
        for _ in range(30):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id"))
        assert {"model", "alpha", "pad", "clear", "file", "formula-button"} <= reached
        draw_one_by_keys(page, page)
        wait_for_radius(page, 0)
        assert page.inner_text("#label") == "1"
        page.focus("#formula-button")
        page.keyboard.press("Enter")
        assert page.is_visible("#formula")
        assert page.get_attribute("#formula-button", "aria-expanded") == "true"


def test_another_sigma_and_another_level_certify_anew(browser: Any, address: str) -> None:
    with ready(browser, address, WIDE) as page:
        page.click("#examples button:nth-child(1)")
        wait_for_radius(page, 0)
        page.select_option("#model", "zoo:mnist-0.25")
        page.wait_for_function("() => document.getElementById('sigma').textContent === '0.25'")
        wait_for_radius(page, 0)
        page.click("#stop")
        assert radius(page) < 1.1  # at most σ Φ⁻¹(p) of 100,000 samples
        page.select_option("#alpha", "0.05")
        wait_for_radius(page, 0)
        assert "0.95" in page.inner_text("#count")


def test_a_test_image_takes_the_place_of_a_drawing(browser: Any, address: str) -> None:
    with ready(browser, address, WIDE) as page:
        assert page.locator("#drawing.empty").count() == 1  # which says that one may draw there
        draw_seven(page, page)
        assert page.locator("#drawing.empty").count() == 0
        page.click("#examples button:nth-child(1)")
        page.wait_for_selector("#drawing.empty")


def test_the_end_without_a_certificate_says_why(browser: Any, address: str) -> None:
    """Test image 8, a five whose votes three classes share."""
    with ready(browser, address, WIDE) as page:
        soon = re.compile("deadline=[0-9]+")
        page.route(
            "**/stream*",
            lambda route: route.continue_(url=soon.sub("deadline=1", route.request.url)),
        )
        page.click("#examples button:nth-child(9)")
        page.wait_for_function("() => document.getElementById('problem').textContent !== ''")
        assert "copies are too divided for a certificate." in page.inner_text("#problem")
        assert page.inner_text("#label") == "abstains"


def test_a_file_that_is_no_image_is_told(browser: Any, address: str, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("no image")
    with ready(browser, address, WIDE) as page:
        page.set_input_files("#file", tmp_path / "a.png")
        page.wait_for_function("() => document.getElementById('problem').textContent !== ''")
        assert page.inner_text("#problem") == "The file must be a PNG or JPEG image."


@needs_axe
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_in_every_look_the_page_fits_and_axe_finds_nothing(
    browser: Any, address: str, look: dict[str, Any]
) -> None:
    with ready(browser, address, look) as page:
        page.click("#examples button:nth-child(2)")
        wait_for_radius(page, 0)
        page.click("#stop")
        page.click("#formula-button")
        check_look(page, look)
        assert violations(page) == []


def write_pictures(folder: Path) -> None:
    """The pictures of the guide."""
    with running() as address, chromium() as browser:
        for name, look in zip(("serve", "serve-narrow"), BOTH_WIDTHS.values(), strict=True):
            with ready(browser, address, look) as page:
                draw_seven(page, page)
                wait_for_radius(page, 1.5)
                attack(page, 4.0)
                page.evaluate("scrollTo(0, 0)")
                page.screenshot(path=folder / f"{name}.png")


if __name__ == "__main__":
    write_pictures(Path(sys.argv[1]))
