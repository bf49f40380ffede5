"""Is this image robust at R? CERTIFY for one radius, which stops as soon as it knows."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from macer.certification.certificate import ABSTAIN, Certificate
from macer.certification.largest_radius import (
    Images,
    Sampler,
    are_right,
    as_images,
    check_settings,
    is_exact,
)
from macer.smoothing.sampling import Progress
from macer.smoothing.sequential import Verdict, check_radius, looks, threshold, verdicts
from macer.smoothing.streams import Purpose


def certify_at(
    model: nn.Module,
    images: Images,
    *,
    radius: float,
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
) -> list[Certificate]:
    """Certify each image at the radius R or abstain, with at most n samples and usually far fewer.

    ĉ_A ← top index in SampleUnderNoise(f, x, n0, σ)
    at each look: draw more samples; return ĉ_A and R once p_A ≤ Φ(R/σ) is rejected at level α,
    ABSTAIN once that is out of reach                                        [sequential.py]

    For each image, with probability at least 1 − α over the noise, either it abstains or the
    smoothed classifier returns the same label everywhere within R. Arguments are `certify`'s.
    """
    check_settings(sigma=sigma, n0=n0, n=n, alpha=alpha, seed=seed)
    check_radius(radius, sigma=sigma, alpha=alpha, n_max=n)
    images = as_images(images, exact=exact)
    if len(images) == 0:
        return []
    sampler = Sampler(
        model,
        images,
        range(len(images)) if indices is None else indices,
        sigma=sigma,
        seed=seed,
        betas=(),
        batch_size=batch_size,
        row_by_row=row_by_row,
        progress=progress,
    )
    still_open = torch.arange(len(images))
    counts0 = sampler.draw(n0, Purpose.SELECTION, still_open).votes
    selected = counts0.argmax(dim=1)
    if labels is not None:
        still_open = still_open[are_right(selected, labels)]
    counts = torch.zeros_like(counts0)
    drawn = torch.zeros(len(images), dtype=torch.int64)
    p0, before = threshold(radius, sigma), 0
    for size in looks(n):
        if len(still_open) == 0:
            break
        more = sampler.draw(size - before, Purpose.ESTIMATION, still_open, drawn=before)
        counts[still_open] += more.votes
        drawn[still_open] = before = size
        votes = counts[still_open, selected[still_open]].numpy()
        found = verdicts(votes, size, p0=p0, alpha=alpha, n_max=n)
        still_open = still_open[torch.from_numpy(found == Verdict.OPEN)]
    return conclude_at(
        counts0,
        counts,
        drawn,
        radius=radius,
        sigma=sigma,
        n=n,
        alpha=alpha,
        exact=is_exact(images),
    )


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
    """What the votes (images, classes) say of the radius; no sampling here."""
    p0, selected = threshold(radius, sigma), counts0.argmax(dim=1)
    votes = counts.gather(1, selected[:, None]).squeeze(1).numpy()
    found = verdicts(votes, drawn.numpy(), p0=p0, alpha=alpha, n_max=n) == Verdict.ROBUST
    return [
        Certificate(
            label=int(selected[i]) if robust else ABSTAIN,
            radius=radius if robust else 0.0,
            selected=int(selected[i]),
            p_a=p0 if robust else 0.0,
            selection=tuple(counts0[i].tolist()),
            estimation=tuple(counts[i].tolist()),
            drawn=int(drawn[i]),
            exact=exact,
        )
        for i, robust in enumerate(found)
    ]
