"""Weights from the files of any project: what a file holds, and how a network takes it.

Two forms are those of this field. Both are found by what is in the file, not by its name:

the code of [Zhai+20]               {net, epoch}                           conv1.weight, …
the code of [Cohen+19] and those    {epoch, arch, state_dict, optimizer}   1.conv1.weight, … or
built on it                                                                1.module.conv1.weight, …

In the second the network is the second layer of a Sequential. The first is a normalisation whose
constants are plain attributes, so the file does not hold them: see normalisation.py.

[Cohen+19]  Certified Adversarial Robustness via Randomized Smoothing. ICML 2019.
[Zhai+20]   MACER: Attack-free and Scalable Robust Training. ICLR 2020.
"""

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from macer.errors import Mistake
from macer.models.tensor_files import read_safetensors
from macer.models.torch_files import read_torch_file
from macer.system.files import read_file
from macer.system.pickles import RefusedName
from macer.system.text import shape_text

Tensors = dict[str, Tensor]

# DataParallel and torch.compile put their names into those of the tensors and change nothing else.
WRAPPERS = ("module", "_orig_mod")

# What files call the constants of a normalisation (x − mean) / std.
CONSTANTS = {"mean": "mean", "means": "mean", "std": "std", "stds": "std", "sds": "std"}

# A batch-norm's count of batches: unused in eval mode, and absent from files of old torch versions.
COUNT = "num_batches_tracked"

LONGEST_NAME = 255  # characters; each part of a name may be where the network's own begins


@dataclass(frozen=True)
class Weights:
    """The tensors of a file."""

    path: Path
    sha256: str
    tensors: Tensors  # names without those of WRAPPERS
    architecture: str | None  # what the file calls its network


@dataclass(frozen=True)
class Surroundings:
    """What a file says of the place where its network stood."""

    prefix: str  # of the names of the network's tensors, such as "1."
    constants: Tensors  # "mean" and "std" of a normalisation beside it, as far as the file has them

    @property
    def silent(self) -> bool:
        """Whether something may stand before the network of which the file holds nothing."""
        return not self.constants and not set(self.prefix.split(".")) <= {"", "0"}


def read_weights(path: Path) -> Weights:
    """The weights in a file of torch.save or of safetensors; no code in it is run."""
    if not path.is_file():
        raise Mistake(f"no weights at {path}: expected a file of torch.save or of safetensors")
    content = read_file(path)  # once, so that the tensors are those that the hash is of
    saved = _opened(path, content)
    tensors = _state_dict(path, saved)
    architecture = saved.get("arch")
    return Weights(
        path,
        hashlib.sha256(content).hexdigest(),
        {plain: tensors[name] for plain, name in _without_wrappers(tensors, path).items()},
        architecture[:LONGEST_NAME] if isinstance(architecture, str) else None,
    )


