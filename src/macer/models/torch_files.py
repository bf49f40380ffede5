"""Read files of torch.save in both of its forms, without torch's reader, which trusts its files.

since torch 1.6   a zip archive of stored members: NAME/data.pkl, and NAME/data/KEY for each storage
before            several pickles, then the storages, each after its number of elements

A tensor is a call in the pickle, with a storage, an offset, sizes and strides. Here it must lie
within its storage and have no more elements, so that a small file cannot make a large tensor.
"""

import io
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from re import fullmatch
from typing import Any, NamedTuple

import torch
from torch import Tensor

from macer.system.pickles import Call, Name, read_pickle

_LARGEST_PICKLE = 1 << 26  # bytes
_MAX_DIMENSIONS = 64  # of a torch tensor
_MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of the old form

_DTYPES = {
    "Double": torch.float64, "Float": torch.float32, "Half": torch.float16,
    "BFloat16": torch.bfloat16, "Long": torch.int64, "Int": torch.int32, "Short": torch.int16,
    "Char": torch.int8, "Byte": torch.uint8, "Bool": torch.bool,
    "ComplexFloat": torch.complex64, "ComplexDouble": torch.complex128,
}  # fmt: skip
_STORAGES = {
    f"{module}.{kind}Storage": dtype
    for module in ("torch", "torch.cuda")
    for kind, dtype in _DTYPES.items()
}
_TENSORS = ("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2")
_PARAMETERS = ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")
_WITH_ATTRIBUTES = "torch._tensor._rebuild_from_type_v2"
ADMITTED = {
    *_STORAGES,
    *_TENSORS,
    *_PARAMETERS,
    _WITH_ATTRIBUTES,
    *map(str, _DTYPES.values()),
    *("torch.Size", "torch.device", "torch.Tensor", "torch.nn.parameter.Parameter"),
    *("collections.OrderedDict", "collections.Counter", "_codecs.encode"),
    *(f"{of}.{kind}" for of in ("builtins", "__builtin__") for kind in ("set", "complex")),
    *("builtins.bytearray", "__builtin__.bytearray"),
}


def _are_counts(*values: object) -> bool:
    return all(type(value) is int and 0 <= value < 1 << 63 for value in values)


class Storage(NamedTuple):
    """A storage that a pickle names: the elements of one or more tensors."""

    key: str
    dtype: torch.dtype
    elements: int


@dataclass
class _Storages:
    """The storages of a file."""

    content: bytes
    named: dict[str, Storage] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)  # byte of each storage's first element
    flat: dict[str, Tensor] = field(default_factory=dict)

    def resolve(self, reference: tuple[Any, ...]) -> Storage:
        """The storage of a reference ("storage", type, key, device, elements[, view])."""
        kind, dtype, key, _, elements, *view = reference
        if kind != "storage" or type(key) is not str or not _are_counts(elements) or any(view):
            raise ValueError("no storage")
        storage = Storage(key, _STORAGES[dtype.name], elements)
        if self.named.setdefault(storage.key, storage) != storage:
            raise ValueError("a storage of two types")
        return storage

    def place(self, storage: Storage, begin: int, size: int) -> None:
        """Record the first byte of a storage, whose size in bytes must fit its elements."""
        if size != storage.elements * storage.dtype.itemsize or begin + size > len(self.content):
            raise ValueError("a storage of another size")
        self.offsets[storage.key] = begin

    def tensor(self, storage: Storage, offset: int, sizes: Any, strides: Any) -> Tensor:
        """A tensor from a part of a storage."""
        if not _are_counts(offset, *sizes, *strides) or len(sizes) > _MAX_DIMENSIONS:
            raise ValueError("a tensor whose sizes are not numbers")
        elements = math.prod(sizes)
        last = offset + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
        if elements > storage.elements:
            raise ValueError("a tensor of more elements than its storage")
        if elements and last >= storage.elements:
            raise ValueError("a tensor that ends after its storage")
        flat = self._flat(storage)
        return flat.as_strided(sizes, strides, offset) if elements else flat.new_empty(sizes)

    def _flat(self, storage: Storage) -> Tensor:
        if storage.key not in self.flat:
            self.flat[storage.key] = _elements(self.content, self.offsets[storage.key], storage)
        return self.flat[storage.key]


