"""The names of the classes that certificates are of, where a data set or a model file has them."""

import json
from pathlib import Path
from typing import Any

from macer.certification.journal import Contents
from macer.runs.names import MODEL
from macer.system.files import read_text

_LONGEST_LIST = 1 << 28  # bytes of a list of files


def class_names(path: Path, contents: Contents | None) -> tuple[str, ...]:
    """The names in the order of the labels, as many as the counts have classes; else none.

    A data set of macer has its own; those of other data sets are in the model file of the run, or
    in the list of image files that lies beside certificates of a folder of photographs.

    Args:
        path: a folder of certificates, or a log file.
        contents: of the journal in the folder, if there is one.
    """
    from macer.data.file_lists import list_of_files  # both load rich
    from macer.data.sets import DATASETS

    if contents is None or not contents.records:
        return ()
    first = next(iter(contents.records.values()))
    known = DATASETS.get(contents.header.dataset)
    places = (
        known.classes if known else (),
        _names_in_model_file(path / MODEL),
        _names_in_file_list(list_of_files(path, contents.header.split)),
    )
    names = next(filter(None, places), ())
    return names if len(names) == len(first.certificate.selection) else ()


def _names_in_file_list(file: Path) -> tuple[str, ...]:
    """The classes of listed image files: labels count them in the order of their names.

    A class without an image is not in the list; its length then tells that names are missing.
    """
    if not file.is_file():
        return ()
    rows = (line.split("\t") for line in read_text(file, limit=_LONGEST_LIST).splitlines()[1:])
    return tuple(sorted({row[1] for row in rows if len(row) == 3}))


def _names_in_model_file(file: Path) -> tuple[str, ...]:
    """The classes of a model file's card, read without torch; none if there is no such card.

    The model itself is not loaded, so its card is not checked: names are for people to read.
    """
    from safetensors import SafetensorError, safe_open

    if not file.is_file():
        return ()
    try:
        with safe_open(file, framework="numpy") as opened:
            card: Any = json.loads((opened.metadata() or {}).get("macer", "null"))
    except (SafetensorError, OSError, ValueError, RecursionError):
        return ()
    names = card.get("classes") if isinstance(card, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(names)


def class_text(label: int, names: tuple[str, ...], *facts: str) -> str:
    """A class as people read it: its number, its name where that says more, and facts about it."""
    name = names[label] if label < len(names) else ""
    known = [*([] if name in ("", str(label)) else [name]), *facts]
    return f"{label} ({', '.join(known)})" if known else f"{label}"
