"""Certificates that come with macer and stand beside rows of the paper, and why others have none.

`results/paper.toml` says which log stands beside which row. It lies in a clone's `results/`, which
a wheel has as `assets/results`.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from macer.data.selection import Selection
from macer.experiments.other_bound import by_bound
from macer.experiments.paper import Item, Row, differing
from macer.losses import load_recipe
from macer.recipes import TrainRecipe
from macer.reporting.logs import CertificateLog, read_log, select
from macer.reporting.scores import Difference, paired_difference
from macer.reporting.seeds import over_seeds, seed_files
from macer.reporting.texts import setting, with_error
from macer.runs.names import soft_folder
from macer.system.errors import Mistake
from macer.system.text import duration

_PACKAGE = Path(__file__).parents[1]
_PLACES = (_PACKAGE.parents[1] / "results", _PACKAGE / "assets" / "results")
_FILE = "paper.toml"
_FOREMOST = ("loss", "model", "epochs", "k", "lam")  # differences that a table's row has room for


@dataclass(frozen=True, kw_only=True)
class Source:
    """A log that stands beside a row, as `results/paper.toml` has it."""

    run: str
    of: str  # its name in tables
    file: str
    about: str = ""
    recipe: str | None = None  # None: not trained by us
    changes: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    hardware: str = ""
    items: tuple[str, ...] = ()  # none: every table and figure that has the row
    n: int | None = None  # where the log itself does not record them
    alpha: float | None = None
    soft: bool = False  # logs of soft certificates lie beside it, FILE-bernstein-β

    def train_recipe(self) -> TrainRecipe | None:
        """How its model was trained, if by us."""
        if self.recipe is None:
            return None
        values = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in self.changes.items()
        }
        return load_recipe(self.recipe).changed(**values)


@dataclass(frozen=True)
class ShownLog:
    """A log beside a row's published figures, and in what its model differs from the row's."""

    of: str
    log: CertificateLog
    differs: str  # from the row's model: the foremost settings, or whose model it is
    about: str  # all that differs
    epochs: int | None = None
    seconds: float | None = None
    gain: Difference | None = None  # its ACR minus that of the authors' model, on the same images
    runner_up: CertificateLog | None = None  # the same counts by the bound chosen afterwards
    soft: tuple[CertificateLog, ...] = ()  # by Bernstein's bound, one for each β


@cache
def results_folder() -> Path | None:
    """The folder of the logs that come with macer; None where an installation has none."""
    return next((place for place in _PLACES if (place / _FILE).is_file()), None)


@cache
def _content() -> dict[str, Any]:
    folder = results_folder()
    return tomllib.loads((folder / _FILE).read_text("utf-8")) if folder else {}


def sources() -> list[Source]:
    """Every log that stands beside a row."""
    given: list[dict[str, Any]] = _content().get("logs", [])
    return [Source(**{**one, "items": tuple(one.get("items", ()))}) for one in given]


def sources_of(item: Item, row: Row) -> list[Source]:
    """The logs that stand beside a row in a table or figure."""
    return [
        source
        for source in sources()
        if source.run == row.run()
        and (not source.items or item.name in source.items)
        and source.soft == bool(item.soft_betas)
    ]


def shipped_logs(item: Item, row: Row, images: Selection, *, papers: bool) -> tuple[ShownLog, ...]:
    """The logs that come with macer for a row.

    Args:
        images: those to show.
        papers: they are the paper's; a log that lacks some of them shows all that it has.
    """
    found = sources_of(item, row)
    whole = {source.of: _whole_log(source, source.file) for source in found}
    shown = [(source, _shown(whole[source.of], images, papers)) for source in found]
    return tuple(
        replace(
            _shown_log(source, row, log, whole.get("authors")),
            runner_up=_by_runner_up(source, images, papers),
            soft=tuple(_soft_logs(source, item, images, papers)),
        )
        for source, log in shown
        if log is not None
    )


def _soft_logs(
    source: Source, item: Item, images: Selection, papers: bool
) -> Iterator[CertificateLog]:
    stem = source.file.removesuffix(".tsv.gz")
    for beta in item.soft_betas:
        name = soft_folder(Path(), beta).name
        log = _shown(_whole_log(source, f"{stem}-{name}.tsv.gz"), images, papers)
        if log is not None:
            yield replace(log, name=name)


def _by_runner_up(source: Source, images: Selection, papers: bool) -> CertificateLog | None:
    """The images shown by the other bound; None for a log without counts, as others' are."""
    log = by_bound(_folder() / source.file)
    return None if log is None else _shown(log, images, papers)


