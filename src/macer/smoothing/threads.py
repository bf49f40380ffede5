"""Threads for sampling on a CPU: each runs its own copy of the network on one core."""

import copy
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from threading import Event
from typing import TypeVar

import torch
from torch import fx, nn

from macer.models.modes import has_hooks
from macer.system.signals import signals_deferred

Item = TypeVar("Item")
Result = TypeVar("Result")


def networks_for_threads(model: nn.Module, most: int) -> list[nn.Module]:
    """The model for each of torch's threads, at most so many: they share the tensors, no more.

    A network may keep on itself what it has seen during a call, and would then find there what
    another thread has seen. A hook may write anywhere: a model with hooks runs in one thread, and
    so does one that cannot be copied. A traced network that keeps nothing is not copied, since
    torch.fx keeps the code of each copy for ever.
    """
    others = 0 if has_hooks(model) else max(min(torch.get_num_threads(), most) - 1, 0)
    if _keeps_nothing(model):
        return [model] * (1 + others)
    tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    try:
        return [model, *(copy.deepcopy(model, dict(tensors)) for _ in range(others))]
    except Exception:  # whatever the user's code holds
        return [model]


def _keeps_nothing(model: nn.Module) -> bool:
    """Whether a network is traced, and made of layers of torch and macer, which keep nothing."""
    known = {type(part).__module__.split(".")[0] for part in model.modules()} <= {"torch", "macer"}
    return isinstance(model, fx.GraphModule) and known


def in_threads(
    act: Callable[[nn.Module, Item], Result],
    work: Iterable[Item],
    networks: Sequence[nn.Module],
    *,
    ended: Event | None = None,
) -> Generator[Result, None, None]:
    """The results of act(network, item) in the order of the items, from one thread per network.

    This is faster than threads inside each layer, which wait for one another; and the logits then
    do not depend on how many cores there are.

    Args:
        ended: set when no further result is wanted, by an exception or since the iterator was
            closed; an act in progress may then raise, and those that have not begun do not begin.
    """
    idle: SimpleQueue[nn.Module] = SimpleQueue()
    for network in networks:
        idle.put(network)

    def act_on(item: Item) -> Result:
        network = idle.get()
        try:
            return act(network, item)
        finally:
            idle.put(network)

    threads = len(networks)
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            pending: deque[Future[Result]] = deque()
            try:
                for item in work:
                    with signals_deferred():  # nobody would wait for a thread that is half started
                        pending.append(pool.submit(act_on, item))
                    if len(pending) > 2 * threads:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                if ended:
                    ended.set()
                for future in pending:
                    future.cancel()
    finally:
        torch.set_num_threads(before)
