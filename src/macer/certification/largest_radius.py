"""PREDICT and CERTIFY, hard and soft: from tallies of noisy samples to labels with radii."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import bdtrc
from torch import Tensor, nn

from macer.certification.certificate import ABSTAIN, Certificate
from macer.errors import Mistake
from macer.recipes import MOST_VOTES, check_seed
from macer.smoothing.radius import (
    Floats,
    bernstein_lower,
    clopper_pearson_lower,
    hoeffding_lower,
    radius_lower,
)
from macer.smoothing.sampling import (
    MOST_SOFT_SAMPLES,
    SOFT_UNIT,
    Progress,
    Tally,
    sample_under_noise,
)
from macer.smoothing.streams import Purpose

Images = Tensor | NDArray[Any]


def _clopper_pearson(tally: Tally, selected: Tensor, n: int, alpha: float) -> Floats:
    return clopper_pearson_lower(_at(tally.votes, selected), n, alpha)


def _hoeffding(tally: Tally, selected: Tensor, n: int, alpha: float) -> Floats:
    return hoeffding_lower(_at(tally.first, selected) * SOFT_UNIT, n, alpha)


def _bernstein(tally: Tally, selected: Tensor, n: int, alpha: float) -> Floats:
    total = _at(tally.first, selected) * SOFT_UNIT
    return bernstein_lower(total, _at(tally.second, selected) * SOFT_UNIT**2, n, alpha)


def _at(totals: Tensor, selected: Tensor) -> Floats:
    return totals.gather(1, selected[:, None]).squeeze(1).numpy().astype(np.float64)


Bound = Callable[[Tally, Tensor, int, float], Floats]

# Lower bounds of the selected class's probability: hard votes, then the two soft ones.
BOUNDS: dict[str, Bound] = {
    "clopper-pearson": _clopper_pearson,
    "hoeffding": _hoeffding,
    "bernstein": _bernstein,
}


class Kind(NamedTuple):
    """Which smoothed classifier to certify, and how."""

    bound: str = "clopper-pearson"
    beta: float = 1.0  # of a soft one


def certify(
    model: nn.Module,
    images: Images,
    *,
    sigma: float,
    n0: int = 100,
    n: int = 100_000,
    alpha: float = 0.001,
    seed: int = 0,
    bound: str = "clopper-pearson",
    beta: float = 1.0,
    exact: bool | None = None,
    labels: Sequence[int] | None = None,
    batch_size: int | None = None,
    row_by_row: bool = False,
    indices: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> list[Certificate]:
    """Certify the smoothed classifier around each image.                 [Cohen+19, CERTIFY]

    counts0 ← SampleUnderNoise(f, x, n0, σ)
    ĉ_A ← top index in counts0
    counts ← SampleUnderNoise(f, x, n, σ)            other samples than counts0
    p̲_A ← LowerConfBound(counts[ĉ_A], n, 1 − α)
    if p̲_A > ½ return ĉ_A and radius σΦ⁻¹(p̲_A), else ABSTAIN

    For each image, with probability at least 1 − α over the noise, either it abstains or the
    smoothed classifier returns the same label everywhere within the radius.

    `bound` is "clopper-pearson" for the classifier smoothed by hard votes, or "hoeffding" or
    "bernstein" for the one smoothed softly at inverse temperature β [Zhai+20, Alg. 2].

    Args:
        images: (images, channels, height, width), float in [0, 1] or uint8, a tensor or an array.
        exact: noise for which this holds in floating point too (exact.py); by default wherever
            all images allow it: uint8, or floats that are multiples of 1/255. With ordinary noise,
            which False asks for, rounding is left out of account, and the certificate says so.
        labels: true classes, for a score that needs no radius where the selected class is wrong:
            such an image is abstained from without drawing its n samples.
        row_by_row: show the network one noisy copy at a time, for one whose logits depend on the
            other rows of a batch. It is then a function of that copy alone: no other can matter.
            Randomness and what it keeps between calls are refused as ever. Slow.
        indices: the number of each image in its data set, which names its noise; 0, 1, … if None.
        progress: called with the number of samples drawn since the last call.
    """
    [certificates] = certify_kinds(
        model,
        images,
        [Kind(bound, beta)],
        sigma=sigma,
        n0=n0,
        n=n,
        alpha=alpha,
        seed=seed,
        exact=exact,
        labels=labels,
        batch_size=batch_size,
        row_by_row=row_by_row,
        indices=indices,
        progress=progress,
    )
    return certificates


def certify_kinds(
    model: nn.Module,
    images: Images,
    kinds: Sequence[Kind],
    *,
    sigma: float,
    n0: int = 100,
    n: int = 100_000,
    alpha: float = 0.001,
    seed: int = 0,
    exact: bool | None = None,
    labels: Sequence[int] | None = None,
    batch_size: int | None = None,
    row_by_row: bool = False,
    indices: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> list[list[Certificate]]:
    """CERTIFY for several smoothed classifiers of one network, from one pass over the samples.

    Each kind's certificates are those that `certify` gives alone; each holds at its own level.
    """
    for kind in kinds:
        check_settings(
            sigma=sigma, n0=n0, n=n, alpha=alpha, bound=kind.bound, beta=kind.beta, seed=seed
        )
    images = as_images(images, exact=exact)
    sampler = Sampler(
        model,
        images,
        range(len(images)) if indices is None else indices,
        sigma=sigma,
        seed=seed,
        betas=tuple(dict.fromkeys(kind.beta for kind in kinds if is_soft(kind.bound))),
        batch_size=batch_size,
        row_by_row=row_by_row,
        progress=progress,
    )
    everyone = torch.arange(len(images))
    if len(everyone) == 0:
        return [[] for _ in kinds]
    counts0 = sampler.draw(n0, Purpose.SELECTION, everyone)
    wanted = [_wanted(sampler.at(counts0, kind.beta), kind.bound, labels) for kind in kinds]
    chosen = everyone[torch.stack(wanted).any(dim=0)]
    counts = Tally(*(torch.zeros_like(total) for total in counts0))
    if len(chosen):
        fresh = sampler.draw(n, Purpose.ESTIMATION, chosen)
        for total, drawn in zip(counts, fresh, strict=True):
            total[chosen] = drawn
    return [
        conclude(
            sampler.at(counts0, kind.beta),
            _only(sampler.at(counts, kind.beta), these),
            sigma=sigma,
            n=n,
            alpha=alpha,
            bound=kind.bound,
            drawn=these * n,
            exact=is_exact(images),
        )
        for kind, these in zip(kinds, wanted, strict=True)
    ]


@dataclass(frozen=True)
class Sampler:
    """Draws samples of a network around any of some images."""

    model: nn.Module
    images: Tensor
    indices: Sequence[int]
    sigma: float
    seed: int
    betas: tuple[float, ...]
    batch_size: int | None
    row_by_row: bool
    progress: Progress | None

    def draw(self, num: int, purpose: Purpose, chosen: Tensor, drawn: int = 0) -> Tally:
        """The tally of `num` samples of each chosen image, after those drawn before."""
        return sample_under_noise(
            self.model,
            self.images[chosen.to(self.images.device)],
            num,
            sigma=self.sigma,
            seed=self.seed,
            purpose=purpose,
            indices=[self.indices[i] for i in chosen.tolist()],
            betas=self.betas,
            drawn=drawn,
            batch_size=self.batch_size,
            row_by_row=self.row_by_row,
            progress=self.progress,
        )

    def at(self, tally: Tally, beta: float) -> Tally:
        """The tally with the soft moments at one β, if it has them."""
        if beta not in self.betas:
            return tally
        column = self.betas.index(beta)
        return Tally(tally.votes, tally.first[:, column], tally.second[:, column])


def is_soft(bound: str) -> bool:
    """Whether a bound is one of the softly smoothed classifier's."""
    return bound != "clopper-pearson"


