"""CERTIFY and PREDICT, hard and soft: the largest radius that n samples can show."""

from collections.abc import Sequence
from typing import NamedTuple, Required, TypedDict, Unpack

import torch

from macer.certification.certificate import Certificate
from macer.certification.conclusions import (
    conclude,
    conclude_labels,
    selected_classes,
    worth_estimating,
)
from macer.certification.settings import ImageArray, as_inputs, check_settings
from macer.data.value_range import IMAGE_RANGE, ValueRange
from macer.models.callables import Classifier, as_network
from macer.smoothing.bounds import bound_named
from macer.smoothing.sampling import Progress, Sampler
from macer.smoothing.streams import Purpose


class Kind(NamedTuple):
    """Which smoothed classifier to certify, and how."""

    bound: str = "clopper-pearson"
    beta: float = 1.0  # only a soft bound uses it


def certify(
    model: Classifier,
    images: ImageArray,
    *,
    sigma: float,
    n0: int = 100,
    n: int = 100_000,
    alpha: float = 0.001,
    seed: int = 0,
    bound: str = "clopper-pearson",
    beta: float = 1.0,
    exact: bool | None = None,
    value_range: ValueRange = IMAGE_RANGE,
    num_classes: int | None = None,
    labels: Sequence[int] | None = None,
    batch_size: int | None = None,
    row_by_row: bool = False,
    indices: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> list[Certificate]:
    """Certify the smoothed classifier around each input.                 [Cohen+19, CERTIFY]

    counts0 ← SampleUnderNoise(f, x, n0, σ)
    ĉ_A ← top index in counts0
    counts ← SampleUnderNoise(f, x, n, σ)            other samples than counts0
    p̲_A ← LowerConfBound(counts[ĉ_A], n, 1 − α)
    if p̲_A > ½ return ĉ_A and radius σΦ⁻¹(p̲_A), else ABSTAIN

    For each image, with probability at least 1 − α over the noise, either it abstains or the
    smoothed classifier returns the same label everywhere within the radius.

    `bound` is "clopper-pearson" for the classifier smoothed by hard votes, or "runner-up", which
    also bounds p_B from the counts, for the radius σ/2·(Φ⁻¹(p̲_A) − Φ⁻¹(p̄_B)); or "hoeffding" or
    "bernstein" for the one smoothed softly at inverse temperature β [Zhai+20, Alg. 2].

    Args:
        model: an nn.Module, or a callable from NumPy arrays to logits or labels; see
            `CallableNetwork`.
        images: (images, channels, height, width), float in [0, 1] or uint8, a tensor or an array;
            or floats of any shape (inputs, …). σ and radii are in their units.
        exact: noise for which the certificates also hold in floating point (exact_noise.py); by
            default wherever all images allow it: uint8, or floats that are multiples of 1/255.
            False asks for ordinary noise: rounding is then not accounted for, and the
            certificates say so. Inputs that are no images always have ordinary noise.
        value_range: the least and the largest value of the inputs; None for any finite floats.
            They are checked, no more: noise is not clipped, and radii do not end there.
        num_classes: the number of classes, which a callable that returns labels does not tell.
        labels: true classes, for a score, which needs no radius where the selected class is
            wrong: there it abstains without drawing the n samples.
        row_by_row: show the network one noisy copy at a time, if its logits depend on the other
            rows of a batch. Each answer is then a function of that copy alone. A network that is
            random or keeps something between calls is refused as always. Slow.
        indices: the number of each image in its data set, which names its noise; 0, 1, … if None.
        progress: called with the number of samples drawn since the last call.
    """
    inputs = as_inputs(images, sigma=sigma, exact=exact, value_range=value_range)
    kinds = [Kind(bound, beta)]
    sampler = Sampler(
        model=as_network(model, num_classes), images=inputs, sigma=sigma, seed=seed,
        indices=indices, betas=soft_betas(kinds), batch_size=batch_size, row_by_row=row_by_row,
        num_classes=num_classes, progress=progress,
    )  # fmt: skip
    [certificates] = sample_and_certify(sampler, kinds, n0=n0, n=n, alpha=alpha, labels=labels)
    return certificates


def certify_kinds(
    model: Classifier,
    images: ImageArray,
    kinds: Sequence[Kind],
    *,
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
) -> list[list[Certificate]]:
    """CERTIFY for several smoothed classifiers of one network, from one pass over the samples.

    Each kind's certificates are those that `certify` gives alone; each holds at its own level.
    Arguments are `certify`'s.
    """
    inputs = as_inputs(images, sigma=sigma, exact=exact, value_range=value_range)
    sampler = Sampler(
        model=as_network(model, num_classes), images=inputs, sigma=sigma, seed=seed,
        indices=indices, betas=soft_betas(kinds), batch_size=batch_size, row_by_row=row_by_row,
        num_classes=num_classes, progress=progress,
    )  # fmt: skip
    return sample_and_certify(sampler, kinds, n0=n0, n=n, alpha=alpha, labels=labels)


def sample_and_certify(
    sampler: Sampler,
    kinds: Sequence[Kind],
    *,
    n0: int,
    n: int,
    alpha: float,
    labels: Sequence[int] | None = None,
) -> list[list[Certificate]]:
    """CERTIFY for each kind, as `certify` states it, from one pass over the samples.

    counts0 ← SampleUnderNoise(f, x, n0, σ)                               [Cohen+19, CERTIFY]
    ĉ_A ← top index in counts0
    counts ← SampleUnderNoise(f, x, n, σ)
    p̲_A ← LowerConfBound(counts[ĉ_A], n, 1 − α)
    if p̲_A > ½ return ĉ_A and radius σΦ⁻¹(p̲_A), else ABSTAIN
    """
    for bound, beta in kinds:
        check_settings(
            sigma=sampler.sigma, n0=n0, n=n, alpha=alpha, bound=bound, beta=beta, seed=sampler.seed
        )
    if len(sampler.images) == 0:
        return [[] for _ in kinds]

    counts0 = sampler.draw(n0, Purpose.SELECTION)
    c_a = [selected_classes(sampler.at(counts0, beta), bound) for bound, beta in kinds]
    chosen = [worth_estimating(classes, labels) for classes in c_a]
    counts = sampler.draw(n, Purpose.ESTIMATION, only=torch.stack(chosen).any(dim=0))
    return [
        conclude(  # p̲_A; ĉ_A and σΦ⁻¹(p̲_A) if p̲_A > ½, else ABSTAIN
            sampler.at(counts0, beta),
            sampler.at(counts, beta).only(estimated),
            sigma=sampler.sigma,
            n=n,
            alpha=alpha,
            bound=bound,
            drawn=estimated * n,
            exact=sampler.exact,
        )
        for (bound, beta), estimated in zip(kinds, chosen, strict=True)
    ]


def soft_betas(kinds: Sequence[Kind]) -> tuple[float, ...]:
    """The inverse temperatures that soft bounds need moments at, each once."""
    return tuple(dict.fromkeys(beta for bound, beta in kinds if bound_named(bound).soft))


class SoftSettings(TypedDict, total=False):
    """The keywords of `certify`, all but the bound."""

    sigma: Required[float]
    n0: int
    n: int
    alpha: float
    seed: int
    beta: float
    exact: bool | None
    value_range: ValueRange
    num_classes: int | None
    labels: Sequence[int] | None
    batch_size: int | None
    row_by_row: bool
    indices: Sequence[int] | None
    progress: Progress | None


def certify_hoeffding(
    model: Classifier, images: ImageArray, **settings: Unpack[SoftSettings]
) -> list[Certificate]:
    """Certify the softly smoothed classifier by Hoeffding's bound.  [Zhai+20, CertifyHoeffding]

    ẑ₀ ← SampleUnderNoise(z, x, n0, σ²)[1, :] / n0;   z = softmax(βu)
    ĉ_A ← argmax_c ẑ₀ᶜ
    ẑ_A ← SampleUnderNoise(z, x, n, σ²)[1, ĉ_A] / n
    z̲_A ← ẑ_A − √(−log α / 2n)
    if z̲_A > ½ return ĉ_A and radius σΦ⁻¹(z̲_A), else ABSTAIN

    Settings are `certify`'s keywords, without `bound`.
    """
    return certify(model, images, bound="hoeffding", **settings)


def certify_bernstein(
    model: Classifier, images: ImageArray, **settings: Unpack[SoftSettings]
) -> list[Certificate]:
    """Certify the softly smoothed classifier by Bernstein's bound.  [Zhai+20, CertifyBernstein]

    ẑ₀ ← SampleUnderNoise(z, x, n0, σ²)[1, :] / n0;   z = softmax(βu)
    ĉ_A ← argmax_c ẑ₀ᶜ
    A ← SampleUnderNoise(z, x, n, σ²)
    ẑ_A ← A[1, ĉ_A] / n;   S²_A ← (A[2, ĉ_A] − A[1, ĉ_A]²/n) / (n − 1)
    z̲_A ← ẑ_A − √(2 S²_A log(2/α) / n) − 7 log(2/α) / 3(n − 1)
    if z̲_A > ½ return ĉ_A and radius σΦ⁻¹(z̲_A), else ABSTAIN

    Settings are `certify`'s keywords, without `bound`.
    """
    return certify(model, images, bound="bernstein", **settings)


def predict(
    model: Classifier,
    images: ImageArray,
    *,
    sigma: float,
    n: int = 1000,
    alpha: float = 0.001,
    seed: int = 0,
    exact: bool | None = None,
    value_range: ValueRange = IMAGE_RANGE,
    num_classes: int | None = None,
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
    inputs = as_inputs(images, sigma=sigma, exact=exact, value_range=value_range)
    sampler = Sampler(
        model=as_network(model, num_classes), images=inputs, sigma=sigma, seed=seed,
        indices=indices, batch_size=batch_size, row_by_row=row_by_row, num_classes=num_classes,
        progress=progress,
    )  # fmt: skip
    return sample_and_predict(sampler, n=n, alpha=alpha)


def sample_and_predict(sampler: Sampler, *, n: int, alpha: float) -> list[int]:
    """PREDICT: the label of each image, or ABSTAIN, from n samples."""
    check_settings(sigma=sampler.sigma, n0=1, n=n, alpha=alpha, seed=sampler.seed)
    if len(sampler.images) == 0:
        return []
    counts = sampler.draw(n, Purpose.PREDICTION)
    return conclude_labels(counts.votes, alpha=alpha)
