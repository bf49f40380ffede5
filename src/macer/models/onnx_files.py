"""ONNX files: a graph is checked before onnxruntime reads it.

A graph of the standard operators is data: it computes, and opens nothing. Two things in a file
reach out of it, and both are refused: tensors kept in other files, and operators that are not of
the standard, which a library of code would have to bring.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from macer.system.errors import Mistake
from macer.system.text import shape_text
from macer.system.user_code import first_line

DOMAINS = {"", "ai.onnx", "ai.onnx.ml"}  # of the standard's own operators
MOST_NESTED = 100  # messages within messages; protobuf's own limit

# The messages in each message of onnx.proto, by the numbers of their fields.
_MESSAGES: dict[str, dict[int, str]] = {
    "model": {7: "graph", 8: "opset", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {
        5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse",
    },
    "sparse": {1: "tensor", 2: "tensor"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 9: "opset", 11: "attribute"},
    "tensor": {},
    "opset": {},
}  # fmt: skip
_DOMAIN_FIELDS = {"node": 7, "opset": 1}
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14  # fields of a tensor


class OnnxNetwork(nn.Module):
    """A network that computes an ONNX graph by onnxruntime, on a CPU in the graph's precision."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__()
        check_onnx(content, name)
        self.name = name
        self.session = _session(content, name)
        inputs = self.session.get_inputs()
        if len(inputs) != 1 or inputs[0].type != "tensor(float)":
            got = ", ".join(f"{each.name} {each.type}" for each in inputs) or "none"
            raise Mistake(f"{name} must have one input, images in float32, got {got}")
        self.input, self.shape = inputs[0].name, inputs[0].shape
        if self.shape and isinstance(self.shape[0], int) and self.shape[0] != 1:
            raise Mistake(
                f"{name} must take any number of images at once, or one, got {self.shape[0]}; "
                "export it with a first dimension that is free"
            )

    def __deepcopy__(self, _: dict[int, Any]) -> "OnnxNetwork":
        """Itself: a session keeps nothing between calls and may be called by several threads."""
        return self

    def forward(self, images: Tensor) -> Tensor:
        """The logits (images, classes) of a batch, on its device."""
        self._check_shape(tuple(images.shape[1:]))
        rows = np.ascontiguousarray(images.detach().cpu().float().numpy())
        one_by_one = isinstance(self.shape[0], int)
        parts = np.split(rows, len(rows)) if one_by_one else [rows]
        try:
            answers = [self.session.run(None, {self.input: part})[0] for part in parts]
        except Exception as error:  # onnxruntime's, which have no class in common
            raise Mistake(f"{self.name} cannot be run: {first_line(error)}") from error
        logits = np.concatenate(answers)
        if logits.dtype.kind == "f":
            logits = logits.astype(np.float32)
        return torch.from_numpy(logits).to(images.device)

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        taken = self.shape[1:]
        fits = len(taken) == len(shape) and all(
            size == own for size, own in zip(shape, taken, strict=True) if isinstance(own, int)
        )
        if not fits:
            expected = shape_text(taken)
            raise Mistake(
                f"{self.name} must take the data set's images, {shape_text(shape)}, got a graph "
                f"for {expected or 'no images'}; choose another --dataset or --size"
            )


def _session(content: bytes, name: str) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise Mistake(
            f"onnxruntime must be installed to run {name}: pip install 'torch-macer[onnx]'"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # macer has threads of its own
    options.log_severity_level = 4  # what is wrong, the exception says
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's, which have no class in common
        raise Mistake(f"{name} must be an ONNX file: {first_line(error)}") from error


def check_onnx(content: bytes, name: str) -> None:
    """Refuse a graph that names other files or operators beyond the standard's."""
    try:
        _check_message(memoryview(content), "model", name, MOST_NESTED)
    except Mistake:
        raise
    except (IndexError, ValueError, UnicodeDecodeError) as error:
        raise Mistake(f"{name} must be an ONNX file: {error}") from error


def _check_message(content: memoryview, kind: str, name: str, depth: int) -> None:
    if not depth:
        raise ValueError(f"more than {MOST_NESTED} messages in one another")
    for number, value in _fields(content):
        if kind == "tensor" and (
            number == _EXTERNAL_DATA or (number == _DATA_LOCATION and value != 0)
        ):
            raise Mistake(
                f"{name} must hold all of its tensors, got one in another file; export it with "
                "external_data=False"
            )
        if not isinstance(value, memoryview):
            continue
        if number == _DOMAIN_FIELDS.get(kind):
            _check_domain(bytes(value).decode(), name)
        if inner := _MESSAGES[kind].get(number):
            _check_message(value, inner, name, depth - 1)


def _check_domain(domain: str, name: str) -> None:
    if domain not in DOMAINS:
        raise Mistake(
            f"{name} must use the standard's operators alone, got some of {domain[:60]!r}; export "
            "it without them, or call it in Python by macer.certify"
        )


def _fields(content: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a message of protobuf: numbers, and parts of the content."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, place = _varint(content, place)
            yield number, value
            continue
        if kind == 2:
            size, place = _varint(content, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("a field of no known kind")
        if place + size > len(content):
            raise ValueError("a field ends after its message")
        yield number, content[place : place + size]
        place += size


def _varint(content: memoryview, place: int) -> tuple[int, int]:
    """A whole number of seven bits a byte, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = content[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise ValueError("a number of more than ten bytes")
