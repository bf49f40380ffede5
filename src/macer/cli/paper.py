"""`macer paper`: the paper's tables and figures, what was published beside our runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from macer.cli.parameters import Data, Device, computing_device
from macer.cli.printing import Form, Result, chosen_form, print_line, print_table, print_text
from macer.recipes import CertifyRecipe, Whole
from macer.reporting.figures import check_picture
from macer.system.errors import Mistake
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
    model: str | None = None,
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
    figures: Path | None = None,
    device: Device = "auto",
) -> Result:
    """The tables and figures of the MACER paper, what was published beside what is here.

    Parameters
    ----------
    item
        Its name, such as table-1 or figure-3; without one all are listed.
    train
        Train and certify what is missing; continues where it stopped.
    commands
        Print the commands that would do so instead.
    only
        Only rows whose run's name contains this, such as cifar10-0.25.
    share
        Share of the paper's epochs to train for.
    model
        Another network for every row, such as small12; the table says that it differs.
    runs
        Folder of the runs.
    n0
        Samples that select the class.
    n
        Other samples that bound its probability.
    alpha
        Probability that a certificate is false, for each image.
    start
        First test image; start, stop and skip replace the paper's 500 images, 500…999 but for
        ImageNet.
    stop
        Test image to stop before.
    skip
        Take only images whose number is a multiple of this.
    latex
        Print LaTeX instead of a table for the terminal.
    markdown
        Print Markdown instead.
    plot
        Draw a figure into this file, PNG, PDF or SVG by its ending.
    figures
        Draw all figures into this folder, figure-1.svg and so on; without an item.
    """
    from macer.certification.settings import check_settings
    from macer.experiments.paper import flags, read_item
    from macer.experiments.paper import only as chosen_rows
    from macer.recipes.lengths import check_share

    form = chosen_form(latex=latex, markdown=markdown)
    if runs.is_file():
        raise Mistake(f"runs must be a folder, got the file {runs}")
    images = _images_of(start, stop, skip)
    if item is None:
        if train or commands or only or plot:
            raise Mistake("item must be named with these flags, got none; `macer paper` lists them")
        return _overview(runs, form, figures, images)
    _check_together(item, train=train, commands=commands, plot=plot, figures=figures)
    chosen = chosen_rows(read_item(item), only)
    _check_plot(plot, chosen)
    check_share(share)
    settings = CertifyRecipe(n0=n0, n=n, alpha=alpha)
    check_settings(sigma=1.0, n0=n0, n=n, alpha=alpha)
    if commands:
        return _print_commands(chosen, share, model, runs, images, settings, data)
    if train:
        from macer.experiments.paper_runs import reproduce

        reproduce(
            chosen, runs, settings=settings, share=share, model=model, images=images, data=data,
            device=computing_device(device),
        )  # fmt: skip
    given = {
        "only": only, "share": share, "model": model, "runs": runs, "data": data, "n0": n0, "n": n,
        "alpha": alpha, "start": start, "stop": stop, "skip": skip,
    }  # fmt: skip
    command = " ".join([f"macer paper {item}", *flags(given, _USUAL)])
    return _show(chosen, runs, images, command=command, form=form, plot=plot)


# What stands for a flag that is not given.
_USUAL = {
    "only": None, "share": 1.0, "model": None, "runs": Path("runs"), "data": None, "n0": 100,
    "n": 100_000, "alpha": 0.001, "start": None, "stop": None, "skip": None,
}  # fmt: skip


def _overview(runs: Path, form: Form, figures: Path | None, images: "ImagesOf") -> Result:
    """List all tables and figures, and draw the figures into a folder if one is given."""
    drawn = _draw_all(figures, runs, images) if figures else None
    return _result(items=_list(runs, form), figures=drawn)


def _check_together(
    item: str, *, train: bool, commands: bool, plot: Path | None, figures: Path | None
) -> None:
    """Refuse flags of which one would have no effect."""
    if figures:
        raise Mistake(
            f"item must be left out with --figures, which draws all, got {item}; --plot draws one"
        )
    if commands and (train or plot):
        raise Mistake(
            f"commands must be left out with --{'train' if train else 'plot'}; give one of them"
        )


def _check_plot(plot: Path | None, item: "Item") -> None:
    """Refuse to draw a table, or into a file that cannot be written."""
    if plot and not item.panels:
        raise Mistake(f"plot must be left out with {item.name}, which is a table, got {plot}")
    if plot:
        check_picture(plot)


def _show(
    item: "Item",
    runs: Path,
    images: "ImagesOf",
    *,
    command: str,
    form: Form,
    plot: Path | None,
) -> Result:
    """Print an item, published figures and those of the runs, and draw it if asked to.

    Args:
        command: that printed it.
    """
    from macer.experiments import paper_models, paper_tables
    from macer.experiments.paper_runs import find
    from macer.reporting import markup

    models = find(item, runs, images)
    if plot:
        from macer.experiments.paper_figures import plot as draw

        draw(item, models, plot)
    cells, notes = paper_tables.cells(item, models), paper_tables.notes(item, models)
    todo = paper_tables.todo(item, models, runs, command)
    if form == "terminal":
        print_line(f"{item.name} · {item.title}")
        print_table(*cells)
        for line in [*notes, *todo]:
            print_line(line)
    else:
        print_text((markup.latex if form == "latex" else markup.markdown)(*cells, notes))
    if plot:
        note(f"figure: {plot}")
    elif item.panels:
        note(f"draw it with --plot {item.name}.png")
    return _result(item, models=paper_models.models(item, models), notes=[*notes, *todo], plot=plot)


def _draw_all(folder: Path, runs: Path, images: "ImagesOf") -> list[Path]:
    """Draw every figure of the paper into a folder, which is made if it does not exist."""
    from macer.experiments.paper import item_names, read_item
    from macer.experiments.paper_figures import plot
    from macer.experiments.paper_runs import find

    files = {folder / f"{name}.svg": name for name in item_names() if name.startswith("figure")}
    if folder.is_file():
        raise Mistake(f"figures must be a folder, got the file {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    for file, name in files.items():
        item = read_item(name)
        plot(item, find(item, runs, images), file)
        note(f"figure: {file}")
    return list(files)


def _result(item: "Item | None" = None, **entries: Any) -> Result:
    """The content of the JSON document: the given entries, and None for the others."""
    about = {name: getattr(item, name, None) for name in ("title", "radii")}
    others = dict.fromkeys(("items", "commands", "models", "notes", "plot", "figures"))
    return {"item": item and item.name, **about, **others, **entries}


def _list(runs: Path, form: Form) -> list[Result]:
    """Print all tables and figures, and how many of their models have certificates."""
    from macer.experiments.paper import item_names, read_item
    from macer.experiments.paper_runs import count
    from macer.reporting import markup

    items: list[Result] = [
        {"name": item.name, "title": item.title, **count(item, runs)._asdict()}
        for item in map(read_item, item_names())
    ]
    header = ("name", "what", "models", f"certified in {runs}", "logs with macer")
    rows = [[str(value) for value in entry.values()] for entry in items]
    if form == "terminal":
        print_table(header, rows)
    else:
        print_text((markup.latex if form == "latex" else markup.markdown)(header, rows, ()))
    return items


def _images_of(start: int | None, stop: int | None, skip: int | None) -> "ImagesOf":
    """The images asked for, or else the paper's."""
    from macer.data.selection import Selection
    from macer.experiments.paper import flags, papers_images

    images = Selection.given(start, stop, skip)
    if images is None:
        return papers_images
    if images.stop is not None and images.stop <= images.start:
        raise Mistake(f"stop must be above start, {images.start}, got {images.stop}")
    given = flags({"start": start, "stop": stop, "skip": skip}, _USUAL)
    note(f"in place of the paper's 500 images: {' '.join(given)}")
    return lambda dataset: images


def _print_commands(
    item: "Item",
    share: float,
    model: str | None,
    runs: Path,
    images: "ImagesOf",
    settings: CertifyRecipe,
    data: Path | None,
) -> Result:
    """Print what to type for each model of an item."""
    from macer.experiments.paper import asked_recipe, commands

    lines: list[str] = []
    for name, row in {row.run(): row for row in item.rows}.items():
        recipe = asked_recipe(row, share, model)
        lines += commands(
            row,
            recipe,
            str(runs / name),
            images(recipe.dataset),
            settings,
            soft_betas=item.soft_betas,
            data=str(data) if data else None,
        )
    for line in lines:
        print_line(line)
    return _result(item, commands=lines)
