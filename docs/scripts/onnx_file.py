"""ONNX files of small networks, written byte by byte: nothing needs the package `onnx`."""

from collections.abc import Sequence

from torch import Tensor, nn

FLOAT = 1  # TensorProto.DataType
INTS = 7  # AttributeProto.AttributeType
IR_VERSION, OPSET = 8, 17


def onnx_of(network: nn.Sequential, shape: Sequence[int], rows: int | None = None) -> bytes:
    """A model with the input x (rows, *shape): the layers of a network, one after the other.

    The numbers are those of the fields of onnx.proto.

    Args:
        network: of linear layers, convolutions and max-pooling without padding, flattening and
            ReLUs.
        rows: how many the model takes at once; any number if None.
    """
    nodes, weights, last = b"", b"", "x"
    for place, layer in enumerate(network):
        more, tensors = _layer(layer, place, last)
        nodes += b"".join(field(1, node) for node in more)
        weights += b"".join(field(5, _tensor(name, values)) for name, values in tensors.items())
        last = f"y{place}"
    classes = network[-1].out_features
    graph = nodes + field(2, b"network") + weights
    graph += field(11, _value("x", shape, rows)) + field(12, _value(last, [classes], rows))
    return number(1, IR_VERSION) + field(8, number(2, OPSET)) + field(7, graph)


def _layer(layer: nn.Module, place: int, last: str) -> tuple[list[bytes], dict[str, Tensor]]:
    """The nodes of a layer, from the value `last` to y{place}, and its weights."""
    w, b, m, y = (f"{letter}{place}" for letter in "wbmy")
    match layer:
        case nn.Linear():
            nodes = [_node("MatMul", [last, w], m), _node("Add", [m, b], y)]
            return nodes, {w: layer.weight.T, b: layer.bias}
        case nn.Conv2d(stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
            return [_node("Conv", [last, w, b], y)], {w: layer.weight, b: layer.bias}
        case nn.MaxPool2d(kernel_size=int(size), padding=0, dilation=1, ceil_mode=False):
            assert layer.stride == size
            sizes = {"kernel_shape": [size, size], "strides": [size, size]}
            return [_node("MaxPool", [last], y, sizes)], {}
        case nn.Flatten(start_dim=1, end_dim=-1):
            return [_node("Flatten", [last], y)], {}
        case nn.ReLU():
            return [_node("Relu", [last], y)], {}
    raise ValueError(f"layer must be one that onnx_of writes, got {layer}")


def _node(
    kind: str, inputs: Sequence[str], output: str, sizes: dict[str, list[int]] | None = None
) -> bytes:
    read = b"".join(field(1, name.encode()) for name in inputs)
    node = read + field(2, output.encode()) + field(4, kind.encode())
    for name, values in (sizes or {}).items():
        listed = b"".join(number(8, value) for value in values)
        node += field(5, field(1, name.encode()) + listed + number(20, INTS))
    return node


def _tensor(name: str, values: Tensor) -> bytes:
    array = values.detach().contiguous().numpy().astype("<f4")
    shape = b"".join(number(1, size) for size in array.shape)
    return shape + number(2, FLOAT) + field(8, name.encode()) + field(9, array.tobytes())


def _value(name: str, sizes: Sequence[int], rows: int | None) -> bytes:
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
