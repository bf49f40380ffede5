"""Data sets, images and archives that claim what they do not hold."""

import gzip
import hashlib
import io
import pickle
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import scipy.io
from hostile_case import Case, link_to_zeros, loop, pipe, sparse, write
from PIL import Image

from macer.data import downloads, image_folder
from macer.data.downloads import Download, File
from macer.data.image_files import read_middle
from macer.data.photograph import read_photograph
from macer.data.sets import load

HERE = Path()
ZEROS = gzip.compress(bytes(1 << 26))


def zeros(megabytes: int) -> bytes:
    """A gzip file of zeros, a thousandth of their size."""
    return ZEROS * (megabytes >> 6)


# idx

IMAGES, LABELS = "MNIST/t10k-images-idx3-ubyte", "MNIST/t10k-labels-idx1-ubyte"


def idx(shape: tuple[int, ...], magic: int = 0x803, rest: bytes = b"") -> bytes:
    return struct.pack(f">{1 + len(shape)}I", magic, *shape) + rest


def mnist(make: Callable[[], object], words: str) -> Case:
    def both() -> None:
        write(LABELS, idx((1,), 0x801, b"\1"))
        make()

    return Case(both, lambda: load("mnist", "test", HERE), words)


def mnist_file(content: bytes, words: str, name: str = IMAGES) -> Case:
    return mnist(lambda: write(name, content), words)


IDX = {
    "an idx file in a pipe": mnist(lambda: pipe(IMAGES), "must be a regular file, got a pipe"),
    "an idx file without end": mnist(
        lambda: link_to_zeros(IMAGES), "must be a regular file, got a"
    ),
    "an idx file in a circle": mnist(lambda: loop(IMAGES), "no files of 'mnist' in"),
    "an idx folder": mnist(lambda: Path(IMAGES).mkdir(), "must be a regular file, got a folder"),
    "an idx file of a hole": mnist(lambda: sparse(IMAGES, 3 << 30), "at most 1,073,741,824 bytes"),
    "idx images of exabytes": mnist_file(idx((2**32 - 1,) * 3), "must hold at most 1,073,741,824"),
    "idx images of a gigabyte": mnist_file(
        idx((1 << 20, 28, 28)), "must be 822,083,600 bytes, got 16"
    ),
    "idx images of another kind": mnist_file(idx((1, 28, 28), 0xD03), "must begin with 00000803"),
    "idx images beyond their number": mnist_file(idx((1, 1, 1), rest=bytes(9)), "must be 17 bytes"),
    "an idx file that is zipped zeros": mnist_file(
        zeros(2048), "must begin with 00000803 (idx)", f"{IMAGES}.gz"
    ),
    "a zipped idx file that goes on": mnist_file(
        gzip.compress(idx((1, 28, 28), rest=bytes(784))) + zeros(2048),
        "must be 800 bytes",
        f"{IMAGES}.gz",
    ),
    "a zipped idx file of a gigabyte": mnist_file(
        gzip.compress(idx((1 << 21, 28, 28))) + zeros(2048), "must hold at most", f"{IMAGES}.gz"
    ),
    "an idx file with a bad zip": mnist_file(
        b"\x1f\x8b\x08\0" + bytes(6) + b"\xff" * 99, "must be a gzip file", f"{IMAGES}.gz"
    ),
    "an idx file, asked for": Case(
        lambda: [write(LABELS, b""), link_to_zeros(IMAGES)],
        "certify zoo:mnist-0.50 --dataset mnist --data . --out new",
        "must be a regular file, got a device",
    ),
}

# CIFAR-10

BATCH = "cifar-10-batches-py/test_batch"


def cifar(content: bytes, words: str = "must be a batch of CIFAR-10's Python version") -> Case:
    return Case(lambda: write(BATCH, content), lambda: load("cifar10", "test", HERE), words)


def at_batch(make: Callable[[str], object], words: str) -> Case:
    return Case(lambda: make(BATCH), lambda: load("cifar10", "test", HERE), words)


def array_of(shape: Any, dtype: str = "u1", data: bytes = b"ab") -> bytes:
    """A pickled array that claims a shape and a type."""
    state = pickle.dumps((1, shape, None, False, data), 2)[2:-1].replace(b"N", _dtype(dtype), 1)
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\1b\x87R" + state + b"b"
    return b"\x80\2}(U\4data" + made + b"U\6labels]u."


def _dtype(name: str) -> bytes:
    return b"cnumpy\ndtype\nU" + bytes([len(name)]) + name.encode() + b"K\0K\1\x87R"


