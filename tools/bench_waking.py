"""Waking: how soon a reader in another process has what was just answered.

    producer     produce ──► answered |                          write |
    reader            blocked in pull  ──► returned    blocked in recv  ──► returned
                                      `─ ours ─'                      `─ the yardstick ─'

The yardstick is a bare socket whose reader was idle.  Between two entries everybody sleeps, so that
nobody is awake by chance.  A reader that returns before the producer has its answer counts as 0.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final

import duckrow

from .bench_figures import Figure, Settings, at_most, ratios
from .bench_node import running_node
from .bench_sockets import WAKER, bare

TURNS: Final = 15
ENTRIES: Final = 100  # of a turn
REST_SECONDS: Final = 0.002
TOPIC: Final = "wake"


def wake(settings: Settings) -> Iterator[Figure]:
    turns, count = settings.scaled(TURNS, 2), settings.scaled(ENTRIES, 5)
    answered: list[int] = []
    rest = threading.Event().wait
    with running_node(settings) as node, duckrow.connect(node.url) as row, bare(WAKER) as waker:
        row.produce(TOPIC, b"first")
        with reader(node.url, turns * count) as reading:
            for turn in range(turns):
                for _ in range(count):
                    rest(REST_SECONDS)
                    row.produce(TOPIC, bytes(100))
                    answered.append(time.monotonic_ns())
                for _ in range(count):
                    rest(REST_SECONDS)
                    waker.wake()
                settings.tell(f"wake: turn {turn + 1} of {turns}")
            returned = json.loads(reading.communicate()[0])
        idle = waker.told()
    late = [max(0, there - here) for here, there in zip(answered, returned, strict=True)]
    ours, bares = _medians(late, count), _medians(idle, count)
    yield Figure.of(
        "a blocked pull in another process, after the answer",
        ratios(ours, bares),
        "of a socket",
        at_most(2),
        f"medians of {count}: {median(ours):.0f} µs after the producer had its answer; a reader of "
        f"a bare socket {median(bares):.0f} µs after the write",
    )


def _medians(found: list[int], count: int) -> list[float]:
    """Microseconds, of each turn."""
    return [median(found[at : at + count]) / 1e3 for at in range(0, len(found), count)]


@contextmanager
def reader(url: str, count: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is blocked in a pull, and tells in the end when each returned."""
    with subprocess.Popen(
        [sys.executable, "-m", "duckrow.tools.bench_waking", url, str(count)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def main(url: str, count: int) -> None:
    found: list[int] = []
    with duckrow.connect(url) as row:
        after = row.pull(TOPIC, "first").after
        print("ready", flush=True)
        while len(found) < count:
            page = row.pull(TOPIC, after, wait=60)
            found += [time.monotonic_ns()] * len(page)
            after = page.after
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
