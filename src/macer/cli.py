"""The commands. torch is imported inside them: help and a mistyped flag do not wait for it."""

import sys
from collections.abc import Sequence
from dataclasses import fields as fields_of
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter
from cyclopts.config import Dict
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from macer import __version__
from macer.foreign import nearest
from macer.mistake import AuditFailed, Mistake
from macer.recipes import CertifyRecipe, TrainRecipe, Whole, read_recipe, recipe_names
from macer.stopping import Stopped
from macer.zoo import certificates_folder, in_zoo, user_folder

if TYPE_CHECKING:
    import torch

    from macer.data import Split
    from macer.journal import Contents
    from macer.logs import CertificateLog
    from macer.targets import Target


def _fields_of_recipe(app: App, commands: tuple[str, ...], arguments: Any) -> None:
    """Let the recipe's file give the fields that no flag gives."""
    if commands == ("train",) and arguments["--recipe"].tokens:
        name = arguments["--recipe"].tokens[0].value
        recipe, known = read_recipe(name), [field.name for field in fields_of(TrainRecipe)]
        if strangers := [field for field in recipe if field not in known]:
            guess = nearest(strangers[0], known)
            raise Mistake(f"recipe {name} has an unknown field {strangers[0]!r}{guess}")
        fields = Dict(recipe, source=name, use_commands_as_keys=False)
        fields(app, commands, arguments)


app = App(
    name="macer",
    help="Train and certify image classifiers that provably resist ℓ₂ attacks.",
    version=f"macer {__version__}",
    config=_fields_of_recipe,
    result_action="return_value",
)

Data = Annotated[Path | None, Parameter(help="Folder of the data sets; $MACER_DATA, then ./data.")]
Weights = Annotated[
    Path | None, Parameter(help="Weights of the network: a file of torch.save or of safetensors.")
]
Normalise = Annotated[
    str | None,
    Parameter(help="What stands before the network: none, a name such as cohen-cifar10, MEAN/STD."),
]
Precision = Annotated[
    Literal["auto", "fp32", "bf16"],
    Parameter(help="Arithmetic of the network; auto is bf16 on a GPU, else fp32."),
]
Device = Annotated[str, Parameter(help="auto, cpu or cuda; auto takes a GPU if there is one.")]


@app.command
def demo(*, out: Path = Path("demo"), device: Device = "auto") -> None:
    """Train, certify and report on the embedded data: Gaussian against MACER, in two minutes.

    Parameters
    ----------
    out
        Folder for the two runs, the curves and the page; must not exist.
    """
    from macer.demo import run_demo

    run_demo(out, _device(device))


@app.command
def train(
    recipe: str,
    *,
    fields: TrainRecipe = TrainRecipe(),  # noqa: B008  frozen
    out: Path | None = None,
    data: Data = None,
    resume: bool = False,
    device: Device = "auto",
    checkpoint_seconds: float = 30.0,
    validate_every: Whole = 1,
    tensorboard: bool = False,
) -> None:
    """Train a model; every field of the recipe can be overridden by its flag.

    Parameters
    ----------
    recipe
        A name that `macer recipes` lists, or a TOML file.
    out
        Folder of the run; runs/RECIPE by default.
    resume
        Continue the run where it stopped, or begin it.
    checkpoint_seconds
        Least time between two checkpoints.
    validate_every
        Epochs between two looks at the held-out images; the last epoch always has one.
    tensorboard
        Write TensorBoard events beside metrics.jsonl.
    """
    from macer.data import classes_of, load
    from macer.metrics import watching
    from macer.run import Run
    from macer.training import train as train_model
    from macer.training_speed import trained_line

    if not checkpoint_seconds >= 0:
        raise Mistake(f"checkpoint_seconds must be at least 0, got {checkpoint_seconds}")
    if validate_every < 1:
        raise Mistake(f"validate_every must be at least 1, got {validate_every}")
    folder = out or Path("runs") / _run_name(recipe)
    split = load(fields.dataset, "train", data)
    with watching(folder, tensorboard) as watch:
        train_model(
            fields,
            split,
            classes_of(fields.dataset, data),
            folder,
            device=_device(device),
            resume=resume,
            checkpoint_seconds=checkpoint_seconds,
            validate_every=validate_every,
            watch=watch,
        )
    print_line(trained_line(str(folder), Run(folder).read_manifest().get("speed", {})))
    print_line(f"certify it with: macer certify {folder}")


