"""PREDICT and CERTIFY, hard and soft: from tallies of noisy samples to labels with radii."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy.special import bdtrc
from torch import Tensor, nn

from macer.mistake import Mistake
from macer.noise import Purpose
from macer.radius import (
    Floats,
    bernstein_lower,
    clopper_pearson_lower,
    hoeffding_lower,
    radius_lower,
)
from macer.smoothing import SOFT_UNIT, Progress, Tally, sample_under_noise

ABSTAIN = -1


@dataclass(frozen=True)
class Certificate:
    """A class that holds within an ℓ₂ ball with confidence 1 − α, and the evidence for it."""

    label: int  # the class, or ABSTAIN
    radius: float  # 0.0 when abstaining
    selected: int  # ĉ_A, chosen on the n0 selection samples
    p_a: float  # the lower confidence bound of its probability
    selection: tuple[int, ...]  # per class: votes, or Σz for a soft certificate
    estimation: tuple[int, ...]  # the same over the n other samples
    squares: tuple[int, ...] = ()  # Σz², for a soft certificate


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


def certify(
    model: nn.Module,
    images: Tensor,
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
        images: (images, channels, height, width), float in [0, 1] or uint8.
        exact: noise for which this holds in floating point too (exact.py); by default for uint8.
        labels: true classes, for a score that needs no radius where the selected class is wrong:
            such an image is abstained from without drawing its n samples.
        indices: the number of each image in its data set, which names its noise; 0, 1, … if None.
        progress: called with the number of samples drawn, or skipped, since the last call.
    """
    check_settings(sigma=sigma, n0=n0, n=n, alpha=alpha, bound=bound, beta=beta)
    images = as_images(images, exact=exact)
    indices = range(len(images)) if indices is None else indices

    def sample(num: int, purpose: Purpose, chosen: Tensor) -> Tally:
        return sample_under_noise(
            model,
            images[chosen.to(images.device)],
            num,
            sigma=sigma,
            seed=seed,
            purpose=purpose,
            indices=[indices[i] for i in chosen.tolist()],
            beta=beta,
            batch_size=batch_size,
            progress=progress,
        )

    everyone = torch.arange(len(images))
    if len(everyone) == 0:
        return []
    counts0 = sample(n0, Purpose.SELECTION, everyone)
    chosen = everyone
    if labels is not None:
        chosen = everyone[_selected(counts0, bound) == torch.as_tensor(labels)]
    counts = Tally(*(torch.zeros_like(total) for total in counts0))
    if len(chosen):
        for total, fresh in zip(counts, sample(n, Purpose.ESTIMATION, chosen), strict=True):
            total[chosen] = fresh
    if progress:
        progress(n * (len(everyone) - len(chosen)))
    return conclude(counts0, counts, sigma=sigma, n=n, alpha=alpha, bound=bound)


def _selected(counts0: Tally, bound: str) -> Tensor:
    """ĉ_A of each image: by votes, or by Σz for a soft certificate."""
    return (counts0.votes if bound == "clopper-pearson" else counts0.first).argmax(dim=1)


def conclude(
    counts0: Tally, counts: Tally, *, sigma: float, n: int, alpha: float, bound: str
) -> list[Certificate]:
    """The certificates that two tallies of different samples support; no sampling here."""
    soft = bound != "clopper-pearson"
    selection = counts0.first if soft else counts0.votes
    estimation = counts.first if soft else counts.votes
    selected = _selected(counts0, bound)
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
            squares=tuple(counts.second[i].tolist()) if soft else (),
        )
        for i in range(len(selected))
    ]


# The softly smoothed classifier's certificates.  [Zhai+20, CertifyHoeffding, CertifyBernstein]
certify_hoeffding = partial(certify, bound="hoeffding")
certify_bernstein = partial(certify, bound="bernstein")


