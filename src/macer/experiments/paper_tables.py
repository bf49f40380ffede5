"""The paper's tables as text: published figures, and below them those of our runs."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from macer.certification.reach import largest_radius
from macer.experiments.paper import Item, Row
from macer.experiments.paper_logs import ShownLog
from macer.experiments.paper_models import reading
from macer.experiments.paper_runs import Reproduction
from macer.recipes import TrainRecipe
from macer.reporting.curves import conditions
from macer.reporting.logs import CertificateLog
from macer.reporting.scores import (
    Difference,
    average_certified_radius,
    certified_accuracy,
    standard_error,
)
from macer.reporting.tables import images_of_log
from macer.reporting.texts import accuracy_texts, radius_text, setting, with_error
from macer.runs.names import TABLE, soft_beta

PAPERS_N, PAPERS_ALPHA = 100_000, 0.001  # of [Cohen+19], whose code the paper certifies with


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
_SOFT = "soft: by Bernstein's bound of the softmax at inverse temperature β, from the same samples."
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
    shown = [(entry.row, one) for entry in entries for one in (None, *_with_soft(entry.shown()))]
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


def _with_soft(shown: Iterable[ShownLog]) -> Iterator[ShownLog]:
    """Each log, and below it those of its soft certificates."""
    for one in shown:
        yield one
        for log in one.soft:
            of = f"{one.of}, soft β = {soft_beta(log.name)}"
            yield replace(one, of=of, log=log, differs="", runner_up=None, soft=())


def _other_acr(row: ShownLog) -> str:
    other = reading(row)
    return f"{other.acr:.3f} †" if other else ""


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
    values = [_effective(entry.row.train_recipe()) for entry in entries]
    used = [name for name in _SETTINGS if any(name in one for one in values)]
    lines = []
    for row, own in zip((entry.row for entry in entries), values, strict=True):
        settings = [setting(own[name]) if name in own else "" for name in used]
        line = [row.name, _sigma(row), row.recipe, *settings]
        lines.append([*line, f"{own['epochs']}", row.run()])
    header = ["model", "σ", "recipe", *(_SETTINGS[name] for name in used), "epochs", "run"]
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
    if any(one.soft for entry in entries for one in entry.shown()):
        papers += f" {_SOFT}"
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
    return [*lines, *_of_other_n(logs.values())]


def _shared_settings(entries: Sequence[Reproduction]) -> list[str]:
    """n and α of the certificates that come with macer; their images stand in the table."""
    logs = [one.log for entry in entries for one in entry.shipped]
    if not logs:
        return []
    _, shared = conditions(logs).split(" · ", 1)
    line = f"certificates that come with macer: {shared}; ± is one standard error over images."
    return [line, *_of_other_n(logs)]


def _of_other_n(logs: Iterable[CertificateLog]) -> list[str]:
    """What n does to radii, if some logs are of another n than the paper."""
    others = sorted({log.n for log in logs if log.n is not None} - {PAPERS_N})
    if not others:
        return []
    reaches = ", ".join(
        f"{math.ceil(100 * largest_radius(n, sigma=1.0, alpha=PAPERS_ALPHA)) / 100:.2f} σ at "
        f"n = {n:,}"
        for n in (*others, PAPERS_N)
    )
    return [
        f"ACR grows with n, and the paper's is of n = {PAPERS_N:,}: no radius is above {reaches} "
        f"(α = {PAPERS_ALPHA})."
    ]


def todo(item: Item, entries: Sequence[Reproduction], runs: Path, command: str) -> list[str]:
    """How to make the certificates that are missing in the folder of runs.

    Args:
        command: that shows the item.
    """
    absent = {entry.row.run() for entry in entries if not entry.log}
    if not absent or item.shows == "settings":
        return []
    models = "1 model has" if len(absent) == 1 else f"{len(absent)} models have"
    return [
        f"{models} no certificates of a run in {runs}: `{command} --train` makes them, --commands "
        f"lists what to run, and {TABLE} of your own may lie in the folder of a run."
    ]


def _is_copied(row: Row) -> bool:
    """Whether the paper took the accuracies of a row from another paper."""
    others = row.name.startswith(("Cohen", "Salman", "SmoothAdv")) and bool(row.accuracies)
    return others and row.train_recipe().dataset in ("cifar10", "imagenet")