def _elements(content: bytes, begin: int, storage: Storage) -> Tensor:
    """A storage's elements in the file's content, or a copy if they are not aligned."""
    size = storage.elements * storage.dtype.itemsize
    if not size:
        return torch.empty(0, dtype=storage.dtype)
    if begin % storage.dtype.itemsize:
        content, begin = content[begin : begin + size], 0
    return torch.frombuffer(content, dtype=storage.dtype, count=storage.elements, offset=begin)


def read_torch_file(content: bytes) -> object:
    """The saved object: plain values, and tensors in the outer two levels of mappings.

    The tensors are parts of the content and must not be written to. A damaged file may raise almost
    any exception.
    """
    saved, storages = (_read_zip if content[:2] == b"PK" else _read_old)(content)
    return _with_tensors(saved, storages, {})


def _read_zip(content: bytes) -> tuple[object, _Storages]:
    members, storages = _members(content), _Storages(content)
    [folder] = [name[:-8] for name in members if fullmatch(r"[^/]+/data\.pkl", name)]
    if _member(content, members.get(f"{folder}byteorder", (0, 0))) not in (b"", b"little"):
        raise ValueError("numbers in another order of bytes")
    pickled = _member(content, members[f"{folder}data.pkl"])
    saved = read_pickle(io.BytesIO(pickled), admitted=ADMITTED, resolve=storages.resolve)
    for key, storage in storages.named.items():
        storages.place(storage, *members[f"{folder}data/{key}"])
    return saved, storages


def _member(content: bytes, place: tuple[int, int]) -> bytes:
    begin, size = place
    if size > _LARGEST_PICKLE:
        raise ValueError("a pickle that is too large")
    return content[begin : begin + size]


def _members(content: bytes) -> dict[str, tuple[int, int]]:
    """First byte and size of each member of a zip archive without comment or compression."""
    signature, _, _, _, count, _, begin, _ = struct.unpack("<4s4H2LH", content[-22:])
    if signature != b"PK\5\6":
        raise ValueError("no directory")
    members: dict[str, tuple[int, int]] = {}
    for _ in range(count):
        entry = struct.unpack_from("<4s6H3L5H2L", content, begin)
        method, packed, size, name_size, extra, remark = *entry[4:5], *entry[8:13]
        local = entry[-1]
        name = content[begin + 46 : begin + 46 + name_size].decode()
        if entry[0] != b"PK\1\2" or method or packed != size or name in members:
            raise ValueError("a member that is compressed or occurs twice")
        begin += 46 + name_size + extra + remark
        lengths = struct.unpack_from("<2H", content, local + 26)
        members[name] = local + 30 + sum(lengths), size
    return members


def _read_old(content: bytes) -> tuple[object, _Storages]:
    file, storages = io.BytesIO(content[:_LARGEST_PICKLE]), _Storages(content)
    magic, _, system = (read_pickle(file, admitted=()) for _ in range(3))
    if magic != _MAGIC or not system["little_endian"]:
        raise ValueError("no file of torch.save")
    saved = read_pickle(file, admitted=ADMITTED, resolve=storages.resolve)
    keys = read_pickle(file, admitted=())
    begin = file.tell()
    for key in keys:
        storage = storages.named[key]
        (elements,) = struct.unpack_from("<q", content, begin)
        storages.place(storage, begin + 8, elements * storage.dtype.itemsize)
        begin += 8 + elements * storage.dtype.itemsize
    return saved, storages


def _with_tensors(
    value: object, storages: _Storages, done: dict[int, dict[object, object]], depth: int = 2
) -> object:
    """The value with tensors in place of the calls that make them.

    Args:
        done: results by the id of their mapping, so that a mapping that occurs often is read once.
        depth: levels of mappings to go into.
    """
    if isinstance(value, Call):
        return _tensor(value, storages)
    if not isinstance(value, Mapping) or not depth:
        return value
    if id(value) not in done:
        done[id(value)] = {
            key: _with_tensors(part, storages, done, depth - 1) for key, part in value.items()
        }
    return done[id(value)]


def _tensor(call: Call, storages: _Storages) -> object:
    """The tensor that a call makes; any other call stays as it is."""
    if call.name in _PARAMETERS and isinstance(call.arguments[0], Call):
        call = call.arguments[0]
    if call.name == _WITH_ATTRIBUTES and isinstance(call.arguments[0], Name):
        call = Call(call.arguments[0].name, call.arguments[2])
    return storages.tensor(*call.arguments[:4]) if call.name in _TENSORS else call
