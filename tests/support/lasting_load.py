"""Ask `macer serve` for a long time for all that it answers, and say how its memory went.

python tests/support/lasting_load.py [--minutes 25] [--n 200]

One service of zoo:mnist-0.50 with a fixed seed is asked at once by four clients with right
requests, four with malformed ones (`malformed.py`), one that leaves, and one that reads pages and
metrics. Its memory is read every five seconds, with the files that it maps and without. The result
is one JSON document: the median of each quarter of the time, and what was answered. The exit code
is 1 if an answer was wrong or something stayed behind.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from load_service import IMAGES, Found, Service, Trials, connected, get, png_of, remaining
from malformed import malformed

SECONDS = 5.0  # between two looks at the memory
PAGES = ("/", "/models", "/metrics", "/openapi.json", "/page.js")


class Lasting:
    """Clients that go on until a time, and what they counted."""

    def __init__(self, tried: Trials, minutes: float) -> None:
        self.tried, self.port = tried, tried.service.port
        self.begin = time.monotonic()
        self.end = self.begin + 60 * minutes
        self.counts: Counter[str] = Counter()
        self.memory: list[dict[str, int]] = []

    async def _until_the_end(self, act: Callable[[], Awaitable[None]]) -> None:
        while time.monotonic() < self.end:
            await act()

    async def _watch(self) -> None:
        self.memory.append(self.tried.service.measure())
        await asyncio.sleep(SECONDS)

    async def _read(self) -> None:
        for page in PAGES:
            await get(self.port, page)
            self.counts["pages"] += 1
        await asyncio.sleep(0.5)

    async def _leave(self) -> None:
        async with connected(self.port) as connection:
            connection.writer.write(self.tried.requests[0].replace(b"/predict?", b"/stream?"))
            await connection.writer.drain()
            await asyncio.sleep(0.1)
        self.counts["left"] += 1

    async def _ask(self, source: random.Random) -> None:
        number = source.randrange(IMAGES)
        async with connected(self.port) as connection:
            self.tried.check(number, *await connection.ask(self.tried.requests[number]))
        self.counts["answers"] += 1

    async def _attack(self, source: random.Random) -> None:
        await self.tried._attack(*malformed(source, png_of(source.randrange(IMAGES))))
        self.counts["malformed"] += 1

    async def run(self) -> Found:
        """All clients at once; then the service is left alone for a look."""
        acts: list[Callable[[], Awaitable[None]]] = [self._watch, self._read, self._leave]
        for seed in range(4):
            right, wrong = random.Random(seed), random.Random(100 + seed)
            acts += [lambda s=right: self._ask(s), lambda s=wrong: self._attack(s)]
        await asyncio.gather(*map(self._until_the_end, acts))
        quarter = len(self.memory) // 4
        sizes = {name: [now[name] for now in self.memory] for name in ("own_MB", "MB")}
        return {
            "minutes": round((time.monotonic() - self.begin) / 60, 1), **self.counts,
            "median_of_quarters": {
                name: [statistics.median(all_[i * quarter : (i + 1) * quarter]) for i in range(4)]
                for name, all_ in sizes.items()
            },
            "each_minute": {name: all_[:: round(60 / SECONDS)] for name, all_ in sizes.items()},
            "files_most": max(now["files"] for now in self.memory),
            "threads_most": max(now["threads"] for now in self.memory),
            **await remaining(self.port),
        }  # fmt: skip


async def lasting(options: argparse.Namespace) -> tuple[Trials, Found]:
    """Start a service, load it, and stop it."""
    tried = Trials(Service.start(), options.n)
    try:
        await tried.alone()
        found = await Lasting(tried, options.minutes).run()
    finally:
        tried.service.process.kill()
    return tried, found


def main() -> int:
    """Try, print, and tell by the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--n", type=int, default=200)
    tried, found = asyncio.run(lasting(parser.parse_args()))
    found["wrong"] = tried.wrong[:20]
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return int(bool(tried.wrong) or any(found[name] for name in found if name[:6] == "macer_"))


if __name__ == "__main__":
    sys.exit(main())