def _wanted(counts0: Tally, bound: str, labels: Sequence[int] | None) -> Tensor:
    """The images to estimate: all, or those whose selected class is right."""
    classes = selected_classes(counts0, bound)
    return torch.ones_like(classes).bool() if labels is None else are_right(classes, labels)


def are_right(selected: Tensor, labels: Sequence[int]) -> Tensor:
    """Which of the selected classes are the true ones."""
    if len(labels) != len(selected):
        raise Mistake(f"labels must be one an image, {len(selected)}, got {len(labels)}")
    return selected == torch.as_tensor(labels)


def _only(counts: Tally, these: Tensor) -> Tally:
    """The tally of some images; the others count as if nothing had been drawn."""
    return Tally(*(torch.where(these.view(-1, *[1] * (t.ndim - 1)), t, 0) for t in counts))


def selected_classes(counts0: Tally, bound: str) -> Tensor:
    """ĉ_A of each image: by votes, or by Σz for a soft certificate."""
    return (counts0.first if is_soft(bound) else counts0.votes).argmax(dim=1)


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
    """The certificates that two tallies of different samples support; no sampling here.

    Args:
        counts0, counts: with the soft moments at one β, (images, classes).
        drawn: samples behind each image's counts, n or 0; n for all if None.
        exact: whether their noise was.
    """
    selection = counts0.first if is_soft(bound) else counts0.votes
    estimation = counts.first if is_soft(bound) else counts.votes
    selected = selected_classes(counts0, bound)
    p_a = BOUNDS[bound](counts, selected, n, alpha)
    radius = radius_lower(p_a, sigma)
    return [
        Certificate(
            label=int(selected[i]) if p_a[i] > 0.5 else ABSTAIN,
            radius=float(radius[i]),
            selected=int(selected[i]),
            p_a=float(p_a[i]),
            selection=tuple(selection[i].tolist()),
            estimation=tuple(estimation[i].tolist()),
            drawn=n if drawn is None else int(drawn[i]),
            squares=tuple(counts.second[i].tolist()) if is_soft(bound) else (),
            exact=exact,
        )
        for i in range(len(selected))
    ]


