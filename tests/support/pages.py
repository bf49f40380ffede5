"""The pages of the documentation, and their blocks."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(page: str | Path, *kinds: str) -> list[str]:
    """The blocks of a page, in their order, that are marked as of these kinds; "" is not marked."""
    text = (ROOT / page).read_text("utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [block for marked, block in found if marked in kinds]
