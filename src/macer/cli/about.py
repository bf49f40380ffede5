"""`macer zoo`, `recipes`, `data` and `bench`: what is here, and how fast it runs."""

from macer.cli.parameters import Data, Device, chosen_device
from macer.cli.printing import Result, print_line, print_table
from macer.errors import Mistake
from macer.recipes import Whole, named_recipe, recipe_names


def zoo() -> Result:
    """List the trained models that come with macer; zoo:NAME stands for a run or a model file."""
    from macer.report.tables import RADII
    from macer.report.zoo_table import HEADER, catalogue

    models = catalogue()
    if models:
        print_table(HEADER, [model.cells() for model in models])
    else:
        print_line("no trained models come with this macer")
    return {"radii": RADII, "models": models}


def recipes() -> Result:
    """List the recipes that come with macer."""
    keys = ("loss", "model", "sigma", "k", "lam", "epochs")  # names contain the data set
    recipes = {name: {"lam": 0.0} | named_recipe(name).flat() for name in recipe_names()}
    rows = [(name, *(str(recipe[key]) for key in keys)) for name, recipe in recipes.items()]
    print_table(("recipe", "loss", "model", "σ", "k", "λ", "epochs"), rows)
    listed = [
        {"name": name, **{key: recipe[key] for key in ("dataset", *keys)}}
        for name, recipe in recipes.items()
    ]
    return {"recipes": listed}


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
    measured = []
    for part in parts:
        print_line(part.line)
        measured.append(part.figures)
    place, *results = filter(None, measured)
    return {"device": processor.type, **place, "results": results}
