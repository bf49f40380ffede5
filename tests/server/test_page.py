"""The page in a real browser: it needs Playwright and Debian's Chromium, and is skipped without.

    pip install playwright==1.65.2 ; apt-get install chromium
    python tests/server/test_page.py docs/pictures     # writes the pictures of docs/guide/serve.md

MACER_AXE may name axe.min.js of axe-core, for its audit of accessibility.
"""

import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

CHROMIUM = shutil.which("chromium")
AXE = os.environ.get("MACER_AXE")

pytestmark = pytest.mark.slow
playwright = pytest.importorskip("playwright.sync_api") if __name__ != "__main__" else None
if CHROMIUM is None:
    pytest.skip("no Chromium is installed", allow_module_level=True)

# A stroke of a seven, in shares of the drawing field.
SEVEN = [(0.25, 0.2), (0.5, 0.19), (0.75, 0.2), (0.62, 0.45), (0.5, 0.65), (0.42, 0.85)]


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
def opened(address: str, **settings: Any) -> Iterator[Any]:
    """A page of the service; it must ask no other host and complain of nothing."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context(**settings).new_page()
        complaints: list[str] = []
        page.on("console", lambda m: complaints.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda r: complaints.append(r.url) if not is_here(r.url) else None)

        def is_here(url: str) -> bool:
            return url.startswith((address, "data:", "blob:"))

        page.goto(address)
        page.wait_for_selector("#examples button:nth-child(12)")
        yield page
        assert complaints == []
        browser.close()


def draw_seven(page: Any) -> None:
    page.locator("#pad").scroll_into_view_if_needed()
    box = page.locator("#pad").bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in SEVEN]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=5)
    page.mouse.up()


def radius(page: Any) -> float:
    return float(page.inner_text("#radius"))


def wait_for_radius(page: Any, least: float) -> float:
    page.wait_for_function(
        "least => Number(document.getElementById('radius').textContent) > least", arg=least
    )
    return radius(page)


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


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running() as at:
        yield at


LOOKS = [
    {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "has_touch": True},
]


@pytest.mark.parametrize("look", LOOKS, ids=["1280 light", "390 dark"])
def test_a_drawn_digit_gets_a_label_and_a_radius_that_grows_and_holds_inside(
    address: str, look: dict[str, Any]
) -> None:
    with opened(address, **look) as page:
        draw_seven(page)
        first = wait_for_radius(page, 0)
        assert page.inner_text("#label") == "7"
        later = wait_for_radius(page, first)
        assert later > first
        page.wait_for_selector("#copies img:nth-child(4)")
        wait_for_radius(page, 1.5)
        page.click("#stop")
        stopped = radius(page)
        said, inside = attack(page, 0.9)
        assert inside == "true" and "falls" not in said
        said, inside = attack(page, 4.0)
        assert inside == "false" and "falls" in said
        assert radius(page) == stopped
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= look["viewport"]["width"]
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (dark == "rgb(18, 21, 27)") == (look["color_scheme"] == "dark")


def test_keyboard_alone_reaches_everything(address: str) -> None:
    with opened(address, **LOOKS[0]) as page:
        reached = set()
        for _ in range(30):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id"))
        assert {"model", "alpha", "pad", "clear", "file", "formula-button"} <= reached
        page.focus("#pad")
        for key in [" ", *["ArrowDown"] * 16, " "]:
            page.keyboard.press(key)
        wait_for_radius(page, 0)
        assert page.inner_text("#label") == "1"
        page.focus("#formula-button")
        page.keyboard.press("Enter")
        assert page.is_visible("#formula")
        assert page.get_attribute("#formula-button", "aria-expanded") == "true"


def test_another_sigma_and_another_level_certify_anew(address: str) -> None:
    with opened(address, **LOOKS[0]) as page:
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


def test_a_file_that_is_no_image_is_told(address: str, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("no image")
    with opened(address, **LOOKS[0]) as page:
        page.set_input_files("#file", tmp_path / "a.png")
        page.wait_for_function("() => document.getElementById('problem').textContent !== ''")
        assert page.inner_text("#problem") == "The file must be a PNG or JPEG image."


@pytest.mark.skipif(AXE is None, reason="MACER_AXE names no axe.min.js")
@pytest.mark.parametrize("look", LOOKS, ids=["1280 light", "390 dark"])
def test_axe_finds_nothing(address: str, look: dict[str, Any]) -> None:
    with opened(address, **look) as page:
        page.click("#examples button:nth-child(2)")
        wait_for_radius(page, 0)
        page.click("#stop")
        page.click("#formula-button")
        page.evaluate(Path(str(AXE)).read_text("utf-8"))
        found = page.evaluate("axe.run()")["violations"]
        assert [(one["id"], [n["html"][:80] for n in one["nodes"]]) for one in found] == []


def write_pictures(folder: Path) -> None:
    """The pictures of the guide."""
    with running() as address:
        for name, look in zip(("serve", "serve-narrow"), LOOKS, strict=True):
            with opened(address, **look) as page:
                draw_seven(page)
                wait_for_radius(page, 1.5)
                attack(page, 4.0)
                page.evaluate("scrollTo(0, 0)")
                page.screenshot(path=folder / f"{name}.png", full_page=name == "serve-narrow")


if __name__ == "__main__":
    write_pictures(Path(sys.argv[1]))
