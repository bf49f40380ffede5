"""What torch.save writes, read as torch.load reads it."""

import io
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hostile_weights import FILE, Stored, net, pickled, zipped
from torch import Tensor, nn

from macer.models.torch_files import read_torch_file
from macer.models.weights import read_weights
from macer.system.errors import Mistake
from macer.system.pickles import read_pickle

LEGACY = {"_use_new_zipfile_serialization": False}
DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "complex64", "complex128"),
    *("int64", "int32", "int16", "int8", "uint8", "bool"),
)


def of_all_types() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {name: (9 * torch.rand(3, 5)).to(getattr(torch, name)) for name in DTYPES}


def views() -> dict[str, Tensor]:
    torch.manual_seed(0)
    whole = torch.rand(6, 7)
    return {
        "whole": whole, "turned": whole.t(), "part": whole[2:5, 1::3], "row": whole[3],
        "one": whole[5, 6], "empty": whole[:0], "nothing": torch.empty(0), "last": whole[5:, 6:],
        "channels last": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
    }  # fmt: skip


def with_attributes() -> dict[str, Tensor]:
    parameter, tensor = nn.Parameter(torch.rand(2, 3)), torch.rand(4)
    tensor.note = "mine"
    return {"parameter": parameter, "tensor": tensor}


# reference


@pytest.mark.parametrize("how", [{}, LEGACY, {"pickle_protocol": 3}])
@pytest.mark.parametrize("made", [of_all_types, views, with_attributes])
@pytest.mark.filterwarnings("ignore")  # torch's, of a protocol and of memory not to be written
def test_tensors_are_those_of_torch_load(how, made, tmp_path: Path):
    path = tmp_path / "w.pth"
    torch.save(made(), path, **how)
    expected = torch.load(path, weights_only=True)
    ours = read_weights(path).tensors
    assert list(ours) == list(expected)
    for name, tensor in expected.items():
        assert (ours[name].dtype, ours[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(ours[name], tensor)


@pytest.mark.parametrize("how", [{}, LEGACY])
@pytest.mark.filterwarnings("ignore")
def test_plain_values_are_those_of_torch_load(how, tmp_path: Path):
    path = tmp_path / "w.pth"
    values = {
        "epoch": 3, "best": 0.5, "name": "Zürich", "none": None, "flags": [True, False],
        "sizes": (1, -2, 1 << 40), "deep": {"a": {"b": {0: [{}]}}}, "many": list(range(3000)),
    }  # fmt: skip
    torch.save(values, path, **how)
    assert read_torch_file(path.read_bytes()) == values == torch.load(path, weights_only=True)


@pytest.mark.parametrize("how", [{}, LEGACY])
@pytest.mark.filterwarnings("ignore")
def test_values_beside_the_weights_do_no_harm(how, tmp_path: Path):
    path = tmp_path / "w.pth"
    others = {
        "size": torch.Size([2]), "device": torch.device("cpu"), "dtype": torch.float32,
        "bytes": b"\xff", "set": {1, 2}, "complex": 1j, "array": bytearray(b"ab"),
    }  # fmt: skip
    torch.save({"net": {"a": torch.ones(2)}, **others}, path, **how)
    assert torch.equal(read_weights(path).tensors["a"], torch.ones(2))


# law


@pytest.mark.filterwarnings("ignore")
def test_a_tensor_lies_in_the_memory_of_its_file():
    """So that a large file is in memory once, not twice."""
    out = io.BytesIO()
    torch.save({"a": torch.full((1000,), 7.0)}, out)
    content = np.frombuffer(out.getvalue(), np.uint8)
    saved = read_torch_file(content.base)
    place = saved["a"].data_ptr() - content.ctypes.data
    assert content[place : place + 4000].tobytes() == saved["a"].numpy().tobytes()


def test_the_pairs_of_an_ordered_dict_of_python_2_are_read():
    pairs = b"ccollections\nOrderedDict\n((lp0\n(lp1\nS'a'\naI1\naa(lp2\nS'b'\naI2\naatR."
    made = read_pickle(io.BytesIO(pairs), admitted=("collections.OrderedDict",))
    assert made == {"a": 1, "b": 2} == pickle.loads(pairs)


# refusal; test_hostile.py has many more


@pytest.mark.parametrize(
    "tensor",
    [(Stored(4), 0, (10**6,), (0,)), (Stored(4), 0, (5,), (1,)), (Stored(4), 1, (4,), (1,))],
)
def test_a_tensor_larger_than_its_storage_is_refused(tensor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    zipped(pickled(net(*tensor)))
    with pytest.raises(Mistake, match="it is damaged or something else"):
        read_weights(FILE)


@pytest.mark.parametrize("elements", [3, 5])
def test_a_storage_of_another_size_than_its_bytes_is_refused(elements, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    zipped(pickled(net(Stored(elements), 0, (1,), (1,))))
    with pytest.raises(Mistake, match="it is damaged or something else"):
        read_weights(FILE)


@pytest.mark.medium
def test_a_pickle_of_too_many_instructions_is_refused():
    with pytest.raises(ValueError, match="instructions"):
        read_pickle(io.BytesIO(b"\x80\x02" + b"N0" * 2**20 + b"N."), admitted=())
