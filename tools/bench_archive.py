"""What an archiver reaches: a backlog of pruned entries, from the node's row to synced Parquet files.

    node ──► pulls over its socket ──► row groups ──► zstd ──► fsync, rename ──► the node lets go

The node is a process of its own, as in life, and this one is the archiver.  Values are 100 characters of
random hexadecimal digits, of which zstd makes a little more than half.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Final

import duckrow
from duckrow.node.archiveplace import Place

from .archiver import Archiver
from .bench_figures import Figure, Rounds, Settings, Target, at_least
from .bench_node import Node, running_node

SPAN: Final = 65_536  # entries a file
ENTRIES: Final = 15 * SPAN  # of a turn: a million, nearly
FEW: Final = 10  # entries of a batch of somebody who does not gather
TOPIC: Final = "bench"


def archive(settings: Settings) -> Iterator[Figure]:
    turns = settings.scaled(5, 2)
    span = settings.scaled(SPAN, 1_000)
    count = 15 * span
    chance = random.Random(7)
    values = [chance.randbytes(50).hex().encode() for _ in range(count)]
    with (
        running_node(settings) as node,
        duckrow.connect(node.url, timeout=60) as row,
        tempfile.TemporaryDirectory(dir=settings.folder) as folder,
    ):
        row.create_topic(TOPIC, archive=span, max_entries=span)
        place = Place(str(Path(folder, "archive")))
        archiver = Archiver(row, place, "bench")

        def written() -> int:
            before = archiver.entries
            while archiver.round() or archiver.later:
                pass
            return archiver.entries - before

        row.produce_many(TOPIC, values)  # what is there before
        written()

        def in_large() -> None:
            row.produce_many(TOPIC, values)

        def in_small() -> None:
            for at in range(0, count // 5, FEW):
                row.produce_many(TOPIC, values[at : at + FEW], wait="none")
            row.flush()

        target = at_least(300_000)
        yield _rate("archive of 100 B, large batches", node, in_large, written, turns, target)
        settings.tell("archive, large batches")
        yield _rate(f"the same, batches of {FEW}", node, in_small, written, turns, None)
        settings.tell("archive, small batches")

        def read() -> int:
            found, after = 0, duckrow.Entries().after
            while found < count:
                page = row.pull(TOPIC, after, limit=65_536, max_bytes=4 << 20, archive=True)
                found, after = found + len(page), page.after
            return found

        yield _rate("a pull through the archive, as columns", node, lambda: None, read, turns, None)


def _rate(
    name: str,
    node: Node,
    before: Callable[[], object],
    work: Callable[[], int],
    turns: int,
    target: Target | None,
) -> Figure:
    """Entries a second of the time that passes, and of a second of processor time of each process."""
    rates, own, theirs = [], [], []
    for _ in range(turns):
        before()
        began = time.perf_counter(), time.process_time(), node.cpu_seconds()
        entries = work()
        now = time.perf_counter(), time.process_time(), node.cpu_seconds()
        seconds, cpu, node_cpu = (end - start for end, start in zip(now, began, strict=True))
        rates.append(entries / seconds)
        own.append(entries / max(cpu, 1e-9))
        theirs.append(entries / max(node_cpu, 0.01))
    return Figure.of(
        name,
        Rounds.of(rates),
        "entries/s",
        target,
        f"of a second of processor time: {median(own):,.0f} by this process, with both its threads, "
        f"{median(theirs):,.0f} by the node",
    )
