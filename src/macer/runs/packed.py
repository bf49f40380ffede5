"""Runs that are made of models, not trained: a new folder with a manifest and a model file."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from macer.runs.run import Run, new_run
from macer.runs.seals import sealed
from macer.system.files import write_atomically
from macer.system.user_code import OwnModule


def packed_run(
    folder: Path, content: bytes, made_of: dict[str, Any], own: Sequence[OwnModule] = ()
) -> Run:
    """Make a run of a model file's content; nothing is known of a training.

    Args:
        made_of: what the manifest says of where the model comes from.
        own: the user's own modules that the file names, which this run admits.
    """
    sha256 = hashlib.sha256(content).hexdigest()
    record = {
        "recipe": None,
        "data_sha256": None,  # of training images
        **made_of,
        **({"code": sealed(own, sha256)} if own else {}),
        "status": "packed",
        "weights_sha256": sha256,
    }
    run = new_run(folder, record)
    write_atomically(run.model, content)
    return run
