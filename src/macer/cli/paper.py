"""`macer paper`: the paper's tables and figures, published figures beside ours."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from macer.cli.parameters import Data, Device, chosen_device
from macer.cli.printing import Result, print_line, print_table, print_text
from macer.errors import Mistake
from macer.recipes import CertifyRecipe, Whole
from macer.report.figures import check_picture
from macer.system.progress import note

if TYPE_CHECKING:
    from macer.experiments.paper import ImagesOf, Item


def paper(
    item: str | None = None,
    /,
    *,
    train: bool = False,
    commands: bool = False,
    only: str | None = None,
    share: float = 1.0,
    runs: Path = Path("runs"),
    data: Data = None,
    n0: Whole = 100,
    n: Whole = 100_000,
    alpha: float = 0.001,
    start: Whole | None = None,
    stop: Whole | None = None,
    skip: Whole | None = None,
    latex: bool = False,
    markdown: bool = False,
    plot: Path | None = None,
    device: Device = "auto",
) -> Result:
    """The tables and figures of the MACER paper, what was published beside what is here.

    Parameters
    ----------
    item
        Its name, such as table-1 or figure-3; without one all are listed.
    train
        Train and certify what is not here yet; continues where it stopped.
    commands
        Print the commands that would do so instead.
    only
        Only rows whose run's name contains this, such as cifar10-0.25.
    share
        Share of the paper's epochs to train for.
    runs
        Folder of the runs.
    n0
        Samples that select the class.
    n
        Other samples that bound its probability.
    alpha
        Probability that a certificate is false, for each image.
    start
        First test image; without start, stop and skip the paper's 500 images are taken.
    stop
        Test image to stop before.
    skip
        Take only images whose number is a multiple of this.
    latex
        Print LaTeX instead of a table for the terminal.
    markdown
        Print Markdown instead.
    plot
        Draw a figure into this file, PNG or PDF by its ending.
    """
    from macer.experiments.paper import check_share, read_item
    from macer.experiments.paper import only as chosen_rows

    if latex and markdown:
        raise Mistake("choose one of --latex and --markdown")
    if item is None:
        if train or commands or only or plot:
            raise Mistake("item must be named with these flags, got none; `macer paper` lists them")
        return _result(items=_list(runs))
    chosen = chosen_rows(read_item(item), only)
    if plot and not chosen.panels:
        raise Mistake(f"plot must be left out with {item}, which is a table, got {plot}")
    if plot:
        check_picture(plot)
    check_share(share)
    images = _images_of(start, stop, skip)
    settings = CertifyRecipe(n0=n0, n=n, alpha=alpha)
    if commands:
        lines = list(_commands(chosen, share, runs, images, settings, data))
        for line in lines:
            print_line(line)
        return _result(chosen, commands=lines)
    from macer.experiments import paper_runs as reproduction
    from macer.experiments import paper_tables
    from macer.report import markup as forms

    if train:
        reproduction.reproduce(
            chosen,
            runs,
            settings=settings,
            share=share,
            images=images,
            data=data,
            device=chosen_device(device),
        )
    found = reproduction.find(chosen, runs, images)
    if plot:
        from macer.experiments.paper_figures import plot as draw

        draw(chosen, found, plot)
    cells, notes = paper_tables.cells(chosen, found), paper_tables.notes(chosen, found)
    todo = paper_tables.todo(chosen, found, only)
    if latex or markdown:
        print_text((forms.latex if latex else forms.markdown)(*cells, notes))
    else:
        print_line(f"{item} · {chosen.title}")
        print_table(*cells)
        for line in [*notes, *todo]:
            print_line(line)
    if plot:
        note(f"figure: {plot}")
    elif chosen.panels:
        note(f"draw it with --plot {item}.png")
    models = paper_tables.models(chosen, found)
    return _result(chosen, models=models, notes=[*notes, *todo], plot=plot)


def _result(item: "Item | None" = None, **found: Any) -> Result:
    """What was asked for; the rest is None."""
    about = {name: getattr(item, name, None) for name in ("title", "radii")}
    rest = dict.fromkeys(("items", "commands", "models", "notes", "plot"))
    return {"item": item and item.name, **about, **rest, **found}


def _list(runs: Path) -> list[Result]:
    """All tables and figures, and how much of them is here."""
    from macer.experiments.paper import item_names, read_item
    from macer.experiments.paper_runs import find

    items: list[Result] = []
    for item in map(read_item, item_names()):
        models = {one.row.run(): one.log for one in find(item, runs)}
        here = sum(log is not None for log in models.values())
        one = {"name": item.name, "title": item.title, "models": len(models), "certified": here}
        items.append(one)
    rows = [[str(value) for value in one.values()] for one in items]
    print_table(("name", "what", "models", f"certified in {runs}"), rows)
    return items


def _images_of(start: int | None, stop: int | None, skip: int | None) -> "ImagesOf":
    """The images asked for, or else the paper's."""
    from macer.data.selection import Images
    from macer.experiments.paper import images_of

    if (start, stop, skip) == (None, None, None):
        return images_of
    images = Images(start or 0, stop, 1 if skip is None else skip)
    return lambda dataset: images


def _commands(
    item: "Item",
    share: float,
    runs: Path,
    images: "ImagesOf",
    settings: CertifyRecipe,
    data: Path | None,
) -> Iterator[str]:
    """What to type for each model of an item."""
    from macer.experiments.paper import commands, shortened

    for name, row in {row.run(): row for row in item.rows}.items():
        recipe = shortened(row.train_recipe(), share)
        yield from commands(
            row,
            recipe,
            str(runs / name),
            images(recipe.dataset),
            settings,
            soft_betas=item.soft_betas,
            data=str(data) if data else None,
        )
