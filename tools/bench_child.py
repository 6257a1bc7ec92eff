"""A node in a process of its own, whose memory and restarts are measured; started by the benchmarks.

    python -m duckrow.tools.bench_child fill FOLDER --entries 1000000 --batch 100
    python -m duckrow.tools.bench_child restart FOLDER
    python -m duckrow.tools.bench_child go-on FOLDER --batch 100       until it is killed
    python -m duckrow.tools.bench_child topics FOLDER --topics 10000

It tells what it finds in lines of JSON.  `fill` and `topics` end in order when their input does;
`go-on` produces until it is killed, and says when that would hurt most: just before the next
snapshot is there, when there is most to be applied again.
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

from duckrow.node.alone import Options, open_node
from duckrow.node.keeper import Keeper
from duckrow.node.reading import Pull
from duckrow.node.realio import real_env
from duckrow.node.storeoptions import WRITE, StoreOptions

from .bench_client import BLOCK, Client, Cost, alone

OPTIONS = Options(store=StoreOptions(level=WRITE))
TOPIC = "topic"
TURNS = 15
TELL = 100  # blocks between two lines


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench_child")
    parser.add_argument("what", choices=("fill", "restart", "go-on", "topics"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--entries", type=int, default=0)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--topics", type=int, default=0)
    asked = parser.parse_args(arguments)
    work = {"fill": fill, "restart": restart, "go-on": go_on, "topics": topics}
    trio.run(work[asked.what], asked)


def tell(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


async def fill(asked: argparse.Namespace) -> None:
    """`entries` entries in batches of `batch`; then the same in a small node, in turns."""
    async with opened(asked.folder) as node:
        client = Client(node, asked.batch, [TOPIC])
        began, done = time.monotonic(), 0
        while done < asked.entries:
            await client.block()
            done += BLOCK * asked.batch
            if done // (BLOCK * asked.batch) % TELL == 0:
                tell(entries=done, rate=done / (time.monotonic() - began))
        facts = {"filled": done, "seconds": time.monotonic() - began, **resident()}
        with TemporaryDirectory(dir=asked.folder) as folder:
            async with open_node(real_env("small", folder), OPTIONS) as other:
                tell(**facts, **await compared(node, client, other, asked.batch))
        await trio.to_thread.run_sync(sys.stdin.read)


async def compared(node: Keeper, client: Client, other: Keeper, batch: int) -> dict[str, object]:
    """What a produce costs here and there."""
    small = Client(other, batch, [TOPIC])
    await small.block()
    blocks: dict[str, list[Cost]] = {"big": [], "small": []}
    singles: dict[str, list[Cost]] = {"big": [], "small": []}
    for _ in range(TURNS):
        blocks["big"].append(await client.block())
        blocks["small"].append(await small.block())
    for _ in range(TURNS):
        singles["big"].append(await alone(node, TOPIC))
        singles["small"].append(await alone(other, TOPIC))
    return {"blocks": blocks, "alone": singles}


async def restart(asked: argparse.Namespace) -> None:
    before = newest_snapshot(asked.folder)
    async with opened(asked.folder) as node:
        last = last_of(node)
        found = await node.reader.pull(Pull(topic=TOPIC, after=max(0, last - 10)))
        row = node.numbers.at_position(found.topic_id, 0, before + 1)
        tell(
            last=last,
            read=sum(batch.stop - batch.start for batch in found.batches),
            position=node.state.position,
            replayed=node.state.position - before,
            replayed_entries=0 if row is None else last - row.first + 1,
            records=node.row.store.recovered.records,
            **resident(),
        )


async def go_on(asked: argparse.Namespace) -> None:
    """Until it is killed; says when two snapshots were written and the third is about to be."""
    async with opened(asked.folder) as node:
        client = Client(node, asked.batch, [TOPIC])
        longest, newest, teeth, told = 0, newest_snapshot(asked.folder), 0, False
        while True:
            await client.block()
            found = newest_snapshot(asked.folder)
            if found != newest:
                newest, teeth = found, teeth + 1
            behind = node.state.position - newest
            if teeth < 3:
                longest = max(longest, behind) if teeth else 0
            if teeth >= 3 and behind >= 0.95 * longest and not told:
                told = True
                tell(acknowledged=last_of(node), behind=behind)


async def topics(asked: argparse.Namespace) -> None:
    """Ten entries in each of so many topics."""
    async with opened(asked.folder) as node:
        tell(topics=0, **resident())
        client = Client(node, 1, [f"topic-{number:05d}" for number in range(asked.topics)])
        for _ in range(0, 10 * asked.topics, BLOCK):
            await client.block()
        tell(topics=len(node.state.topics), **resident())
        await trio.to_thread.run_sync(sys.stdin.read)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Keeper]:
    began = time.monotonic()
    cpu = time.process_time()
    async with open_node(real_env("bench", folder), OPTIONS) as node:
        tell(ready=time.monotonic() - began, ready_cpu=time.process_time() - cpu)
        yield node
        began = time.monotonic()
    tell(stopped=time.monotonic() - began)


def last_of(node: Keeper) -> int:
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