CIFAR = {
    "a batch with a memo of gigabytes": cifar(b"\x80\2Nr\xff\xff\xff\x0f."),
    "a batch with a frame of exabytes": cifar(b"\x80\4\x95" + struct.pack("<Q", 1 << 60) + b"N."),
    "a batch with a text of exabytes": cifar(b"\x80\4\x8d" + struct.pack("<Q", 1 << 60) + b"N."),
    "a batch of three million lists": cifar(b"\x80\2" + b"]" * 3_000_000 + b"."),
    "a batch within batches": cifar(b"\x80\2" + b"]" * 100_000 + b"a" * 99_999 + b"."),
    "a batch with a doubled key": cifar(b"\x80\2)" + b"q\0h\0\x86" * 60 + b"0}h\0K\1s."),
    "a batch with a doubled label": cifar(
        b"\x80\2)" + b"q\0h\0\x86" * 60 + b"0}X\4\0\0\0datah\0s."
    ),
    "a batch of a trillion pixels": cifar(array_of((10_000, 10**9))),
    "a batch of objects": cifar(array_of((1,), "O8")),
    "a batch of a negative shape": cifar(array_of((-1, 3072))),
    "a batch of no array": cifar(pickle.dumps({"data": "pixels", "labels": [0]}, 2)),
    "a batch that is a number": cifar(pickle.dumps(7)),
    "a batch that makes a folder": cifar(
        b"cos\nmkdir\n(S'trapped'\ntR.", "a pickle must hold arrays only, got os.mkdir"
    ),
    "a batch in a pipe": at_batch(pipe, "must be a regular file, got a pipe"),
    "a batch without end": at_batch(link_to_zeros, "must be a regular file, got a device"),
    "a batch of a hole": at_batch(lambda name: sparse(name, 1 << 30), "at most 67,108,864 bytes"),
    "a binary batch without end": Case(
        lambda: link_to_zeros("cifar-10-batches-bin/test_batch.bin"),
        lambda: load("cifar10", "test", HERE),
        "must be a regular file, got a device",
    ),
    "a binary batch of a hole": Case(
        lambda: sparse("cifar-10-batches-bin/test_batch.bin", 1 << 30),
        lambda: load("cifar10", "test", HERE),
        "must be 30,730,000 bytes, got 1,073,741,824",
    ),
}

# SVHN

MAT = "test_32x32.mat"
PIXELS, ONES = np.zeros((32, 32, 3, 4), np.uint8), np.ones((4, 1), np.uint8)
MUST = "must be a MATLAB file of 64,275,384 bytes with X (32, 32, 3, images) uint8"


def svhn(make: Callable[[], object], words: str = MUST) -> Case:
    return Case(make, lambda: load("svhn", "test", HERE), words)


def matlab(**variables: Any) -> Case:
    return svhn(lambda: scipy.io.savemat(MAT, {"X": PIXELS, "y": ONES} | variables))


def header(version: bytes = b"\0\1IM") -> bytes:
    return b"MATLAB 5.0 MAT-file".ljust(124) + version


def zipped_variable(megabytes: int) -> bytes:
    packer = zlib.compressobj(1)
    data = b"".join(packer.compress(bytes(1 << 20)) for _ in range(megabytes)) + packer.flush()
    return header() + struct.pack("<2L", 15, len(data)) + data


def claimed_shape(*shape: int) -> bytes:
    """A file that claims pixels of a shape and holds none."""
    dimensions = struct.pack(f"<2L{len(shape)}l", 5, 4 * len(shape), *shape)
    flags = struct.pack("<4L", 6, 8, 9, 0)
    body = flags + dimensions + bytes(-len(dimensions) % 8) + struct.pack("<2H4s", 1, 1, b"X")
    body += struct.pack("<2L", 2, 2**31 - 8)
    return header() + struct.pack("<2L", 14, len(body)) + body


def cells() -> np.ndarray:
    found = np.empty((4, 1), object)
    found[:] = [["one"], ["two"], ["three"], [ONES]]
    return found


