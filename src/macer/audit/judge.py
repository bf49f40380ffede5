"""Judge a point that an attack has found, by fresh noise.

A certificate with bound p̲_A makes a claim about every x′ at distance ‖δ‖₂ from x, inside and
outside its radius:

Φ⁻¹(p_A(x′)) ≥ Φ⁻¹(p̲_A) − ‖δ‖₂/σ                             [Zhai+20, Appendix A, Lemma 1]

Inside the radius the class keeps more votes than any other and stays the label; more than half of
them, unless the certificate bounds p_B by itself. Two tests check this, each with fresh noise and
at the level LEVEL:

- flip: PREDICT [Cohen+19] at x′ returns another class. Inside the radius this contradicts the
  certificate; outside it does not.
- violation: an upper confidence bound of p_A(x′) is below Φ(Φ⁻¹(p̲_A) − ‖δ‖₂/σ), at any distance.
"""

import math
from dataclasses import dataclass

import torch
from scipy.special import ndtr, ndtri
from torch import Tensor

from macer.certification.record import Record
from macer.smoothing.confidence import binomial_p_value, clopper_pearson_upper, hoeffding_lower
from macer.smoothing.tally import SOFT_UNIT

# Probability that the noise of a judgement condemns a true certificate, per point and test: an
# attack on a thousand points raises a false alarm once in five hundred times.
LEVEL = 1e-6


@dataclass(frozen=True)
class Trial:
    """A point that an attack has found, and its judgement by fresh noise."""

    idx: int
    label: int  # the certified class
    radius: float
    distance: float  # ‖δ‖₂
    p_a: float  # the sampled share of the class at x′
    p_a_upper: float  # its upper confidence bound
    demanded: float  # Φ(Φ⁻¹(p̲_A) − ‖δ‖₂/σ), the least p_A(x′) that the certificate allows
    flipped: bool  # the label at x′ is confirmed to be another class

    @property
    def inside(self) -> bool:
        """Whether the point is inside the certified radius."""
        return self.distance <= self.radius

    @property
    def violated(self) -> bool:
        """Whether the certificate's bound is confirmed to be false."""
        return self.p_a_upper < self.demanded

    @property
    def falsifies(self) -> bool:
        """Whether one of the two tests contradicts the certificate."""
        return self.violated or (self.flipped and self.inside)


def judge(
    record: Record, totals: Tensor, distance: float, *, sigma: float, n: int, soft: bool
) -> Trial:
    """Judge a certificate by the totals of n fresh samples at a point; nothing is sampled here.

    Args:
        totals: (classes,) int64: votes, or Σz in units of 2⁻²⁰ for a soft certificate.
    """
    certificate = record.certificate
    own = int(totals[certificate.label])
    rival = int(totals.index_fill(0, torch.tensor(certificate.label), -1).max())
    return Trial(
        idx=record.idx,
        label=certificate.label,
        radius=certificate.radius,
        distance=distance,
        p_a=own * (SOFT_UNIT if soft else 1) / n,
        p_a_upper=_soft_upper(own, n) if soft else _hard_upper(own, n),
        demanded=float(ndtr(ndtri(certificate.p_a) - distance / sigma)),
        flipped=_soft_flip(own, rival, n, len(totals)) if soft else _hard_flip(own, rival),
    )


def _hard_upper(votes: int, n: int) -> float:
    """The Clopper–Pearson upper bound of the class's probability."""
    return float(clopper_pearson_upper(votes, n, LEVEL))


def _soft_upper(total: int, n: int) -> float:
    """Hoeffding's upper bound of E z_A; each z was rounded down by less than one unit."""
    return 1.0 - float(hoeffding_lower(n - (total + n) * SOFT_UNIT, n, LEVEL))


def _hard_flip(own: int, rival: int) -> bool:
    """Whether PREDICT returns the rival: 2·P(X ≥ n_B) ≤ LEVEL, X ~ Binomial(n_A + n_B, ½)."""
    return rival > own and float(binomial_p_value(rival, own)) <= LEVEL


def _soft_flip(own: int, rival: int, n: int, classes: int) -> bool:
    """Whether E z_B > E z_A, by Hoeffding for z_B − z_A in [−1, 1].

    B has the largest total of all other classes, so the level is divided by their number.
    """
    lead = (rival - own - n) * SOFT_UNIT / n
    return lead >= math.sqrt(2 * math.log((classes - 1) / LEVEL) / n)
