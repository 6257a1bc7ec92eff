"""A node in a process of its own, whose memory and restarts are measured; started by the benchmarks.

    python -m duckrow.tools.bench_child fill FOLDER --entries 1000000 --batch 100
    python -m duckrow.tools.bench_child restart FOLDER
    python -m duckrow.tools.bench_child read FOLDER                    what there is, from 1 on
    python -m duckrow.tools.bench_child go-on FOLDER --batch 100       until it is killed
    python -m duckrow.tools.bench_child topics FOLDER --topics 10000

It tells what it finds in lines of JSON.  `fill` and `topics` end in order when their input does;
`go-on` produces until it is killed, and says when that would hurt most: just before the next
snapshot is there, when there is most to be applied again.

`read` pulls in steps of --step: every number for batches, and for single entries so many that every
page of the index is touched, since pulling each of ten million alone takes minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from duckrow.node.alone import LoneKeeper, Options, open_node
from duckrow.node.housekeeping import HousekeepingOptions
from duckrow.node.limits import MIB, SEGMENT_BYTES
from duckrow.node.reading import PULL_ENTRIES, Pull
from duckrow.node.realio import real_env
from duckrow.node.storeoptions import WRITE, StoreOptions

from .bench_client import BLOCK, VALUE_BYTES, Client, Cost, alone

SNAPSHOT_COMMANDS = HousekeepingOptions().snapshot_commands
SNAPSHOT_BYTES = HousekeepingOptions().snapshot_bytes
TOPIC = "topic"
TELL = 100  # blocks between two lines
ALMOST = 0.9  # of what makes a snapshot due
GO_ON_BYTES = 4_096 * MIB  # the most that `go-on` writes, so that no mistake fills the disk


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench_child")
    parser.add_argument("what", choices=("fill", "restart", "read", "go-on", "topics"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--entries", type=int, default=0)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--topics", type=int, default=0)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--segment", type=int, default=SEGMENT_BYTES, help="bytes")
    parser.add_argument("--snapshot", type=int, default=SNAPSHOT_COMMANDS, help="commands")
    asked = parser.parse_args(arguments)
    work = {"fill": fill, "restart": restart, "read": read, "go-on": go_on, "topics": topics}
    trio.run(work[asked.what], asked)


def tell(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


async def fill(asked: argparse.Namespace) -> None:
    """`entries` entries in batches of `batch`; then the same in a small node, in turns."""
    async with opened(asked) as node:
        client = Client(node, asked.batch, [TOPIC])
        began, done = time.monotonic(), 0
        while done < asked.entries:
            await client.block()
            done += BLOCK * asked.batch
            if done // (BLOCK * asked.batch) % TELL == 0:
                tell(entries=done, rate=done / (time.monotonic() - began))
        facts = {"filled": done, "seconds": time.monotonic() - began, **resident()}
        with TemporaryDirectory(dir=asked.folder) as folder:
            async with open_node(real_env("small", folder), options(asked)) as other:
                tell(**facts, **await compared(node, client, other, asked))
        await trio.to_thread.run_sync(sys.stdin.read)


async def compared(
    node: LoneKeeper, client: Client, other: LoneKeeper, asked: argparse.Namespace
) -> dict[str, object]:
    """What a produce costs here and there."""
    small = Client(other, asked.batch, [TOPIC])
    await small.block()
    blocks: dict[str, list[Cost]] = {"big": [], "small": []}
    singles: dict[str, list[Cost]] = {"big": [], "small": []}
    for _ in range(asked.turns):
        blocks["big"].append(await client.measured())
        blocks["small"].append(await small.measured())
    for _ in range(asked.turns):
        singles["big"].append(await alone(node, TOPIC))
        singles["small"].append(await alone(other, TOPIC))
    return {"blocks": blocks, "alone": singles}


async def restart(asked: argparse.Namespace) -> None:
    before = newest_snapshot(asked.folder)
    async with opened(asked) as node:
        last = last_of(node)
        found = await node.reader.pull(Pull(topic=TOPIC, after=max(0, last - 10)))
        tell(
            last=last,
            read=sum(batch.stop - batch.start for batch in found.batches),
            position=node.state.position,
            replayed=node.state.position - before,
            replayed_entries=last - after_position(node, before),
            records=node.row.store.recovered.records,
            **resident(),
        )


async def read(asked: argparse.Namespace) -> None:
    async with opened(asked) as node:
        began, after, pulls, entries = time.process_time(), 0, 0, 0
        last = last_of(node)
        limit = PULL_ENTRIES if asked.step == 1 else 1
        while after < last:
            found = await node.reader.pull(Pull(topic=TOPIC, after=after, limit=limit))
            got = sum(batch.stop - batch.start for batch in found.batches)
            assert got, f"there is nothing after {after:,}, and {last:,} is the last"
            pulls, entries = pulls + 1, entries + got
            after += got if asked.step == 1 else asked.step
        cpu = time.process_time() - began
        tell(last=last, pulls=pulls, read=entries, cpu=cpu, **resident())


async def go_on(asked: argparse.Namespace) -> None:
    """Until it is killed; says when a snapshot was written and the next one is almost due."""
    async with opened(asked) as node:
        client, first, told = (
            Client(node, asked.batch, [TOPIC]),
            newest_snapshot(asked.folder),
            False,
        )
        began, limit = last_of(node), GO_ON_BYTES // VALUE_BYTES
        while (last := last_of(node)) - began < limit:
            await client.block()
            newest = newest_snapshot(asked.folder)
            if newest != first and not told:
                behind = last - after_position(node, newest)
                due = max(
                    behind / asked.batch / asked.snapshot, behind * VALUE_BYTES / SNAPSHOT_BYTES
                )
                if told := due >= ALMOST:
                    tell(acknowledged=last)
        assert told, f"no snapshot was almost due within {limit:,} entries"
        await trio.sleep_forever()


def after_position(node: LoneKeeper, position: int) -> int:
    """The last number that an item up to this position gave."""
    topic = node.state.topic(TOPIC)
    row = None if topic is None else node.numbers.at_position(topic.id, 0, position + 1)
    return last_of(node) if row is None else row.first - 1


async def topics(asked: argparse.Namespace) -> None:
    """Ten entries in each of so many topics."""
    async with opened(asked) as node:
        tell(topics=0, **resident())
        client = Client(node, 1, [f"topic-{number:05d}" for number in range(asked.topics)])
        for _ in range(0, 10 * asked.topics, BLOCK):
            await client.block()
        tell(topics=len(node.state.topics), **resident())
        await trio.to_thread.run_sync(sys.stdin.read)


def options(asked: argparse.Namespace) -> Options:
    return Options(
        store=StoreOptions(level=WRITE, segment_bytes=asked.segment),
        housekeeping=HousekeepingOptions(snapshot_commands=asked.snapshot),
    )


@asynccontextmanager
async def opened(asked: argparse.Namespace) -> AsyncIterator[LoneKeeper]:
    began = time.monotonic()
    cpu = time.process_time()
    async with open_node(real_env("bench", asked.folder), options(asked)) as node:
        tell(ready=time.monotonic() - began, ready_cpu=time.process_time() - cpu)
        yield node
        began = time.monotonic()
    tell(stopped=time.monotonic() - began)


def last_of(node: LoneKeeper) -> int:
    topic = node.state.topic(TOPIC)
    return 0 if topic is None else node.state.partition(topic.id, 0).last


def newest_snapshot(folder: Path) -> int:
    """Its position; 0: there is none."""
    names = [path.name for path in (folder / "state").glob("snapshot-*")]
    return int(max(names).removeprefix("snapshot-")) if names else 0


def resident() -> dict[str, float]:
    """Megabytes in memory: now, at most so far, and of it what is not a mapped file."""
    wanted = {"VmRSS": "resident", "VmHWM": "resident_max", "RssAnon": "anonymous"}
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in wanted:
            found[wanted[name]] = int(value.split()[0]) / 1024
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
