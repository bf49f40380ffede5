"""A training objective by its name, with the settings that are its own."""

from collections.abc import Iterator, Mapping
from typing import Any

from macer.system.errors import Mistake
from macer.system.typed import shown

NAME = "name"  # of the loss, beside its settings in a [loss] table


class Loss(Mapping[str, Any]):
    """`Loss("macer", lam=4.0)`: the name of an objective, and a mapping of its settings.

    The objective's function declares which settings there are and what they default to
    (`macer.losses.completed` fills them in); this record only carries what was given.
    """

    def __init__(self, name: str = "macer", /, **settings: Any) -> None:
        self.name = name
        self._settings = settings

    def __getitem__(self, setting: str) -> Any:
        return self._settings[setting]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Loss):
            return NotImplemented
        return self.name == other.name and self._settings == other._settings

    def __hash__(self) -> int:
        return hash((self.name, *sorted(self._settings)))

    def __repr__(self) -> str:
        settings = "".join(f", {name}={value!r}" for name, value in self.items())
        return f"Loss({self.name!r}{settings})"

    def changed(self, **settings: Any) -> "Loss":
        """The same loss with other values of these settings."""
        return Loss(self.name, **{**self, **settings})

    def to_dict(self) -> dict[str, Any]:
        """The loss as a recipe's file has it: its name, then its settings."""
        return {NAME: self.name, **self}


def as_loss(value: object) -> Loss:
    """A loss from itself, from its name, or from a table with its name and settings."""
    if isinstance(value, Loss) and isinstance(value.name, str):
        return value
    if isinstance(value, str):
        return Loss(value)
    if isinstance(value, Mapping) and isinstance(value.get(NAME), str):
        return Loss(value[NAME], **{str(name): value[name] for name in value if name != NAME})
    if isinstance(value, Mapping | list) and not isinstance(value, Loss):
        raise Mistake(
            f"loss must be a table with the name of one and its settings, got {shown(value)}; "
            'write: [loss] name = "macer", each on its own line'
        )
    raise Mistake(
        f"loss must be a Loss, the name of one, or a table with a name and settings, got "
        f"{shown(value)}; a recipe is written into files: name it as package.module:function"
    )