def _opened(path: Path, content: bytes) -> Mapping[object, object]:
    """What was saved, a mapping."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of tensors that cannot be written to
            saved = (
                read_safetensors(content)[0]
                if content[8:9] == b"{"  # after the length of its header, safetensors' JSON
                else read_torch_file(content)
            )
    except RefusedName as refused:
        raise Mistake(_refusal(path, refused.name)) from refused
    except Exception as error:  # a damaged pickle raises nearly anything
        raise Mistake(
            f"{path} must be a file of torch.save or of safetensors; it is damaged or something "
            "else"
        ) from error
    if not isinstance(saved, Mapping):
        raise Mistake(f"{path} must hold tensors by name, got a {type(saved).__name__}")
    return saved


def _refusal(path: Path, name: str) -> str:
    why = "is no plain tensor" if name.startswith("torch._utils.") else "could run code"
    return (
        f"{path} must hold tensors and plain values alone, it asks for {name}, which {why}; save "
        "the network's state_dict() by itself"
    )


def _state_dict(path: Path, saved: Mapping[object, object]) -> Tensors:
    """The one mapping from names to tensors: an entry of what was saved, or all of it."""
    parts = {id(value): (key, value) for key, value in saved.items()}  # each looked at once
    found = {key: value for key, value in parts.values() if _all_tensors(value)}
    if len(found) > 1:
        names = " and ".join(map(repr, list(found)[:3]))
        raise Mistake(f"{path} must hold the weights of one network, got {names}; save one alone")
    tensors = next(iter(found.values()), saved)
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
    """Names without those of WRAPPERS, each with the name it came from."""
    plain: dict[str, str] = {}
    for name in names:
        key = ".".join(part for part in name.split(".") if part not in WRAPPERS)
        if key in plain:
            raise Mistake(f"{owner} must have one tensor {key}, got {plain[key]} and {name}")
        plain[key] = name
    return plain


def load_weights(network: nn.Module, weights: Weights, name: str) -> Surroundings:
    """Give a network its weights, every one of them and nothing else."""
    own = network.state_dict()
    names = _without_wrappers(own, name)
    needed = [plain for plain in names if _last(plain) != COUNT]
    if not needed:
        raise Mistake(f"{name} must have weights to load, got none; leave out --weights")
    prefix = _prefix(weights, needed, name)
    found = {
        own_name: weights.tensors[prefix + plain]
        for plain, own_name in names.items()
        if prefix + plain in weights.tensors
    }
    places = {prefix + plain for plain in names}
    others = sorted(weights.tensors.keys() - places)
    constants = _constants({key: weights.tensors[key] for key in others})
    faults = [
        _listed("lacks", [plain for plain in needed if names[plain] not in found]),
        _listed("has besides", [] if constants else others),
        _other_forms(own, found),
    ]
    if any(faults):
        raise Mistake(_misfit(weights, name, faults))
    network.load_state_dict(found, strict=False)
    return Surroundings(prefix, constants)


def _prefix(weights: Weights, needed: Sequence[str], name: str) -> str:
    """What the names in the file have before those of the network, or most of them."""
    wanted = set(needed)
    count: Counter[str] = Counter()
    for key in weights.tensors:
        parts = key.split(".")
        for i in range(len(parts)):
            if ".".join(parts[i:]) in wanted:
                count["".join(f"{part}." for part in parts[:i])] += 1
    whole = sorted(prefix for prefix, tensors in count.items() if tensors == len(wanted))
    if len(whole) > 1:
        places = " and ".join(map(repr, whole))
        raise Mistake(f"{weights.path} must hold {name} once, got it at {places}; save one alone")
    return max(count, key=lambda prefix: (count[prefix], -len(prefix)), default="")


def _constants(others: Tensors) -> Tensors:
    """The mean, or mean and std, of a normalisation, if that is what the other tensors are."""
    constants = {CONSTANTS.get(_last(key), key): tensor for key, tensor in others.items()}
    are_all = len(constants) == len(others) and set(constants) in ({"mean"}, {"mean", "std"})
    return constants if are_all else {}


def _other_forms(own: Tensors, found: Tensors) -> str:
    """The first tensor of another shape, or of integers where numbers are due, and how many."""
    wrong = [key for key, tensor in found.items() if _form(tensor) != _form(own[key])]
    if not wrong:
        return ""
    key, more = wrong[0], _and_more(len(wrong) - 1)
    return f"has {key} as {_form(found[key])}, not {_form(own[key])}{more}"


def _form(tensor: Tensor) -> str:
    kind = "" if tensor.is_floating_point() else f"{tensor.dtype} ".removeprefix("torch.")
    return kind + (shape_text(tensor.shape) or "one number")


def _listed(what: str, names: Sequence[str]) -> str:
    return f"{what} {', '.join(names[:3])}{_and_more(len(names) - 3)}" if names else ""


def _and_more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def _misfit(weights: Weights, name: str, faults: Iterable[str]) -> str:
    of = f"; it calls its network {weights.architecture}" if weights.architecture else ""
    told = ", ".join(fault for fault in faults if fault)
    return f"{weights.path} must hold the weights of {name}: it {told}{of}"


def _last(name: str) -> str:
    return name.rpartition(".")[2]
