"""Files of weights and models that claim what they do not hold, or would run code."""

import io
import json
import os
import pickle
import struct
import tarfile
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hostile_case import Case, link_to_zeros, loop, pipe, sparse
from safetensors.torch import save, save_file

from macer.models.networks import resnet20
from macer.models.weights import read_weights
from macer.runs.trained_model import load_model

FILE = Path("w.pth")
DAMAGED = "w.pth must be a file of torch.save or of safetensors; it is damaged or something else"
BESIDES = "must hold only tensors and plain values, got "
MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2)


class Stored(NamedTuple):
    """A storage of numbers as a file may claim it."""

    elements: Any
    key: Any = "0"
    kind: Any = torch.FloatStorage
    more: tuple[Any, ...] = ()


class Made:
    """A tensor as a file may claim it."""

    def __init__(self, storage: Any, offset: Any, sizes: Any, strides: Any) -> None:
        self.arguments = (storage, offset, sizes, strides, False, OrderedDict())

    def __reduce__(self) -> Any:
        return torch._utils._rebuild_tensor_v2, self.arguments


class Called:
    """Whatever a file may ask for."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.called = function, arguments

    def __reduce__(self) -> Any:
        return self.called


class Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, Stored):
            return ("storage", value.kind, value.key, "cpu", value.elements, *value.more)
        return None


def pickled(value: Any, protocol: int = 2) -> bytes:
    out = io.BytesIO()
    Pickler(out, protocol).dump(value)
    return out.getvalue()


def zipped(content: bytes, *, compressed: bool = False, **members: bytes) -> None:
    """A file of torch.save around a pickle; a member "data/0" is written data__0."""
    how = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(FILE, "w", how) as archive:
        archive.writestr("w/data.pkl", content)
        for name, data in ({"data__0": bytes(16)} | members).items():
            archive.writestr(f"w/{name.replace('__', '/')}", data)


def net(*tensor: Any) -> dict[str, Any]:
    return {"net": {"a": Made(*tensor)}}


def weights(content: bytes, words: str = DAMAGED) -> Case:
    return Case(lambda: FILE.write_bytes(content), lambda: read_weights(FILE), words)


def in_zip(value: Any, words: str = DAMAGED, **how: Any) -> Case:
    def make() -> None:
        zipped(value if isinstance(value, bytes) else pickled(value), **how)

    return Case(make, lambda: read_weights(FILE), words)


def old(value: Any, keys: Any, rest: bytes, *, little: bool = True) -> Case:
    system = pickle.dumps({"little_endian": little}, 2)
    return weights(MAGIC + system + pickled(value) + pickle.dumps(keys, 2) + rest)


def saved(value: Any, words: str) -> Case:
    return Case(lambda: torch.save(value(), FILE), lambda: read_weights(FILE), words)


def doubled(times: int) -> bytes:
    """A tuple of two tuples of two …: each twice the same, so that 2^times are in it."""
    return b")" + b"q\0h\0\x86" * times


def tensors_header(header: Any, data: bytes = b"", *, size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def entry(shape: Any = (1,), offsets: Any = (0, 4), dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def tar_of_old() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("sys_info", "pickle", "tensors", "storages"):
            archive.addfile(tarfile.TarInfo(name))
    return out.getvalue()


def directory_of_many() -> bytes:
    return b"PK\3\4" + bytes(100) + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 65535, 0, 0, 0)


def thousands_in_thousands() -> bytes:
    """A mapping of 100,000 names to one mapping of 100,000 tensors, which is there once."""
    made = b"}(" + b"".join(b"X\6\0\0\0%06dK\1" % i for i in range(100_000)) + b"uq\1"
    many = b"".join(b"X\6\0\0\0%06dh\1" % i for i in range(100_000))
    return b"\x80\2" + made + b"0}(" + many + b"u."


def pairs_for_many() -> bytes:
    """A list of 50,000 pairs, of which 50,000 mappings are made."""
    pairs = b"](" + b"K\1K\2\x86" * 50_000 + b"eq\1\x85q\2" + b"ccollections\nOrderedDict\nq\3"
    return b"\x80\2" + pairs + b"h\3h\2R0" * 50_000 + b"."


def same_hash() -> bytes:
    keys = (i * ((1 << 61) - 1) for i in range(1, 60_000))
    return (
        b"\x80\2}(" + b"".join(b"\x8a\x0b" + k.to_bytes(11, "little") + b"N" for k in keys) + b"u."
    )


def normalised_by_a_million() -> None:
    network = resnet20(num_classes=10, channels=1)
    tensors = {f"1.{name}": tensor for name, tensor in network.state_dict().items()}
    save_file(tensors | {"0.mean": torch.zeros(1 << 22)}, FILE)


def with_metadata(text: str) -> Any:
    return lambda: Path("m.safetensors").write_bytes(save({"a": torch.ones(1)}, {"macer": text}))


def model(
    make: Any, words: str = "m.safetensors must be a model file written by macer train"
) -> Case:
    return Case(make, lambda: load_model(Path("m.safetensors")), words)


def bytes_of_model(content: bytes) -> Case:
    return model(lambda: Path("m.safetensors").write_bytes(content))


STORED = Stored(4)
TRAP = Called(os.mkdir, "trapped")

PICKLES = {
    "a memo of four gigabytes": weights(b"\x80\2Nr\xff\xff\xff\x0f."),
    "a memo of four gigabytes by text": weights(b"Np268435455\n."),
    "a text of exabytes": weights(b"\x80\4\x8d" + struct.pack("<Q", 1 << 62) + b"a."),
    "bytes of exabytes": weights(b"\x80\4\x8e" + struct.pack("<Q", 1 << 62) + b"a."),
    "an array of exabytes": weights(b"\x80\5\x96" + struct.pack("<Q", 1 << 62) + b"a."),
    "a number of gigabytes": weights(b"\x80\2\x8b\xff\xff\xff\x7fa."),
    "a number of negative length": weights(b"\x80\2\x8b\xff\xff\xff\xffa."),
    "a frame of exabytes": weights(b"\x80\4\x95" + struct.pack("<Q", 1 << 60) + b"N."),
    "a number of a million digits": weights(b"L" + b"9" * 1_000_000 + b"L\n."),
    "three million mappings": weights(b"\x80\2" + b"}" * 3_000_000 + b"."),
    "a line without end": weights(b"V" + b"a" * 5_000_000),
    "tuples within tuples": weights(b"\x80\2)" + b"\x85" * 300_000 + b"."),
    "lists within lists": weights(b"\x80\2" + b"]" * 100_000 + b"a" * 99_999 + b"."),
    "a key of doubled tuples": weights(b"\x80\2" + doubled(60) + b"0}h\0K\1s."),
    "a name of doubled tuples": weights(b"\x80\4" + doubled(60) + b"0h\0h\0\x93."),
    "a reference of doubled tuples": weights(b"\x80\2" + doubled(60) + b"Q."),
    "keys of one hash": weights(same_hash()),
    "a call by INST": weights(b"(S'trapped'\nios\nmkdir\n."),
    "a call by OBJ": weights(b"(cos\nmkdir\nS'trapped'\no.", BESIDES),
    "an extension": weights(b"\x80\2\x82\1."),
    "a set": weights(b"\x80\4\x8f(K\1\x90."),
    "a buffer elsewhere": weights(b"\x80\5\x97."),
    "a reference by text": weights(b"P0\n."),
    "a stack without values": weights(b"\x80\2R."),
    "no end": weights(b"\x80\2N"),
}

ZIPS = {
    "a stride of 0": in_zip(net(STORED, 0, (1_000_000, 1_000_000), (0, 0))),
    "strides that overlap": in_zip(net(STORED, 0, (3, 2), (1, 1))),
    "a tensor behind its storage": in_zip(net(STORED, 3, (2,), (1,))),
    "a tensor that strides out": in_zip(net(STORED, 0, (2,), (1 << 60,))),
    "a negative offset": in_zip(net(STORED, -1, (2,), (1,))),
    "negative sizes": in_zip(net(STORED, 0, (-1, -4), (1, 1))),
    "a negative stride": in_zip(net(STORED, 3, (2,), (-1,))),
    "sizes beyond 64 bits": in_zip(net(STORED, 0, (1 << 70,), (1,))),
    "sizes of a million digits": in_zip(net(STORED, 0, (1 << 4_000_000,) * 9, (1,) * 9)),
    "sizes that are floats": in_zip(net(STORED, 0, (2.0,), (1,))),
    "sizes that are text": in_zip(net(STORED, 0, "ab", "ab")),
    "a hundred thousand dimensions": in_zip(net(STORED, 0, (1,) * 100_000, (1,) * 100_000)),
    "fewer strides than sizes": in_zip(net(STORED, 0, (2, 2), (1,))),
    "no storage": in_zip(net(None, 0, (2,), (1,))),
    "a storage of a trillion": in_zip(net(Stored(10**12), 0, (2,), (1,))),
    "a storage of too few": in_zip(net(Stored(3), 0, (2,), (1,))),
    "a storage of a negative size": in_zip(net(Stored(-4), 0, (2,), (1,))),
    "a storage of no size": in_zip(net(Stored("4"), 0, (2,), (1,))),
    "a storage that is not there": in_zip(net(Stored(4, "7"), 0, (2,), (1,))),
    "a storage outside": in_zip(net(Stored(4, "../../w/data.pkl"), 0, (2,), (1,))),
    "a storage of another kind": in_zip(net(Stored(4, kind=OrderedDict), 0, (2,), (1,))),
    "a storage of two types": in_zip([STORED, Stored(4, kind=torch.IntStorage)]),
    "a storage named by a tuple": in_zip(net(Stored(4, (0,)), 0, (2,), (1,))),
    "a view of a storage": in_zip(net(Stored(4, more=(("1", 0, 4),)), 0, (2,), (1,))),
    "compressed storages": in_zip(
        net(Stored(1 << 24), 0, (2,), (1,)), compressed=True, data__0=bytes(1 << 26)
    ),
    "another order of bytes": in_zip(net(STORED, 0, (2,), (1,)), byteorder=b"big"),
    "two pickles": Case(
        lambda: [zipped(pickled({})), _add("v/data.pkl", b"N.")],
        lambda: read_weights(FILE),
        DAMAGED,
    ),
    "a pickle outside": Case(
        lambda: _add("../../data.pkl", pickled({})), lambda: read_weights(FILE), DAMAGED
    ),
    "no pickle": Case(lambda: _add("w/data/0", b""), lambda: read_weights(FILE), DAMAGED),
    "a directory of many": weights(directory_of_many()),
    "sixty thousand members": Case(
        lambda: _add(*(f"w/{i}" for i in range(60_000))), lambda: read_weights(FILE), DAMAGED
    ),
    "a call of the system": in_zip({"net": TRAP}, f"{BESIDES}posix.mkdir, which could run code"),
    "a call of the builtins": in_zip({"net": Called(eval, "1")}, f"{BESIDES}__builtin__.eval"),
    "a storage by a call": in_zip({"net": Called(torch.UntypedStorage, 10**12)}, BESIDES),
    "an array by a call": in_zip(
        {"net": Called(bytearray, 10**12)}, "must hold the weights of a network, got 'net'"
    ),
    "a sparse tensor": saved(
        lambda: {"a": torch.ones(4).to_sparse()}, f"{BESIDES}torch._utils._rebuild_sparse_tensor"
    ),
    "a quantised tensor": in_zip(
        {"a": Called(torch._utils._rebuild_qtensor, STORED, 0, (4,), (1,), (), False, {})},
        f"{BESIDES}torch._utils._rebuild_qtensor, which is no plain tensor",
    ),
    "a tensor without memory": saved(
        lambda: {"a": torch.ones(10**6, 10**6, device="meta")},
        f"{BESIDES}torch._utils._rebuild_meta",
    ),
    "a parameter of nothing": in_zip({"net": Called(torch._utils._rebuild_parameter)}, DAMAGED),
    "mappings in mappings": in_zip(
        thousands_in_thousands(), "must hold the weights of a network, got '000000', "
    ),
    "pairs for fifty thousand": in_zip(pairs_for_many()),
    "a mapping within itself": in_zip(
        b"\x80\2}q\1X\1\0\0\0ah\1s.", "must hold the weights of a network, got 'a'"
    ),
    "a key of megabytes": in_zip({"a" * 5_000_000: 1}),
    "a name of many parts": saved(
        lambda: {"a." * 500: torch.ones(1)}, "must name its tensors in at most 255 characters"
    ),
    "a name in another alphabet": in_zip({"net": {"a": 1}, "\u202e": 2}, "got 'net', '\\u202e'"),
}


def _add(*names: Any) -> None:
    content = names[-1] if isinstance(names[-1], bytes) else b""
    with zipfile.ZipFile(FILE, "a") as archive:
        for name in names if not content else names[:-1]:
            if isinstance(name, str):
                archive.writestr(name, content)


OLD = {
    "an old storage of exabytes": old(
        net(Stored(10**12, more=(None,)), 0, (2,), (1,)), ["0"], struct.pack("<q", 10**12)
    ),
    "an old storage of a negative size": old(
        net(Stored(4, more=(None,)), 0, (2,), (1,)), ["0"], struct.pack("<q", -4) + bytes(16)
    ),
    "an old storage cut short": old(
        net(Stored(4, more=(None,)), 0, (2,), (1,)), ["0"], struct.pack("<q", 4) + bytes(15)
    ),
    "an old storage without bytes": old(net(Stored(4, more=(None,)), 0, (2,), (1,)), [], b""),
    "old storages that nobody named": old(
        net(Stored(4, more=(None,)), 0, (2,), (1,)), ["1"] * 1000, bytes(100)
    ),
    "an old file of big ends": old({}, [], b"", little=False),
    "an old trap": weights(MAGIC + pickle.dumps({"little_endian": True}) + pickled(TRAP), BESIDES),
    "a trap before an old file": weights(pickled(TRAP) + MAGIC, BESIDES),
    "the oldest form": weights(tar_of_old()),
}

SAFETENSORS = {
    "a header of exabytes": weights(tensors_header(b"{}", size=1 << 60)),
    "a header of a hundred megabytes": weights(tensors_header(b"{}", size=100_000_000)),
    "a header of five megabytes": weights(tensors_header(b"{" + b" " * 5_000_000 + b"}")),
    "a hundred thousand tensors": weights(
        tensors_header({f"{i:040}": entry((0,), (0, 0)) for i in range(100_000)})
    ),
    "tensors that overlap": weights(tensors_header({"a": entry(), "b": entry()}, bytes(4))),
    "a tensor beyond the file": weights(tensors_header({"a": entry((9,), (0, 36))}, bytes(4))),
    "a tensor of other bytes": weights(tensors_header({"a": entry((2,), (0, 4))}, bytes(4))),
    "a tensor of a negative place": weights(tensors_header({"a": entry((1,), (-4, 0))}, bytes(4))),
    "a shape that overflows": weights(tensors_header({"a": entry((1 << 62, 4), (0, 0))})),
    "a shape that is text": weights(tensors_header({"a": entry("1")}, bytes(4))),
    "an unknown type": weights(tensors_header({"a": entry(dtype="F31")}, bytes(4))),
    "a header within headers": weights(tensors_header(b'{"a":' * 100_000)),
    "a header that is no number": weights(tensors_header(b'{"a":NaN}')),
    "bytes that belong to nothing": weights(tensors_header({"a": entry()}, bytes(4000))),
    "a normalisation of millions": Case(
        normalised_by_a_million,
        "certify resnet20 --weights w.pth --dataset mnist-sample --sigma 0.25 --out new",
        "w.pth must hold a mean of 1 values, one per channel, got 4194304",
    ),
}

FILES = {
    "weights in a pipe": Case(lambda: pipe("w.pth"), lambda: read_weights(FILE), "no weights at"),
    "weights without end": Case(
        lambda: link_to_zeros("w.pth"), lambda: read_weights(FILE), "no weights at w.pth"
    ),
    "weights of a hole": Case(
        lambda: sparse("w.pth", 3 << 30), lambda: read_weights(FILE), "at most 2,147,483,648 bytes"
    ),
    "weights in a circle": Case(lambda: loop("w.pth"), lambda: read_weights(FILE), "no weights at"),
    "weights in a pipe, asked for": Case(
        lambda: pipe("w.pth"),
        "certify lenet --weights w.pth --sigma 0.25 --dataset mnist-sample --out new",
        "no weights at w.pth",
    ),
    "weights of nine bytes, asked for": Case(
        lambda: FILE.write_bytes(b"\x80\2Nr\xff\xff\xff\x0f."),
        "certify lenet --weights w.pth --sigma 0.25 --dataset mnist-sample --out new",
        DAMAGED,
    ),
}

MODELS = {
    "a model without a card": bytes_of_model(save({"a": torch.ones(1)})),
    "a model with another card": model(with_metadata("{}")),
    "a card within cards": model(with_metadata("[" * 100_000)),
    "a card that is a list": model(with_metadata("[1]")),
    "a card with a number of digits": model(with_metadata('{"sigma":' + "9" * 10_000 + "}")),
    "a model with a header of gigabytes": bytes_of_model(tensors_header(b"{}", size=1 << 31)),
    "a model cut short": bytes_of_model(save({"a": torch.ones(100)})[:-8]),
    "a model that is empty": bytes_of_model(b""),
    "a model that is a pickle": bytes_of_model(pickle.dumps(TRAP)),
    "a model of a hole": model(
        lambda: sparse("m.safetensors", 3 << 30), "must be at most 2,147,483"
    ),
    "a model in a pipe": model(lambda: pipe("m.safetensors"), "no model in m.safetensors"),
    "a model in a pipe, asked for": Case(
        lambda: pipe("m.safetensors"),
        "certify m.safetensors --out new",
        "no model in m.safetensors",
    ),
    "a model without end, asked for": Case(
        lambda: link_to_zeros("m.safetensors"), "export m.safetensors --out new", "no model in"
    ),
}

CASES = PICKLES | ZIPS | OLD | SAFETENSORS | FILES | MODELS
