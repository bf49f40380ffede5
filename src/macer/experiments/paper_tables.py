"""The paper's tables as text: published figures, and below them those of our runs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from macer.experiments.paper import Item, Row
from macer.experiments.paper_logs import ShownLog
from macer.experiments.paper_runs import Reproduction
from macer.recipes import TrainRecipe
from macer.reporting.curves import conditions
from macer.reporting.leaderboard import Reading
from macer.reporting.logs import CertificateLog
from macer.reporting.scores import (
    Difference,
    average_certified_radius,
    certified_accuracy,
    standard_error,
)
from macer.reporting.tables import ScoreRow, images_of_log, tabulate
from macer.reporting.texts import accuracy_texts, radius_text, setting, with_error
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
    if item.shows == "scores":
        return _scores(item.radii, entries)
    return _times(entries) if item.shows == "time" else _settings(entries)


def _scores(radii: Sequence[float], entries: Sequence[Reproduction]) -> Cells:
    timed = any(entry.row.hours for entry in entries)
    header = ["model", "σ", "of", *map(radius_text, radii), "ACR"]
    header += ["epochs", "hours"] if timed else []

    def papers(row: Row) -> list[str]:
        accuracies = [f"{a:.2f}" if a else "0" for a in row.accuracies]
        time = _papers_time(row)[1:] if timed else []
        return [row.name, _sigma(row), "paper", *accuracies, f"{row.acr:.3f}", *time]

    def ours(row: Row, shown: ShownLog) -> list[str]:
        accuracies = accuracy_texts(certified_accuracy(shown.log, radii))
        time = _our_time(shown)[1:] if timed else []
        return [row.name, _sigma(row), shown.of, *accuracies, _acr(shown.log), *time]

    return _papers_and_ours(header, entries, papers, ours)


def _times(entries: Sequence[Reproduction]) -> Cells:
    header = ["model", "data set", "of", "s/epoch", "epochs", "hours", "ACR"]

    def papers(row: Row) -> list[str]:
        dataset = row.train_recipe().dataset
        return [row.name, dataset, "paper", *_papers_time(row), f"{row.acr:.3f}"]

    def ours(row: Row, shown: ShownLog) -> list[str]:
        dataset = row.train_recipe().dataset
        return [row.name, dataset, shown.of, *_our_time(shown), _acr(shown.log)]

    return _papers_and_ours(header, entries, papers, ours)


CHOSEN = (
    "† The same counts by the runner-up bound, which was chosen after they were drawn: not "
    "certificates at level α."
)
_RUNNER_UP = "runner-up †"


def _papers_and_ours(
    header: list[str],
    entries: Sequence[Reproduction],
    papers: Callable[[Row], list[str]],
    ours: Callable[[Row, ShownLog], list[str]],
) -> Cells:
    """The paper's line of each row, then a line of each log.

    Where some logs are of other models, each line has its images and what differs; and beside ACR
    that by the runner-up's bound, where a log has counts.
    """
    shown = [(entry.row, one) for entry in entries for one in (None, *entry.shown())]
    lines = [papers(row) if one is None else ours(row, one) for row, one in shown]
    if not any(entry.shipped for entry in entries):
        return header, lines
    for line, (_, one) in zip(lines, shown, strict=True):
        line += ["500", ""] if one is None else [images_of_log(one.log), one.differs]
    others = ["" if one is None else _other_acr(one) for _, one in shown]
    if any(others):
        place = header.index("ACR") + 1
        header = [*header[:place], _RUNNER_UP, *header[place:]]
        for line, other in zip(lines, others, strict=True):
            line.insert(place, other)
    return [*header, "images", "what differs"], lines


def _other_acr(row: ShownLog) -> str:
    reading = _reading(row)
    return f"{reading.acr:.3f} †" if reading else ""


def _reading(row: ShownLog) -> Reading | None:
    """A log's ACR by the runner-up's bound."""
    other = row.runner_up
    return Reading(average_certified_radius(other), standard_error(other)) if other else None


def _papers_time(row: Row) -> list[str]:
    """Seconds per epoch, epochs and hours."""
    seconds = "" if row.epoch_seconds is None else f"{row.epoch_seconds:,.1f}"
    return [seconds, setting(row.epochs), "" if row.hours is None else f"{row.hours:.2f}"]


def _our_time(row: ShownLog) -> list[str]:
    """Seconds per epoch, epochs and hours; ? where they are not known."""
    if row.epochs is None or row.seconds is None:
        return ["?", setting(row.epochs), "?"]
    return [f"{row.seconds / row.epochs:,.1f}", f"{row.epochs}", f"{row.seconds / 3600:.3f}"]


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


def _settings(entries: Sequence[Reproduction]) -> Cells:
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


def _acr(log: CertificateLog) -> str:
    return with_error(average_certified_radius(log), standard_error(log))


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
    stands: tuple["ShippedScores", ...]
    why: str


@dataclass(frozen=True)
class ShippedScores:
    """Certificates that come with macer and stand beside a row, for programs."""

    of: str
    scores: ScoreRow
    epochs: int | None
    seconds: float | None
    about: str  # whose model it is, or in what its training differs
    gain: Difference | None  # over the authors' model on the same images
    runner_up: Reading | None  # of the same counts by the bound chosen afterwards


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
        stands=tuple(
            ShippedScores(
                of=one.of,
                scores=tabulate([one.log], radii).rows[0],
                epochs=one.epochs,
                seconds=one.seconds,
                about=one.about,
                gain=one.gain,
                runner_up=_reading(one),
            )
            for one in entry.shipped
        ),
        why=entry.why,
    )


def notes(item: Item, entries: Sequence[Reproduction]) -> list[str]:
    """How to read the item."""
    if item.shows == "settings":
        return ["What the recipes do not share with the paper is said in their files."]
    papers = "paper: ACR over 500 images, 500…999 in the authors' code for CIFAR-10."
    if any(_is_copied(entry.row) for entry in entries):
        papers += " It has the accuracies of Cohen and Salman (SmoothAdv) from their own papers."
    remarks = [f"{entry.row.run()}: {entry.remark}." for entry in entries if entry.remark]
    if any(one.runner_up for entry in entries for one in entry.shipped):
        papers += f" {CHOSEN}"
    of_logs = [*_conditions(entries), *dict.fromkeys(remarks), *_of_shipped_logs(entries)]
    return [papers, *of_logs, *_reasons(entries)]


def _of_shipped_logs(entries: Sequence[Reproduction]) -> list[str]:
    """What to know of each model that is not the row's own."""
    return _said_once(
        (f"{entry.row.name} {shown.of}", f"{shown.about}{_gain(shown.gain)}")
        for entry in entries
        for shown in entry.shipped
    )