SVHN = {
    "labels that are text": matlab(y="abcd"),
    "labels of letters": matlab(y=np.array([["a"], ["b"], ["c"], ["d"]])),
    "labels in cells": matlab(y=cells()),
    "labels in a struct": matlab(y={"a": ONES}),
    "labels that are no numbers": matlab(y=np.full((4, 1), np.nan)),
    "labels without end": matlab(y=np.full((4, 1), np.inf)),
    "labels of a half": matlab(y=np.full((4, 1), 1.5)),
    "labels beyond ten": matlab(y=ONES * np.uint8(11)),
    "complex labels": matlab(y=ONES * (1 + 1j)),
    "pixels in a struct": matlab(X={"a": PIXELS}),
    "pixels in cells": matlab(X=cells()),
    "pixels that are floats": matlab(X=PIXELS * 1.0),
    "twenty variables": matlab(**{f"a{i}": 1 for i in range(20)}),
    "a zipped variable of gigabytes": svhn(lambda: write(MAT, zipped_variable(600))),
    "pixels of a trillion": svhn(lambda: write(MAT, claimed_shape(32, 32, 3, 2**31 - 1))),
    "pixels of a negative number": svhn(lambda: write(MAT, claimed_shape(32, 32, 3, -4))),
    "pixels that are not there": svhn(lambda: write(MAT, claimed_shape(32, 32, 3, 9))),
    "a million empty variables": svhn(lambda: write(MAT, header() + bytes(8_000_000))),
    "MATLAB's file of another version": svhn(lambda: write(MAT, header(b"\0\2IM") + bytes(999))),
    "a file of HDF5": svhn(lambda: write(MAT, b"\x89HDF\r\n\x1a\n" + bytes(4000))),
    "MATLAB's file in a pipe": svhn(lambda: pipe(MAT), "must be a regular file, got a pipe"),
    "MATLAB's file of a hole": svhn(lambda: sparse(MAT, 1 << 30), "at most 536,870,912 bytes"),
}

# images


def png(width: int = 4, height: int = 4, *, mode: str = "L", **how: Any) -> bytes:
    out = io.BytesIO()
    Image.new(mode, (width, height)).save(out, "PNG", **how)
    return out.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">L", len(data)) + kind + data + struct.pack(">L", zlib.crc32(kind + data))


def png_of(*chunks: bytes) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks) + chunk(b"IEND", b"")


def size(width: int, height: int, bits: int = 8) -> bytes:
    return chunk(b"IHDR", struct.pack(">2L5B", width, height, bits, 0, 0, 0, 0))


def jpeg(**how: Any) -> bytes:
    out = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(out, "JPEG", **how)
    return out.getvalue()


def jpeg_of(width: int, height: int) -> bytes:
    content = jpeg()
    place = content.index(b"\xff\xc0") + 5
    return content[:place] + struct.pack(">2H", height, width) + content[place + 4 :]


def jpeg_of_scans(count: int) -> bytes:
    """A large progressive image whose last scan is there again and again."""
    content = jpeg(progressive=True)
    last = content[content.rindex(b"\xff\xda") : -2]
    return content[:-2] + last * count + b"\xff\xd9"


def in_form(kind: str, *, noisy: bool = False) -> bytes:
    out = io.BytesIO()
    (Image.effect_noise((64, 64), 50) if noisy else Image.new("L", (4, 4))).save(out, kind)
    return out.getvalue()


def animated() -> bytes:
    frames = [Image.new("L", (4, 4), level) for level in (0, 100, 200)]
    out = io.BytesIO()
    frames[0].save(out, "PNG", save_all=True, append_images=frames[1:])
    return out.getvalue()


def paged(kind: str) -> bytes:
    out = io.BytesIO()
    pages = [Image.new("L", (4, 4), level) for level in (0, 200)]
    pages[0].save(out, kind, save_all=True, append_images=pages[1:])
    return out.getvalue()


def tiff_of(width: int, height: int) -> bytes:
    content = in_form("TIFF")
    for tag, value in ((256, width), (257, height)):
        place = content.index(struct.pack("<2HL", tag, 4, 1)) + 8
        content = content[:place] + struct.pack("<L", value) + content[place + 4 :]
    return content


def bmp_of(width: int, height: int) -> bytes:
    content = in_form("BMP")
    return content[:18] + struct.pack("<2l", width, height) + content[26:]


BOMB = zlib.compress(bytes(1 << 26))
PICTURE = Path("test/cat/a.png")


def picture(content: bytes, words: str = "test/cat/a.png must be a PNG, JPEG, WebP") -> Case:
    return Case(lambda: write(str(PICTURE), content), lambda: load("folder", "test", HERE), words)


def place(make: Callable[[str], object], words: str) -> Case:
    return Case(lambda: make(str(PICTURE)), lambda: load("folder", "test", HERE), words)


