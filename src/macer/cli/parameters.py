"""Parameters that commands share, and the device that one of them chooses."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, Token

from macer.recipes import Whole
from macer.system.allocator import keep_freed
from macer.system.errors import Mistake
from macer.system.processes import started_by_torchrun

if TYPE_CHECKING:
    import torch

    from macer.data.sets import Rules


def _modules(_: Any, tokens: Sequence[Token]) -> tuple[str, ...]:
    """Refuse what is not the name of a module."""
    for name in (token.value for token in tokens):
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"must be the name of a module, such as mynets, got {name}")
    return tuple(token.value for token in tokens)


Code = Annotated[
    tuple[str, ...],
    Parameter(
        help="Module of your own whose code a file may name, or torchscript to run such files; a "
        "run of your own needs none.",
        converter=_modules,
        negative="",
    ),
]
Data = Annotated[Path | None, Parameter(help="Folder of the data sets; $MACER_DATA, then ./data.")]
Size = Annotated[
    str | None,
    Parameter(
        help="A folder's photographs: fit each to N or HEIGHTxWIDTH pixels, the middle of it."
    ),
]
SkipDamaged = Annotated[
    bool,
    Parameter(
        help="Image files of a folder or of ImageNet: go on without damaged ones.", negative=""
    ),
]
AllowDuplicates = Annotated[
    bool,
    Parameter(help="A folder's photographs: some may be in training and test both.", negative=""),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Photographs:
    """How a folder of photographs is read."""

    size: Size = None
    skip_damaged: SkipDamaged = False
    allow_duplicates: AllowDuplicates = False

    def rules(self) -> "Rules":
        """What to do about damaged files and duplicates."""
        from macer.data.sets import Rules

        duplicates: Any = "tell" if self.allow_duplicates else "refuse"
        return Rules(skip_damaged=self.skip_damaged, duplicates=duplicates)

    def flags(self) -> str:
        """The rules as another command takes them."""
        given = {"--skip-damaged": self.skip_damaged, "--allow-duplicates": self.allow_duplicates}
        return "".join(f" {flag}" for flag, value in given.items() if value)


Weights = Annotated[
    Path | None, Parameter(help="Weights of the network: a file of torch.save or of safetensors.")
]
Init = Annotated[
    str | None,
    Parameter(help="Weights to begin with: a file of torch.save or safetensors, a run, zoo:NAME."),
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
Threads = Annotated[
    Whole | None,
    Parameter(help="Threads of a CPU's arithmetic; by default as many as torch takes."),
]
MOST_THREADS = 1024
Start = Annotated[Whole, Parameter(help="First image, by its number.")]
Stop = Annotated[Whole | None, Parameter(help="Image to stop before; all by default.")]
Skip = Annotated[Whole, Parameter(help="Certify only images whose number is a multiple of this.")]


def chosen_device(name: str, threads: int | None = None) -> "torch.device":
    """The one place that chooses a device, and the number of a CPU's threads if it is given."""
    import torch

    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise Mistake(f"threads must be from 1 to {MOST_THREADS}, got {threads}")
    if name not in ("auto", "cpu", "cuda"):
        raise Mistake(f"device must be auto, cpu or cuda, got {name}")
    if name == "cuda" and not torch.cuda.is_available():
        raise Mistake("device must be cpu or auto here, got cuda; torch sees no GPU")
    if threads is not None:
        torch.set_num_threads(threads)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and started_by_torchrun():
        return _own_gpu()
    return torch.device(name)


def computing_device(name: str, threads: int | None = None) -> "torch.device":
    """The chosen device, for a command that trains or certifies and then ends.

    On a CPU it keeps the memory that it frees, since each batch needs as much as the one before.
    """
    device = chosen_device(name, threads)
    if device.type == "cpu":
        keep_freed()
    return device


def _own_gpu() -> "torch.device":
    """The GPU of this process among those of its machine."""
    import torch

    processes, gpus = int(os.environ["LOCAL_WORLD_SIZE"]), torch.cuda.device_count()
    if processes > gpus:
        raise Mistake(
            f"nproc-per-node must be at most the number of GPUs, {gpus}, got {processes}; or add "
            "--device cpu"
        )
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device
