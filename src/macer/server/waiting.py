"""Between the event loop and the worker: news of a job, until it ends or its client leaves."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from macer.server.answers import answer_of
from macer.server.job import Job
from macer.server.limits import Refusal
from macer.server.served import Seed
from macer.server.worker import Worker

Value = TypeVar("Value")


class ClientLeft(Exception):
    """Nobody waits for the answer."""


class News:
    """Tells the event loop that a thread has news; news that it has not seen yet count as one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def tell(self) -> None:
        """From any thread."""
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            self._loop.call_soon_threadsafe(self._event.set)

    async def next(self) -> None:
        """Wait for news."""
        await self._event.wait()
        self._event.clear()


async def answered(worker: Worker, job: Job, receive: Receive) -> None:
    """Wait until a job has ended; what failed is raised."""
    async for _ in news_of(worker, job, receive):
        pass


async def news_of(worker: Worker, job: Job, receive: Receive) -> AsyncIterator[None]:
    """Hand a job to the worker; yield at each look. A client that leaves ends its job."""
    news = News()
    job.tell = news.tell
    leaving = asyncio.ensure_future(left(receive))
    try:
        worker.submit(job)
        while not job.done:
            waiting = asyncio.ensure_future(news.next())
            await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                waiting.cancel()
                raise ClientLeft
            if job.error is None:
                yield
        if job.error is not None:
            raise job.error
    finally:
        job.left = True
        leaving.cancel()


async def left(receive: Receive) -> None:
    """Return when the client has left; its whole body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Events(Response):
    """Server-sent events: what is known at each look, until the job ends or the client leaves.

    Args:
        place: the request's place among those that are answered, which it leaves at the end.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        worker: Worker,
        job: Job,
        seed: Seed,
        place: ExitStack,
        failed: Callable[[Exception], Refusal],
    ) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self.worker, self.job, self.seed, self.place = worker, job, seed, place
        self.failed = failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""

        async def event(kind: str, content: object) -> None:
            data = f"event: {kind}\ndata: {json.dumps(content, allow_nan=False)}\n\n"
            await send({"type": "http.response.body", "body": data.encode(), "more_body": True})

        with self.place, suppress(ClientLeft, OSError):
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            try:
                async for _ in news_of(self.worker, self.job, receive):
                    last = self.job.done
                    answer = asdict(answer_of(self.job, self.seed))
                    await event("end" if last else "look", answer)
                    if last:
                        break
            except (ClientLeft, OSError):
                raise
            except Exception as error:
                refusal = self.failed(error)
                message = {"kind": refusal.kind, "message": str(refusal)}
                await event("error", {"error": message})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def result_of(request: Request, future: "asyncio.Future[Value]") -> Value:
    """The result of a call; a client that leaves cancels it."""
    leaving = asyncio.ensure_future(left(request.receive))
    try:
        both: set[asyncio.Future[Any]] = {future, leaving}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            future.cancel()
            raise ClientLeft
        return future.result()
    finally:
        leaving.cancel()
