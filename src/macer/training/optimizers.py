"""The optimisers of training: SGD and Muon.

[Jordan+24]  Muon: An optimizer for hidden layers in neural networks. 2024.
"""

from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from macer.recipes import TrainRecipe

# Muon iterates a polynomial with these coefficients, which moves singular values towards 1.
# [Jordan+24]
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ITERATIONS = 5
_SMALL = 1e-30  # divisor in place of a norm of 0

Groups = list[dict[str, Any]]  # each with its parameters, `params`, and their `lr`


def make_optimizer(
    recipe: TrainRecipe,
    model: nn.Module,
    lr: Tensor,
    *,
    new: Collection[str] = (),
    new_lr: Tensor | None = None,
) -> torch.optim.Optimizer:
    """The recipe's optimiser of all parameters that have gradients.

    A step whose `found_inf` is 1 changes nothing.

    Args:
        lr: the learning rate, set before each step.
        new: names of the parameters whose learning rate is `new_lr`, set before each step too.
    """
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    old = {"params": [p for name, p in trained.items() if name not in new], "lr": lr}
    others = {"params": [p for name, p in trained.items() if name in new], "lr": new_lr}
    groups = [group for group in (old, others) if group["params"]]
    make = _muon if recipe.optimizer == "muon" else _sgd
    optimizer = make(recipe, groups, lr)
    if recipe.momentum or recipe.optimizer == "muon":
        # Made here and not in the first step, whose gradients may not be finite.
        for parameter in trained.values():
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def _sgd(recipe: TrainRecipe, groups: Groups, lr: Tensor) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        groups,
        lr=lr,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        weight_decay=recipe.weight_decay,
        fused=True,
    )


def _muon(recipe: TrainRecipe, groups: Groups, lr: Tensor) -> torch.optim.Optimizer:
    return Muon(
        groups,
        lr=lr,
        ratio=recipe.filter_lr / recipe.lr,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        weight_decay=recipe.weight_decay,
    )


class Muon(torch.optim.Optimizer):
    """Muon for filters and SGD for all other parameters, with the same kind of momentum.

    Muon's step moves all directions of a layer's filters equally.

    m ← μm + g;  u = g + μm in Nesterov's form, else u = m
    filters W, a matrix with one row per filter:  O ≈ UVᵀ for u = USVᵀ          [Jordan+24]
                                                  W ← W − r‖W‖ O/‖O‖, scaled back to its norm
    others:  w ← w − ηu, where g includes the weight decay

    Unlike [Jordan+24]: a step moves a layer's filters by the share r of their norm and keeps the
    norm, so weight decay is not needed. Filters before a batch-norm are the same function at any
    norm, and the norm would otherwise grow exponentially with the steps.

    A step whose `found_inf` is 1 changes nothing, as in torch's fused optimisers.

    Args:
        parameters: or groups of them, which may have an `lr` of their own.
        lr: η, a tensor whose value may change between steps.
        ratio: r/η, so that one schedule serves both.
    """

    found_inf: Tensor

    def __init__(
        self,
        parameters: Iterable[nn.Parameter] | Groups,
        *,
        lr: Tensor,
        ratio: float,
        momentum: float,
        nesterov: bool,
        weight_decay: float,
    ) -> None:
        super().__init__(parameters, {"lr": lr})
        self.ratio = ratio
        self.momentum, self.nesterov, self.weight_decay = momentum, nesterov, weight_decay

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step with the parameters' gradients."""
        for group in self.param_groups:
            self._step(group["lr"], [p for p in group["params"] if p.grad is not None])

    def _step(self, lr: Tensor, trained: list[Tensor]) -> None:
        filters = [p for p in trained if p.ndim == 4]
        others = [p for p in trained if p.ndim != 4]
        bad = self.found_inf.bool()
        lr, keep = lr * ~bad, torch.where(bad, 1.0, self.momentum)
        if filters:
            u = [_as_matrix(v) for v in self._directions(filters, bad, keep, decay=0.0)]
            _move_filters(filters, orthogonal(u), lr * self.ratio)
        if others:
            v = self._directions(others, bad, keep, decay=self.weight_decay)
            torch._foreach_sub_(others, torch._foreach_mul(v, lr))

    def _directions(
        self, parameters: list[Tensor], bad: Tensor, keep: Tensor, *, decay: float
    ) -> list[Tensor]:
        """u of each parameter; updates m unless the step is bad."""
        g = [torch.where(bad, 0.0, p.grad) for p in parameters if p.grad is not None]
        if decay:
            torch._foreach_add_(g, torch._foreach_mul(parameters, decay * ~bad))
        m: list[Tensor] = [self.state[p]["momentum_buffer"] for p in parameters]
        torch._foreach_mul_(m, keep)
        torch._foreach_add_(m, g)
        return list(torch._foreach_add(g, m, alpha=self.momentum)) if self.nesterov else m


