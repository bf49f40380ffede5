"""`macer certify`, `merge` and `predict`: certificates of a data set, or of image files."""

import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from macer.cli.parameters import (
    Code,
    Data,
    Device,
    Normalise,
    Photographs,
    Precision,
    Skip,
    Start,
    Stop,
    Threads,
    Weights,
    computing_device,
)
from macer.cli.printing import Result, print_line, print_report
from macer.recipes import CertifyRecipe, Whole
from macer.recipes.bound_names import VoteBoundName
from macer.runs.names import HELD_OUT, JOURNAL, MODEL
from macer.runs.zoo import in_zoo, user_folder
from macer.system.errors import Mistake, Stopped
from macer.system.processes import joined

if TYPE_CHECKING:
    from macer.certification.journal import Contents
    from macer.data.sets import Split
    from macer.runs.model_file import ModelCard


def certify(
    target: str,
    *,
    settings: CertifyRecipe = CertifyRecipe(),  # noqa: B008  frozen
    weights: Weights = None,
    normalise: Normalise = None,
    sigma: float | None = None,
    dataset: str | None = None,
    data: Data = None,
    photographs: Photographs = Photographs(),  # noqa: B008  frozen
    code: Code = (),
    start: Start = 0,
    stop: Stop = None,
    skip: Skip = 1,
    held_out: bool = False,
    family: bool = False,
    soft_betas: Annotated[tuple[float, ...], Parameter(consume_multiple=True)] = (),
    out: Path | None = None,
    batch_size: Whole | None = None,
    seconds: float | None = None,
    device: Device = "auto",
    threads: Threads = None,
) -> Result:
    """Certify a model's test images, or those it held out; continues where it stopped.

    Parameters
    ----------
    target
        A run folder, a model file, zoo:NAME, package.module:function that returns an nn.Module,
        a file of ONNX or TorchScript, or with weights a network that macer knows, such as
        resnet110.
    sigma
        Noise level; that of the training by default, needed for a function or a network by name.
    dataset
        Data set, or package.module:function; the one the model was trained on by default.
    held_out
        Certify the training images that the run held out, to choose settings by, into
        RUN/held-out; their numbers are those among all training images.
    family
        Share alpha among the images chosen: then all certificates hold together with 1 − alpha.
    soft_betas
        Certify the soft classifier at these β too, by Bernstein from the same samples, each into
        a folder bernstein-BETA of its own.
    out
        Folder for the certificates; by default the run itself, and runs/zoo-NAME for zoo:NAME.
    batch_size
        Noisy images the network sees at once.
    seconds
        Most seconds for each image, then the next one; with --bound anytime.
    """
    from macer.certification.preparation import plan_certification
    from macer.certification.shards import certify_together
    from macer.certification.target import check_target, find_target, is_trained, trained_target
    from macer.data.selection import Selection
    from macer.training.held_out import check_held_out, first_held_out

    images = Selection(start, stop, skip)
    check_target(target, weights=weights, normalise=normalise)
    if held_out:
        check_held_out(target, weights)  # before data are read
    folder = out or _folder_of(target, weights) / (HELD_OUT if held_out else "")
    known = trained_target(target, code=code) if weights is None and is_trained(target) else None
    part = "train" if held_out else "test"
    split = _images(target, known[1] if known else None, part, dataset, data, photographs, code)
    model = find_target(
        target, sigma=sigma, split=split, classes=split.classes,
        weights=weights, normalise=normalise, code=code, known=known,
    )  # fmt: skip
    _check_place_of_sigma(model.sigma, known[1] if known else None, out)
    indices = images.among(
        len(split.images), first=first_held_out(target, split) if held_out else 0
    )
    if family:
        settings = replace(settings, alpha=settings.alpha / len(indices))
    processor = computing_device(device, threads)
    with joined(processor) as ranks:
        certification = plan_certification(
            model, split, split.dataset, settings,
            device=processor, batch_size=batch_size, soft_betas=soft_betas, part=part,
            family=len(indices) if family else None, seconds=seconds,
        )  # fmt: skip
        contents = certify_together(certification, indices, folder, ranks=ranks)
    result = _print_result(contents, certification.folders(folder))
    if out is None and (held_out or in_zoo(target)):
        print_line(f"certificates: {folder}")
    return result


def _images(
    target: str,
    card: "ModelCard | None",
    part: str,
    dataset: str | None,
    data: Path | None,
    photographs: Photographs,
    code: Sequence[str],
) -> "Split":
    """The images to certify, of the data set that is named or that the model was trained on."""
    from macer.data.sets import load, sized
    from macer.runs.data_code import data_home

    if card:
        card.require_images(target)
    name = sized(dataset or _dataset_of(target, card), photographs.size)
    home = None if dataset else data_home(name, target, code=code, source=target)
    return load(name, part, data, rules=photographs.rules(), home=home)


