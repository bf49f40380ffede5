"""Files that hold a whole network: ONNX graphs, which are data, and TorchScript, a program."""

import io
import warnings
import zipfile
from collections.abc import Collection
from pathlib import Path
from re import fullmatch

import torch
from torch import nn

from macer.models.onnx_files import OnnxNetwork
from macer.system.errors import Mistake
from macer.system.files import opened
from macer.system.user_code import first_line

ONNX, TORCHSCRIPT = "onnx", "torchscript"
GRAPHS = (ONNX, TORCHSCRIPT)


def graph_kind(path: Path | str) -> str | None:
    """The kind of a file that holds a whole network; None for every other, and for no file."""
    path = Path(path)
    if not path.is_file():
        return None
    if path.suffix.lower() == ".onnx":
        return ONNX
    try:
        with opened(path) as file:
            if file.read(2) != b"PK":  # an archive may also be the end of another file
                return None
            names = zipfile.ZipFile(file).namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return None
    is_script = any(fullmatch(r"[^/]+/constants\.pkl", name) for name in names)
    return TORCHSCRIPT if is_script else None


def network_of(kind: str, content: bytes, *, name: str, code: Collection[str]) -> nn.Module:
    """The network that a file's content holds, in eval mode on the CPU.

    Args:
        kind: one of GRAPHS.
        name: of the file, for messages.
        code: what the user trusts; a TorchScript program must be among it.
    """
    if kind == ONNX:
        return OnnxNetwork(content, name).eval()
    check_program(name, code)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch.jit is no longer extended
            network: nn.Module = torch.jit.load(  # type: ignore[no-untyped-call]
                io.BytesIO(content), map_location="cpu"
            )
    except (RuntimeError, ValueError) as error:
        raise Mistake(f"{name} must be a TorchScript file: {first_line(error)}") from error
    return network.eval()


def check_program(name: str, code: Collection[str]) -> None:
    """Refuse a TorchScript program that the user has not said to trust.

    Its operators include `from_file` and `save`, which read and write any file of the user's, and
    some of its code runs when it is loaded. So it is not loaded to look into it.
    """
    if TORCHSCRIPT not in code:
        raise Mistake(
            f"{name} is a TorchScript program, which may read and write files of yours; if you "
            f"trust who made it, add --code {TORCHSCRIPT}"
        )