def orthogonal(u: list[Tensor]) -> list[Tensor]:
    """Each matrix with its singular values moved to between about .7 and 1.2.  [Jordan+24]

    X ← aX + b(XXᵀ)X + c(XXᵀ)²X, five times, from X = u / ‖u‖

    Matrices of similar size are iterated as one batch and padded with zeros, which stay zeros: on
    a GPU the product of a few small matrices takes as long as that of many.
    """
    tall = [m.shape[0] > m.shape[1] for m in u]
    wide = [m.mT if t else m for m, t in zip(u, tall, strict=True)]
    results: list[Tensor] = list(wide)
    for members in _by_size(wide):
        x = _padded([wide[i] for i in members])
        x = x / torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True).clamp(min=_SMALL)
        x = x.bfloat16() if x.is_cuda else x
        for _ in range(_ITERATIONS):
            square = x @ x.mT
            rest = torch.baddbmm(square, square, square, beta=_B, alpha=_C)
            x = torch.baddbmm(x, rest, x, beta=_A)
        for i, matrix in zip(members, x, strict=True):
            rows, columns = wide[i].shape
            results[i] = matrix[:rows, :columns].to(u[i].dtype)
    return [m.mT if t else m for m, t in zip(results, tall, strict=True)]


def _move_filters(filters: list[Tensor], o: list[Tensor], r: Tensor) -> None:
    """W ← W − r‖W‖ O/‖O‖, scaled back to its norm."""
    norms = torch._foreach_norm(filters)
    lengths = torch._foreach_clamp_min(torch._foreach_norm(o), _SMALL)
    shares = torch._foreach_mul(torch._foreach_div(norms, lengths), r)
    moves = [_as_filters(s * m, f) for s, m, f in zip(shares, o, filters, strict=True)]
    torch._foreach_sub_(filters, moves)
    moved = torch._foreach_clamp_min(torch._foreach_norm(filters), _SMALL)
    torch._foreach_mul_(filters, torch._foreach_div(norms, moved))


def _by_size(wide: list[Tensor]) -> Iterable[list[int]]:
    """Groups of the indices of matrices whose numbers of rows are within a factor of 4."""
    groups: dict[int, list[int]] = {}
    for i, matrix in enumerate(wide):
        power = (len(matrix) - 1).bit_length()  # 128 and 256 rows are in one group
        groups.setdefault((power + 1) // 2, []).append(i)
    return groups.values()


def _padded(matrices: list[Tensor]) -> Tensor:
    """One batch, with zeros below and to the right of the smaller matrices."""
    rows, columns = (max(m.shape[axis] for m in matrices) for axis in (0, 1))
    batch = matrices[0].new_zeros(len(matrices), rows, columns)
    for place, matrix in zip(batch, matrices, strict=True):
        place[: matrix.shape[0], : matrix.shape[1]] = matrix
    return batch


def _as_matrix(filters: Tensor) -> Tensor:
    """One row per filter, in channels-last order."""
    return filters.permute(0, 2, 3, 1).flatten(1)


def _as_filters(matrix: Tensor, like: Tensor) -> Tensor:
    outputs, inputs, height, width = like.shape
    return matrix.reshape(outputs, height, width, inputs).permute(0, 3, 1, 2)
