"""Muon: momentum whose step moves all directions of a filter bank alike.

[Jordan+24]  Muon: An optimizer for hidden layers in neural networks. 2024.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

# Of a polynomial that, applied again and again, brings singular values near 1.  [Jordan+24]
_A, _B, _C = 3.4445, -4.7750, 2.0315
_TIMES = 5
_SMALL = 1e-30  # to divide by instead of a norm of 0


class Muon(torch.optim.Optimizer):
    """Muon for filters, SGD for all other parameters, with one kind of momentum.

    m ← μm + g;  u = g + μm in Nesterov's form, else u = m
    filters W, as a matrix of a row each:  O = UVᵀ of u = USVᵀ, about           [Jordan+24]
                                           W ← W − r‖W‖ O/‖O‖, then back to its norm
    others:  w ← w − ηu, where g includes the weight decay

    Unlike [Jordan+24]: a step moves a filter bank by the share r of its norm, which it keeps. So
    there is nothing for weight decay to do. Filters before a batch-norm are the same function at
    any norm, which would otherwise grow exponentially with the steps.

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
        if filters:
            u = [_as_matrix(v) for v in self._directions(filters, bad, keep, decay=0.0)]
            _turn(filters, orthogonal(u), lr * self.ratio)
        if others:
            v = self._directions(others, bad, keep, decay=self.weight_decay)
            torch._foreach_sub_(others, torch._foreach_mul(v, lr))

    def _directions(
        self, some: list[Tensor], bad: Tensor, keep: Tensor, *, decay: float
    ) -> list[Tensor]:
        """u of each, with m brought up to date unless the step is bad."""
        g = [torch.where(bad, 0.0, p.grad) for p in some if p.grad is not None]
        if decay:
            torch._foreach_add_(g, torch._foreach_mul(some, decay * ~bad))
        m: list[Tensor] = [self.state[p]["momentum_buffer"] for p in some]
        torch._foreach_mul_(m, keep)
        torch._foreach_add_(m, g)
        return list(torch._foreach_add(g, m, alpha=self.momentum)) if self.nesterov else m


def orthogonal(u: list[Tensor]) -> list[Tensor]:
    """Of each matrix one with singular values between about .7 and 1.2.  [Jordan+24]

    X ← aX + b(XXᵀ)X + c(XXᵀ)²X, five times, from X = u / ‖u‖

    Matrices of about one size are iterated as one batch, filled up with zeros, which stay zeros:
    a product of a few small matrices takes a GPU as long as one of many.
    """
    tall = [m.shape[0] > m.shape[1] for m in u]
    wide = [m.mT if t else m for m, t in zip(u, tall, strict=True)]
    found: list[Tensor] = list(wide)
    for members in _by_size(wide):
        x = _filled_up([wide[i] for i in members])
        x = x / torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True).clamp(min=_SMALL)
        x = x.bfloat16() if x.is_cuda else x
        for _ in range(_TIMES):
            square = x @ x.mT
            rest = torch.baddbmm(square, square, square, beta=_B, alpha=_C)
            x = torch.baddbmm(x, rest, x, beta=_A)
        for i, matrix in zip(members, x, strict=True):
            rows, columns = wide[i].shape
            found[i] = matrix[:rows, :columns].to(u[i].dtype)
    return [m.mT if t else m for m, t in zip(found, tall, strict=True)]


def _turn(filters: list[Tensor], o: list[Tensor], r: Tensor) -> None:
    """W ← W − r‖W‖ O/‖O‖, then back to its norm."""
    norms = torch._foreach_norm(filters)
    lengths = torch._foreach_clamp_min(torch._foreach_norm(o), _SMALL)
    shares = torch._foreach_mul(torch._foreach_div(norms, lengths), r)
    moves = [_as_filters(s * m, f) for s, m, f in zip(shares, o, filters, strict=True)]
    torch._foreach_sub_(filters, moves)
    moved = torch._foreach_clamp_min(torch._foreach_norm(filters), _SMALL)
    torch._foreach_mul_(filters, torch._foreach_div(norms, moved))


def _by_size(wide: list[Tensor]) -> Iterable[list[int]]:
    """The places of matrices whose numbers of rows are within a factor of 4."""
    groups: dict[int, list[int]] = {}
    for i, matrix in enumerate(wide):
        power = (len(matrix) - 1).bit_length()  # 128 and 256 rows are of one size
        groups.setdefault((power + 1) // 2, []).append(i)
    return groups.values()


def _filled_up(matrices: list[Tensor]) -> Tensor:
    """One batch, with zeros below and to the right of the smaller ones."""
    rows, columns = (max(m.shape[axis] for m in matrices) for axis in (0, 1))
    batch = matrices[0].new_zeros(len(matrices), rows, columns)
    for place, matrix in zip(batch, matrices, strict=True):
        place[: matrix.shape[0], : matrix.shape[1]] = matrix
    return batch


def _as_matrix(filters: Tensor) -> Tensor:
    """A row a filter, in the order of channels last."""
    return filters.permute(0, 2, 3, 1).flatten(1)


def _as_filters(matrix: Tensor, like: Tensor) -> Tensor:
    outputs, inputs, height, width = like.shape
    return matrix.reshape(outputs, height, width, inputs).permute(0, 3, 1, 2)
