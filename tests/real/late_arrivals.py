"""The experiment of the late arrivals: does a reader ever miss what comes from far away, and late?

    writer at m1 ──┐ 1 ms ┌── writer at m2        each at its own pace
                   m1 ── m2
            60 ms   \\    /  15 ms, uneven
                     m3 ──── writer at m3         a reader at each of them, from the first entry on

An entry that was made early and comes late must not get a number that a reader has passed.  So every
reader must see 1, 2, 3 ... without a gap and without a number twice, all of them the same entries, and
of each writer what it wrote in its order.  That entries do come late is measured, too: those that were
made before another one, elsewhere, that has a lower number.

    PYTHONPATH=src:tests .venv/bin/python -m real.late_arrivals --entries 1000000
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

import attrs

from duckrow.cluster.local import LocalCluster
from duckrow.cluster.plan import Plan, Wires

TOPIC: Final = "late"
VALUE: Final = struct.Struct("<BId")  # writer, its count, when it was made
NAMES: Final = ("m1", "m2", "m3")
DELAYS: Final = {
    ("m1", "m2"): Wires(delay=0.001),
    ("m2", "m3"): Wires(delay=0.015, jitter=0.02),
    ("m1", "m3"): Wires(delay=0.060, jitter=0.06),
}
BATCHES: Final = {"m1": 20, "m2": 700, "m3": 5000}  # entries of one call: the near come often
# The near do not wait for numbers: while the far one's entries are on their way, they have written more.
WAITS: Final = {"m1": "accepted", "m2": "accepted", "m3": "ordered"}
ANSWER_SECONDS: Final = 120.0


@attrs.define
class Seen:
    """What one reader saw."""

    node: str
    entries: int = 0
    late: int = 0
    wrong: list[str] = attrs.field(factory=list)
    digest: str = ""


def experiment(entries: int) -> list[Seen]:
    """What the reader at each machine saw of so many entries."""
    with LocalCluster.launch(Plan(nodes=3, durability="write", wires=Wires())) as cluster:
        for pair, wires in DELAYS.items():
            cluster.link_is(*pair, wires)
        left, together = threading.Semaphore(entries), threading.Barrier(len(NAMES))
        readers = [Reader(cluster, Seen(name), entries) for name in NAMES]
        writers = [Writer(cluster, number, left, together) for number in range(len(NAMES))]
        works = [*(each.work for each in readers), *(each.work for each in writers)]
        tasks = [Task(work) for work in works]
        for task in tasks:
            task.start()
        for task in tasks:
            task.end()
    return [reader.seen for reader in readers]


class Task(threading.Thread):
    """Its error is raised where it is joined."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised again by who joins it
            self._error = error

    def end(self) -> None:
        self.join()
        if self._error is not None:
            raise self._error


@attrs.frozen
class Writer:
    cluster: LocalCluster
    number: int
    left: threading.Semaphore
    together: threading.Barrier  # nobody has written all before another has a connection

    def work(self) -> None:
        """Its share is what it comes to: the slow write large batches."""
        name, count = NAMES[self.number], 0
        with self.cluster.connect(name, timeout=ANSWER_SECONDS) as row:
            row.status()
            self.together.wait(ANSWER_SECONDS)
            while True:
                values: list[bytes] = []
                while len(values) < BATCHES[name] and self.left.acquire(blocking=False):
                    count += 1
                    values.append(VALUE.pack(self.number, count, time.monotonic()))
                if not values:
                    return
                row.produce_many(TOPIC, values, wait=WAITS[name])


@attrs.frozen
class Reader:
    cluster: LocalCluster
    seen: Seen
    entries: int

    def work(self) -> None:
        seen, digest = self.seen, hashlib.sha256()
        last, newest = dict[int, int](), 0.0
        with self.cluster.connect(seen.node, timeout=ANSWER_SECONDS) as row:
            for entry in itertools.islice(row.follow(TOPIC), self.entries):
                seen.entries += 1
                if entry.number != seen.entries:
                    seen.wrong.append(f"{entry.number} where {seen.entries} should be")
                writer, count, made = VALUE.unpack(entry.value)
                if count != last.get(writer, 0) + 1:
                    seen.wrong.append(f"{count} of writer {writer} behind {last.get(writer, 0)}")
                last[writer] = count
                seen.late += made < newest
                newest = max(newest, made)
                digest.update(entry.value)
            more = row.pull(TOPIC, self.entries, limit=10)
            seen.wrong += [f"{each.number} beyond what was written" for each in more]
        seen.digest = digest.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(prog="real.late_arrivals")
    parser.add_argument("--entries", type=int, default=1_000_000)
    asked = parser.parse_args()
    began = time.monotonic()
    seen = experiment(asked.entries)
    for each in seen:
        wrong = "; ".join(each.wrong[:5]) or "nothing"
        print(f"{each.node}: {each.entries:,} entries, {each.late:,} late, wrong: {wrong}")
    same = len({each.digest for each in seen}) == 1
    print(f"{'the same' if same else 'NOT the same'} everywhere, {time.monotonic() - began:.0f} s")
    return 0 if same and not any(each.wrong for each in seen) else 1


if __name__ == "__main__":
    sys.exit(main())