def predict(
    model: nn.Module,
    images: Tensor,
    *,
    sigma: float,
    n: int = 1000,
    alpha: float = 0.001,
    seed: int = 0,
    exact: bool | None = None,
    batch_size: int | None = None,
    indices: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> list[int]:
    """The smoothed classifier's label for each image, or ABSTAIN.        [Cohen+19, PREDICT]

    counts ← SampleUnderNoise(f, x, n, σ)
    ĉ_A, ĉ_B ← top two indices in counts;  n_A, n_B ← counts[ĉ_A], counts[ĉ_B]
    if BinomPValue(n_A, n_A + n_B, ½) ≤ α return ĉ_A, else ABSTAIN

    A returned label is wrong about the smoothed classifier with probability at most α.
    """
    check_settings(sigma=sigma, n0=1, n=n, alpha=alpha)
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
    if bound not in BOUNDS:
        raise Mistake(f"unknown bound {bound!r}; choose from {', '.join(BOUNDS)}")
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
    every = int(n / SOFT_UNIT)
    tally = Tally(*(torch.tensor([[total]]) for total in (n, every, int(every / SOFT_UNIT))))
    return float(BOUNDS[bound](tally, torch.tensor([0]), n, alpha)[0])


def as_images(images: Tensor, *, exact: bool | None = None) -> Tensor:
    """Images as uint8 for exact noise, or as float32 in [0, 1]; anything else is refused.

    uint8 stays as it is unless exact is False; floats become uint8 if exact is True and they are
    all multiples of 1/255.
    """
    if images.ndim != 4:
        raise Mistake(
            "images must have the shape (images, channels, height, width), "
            f"got {tuple(images.shape)}"
        )
    if images.dtype == torch.uint8:
        return images.float() / 255 if exact is False else images
    low, high = images.aminmax() if images.numel() else (torch.zeros(()), torch.ones(()))
    if not (low >= 0 and high <= 1):  # also when either is NaN
        raise Mistake(
            f"images must have values in [0, 1], got [{low:g}, {high:g}]; "
            "scale them and put normalisation into the model's first layer"
        )
    return _to_grid(images) if exact else images.float()


def _to_grid(images: Tensor) -> Tensor:
    grid = (images.double() * 255).round()
    if not torch.equal((grid / 255).to(images.dtype), images):
        raise Mistake("images must be 8-bit, multiples of 1/255, for exact noise; use exact=False")
    return grid.to(torch.uint8)


class Smooth:
    """The field's front to the functions above: one image a call.       [Cohen+19, core.py's API]

    Each call draws fresh noise, so that its result is independent of the calls before it.
    """

    ABSTAIN = ABSTAIN

    def __init__(
        self, base_classifier: nn.Module, num_classes: int, sigma: float, *, seed: int = 0
    ) -> None:
        self.base_classifier = base_classifier
        self.num_classes = num_classes
        self.sigma = sigma
        self.seed = seed
        self.calls = 0

    def certify(
        self, x: Tensor, n0: int, n: int, alpha: float, batch_size: int | None = None
    ) -> tuple[int, float]:
        """The label and radius at x (channels, height, width), or (ABSTAIN, 0.0)."""
        [certificate] = certify(
            self.base_classifier,
            x[None],
            sigma=self.sigma,
            n0=n0,
            n=n,
            alpha=alpha,
            seed=self.seed,
            batch_size=batch_size,
            indices=[self._next_call()],
        )
        self._check_classes(len(certificate.selection))
        return certificate.label, certificate.radius

    def predict(self, x: Tensor, n: int, alpha: float, batch_size: int | None = None) -> int:
        """The label at x (channels, height, width), or ABSTAIN."""
        [label] = predict(
            self.base_classifier,
            x[None],
            sigma=self.sigma,
            n=n,
            alpha=alpha,
            seed=self.seed,
            batch_size=batch_size,
            indices=[self._next_call()],
        )
        return label

    def _check_classes(self, classes: int) -> None:
        if classes != self.num_classes:
            raise Mistake(
                f"num_classes must be the network's number of outputs, {classes}, "
                f"got {self.num_classes}"
            )

    def _next_call(self) -> int:
        self.calls += 1
        return self.calls - 1