def _run_name(recipe: str) -> str:
    return recipe.replace("/", "-") if recipe in recipe_names() else Path(recipe).stem


@app.command
def certify(
    target: str,
    *,
    settings: CertifyRecipe = CertifyRecipe(),  # noqa: B008  frozen
    weights: Weights = None,
    normalise: Normalise = None,
    sigma: float | None = None,
    dataset: str | None = None,
    data: Data = None,
    start: Whole = 0,
    stop: Whole | None = None,
    skip: Whole = 1,
    family: bool = False,
    soft_betas: Annotated[tuple[float, ...], Parameter(consume_multiple=True)] = (),
    out: Path | None = None,
    batch_size: Whole | None = None,
    device: Device = "auto",
) -> None:
    """Certify a model's test images; continues by itself where it stopped.

    Parameters
    ----------
    target
        A run folder, a model file, zoo:NAME, package.module:function that returns an nn.Module,
        or with weights a network that macer knows, such as resnet110.
    sigma
        Noise level; needed only for a function or a network by name.
    dataset
        Data set; the one the model was trained on by default.
    start
        First test image.
    stop
        Test image to stop before; all by default.
    skip
        Certify only images whose number is a multiple of this.
    family
        Share alpha among the images chosen: then all certificates hold together with 1 − alpha.
    soft_betas
        Certify the soft classifier at these β too, by Bernstein from the same samples, each into
        a folder bernstein-BETA of its own.
    out
        Folder for the certificates; by default the run itself, and runs/zoo-NAME for zoo:NAME.
    batch_size
        Noisy images the network sees at once.
    """
    from macer.certifying import at_radius, certify_data_set, chosen_images
    from macer.data import classes_of, load
    from macer.logs import read_log
    from macer.targets import check_target, find_target

    check_target(target, weights=weights, normalise=normalise)
    folder = out or _folder_of(target, weights)
    name = dataset or _dataset_of(target, weights)
    split = load(name, "test", data)
    found = find_target(
        target, sigma=sigma, split=split, classes=len(classes_of(name, data)),
        weights=weights, normalise=normalise,
    )  # fmt: skip
    indices = chosen_images(len(split.images), start, stop, skip)
    if family:
        settings = replace(settings, alpha=settings.alpha / len(indices))
    contents = certify_data_set(
        found, split, name, indices, settings, folder,
        device=_device(device), batch_size=batch_size, soft_betas=soft_betas,
    )  # fmt: skip
    if settings.radius is not None:
        print_line(at_radius(contents))
    else:
        folders = [folder, *(folder / f"bernstein-{beta:g}" for beta in soft_betas)]
        _print_report([read_log(one) for one in folders])
    if in_zoo(target) and out is None:
        print_line(f"certificates: {folder}")


def _folder_of(target: str, weights: Path | None) -> Path:
    if in_zoo(target):
        return user_folder(target)
    if weights is None and Path(target).is_dir():
        return Path(target)
    raise Mistake(f"out must be given to certify {target}; add --out FOLDER")


def _dataset_of(target: str, weights: Path | None) -> str:
    from macer.run import load_model
    from macer.targets import is_trained

    if weights is None and is_trained(target):
        return load_model(target)[1].dataset
    raise Mistake(f"dataset must be given to certify {target}; add --dataset NAME")


@app.command
def verify(
    run: Path,
    /,
    *,
    target: str | None = None,
    weights: Weights = None,
    normalise: Normalise = None,
    resample: Whole = 0,
    data: Data = None,
    device: Device = "auto",
) -> None:
    """Audit a run's certificates: recompute them from their counts, check hashes, draw again.

    Parameters
    ----------
    run
        A folder with certificates, or zoo:NAME for those in runs/zoo-NAME, else its own.
    target
        The model they are of; the run's own by default.
    resample
        Images to choose at random and to certify again from their seeds.
    """
    from macer import verification
    from macer.progress import bar

    if resample < 0:
        raise Mistake(f"resample must be at least 0, got {resample}")
    device_ = _device(device)
    contents, split, found = _sources(run, target, weights, normalise, data)
    print_line(f"{verification.recompute(contents)} certificates follow from their counts")
    verification.check_table(contents, certificates_folder(run) / "certificates.tsv")
    print_line("weights, data, labels and table are those of the journal")
    if resample:
        again = verification.resample(contents, found, split, images=resample, device=device_)
        with bar("sampling again", min(resample, len(contents.records)), "images") as advance:
            for _ in again:
                advance(1)
        print_line(f"{min(resample, len(contents.records))} images sampled again: equal counts")


