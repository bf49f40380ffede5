"""Processes that train or certify together, as torchrun starts them: one for each device."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from macer.errors import Mistake

if TYPE_CHECKING:
    import torch
    from torch import Tensor

T = TypeVar("T")

# How long one waits for the slowest of the others, in an epoch or in certifying its images.
PATIENCE = timedelta(days=7)


def started_by_torchrun() -> bool:
    """Whether this process is one of several."""
    # Other launchers set WORLD_SIZE too.
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ["WORLD_SIZE"]) > 1


def is_first() -> bool:
    """Whether this process is the one that speaks and writes."""
    return not started_by_torchrun() or os.environ["RANK"] == "0"


def is_first_here() -> bool:
    """Whether this process is the first of its machine."""
    return not started_by_torchrun() or os.environ["LOCAL_RANK"] == "0"


class ToldElsewhere(Mistake):
    """Another process has failed, and says why."""


@dataclass(frozen=True)
class Ranks:
    """This process among those that work together; the first writes what they share."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether it is this one."""
        return self.rank == 0

    def part(self, rows: "Tensor") -> "Tensor":
        """This process's equal part of what belongs to a batch."""
        size = len(rows) // self.count
        return rows[self.rank * size : (self.rank + 1) * size]

    def average(self, tensors: "Sequence[Tensor]") -> None:
        """Put into each tensor its mean over the processes."""
        if self.count == 1:
            return
        from torch import distributed

        from macer.kernels.launches import pack, unpack

        packed = pack(tensors)
        for values in packed.values():
            with _talking():
                distributed.all_reduce(values)
            values /= self.count
        unpack(packed, tensors)

    def copy_from_first(self, tensor: "Tensor") -> None:
        """Put into the tensor the first process's values."""
        if self.count > 1:
            from torch import distributed

            with _talking():
                distributed.broadcast(tensor, src=0)

    def any(self, here: bool) -> bool:
        """Whether it is so in any of the processes; each waits for all others."""
        if self.count == 1:
            return here
        import torch
        from torch import distributed

        flag = torch.tensor(int(here))  # on the CPU, so that no GPU is waited for
        with _talking():
            distributed.all_reduce(flag)
        return bool(flag)

    def wait(self) -> None:
        """Wait until all processes have come here."""
        self.any(False)

    def first_does(self, act: Callable[[], T]) -> T | None:
        """Let the first process act, the others wait; where it fails, all end."""
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
            raise ToldElsewhere("the first process has failed; see what it says")
        return result


ALONE = Ranks()


@contextmanager
def _talking() -> Iterator[None]:
    """What the others do not answer is a line, not a traceback."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise Mistake(f"another process has ended or does not answer: {reason}") from error


@contextmanager
def joined(device: "torch.device") -> Iterator[Ranks]:
    """Join the processes that torchrun started with this one; alone if there are none."""
    if not started_by_torchrun():
        yield ALONE
        return
    from torch import distributed

    # Imported later, as the first optimiser does, nn keeps the group; the threads of a group that
    # outlives this block can abort the process when it ends.
    from torch.distributed import nn  # noqa: F401

    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, timeout=PATIENCE)
    ranks = Ranks(distributed.get_rank(), distributed.get_world_size())
    try:
        yield ranks
    except Exception as error:
        if not ranks.first:  # it may be the only one to fail
            error.add_note(f"process {ranks.rank}")
        raise
    finally:
        distributed.destroy_process_group()
