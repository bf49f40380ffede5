"""Pure conclusions: from tallies of noisy samples to certificates and labels. No network here.

They are apart from certificate.py because a report reads certificates without torch.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from macer.certification.certificate import ABSTAIN, Certificate
from macer.smoothing.bounds import bound_named
from macer.smoothing.confidence import binomial_p_value, radius_lower
from macer.smoothing.sequential import Decision, decisions, p0_at
from macer.smoothing.tally import Tally
from macer.system.errors import Mistake


def selected_classes(counts0: Tally, bound: str) -> Tensor:
    """ĉ_A of each image: the top class by votes, or by Σz for a soft bound."""
    return bound_named(bound).totals(counts0).argmax(dim=1)


def worth_estimating(selected: Tensor, labels: Sequence[int] | None) -> Tensor:
    """The images to estimate, a mask: all, or, given labels, those whose selected class is right.

    A score needs no radius where the selected class is wrong.
    """
    if labels is None:
        return torch.ones_like(selected).bool()
    if len(labels) != len(selected):
        raise Mistake(f"labels must be one per image, {len(selected)}, got {len(labels)}")
    return selected == torch.as_tensor(labels)


def conclude(
    counts0: Tally,
    counts: Tally,
    *,
    sigma: float,
    n: int,
    alpha: float,
    bound: str,
    drawn: Tensor | None = None,
    exact: bool = True,
) -> list[Certificate]:
    """The certificates that two tallies of different samples support.

    ĉ_A ← top index in counts0                                           [Cohen+19, CERTIFY]
    p̲_A ← LowerConfBound(counts[ĉ_A], n, 1 − α);  p̄_B ← 1 − p̲_A, or the bound's own
    if p̲_A > p̄_B return ĉ_A and radius σ/2·(Φ⁻¹(p̲_A) − Φ⁻¹(p̄_B)), else ABSTAIN

    Args:
        counts0, counts: with the soft moments at one β, (images, classes).
        drawn: the number of samples in each image's counts, n or 0, any number up to n for a bound
            that holds at any time; n for all if None.
        exact: whether the noise of the samples was exact.
    """
    named = bound_named(bound)
    selection, estimation = named.totals(counts0), named.totals(counts)
    selected = selected_classes(counts0, bound)
    p_a, p_b = named.probabilities(counts, selected, n, alpha, drawn)
    radius = radius_lower(p_a, sigma, p_b)
    return [
        Certificate(
            label=int(selected[i]) if p_a[i] > p_b[i] else ABSTAIN,
            radius=float(radius[i]),
            selected=int(selected[i]),
            p_a=float(p_a[i]),
            selection=tuple(selection[i].tolist()),
            estimation=tuple(estimation[i].tolist()),
            drawn=n if drawn is None else int(drawn[i]),
            squares=tuple(counts.second[i].tolist()) if named.soft else (),
            p_b=float(p_b[i]) if named.upper else None,
            exact=exact,
        )
        for i in range(len(selected))
    ]


def conclude_at(
    counts0: Tensor,
    counts: Tensor,
    drawn: Tensor,
    *,
    radius: float,
    sigma: float,
    n: int,
    alpha: float,
    exact: bool = True,
) -> list[Certificate]:
    """The certificates that the votes (images, classes) support at one radius."""
    p0, selected = p0_at(radius, sigma), counts0.argmax(dim=1)
    votes = counts.gather(1, selected[:, None]).squeeze(1).numpy()
    robust = decisions(votes, drawn.numpy(), p0=p0, alpha=alpha, n_max=n) == Decision.ROBUST
    return [
        Certificate(
            label=int(selected[i]) if is_robust else ABSTAIN,
            radius=radius if is_robust else 0.0,
            selected=int(selected[i]),
            p_a=p0 if is_robust else 0.0,
            selection=tuple(counts0[i].tolist()),
            estimation=tuple(counts[i].tolist()),
            drawn=int(drawn[i]),
            exact=exact,
        )
        for i, is_robust in enumerate(robust)
    ]


def conclude_labels(votes: Tensor, *, alpha: float) -> list[int]:
    """The label of each image that the votes (images, classes) support, or ABSTAIN.

    ĉ_A, ĉ_B ← top two indices in counts;  n_A, n_B ← counts[ĉ_A], counts[ĉ_B]
    if BinomPValue(n_A, n_A + n_B, ½) ≤ α return ĉ_A, else ABSTAIN        [Cohen+19, PREDICT]
    """
    n_top, top = votes.topk(2, dim=1)
    n_a, n_b = n_top.numpy().T
    p_value = binomial_p_value(n_a, n_b)
    return [int(c) if p <= alpha else ABSTAIN for c, p in zip(top[:, 0], p_value, strict=True)]
