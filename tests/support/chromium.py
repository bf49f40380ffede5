"""Pages in a real browser: Playwright and Debian's Chromium, which not every machine has.

    apt-get install chromium
    make browser                # builds the site, and runs the tests that need Chromium

axe-core, which audits accessibility, comes by npm with what the site is made of (`make docs`).
"""

import functools
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
AXE = Path(__file__).parents[2] / "build/npm/node_modules/axe-core/axe.min.js"

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or find_spec("playwright") is None,
    reason="Playwright or Chromium is not installed",
)
needs_axe = pytest.mark.skipif(not AXE.exists(), reason="axe-core is not here; make docs")

# A stroke of a seven, in shares of the drawing field.
SEVEN = [(0.25, 0.2), (0.5, 0.19), (0.75, 0.2), (0.62, 0.45), (0.5, 0.65), (0.42, 0.85)]

WINDOWS: dict[str, dict[str, Any]] = {
    "1280": {"viewport": {"width": 1280, "height": 900}},
    "390": {"viewport": {"width": 390, "height": 844}, "has_touch": True},
}
LOOKS: dict[str, dict[str, Any]] = {
    f"{width} {scheme}": {**window, "color_scheme": scheme}
    for width, window in WINDOWS.items()
    for scheme in ("light", "dark")
}
# Each width once, and each scheme once.
BOTH_WIDTHS = {name: LOOKS[name] for name in ("1280 light", "390 dark")}


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, address: str, *, host: str = "", **settings: Any) -> Iterator[Any]:
    """A page; it must ask no other host and complain of nothing.

    Args:
        host: how every address that is asked for begins, the page's own if empty.
    """
    with browser.new_context(**settings) as context:
        page = context.new_page()
        complaints: list[str] = []
        here = (host or address, "data:", "blob:")
        context.on("console", lambda m: complaints.append(m.text) if m.type != "log" else None)
        context.on("weberror", lambda error: complaints.append(str(error.error)))
        context.on(
            "request", lambda r: None if r.url.startswith(here) else complaints.append(r.url)
        )
        page.goto(address)
        yield page
        assert complaints == []


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A folder on this machine's own network; its address."""
    handler = functools.partial(_Quiet, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def overflow(page: Any) -> int:
    """By how many pixels a page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))


def draw_seven(page: Any, part: Any) -> None:
    """Draw on the field of a page, or of a frame in it."""
    pad = part.locator("#pad")
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in SEVEN]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=5)
    page.mouse.up()


def draw_one_by_keys(page: Any, part: Any) -> None:
    """Draw a one with the arrow keys."""
    part.locator("#pad").focus()
    for key in [" ", *["ArrowDown"] * 16, " "]:
        page.keyboard.press(key)


def radius(part: Any) -> float:
    """The radius that a page or a frame shows."""
    return float(part.locator("#radius").inner_text())


def wait_for_radius(part: Any, least: float) -> float:
    """Wait until a page or a frame shows more than that."""
    part.wait_for_function(
        "least => Number(document.getElementById('radius').textContent) > least", arg=least
    )
    return radius(part)


IMPACTS = ("minor", "moderate", "serious", "critical")  # of axe, from small to great


def violations(
    part: Any, where: str = "document", *, impacts: Sequence[str] = IMPACTS
) -> list[tuple[str, list[str]]]:
    """What axe finds wrong in a page or a frame."""
    part.evaluate(AXE.read_text("utf-8"))
    found = part.evaluate(f"axe.run({where}, {{ iframes: false }})")["violations"]
    return [
        (one["id"], [node["html"][:80] for node in one["nodes"]])
        for one in found
        if one["impact"] in impacts
    ]
