"""Load and attack `macer serve` on this machine, and say what came of it.

python tests/support/load_service.py [--clients 200] [--seconds 60] [--malformed 10000] [--n 200]

One service of zoo:mnist-0.50 with a fixed seed is asked by one client, by many, by clients that
leave, and by malformed requests; it is killed (SIGKILL) in the middle of answers and started again.
Every answer is compared with the one of a quiet service. The result is one JSON document; the exit
code is 1 if an answer was wrong, a request had no answer or a status above 499 but for 503, or
something stayed behind. All requests go to 127.0.0.1.
"""

import argparse
import asyncio
import io
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from malformed import malformed
from PIL import Image

from macer.data.sets import load

MODEL = "zoo:mnist-0.50"
SEED = "7"
IMAGES = 40
Found = dict[str, Any]  # of a trial
COMPARED = ("label", "radius", "p_a", "votes", "samples", "drawn", "selected", "ended")


def png_of(number: int) -> bytes:
    """A test image of the embedded sample as a file."""
    file = io.BytesIO()
    Image.fromarray(load("mnist-sample", "test").images[number, 0]).save(file, "PNG")
    return file.getvalue()


# a service


@dataclass
class Service:
    """A process of `macer serve`, and its memory over time."""

    process: subprocess.Popen[str]
    port: int
    log: IO[str]
    resident: list[int] = field(default_factory=list)  # MB, one a second

    @classmethod
    def start(cls, port: int = 0) -> "Service":
        """Start one that answers, with limits that admit every client of this machine."""
        command = [sys.executable, "-m", "macer", "serve", MODEL, "--seed", SEED]
        limits = ["--per-client", "10000", "--seconds", "120", "--port", str(port)]
        log = tempfile.TemporaryFile("w+")  # noqa: SIM115  read at the end; a pipe would fill up
        process = subprocess.Popen(
            [*command, *limits, "--device", "cpu"],
            stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        return cls(process, int(line.split("/ answers")[0].rsplit(":", 1)[1]), log)

    def measure(self) -> dict[str, int]:
        """Memory in MB, without mapped files and with them; open files and threads."""
        proc = Path(f"/proc/{self.process.pid}")
        pages = int((proc / "statm").read_text().split()[1])
        resident = pages * os.sysconf("SC_PAGE_SIZE") // 1_000_000
        files = len(list((proc / "fd").iterdir()))
        anonymous = (proc / "status").read_text().split("RssAnon:")[1].split()[0]
        return {
            "own_MB": int(anonymous) * 1024 // 10**6,
            "MB": resident,
            "files": files,
            "threads": len(list((proc / "task").iterdir())),
        }

    async def watch(self) -> None:
        """Note the memory once a second."""
        while True:
            self.resident.append(self.measure()["MB"])
            await asyncio.sleep(1)


# a client


class Connection:
    """A connection that asks again and again; HTTP as this service speaks it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of an answer."""
        self.writer.write(request)
        await self.writer.drain()
        head = await self.reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").lower().split("\r\n")
        status = int(lines[0].split()[1])
        names = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        if "content-length" in names:
            return status, await self.reader.readexactly(int(names["content-length"]))
        return status, await self.reader.read()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """A connection to the service."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()


def request_of(path: str, body: bytes, headers: str = "") -> bytes:
    """A request of POST as bytes."""
    head = f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
    return head.encode("latin-1") + body


async def get(port: int, path: str) -> str:
    """The body of a page."""
    async with connected(port) as connection:
        _, body = await connection.ask(f"GET {path} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
    return body.decode()


async def remaining(port: int) -> dict[str, int]:
    """What is inside the service once all clients are gone, after a few seconds at most."""
    for _ in range(100):
        lines = (await get(port, "/metrics")).splitlines()
        names = ("macer_requests_inside", "macer_jobs_flying", "macer_queue_length")
        left = {
            name: int(line.split()[1])
            for line in lines
            for name in names
            if line[: len(name)] == name and line[0] != "#"
        }
        if not any(left.values()):
            break
        await asyncio.sleep(0.1)
    return left


# trials


@dataclass
class Trials:
    """The trials of one service, and what was found."""

    service: Service
    n: int
    right: dict[int, dict[str, Any]] = field(default_factory=dict)
    wrong: list[Any] = field(default_factory=list)
    found: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        path = f"/predict?n={self.n}&deadline=120"
        self.requests = [request_of(path, png_of(i)) for i in range(IMAGES)]

    def check(self, number: int, status: int, body: bytes) -> bool:
        """Whether an answer is the right one; a refusal for want of a place is no answer."""
        if status == 503:
            return False
        answer = json.loads(body) if status == 200 else {"status": status}
        compared = {key: answer.get(key) for key in COMPARED}
        if self.right.setdefault(number, compared) != compared or status != 200:
            self.wrong.append([number, status, compared])
        return True

    async def alone(self) -> Found:
        """One client, each image once, then each once more against the clock."""
        async with connected(self.service.port) as connection:
            for number, request in enumerate(self.requests):
                self.check(number, *await connection.ask(request))
            begin = time.monotonic()
            for number, request in enumerate(self.requests):
                self.check(number, *await connection.ask(request))
        return {"per_second": round(IMAGES / (time.monotonic() - begin), 2)}

    async def together(self, clients: int, seconds: float) -> Found:
        """Many clients for some time, each asking again at once."""
        times: list[float] = []
        refused = 0
        end = time.monotonic() + seconds

        async def client(i: int) -> None:
            nonlocal refused
            order = random.Random(i)
            async with connected(self.service.port) as connection:
                while time.monotonic() < end:
                    number, begin = order.randrange(IMAGES), time.monotonic()
                    if self.check(number, *await connection.ask(self.requests[number])):
                        times.append(time.monotonic() - begin)
                    else:
                        refused += 1
                        await asyncio.sleep(0.2)

        begin = time.monotonic()
        failed = await outcomes([client(i) for i in range(clients)])
        took = time.monotonic() - begin
        times.sort()
        return {
            "clients": clients, "seconds": round(took, 1), "answers": len(times),
            "refused_503": refused, "clients_without_answer": failed,
            "per_second": round(len(times) / took, 2), "median": round(statistics.median(times), 2),
            "99th": round(times[int(0.99 * (len(times) - 1))], 2),
        }  # fmt: skip

    async def leaving(self, clients: int) -> Found:
        """Clients that leave at once, in the middle of the request, or while they wait."""

        async def client(i: int) -> None:
            request = self.requests[i % IMAGES]
            kind = request.replace(b"/predict?", b"/stream?copies=8&") if i % 2 else request
            async with connected(self.service.port) as connection:
                part = kind if i % 3 else kind[: len(kind) // 2]
                connection.writer.write(part)
                await connection.writer.drain()
                await asyncio.sleep(0.05 * (i % 5))

        await outcomes([client(i) for i in range(clients)])
        return {"clients": clients, **await remaining(self.service.port)}

    async def attacked(self, count: int, seed: int) -> Found:
        """Malformed requests, sixteen at a time, and right ones among them."""
        source = random.Random(seed)
        queue = [malformed(source, png_of(i % IMAGES)) for i in range(count)]
        statuses: Counter[str] = Counter()

        async def client() -> None:
            while queue:
                request = queue.pop()
                if len(queue) % 100 == 0:
                    number = source.randrange(IMAGES)
                    async with connected(self.service.port) as connection:
                        self.check(number, *await connection.ask(self.requests[number]))
                statuses[await self._attack(*request)] += 1

        begin = time.monotonic()
        failed = await outcomes([client() for _ in range(16)])
        return {
            "requests": count, "seconds": round(time.monotonic() - begin, 1),
            "statuses": dict(sorted(statuses.items())), "without_answer": failed,
            **await remaining(self.service.port),
        }  # fmt: skip

    async def _attack(self, request: bytes, complete: bool) -> str:
        """The status of the answer to a malformed request; the connection may be closed instead."""
        try:
            async with asyncio.timeout(60), connected(self.service.port) as connection:
                if not complete:
                    connection.writer.write(request)
                    await asyncio.sleep(0.1)
                    return "left"
                status, body = await connection.ask(request)
        except (asyncio.IncompleteReadError, ConnectionError):
            return "closed"
        except TimeoutError:
            self.wrong.append(["no answer", 0, request[:300].decode("latin-1")])
            return "none"
        plain = body == b"Invalid HTTP request received."  # uvicorn's own
        if status >= 400 and not plain and json.loads(body)["error"]["message"].count("\n"):
            self.wrong.append(["several lines", status, body.decode()])
        if status >= 500 and status != 503:
            self.wrong.append(["failed", status, request[:300].decode("latin-1")])
        return str(status)

    async def killed(self) -> Found:
        """Kill the service while fifty clients wait; then ask a new one on the same port."""

        async def client(i: int) -> None:
            async with connected(self.service.port) as connection:
                self.check(i % IMAGES, *await connection.ask(self.requests[i % IMAGES]))

        waiting = [asyncio.ensure_future(client(i)) for i in range(50)]
        await asyncio.sleep(1)
        self.service.process.send_signal(signal.SIGKILL)
        gone = await outcomes(waiting)
        self.service.process.wait()
        begin = time.monotonic()
        self.service = Service.start(self.service.port)
        started = time.monotonic() - begin
        await client(0)
        again = await outcomes([client(i) for i in range(IMAGES)])
        return {
            "waited": 50, "cut_off": gone, "seconds_to_start": round(started, 1),
            "unanswered_afterwards": again,
        }  # fmt: skip


async def outcomes(clients: list[Any]) -> int:
    """Wait for all clients; how many of them failed."""
    ended = await asyncio.gather(*clients, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception) and not isinstance(
            error, asyncio.IncompleteReadError | ConnectionError
        ):
            raise error
    return sum(isinstance(error, Exception) for error in ended)


def one_process_each(n: int, count: int) -> float:
    """Requests a second with a process of `macer predict` for each, two at a time."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{i}.png" for i in range(count)]
        for i, file in enumerate(files):
            file.write_bytes(png_of(i))
        command = [sys.executable, "-m", "macer", "predict", MODEL, "--bound", "anytime"]
        settings = ["--n", str(n), "--seed", SEED, "--device", "cpu"]
        begin = time.monotonic()
        for pair in zip(files[::2], files[1::2], strict=True):
            running = [
                subprocess.Popen(
                    [*command, str(file), *settings],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )
                for file in pair
            ]  # fmt: skip
            assert [process.wait() for process in running] == [0, 0]
        return count / (time.monotonic() - begin)