def _folder() -> Path:
    folder = results_folder()
    assert folder
    return folder


def _whole_log(source: Source, file: str) -> CertificateLog:
    log = _read(_folder() / file)
    known = {name: getattr(source, name) for name in ("n", "alpha") if getattr(source, name)}
    return replace(log, **known)


_read = cache(read_log)  # Tables 1, 3 and 8 and the ablations share logs


def _shown(log: CertificateLog, images: Selection, papers: bool) -> CertificateLog | None:
    """The images asked for, None without any; of a log that lacks some of the paper's, all."""
    held = int(images.holds(log.idx).sum())
    stop = max(log.idx) + 1 if images.stop is None else images.stop
    if papers and held < len(range(images.start, stop, images.skip)):
        return log
    return select(log, images) if held else None


def _shown_log(
    source: Source, row: Row, log: CertificateLog, authors: CertificateLog | None
) -> ShownLog:
    recipe = source.train_recipe()
    sigma = row.train_recipe().sigma
    if log.sigma not in (None, sigma):
        raise Mistake(f"{source.file} must be of σ = {sigma:g}, got {log.sigma:g}")
    if recipe is None:
        return ShownLog(source.of, log, source.about, source.about)
    both = differing(recipe, row.train_recipe())
    some = [name for name in _FOREMOST if name in both]
    brief = [_difference(name, *both[name]) for name in some]
    brief += [f"{len(both) - len(some)} other settings"] if len(both) > len(some) else []
    about = [source.about] if source.about else []
    about.append(differences_text(both))
    if source.seconds:
        about.append(f"{source.seconds:g} s of training on {source.hardware}")
    about += _of_seeds(source)
    gain = paired_difference(log, authors) if authors is not None else None
    return ShownLog(
        source.of, log, ", ".join(brief), "; ".join(about), recipe.epochs, source.seconds, gain
    )


def differences_text(both: Mapping[str, tuple[Any, Any]]) -> str:
    """What `differing` found, in words."""
    return ", ".join(_difference(name, *values) for name, values in both.items())


def _of_seeds(source: Source) -> list[str]:
    """The mean over the seeds of a recipe that was trained with several."""
    files = seed_files(_folder(), source.file.removesuffix(".tsv.gz"))
    if len(files) == 1:
        return []
    mean = over_seeds({seed: _read(file) for seed, file in files.items()})
    radius = with_error(mean.acr, mean.standard_error)
    return [f"seed 0 of {len(files)} seeds, the mean of whose ACRs is {radius}"]


def _difference(name: str, own: object, papers: object) -> str:
    return f"{name} {_plain_setting(own)} for {_plain_setting(papers)}"


def _plain_setting(value: object) -> str:
    """A value of a recipe in words."""
    if isinstance(value, tuple):
        return ", ".join(map(_plain_setting, value)) or "none"
    if isinstance(value, float):
        return setting(value)
    return str(value)


def why_not(row: Row) -> str:
    """Why a row has no training of ours as the paper has it: what it would take, computed."""
    costs: list[dict[str, Any]] = _content().get("costs", [])
    cost = next((one for one in costs if fnmatchcase(row.run(), one["runs"])), None)
    if cost is None:
        return ""
    recipe = row.train_recipe()
    images = recipe.epochs * cost["images"]
    if rate := cost.get("images_per_second"):
        seconds, measured = images / rate, f"{rate:,} images/s"
    else:
        passes = recipe.k * (1 + recipe.loss.get("steps", 0))
        rate = cost["samples_per_second"]
        seconds, measured = images * passes / rate, f"{rate:,} noisy samples/s"
    also = f"{cost['also']}; " if "also" in cost else ""
    return (
        f"not trained as the paper has it: {also}at least {duration(seconds)} of "
        f"{cost['hardware']}, computed from {measured} of {cost['network']}"
    )
