"""`macer pack`, `macer ensemble` and `macer floor`: runs that are not trained."""

import shlex
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from macer.cli.parameters import (
    Code,
    Data,
    Device,
    Normalise,
    Precision,
    Size,
    SkipDamaged,
    Threads,
    Weights,
    computing_device,
)
from macer.cli.printing import Result, print_line, print_table
from macer.recipes import Whole


def pack(
    network: str,
    /,
    *,
    weights: Weights = None,
    normalise: Normalise = None,
    sigma: float,
    dataset: str,
    data: Data = None,
    size: Size = None,
    skip_damaged: SkipDamaged = False,
    code: Code = (),
    out: Path,
) -> Result:
    """Make a run of a network, which certify, predict, export, verify and attack then take.

    Parameters
    ----------
    network
        package.module:function that returns an nn.Module, with weights a network that macer
        knows, such as resnet110, or a file of ONNX or TorchScript.
    sigma
        Noise level that the network was trained for.
    dataset
        Data set, whose classes and shape the network must have; `macer data` lists them. Or
        package.module:function.
    out
        Folder of the run; a new one.
    """
    from macer.certification.pack import pack as make_run
    from macer.data.arrays import class_names
    from macer.data.file_lists import tell
    from macer.data.sets import Rules, load, sized

    dataset = sized(dataset, size)
    split = load(dataset, "test", data, rules=Rules(skip_damaged=skip_damaged, duplicates="ignore"))
    run = make_run(
        network,
        out,
        sigma=sigma,
        dataset=dataset,
        split=split,
        classes=class_names(None, split),
        weights=weights,
        normalise=normalise,
        code=code,
    )
    tell(split)
    source = f" --data {shlex.quote(str(data))}" if data else ""
    sha256 = run.read_manifest()["weights_sha256"]
    print_line(f"packed {network} into {run.folder}, SHA-256 {sha256}")
    print_line(f"certify it with: macer certify {shlex.quote(str(out))}{source}")
    return {"run": run.folder, "weights_sha256": sha256}


def ensemble(*runs: Annotated[str, Parameter(name="RUNS")], out: Path) -> Result:
    """Make a run of several trained models, whose logits are averaged, as one model.

    Parameters
    ----------
    runs
        Run folders, model files or zoo:NAME, of one σ and data set; two or more.
    out
        Folder of the run; a new one.
    """
    from macer.runs.ensemble import ensemble as make_run

    run = make_run(runs, out)
    sha256 = run.read_manifest()["weights_sha256"]
    print_line(f"made {run.folder} of {len(runs)} models, SHA-256 {sha256}")
    print_line(f"certify it with: macer certify {shlex.quote(str(out))}")
    return {"run": run.folder, "weights_sha256": sha256}


def floor(
    target: str,
    /,
    *,
    at_least: float,
    data: Data = None,
    skip_damaged: SkipDamaged = False,
    images: Whole = 200,
    samples: Whole = 32,
    held_out: bool = False,
    precision: Precision = "auto",
    device: Device = "auto",
    threads: Threads = None,
    code: Code = (),
    out: Path,
) -> Result:
    """Make a run of a trained model that gives up no class: offsets of its logits see to that.

    Parameters
    ----------
    target
        Run folder, model file or zoo:NAME.
    at_least
        Share of each class's training images to be right on most of their noisy copies.
    images
        Most training images of each class to choose the offsets by.
    samples
        Noisy copies of each image.
    held_out
        Take the training images that the run held out, and no others.
    out
        Folder of the run; a new one.
    """
    from macer.data.sets import Rules, load
    from macer.experiments.floored import raise_floor
    from macer.runs.data_code import data_home
    from macer.runs.trained_model import read_model
    from macer.training.held_out import check_held_out, first_held_out

    if held_out:
        check_held_out(target)  # before data are read
    dataset = read_model(target)[0].dataset
    rules = Rules(skip_damaged=skip_damaged, duplicates="ignore")
    home = data_home(dataset, target, code=code, source=target)
    split = load(dataset, "train", data, rules=rules, home=home)
    if held_out:
        split = split.part(first_held_out(target, split))
    floored = raise_floor(
        target, split, out,
        at_least=at_least, images=images, samples=samples, precision=precision,
        device=computing_device(device, threads), code=code,
    )  # fmt: skip
    print_table(
        ("class", "right", "with offsets", "offset"),
        [
            (each.name, *map(_share, (each.before, each.after)), f"{each.offset:.2f}")
            for each in floored.classes
        ],
    )
    sha256 = floored.run.read_manifest()["weights_sha256"]
    print_line(f"made {floored.run.folder} of {target}, SHA-256 {sha256}")
    source = f" --data {shlex.quote(str(data))}" if data else ""
    print_line(f"certify it with: macer certify {shlex.quote(str(out))}{source}")
    return {"run": out, "weights_sha256": sha256, "classes": floored.classes}


def _share(value: float | None) -> str:
    return "no images" if value is None else f"{value:.3f}"
