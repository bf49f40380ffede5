"""Several classifiers as one network, which is certified as any other: the mean of their logits.

[Horvath+22]  Boosting Randomized Smoothing with Variance Reduced Classifiers. ICLR 2022.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, fx, nn

ENSEMBLE = "ensemble"  # the architecture of a model file with members


def mean_logits(logits: Sequence[Tensor]) -> Tensor:
    """f̄(x) = 1/k Σₗ fₗ(x), (images, num_classes), of k classifiers.      [Horvath+22]"""
    return torch.stack(list(logits)).mean(dim=0)


fx.wrap("mean_logits")  # one operation of a traced network, by which its members' ends are found


class Ensemble(nn.Module):
    """The mean of its members' logits; each member has its own normalisation. [Horvath+22]"""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """The mean logits (images, num_classes)."""
        return mean_logits([member(x) for member in self.members])
