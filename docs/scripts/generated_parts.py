"""The parts of the documentation that are made from the code and from results, by their names."""

import ast
import inspect
import re
import tomllib
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from browser_files import runtime_is_here
from docstring_parser import Docstring, parse, parse_from_object
from floor_table import floors
from paper_chapter import paper
from result_tables import code, objectives, records, scores, seeds, table

import macer
from macer.cli.app import command_line
from macer.losses import LOSSES
from macer.losses.objective import settings_of
from macer.recipes import CertifyRecipe, TrainRecipe
from macer.runs import names as run_names
from macer.system.errors import Mistake

ROOT = Path(__file__).parents[2]


# commands


def commands() -> str:
    """Every command with its flags, from the parser itself."""
    text = command_line().generate_docs(heading_level=1)
    first = text.index("\n## macer ")
    return text[first + 1 :].replace("```console", "```")


# Python


def python() -> str:
    """Every name that `import macer` gives, with its signature and its docstring."""
    return "\n".join(_entry(name, getattr(macer, name)) for name in macer.__all__)


def _entry(name: str, thing: Any) -> str:
    if not callable(thing):
        return f"## macer.{name}\n\n`{thing!r}`, the label of a certificate that abstains.\n"
    shown = f"## macer.{name}\n\n```python\n{_signature(name, thing)}\n```\n\n"
    text = shown + _prose(parse(inspect.getdoc(thing) or ""))
    if inspect.isclass(thing) and not issubclass(thing, Mistake):
        text += _comments(thing) + _methods(name, thing)
    return text


def _comments(kind: type) -> str:
    """The fields of a record that a comment explains."""
    found = re.findall(r"^    (\w+): [^#\n]+  # (.+)$", inspect.getsource(kind), re.MULTILINE)
    return "".join(["\n", *(f"- `{field}`: {text}\n" for field, text in found)]) if found else ""


def _methods(name: str, kind: type) -> str:
    """The public methods that a class defines itself."""
    own = {key: value for key, value in vars(kind).items() if key[0] != "_"}
    return "".join(
        f"\n### {name}.{key}\n\n```python\n{_signature(key, value)}\n```\n\n"
        + _prose(parse(inspect.getdoc(value) or ""))
        for key, value in own.items()
        if inspect.isfunction(value)
    )


def _signature(name: str, thing: Any) -> str:
    """A call with its arguments, one a line where they are many."""
    if inspect.isclass(thing) and issubclass(thing, Mistake):
        return f"class {name}(ValueError)" if issubclass(thing, ValueError) else f"class {name}"
    parameters = list(inspect.signature(thing).parameters.values())
    arguments = [_argument(parameter) for parameter in parameters]
    named = [i for i, one in enumerate(parameters) if one.kind is one.KEYWORD_ONLY]
    if named and not any(one.kind is one.VAR_POSITIONAL for one in parameters):
        arguments.insert(named[0], "*")
    if len(", ".join(arguments)) < 60:
        return f"{name}({', '.join(arguments)})"
    return f"{name}(\n" + "".join(f"    {text},\n" for text in arguments) + ")"


def _argument(argument: inspect.Parameter) -> str:
    """An argument by its name and default; types are in the source."""
    stars = {argument.VAR_POSITIONAL: "*", argument.VAR_KEYWORD: "**"}.get(argument.kind, "")
    if argument.default is argument.empty:
        return stars + argument.name
    default = "…" if "object at" in repr(argument.default) else repr(argument.default)
    return f"{argument.name}={default}"


def _prose(doc: Docstring) -> str:
    """A docstring: its first line, what follows as it is laid out there, its arguments."""
    text = re.sub(r" {2,}(\[[^]]+\])$", r" \1", doc.short_description or "") + "\n"
    if doc.long_description:
        text += f"\n```text\n{doc.long_description}\n```\n"
    arguments = [f"- `{entry.arg_name}`: {entry.description}\n" for entry in doc.params]
    return text + ("\n" + "".join(arguments) if arguments else "")


# recipes


def train_fields() -> str:
    """Every field of a training recipe."""
    return _fields(TrainRecipe)


def certify_fields() -> str:
    """Every setting of a certificate."""
    return _fields(CertifyRecipe)


def _fields(kind: Any) -> str:
    helps = {entry.arg_name: entry.description for entry in parse_from_object(kind).params}
    rows = [(code(f.name), code(_default(f.default)), helps[f.name]) for f in fields(kind)]
    return table(("field", "default", "what it is"), rows)


def _default(value: Any) -> str:
    """A default as a recipe has it."""
    if value is MISSING or value in ("", ()):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return getattr(value, "name", str(value))


def losses() -> str:
    """Every loss with its settings."""
    text = ""
    for name, objective in LOSSES.items():
        doc = parse(inspect.getdoc(objective.loss) or "")
        helps = {entry.arg_name: entry.description for entry in doc.params}
        rows = [
            (code(key), code(_default(value.default)), helps.get(key, ""))
            for key, value in settings_of(objective.loss, name).items()
        ]
        text += f"### {name}\n\n{doc.short_description}\n\n"
        text += table(("setting", "default", "what it is"), rows) + "\n" if rows else ""
    return text


def recipes() -> str:
    """The recipes that come with macer, by folder."""
    folder = ROOT / "src/macer/assets/recipes"
    rows = []
    for file in sorted(folder.rglob("*.toml")):
        values = tomllib.loads(file.read_text("utf-8"))
        name = file.relative_to(folder).with_suffix("").as_posix()
        keys = ("dataset", "model", "sigma", "epochs")
        rows.append((code(name), values["loss"]["name"], *(values.get(k, "") for k in keys)))
    return table(("recipe", "loss", "data set", "network", "σ", "epochs"), rows)


# the browser


def browser() -> str:
    """The page that certifies in the browser, as a part of another page."""
    if not runtime_is_here():
        return "This copy of the site was built without npm, and so without this part.\n"
    title = "A drawing field, the votes of a network on noisy copies, and a certified radius"
    return (
        f'<iframe class="live" src="browser/live.html" loading="lazy" title="{title}"></iframe>\n'
    )


# runs, packages, layers


def run_files() -> str:
    """The files of a run, as the module that names them says."""
    text = inspect.getdoc(run_names) or ""
    return f"```\n{text.split(chr(10) * 2, 1)[1]}\n```\n"


def packages() -> str:
    """Every package with the first line of its docstring, in the order of the layers."""
    rows = []
    for name in layers().replace("```", "").split():
        init = ROOT / "src/macer" / name / "__init__.py"
        if init.exists():
            purpose = ast.get_docstring(ast.parse(init.read_text("utf-8"))) or ""
            rows.append((code(f"{name}/"), purpose.split("\n")[0]))
    return table(("package", "what it holds"), rows)


def layers() -> str:
    """The order of imports, from the test that checks it."""
    source = (ROOT / "tests/test_layers.py").read_text("utf-8")
    [text] = re.findall(r'^LAYERS = """(.*?)"""', source, re.DOTALL | re.MULTILINE)
    return f"```{text}```\n"


PARTS: dict[str, Callable[[], str]] = {
    part.__name__: part
    for part in (
        commands,
        python,
        train_fields,
        certify_fields,
        losses,
        recipes,
        browser,
        run_files,
        packages,
        layers,
        records,
        seeds,
        objectives,
        scores,
        floors,
        paper,
    )
}
