"""A data set that a function of the user's own returns, named as package.module:function.

    def photographs(split):                 # "train" or "test"
        return images, labels               # or images, labels, classes

Images and labels are what `macer.train` takes as data, and so may be one Dataset instead of a pair.
"""

from dataclasses import replace
from typing import Any

from macer.data.arrays import as_split, class_names
from macer.data.split import SPLITS, Split
from macer.system.errors import Mistake
from macer.system.user_code import first_line, import_function


def read_own(name: str, split: str, home: str | None = None) -> Split:
    """Call the user's function for one split, and check what it returns.

    Args:
        home: the folder of its module; by default the current folder is searched first.
    """
    if split not in SPLITS:
        raise Mistake(f"split must be train or test, got {split!r}")
    function = import_function(name, home)
    try:
        returned: Any = function(split)
    except Exception as error:
        raise Mistake(
            f"data set {name} must return the {split} images, got {type(error).__name__}: "
            f"{first_line(error)}"
        ) from error
    classes = None
    if isinstance(returned, tuple) and len(returned) == 3:
        *returned, classes = returned
        returned = tuple(returned)
    try:
        found = as_split(returned)
        known = found.classes if classes is None else class_names(classes, found)
    except Mistake as mistake:
        raise Mistake(f"data set {name}, {split}: {mistake}") from mistake
    return replace(found, dataset=name, classes=known)