def _gain(gain: Difference | None) -> str:
    if gain is None:
        return ""
    return (
        f"; its ACR minus that of the authors' model on these {gain.images:,} images: "
        f"{with_error(gain.difference, gain.standard_error)}"
    )


def _reasons(entries: Sequence[Reproduction]) -> list[str]:
    """Why rows have no training of ours as the paper has it."""
    return _said_once((entry.row.name, entry.why) for entry in entries if entry.why)


def _said_once(told: Iterable[tuple[str, str]]) -> list[str]:
    """Each text in one line, after the names of all that it is told of."""
    texts: dict[str, list[str]] = {}
    for name, text in told:
        texts.setdefault(text, []).append(name)
    return [f"{', '.join(dict.fromkeys(names))}: {text}." for text, names in texts.items()]


def _conditions(entries: Sequence[Reproduction]) -> list[str]:
    """Images, n and α of the certificates here, for each run if they differ."""
    logs = {entry.row.run(): entry.log for entry in entries if entry.log}
    if not logs:
        return _shared_settings(entries)
    shared = conditions(list(logs.values()))
    lines = [f"here: {shared}; ± is one standard error over the images."]
    if "differ" in shared:
        lines += [f"{run}: {conditions([log])}." for run, log in logs.items()]
    if any(log.n not in (None, PAPERS_N) for log in logs.values()):
        lines.append(f"ACR grows with n, and the field's is of n = {PAPERS_N:,}.")
    return lines


def _shared_settings(entries: Sequence[Reproduction]) -> list[str]:
    """n and α of the certificates that come with macer; their images stand in the table."""
    logs = [one.log for entry in entries for one in entry.shipped]
    if not logs:
        return []
    _, shared = conditions(logs).split(" · ", 1)
    return [f"certificates that come with macer: {shared}; ± is one standard error over images."]


def todo(item: Item, entries: Sequence[Reproduction], only: str | None) -> list[str]:
    """How to make the certificates that are missing."""
    absent = {entry.row.run() for entry in entries if not entry.log}
    if not absent or item.shows == "settings":
        return []
    models = "1 model has" if len(absent) == 1 else f"{len(absent)} models have"
    command = f"macer paper {item.name}" + (f" --only {only}" if only else "")
    return [
        f"{models} no certificates of a run here: `{command} --train` makes them, --commands lists "
        f"what to run, and {TABLE} of your own may lie in the folder of a run."
    ]


def _is_copied(row: Row) -> bool:
    """Whether the paper took the accuracies of a row from another paper."""
    others = row.name.startswith(("Cohen", "Salman", "SmoothAdv")) and bool(row.accuracies)
    return others and row.train_recipe().dataset in ("cifar10", "imagenet")
