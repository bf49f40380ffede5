"""`macer pack` and `macer ensemble`: runs that are not trained."""

import shlex
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from macer.cli.parameters import Code, Data, Normalise, Size, SkipDamaged, Weights
from macer.cli.printing import Result, print_line


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