async def trials(options: argparse.Namespace) -> Trials:
    """All trials, one after the other, with the memory after each."""
    tried = Trials(Service.start(), options.n)
    try:
        await loaded(tried, options)
        tried.found["killed"] = await tried.killed()
        tried.service.process.send_signal(signal.SIGTERM)
        tried.found["exit_code"] = tried.service.process.wait(60)
    finally:
        tried.service.process.kill()
    return tried


async def loaded(tried: Trials, options: argparse.Namespace) -> None:
    """The trials that one process must survive."""
    watching = asyncio.ensure_future(tried.service.watch())
    memory: dict[str, dict[str, int]] = {}
    acts: dict[str, Callable[[], Awaitable[Found]]] = {
        "alone": tried.alone,
        "together": lambda: tried.together(options.clients, options.seconds),
        "leaving": lambda: tried.leaving(options.clients),
        **{
            f"attacked, part {i} of 4": partial(tried.attacked, options.malformed // 4, seed=i)
            for i in range(1, 5)
        },
        "alone again": tried.alone,
        "together again": lambda: tried.together(options.clients, options.seconds / 4),
    }
    for name, act in acts.items():
        tried.found[name] = await act()
        memory[name] = tried.service.measure()
        sys.stderr.write(f"{name} {tried.found[name]} {memory[name]}\n")
    watching.cancel()
    tried.service.log.seek(0)
    tried.found["log"] = tried.service.log.read()[-5000:]
    tried.found["memory"] = memory | {"most_MB": max(tried.service.resident)}


def main() -> int:
    """Try, print, and tell by the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--malformed", type=int, default=10_000)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--processes", type=int, default=8)
    options = parser.parse_args()
    tried = asyncio.run(trials(options))
    if options.processes:
        rate = one_process_each(options.n, options.processes)
        tried.found["one_process_each"] = {"per_second": round(rate, 3)}
    tried.found["wrong"] = tried.wrong[:20]
    sys.stdout.write(json.dumps(tried.found, indent=1) + "\n")
    stayed = [
        value
        for trial in tried.found.values()
        if isinstance(trial, dict)
        for name, value in trial.items()
        if name.startswith("macer_")
    ]
    return int(bool(tried.wrong) or any(stayed) or tried.found["exit_code"] != 0)


if __name__ == "__main__":
    sys.exit(main())
