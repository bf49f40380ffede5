"""ONNX files of small networks, written byte by byte: nothing needs the package `onnx`."""

from collections.abc import Sequence

from torch import Tensor, nn

FLOAT = 1  # TensorProto.DataType
INTS = 7  # AttributeProto.AttributeType
IR_VERSION, OPSET = 8, 17


def onnx_of(network: nn.Sequential, shape: Sequence[int]) -> bytes:
    """A model with the input x (rows, *shape): the layers of a network, one after the other.

    The numbers are those of the fields of onnx.proto.

    Args:
        network: of linear layers, convolutions and max-pooling without padding, flattening and
            ReLUs.
    """
    nodes, weights, last = b"", b"", "x"
    for place, layer in enumerate(network):
        more, tensors = _layer(layer, place, last)
        nodes += b"".join(_field(1, node) for node in more)
        weights += b"".join(_field(5, _tensor(name, values)) for name, values in tensors.items())
        last = f"y{place}"
    classes = network[-1].out_features
    graph = nodes + _field(2, b"network") + weights
    graph += _field(11, _value("x", shape)) + _field(12, _value(last, [classes]))
    return _number(1, IR_VERSION) + _field(8, _number(2, OPSET)) + _field(7, graph)


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
    read = b"".join(_field(1, name.encode()) for name in inputs)
    node = read + _field(2, output.encode()) + _field(4, kind.encode())
    for name, values in (sizes or {}).items():
        listed = b"".join(_number(8, value) for value in values)
        node += _field(5, _field(1, name.encode()) + listed + _number(20, INTS))
    return node


def _tensor(name: str, values: Tensor) -> bytes:
    array = values.detach().contiguous().numpy().astype("<f4")
    shape = b"".join(_number(1, size) for size in array.shape)
    return shape + _number(2, FLOAT) + _field(8, name.encode()) + _field(9, array.tobytes())


def _value(name: str, sizes: Sequence[int]) -> bytes:
    """A tensor (rows, *sizes), of any number of rows."""
    shape = _field(1, _field(2, b"rows")) + b"".join(_field(1, _number(1, size)) for size in sizes)
    return _field(1, name.encode()) + _field(2, _field(1, _number(1, FLOAT) + _field(2, shape)))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    low = bytes([value & 127 | 128 * (value > 127)])
    return low + (_varint(value >> 7) if value > 127 else b"")