@app.command
def merge(*parts: Path, out: Path) -> None:
    """Put certificates that were made in parts, on several machines say, into one folder.

    Parameters
    ----------
    parts
        Folders with certificates of the same model, data and settings.
    out
        Folder for all of them; a new one, or one to add to.
    """
    from macer.certifying import at_radius
    from macer.journal import merge_journals
    from macer.logs import read_log

    if not parts:
        raise Mistake("parts must name at least one folder with certificates, got none")
    contents = merge_journals(parts, out)
    print_line(f"{len(contents.records)} certificates in {out}")
    if contents.header["radius"] is None:
        _print_report([read_log(out)])
    else:
        print_line(at_radius(contents))


@app.command
def attack(
    run: Path,
    /,
    *,
    target: str | None = None,
    weights: Weights = None,
    normalise: Normalise = None,
    images: Whole = 100,
    scale: float = 0.999,
    restarts: Whole = 3,
    steps: Whole = 20,
    m: Whole = 32,
    n: Whole = 2000,
    seed: Whole = 0,
    data: Data = None,
    device: Device = "auto",
) -> None:
    """Try to falsify a run's certificates by attacks from inside their balls.

    Parameters
    ----------
    run
        A folder with certificates, or zoo:NAME for those in runs/zoo-NAME, else its own.
    target
        The model they are of; the run's own by default.
    images
        Certified images to attack, the first ones.
    scale
        How far an attack may go, as a multiple of the certified radius; 2 shows that it bites.
    restarts
        Attacks on an image: one from the image, the others from random points of the ball.
    steps
        Steps of an attack.
    m
        Noisy copies it goes through.
    n
        Fresh samples that judge what it has found.
    seed
        Seed of the noise.
    """
    from macer import falsification
    from macer.progress import bar

    search = falsification.Search(scale=scale, restarts=restarts, steps=steps, m=m, n=n, seed=seed)
    device_ = _device(device)
    contents, split, found = _sources(run, target, weights, normalise, data)
    records = falsification.chosen_records(contents, images)
    trials = []
    with bar("attacking", restarts * len(records), "attacks") as advance:
        for trial in falsification.falsify(contents, records, found, split, search, device=device_):
            trials.append(trial)
            advance(1)
    for line in falsification.summary(trials, contents, search):
        print_line(line)
    falsification.check(trials, contents)


def _sources(
    run: Path, target: str | None, weights: Path | None, normalise: str | None, data: Path | None
) -> tuple["Contents", "Split", "Target"]:
    """A run's certificates, and the data and the model that they are of."""
    from macer import verification
    from macer.data import classes_of, load
    from macer.targets import find_target

    for flag, value in (("weights", weights), ("normalise", normalise)):
        if value is not None and target is None:
            raise Mistake(f"target must be given with {flag}; add --target NAME")
    contents = verification.read_certificates(certificates_folder(run))
    name = contents.header["dataset"]
    split = load(name, "test", data)
    found = find_target(
        target or str(run),
        sigma=contents.header["sigma"],
        split=split,
        classes=len(classes_of(name, data)),
        weights=weights,
        normalise=normalise,
    )
    verification.check_sources(contents, found, split)
    return contents, split, found


@app.command
def predict(
    run: Path,
    /,
    *images: Path,
    n0: Whole = 100,
    n: Whole = 10_000,
    alpha: float = 0.001,
    seed: Whole = 0,
    precision: Precision = "auto",
    device: Device = "auto",
) -> None:
    """Label image files with a certified radius, or abstain.

    Parameters
    ----------
    run
        A run folder, a model file or zoo:NAME.
    images
        Image files of the model's size.
    n0
        Samples that select the class.
    n
        Other samples that bound its probability.
    alpha
        Probability that a label's radius is false, for each image.
    seed
        Seed of the noise.
    """
    from macer.prediction import predict_files

    if not images:
        raise Mistake("images must name at least one file, got none")
    device_ = _device(device)
    lines = predict_files(
        run, images, n0=n0, n=n, alpha=alpha, seed=seed, precision=precision, device=device_
    )
    for line in lines:
        print_line(line)


