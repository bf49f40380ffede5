"""The flags of `macer train RECIPE`: fields of the recipe, and settings of its loss."""

import ast
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import make_dataclass
from importlib.resources import files
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, NamedTuple, get_type_hints

from cyclopts import App, Group, Parameter
from cyclopts.config import Dict
from docstring_parser import parse, parse_from_object

from macer.cli.train import is_run, train
from macer.recipes import Loss, TrainRecipe, read_recipe
from macer.recipes.fields import FIELDS, MACER, whole_number
from macer.recipes.loss import as_loss
from macer.recipes.named import check_fields, naming
from macer.system.errors import Mistake
from macer.system.typed import kind_of
from macer.system.user_code import check_admitted, nearest

_HELP = {"--help", "-h", "--version"}
_GENERAL = {"help", "version", "json"}  # flags of every command
_EMPTY = "--empty-"  # makes a list empty
LISTS = ("--lr-decays", "--lr_decays")  # flags that take several numbers


class Words(NamedTuple):
    """What was typed after `macer train`."""

    recipe: str | None
    flags: Mapping[str, Sequence[str]]  # the values of each

    def last(self, flag: str) -> str | None:
        """The value that counts, if the flag was given."""
        values = self.flags.get(flag)
        return values[-1] if values else None


def one_value_per_flag(given: Sequence[str]) -> list[str]:
    """What was typed, with --lr-decays 2 3 as --lr-decays 2 --lr-decays 3.

    cyclopts would take a recipe that follows the numbers for one of them.
    """
    words: list[str] = []
    flag = None
    for place, word in enumerate(given):
        if word == "--":
            return [*words, *given[place:]]
        if flag and word.isdigit() and words[-1] != flag:
            words.append(flag)
        elif word in LISTS:
            flag = word
        elif flag and words[-1] != flag:
            flag = None
        words.append(word)
    return words


def train_command(given: Sequence[str]) -> App:
    """The command `train` for what was typed, with a flag for each setting of its loss."""
    words = _read(given)
    if words.recipe is None:
        if _HELP.isdisjoint(given):
            raise Mistake("train must have a recipe, got none; `macer recipes` lists them")
        return App(name="train", default_command=train)
    recipe, code = words.recipe, words.flags.get("--code", ())
    values = _recorded(recipe) if is_run(recipe) else read_recipe(recipe)
    check_fields(recipe, values)
    with naming(recipe):
        of_file = as_loss(values.pop("loss", MACER))
    loss = _loss(words, of_file)

    def from_file(app: App, commands: tuple[str, ...], arguments: Any) -> None:
        """Let the recipe's file give what no flag gives; code only if --code admits it."""
        with naming(recipe):
            whole = TrainRecipe(**values)
        fields = {name: getattr(whole, name) for name in values}
        # With no command's name: a field that is named like a command would be passed over.
        Dict(fields, source=recipe)(app, (), arguments)
        for token in (*arguments["--model"].tokens, *arguments["--dataset"].tokens):
            if token.source != "cli":
                check_admitted(token.value, code, source=f"recipe {recipe}")

    if (names := _names_of_settings(loss.name)) is not None:
        _check_flags(loss.name, names, words.flags)  # before torch is imported
    command = _with_settings(loss, words)
    if not _HELP.isdisjoint(given):
        with naming(recipe):
            _show_values(command, TrainRecipe(**values))
    return App(name="train", default_command=command, config=from_file)


def _recorded(folder: str) -> dict[str, Any]:
    """The recipe that a run was begun with, as a file has it."""
    from macer.runs.run import Run

    return Run(Path(folder)).read_recipe().to_dict()


def _loss(words: Words, of_file: Loss) -> Loss:
    """The file's loss; or another that a flag names, which has nothing from the file."""
    named = words.last("--loss")
    if named is not None and named != of_file.name:
        return Loss(named)
    if named is None:
        code = words.flags.get("--code", ())
        check_admitted(of_file.name, code, source=f"recipe {words.recipe}")
    return of_file


def _read(given: Sequence[str]) -> Words:
    """Separate flags, their values and the recipe, before the settings of the loss are known."""
    plain: list[str] = []
    flags: dict[str, list[str]] = {}
    rest = iter(given)
    for word in rest:
        flag, equals, value = word.partition("=")
        name = flag.replace("_", "-")  # cyclopts takes both
        if word == "--":
            plain += rest
        elif not word.startswith("--"):
            plain.append(word)
        elif equals or _is_switch(name):
            flags.setdefault(name, []).append(value)
        else:
            flags.setdefault(name, []).append(next(rest, ""))
    recipes = [*flags.get("--recipe", ()), *(word for word in plain if word != "-h")]
    return Words(recipes[0] if recipes else None, flags)


