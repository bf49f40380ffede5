"""Training objectives; each is a function of the logits on noisy copies, and a name in LOSSES."""

from collections.abc import Callable

from torch import Tensor

from macer.losses.macer import macer_loss

LOSSES: dict[str, Callable[..., Tensor]] = {"macer": macer_loss}

__all__ = ["LOSSES", "macer_loss"]
