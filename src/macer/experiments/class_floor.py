"""A floor under each class, after training: constants that are added to the logits.

Training for radius may give up a class whose noisy images look like another's. With u the logits,

f_b(x) = argmax_c u_c(x) + b_c
a_c(b) = share of class c's images that f_b labels right on more than half of their noisy copies

the least b ≥ 0 is found for which every a_c(b) ≥ floor. a_c grows with b_c and falls with every
other b_d. So if b lies below every solution, and b_c is raised to the least value with
a_c(b) ≥ floor, b still lies below every solution; from b = 0 on, raising one class after another
ends in the least solution, if there is one. f_b is a network like any other: what is certified is
f_b itself, on other images than those that have chosen b.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from macer.system.errors import Mistake

_ROUNDS = 1000
_ABOVE = 1e-6  # of a value's size: beyond what float32 rounds


def class_accuracies(logits: Tensor, labels: Tensor, offsets: Tensor) -> list[float | None]:
    """a_c(b) of every class; None for a class without images.

    Args:
        logits: (images, copies, classes).
        labels: (images,) int64.
        offsets: (classes,), b.
    """
    winners = (logits + offsets).argmax(dim=2)
    right = 2 * (winners == labels[:, None]).sum(dim=1) > logits.shape[1]
    own = [right[labels == c] for c in range(logits.shape[2])]
    return [float(each.double().mean()) if len(each) else None for each in own]


def least_offsets(logits: Tensor, labels: Tensor, floor: float, classes: Sequence[str]) -> Tensor:
    """The least offsets b ≥ 0 with a_c(b) ≥ floor for every class with images, (classes,) float64.

    Args:
        logits: (images, copies, classes).
        labels: (images,) int64.
        classes: their names, for messages.
    """
    own = {c: logits[labels == c].double() for c in sorted(set(labels.tolist()))}
    offsets = torch.zeros(logits.shape[2], dtype=torch.float64)
    for _ in range(_ROUNDS):
        before = offsets.clone()
        for c, images in own.items():
            offsets[c] = max(float(offsets[c]), _least_offset(images, c, offsets, floor))
        if torch.equal(offsets, before):
            return offsets
        if offsets.min() > 0:
            break  # b less its minimum would be a smaller solution
    raised = ", ".join(classes[c] for c in own if offsets[c] > 0)
    raise Mistake(
        f"at_least must be a share that all classes reach at once, got {floor}: what {raised} win, "
        "others of them lose; lower it"
    )


def _least_offset(images: Tensor, c: int, offsets: Tensor, floor: float) -> float:
    """The least b_c with a_c(b) ≥ floor, the other offsets being as they are."""
    others = images + offsets
    others[..., c] = -math.inf
    wins = others.amax(dim=2) - images[..., c]  # a copy is labelled c if b_c is larger
    half = wins.shape[1] // 2
    decided = wins.sort(dim=1).values[:, half]  # the image has more than half if b_c is larger
    needed = max(1, math.ceil(floor * len(images) - 1e-9))  # .1 · 30 is not above 3
    least = float(decided.sort().values[needed - 1])
    return least + _ABOVE * max(1.0, abs(least))