def _is_switch(flag: str) -> bool:
    """Whether a flag takes no value; a switch of a user's own loss must stand after RECIPE."""
    hints = get_type_hints(train) | get_type_hints(TrainRecipe)
    hint = hints.get(_name_of(flag).replace("-", "_"))
    return flag in _HELP or flag.startswith(_EMPTY) or hint is bool


def _name_of(flag: str) -> str:
    """The field or setting of a flag, which cyclopts also takes as --no-NAME or --empty-NAME."""
    return flag.removeprefix(_EMPTY).removeprefix("--").removeprefix("no-")


def _with_settings(given: Loss, words: Words) -> Callable[..., Any]:
    """`train` with the settings of a loss as flags, in a group of their own."""
    from macer.losses import find_objective
    from macer.losses.objective import checked, settings_of

    with naming(words.recipe or "") if words.last("--loss") is None else nullcontext():
        loss = find_objective(given.name).loss
        values = checked(given, loss)
    _check_flags(given.name, values, words.flags)
    helps = {entry.arg_name: entry.description for entry in parse(loss.__doc__ or "").params}
    group = Group(f"Settings of the loss {given.name}")
    hints = {name: setting.hint for name, setting in settings_of(loss, given.name).items()}
    columns = [
        (name, _flag(name, hints[name], Parameter(help=helps.get(name), group=group)), value)
        for name, value in values.items()
    ]
    # cyclopts takes a class without a module of its own for a builtin type.
    place = {"__module__": __name__}
    record: Any = make_dataclass("Settings", columns, frozen=True, kw_only=True, namespace=place)
    command = FunctionType(train.__code__, train.__globals__, train.__name__)
    command.__doc__ = train.__doc__
    command.__kwdefaults__ = (train.__kwdefaults__ or {}) | {
        "loss": given.name,
        "settings": record(),
    }
    flags = Annotated[record, Parameter(name="*")]
    command.__annotations__ = train.__annotations__ | {"settings": flags}
    return command


def _show_values(command: Any, recipe: TrainRecipe) -> None:
    """Let the help of a command show the values of the recipe, not those of a recipe's fields."""
    hints = get_type_hints(TrainRecipe, include_extras=True)
    helps = {entry.arg_name: entry.description for entry in parse_from_object(TrainRecipe).params}
    columns = [
        (name, Annotated[hints[name], Parameter(help=helps[name])], getattr(recipe, name))
        for name in FIELDS
    ]
    record: Any = make_dataclass(
        "Fields", columns, frozen=True, kw_only=True, namespace={"__module__": __name__}
    )
    command.__kwdefaults__ |= {"fields": record()}
    command.__annotations__ |= {"fields": Annotated[record, Parameter(name="*")]}


def _flag(setting: str, hint: Any, parameter: Parameter) -> Any:
    """The type of a flag for a setting: its name is exactly the setting's, an integer is whole."""
    exact = Parameter(name=f"--{setting.replace('_', '-')}")
    whole = Parameter(converter=whole_number) if kind_of(hint) is int else Parameter()
    return Annotated[hint, whole, exact, parameter]


def _names_of_settings(loss: str) -> list[str] | None:
    """The settings of a loss of macer, read from its file: importing it takes as long as torch."""
    name = loss.replace("-", "_")
    file = files("macer") / "losses" / f"{name}.py"
    if not (name.isidentifier() and file.is_file()):  # a name with a slash is a file elsewhere
        return None
    for part in ast.parse(file.read_text("utf-8")).body:
        if isinstance(part, ast.FunctionDef) and part.name == name:
            return [argument.arg for argument in part.args.kwonlyargs]
    return None


def _check_flags(loss: str, settings: Collection[str], flags: Iterable[str]) -> None:
    """Refuse a setting that is named like a flag of `train`, and a flag of no setting."""
    own = (train.__annotations__.keys() - {"fields", "settings", "return"}) | {*FIELDS, *_GENERAL}
    for setting in settings:
        if setting in own or setting.removeprefix("no_") in own.union(settings) - {setting}:
            raise Mistake(
                f"the loss {loss} must not have a setting {setting}, which is a flag of macer "
                "train; choose another name"
            )
    known = [name.replace("_", "-") for name in sorted(own.union(settings))]
    for flag in flags:
        name = _name_of(flag)
        if name not in known and flag.removeprefix("--") not in known and flag not in _HELP:
            listed = f"the settings {', '.join(settings)}" if settings else "no settings"
            raise Mistake(
                f"unknown flag {flag}{nearest(name, known)}; the loss {loss} has {listed}"
            )
