"""Read weights from the files of any project, and load them into a network.

Two forms are usual in this field. The content of a file decides its form, not the file's name:

the code of [Zhai+20]               {net, epoch}                           conv1.weight, …
the code of [Cohen+19] and those    {epoch, arch, state_dict, optimizer}   1.conv1.weight, … or
built on it                                                                1.module.conv1.weight, …

In the second form the network is the second layer of a Sequential. The first layer is a
normalisation whose constants are plain attributes, so the file does not hold them: see
normalisation.py.

[Cohen+19]  Certified Adversarial Robustness via Randomized Smoothing. ICML 2019.
[Zhai+20]   MACER: Attack-free and Scalable Robust Training. ICLR 2020.
"""

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn

from macer.models.networks import MODELS
from macer.models.tensor_files import network_named, read_safetensors
from macer.models.torch_files import read_torch_file
from macer.system.errors import Mistake
from macer.system.files import read_file
from macer.system.pickles import RefusedName
from macer.system.text import shape_text

Tensors = dict[str, Tensor]

# DataParallel and torch.compile insert these parts into the names of tensors.
WRAPPERS = ("module", "_orig_mod")

# The names that files use for the constants of a normalisation (x − mean) / std.
CONSTANTS = {"mean": "mean", "means": "mean", "std": "std", "stds": "std", "sds": "std"}

# A batch-norm's count of batches; eval mode does not use it, and old torch versions lack it.
COUNT = "num_batches_tracked"

_CLASSES = 7  # of known networks that a file is compared with; any other number would do

LONGEST_NAME = 255  # characters; bounds the prefixes of a name that are tried


@dataclass(frozen=True)
class Weights:
    """The tensors of a file."""

    path: Path
    sha256: str
    tensors: Tensors  # names without the parts in WRAPPERS
    architecture: str | None  # the file's name for its network


@dataclass(frozen=True)
class Placement:
    """Where a network stood in the model that was saved, and the constants beside it."""

    prefix: str  # before the names of the network's tensors, such as "1."
    constants: Tensors  # "mean" and perhaps "std" of a normalisation, if the file has them
    new: tuple[str, ...] = ()  # the network's tensors that the file did not give

    @property
    def may_lack_normalisation(self) -> bool:
        """Whether the saved model may have had a normalisation that the file does not hold."""
        return not self.constants and not set(self.prefix.split(".")) <= {"", "0"}


def read_weights(path: Path) -> Weights:
    """Read the weights in a file of torch.save or of safetensors; no code in it is run."""
    if not path.is_file():
        raise Mistake(f"no weights at {path}: expected a file of torch.save or of safetensors")
    content = read_file(path)  # once, so that the hash belongs to the tensors
    saved = _saved_mapping(path, content)
    tensors = _state_dict(path, saved)
    architecture = saved.get("arch", network_named(content))
    return Weights(
        path,
        hashlib.sha256(content).hexdigest(),
        {plain: tensors[name] for plain, name in _without_wrappers(tensors, path).items()},
        architecture[:LONGEST_NAME] if isinstance(architecture, str) else None,
    )


def _saved_mapping(path: Path, content: bytes) -> Mapping[object, object]:
    """The mapping that was saved; anything else is refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of tensors that must not be written to
            saved = (
                read_safetensors(content)[0]
                if content[8:9] == b"{"  # a safetensors header: its length, then JSON
                else read_torch_file(content)
            )
    except RefusedName as refused:
        raise Mistake(_refusal(path, refused.name)) from refused
    except Exception as error:  # a damaged pickle may raise almost any exception
        raise Mistake(
            f"{path} must be a file of torch.save or of safetensors; it is damaged or something "
            "else"
        ) from error
    if not isinstance(saved, Mapping):
        raise Mistake(f"{path} must hold tensors by name, got a {type(saved).__name__}")
    return saved


def _refusal(path: Path, name: str) -> str:
    reason = "is no plain tensor" if name.startswith("torch._utils.") else "could run code"
    return (
        f"{path} must hold only tensors and plain values, got {name}, which {reason}; save the "
        "network's state_dict() alone"
    )


def _state_dict(path: Path, saved: Mapping[object, object]) -> Tensors:
    """The mapping from names to tensors: one entry of the saved mapping, or all of it."""
    parts = {id(value): (key, value) for key, value in saved.items()}  # each object once
    state_dicts = {key: value for key, value in parts.values() if _all_tensors(value)}
    if len(state_dicts) > 1:
        names = " and ".join(map(repr, list(state_dicts)[:3]))
        raise Mistake(f"{path} must hold the weights of one network, got {names}; save one alone")
    tensors = next(iter(state_dicts.values()), saved)
    if not isinstance(tensors, Mapping) or not _all_tensors(tensors):
        keys = ", ".join(map(repr, list(saved)[:5])) or "nothing"
        raise Mistake(f"{path} must hold the weights of a network, got {keys}")
    if (longest := max(map(len, tensors))) > LONGEST_NAME:
        raise Mistake(
            f"{path} must name its tensors in at most {LONGEST_NAME} characters, got {longest:,}"
        )
    return {name: tensor.detach() for name, tensor in tensors.items()}


def _all_tensors(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in value.items())
    )


def _without_wrappers(names: Iterable[str], owner: object) -> dict[str, str]:
    """From names without the parts in WRAPPERS to the original names."""
    plain: dict[str, str] = {}
    for name in names:
        key = ".".join(part for part in name.split(".") if part not in WRAPPERS)
        if key in plain:
            raise Mistake(f"{owner} must have one tensor {key}, got {plain[key]} and {name}")
        plain[key] = name
    return plain


def load_weights(
    network: nn.Module, weights: Weights, name: str, *, num_classes: int | None = None
) -> Placement:
    """Load all weights of a network from a file, which must hold no other weights.

    Args:
        name: the network's, for messages.
        num_classes: of the network; if given, its layer of classes stays as it is where the
            file's is of another number of classes.
    """
    fit = _fit(network.state_dict(), weights, name, num_classes)
    if any(fit.faults):
        raise Mistake(_misfit(weights, name, fit.faults))
    network.load_state_dict(fit.loaded, strict=False)
    return fit.placement


@dataclass(frozen=True)
class _Fit:
    """What of a file goes into a network, and why that will not do."""

    loaded: Tensors
    placement: Placement
    faults: tuple[str, ...]


def _fit(own: Tensors, weights: Weights, name: str, num_classes: int | None) -> _Fit:
    """Find the place of each of a network's tensors in a file."""
    names = _without_wrappers(own, name)
    needed = [plain for plain in names if _last_part(plain) != COUNT]
    if not needed:
        raise Mistake(f"{name} must have weights to load, got none; leave out --weights")
    prefix = _prefix(weights, needed, name)
    loaded = {
        own_name: weights.tensors[prefix + plain]
        for plain, own_name in names.items()
        if prefix + plain in weights.tensors
    }
    new = _layer_of_classes(own, loaded, num_classes)
    loaded = {key: tensor for key, tensor in loaded.items() if key not in new}
    others = sorted(weights.tensors.keys() - {prefix + plain for plain in names})
    constants = _constants({key: weights.tensors[key] for key in others})
    faults = (
        _listed("lacks", [plain for plain in needed if names[plain] not in {*loaded, *new}]),
        _listed("also has", [] if constants else others),
        _wrong_shapes(own, loaded),
    )
    return _Fit(loaded, Placement(prefix, constants, new), faults)


