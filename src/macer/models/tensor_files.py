"""Read safetensors files: tensors and texts by name."""

import json
import struct

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

LARGEST_HEADER = 1 << 22  # bytes; ten thousand tensors take about a million


def read_safetensors(content: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the texts of a file; a damaged file raises SafetensorError.

    The library checks that the tensors fill the file and do not overlap.
    """
    size = struct.unpack("<Q", content[:8].ljust(8, b"\xff"))[0]
    if content[8:9] != b"{":  # the length of a header, then the header in JSON
        raise SafetensorError("it is no file of safetensors")
    if size > LARGEST_HEADER:
        raise SafetensorError(f"its header must be at most {LARGEST_HEADER:,} bytes, got {size:,}")
    tensors = load(content)
    return tensors, json.loads(content[8 : 8 + size]).get("__metadata__", {})


def network_named(content: bytes) -> str | None:
    """The network that the texts of a model file of macer name; None where there is none."""
    try:
        size = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8 : 8 + min(size, LARGEST_HEADER)])
        named = json.loads(header["__metadata__"]["macer"])["architecture"]
    except (struct.error, ValueError, KeyError, TypeError, RecursionError):
        return None
    return named if isinstance(named, str) else None
