"""Falsification: attack certificates from inside their balls, and judge what is found.

A certificate with bound p̲_A says of every x′ at distance ‖δ‖₂ from x, inside its radius and out:

Φ⁻¹(p_A(x′)) ≥ Φ⁻¹(p̲_A) − ‖δ‖₂/σ                             [Zhai+20, Appendix A, Lemma 1]

and inside the radius the right-hand side is positive: the class keeps more than half of the votes
and stays the label. Both are tested, each with fresh noise and at the level LEVEL:

- flip: PREDICT [Cohen+19] at x′ returns another class. Inside the radius this contradicts the
  certificate; outside it does not.
- violation: an upper confidence bound of p_A(x′) is below Φ(Φ⁻¹(p̲_A) − ‖δ‖₂/σ), at any distance.

What the attack returns is rounded to an 8-bit image no farther from x. It is then judged by the
very classifier that was certified, the one smoothed by integer noise if the certificate is exact,
and its distance is a sum of squared integers, in which no rounding hides.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import bdtrc, ndtr, ndtri
from torch import Tensor

from macer.attacks.images import pgd
from macer.certification.certificate import ABSTAIN
from macer.certification.journal import Contents
from macer.certification.largest_radius import as_images, is_soft
from macer.certification.record import Record
from macer.certification.target import PreparedModel, Target
from macer.data.sets import Split
from macer.errors import AuditFailed, Mistake
from macer.recipes import check_seed
from macer.smoothing.radius import clopper_pearson_lower, hoeffding_lower
from macer.smoothing.sampling import SOFT_UNIT, sample_under_noise
from macer.smoothing.streams import Purpose, fill_normal

# Probability that the noise of a judgement condemns a point falsely, for each point and test: a
# thousand points raise a false alarm once in five hundred attacks.
LEVEL = 1e-6

# Noisy copies that the network is differentiated for at once: few, since a backward pass keeps
# all activations of theirs.
_ROWS = 256

# The judgement of a restart is named by image + restart · 2³²; no data set has so many images.
_RESTARTS_APART = 2**32


@dataclass(frozen=True, kw_only=True)
class Search:
    """How hard an attack tries, and how closely it is judged."""

    scale: float  # ε as a multiple of the certified radius
    restarts: int  # the first from the image, the others from random points of the ball
    steps: int
    m: int  # noisy copies in the attack
    n: int  # fresh samples that judge a point
    seed: int

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise Mistake(f"scale must be > 0, got {self.scale}")
        for name in ("restarts", "steps", "m"):
            if getattr(self, name) < 1:
                raise Mistake(f"{name} must be at least 1, got {getattr(self, name)}")
        least = math.ceil(1 - math.log2(LEVEL))  # n votes for one class: 2 · 2⁻ⁿ ≤ LEVEL
        if self.n < least:
            raise Mistake(
                f"n must be at least {least} to confirm anything at level {LEVEL:g}, got {self.n}"
            )
        check_seed(self.seed)


@dataclass(frozen=True)
class Trial:
    """A point that an attack has found, and what fresh noise says of it."""

    idx: int
    label: int  # the certified class
    radius: float
    distance: float  # ‖δ‖₂
    p_a: float  # the share of the class at x′, as sampled
    p_a_upper: float  # its upper confidence bound
    demanded: float  # Φ(Φ⁻¹(p̲_A) − ‖δ‖₂/σ), below which p_A(x′) cannot be
    flipped: bool  # the label at x′ is confirmed to be another

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
        """Whether the certificate is contradicted in one way or the other."""
        return self.violated or (self.flipped and self.inside)


def chosen_records(contents: Contents, images: int) -> list[Record]:
    """The first certified images of a journal, in the order of their numbers."""
    if images < 1:
        raise Mistake(f"images must be at least 1, got {images}")
    chosen: list[Record] = []
    for idx in sorted(contents.records):
        record = contents.records[idx]
        if record.certificate.label != ABSTAIN and record.certificate.radius > 0:
            chosen.append(record)
        if len(chosen) == images:
            break
    if not chosen:
        raise Mistake("no certificate to attack: the journal holds abstentions only")
    return chosen


def falsify(
    contents: Contents,
    records: Sequence[Record],
    model: PreparedModel,
    split: Split,
    search: Search,
) -> Iterator[Trial]:
    """Attack each certificate from every start; yield a judged trial for each."""
    header = contents.header
    soft = is_soft(header.bound)
    # A certificate belongs to the copy that was certified: it judges, its original is attacked.
    target, device = model.target, model.device
    target.model.to(device)
    target.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    size = max(1, _ROWS // search.m)
    for begin in range(0, len(records), size):
        block = records[begin : begin + size]
        these = split.images[[record.idx for record in block]]
        pixels = torch.from_numpy(np.asarray(these)).to(device)
        for restart in range(search.restarts):
            found = attack(target, pixels, block, search, restart)
            tally = sample_under_noise(
                model.network,
                as_images(found, exact=header.exact),
                search.n,
                sigma=target.sigma,
                seed=search.seed,
                purpose=Purpose.JUDGEMENT,
                indices=[record.idx + restart * _RESTARTS_APART for record in block],
                betas=(header.beta,) if soft else (),
                row_by_row=header.row_by_row,
            )
            totals = tally.first[:, 0] if soft else tally.votes
            moved = _norm(found.double() - pixels.double()).flatten() / 255
            for i, record in enumerate(block):
                distance = moved[i].item()
                yield judge(record, totals[i], distance, sigma=target.sigma, n=search.n, soft=soft)


def attack(
    target: Target, pixels: Tensor, records: Sequence[Record], search: Search, restart: int
) -> Tensor:
    """8-bit images within scale · R of the given ones that the attack thinks are another class."""
    draws = pixels.new_empty((len(pixels), search.m + 1, *pixels.shape[1:]), dtype=torch.float32)
    for out, record in zip(draws, records, strict=True):
        fill_normal(out, seed=search.seed, purpose=Purpose.ATTACK, image=record.idx, chunk=restart)
    images = pixels.float() / 255
    certificates = [record.certificate for record in records]
    radii = torch.tensor([c.radius for c in certificates], dtype=torch.float64).to(pixels.device)
    epsilon = search.scale * radii
    start = None
    if restart > 0:  # in many dimensions almost all of a ball is close to its surface
        direction = torch.nn.functional.normalize(draws[:, -1].flatten(1)).view_as(images)
        start = images + epsilon.float()[:, None, None, None] * direction
    perturbed = pgd(
        target.model,
        images,
        torch.tensor([c.label for c in certificates]).to(pixels.device),
        target.sigma * draws[:, :-1],
        epsilon=epsilon,
        steps=search.steps,
        start=start,
    )
    return to_grid(pixels, perturbed.double() - images.double())


def to_grid(pixels: Tensor, delta: Tensor) -> Tensor:
    """The 8-bit image farthest along δ whose distance from x is at most ‖δ‖₂.

    d(t) = clamp(round(255(x + tδ)), 0, 255) − 255x;  ‖d(t)‖₂ grows with t, which is bisected.

    Plain rounding would leave the ball, or, of a δ below half a level everywhere, nothing. What
    remains along a δ spread evenly over 28×28 pixels is 99.9% at norm 1, 99% at 0.25, 78% at 0.05;
    over 3×224×224 pixels 90% at 1 and 67% at 0.5.

    Args:
        pixels: 255x, (images, channels, height, width) uint8.
        delta: float64, for images in [0, 1].
    """
    x, step = pixels.double(), 255 * delta
    reach, largest = _norm(step), step.abs().amax(dim=(1, 2, 3), keepdim=True)

    def rounded(t: Tensor) -> Tensor:
        return (x + t * step).round().clamp(0, 255)

    inner = torch.zeros_like(reach)
    # Here the largest entry alone is beyond reach, or everything is clamped.
    outer = (reach + 1) / largest.clamp(min=1e-9)
    for _ in range(40):
        t = (inner + outer) / 2
        inside = _norm(rounded(t) - x) <= reach
        inner, outer = torch.where(inside, t, inner), torch.where(inside, outer, t)
    return rounded(inner).to(torch.uint8)


def _norm(delta: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(delta, dim=(1, 2, 3), keepdim=True)
    return norm


def judge(
    record: Record, totals: Tensor, distance: float, *, sigma: float, n: int, soft: bool
) -> Trial:
    """What n fresh samples at a point say of the certificate; no sampling here.

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
    """The Clopper–Pearson upper bound: one minus the lower bound of what is not the class."""
    return 1.0 - float(clopper_pearson_lower(n - votes, n, LEVEL))


