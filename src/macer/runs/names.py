"""The names of the files and folders of a run; no other module spells them.

Only the three lists of files have their names in data/file_lists.py, which writes them.

manifest.json            recipe, seed, versions, date, device, SHA-256 of data and weights, commit
checkpoints/             the newest two generations
model.safetensors        final weights; its metadata rebuild the model
metrics.jsonl            one line per epoch
certificates.journal     one checksummed record per certified image
certificates.tsv         the same as a table, derived
rescored-BOUND-α.tsv     certificates by another bound or level, from the journal's counts
bernstein-β/             certificates of the soft classifier at β, from the same samples
files-test.tsv           of a folder of photographs: the file of each image
skipped-test.tsv         every file that was not read, and why
twice-test.tsv           every file that was found twice, and the other one
held-out/                certificates of training images that the run held out
.parts/                  certificates of processes that work together, until the end
"""

from pathlib import Path

MANIFEST = "manifest.json"
CHECKPOINTS = "checkpoints"
MODEL = "model.safetensors"
METRICS = "metrics.jsonl"
JOURNAL = "certificates.journal"
TABLE = "certificates.tsv"
HELD_OUT = "held-out"
PARTS = ".parts"

_SOFT = "bernstein-"
_RESCORED = "rescored-"


def rescored_file(folder: Path, bound: str, alpha: float) -> Path:
    """The table in a folder that has certificates by another bound or at another level."""
    return folder / f"{_RESCORED}{bound}-{alpha}.tsv"


def is_rescored(file: Path) -> bool:
    """Whether a file has the name of such a table."""
    return file.name.startswith(_RESCORED)


def soft_folder(folder: Path, beta: float) -> Path:
    """The folder in a folder of certificates that holds those of the soft classifier at β."""
    return folder / f"{_SOFT}{beta:g}"


def soft_beta(folder: str) -> str:
    """The β in the name of such a folder, as it is written there."""
    return folder.removeprefix(_SOFT)