# The softly smoothed classifier's certificates.  [Zhai+20, CertifyHoeffding, CertifyBernstein]
certify_hoeffding = partial(certify, bound="hoeffding")
certify_bernstein = partial(certify, bound="bernstein")


def predict(
    model: nn.Module,
    images: Images,
    *,
    sigma: float,
    n: int = 1000,
    alpha: float = 0.001,
    seed: int = 0,
    exact: bool | None = None,
    batch_size: int | None = None,
    row_by_row: bool = False,
    indices: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> list[int]:
    """The smoothed classifier's label for each image, or ABSTAIN.        [Cohen+19, PREDICT]

    counts ← SampleUnderNoise(f, x, n, σ)
    ĉ_A, ĉ_B ← top two indices in counts;  n_A, n_B ← counts[ĉ_A], counts[ĉ_B]
    if BinomPValue(n_A, n_A + n_B, ½) ≤ α return ĉ_A, else ABSTAIN

    A returned label is wrong about the smoothed classifier with probability at most α. Arguments
    are `certify`'s.
    """
    check_settings(sigma=sigma, n0=1, n=n, alpha=alpha, seed=seed)
    images = as_images(images, exact=exact)
    if len(images) == 0:
        return []
    tally = sample_under_noise(
        model,
        images,
        n,
        sigma=sigma,
        seed=seed,
        purpose=Purpose.PREDICTION,
        indices=range(len(images)) if indices is None else indices,
        batch_size=batch_size,
        row_by_row=row_by_row,
        progress=progress,
    )
    n_top, top = tally.votes.topk(2, dim=1)
    n_a, n_b = n_top.numpy().T
    # Two-sided: 2·P(X ≥ n_A) for X ~ Binomial(n_A + n_B, ½), at most 1.
    p_value = np.minimum(2 * bdtrc(n_a - 1.0, n_a + n_b, 0.5), 1.0)
    return [int(c) if p <= alpha else ABSTAIN for c, p in zip(top[:, 0], p_value, strict=True)]


def check_settings(
    *,
    sigma: float,
    n0: int,
    n: int,
    alpha: float,
    bound: str = "clopper-pearson",
    beta: float = 1.0,
    seed: int = 0,
) -> None:
    """Refuse settings that make no sense or can never certify anything."""
    for name, value in (("sigma", sigma), ("beta", beta)):
        if not (value > 0 and np.isfinite(value)):
            raise Mistake(f"{name} must be > 0, got {value}")
    if not 0 < alpha < 1:
        raise Mistake(f"alpha must be between 0 and 1, got {alpha}")
    for name, value in (("n0", n0), ("n", n)):
        if value < 1:
            raise Mistake(f"{name} must be at least 1, got {value}")
        if value > MOST_VOTES:
            raise Mistake(f"{name} must be at most {MOST_VOTES:,}, got {value}")
    check_seed(seed)
    if bound not in BOUNDS:
        raise Mistake(f"unknown bound {bound!r}; choose from {', '.join(BOUNDS)}")
    if is_soft(bound) and n > MOST_SOFT_SAMPLES:
        raise Mistake(f"n must be at most {MOST_SOFT_SAMPLES} with the {bound} bound, got {n}")
    if _best_bound(bound, n, alpha) <= 0.5:
        least = n
        while _best_bound(bound, least, alpha) <= 0.5:
            least += 1
        raise Mistake(
            f"n must be at least {least} to certify anything at alpha {alpha:g} "
            f"with the {bound} bound, got {n}"
        )


def _best_bound(bound: str, n: int, alpha: float) -> float:
    """The bound when every sample votes for the class: nothing can be better."""
    if n < 2 and bound == "bernstein":
        return 0.0
    ones = int(1 / SOFT_UNIT) if is_soft(bound) else 1
    tally = Tally(*(torch.tensor([[n * one]]) for one in (1, ones, ones * ones)))
    return float(BOUNDS[bound](tally, torch.tensor([0]), n, alpha)[0])


def as_images(images: Images, *, exact: bool | None = None) -> Tensor:
    """Images as uint8 for exact noise, or as float32 in [0, 1]; anything else is refused.

    uint8 stays as it is, and floats become uint8 if all of them are multiples of 1/255, unless
    exact is False; if it is True, other floats are refused.
    """
    images = as_tensor(images)
    if images.ndim != 4:
        raise Mistake(
            "images must have the shape (images, channels, height, width), "
            f"got {tuple(images.shape)}"
        )
    if images.dtype == torch.uint8:
        return images.float() / 255 if exact is False else images
    if not images.is_floating_point():
        kind = str(images.dtype).removeprefix("torch.")
        raise Mistake(f"images must be uint8 or floats in [0, 1], got {kind}; convert them")
    low, high = images.aminmax() if images.numel() else (torch.zeros(()), torch.ones(()))
    if not (low >= 0 and high <= 1):  # also when either is NaN
        raise Mistake(
            f"images must have values in [0, 1], got [{low:g}, {high:g}]; "
            "scale them and put normalisation into the model's first layer"
        )
    grid = None if exact is False else _on_grid(images)
    if exact and grid is None:
        raise Mistake("images must be 8-bit, multiples of 1/255, for exact noise; use exact=False")
    return images.float() if grid is None else grid


def is_exact(images: Tensor) -> bool:
    """Whether the noise of images that `as_images` gave is exact."""
    return images.dtype == torch.uint8


def as_tensor(images: object) -> Tensor:
    """Images, which may come as a NumPy array."""
    if isinstance(images, Tensor):
        return images
    if not isinstance(images, np.ndarray):
        kind = type(images).__name__
        raise Mistake(f"images must be a tensor or a NumPy array, got {kind}; convert them")
    native = images.astype(images.dtype.newbyteorder("="))  # a copy, which torch may write to
    try:
        return torch.from_numpy(native)
    except TypeError:
        raise Mistake(
            f"images must be uint8 or floats in [0, 1], got {images.dtype}; convert them"
        ) from None


def _on_grid(images: Tensor) -> Tensor | None:
    """255 times the images, as uint8, if they are the multiples of 1/255 nearest in their type.

    In float64 they may also be those of float32, from which they were made.
    """
    grid = (images.float() * 255).round().to(torch.uint8)
    multiples = (torch.arange(256, dtype=torch.float64) / 255).to(images.device)
    kinds = {images.dtype, torch.float32} if images.dtype == torch.float64 else {images.dtype}
    tables = (multiples.to(kind).to(images.dtype) for kind in kinds)
    return grid if any(torch.equal(table[grid.int()], images) for table in tables) else None
