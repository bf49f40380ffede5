"""`macer serve`: answer over HTTP, with a page on which one watches a certificate grow."""

import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from macer.cli.parameters import Code, Device, Precision, chosen_device
from macer.cli.printing import Result, print_line
from macer.recipes import Whole
from macer.system.errors import Mistake

DEFAULT = ("zoo:mnist-0.25", "zoo:mnist-0.50", "zoo:mnist-1.00")


def serve(
    *models: Annotated[str, Parameter(name="RUNS")],
    host: str = "127.0.0.1",
    port: Whole = 8000,
    keys: Path | None = None,
    seed: Whole | None = None,
    n: Whole = 100_000,
    seconds: float = 30.0,
    body: Whole = 4 << 20,
    pixels: Whole = 1 << 24,
    at_once: Whole = 16,
    queue: Whole = 256,
    per_client: Whole = 64,
    precision: Precision = "auto",
    row_by_row: bool = False,
    code: Code = (),
    device: Device = "auto",
) -> Result:
    """Answer over HTTP with certificates that grow, and show them on a page; needs the extra serve.

    Parameters
    ----------
    models
        Run folders, model files or zoo:NAME; the zoo's models of MNIST by default.
    host
        Address to listen on; by default only this machine can ask.
    port
        Port to listen on; 0 takes a free one.
    keys
        File with the keys of those who may ask, one in a line; everybody may by default.
    seed
        Seed of the noise; a secret random one by default.
    n
        Most samples for an image.
    seconds
        Longest deadline that a request may set.
    body
        Most bytes of a request.
    pixels
        Most pixels of an image.
    at_once
        Images that are sampled together; a GPU has time for more.
    queue
        Requests that may wait beyond these.
    per_client
        Requests of one key, or of one address where there are no keys, at once.
    row_by_row
        Show the network one noisy image at a time, if its rows depend on one another; slow.
    """
    from macer.system.progress import note

    _check_extra()
    from macer.server.app import Service
    from macer.server.limits import Keys, Limits, read_keys
    from macer.server.listening import bound_socket, listen
    from macer.server.served import Seed, load_served
    from macer.system.allocator import share_arenas

    share_arenas()
    limits = Limits(
        body=body, pixels=pixels, seconds=seconds, n=n, at_once=at_once, queue=queue,
        per_client=per_client,
    )  # fmt: skip
    admitted = Keys() if keys is None else read_keys(keys)
    chosen = Seed.chosen(seed)
    processor = chosen_device(device)
    with bound_socket(host, port) as bound:
        served = load_served(
            models or DEFAULT, precision=precision, row_by_row=row_by_row, device=processor,
            code=code,
        )  # fmt: skip
        service = Service(served, limits=limits, seed=chosen, keys=admitted)
        address = f"http://{_shown(host)}:{bound.getsockname()[1]}/"
        print_line(f"{address} answers until Ctrl-C")
        if host not in ("127.0.0.1", "::1", "localhost") and keys is None:
            note("other machines may ask without a key; --keys FILE admits only those you know")
        started = time.monotonic()
        listen(service, bound)
    requests = service.metrics.requests.total()
    print_line(f"stopped after {requests:,} requests and {service.worker.samples:,} samples")
    return {
        "address": address,
        "models": list(served),
        "requests": requests,
        "samples": service.worker.samples,
        "seconds": round(time.monotonic() - started, 3),
    }


def _check_extra() -> None:
    """Say how to install what this command alone needs."""
    from importlib.util import find_spec

    missing = [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]
    if missing:
        raise Mistake(
            f"serve needs {' and '.join(missing)}, got none; pip install 'torch-macer[serve]'"
        )


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
