"""The normalisation before a network from another project, from its file or from the user.

Files of the code of [Cohen+19], and of code built on it, look the same for every first layer:
(x − mean) / std for CIFAR and ImageNet, x − mean in a version of the code of [Salman+19], none for
MNIST. Only the user knows which it was, and a wrong choice costs accuracy without a warning.

[Cohen+19]   Certified Adversarial Robustness via Randomized Smoothing. ICML 2019.
[Salman+19]  Provably Robust Deep Learning via Adversarially Trained Smoothed Classifiers. NeurIPS
             2019.
[Jeong+23]   Confidence-aware Training of Smoothed Classifiers for Certified Robustness. AAAI 2023.
"""

from typing import NamedTuple

import torch

from macer.models.weights import Placement, Weights
from macer.system.errors import Mistake
from macer.system.progress import note
from macer.system.user_code import nearest


class Normalisation(NamedTuple):
    """(x − mean) / std, one value per channel, for images in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __str__(self) -> str:
        mean, std = (",".join(f"{value:.9g}" for value in values) for values in self)
        return f"mean {mean}, std {std}"


NO_STD = (1.0, 1.0, 1.0)
CIFAR10_MEAN, CIFAR10_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
CIFAR100_MEAN, CIFAR100_STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# Constants of public code: [Cohen+19], for ImageNet torchvision's too, for CIFAR-100 [Jeong+23];
# centred: a version of [Salman+19].
NORMALISATIONS = {
    "cohen-cifar10": Normalisation(CIFAR10_MEAN, CIFAR10_STD),
    "cohen-imagenet": Normalisation(IMAGENET_MEAN, IMAGENET_STD),
    "jeong-cifar100": Normalisation(CIFAR100_MEAN, CIFAR100_STD),
    "centred-cifar10": Normalisation(CIFAR10_MEAN, NO_STD),
    "centred-imagenet": Normalisation(IMAGENET_MEAN, NO_STD),
    "imagenet": Normalisation(IMAGENET_MEAN, IMAGENET_STD),
}


def no_normalisation(channels: int) -> Normalisation:
    """The normalisation that leaves images as they are."""
    return Normalisation((0.0,) * channels, (1.0,) * channels)


def named_normalisation(name: str, channels: int, *, also: str = "") -> Normalisation:
    """The normalisation that a user names: none, a key of NORMALISATIONS, or MEAN/STD in numbers.

    Args:
        also: another name that the caller knows, for messages.
        name: numbers are separated by commas, as in 0.49,0.48,0.45/0.2,0.2,0.2; a single number
            is for every channel, as in 0.5/0.25.
    """
    if name == "none":
        return no_normalisation(channels)
    chosen = NORMALISATIONS.get(name) or _numbers(name, [*filter(None, ["none", also])])
    mean, std = (_per_channel(values, channels) for values in chosen)
    if not len(mean) == len(std) == channels:
        raise Mistake(
            f"normalise must have {channels} values, one per channel, got {name}; "
            f"choose from {_choices(channels)}"
        )
    return Normalisation(mean, std)


def _numbers(name: str, others: list[str]) -> Normalisation:
    mean, slash, std = name.partition("/")
    try:
        return Normalisation(*(tuple(map(float, part.split(","))) for part in (mean, std)))
    except ValueError:
        known = [*others, *NORMALISATIONS]
        guess = "" if slash else nearest(name, known)
        raise Mistake(
            f"unknown normalisation {name!r}{guess}; "
            f"choose from {', '.join(known)}, MEAN/STD in numbers"
        ) from None


def _per_channel(values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    return values * channels if len(values) == 1 else values


def _names(channels: int) -> list[str]:
    known = [name for name, chosen in NORMALISATIONS.items() if len(chosen.mean) == channels]
    return ["none", *known]


def _choices(channels: int) -> str:
    return ", ".join([*_names(channels), "MEAN/STD in numbers"])


def find_normalisation(
    weights: Weights, placement: Placement, name: str, *, asked: str | None, channels: int
) -> Normalisation:
    """The normalisation of a network from a file: the file's, or else the user's.

    Args:
        name: the network's, for messages.
        asked: the user's --normalise.
    """
    if placement.constants:
        if asked is not None:
            raise Mistake(
                f"normalise must be left out, since {weights.path} holds its own, got {asked}"
            )
        normalisation = _from_file(weights, placement, channels)
        note(f"{weights.path} normalises by {normalisation}")
        return normalisation
    if asked is not None:
        return named_normalisation(asked, channels)
    _check_unnormalised(weights, placement, name, _choices(channels))
    return no_normalisation(channels)


def check_normalisation(
    weights: Weights, placement: Placement, name: str, *, given: Normalisation, asked: str
) -> None:
    """Refuse to go on with a network's weights behind another normalisation than their own.

    Args:
        given: what stands before the network now.
        asked: how the user calls it; "none" may be a default, 0/1 is not.
    """
    channels = len(given.mean)
    if placement.constants:
        own = _from_file(weights, placement, channels)
        if not _same(own, given):
            raise Mistake(
                f"normalise must be that of {weights.path}, got {asked}; add --normalise "
                f"{_typed(own)}"
            )
    elif asked == "none":
        choices = _choices(channels).replace("none", "0/1 for none", 1)
        _check_unnormalised(weights, placement, name, choices)


def _same(one: Normalisation, other: Normalisation) -> bool:
    """Whether two are equal in float32, as files have them."""
    return torch.equal(*(torch.tensor(values, dtype=torch.float32) for values in (one, other)))


def _typed(own: Normalisation) -> str:
    """What to type for a normalisation: a name, if it has one."""
    channels = len(own.mean)
    for name in reversed(_names(channels)):  # imagenet before cohen-imagenet
        if _same(own, named_normalisation(name, channels)):
            return name
    return "/".join(",".join(f"{value:.9g}" for value in values) for values in own)


def _check_unnormalised(weights: Weights, placement: Placement, name: str, choices: str) -> None:
    """Refuse a file that may lack a normalisation; of another, say that it shows none."""
    if placement.may_lack_normalisation:
        raise Mistake(
            f"normalise must be given: {weights.path} holds {name} inside another module, at "
            f"{placement.prefix!r}, which may normalise by constants that the file lacks; add "
            f"--normalise, choose from {choices}"
        )
    note(
        f"{weights.path} shows nothing before {name}: images go in as they are, in [0, 1]; "
        "if they were normalised in training, add --normalise"
    )


def _from_file(weights: Weights, placement: Placement, channels: int) -> Normalisation:
    """The normalisation by the file's constants; without a std it only subtracts the mean."""
    ones = torch.ones(1)
    constants = {key: placement.constants.get(key, ones) for key in Normalisation._fields}
    for key, tensor in constants.items():
        if tensor.numel() not in (1, channels):
            raise Mistake(
                f"{weights.path} must hold a {key} of {channels} values, one per channel, "
                f"got {tensor.numel()}"
            )
        if not tensor.is_floating_point():
            raise Mistake(f"{weights.path} must hold a {key} of floats, got {tensor.dtype}")
    mean, std = (tuple(t.float().flatten().tolist()) for t in constants.values())
    return Normalisation(_per_channel(mean, channels), _per_channel(std, channels))
