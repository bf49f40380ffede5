"""What to know when reading the leaderboard: the lines below its tables."""

from collections.abc import Callable, Sequence

from macer.reporting.leaderboard import Board, Rank, Seeds
from macer.reporting.texts import setting, signed_with_error, with_error

NOTES = (
    "Every row of a table has the same images, n0, n and α, and Clopper and Pearson's bound of the "
    "top class [Cohen+19]. ± is one standard error over the images. Differences of ACR are paired, "
    "image by image; one below two of its standard errors says little of the order.",
    "ACRs that agree in three decimals share a rank.",
    "The field's logs print radii in three digits, rounded to the nearest; ours are rounded down.",
    "Training is the time of one training on one GPU of the kind named, where it is known.",
)
DAGGER = (
    "† The same counts by the runner-up bound, which was chosen after they were drawn: not "
    "certificates at level α, and not ranked (docs/guide/bounds.md)."
)
FIGURES_ONLY = (
    "‡ Figures only: these logs have no licence and do not come with macer. The figures were "
    "computed from the logs at the source named."
)
ONE_SEED = "macer's own rows are of one seed each: how far two seeds differ is not in their ±."
SEEDS = (
    "s: the sample standard deviation of the seeds' ACRs. ± of their mean is over images and seeds "
    "together: the root of the sum of two squares, of the standard error over the images and of s "
    "divided by the root of the number of seeds."
)
WITHOUT_OURS = (
    "macer's own models are certified on every 5th test image, and have no row among all images."
)
YOURS = (
    "(yours): a log that you named, ranked among the rows; it is no part of the leaderboard. "
    "Differences are paired with each log that comes with macer."
)
NOT_PAIRED = "No paired difference to {}, whose logs have no licence and do not come with macer."


def notes(boards: Sequence[Board], name: Callable[[str], str] = str) -> list[str]:
    """What to know when reading the boards.

    Args:
        name: how the name of a log that a user named is written in this form.
    """
    rows = [row for board in boards for row in board.rows]
    found = [*NOTES, *dict.fromkeys(_of_row(row, name) for row in rows if row.note)]
    found += _seeds_notes(boards)
    if any(row.runner_up for row in rows):
        found.append(DAGGER)
    if any(row.figures_only for row in rows):
        found.append(FIGURES_ONLY)
    if not all(any(row.load for row in board.rows) for board in boards):
        found.append(WITHOUT_OURS)
    if any(row.yours for row in rows):
        found += _notes_of_yours(boards, name)
    return found


def _of_row(row: Rank, name: Callable[[str], str]) -> str:
    return f"{name(row.name) if row.yours else row.name}: {row.note}"


def _notes_of_yours(boards: Sequence[Board], name: Callable[[str], str]) -> list[str]:
    """What named logs are, what they are not compared with, and which have no row among all."""
    found = [YOURS]
    if only := _figures_only(boards):
        found.append(NOT_PAIRED.format(" and ".join(only)))
    if len({board.images for board in boards}) > 1:
        among_all = {row.method for b in boards if b.images == "all" for row in b.rows}
        yours = {row.method: row.name for b in boards for row in b.rows if row.yours}
        lacking = [name(own) for method, own in yours.items() if method not in among_all]
        found += [f"{own} has no row among all images: it lacks some." for own in lacking]
    return found


def _figures_only(boards: Sequence[Board]) -> list[str]:
    """The methods without a log, with the σ where this holds for some boards alone."""
    levels = {board.sigma for board in boards}
    found: dict[str, set[float]] = {}
    for board in boards:
        for row in board.rows:
            if row.figures_only:
                found.setdefault(row.name, set()).add(board.sigma)
    return [
        name if here == levels else f"{name} at σ {', '.join(map(setting, sorted(here)))}"
        for name, here in found.items()
    ]


def _seeds_notes(boards: Sequence[Board]) -> list[str]:
    """What several seeds of our recipes gave, or that there is one."""
    found = {
        f"{row.name}, σ {setting(board.sigma)}": (row.over_seeds, board)
        for board in boards
        for row in board.rows
        if row.over_seeds
    }
    several = [_mean_note(at, *one) for at, one in found.items() if len(one[0].mean.seeds) > 1]
    single = [at for at, (seeds, _) in found.items() if len(seeds.mean.seeds) == 1]
    if not several:
        return [ONE_SEED] if single else []
    return [*several, *(f"{at}: one seed." for at in single), SEEDS]


def _mean_note(at: str, seeds: Seeds, board: Board) -> str:
    [best] = [row.name for row in board.rows if row.method == board.best]
    mean, reading = seeds.mean, seeds.runner_up
    acrs = ", ".join(f"{acr:.3f}" for acr in mean.acrs)
    zoo = "none of these" if seeds.zoo is None else f"seed {seeds.zoo}"
    return (
        f"{at}: seeds {', '.join(map(str, mean.seeds))} have ACR {acrs}, s {mean.spread:.3f}; "
        f"their mean {with_error(mean.acr, mean.standard_error)} ({reading.acr:.3f} † by the "
        f"runner-up's bound) minus that of {best} on the same images: "
        f"{signed_with_error(*seeds.to_best[:2])}. The median is seed {mean.median}; the row is "
        f"{zoo}."
    )
