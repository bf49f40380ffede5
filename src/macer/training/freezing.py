"""Parts of a network that a training leaves as they are."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from torch import nn

from macer.recipes import TrainRecipe
from macer.system.errors import Mistake
from macer.system.user_code import nearest


class Frozen(NamedTuple):
    """What stays as it is: parts, which are kept in eval mode, and entries of the state_dict."""

    parts: list[nn.Module]
    names: frozenset[str]

    def keep_in_eval_mode(self) -> None:
        """Undo what `train()` did to the frozen parts: a batch-norm would move its statistics."""
        for part in self.parts:
            part.training = False


def freeze(model: nn.Module, recipe: TrainRecipe) -> Frozen:
    """Take the gradients off the parts that the recipe freezes.

    Args:
        model: normalisation and network; names are those in the network.
    """
    field, patterns = "freeze", recipe.freeze
    if recipe.denoiser != "none":
        patterns = ("classifier",)
    elif recipe.freeze_all_but:
        field, patterns = "freeze_all_but", recipe.freeze_all_but
    if not patterns:
        return Frozen([], frozenset())
    network = model.get_submodule("1")
    parts = {name: part for name, part in network.named_modules() if name}
    tensors = network.state_dict(keep_vars=True)
    known = [*parts, *tensors]
    frozen = chosen = set(_matching(field, patterns, known))
    if field == "freeze_all_but":
        above = {outer for name in chosen for outer in _outer(name)}
        frozen = {name for name in known if name not in chosen | above}
    for name, parameter in network.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise Mistake(f"{field} must leave something to train, got {' '.join(patterns)}")
    return Frozen(
        [part for name, part in parts.items() if name in frozen],
        frozenset(f"1.{name}" for name in tensors if name in frozen),
    )


def _matching(field: str, patterns: Iterable[str], known: list[str]) -> Iterator[str]:
    """The names that a pattern matches, and those of everything in such a part."""
    for pattern in patterns:
        found = [name for name in known if _is_in(name, pattern)]
        if not found:
            top = dict.fromkeys(name.partition(".")[0] for name in known)
            raise Mistake(
                f"{field} must name parts of the network, got {pattern}{nearest(pattern, known)}; "
                f"it has {', '.join(top)}"
            )
        yield from found


def _is_in(name: str, pattern: str) -> bool:
    """Whether a pattern matches a name or a part around it, part by part: * stops at a dot."""
    parts, patterns = name.split("."), pattern.split(".")
    return len(parts) >= len(patterns) and all(map(fnmatchcase, parts, patterns))


def _outer(name: str) -> Iterator[str]:
    """The parts around a part."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name