def _print_result(contents: "Contents", folders: Sequence[Path]) -> Result:
    """Print what certificates say: scores, or how many images are robust at one radius."""
    from macer.reporting.logs import read_log
    from macer.reporting.one_radius import at_radius

    result: Result = {
        "folder": folders[0],
        "certificates": len(contents.records),
        "report": None,
        "at_radius": None,
    }
    if contents.header.radius is None:
        return result | {"report": print_report([read_log(folder) for folder in folders])}
    robust = at_radius(contents)
    print_line(robust.line())
    return result | {"at_radius": robust}


def _folder_of(target: str, weights: Path | None) -> Path:
    if in_zoo(target):
        return user_folder(target)
    if weights is None and Path(target).is_dir():
        return Path(target)
    raise Mistake(f"out must be given to certify {target}; add --out FOLDER")


def _check_place_of_sigma(sigma: float, card: "ModelCard | None", out: Path | None) -> None:
    """Keep certificates of another σ than the training's out of the run's own folder."""
    if card is not None and sigma != card.sigma and (out is None or (out / MODEL).is_file()):
        raise Mistake(
            f"out must be a folder of its own for another sigma than the training's, {card.sigma}, "
            f"got sigma {sigma}; add --out FOLDER"
        )


def _dataset_of(target: str, card: "ModelCard | None") -> str:
    from macer.data.split import ARRAYS

    if card is None:
        raise Mistake(f"dataset must be given to certify {target}; add --dataset NAME")
    if card.dataset == ARRAYS:
        raise Mistake(
            f"dataset must be given to certify {target}, which was trained on arrays of a "
            "caller's own; certify it in Python with macer.certify, or add --dataset NAME"
        )
    return card.dataset


def merge(*parts: Path, out: Path) -> Result:
    """Put certificates that were made in parts, on several machines say, into one folder.

    Parameters
    ----------
    parts
        Folders with certificates of the same model, data and settings.
    out
        Folder for all of them; a new one, or one to add to.
    """
    from macer.certification.data_set import check_out
    from macer.certification.journal import read_journal
    from macer.certification.shards import merge_journals
    from macer.system.progress import note

    if not parts:
        raise Mistake("parts must name at least one folder with certificates, got none")
    header = read_journal(parts[0] / JOURNAL).header
    check_out(out, header.weights_sha256, header.split)
    contents = merge_journals(parts, out)
    if contents.dropped:
        note(f"the parts hold {contents.dropped} damaged records, which do not count")
    print_line(f"{len(contents.records)} certificates in {out}")
    return _print_result(contents, [out]) | {"dropped": contents.dropped}


def predict(
    run: Path,
    /,
    *images: Path,
    n0: Whole = 100,
    n: Whole = 10_000,
    alpha: float = 0.001,
    bound: VoteBoundName | None = None,
    radius: float | None = None,
    seconds: float | None = None,
    sigma: float | None = None,
    seed: Whole = 0,
    precision: Precision = "auto",
    row_by_row: bool = False,
    code: Code = (),
    device: Device = "auto",
    threads: Threads = None,
) -> Result:
    """Label image files with a certified radius, or abstain.

    Parameters
    ----------
    run
        A run folder, a model file or zoo:NAME.
    images
        Image files of the model's size; of any size for a model that was trained with --size, and
        for one of ImageNet.
    n0
        Samples that select the class.
    n
        Other samples that bound its probability.
    alpha
        Probability that a label's radius is false, for each image.
    bound
        Bound the label's probability alone, or the runner-up's too, for a larger radius; anytime
        shows a radius that grows, and can be stopped.
    radius
        Ask only whether the label holds within this radius: usually far fewer samples.
    seconds
        Stop after so many seconds for each image, by the bound anytime; or before, with Ctrl-C.
    sigma
        Noise level; that of the training by default. At another one every line says so.
    seed
        Seed of the noise.
    row_by_row
        Show the network one noisy image at a time, if its rows depend on one another; slow.
    """
    from macer.certification.predict_files import Prediction, predict_files

    if not images:
        raise Mistake("images must name at least one file, got none")
    bound = bound or ("clopper-pearson" if seconds is None else "anytime")
    _check_bound(bound, radius, seconds)
    predictions: list[Prediction] = []
    result = {"run": run, "predictions": predictions}
    try:
        for prediction in predict_files(
            run, images, n0=n0, n=n, alpha=alpha, bound=bound, radius=radius, seconds=seconds,
            sigma=sigma, seed=seed, precision=precision, row_by_row=row_by_row,
            device=computing_device(device, threads), code=code,
        ):  # fmt: skip
            print_line(*prediction.fields())
            predictions.append(prediction)
    except KeyboardInterrupt:
        raise Stopped(signal.SIGINT, "interrupted", result) from None
    return result


def _check_bound(bound: str, radius: float | None, seconds: float | None) -> None:
    if seconds is not None and bound != "anytime":
        raise Mistake(f"bound must be anytime with seconds, got {bound}; leave --bound out")
    if radius is not None and bound != "clopper-pearson":
        what = "--bound" if seconds is None else "--seconds"
        raise Mistake(f"bound must be clopper-pearson with a radius, got {bound}; leave {what} out")
