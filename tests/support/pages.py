"""The pages of the documentation, and their blocks."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(page: str | Path, *kinds: str) -> list[str]:
    """The blocks of a page that are marked as of one of these kinds, or not marked for ""."""
    text = (ROOT / page).read_text("utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [block for marked, block in found if marked in kinds]
