"""The paper's tables as text: published figures, and below them those of our runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from macer.experiments.paper import Item, Row
from macer.experiments.paper_runs import Reproduction
from macer.recipes import TrainRecipe
from macer.reporting.curves import conditions
from macer.reporting.scores import average_certified_radius, certified_accuracy, standard_error
from macer.reporting.tables import ScoreRow, tabulate
from macer.reporting.texts import radius_text, setting, with_error
from macer.runs.names import TABLE

PAPERS_N = 100_000  # of [Cohen+19], whose code the paper certifies with


class Published(NamedTuple):
    """The paper's figures of a row."""

    accuracies: tuple[float, ...]  # at the item's radii
    acr: float
    epoch_seconds: float | None
    epochs: int | None
    hours: float | None


Cells = tuple[list[str], list[list[str]]]


def cells(item: Item, entries: Sequence[Reproduction]) -> Cells:
    """An item's header and rows."""
    return {"scores": _scores, "time": _times, "settings": _settings}[item.shows](item, entries)


def _scores(item: Item, entries: Sequence[Reproduction]) -> Cells:
    timed = any(entry.row.hours for entry in entries)
    header = ["model", "σ", "of", *map(radius_text, item.radii), "ACR"]
    if timed:
        header += ["epochs", "hours"]
    lines = []
    for entry in entries:
        name, sigma = entry.row.name, _sigma(entry.row)
        accuracies = [f"{a:.2f}" if a else "0" for a in entry.row.accuracies]
        line = [name, sigma, "paper", *accuracies, f"{entry.row.acr:.3f}"]
        lines.append([*line, *_papers_time(entry.row)[1:]] if timed else line)
        if entry.log:
            accuracies = [
                f"{a:.3f}" if a else "0" for a in certified_accuracy(entry.log, item.radii)
            ]
            line = [name, sigma, "here", *accuracies, _acr(entry)]
            lines.append([*line, *_our_time(entry)[1:]] if timed else line)
    return header, lines


def _times(item: Item, entries: Sequence[Reproduction]) -> Cells:
    header = ["model", "data set", "of", "s/epoch", "epochs", "hours", "ACR"]
    lines = []
    for entry in entries:
        name, dataset = entry.row.name, entry.row.train_recipe().dataset
        lines.append([name, dataset, "paper", *_papers_time(entry.row), f"{entry.row.acr:.3f}"])
        if entry.log:
            lines.append([name, dataset, "here", *_our_time(entry), _acr(entry)])
    return header, lines


def _papers_time(row: Row) -> list[str]:
    """Seconds per epoch, epochs and hours."""
    seconds = "" if row.epoch_seconds is None else f"{row.epoch_seconds:,.1f}"
    return [seconds, setting(row.epochs), "" if row.hours is None else f"{row.hours:.2f}"]


def _our_time(entry: Reproduction) -> list[str]:
    """Seconds per epoch, epochs and hours; ? where the run does not have them."""
    if entry.epochs is None or "seconds" not in entry.speed:
        return ["?", setting(entry.epochs), "?"]
    seconds = entry.speed["seconds"]
    return [f"{seconds / entry.epochs:,.1f}", f"{entry.epochs}", f"{seconds / 3600:.3f}"]


_SETTINGS = {
    "k": "k",
    "lam": "λ",
    "lam_schedule": "λ is",
    "gamma": "γ",
    "beta": "β",
    "attack": "attack",
    "steps": "steps",
    "epsilon": "ε",
}


def _settings(item: Item, entries: Sequence[Reproduction]) -> Cells:
    header = ["model", "σ", "recipe", *_SETTINGS.values(), "epochs", "run"]
    lines = []
    for entry in entries:
        row, recipe = entry.row, entry.row.train_recipe()
        values = _effective(recipe)
        settings = [setting(values[name]) if name in values else "" for name in _SETTINGS]
        line = [row.name, _sigma(row), row.recipe, *settings]
        lines.append([*line, f"{recipe.epochs}", row.run()])
    return header, lines