def many_large() -> None:
    write("large", png(8192, 8192))
    for i in range(400):
        write("test/cat/.keep", b"")
        Path(f"test/cat/{i}.png").symlink_to("../../large")


def many_classes() -> None:
    for i in range(300):
        Path(f"test/{i}").mkdir(parents=True)


def in_few(meet: Callable[[], object]) -> Callable[[], object]:
    """With a smaller limit of classes: a million folders take a minute to make."""

    def limited() -> object:
        with mock.patch.object(image_folder, "MAX_CLASSES", 200):
            return meet()

    return limited


PIXELS_LIMIT = "must have at most 67,108,864 pixels"
PICTURES = {
    "a PNG of a billion in a row": picture(png_of(size(10**9, 1)), PIXELS_LIMIT),
    "a PNG of 2^31": picture(png_of(size(2**31 - 1, 2**31 - 1)), PIXELS_LIMIT),
    "a PNG of nothing": picture(png_of(size(0, 0))),
    "a PNG without pixels": picture(png_of(size(4, 4)), "must be a whole PNG, JPEG"),
    "a PNG with too few pixels": picture(
        png_of(size(8000, 8000), chunk(b"IDAT", BOMB[:100])), "must be a whole PNG, JPEG"
    ),
    "a PNG with other pixels": picture(
        png_of(size(4, 4), chunk(b"IDAT", b"pixels")), "must be a whole PNG, JPEG"
    ),
    "a PNG of 16 bits": picture(png_of(size(4, 4, 16)), "must be a whole PNG, JPEG"),
    "a PNG with a text of gigabytes": picture(
        png_of(size(4, 4), chunk(b"zTXt", b"a\0\0" + BOMB)), "a.png must be a "
    ),
    "a PNG with an international text of gigabytes": picture(
        png_of(size(4, 4), chunk(b"iTXt", b"a\0\1\0\0\0" + BOMB)), "a.png must be a "
    ),
    "a PNG with colours of gigabytes": picture(
        png_of(size(4, 4), chunk(b"iCCP", b"a\0\0" + BOMB)), "must be a "
    ),
    "a PNG of a wrong checksum": picture(png()[:20] + b"\1" + png()[21:]),
    "a PNG cut short": picture(in_form("PNG", noisy=True)[:2000], "must be a whole PNG, JPEG"),
    "an animation": picture(animated(), "must be one image, got an animation; save one frame"),
    "a JPEG of 65535": picture(jpeg_of(65535, 65535), PIXELS_LIMIT),
    "a JPEG of nothing": picture(jpeg_of(0, 0)),
    "a JPEG cut short": picture(jpeg()[:700], "must be a whole PNG, JPEG"),
    "a JPEG of many scans": picture(jpeg_of_scans(5000), "must have at most 50 scans, got 5,"),
    "a GIF": picture(in_form("GIF")),
    "a TIFF of nothing": picture(b"II*\0" + bytes(4)),
    "a TIFF cut short": picture(in_form("TIFF", noisy=True)[:2000], "must be a "),
    "a TIFF that leads to itself": picture(b"II*\0\x08\0\0\0\0\0\x08\0\0\0"),
    "a TIFF of a billion in a row": picture(tiff_of(10**9, 1), PIXELS_LIMIT),
    "a TIFF of many pages": picture(paged("TIFF"), "must be one image, got an animation"),
    "a BMP cut short": picture(in_form("BMP", noisy=True)[:2000], "must be a whole PNG, JPEG"),
    "a BMP of 2^31": picture(bmp_of(2**31 - 1, 1), PIXELS_LIMIT),
    "a WebP cut short": picture(in_form("WEBP", noisy=True)[:900], "must be a "),
    "a WebP of many frames": picture(paged("WEBP"), "must be one image, got an animation"),
    "a drawing": picture(b'<svg xmlns="http://www.w3.org/2000/svg"/>'),
    "an empty image": picture(b""),
    "a text": picture(b"cat"),
    "an image in a pipe": place(pipe, "must be a regular file, got a pipe"),
    "an image without end": place(link_to_zeros, "must be a regular file, got a device"),
    "an image that is a folder": place(lambda name: Path(name).mkdir(parents=True), "no images in"),
    "an image of a hole": place(lambda name: sparse(name, 1 << 30), "at most 268,435,456 bytes"),
    "a folder of large images": Case(
        many_large,
        lambda: load("folder", "test", HERE),
        "must take at most 8,589,934,592 bytes of memory, got 400 images of 8192×8192",
    ),
    "a folder of many classes": Case(
        many_classes,
        in_few(lambda: load("folder", "test", HERE)),
        "must have at most 200 folders of classes, got more",
    ),
    "a folder in a circle": Case(
        lambda: [Path("test/cat").mkdir(parents=True), Path("test/cat/cat").symlink_to("..")],
        lambda: load("folder", "test", HERE),
        "no images in",
    ),
    "a class in a circle": Case(
        lambda: loop("test/cat"), lambda: load("folder", "test", HERE), "no images in"
    ),
    "an image in a circle": place(
        lambda name: [write("test/cat/b.png", b""), loop(name)], "must be a file that can be read"
    ),
    "a narrow image": Case(
        lambda: write("a.png", png(60_000, 1)), lambda: read_middle(Path("a.png")), "less narrow"
    ),
    "one image in a pipe": Case(
        lambda: pipe("a.png"), lambda: read_photograph(Path("a.png"), channels=1), "got a pipe"
    ),
    "an image to label, in a pipe": Case(
        lambda: pipe("a.png"), "predict zoo:mnist-0.50 a.png", "no image at a.png"
    ),
    "an image to label, of a billion": Case(
        lambda: write("a.png", png_of(size(10**9, 1))),
        "predict zoo:mnist-0.50 a.png",
        PIXELS_LIMIT,
    ),
}

