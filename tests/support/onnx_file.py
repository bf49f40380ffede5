"""ONNX files of small networks, written byte by byte: no test needs the package `onnx`."""

from torch import nn

FLOAT = 1  # TensorProto.DataType
IR_VERSION, OPSET = 8, 17


def onnx_of(
    network: nn.Sequential, *, shape: tuple[int, ...] = (), rows: int | None = None
) -> bytes:
    """A model with the input x (rows, …): the linear layers and ReLUs of a network.

    The numbers are those of the fields of onnx.proto.

    Args:
        shape: of an input, for a network that begins with nn.Flatten.
        rows: how many the model takes at once, if not any number.
    """
    nodes, weights, last = b"", b"", "x"
    for place, layer in enumerate(network):
        if isinstance(layer, nn.Linear):
            weights += field(5, _tensor(f"w{place}", layer.weight.T))
            weights += field(5, _tensor(f"b{place}", layer.bias))
            nodes += field(1, _node("MatMul", [last, f"w{place}"], f"m{place}"))
            nodes += field(1, _node("Add", [f"m{place}", f"b{place}"], f"y{place}"))
        else:
            kind = {nn.ReLU: "Relu", nn.Flatten: "Flatten"}[type(layer)]
            nodes += field(1, _node(kind, [last], f"y{place}"))
        last = f"y{place}"
    sizes = shape or (network[0].in_features,)
    classes = network[-1].out_features
    graph = nodes + field(2, b"network") + weights
    graph += field(11, _value("x", sizes, rows)) + field(12, _value(last, (classes,), rows))
    return number(1, IR_VERSION) + field(8, number(2, OPSET)) + field(7, graph)


def _node(kind: str, inputs: list[str], output: str) -> bytes:
    read = b"".join(field(1, name.encode()) for name in inputs)
    return read + field(2, output.encode()) + field(4, kind.encode())


def _tensor(name: str, values) -> bytes:
    array = values.detach().contiguous().numpy().astype("<f4")
    shape = b"".join(number(1, size) for size in array.shape)
    return shape + number(2, FLOAT) + field(8, name.encode()) + field(9, array.tobytes())


def _value(name: str, sizes: tuple[int, ...], rows: int | None) -> bytes:
    """A tensor (rows, *sizes), of any number of rows if None."""
    first = field(2, b"rows") if rows is None else number(1, rows)
    shape = field(1, first) + b"".join(field(1, number(1, size)) for size in sizes)
    return field(1, name.encode()) + field(2, field(1, number(1, FLOAT) + field(2, shape)))


def field(place: int, content: bytes) -> bytes:
    """A field of protobuf with bytes, a text or a message."""
    return _varint(place << 3 | 2) + _varint(len(content)) + content


def number(place: int, value: int) -> bytes:
    """A field of protobuf with a whole number."""
    return _varint(place << 3) + _varint(value)


def _varint(value: int) -> bytes:
    low = bytes([value & 127 | 128 * (value > 127)])
    return low + (_varint(value >> 7) if value > 127 else b"")
