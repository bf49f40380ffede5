"""Training objectives: a name is a function in LOSSES, of a Batch, with one loss an image."""

from torch import Tensor

from macer.errors import Mistake
from macer.losses.batch import Batch, Objective
from macer.losses.catrs import catrs
from macer.losses.consistency import consistency, macer_consistency
from macer.losses.gaussian import gaussian
from macer.losses.hard_noise import macer_hard_noise
from macer.losses.macer import macer, macer_loss
from macer.losses.smoothadv import smoothadv
from macer.losses.smoothmix import smoothmix
from macer.losses.stability import stability
from macer.losses.sun import sun
from macer.system.user_code import import_function, names_a_function, nearest

LOSSES: dict[str, Objective] = {
    "macer": macer,
    "gaussian": gaussian,
    "stability": stability,
    "consistency": consistency,
    "macer-consistency": macer_consistency,
    "macer-hard-noise": macer_hard_noise,
    "smoothadv": smoothadv,
    "smoothmix": smoothmix,
    "catrs": catrs,
    "sun": sun,
}

__all__ = ["LOSSES", "Batch", "Objective", "find_objective", "macer_loss"]


def find_objective(name: str) -> Objective:
    """An objective by its name, or a user's own as package.module:function."""
    if name in LOSSES:
        return LOSSES[name]
    if not names_a_function(name):
        raise Mistake(
            f"unknown loss {name!r}{nearest(name, LOSSES)}; choose from {', '.join(LOSSES)}, "
            "or name a function of your own as package.module:function"
        )
    own = import_function(name)

    def checked(batch: Batch) -> Tensor:
        losses = own(batch)
        if not (isinstance(losses, Tensor) and losses.shape == batch.labels.shape):
            got = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise Mistake(
                f"loss {name!r} must return one loss an image, of shape "
                f"{tuple(batch.labels.shape)}, got {got}"
            )
        return losses

    return checked