@app.command
def report(
    *logs: Path,
    start: Whole = 0,
    stop: Whole | None = None,
    skip: Whole = 1,
    csv: bool = False,
    latex: bool = False,
    markdown: bool = False,
    html: Path | None = None,
    plot: Path | None = None,
) -> None:
    """Certified accuracy and ACR of runs and of the field's logs, gzipped or not.

    Parameters
    ----------
    logs
        Run folders, log files and zoo:NAME; differences are to the first.
    start
        First image to count.
    stop
        Image to stop before.
    skip
        Count only images whose number is a multiple of this.
    csv
        Print CSV instead of a table for the terminal.
    latex
        Print LaTeX instead.
    markdown
        Print Markdown instead.
    html
        Write a self-contained page.
    plot
        Draw radius–accuracy curves, PNG or PDF by the file's ending.
    """
    from macer.logs import read_log, select

    if not logs:
        raise Mistake("logs must name at least one run or log file, got none")
    if csv + latex + markdown > 1:
        raise Mistake("choose one of --csv, --latex and --markdown")
    if start < 0:
        raise Mistake(f"start must be at least 0, got {start}")
    chosen = [select(read_log(certificates_folder(path)), start, stop, skip) for path in logs]
    if plot:
        from macer.curves import plot as draw_curves

        draw_curves(chosen, plot)
    if html:
        from macer.page import write_page

        write_page(chosen, html, title="Certified robustness")
    form = "csv" if csv else "latex" if latex else "markdown" if markdown else "terminal"
    _print_report(chosen, form)
    for what, file in (("curves", plot), ("page", html)):
        if file:
            print_line(f"{what}: {file}")


@app.command
def compare(
    *recipes: str,
    out: Path,
    data: Data = None,
    seeds: Whole = 3,
    n0: Whole = 100,
    n: Whole = 1000,
    alpha: float = 0.001,
    start: Whole = 0,
    stop: Whole | None = None,
    skip: Whole = 10,
    device: Device = "auto",
) -> None:
    """Train recipes with the same seeds, certify the models, and compare them with the first.

    Parameters
    ----------
    recipes
        Names that `macer recipes` lists, or TOML files, of one data set; all of sample/ by default.
    out
        Folder of the runs, OUT/RECIPE/seed-S; what is finished there is not done again.
    seeds
        Models of each recipe.
    n0
        Samples that select the class.
    n
        Other samples that bound its probability.
    alpha
        Probability that a certificate is false, for each image.
    start
        First test image.
    stop
        Test image to stop before; all by default.
    skip
        Certify only images whose number is a multiple of this.
    """
    from macer import comparison

    names = recipes or _sample_recipes()
    runs = [_run_name(name) for name in names]
    if len(set(runs)) < len(runs):
        raise Mistake(f"recipes must have different names, got {', '.join(runs)}")
    entries = comparison.compare(
        {run: _read(name) for run, name in zip(runs, names, strict=True)},
        out,
        seeds=seeds,
        settings=CertifyRecipe(n0=n0, n=n, alpha=alpha),
        data=data,
        start=start,
        stop=stop,
        skip=skip,
        device=_device(device),
    )
    _print_table(*comparison.cells(entries))
    for line in comparison.notes(entries):
        print_line(line)


def _read(name: str) -> TrainRecipe:
    """The recipe that `macer train NAME` takes."""
    _, bound, _ = app.parse_args(["train", name], exit_on_error=False, print_error=False)
    recipe: TrainRecipe = bound.arguments.get("fields", TrainRecipe())
    return recipe


def _sample_recipes() -> list[str]:
    """The recipes for the embedded sample, Gaussian training first."""
    names = [name for name in recipe_names() if name.startswith("sample/")]
    return sorted(names, key=lambda name: name != "sample/gaussian")