def _effective(recipe: TrainRecipe) -> dict[str, Any]:
    """The fields and settings that have an effect; with λ = 0 the robustness term has none."""
    without_term = ("lam_schedule", "gamma", "beta")
    idle = () if recipe.loss.get("lam") else without_term
    return {name: value for name, value in recipe.flat().items() if name not in idle}


def _sigma(row: Row) -> str:
    return setting(row.train_recipe().sigma)


def _acr(entry: Reproduction) -> str:
    assert entry.log
    return with_error(average_certified_radius(entry.log), standard_error(entry.log))


@dataclass(frozen=True)
class Model:
    """A row of an item for programs: published figures, and those of our run."""

    name: str
    recipe: str
    run: str
    dataset: str
    sigma: float
    published: Published
    scores: ScoreRow | None  # of the certificates here
    epochs: int | None  # of the training here
    seconds: float | None
    remark: str


def models(item: Item, entries: Sequence[Reproduction]) -> list[Model]:
    """The figures of an item's rows."""
    return [_model(entry, item.radii) for entry in entries]


def _model(entry: Reproduction, radii: Sequence[float]) -> Model:
    row, recipe = entry.row, entry.row.train_recipe()
    return Model(
        name=row.name,
        recipe=row.recipe,
        run=row.run(),
        dataset=recipe.dataset,
        sigma=recipe.sigma,
        published=Published(row.accuracies, row.acr, row.epoch_seconds, row.epochs, row.hours),
        scores=tabulate([entry.log], radii).rows[0] if entry.log else None,
        epochs=entry.epochs,
        seconds=entry.speed.get("seconds"),
        remark=entry.remark,
    )


def notes(item: Item, entries: Sequence[Reproduction]) -> list[str]:
    """How to read the item."""
    if item.shows == "settings":
        return ["What the recipes do not share with the paper is said in their files."]
    papers = "paper: ACR over 500 images, 500…999 in the authors' code for CIFAR-10."
    if any(_is_copied(entry.row) for entry in entries):
        papers += " It has the accuracies of Cohen and Salman (SmoothAdv) from their own papers."
    remarks = [f"{entry.row.run()}: {entry.remark}." for entry in entries if entry.remark]
    return [papers, *_conditions(entries), *dict.fromkeys(remarks)]


def _conditions(entries: Sequence[Reproduction]) -> list[str]:
    """Images, n and α of the certificates here, for each run if they differ."""
    logs = {entry.row.run(): entry.log for entry in entries if entry.log}
    if not logs:
        return []
    shared = conditions(list(logs.values()))
    lines = [f"here: {shared}; ± is one standard error over the images."]
    if "differ" in shared:
        lines += [f"{run}: {conditions([log])}." for run, log in logs.items()]
    if any(log.n not in (None, PAPERS_N) for log in logs.values()):
        lines.append(f"ACR grows with n, and the field's is of n = {PAPERS_N:,}.")
    return lines


def todo(item: Item, entries: Sequence[Reproduction], only: str | None) -> list[str]:
    """How to make the certificates that are missing."""
    absent = {entry.row.run() for entry in entries if not entry.log}
    if not absent or item.shows == "settings":
        return []
    models = "1 model has" if len(absent) == 1 else f"{len(absent)} models have"
    command = f"macer paper {item.name}" + (f" --only {only}" if only else "")
    return [
        f"{models} no certificates here: `{command} --train` makes them, --commands lists what to "
        f"run, and {TABLE} of your own may lie in the folder of a run."
    ]


def _is_copied(row: Row) -> bool:
    """Whether the paper took the accuracies of a row from another paper."""
    others = row.name.startswith(("Cohen", "Salman", "SmoothAdv")) and bool(row.accuracies)
    return others and row.train_recipe().dataset in ("cifar10", "imagenet")
