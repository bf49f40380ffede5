"""Read a folder of photographs: every file once, into memory, with an account of what was found.

Certificates speak of the pixels after preparation. An image in training and test both is refused.
When training images are read, the test images are prepared too, and pixels are compared. When test
images are read, only the bytes of files are compared, so that no training image is decoded.
"""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from macer.data.account import Account, some
from macer.data.image_folder import Listing, image_classes, listed
from macer.data.photograph import THREADS, Size, Traits, read_photograph, traits, without_warnings
from macer.data.split import Split
from macer.system.errors import Mistake
from macer.system.files import sha256_of_file
from macer.system.progress import bar

MAX_PIXELS = 1 << 33  # bytes of a data set in memory
_BLOCK = 256  # files that wait for a thread at once

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What to do about damaged files, and about images that are in training and test both."""

    skip_damaged: bool = False
    duplicates: Literal["refuse", "tell", "ignore"] = "refuse"


def read_photographs(
    paths: Sequence[Path],
    *,
    size: Size | None = None,
    rules: Rules = Rules(),
) -> Split:
    """Read folder/CLASS/*; one channel if every image of both splits is grey.

    Args:
        paths: the folder of the split, beside that of the other split.
        size: (height, width) to fit images to; without it they must have one size.
    """
    (folder,) = paths
    with without_warnings():
        return _Reader(folder, size, rules).split()


class _Prepared(NamedTuple):
    pixels: np.ndarray
    turned: str
    digest: bytes


class _Reader:
    """The reading of one split; the other one is looked at for its format and for duplicates."""

    def __init__(self, folder: Path, size: Size | None, rules: Rules) -> None:
        self.folder, self.size, self.rules = folder, size, rules
        parent = folder.parent
        train, test = parent / "train", tests_folder(parent)
        self.other_folder = test if folder.name == "train" else train
        self.unread = ["val"] if test.name == "test" and (parent / "val").is_dir() else []
        self.classes = image_classes(parent, (train.name, test.name))
        self.listing = listed(folder, self.classes)
        self.other = listed(self.other_folder, self.classes)
        if not self.listing.names:
            others = some(name for name, _ in self.listing.skipped)
            found = f"; found only {others}" if others else ""
            raise Mistake(f"no images in {folder}: expected {folder}/CLASS/*.png or *.jpg{found}")

    def split(self) -> Split:
        headers, damaged = self._headers()
        shape = self._shape(headers)
        kept = [i for i, header in enumerate(headers) if header]
        images = self._empty_array(len(kept), shape)
        digests: dict[int, bytes] = {}
        turned: Counter[str] = Counter()
        read = self._each(self.folder, [self.listing.names[i] for i in kept], self._prepare(shape))
        for i, prepared in zip(kept, read, strict=True):
            if isinstance(prepared, _Prepared):
                images[len(digests)] = prepared.pixels
                digests[i] = prepared.digest
                turned.update([prepared.turned] if prepared.turned else [])
            else:
                damaged.append((self.listing.names[i], prepared))
        if not digests:
            raise Mistake(f"{self.folder} must have an undamaged image, got {len(damaged)} damaged")
        pixels = images if len(digests) == len(kept) else images[: len(digests)].copy()
        account = self._account(shape, [headers[i] for i in digests], turned, damaged, digests)
        return Split(
            pixels,
            self.listing.labels[list(digests)],
            classes=self.classes,
            files=tuple(self._named(i) for i in digests),
            account=replace(account, shared=self._shared(digests, shape)),
        )

    def _headers(self) -> tuple[list[Traits | None], list[tuple[str, str]]]:
        """What each file's header says, None if it is damaged; and the damaged ones."""
        found = list(self._each(self.folder, self.listing.names, traits))
        damaged = [
            (name, why)
            for name, why in zip(self.listing.names, found, strict=True)
            if isinstance(why, str)
        ]
        return [None if isinstance(one, str) else one for one in found], damaged

    def _shape(self, headers: Iterable[Traits | None]) -> tuple[int, int, int]:
        """(channels, height, width) of the images of both splits."""
        mine = zip(self.listing.names, headers, strict=True)
        known = [(self.folder / name, header) for name, header in mine if header]
        grey = all(header.grey for _, header in known)
        if self.size is not None:
            return (1 if grey and self._others_grey() else 3, *self.size)
        theirs = self._each(self.other_folder, self.other.names, traits)
        for name, header in zip(self.other.names, theirs, strict=True):
            if isinstance(header, Traits):
                known.append((self.other_folder / name, header))
        known.sort()
        height, width = known[0][1].size if known else (0, 0)
        for file, header in known:
            if header.size != (height, width):
                raise Mistake(
                    f"all images must have one size, {width}×{height} (width×height) so far, got "
                    f"{header.size[1]}×{header.size[0]} in {file}; add --size N to resize them"
                )
        return (1 if all(header.grey for _, header in known) else 3, height, width)

    def _others_grey(self) -> bool:
        """Whether the other split is grey; reading stops at its first image in colour."""
        found = self._each(self.other_folder, self.other.names, traits)
        return all(header.grey for header in found if isinstance(header, Traits))

    def _empty_array(self, count: int, shape: tuple[int, int, int]) -> np.ndarray:
        if (needed := count * math.prod(shape)) > MAX_PIXELS:
            raise Mistake(
                f"{self.folder} must take at most {MAX_PIXELS:,} bytes of memory, got {count:,} "
                f"images of {shape[2]}×{shape[1]}, which take {needed:,}; add a smaller --size"
            )
        return np.empty((count, *shape), np.uint8)

    def _prepare(self, shape: tuple[int, int, int]) -> Callable[[Path], _Prepared]:
        def prepare(file: Path) -> _Prepared:
            read = read_photograph(file, channels=shape[0], size=self.size)
            if read.pixels.shape != shape:  # only a PNG that is turned by what follows its pixels
                got = f"{read.pixels.shape[2]}×{read.pixels.shape[1]}"
                raise Mistake(f"{file} must be {shape[2]}×{shape[1]} as it is upright, got {got}")
            pixels = np.ascontiguousarray(read.pixels)
            return _Prepared(pixels, read.turned, hashlib.sha256(pixels.data).digest())

        return prepare

    def _each(
        self, folder: Path, names: Sequence[str], act: Callable[[Path], T]
    ) -> Iterator[T | str]:
        """What the act gives for each file, or why the file is damaged; threads work ahead."""

        def attempt(name: str) -> T | str:
            file = folder / name
            try:
                return act(file)
            except (Mistake, OSError) as error:
                can = f"{file} must be a file that can be read: "
                why = str(error) if isinstance(error, Mistake) else f"{can}{error.strerror}"
                if not self.rules.skip_damaged:
                    raise Mistake(
                        f"{why}; mend or remove it, or add --skip-damaged to go on without it"
                    ) from error
                return why

        with (
            ThreadPoolExecutor(THREADS) as pool,
            bar(f"reading {folder.name}", len(names), "files", transient=True) as advance,
        ):
            for start in range(0, len(names), _BLOCK):
                yield from pool.map(attempt, names[start : start + _BLOCK])
                advance(min(_BLOCK, len(names) - start))

    def _named(self, i: int) -> str:
        return f"{self.folder.name}/{self.listing.names[i]}"

    def _account(
        self,
        shape: tuple[int, int, int],
        headers: Sequence[Traits | None],
        turned: Counter[str],
        damaged: Sequence[tuple[str, str]],
        digests: dict[int, bytes],
    ) -> Account:
        read = [header for header in headers if header]
        converted = turned + Counter(text for header in read for text in header.converted)
        if shape[0] == 3 and (grey := sum(header.grey for header in read)):
            converted["grey made RGB"] = grey
        if self.size and (small := sum(_is_smaller(header.size, self.size) for header in read)):
            converted["enlarged"] = small
        twice, relabelled = self._twice(digests)
        return Account(
            split=self.folder.name,
            images=len(read),
            classes=len(self.classes),
            size=shape[1:],
            resized=self.size is not None,
            megabytes=len(read) * math.prod(shape) / 1e6,
            forms=Counter(header.form for header in read),
            converted=converted,
            skipped=self.listing.skipped,
            damaged=damaged,
            empty=self.listing.empty,
            unread=self.unread,
            twice=twice,
            relabelled=relabelled,
        )

    def _twice(self, digests: dict[int, bytes]) -> tuple[list[tuple[str, str]], int]:
        """The images whose pixels are those of one before them; how many have another label."""
        first: dict[bytes, int] = {}
        twice, relabelled = [], 0
        for i in sorted(digests, key=lambda i: self.listing.names[i]):
            if (before := first.setdefault(digests[i], i)) != i:
                twice.append((self.listing.names[i], self.listing.names[before]))
                relabelled += bool(self.listing.labels[i] != self.listing.labels[before])
        return twice, relabelled

    def _shared(
        self, digests: dict[int, bytes], shape: tuple[int, int, int]
    ) -> list[tuple[str, str]]:
        """The images that are in the other split too, unless that is not to be looked at."""
        if self.rules.duplicates == "ignore" or not self.other.names:
            return []
        if self.folder.name == "train":
            shared = self._same_pixels(digests, shape)
        else:
            shared = _same_bytes(
                self.folder, [self.listing.names[i] for i in digests], self.other_folder, self.other
            )
        if shared and self.rules.duplicates == "refuse":
            pairs = some(f"{name} is {other}" for name, other in shared)
            raise Mistake(
                f"images must not be in training and test both, got {len(shared):,} that are: "
                f"{pairs}; remove one of each two, or add --allow-duplicates"
            )
        return shared

    def _same_pixels(
        self, digests: dict[int, bytes], shape: tuple[int, int, int]
    ) -> list[tuple[str, str]]:
        mine = {digest: self._named(i) for i, digest in digests.items()}
        prepare = self._prepare(shape)
        others = self._each(self.other_folder, self.other.names, lambda file: prepare(file).digest)
        return [
            (mine[digest], f"{self.other_folder.name}/{name}")
            for name, digest in zip(self.other.names, others, strict=True)
            if isinstance(digest, bytes) and digest in mine
        ]


def tests_folder(folder: Path) -> Path:
    """The folder of the test images: test, or val where there is no test."""
    test, val = folder / "test", folder / "val"
    return val if val.is_dir() and not test.exists() else test


def _is_smaller(size: Size, than: Size) -> bool:
    return size[0] < than[0] or size[1] < than[1]


def _same_bytes(
    folder: Path, names: Sequence[str], other_folder: Path, other: Listing
) -> list[tuple[str, str]]:
    """The files whose bytes another split has too; only files of equal sizes are read."""
    by_size: defaultdict[int, list[str]] = defaultdict(list)
    for name in other.names:
        if (file := other_folder / name).is_file():  # a link may lead nowhere
            by_size[file.stat().st_size].append(name)
    hashes: dict[int, dict[str, str]] = {}
    same = []
    for name in names:
        if (size := (folder / name).stat().st_size) in by_size:
            if size not in hashes:
                hashes[size] = {sha256_of_file(other_folder / one): one for one in by_size[size]}
            if found := hashes[size].get(sha256_of_file(folder / name)):
                same.append((f"{folder.name}/{name}", f"{other_folder.name}/{found}"))
    return same
