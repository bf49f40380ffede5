"""Download data sets from their official sources; each file's size and SHA-256 are checked."""

import gzip
import hashlib
import http.client
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from macer.system.errors import Mistake
from macer.system.files import sha256_of_file
from macer.system.progress import bar

_BLOCK = 1 << 20
_TIMEOUT = 60  # seconds without a byte
_LARGEST_TAR = 1 << 28  # bytes; CIFAR-10's takes 184,000,000


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; none at the end."""


class File(NamedTuple):
    """A file in the data folder."""

    path: str
    size: int
    sha256: str


class Download(NamedTuple):
    """One address and the files that its content holds."""

    address: str
    limit: int  # bytes of the transfer
    unpack: Callable[[Path], Iterator[tuple[str, Readable]]]  # yields (member, its contents)
    files: dict[str, File]  # from member to file


def plain(path: Path) -> Iterator[tuple[str, Readable]]:
    """Yield the file itself, as the member ''."""
    with path.open("rb") as stream:
        yield "", stream


def gunzip(path: Path) -> Iterator[tuple[str, Readable]]:
    """Yield the contents of a gzip file, as the member ''."""
    with path.open("rb") as packed, gzip.GzipFile(fileobj=packed) as stream:
        yield "", stream


class _LimitedGzip(gzip.GzipFile):
    """A gzip stream of at most _LARGEST_TAR bytes; an archive's headers may claim any size."""

    given = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes."""
        block = super().read(size)
        self.given += len(block)
        if self.given > _LARGEST_TAR:
            raise tarfile.ReadError(f"an archive of more than {_LARGEST_TAR:,} bytes")
        return block


def untar(path: Path) -> Iterator[tuple[str, Readable]]:
    """Yield the regular files of a gzipped tar archive; nothing is extracted."""
    with (
        path.open("rb") as packed,
        _LimitedGzip(fileobj=packed) as unzipped,
        tarfile.open(fileobj=unzipped, mode="r|") as archive,
    ):
        for member in archive:
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is not None:
                yield member.name, stream


_IDX_SIZES = {
    "train-images-idx3-ubyte": 47_040_016,
    "train-labels-idx1-ubyte": 60_008,
    "t10k-images-idx3-ubyte": 7_840_016,
    "t10k-labels-idx1-ubyte": 10_008,
}


def _idx(site: str, folder: str, *sha256s: str) -> tuple[Download, ...]:
    return tuple(
        Download(
            f"{site}{name}.gz", 32_000_000, gunzip, {"": File(f"{folder}/{name}", size, sha256)}
        )
        for (name, size), sha256 in zip(_IDX_SIZES.items(), sha256s, strict=True)
    )


def _cifar10(*sha256s: str) -> dict[str, File]:
    batches = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
    paths = [f"cifar-10-batches-bin/{batch}.bin" for batch in batches]
    return {p: File(p, 30_730_000, sha256) for p, sha256 in zip(paths, sha256s, strict=True)}


def _svhn(name: str, size: int, sha256: str) -> Download:
    address = f"http://ufldl.stanford.edu/housenumbers/{name}"
    return Download(address, size, plain, {"": File(f"svhn/{name}", size, sha256)})


# By the data set's name in DATASETS in sets.py.
SOURCES: dict[str, tuple[Download, ...]] = {
    "mnist": _idx(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "MNIST/raw",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    "fashion-mnist": _idx(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "FashionMNIST/raw",
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    "cifar10": (
        Download(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            180_000_000,
            untar,
            _cifar10(
                "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            ),
        ),
    ),
    "svhn": (
        _svhn(
            "train_32x32.mat",
            182_040_794,
            "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        ),
        _svhn(
            "test_32x32.mat",
            64_275_384,
            "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        ),
    ),
}


def download(name: str, folder: Path) -> list[Path]:
    """Download the missing files of a data set into the folder; return the paths of all its files.

    A file appears under its name only after its size and SHA-256 were checked. An existing file is
    never overwritten. A progress bar is shown for each address.
    """
    if name not in SOURCES:
        raise Mistake(
            f"no download for data set {name!r}; choose from {', '.join(sorted(SOURCES))}"
        )
    paths = []
    for source in SOURCES[name]:
        paths += [folder / file.path for file in source.files.values()]
        missing = {m: file for m, file in source.files.items() if not _exists(folder, file)}
        if missing:
            _fetch(source, missing, folder)
    return paths


def _exists(folder: Path, file: File) -> bool:
    """Whether the folder has the file; a file with other contents is refused."""
    path = folder / file.path
    if not path.exists():
        return False
    sha256 = sha256_of_file(path)
    if sha256 != file.sha256:
        raise Mistake(
            f"{path} must have SHA-256 {file.sha256} ({file.size:,} bytes), "
            f"got {sha256} ({path.stat().st_size:,} bytes); move it away and download again"
        )
    return True


def _fetch(source: Download, files: dict[str, File], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Inside the folder, so that the last step is a rename and not a copy.
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as scratch:
            packed = Path(scratch, "transfer")
            _transfer(source, packed)
            _unpack(source, files, packed, folder)
    except (OSError, EOFError, http.client.HTTPException, tarfile.TarError, zlib.error) as error:
        raise Mistake(
            f"cannot download {source.address} into {folder}: {error}; "
            "try again later, or put the files there by hand"
        ) from error


def _transfer(source: Download, packed: Path) -> None:
    with urllib.request.urlopen(source.address, timeout=_TIMEOUT) as response:
        length = response.headers.get("Content-Length")
        expected = int(length) if length and length.isdecimal() else None
        # Without a length, the limit makes the time left an upper bound.
        total = source.limit if expected is None else expected
        received = 0
        with packed.open("wb") as out, bar(_task(source), total, "bytes") as advance:
            while block := response.read(_BLOCK):
                received += len(block)
                if received > source.limit:
                    raise Mistake(
                        f"{source.address} must be at most {source.limit:,} bytes, got more; "
                        "nothing was kept"
                    )
                out.write(block)
                advance(len(block))
    # A connection that is closed too early reads like the end of the file.
    if expected is not None and received != expected:
        raise Mistake(
            f"{source.address} must be {expected:,} bytes, got {received:,}; download again"
        )


def _task(source: Download) -> str:
    return f"downloading {source.address.rpartition('/')[2]}"


def _unpack(source: Download, files: dict[str, File], packed: Path, folder: Path) -> None:
    checked: dict[File, Path] = {}
    for member, stream in source.unpack(packed):
        if (file := files.get(member)) is not None:
            checked[file] = packed.with_name(f"file-{len(checked)}")
            _copy_checked(source.address, file, stream, checked[file])
    if absent := [file.path for file in files.values() if file not in checked]:
        raise Mistake(f"{source.address} must hold {', '.join(absent)}, got an archive without")
    for file, temporary in checked.items():
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.replace(path)


def _copy_checked(address: str, file: File, stream: Readable, temporary: Path) -> None:
    digest, size = hashlib.sha256(), 0
    with temporary.open("wb") as out:
        while size <= file.size and (block := stream.read(_BLOCK)):
            size += len(block)
            digest.update(block)
            out.write(block)
    if size != file.size or digest.hexdigest() != file.sha256:
        raise Mistake(
            f"{file.path} from {address} must have SHA-256 {file.sha256} ({file.size:,} bytes), "
            f"got {digest.hexdigest()} ({size:,} bytes); nothing was kept"
        )
