"""`macer pack`: a network of one's own into a run."""

import shlex
from pathlib import Path

from macer.cli.parameters import Data, Normalise, Weights
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
    out: Path,
) -> Result:
    """Make a run of a network, which certify, predict, export, verify and attack then take.

    Parameters
    ----------
    network
        package.module:function that returns an nn.Module, or with weights a network that macer
        knows, such as resnet110.
    sigma
        Noise level that the network was trained for.
    dataset
        Data set, whose classes and shape the network must have; `macer data` lists them.
    out
        Folder of the run; a new one.
    """
    from macer.certification.pack import pack as make_run
    from macer.data.sets import classes_of, load

    run = make_run(
        network,
        out,
        sigma=sigma,
        dataset=dataset,
        split=load(dataset, "test", data),
        classes=classes_of(dataset, data),
        weights=weights,
        normalise=normalise,
    )
    source = f" --data {shlex.quote(str(data))}" if data else ""
    sha256 = run.read_manifest()["weights_sha256"]
    print_line(f"packed {network} into {run.folder}, SHA-256 {sha256}")
    print_line(f"certify it with: macer certify {shlex.quote(str(out))}{source}")
    return {"run": run.folder, "weights_sha256": sha256}
