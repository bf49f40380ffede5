"""Processes that train or certify together, as torchrun starts them: one for each device."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from macer.system.errors import Mistake, OtherProcessFailed

if TYPE_CHECKING:
    import torch
    from torch import Tensor

T = TypeVar("T")

# A process waits this long for the slowest other one, which may be certifying all its images.
COLLECTIVE_TIMEOUT = timedelta(days=7)


def started_by_torchrun() -> bool:
    """Whether this process is one of several."""
    # Other launchers set WORLD_SIZE too.
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ["WORLD_SIZE"]) > 1


def is_first() -> bool:
    """Whether this process is the one that prints and writes."""
    return not started_by_torchrun() or os.environ["RANK"] == "0"


def is_first_of_machine() -> bool:
    """Whether this process is the first of its machine."""
    return not started_by_torchrun() or os.environ["LOCAL_RANK"] == "0"


@dataclass(frozen=True)
class Ranks:
    """This process among the processes that work together; the first writes what they share."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this process is the first."""
        return self.rank == 0

    def part(self, rows: "Tensor") -> "Tensor":
        """This process's equal part of the rows of a batch."""
        size = len(rows) // self.count
        return rows[self.rank * size : (self.rank + 1) * size]

    def average(self, tensors: "Sequence[Tensor]") -> None:
        """Replace each tensor by its mean over the processes."""
        if self.count == 1:
            return
        from torch import distributed

        from macer.kernels.launches import pack, unpack

        packed = pack(tensors)
        for values in packed.values():
            with _collective():
                distributed.all_reduce(values)
            values /= self.count
        unpack(packed, tensors)

    def copy_from_first(self, tensor: "Tensor") -> None:
        """Replace the tensor's values by those of the first process."""
        if self.count > 1:
            from torch import distributed

            with _collective():
                distributed.broadcast(tensor, src=0)

    def any(self, condition: bool) -> bool:
        """Whether the condition holds in any process; every process waits for all others."""
        if self.count == 1:
            return condition
        import torch
        from torch import distributed

        total = torch.tensor(int(condition))  # on the CPU, so that no GPU is waited for
        with _collective():
            distributed.all_reduce(total)
        return bool(total)

    def wait(self) -> None:
        """Wait until all processes have made this call."""
        self.any(False)

    def run_on_first(self, act: Callable[[], T]) -> T | None:
        """Run `act` in the first process while the others wait; if it fails, all processes end."""
        failure, result = None, None
        if self.first:
            try:
                result = act()
            except Exception as error:
                failure = error
        failed = self.any(failure is not None)
        if failure:
            raise failure
        if failed:
            raise OtherProcessFailed("the first process has failed; see its message")
        return result


SINGLE = Ranks()


@contextmanager
def _collective() -> Iterator[None]:
    """Report a failed exchange between processes in one line instead of a traceback."""
    try:
        yield
    except RuntimeError as error:
        # gloo puts its file and line before the reason, and general advice after it.
        reason = re.sub(r"^\[[^]]*\] ", "", str(error)).partition("\n")[0].partition(". ")[0]
        raise Mistake(
            f"another process has ended or does not answer ({reason}); start all again: certify "
            "goes on where it was, and train with --resume"
        ) from error


def _init_group(backend: str) -> None:
    """Begin the group of these processes.

    After a restart torchrun's store still has the addresses of the old processes. A new process
    must not take them for those of its own group, so each start keeps its addresses apart.
    """
    from torch.distributed import PrefixStore, init_process_group, rendezvous  # type: ignore[attr-defined]

    store, rank, count = next(rendezvous("env://", timeout=COLLECTIVE_TIMEOUT))
    own = PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    init_process_group(backend, store=own, rank=rank, world_size=count, timeout=COLLECTIVE_TIMEOUT)


@contextmanager
def joined(device: "torch.device") -> Iterator[Ranks]:
    """Join the processes that torchrun started with this one; SINGLE if it started no others."""
    if not started_by_torchrun():
        yield SINGLE
        return
    from torch import distributed

    # If nn is imported later, as the first optimiser does, it keeps a reference to the group. The
    # threads of a group that outlives this block can abort the process at its end.
    from torch.distributed import nn  # noqa: F401

    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    _init_group(backend)
    ranks = Ranks(distributed.get_rank(), distributed.get_world_size())
    try:
        yield ranks
    except Exception as error:
        if not ranks.first:  # it may be the only process that fails
            error.add_note(f"process {ranks.rank}")
        raise
    finally:
        distributed.destroy_process_group()