def _layer_of_classes(own: Tensors, loaded: Tensors, num_classes: int | None) -> tuple[str, ...]:
    """The tensors of the one layer that differs from the file's in the number of classes alone."""
    differing = [key for key, tensor in loaded.items() if tensor.shape != own[key].shape]
    layers = {key.rpartition(".")[0] for key in differing}
    if len(layers) != 1:
        return ()
    whole = {key for key in own if key.rpartition(".")[0] in layers}
    ours, theirs = ({values[key].shape[:1] for key in differing} for values in (own, loaded))
    rest_agrees = all(loaded[key].shape[1:] == own[key].shape[1:] for key in differing)
    agree = rest_agrees and ours == {(num_classes,)} and len(theirs) == 1 and theirs != {()}
    return tuple(differing) if agree and whole == set(differing) else ()


def _prefix(weights: Weights, needed: Sequence[str], name: str) -> str:
    """The prefix that most names of the network have in the file."""
    own = set(needed)
    tensors: Counter[str] = Counter()  # by prefix
    for key in weights.tensors:
        parts = key.split(".")
        for i in range(len(parts)):
            if ".".join(parts[i:]) in own:
                tensors["".join(f"{part}." for part in parts[:i])] += 1
    complete = sorted(prefix for prefix, count in tensors.items() if count == len(own))
    if len(complete) > 1:
        places = " and ".join(map(repr, complete))
        raise Mistake(f"{weights.path} must hold {name} once, got it at {places}; save one alone")
    return max(tensors, key=lambda prefix: (tensors[prefix], -len(prefix)), default="")


def _constants(others: Tensors) -> Tensors:
    """The mean, or mean and std, of a normalisation, if the other tensors are exactly these."""
    constants = {CONSTANTS.get(_last_part(key), key): tensor for key, tensor in others.items()}
    are_all = len(constants) == len(others) and set(constants) in ({"mean"}, {"mean", "std"})
    return constants if are_all else {}


def _wrong_shapes(own: Tensors, loaded: Tensors) -> str:
    """The first tensor of a wrong shape or with integers in place of floats, and how many more."""
    wrong = [
        key
        for key, tensor in loaded.items()
        if _type_and_shape(tensor) != _type_and_shape(own[key])
    ]
    if not wrong:
        return ""
    key, more = wrong[0], _and_more(len(wrong) - 1)
    return f"has {key} as {_type_and_shape(loaded[key])}, not {_type_and_shape(own[key])}{more}"


def _type_and_shape(tensor: Tensor) -> str:
    kind = "" if tensor.is_floating_point() else f"{tensor.dtype} ".removeprefix("torch.")
    return kind + (shape_text(tensor.shape) or "one number")


def _listed(verb: str, names: Sequence[str]) -> str:
    return f"{verb} {', '.join(names[:3])}{_and_more(len(names) - 3)}" if names else ""


def _and_more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def _known_networks(weights: Weights) -> list[str]:
    """The networks of `MODELS` whose weights a file holds, whatever its classes."""
    known = []
    for (name, build), channels in product(MODELS.items(), (3, 1)):
        with torch.device("meta"):  # names and shapes alone
            own = build(num_classes=_CLASSES, channels=channels).state_dict()
        if not any(_fit(own, weights, name, _CLASSES).faults):
            known.append(name)
    return known


def _misfit(weights: Weights, name: str, faults: Iterable[str]) -> str:
    known = _known_networks(weights)
    if known and name not in known:  # else its number of classes alone is another
        return (
            f"{weights.path} must hold the weights of {name}, got those of {' or '.join(known)}; "
            "name that network"
        )
    remark = f"; it calls its network {weights.architecture}" if weights.architecture else ""
    listed = ", ".join(fault for fault in faults if fault)
    return f"{weights.path} must hold the weights of {name}: it {listed}{remark}"


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]
