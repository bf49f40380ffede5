"""CERTIFY for one radius R: is the image robust at R? Sampling stops once that is decided."""

from collections.abc import Sequence

import torch

from macer.certification.certificate import Certificate
from macer.certification.conclusions import conclude_at, worth_estimating
from macer.certification.settings import ImageArray, as_inputs, check_settings
from macer.data.value_range import IMAGE_RANGE, ValueRange
from macer.models.callables import Classifier, as_network
from macer.smoothing.sampling import Progress, Sampler
from macer.smoothing.sequential import Decision, check_radius, decisions, looks, p0_at
from macer.smoothing.streams import Purpose


def certify_at(
    model: Classifier,
    images: ImageArray,
    *,
    radius: float,
    sigma: float,
    n0: int = 100,
    n: int = 100_000,
    alpha: float = 0.001,
    seed: int = 0,
    exact: bool | None = None,
    value_range: ValueRange = IMAGE_RANGE,
    num_classes: int | None = None,
    labels: Sequence[int] | None = None,
    batch_size: int | None = None,
    row_by_row: bool = False,
    indices: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> list[Certificate]:
    """Certify each image at the radius R or abstain, with at most n samples and usually far fewer.

    ĉ_A ← top index in SampleUnderNoise(f, x, n0, σ)
    at each look: draw more samples; return ĉ_A and R once p_A ≤ Φ(R/σ) is rejected at level α,
    ABSTAIN once that is out of reach                                        [sequential.py]

    For each image, with probability at least 1 − α over the noise, either it abstains or the
    smoothed classifier returns the same label everywhere within R. Arguments are `certify`'s.
    """
    inputs = as_inputs(images, sigma=sigma, exact=exact, value_range=value_range)
    sampler = Sampler(
        model=as_network(model, num_classes), images=inputs, sigma=sigma, seed=seed,
        indices=indices, batch_size=batch_size, row_by_row=row_by_row, num_classes=num_classes,
        progress=progress,
    )  # fmt: skip
    return sample_and_certify_at(sampler, radius, n0=n0, n=n, alpha=alpha, labels=labels)


def sample_and_certify_at(
    sampler: Sampler,
    radius: float,
    *,
    n0: int,
    n: int,
    alpha: float,
    labels: Sequence[int] | None = None,
) -> list[Certificate]:
    """The certificates at one radius: the samples come look by look, as `certify_at` says."""
    sigma = sampler.sigma
    check_settings(sigma=sigma, n0=n0, n=n, alpha=alpha, seed=sampler.seed)
    check_radius(radius, sigma=sigma, alpha=alpha, n_max=n)
    if len(sampler.images) == 0:
        return []

    counts0 = sampler.draw(n0, Purpose.SELECTION).votes
    c_a = counts0.argmax(dim=1)
    is_open = worth_estimating(c_a, labels)  # a mask
    counts, drawn = torch.zeros_like(counts0), torch.zeros_like(c_a)
    p0, before = p0_at(radius, sigma), 0
    for size in looks(n):
        if not is_open.any():
            break
        more = sampler.draw(size - before, Purpose.ESTIMATION, only=is_open, after=before)
        counts += more.votes
        drawn[is_open] = before = size
        votes = counts[is_open, c_a[is_open]].numpy()
        decision = decisions(votes, size, p0=p0, alpha=alpha, n_max=n)
        is_open[is_open.clone()] = torch.from_numpy(decision == Decision.OPEN)
    return conclude_at(
        counts0, counts, drawn, radius=radius, sigma=sigma, n=n, alpha=alpha, exact=sampler.exact
    )
