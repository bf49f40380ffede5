"""The code of a data set that a file names; it is admitted as the code of a network is."""

from collections.abc import Collection
from pathlib import Path

from macer.runs.trained_model import model_file, own_folders
from macer.runs.zoo import in_zoo
from macer.system.files import sha256_of_file
from macer.system.user_code import check_admitted, module_of, names_a_function


def data_home(
    name: str, target: Path | str, *, code: Collection[str] = (), source: object
) -> str | None:
    """The folder of the module of a data set that a file names; None: search the current one.

    A name that is no function needs none. The module of a function must be in `code`, or the
    target must be a run that this user made with it.

    Args:
        target: the model that the data set is for.
        source: the file that names the data set, for the message.
    """
    if not names_a_function(name):
        return None
    folders = {}
    if not in_zoo(target) and Path(target).exists():
        file = model_file(target)
        folders = own_folders(file, sha256_of_file(file))
    check_admitted(name, {*code, *folders}, source=source)
    return None if module_of(name) in code else folders.get(module_of(name))
