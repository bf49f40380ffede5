"""`macer zoo`, `recipes`, `data` and `bench`: what is here, and how fast it runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from macer.cli.parameters import Data, Device, chosen_device
from macer.cli.printing import Result, print_line, print_table, print_text
from macer.recipes import Whole, named_recipe
from macer.recipes.named import (
    measured_acr,
    recipe_comment,
    recipe_names_like,
    recipe_text,
    trained_before,
)
from macer.system.errors import Mistake
from macer.system.progress import note


def zoo() -> Result:
    """List the trained models that come with macer; zoo:NAME stands for a run or a model file."""
    from macer.reporting.tables import RADII
    from macer.reporting.zoo_table import HEADER, NOTE, catalogue

    models = catalogue()
    if models:
        print_table(HEADER, [model.cells() for model in models])
        note(NOTE)
    else:
        print_line("no trained models come with this macer")
    return {"radii": RADII, "models": models}


def recipes(name: str | None = None, /) -> Result:
    """List the recipes that come with macer, or print one.

    Parameters
    ----------
    name
        The name of one, which is printed whole; or how the names begin of those to list.
    """
    names = recipe_names_like(name or "")
    listed = [_described(each) for each in names]
    text = recipe_text(names[0]) if names == [name] else None
    if text is None:
        _list_recipes(listed)
    else:
        print_text(text)  # alone on standard output, so that it can be kept in a file
        for first in listed[0]["first"]:
            note(f"train first: macer train {first}")
        classifier = " --init FILE" if named_recipe(names[0]).denoiser != "none" else ""
        note(f"train it: macer train {name}{classifier}")
    return {"recipes": listed, "text": text}


_COPIES = (
    "copies: noisy copies of an image in a training, k · epochs; a loss with an attack passes more "
    "often. ACR: of a training by it, as its file reports."
)
_BEGIN = (
    "Begin with `macer train demo`, which needs no download. `macer recipes NAME` prints one "
    "whole, `macer recipes record/` lists those that begin so."
)


def _described(name: str) -> Result:
    """What to know of a recipe before it is trained."""
    keys = ("dataset", "loss", "model", "sigma", "k", "lam", "epochs")
    fields = {"lam": 0.0} | named_recipe(name).flat()
    return {
        "name": name,
        **{key: fields[key] for key in keys},
        "acr": measured_acr(name),
        "about": recipe_comment(name),
        "first": trained_before(name),
    }


def _list_recipes(listed: Sequence[Result]) -> None:
    rows = [
        (
            *(str(each[key]) for key in ("name", "dataset", "model", "sigma")),
            f"{each['k'] * each['epochs']:,}",
            "" if each["acr"] is None else f"{each['acr']:.3f}",
        )
        for each in listed
    ]
    print_table(("recipe", "data set", "model", "σ", "copies", "ACR"), rows)
    for each in listed:
        for first in each["first"]:
            print_line(f"Train {first} before {each['name']}, whose teacher it is.")
    print_line(_COPIES)
    print_line(_BEGIN)


def data(*, data: Data = None, download: str | None = None) -> Result:
    """List the data sets: which are here, and where to get the others.

    Parameters
    ----------
    download
        Fetch this data set from its official address and check its SHA-256.
    """
    from macer.data.downloads import download as fetch
    from macer.data.sets import data_folder, located

    folder = data_folder(data)
    if download:
        fetch(download, folder)
    places = located(folder)
    rows = [(p.name, str(p.path or "no"), p.source, p.licence) for p in places]
    print_table(("data set", "here", "source", "licence"), rows)
    return {"folder": folder, "data_sets": places}


def bench(
    *,
    train: bool = False,
    images: Whole | None = None,
    n: Whole | None = None,
    device: Device = "auto",
) -> Result:
    """Time certification, or training, against a plain implementation, in one run.

    LeNet on a CPU; ResNet-110, ResNet-18 and wide14 on a GPU.

    Parameters
    ----------
    train
        Time MACER's training steps instead.
    images
        Images to certify; 20 by default.
    n
        Samples per image; 2,000 by default.
    """
    if train and (images, n) != (None, None):
        raise Mistake("images and n must be left out with train, which certifies nothing")
    processor = chosen_device(device)
    if train:
        from macer.experiments.bench_training import run_train_bench

        parts = run_train_bench(device=processor)
    else:
        from macer.experiments.bench import run_bench

        parts = run_bench(
            images=20 if images is None else images, n=2000 if n is None else n, device=processor
        )
    measured: list[Mapping[str, Any]] = []
    for part in parts:
        print_line(part.line)
        if not measured:
            note("measuring plain and ours in turn; each line comes when both are done")
        measured.append(part.figures)
    place, *results = filter(None, measured)
    return {"device": processor.type, **place, "results": results}