@app.command
def export(run: Path, /, *, out: Path, overwrite: bool = False) -> None:
    """Write a model into a file of half the size, weights rounded to float16.

    Parameters
    ----------
    run
        A run folder, a model file or zoo:NAME.
    out
        The file, which every command takes as a model.
    overwrite
        Replace the file if there is one.
    """
    from macer.export import export_model

    sha256 = export_model(run, out, overwrite=overwrite)
    print_line(
        f"exported {out}: {out.stat().st_size:,} bytes, SHA-256 {sha256}; "
        "its certificates are those of the weights rounded to float16"
    )


@app.command
def zoo() -> None:
    """List the trained models that come with macer; zoo:NAME stands for a run or a model file."""
    from macer.catalogue import HEADER, catalogue

    if rows := catalogue():
        _print_table(HEADER, rows)
    else:
        print_line("no trained models come with this macer")


@app.command
def recipes() -> None:
    """List the recipes that come with macer."""
    keys = ("loss", "model", "sigma", "k", "lam", "epochs")  # the names say the data set
    recipes = {name: read_recipe(name) for name in recipe_names()}
    rows = [(name, *(str(recipe[key]) for key in keys)) for name, recipe in recipes.items()]
    _print_table(("recipe", "loss", "model", "σ", "k", "λ", "epochs"), rows)


@app.command
def data(*, data: Data = None, download: str | None = None) -> None:
    """List the data sets: which are here, and where the others come from.

    Parameters
    ----------
    download
        Fetch this data set from its official address and check its SHA-256.
    """
    from macer.data import data_folder, located
    from macer.data import download as fetch

    folder = data_folder(data)
    if download:
        fetch(download, folder)
    rows = [(p.name, str(p.path or "no"), p.source, p.licence) for p in located(folder)]
    _print_table(("data set", "here", "source", "licence"), rows)


@app.command
def bench(
    *, train: bool = False, images: Whole = 20, n: Whole = 2000, device: Device = "auto"
) -> None:
    """Time certification, or training, against a plain implementation, in one run.

    LeNet on a CPU, ResNet-110 and ResNet-18 on a GPU.

    Parameters
    ----------
    train
        Time MACER's training steps instead.
    images
        Images to certify.
    n
        Samples for each of them.
    """
    device_ = _device(device)
    if train:
        from macer.bench_train import run_train_bench

        lines = run_train_bench(device=device_)
    else:
        from macer.bench import run_bench

        lines = run_bench(images=images, n=n, device=device_)
    for line in lines:
        print_line(line)


def _device(name: str) -> "torch.device":
    """The one place that chooses a device."""
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise Mistake(f"device must be auto, cpu or cuda, got {name}")
    if name == "cuda" and not torch.cuda.is_available():
        raise Mistake("device must be cpu or auto here, got cuda; torch sees no GPU")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _print_report(logs: Sequence["CertificateLog"], form: str = "terminal") -> None:
    from macer import tables

    table = tables.tabulate(logs)
    if form == "terminal":
        _console().print(tables.terminal(table))
    else:
        sys.stdout.write(getattr(tables, form)(table))


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table that cuts nothing off; the names in its first column stay on one line."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    whole = max(len(row[0]) for row in rows)
    table.add_column(header[0], overflow="fold", min_width=whole, no_wrap=True)
    for name in header[1:]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    _console().print(table)


def _console() -> Console:
    """Standard output; as wide as its tables when it is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=1000)


def print_line(text: str) -> None:
    """Print one plain line on standard output."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one line and exit code 2."""
    try:
        app(arguments, exit_on_error=False, print_error=False)
    except (CycloptsError, Mistake) as error:
        sys.stderr.write(f"macer: {' '.join(str(error).split())}\n")
        return 2
    except OSError as error:
        if error.filename is None:
            raise
        sys.stderr.write(f"macer: cannot use {error.filename}: {error.strerror}\n")
        return 2
    except AuditFailed as failure:
        sys.stderr.write(f"macer: not verified: {failure}\n")
        return 1
    except Stopped as stop:
        command = (sys.argv[1:] if arguments is None else list(arguments))[0]
        how = {"train": "continue with --resume", "compare": "the same command continues"}
        sys.stderr.write(f"macer: {stop}; {how.get(command, 'begin again')}\n")
        return 128 + stop.signal_number
    except KeyboardInterrupt:
        sys.stderr.write("macer: interrupted\n")
        return 130
    return 0
