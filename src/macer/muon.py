"""Muon: momentum whose step moves all directions of a filter bank alike.

[Jordan+24]  Muon: An optimizer for hidden layers in neural networks. 2024.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

# Of a polynomial that, applied again and again, brings singular values near 1.  [Jordan+24]
_A, _B, _C = 3.4445, -4.7750, 2.0315
_TIMES = 5
_SMALL = 1e-30
"Instead of a norm of 0, to divide by."


class Muon(torch.optim.Optimizer):
    """Muon for filters, SGD for all other parameters, with one kind of momentum.

    m ← μm + g;  u = g + μm in Nesterov's form, else u = m
    filters W, as a matrix of a row each:  O = UVᵀ of u = USVᵀ, about           [Jordan+24]
                                           W ← W − r‖W‖ O/‖O‖, then back to its norm
    others:  w ← w − ηu, where g includes the weight decay

    Unlike [Jordan+24]: a step moves a filter bank by the share r of its norm, which it keeps. So
    there is nothing for weight decay to do. Filters before a batch-norm are the same function at
    any norm; left to grow, they do so exponentially, by the share r of all they have in a step.

    A step whose `found_inf` is 1 changes nothing, as in torch's fused optimisers.

    Args:
        lr: η, a tensor whose value may change between steps.
        ratio: r/η, so that one schedule serves both.
    """

    found_inf: Tensor

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        lr: Tensor,
        ratio: float,
        momentum: float,
        nesterov: bool,
        weight_decay: float,
    ) -> None:
        super().__init__(parameters, {})
        self.lr, self.ratio = lr, ratio
        self.momentum, self.nesterov, self.weight_decay = momentum, nesterov, weight_decay

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step with the parameters' gradients."""
        some = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        filters, others = ([p for p in some if (p.ndim == 4) == wanted] for wanted in (True, False))
        bad = self.found_inf.bool()
        lr, keep = self.lr * ~bad, torch.where(bad, 1.0, self.momentum)
        for alike in _by_shape(filters):
            u = torch.stack([_as_matrix(v) for v in self._directions(alike, bad, keep, decay=0.0)])
            o = orthogonal(u)
            norms = torch._foreach_norm(alike)
            moves = lr * self.ratio * torch.stack(norms)[:, None, None] * o / _norm(o)
            torch._foreach_sub_(
                alike, [_as_filters(m, p) for m, p in zip(moves, alike, strict=True)]
            )
            moved = torch._foreach_clamp_min(torch._foreach_norm(alike), _SMALL)
            torch._foreach_mul_(alike, torch._foreach_div(norms, moved))
        if others:
            v = self._directions(others, bad, keep, decay=self.weight_decay)
            torch._foreach_sub_(others, torch._foreach_mul(v, lr))

    def _directions(
        self, some: list[Tensor], bad: Tensor, keep: Tensor, *, decay: float
    ) -> list[Tensor]:
        """u of each, with m brought up to date unless the step is bad."""
        g = [torch.where(bad, 0.0, p.grad) for p in some if p.grad is not None]
        torch._foreach_add_(g, torch._foreach_mul(some, decay * ~bad))
        m: list[Tensor] = [self.state[p]["momentum_buffer"] for p in some]
        torch._foreach_mul_(m, keep)
        torch._foreach_add_(m, g)
        return list(torch._foreach_add(g, m, alpha=self.momentum)) if self.nesterov else m


def orthogonal(u: Tensor) -> Tensor:
    """Matrices of singular values between about .7 and 1.2 in the place of u's.  [Jordan+24]

    X ← aX + b(XXᵀ)X + c(XXᵀ)²X, five times, from X = u / ‖u‖

    Args:
        u: (matrices, rows, columns)
    """
    wide = u.shape[1] <= u.shape[2]
    x = u if wide else u.mT
    x = x / _norm(x)
    x = x.bfloat16() if x.is_cuda else x
    for _ in range(_TIMES):
        square = x @ x.mT
        rest = torch.baddbmm(square, square, square, beta=_B, alpha=_C)
        x = torch.baddbmm(x, rest, x, beta=_A)
    x = x if wide else x.mT
    return x.to(u.dtype)


def _norm(matrices: Tensor) -> Tensor:
    """‖·‖ of each, not 0."""
    norms: Tensor = torch.linalg.vector_norm(matrices, dim=(1, 2), keepdim=True)
    return norms.clamp(min=_SMALL)


def _by_shape(parameters: Iterable[Tensor]) -> list[list[Tensor]]:
    groups: dict[torch.Size, list[Tensor]] = {}
    for parameter in parameters:
        groups.setdefault(parameter.shape, []).append(parameter)
    return list(groups.values())


def _as_matrix(filters: Tensor) -> Tensor:
    """A row a filter, in the order of channels last."""
    return filters.permute(0, 2, 3, 1).flatten(1)


def _as_filters(matrix: Tensor, like: Tensor) -> Tensor:
    outputs, inputs, height, width = like.shape
    return matrix.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
