"""Lay out German traffic signs for `--dataset folder`: classes by their names, whole tracks apart.

usage: python traffic_signs.py SOURCE OUT

SOURCE/train/NN/TRACK_FRAME.png and SOURCE/test/NN/NUMBER.png, NN the number of a class, become

OUT/signs/train, OUT/signs/test     nine tracks in ten to train on; the official test images
OUT/tracks/train, OUT/tracks/test   the same nine in ten; every tenth track, to choose settings by
"""

import sys
from pathlib import Path

NAMES = (
    "speed limit 20", "speed limit 30", "speed limit 50", "speed limit 60", "speed limit 70",
    "speed limit 80", "end of speed limit 80", "speed limit 100", "speed limit 120", "no passing",
    "no passing for lorries", "priority at next crossing", "priority road", "give way", "stop",
    "no vehicles", "no lorries", "no entry", "danger", "bend to the left", "bend to the right",
    "double bend", "bumpy road", "slippery road", "road narrows", "road works", "traffic lights",
    "pedestrians", "children", "bicycles", "ice and snow", "wild animals", "end of all limits",
    "turn right", "turn left", "straight on", "straight or right", "straight or left",
    "keep right", "keep left", "roundabout", "end of no passing", "end of no passing for lorries",
)  # fmt: skip


def main(source: Path, out: Path) -> None:
    """Link all files into the two folders."""
    for file in sorted(source.glob("train/*/*.png")):
        held_out = int(file.stem.split("_")[0]) % 10 == 0  # frames of a track are near-duplicates
        for name in ("tracks/test",) if held_out else ("signs/train", "tracks/train"):
            link(file, out / name)
    for file in sorted(source.glob("test/*/*.png")):
        link(file, out / "signs/test")


def link(file: Path, split: Path) -> None:
    """Link a file into the folder of its class."""
    folder = split / NAMES[int(file.parent.name)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file.name).symlink_to(file.resolve())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
