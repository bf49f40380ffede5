"""`macer demo` and `macer compare`: methods side by side, trained and certified."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from macer.cli.parameters import (
    Code,
    Data,
    Device,
    Photographs,
    Skip,
    Start,
    Stop,
    computing_device,
)
from macer.cli.printing import Result, print_line, print_report, print_table
from macer.recipes import CertifyRecipe, TrainRecipe, Whole, recipe_names, run_name
from macer.system.errors import Mistake


def demo(*, out: Path = Path("demo"), device: Device = "auto") -> Result:
    """Train, certify and report on the embedded data: Gaussian against MACER, in two minutes.

    Parameters
    ----------
    out
        Folder for the two runs, the curves and the page; must not exist.
    """
    from macer.experiments.demo import run_demo

    made = run_demo(out, computing_device(device))
    table = print_report(made.logs)
    print_line(made.line())
    print_line(f"curves: {made.plot}")
    print_line(f"page:   {made.html}")
    return {"out": out, "report": table, "plot": made.plot, "html": made.html}


def compare(
    *recipes: str,
    out: Path,
    vary: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = (),
    dataset: str | None = None,
    data: Data = None,
    photographs: Photographs = Photographs(),  # noqa: B008  frozen
    share: float = 1.0,
    copies: Whole | None = None,
    seeds: Whole = 3,
    n0: Whole = 100,
    n: Whole = 1000,
    alpha: float = 0.001,
    score: bool = False,
    start: Start = 0,
    stop: Stop = None,
    skip: Skip = 10,
    held_out: Whole = 0,
    code: Code = (),
    device: Device = "auto",
) -> Result:
    """Train recipes with the same seeds, certify the models, and compare them with the first.

    Parameters
    ----------
    recipes
        Names that `macer recipes` lists, or TOML files, of one data set; all of sample/ by default.
    out
        Folder of the runs, OUT/RECIPE/seed-S; finished runs are kept.
    vary
        Compare variants: NAME=VALUE,VALUE,… for a field or a setting of the loss, such as
        lam=1,2,4; of several names, every combination.
    dataset
        Another data set for all recipes, or package.module:function.
    share
        Share of each recipe's epochs to train for, with all that happens in them at the same
        places.
    copies
        Instead of a share: noisy copies of an image in a training, k · epochs, the same whatever
        the k.
    seeds
        Models to train per recipe.
    n0
        Samples that select the class.
    n
        Other samples that bound its probability.
    alpha
        Probability that a certificate is false, for each image.
    score
        Abstain at once where the selected class is wrong: the same table for less work.
    held_out
        Keep the last N training images out of every training and certify these instead of test
        images, to choose settings by them.
    """
    from macer.data.selection import Selection
    from macer.experiments import compare as comparison

    entries = comparison.compare(
        _asked(recipes or _sample_recipes(), vary, dataset, photographs.size, share, copies, code),
        out,
        seeds=seeds,
        settings=CertifyRecipe(n0=n0, n=n, alpha=alpha, score=score),
        data=data,
        images=Selection(start, stop, skip),
        device=computing_device(device),
        held_out=held_out,
        code=code,
        rules=photographs.rules(),
    )
    notes = comparison.notes(entries)
    print_table(*comparison.cells(entries))
    for line in notes:
        print_line(line)
    return {"out": out, "recipes": comparison.scores(entries), "notes": notes}


def _asked(
    names: Sequence[str],
    vary: Sequence[str],
    dataset: str | None,
    size: str | None,
    share: float,
    copies: int | None,
    code: Code,
) -> dict[str, TrainRecipe]:
    """The recipes and their variants, each of the length asked for, by the names of their runs."""
    from macer.data.sets import sized
    from macer.experiments.vary import read_values, variants
    from macer.losses import load_recipe
    from macer.recipes.lengths import check_share, of_copies, shortened

    values = read_values(vary)
    check_share(share)
    if copies is not None and (share != 1 or "epochs" in values):
        raise Mistake(
            f"copies must be left out with --share and --vary epochs, got {copies}; each decides "
            "the epochs"
        )
    runs = [run_name(name) for name in names]
    if len(set(runs)) < len(runs):
        raise Mistake(f"recipes must have different names, got {', '.join(runs)}")
    loaded = {run: load_recipe(name, code=code) for run, name in zip(runs, names, strict=True)}
    asked = {
        run: recipe.changed(dataset=sized(dataset or recipe.dataset, size))
        for run, recipe in loaded.items()
    }
    return {
        run: shortened(recipe, share) if copies is None else of_copies(recipe, copies)
        for run, recipe in variants(asked, values).items()
    }


def _sample_recipes() -> list[str]:
    """The recipes for the embedded sample, Gaussian training first."""
    names = [name for name in recipe_names() if name.startswith("sample/")]
    return sorted(names, key=lambda name: name != "sample/gaussian")
