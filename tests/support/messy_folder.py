"""A folder of photographs as people have them: every form and fault, each known by its file."""

import shutil
from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"cat": (220, 40, 40), "dog": (40, 220, 40), "emu": (40, 40, 220)}


def photograph(name: str, seed: int, size: tuple[int, int] = (40, 30)) -> Image.Image:
    """A noisy picture in the colour of its class; each seed has its own."""
    noise = np.random.default_rng(seed).integers(-30, 31, (size[1], size[0], 3))
    return Image.fromarray(np.clip(np.array(COLOURS[name]) + noise, 0, 255).astype(np.uint8))


def write(folder: Path, split: str, each: int, seed: int, classes=("cat", "dog")) -> None:
    """Photographs of several sizes, `each` of every class, as PNG."""
    for c, name in enumerate(classes):
        place = folder / split / name
        place.mkdir(parents=True, exist_ok=True)
        for i in range(each):
            size = ((40, 30), (30, 44), (33, 33))[i % 3]
            photograph(name, seed + 1000 * c + i, size).save(place / f"{i:03}.png")


def make_messy(folder: Path) -> Path:
    """A training split that is in order, and a test split with everything in it but damage."""
    write(folder, "train", 6, 0)
    write(folder, "test", 3, 500)
    (folder / "train/emu").mkdir()
    (folder / "test/emu").mkdir()
    cat, dog = folder / "test/cat", folder / "test/dog"
    exif = Image.Exif()
    exif[0x0112] = 6
    photograph("cat", 601).save(cat / "phone.jpg", exif=exif)
    photograph("cat", 602).save(cat / "web.webp")
    photograph("cat", 603).save(cat / "scan.tif")
    photograph("cat", 604).save(cat / "old.BMP")
    photograph("dog", 605).convert("CMYK").save(dog / "print.jpg")
    photograph("dog", 606).convert("L").save(dog / "grey.png")
    photograph("dog", 607).convert("P").save(dog / "palette.png")
    clear = photograph("dog", 608)
    clear.putalpha(128)
    clear.save(dog / "clear.png")
    levels = np.random.default_rng(609).integers(0, 2**16, (20, 20), np.uint16)
    Image.fromarray(levels).save(dog / "deep.png")
    photograph("dog", 610, (7, 9)).save(dog / "small.png")
    shutil.copy(cat / "000.png", cat / "again.png")
    shutil.copy(cat / "001.png", dog / "relabelled.png")
    (cat / "Thumbs.db").write_bytes(b"db")
    (cat / ".DS_Store").write_bytes(b"store")
    (cat / "._000.png").write_bytes(b"fork")
    (dog / "notes.txt").write_text("good dogs")
    (folder / "test/readme.md").write_text("photographs")
    return folder


def damage(folder: Path) -> None:
    """A truncated JPEG, a file of another content, and an empty one."""
    cat, dog = folder / "test/cat", folder / "test/dog"
    photograph("cat", 700, (200, 200)).save(cat / "cut.jpg")
    (cat / "cut.jpg").write_bytes((cat / "cut.jpg").read_bytes()[:2000])
    (dog / "page.jpg").write_text("<html>not found</html>")
    (dog / "zero.png").touch()
