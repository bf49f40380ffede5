"""ONNX files of small networks, written byte by byte: no test needs the package `onnx`."""

from torch import nn

FLOAT = 1  # TensorProto.DataType
IR_VERSION, OPSET = 8, 17


def onnx_of(network: nn.Sequential) -> bytes:
    """A model with the input x (rows, …): the linear layers and ReLUs of a network.

    The numbers are those of the fields of onnx.proto.
    """
    nodes, weights, last = b"", b"", "x"
    for place, layer in enumerate(network):
        if isinstance(layer, nn.Linear):
            weights += _field(5, _tensor(f"w{place}", layer.weight.T))
            weights += _field(5, _tensor(f"b{place}", layer.bias))
            nodes += _field(1, _node("MatMul", [last, f"w{place}"], f"m{place}"))
            nodes += _field(1, _node("Add", [f"m{place}", f"b{place}"], f"y{place}"))
        else:
            assert isinstance(layer, nn.ReLU)
            nodes += _field(1, _node("Relu", [last], f"y{place}"))
        last = f"y{place}"
    width, classes = network[0].in_features, network[-1].out_features
    graph = nodes + _field(2, b"network") + weights
    graph += _field(11, _value("x", width)) + _field(12, _value(last, classes))
    return _number(1, IR_VERSION) + _field(8, _number(2, OPSET)) + _field(7, graph)


def _node(kind: str, inputs: list[str], output: str) -> bytes:
    read = b"".join(_field(1, name.encode()) for name in inputs)
    return read + _field(2, output.encode()) + _field(4, kind.encode())


def _tensor(name: str, values) -> bytes:
    array = values.detach().contiguous().numpy().astype("<f4")
    shape = b"".join(_number(1, size) for size in array.shape)
    return shape + _number(2, FLOAT) + _field(8, name.encode()) + _field(9, array.tobytes())


def _value(name: str, width: int) -> bytes:
    """A tensor (rows, width), of any number of rows."""
    shape = _field(1, _field(2, b"rows")) + _field(1, _number(1, width))
    return _field(1, name.encode()) + _field(2, _field(1, _number(1, FLOAT) + _field(2, shape)))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    low = bytes([value & 127 | 128 * (value > 127)])
    return low + (_varint(value >> 7) if value > 127 else b"")