def _soft_upper(total: int, n: int) -> float:
    """Hoeffding's upper bound of E z_A; each z was rounded down by less than a unit."""
    return 1.0 - float(hoeffding_lower(n - (total + n) * SOFT_UNIT, n, LEVEL))


def _hard_flip(own: int, rival: int) -> bool:
    """Whether PREDICT returns the rival: 2·P(X ≥ n_B) ≤ LEVEL, X ~ Binomial(n_A + n_B, ½)."""
    return rival > own and 2 * float(bdtrc(rival - 1.0, own + rival, 0.5)) <= LEVEL


def _soft_flip(own: int, rival: int, n: int, classes: int) -> bool:
    """Whether E z_B > E z_A, by Hoeffding for z_B − z_A in [−1, 1]; B is the best of its likes."""
    lead = (rival - own - n) * SOFT_UNIT / n
    return lead >= math.sqrt(2 * math.log((classes - 1) / LEVEL) / n)


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What an attack came to, in numbers of images."""

    images: int
    first: int
    last: int
    flipped_inside: int  # the label is confirmed to be another inside the radius
    flipped_beyond: int
    violated: int  # the certificate's bound is confirmed to be false
    closest: Trial  # with the lowest margin
    alpha: float
    looked_at: int  # images up to the last
    level: float = LEVEL


def findings(trials: Sequence[Trial], contents: Contents) -> Findings:
    """What the attack came to."""
    images = sorted({trial.idx for trial in trials})
    flips = {trial.idx for trial in trials if trial.flipped}
    inside = {trial.idx for trial in trials if trial.flipped and trial.inside}
    return Findings(
        images=len(images),
        first=images[0],
        last=images[-1],
        flipped_inside=len(inside),
        flipped_beyond=len(flips - inside),
        violated=len({trial.idx for trial in trials if trial.violated}),
        closest=min(trials, key=lambda trial: trial.p_a_upper - trial.demanded),
        alpha=contents.header.alpha,
        looked_at=sum(idx <= images[-1] for idx in contents.records),
    )


def summary(found: Findings, search: Search) -> list[str]:
    """What the attack came to, in lines."""
    closest = found.closest
    return [
        f"attacked {found.images} certified images, {found.first}…{found.last}, within "
        f"{search.scale:g} of their radii: {search.restarts} restarts, {search.steps} steps, "
        f"m = {search.m}",
        f"label confirmed to be another: {found.flipped_inside} inside the radius, "
        f"{found.flipped_beyond} beyond it, where nothing is certified",
        f"p_A(x′) confirmed to be below Φ(Φ⁻¹(p_A) − ‖δ‖/σ): {found.violated}",
        f"lowest margin {closest.p_a_upper - closest.demanded:+.4f}: image {closest.idx}, at "
        f"distance {closest.distance:.4f}, has p_A(x′) ≤ {closest.p_a_upper:.4f}, "
        f"its certificate demands {closest.demanded:.4f}",
        f"each confirmed by n = {search.n} at level {found.level:g}; at α = {found.alpha:g}, up to "
        f"{found.alpha * found.looked_at:g} false certificates are expected in the "
        f"{found.looked_at} images up to {found.last}",
    ]


def check(trials: Sequence[Trial], contents: Contents) -> None:
    """Raise if a certificate is falsified."""
    if not (falsified := [trial for trial in trials if trial.falsifies]):
        return
    first = falsified[0]
    reason = f"the label is not class {first.label}"
    if first.violated:
        reason = (
            f"class {first.label} has at most {first.p_a_upper:.4f}, "
            f"its certificate demands {first.demanded:.4f}"
        )
    false, images = (len({trial.idx for trial in some}) for some in (falsified, trials))
    raise AuditFailed(
        f"{false} of {images} certificates false, α is {contents.header.alpha:g} for each; "
        f"image {first.idx}, at distance {first.distance:.4f} of radius {first.radius:.4f}: "
        f"{reason}"
    )