# archives


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        for member, content in members:
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def raw(name: str, claimed: int, content: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A gzipped archive whose one member claims a size."""
    made = member(name, kind)
    made.size = claimed
    return gzip.compress(made.tobuf(tarfile.GNU_FORMAT) + content)


def offered(content: bytes, unpack: Any = downloads.untar, wanted: str = "a/one") -> Case:
    """A data set whose archive is this one, though its file should be b"1"."""
    address = "file://{}/offer"
    file = File("x/one", 1, hashlib.sha256(b"1").hexdigest())

    def fetch() -> object:
        source = Download(address.format(Path.cwd()), 1 << 28, unpack, {wanted: file})
        with mock.patch.dict(downloads.SOURCES, mnist=(source,)):
            return downloads.download("mnist", Path("data"))

    def make() -> None:
        write("offer", content)
        write("data/mine", b"mine")

    return Case(make, fetch, "")


def told(case: Case, words: str) -> Case:
    return case._replace(words=words)


WITHOUT = "must hold x/one, got an archive without"
ARCHIVES = {
    "an archive that climbs": told(offered(archive((member("../one"), b"1"))), WITHOUT),
    "an archive from the root": told(offered(archive((member("/a/one"), b"1"))), WITHOUT),
    "an archive of a link": told(
        offered(archive((member("a/one", tarfile.SYMTYPE, "/etc/passwd"), b""))), WITHOUT
    ),
    "an archive of a hard link": told(
        offered(archive((member("a/one", tarfile.LNKTYPE, "/etc/passwd"), b""))), WITHOUT
    ),
    "an archive of a device": told(
        offered(archive((member("a/one", tarfile.CHRTYPE), b""))), WITHOUT
    ),
    "an archive of a pipe": told(
        offered(archive((member("a/one", tarfile.FIFOTYPE), b""))), WITHOUT
    ),
    "an archive of more": told(
        offered(archive((member("a/one"), bytes(1 << 24)))), "(1,048,576 bytes); nothing was kept"
    ),
    "an archive that claims more": told(
        offered(raw("a/one", 1 << 33, b"1")), "into data: unexpected end of data"
    ),
    "an archive of zeros": told(
        offered(raw("a/b", 1 << 33, b"") + zeros(512)), "an archive of more than 268,435,456 bytes"
    ),
    "an archive with a header of gigabytes": told(
        offered(raw("a", 1 << 33, b"", tarfile.XHDTYPE) + zeros(512)),
        "an archive of more than 268,435,456 bytes",
    ),
    "an archive with a name of gigabytes": told(
        offered(raw("a", 1 << 33, b"", tarfile.GNUTYPE_LONGNAME) + zeros(512)),
        "an archive of more than 268,435,456 bytes",
    ),
    "a zipped file of zeros": told(
        offered(zeros(2048), downloads.gunzip, ""), "(1,048,576 bytes); nothing was kept"
    ),
    "a pipe where a file should be": told(
        Case(lambda: [offered(b"").make(), pipe("data/x/one")], offered(b"").meet, ""),
        "data/x/one must be a regular file, got a pipe",
    ),
}

CASES = IDX | CIFAR | SVHN | PICTURES | ARCHIVES
