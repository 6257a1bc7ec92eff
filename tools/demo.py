"""The demonstration: fills a store, kills the process, damages a byte, shows what is left, and then
has three machines in a chain, of which one dies and comes back, and compares all they have on Spark.

    make demo

Every line that it prints was checked; if anything is not so, it says what, and exits with 1.
Everything happens in a temporary folder, in processes of its own, and is gone afterwards.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import trio

from duckrow.node import columns, makers
from duckrow.node.alone import LoneKeeper, Options, open_node
from duckrow.node.apply import apply
from duckrow.node.capture import state_hash
from duckrow.node.commands import PID_BYTES, Command
from duckrow.node.effects import Result
from duckrow.node.entries import entries_of
from duckrow.node.errors import Damaged, DuckrowError
from duckrow.node.producer import Producer
from duckrow.node.reading import Pull
from duckrow.node.realio import real_env
from duckrow.node.state import State

from .demo_cluster import three_in_a_chain

TOPIC = "rides"
BATCH = 100
KILL_AFTER = 20_000  # acknowledged entries
PID = b"demonstration!!!"
assert len(PID) == PID_BYTES


class Untrue(Exception):
    """Raised when something that the demonstration claims is not so."""


def check(so: bool, claim: str) -> None:
    if not so:
        raise Untrue(claim)


def main() -> int:
    if sys.argv[1:2] == ["child"]:
        trio.run(produce_until_killed, sys.argv[2])
        return 0
    with tempfile.TemporaryDirectory(prefix="duckrow-demo-") as folder:
        try:
            for title, act in ACTS:
                print(f"\n{title}", flush=True)
                act(folder)
        except (Untrue, DuckrowError) as untrue:
            print(f"\nNOT SO: {untrue}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\ninterrupted", file=sys.stderr)
            return 130
    print("\nAll of it was so.")
    return 0


def say(text: str) -> None:
    print(f"   {text}", flush=True)


# 1. Kill -9 in mid-flight.


async def produce_until_killed(folder: str) -> None:
    """In a process of its own: batches with names, and a line for each one that was answered."""
    async with open_node(real_env("demo", folder), Options()) as node:
        seq = 0
        while True:
            seq += 1
            result = await node.order(batch(node, seq))
            print(seq, result.first, result.last, flush=True)


def batch(node: LoneKeeper, seq: int) -> Command:
    """Batch `seq` of the demonstration's producer; its entries say which they are."""
    # Of the batch before it the answer may be lost on its way: it may be asked for again.
    turn = makers.Turn(PID, seq, 1, max(0, seq - 2), node.wall_us())
    values = [value_of(seq, index) for index in range(BATCH)]
    return makers.produce(turn, TOPIC, columns.encode(values), BATCH)


def value_of(seq: int, index: int) -> bytes:
    return b"ride %d.%d" % (seq, index)


def kill_in_flight(folder: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "duckrow.tools.demo", "child", folder],
        stdout=subprocess.PIPE,
        text=True,
    )
    seq = last = 0
    with child:
        assert child.stdout is not None
        for line in child.stdout:
            seq, _, last = map(int, line.split())
            if last >= KILL_AFTER:
                break
        os.kill(child.pid, signal.SIGKILL)
        for line in child.stdout:  # what was answered before the signal came
            if line.endswith("\n"):
                seq, _, last = map(int, line.split())
    say(f"a process produced {last:,} acknowledged entries, level fsync, and got kill -9")

    async def look(node: LoneKeeper, seconds: float) -> None:
        found = await read(node)
        check(len(found) >= last, f"{last:,} entries are there after the kill")
        check(found == expected(len(found)), "they are in order, each once")
        say(f"the next process was ready after {seconds:.2f} s and holds {len(found):,}, in order")
        for again in (seq, seq + 1):
            result = await node.order(batch(node, again))
            check(result.first == (again - 1) * BATCH + 1, f"batch {again} keeps its numbers")
        found = await read(node)
        check(found == expected(len(found)), "nothing was stored twice")
        say(f"batches {seq} and {seq + 1} were sent again, as a producer does that saw no answer:")
        say(f"each is there once, and the row goes on to entry {len(found):,}")

    in_node(folder, look)


# 2. A damaged byte.


def damage_a_byte(folder: str) -> None:
    segment = Path(folder, "row", "00000001.seg")
    content = segment.read_bytes()
    at = content.index(value_of(7, 42))
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(bytes([content[at] ^ 1]))
    say(f"one bit of {segment.name} was turned, at offset {at:,}")

    async def look(node: LoneKeeper, _seconds: float) -> None:
        damages: list[Damaged] = []
        found = await read(node, damages)
        check(len(damages) == 1, "the damage was noticed, once")
        first, last = damages[0].first, damages[0].last
        check((first, last) == (601, 700), "it is batch 7 that cannot be read")
        check(value_of(7, 42) not in found, "nothing damaged was served")
        check(
            len(found) + last - first + 1 == node.state.partition(topic_id(node), 0).last, "no more"
        )
        say(f"reading says: {str(damages[0])[:100]}…")
        say(f"the other {len(found):,} entries are served, and producing goes on")

    in_node(folder, look)


# 3. Policies.


def prune(folder: str) -> None:
    async def act(node: LoneKeeper, _seconds: float) -> None:
        before = node.state.partition(topic_id(node), 0)
        await order(node, makers.configure, TOPIC, {"max_entries": 1_000})
        after = node.state.partition(topic_id(node), 0)
        check(after.last - after.first + 1 == 1_000, "a thousand entries are left")
        check(after.last == before.last, "pruning changes no number")
        pulled = await node.reader.pull(Pull(TOPIC, 0, limit=1))
        check(pulled.missing == after.first - 1, "a reader is told how many are missing")
        say(f"max_entries=1000: entries {after.first:,} to {after.last:,} are left")
        say(f"a reader that comes from 0 is told that {pulled.missing:,} are missing")

        await order(node, makers.create, "slow", {"max_entries": 1, "when_full": "block"})
        producer = Producer(node)
        await producer.produce("slow", [b"first"])
        order_of_events: list[str] = []

        async def second() -> None:
            await producer.produce("slow", [b"second"])
            order_of_events.append("numbered")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(second)
            await node.barrier()
            order_of_events.append("pruned")
            await order(node, makers.prune, "slow", 1)
        check(order_of_events == ["pruned", "numbered"], "the second waited for room")
        say("a topic that is full and blocks let a batch wait in the row until there was room")

    in_node(folder, act)


# 4. The same state, however it came about.


def same_state(folder: str) -> None:
    async def compare(node: LoneKeeper, _seconds: float) -> None:
        end = node.state.position
        began = time.perf_counter()
        again = State()
        while again.position < end:
            for item in await node.row.store.read_items(again.position + 1, 1 << 20, end=end):
                apply(again, item)
        seconds = time.perf_counter() - began
        check(state_hash(again) == state_hash(node.state), "both states are the same")
        say(f"a node that began from its snapshot has the state {state_hash(node.state).hex()}")
        say(f"the row's {end:,} items, applied from the first one, make {state_hash(again).hex()}")
        say(f"and took {seconds:.2f} s")

    in_node(folder, compare)


# 5. Simulated lives.


def simulate(_folder: str) -> None:
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "duckrow.tools.fuzz", "--from", "0", "--count", "16"],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
    )
    for line in done.stdout.strip().splitlines()[-1:]:
        say(line)
    check(done.returncode == 0, f"no seed has an anomaly:\n{done.stdout}{done.stderr}")
    say("kills, power losses, torn and lost writes, full disks, turned bits: no anomaly")


# 6. Several machines.


def chained(folder: str) -> None:
    three_in_a_chain(folder, check, say)


def in_node(folder: str, act: Callable[[LoneKeeper, float], object]) -> None:
    """One life of a node; `act` also gets how long it took to be ready."""

    async def life() -> None:
        began = time.perf_counter()
        async with open_node(real_env("demo", folder), Options()) as node:
            await act(node, time.perf_counter() - began)  # type: ignore[misc]

    try:
        trio.run(life)
    except BaseExceptionGroup as group:
        untrue, others = group.split(Untrue)
        if untrue is None or others is not None:
            raise
        raise untrue.exceptions[0] from None


async def order(node: LoneKeeper, make: Callable[..., Command], *what: object) -> Result:
    """A command of somebody who gives one in their life."""
    result = await node.order(make(makers.Turn(node.fresh_pid(), 1, time=node.wall_us()), *what))
    check(result.code == 1, f"the command was carried out, not {result}")
    return result


def topic_id(node: LoneKeeper) -> int:
    topic = node.state.topic(TOPIC)
    assert topic is not None
    return topic.id


async def read(node: LoneKeeper, damages: list[Damaged] | None = None) -> list[bytes]:
    """All values of the topic; what is damaged is noted, and left out."""
    values: list[bytes] = []
    done = 0
    while True:
        try:
            entries = entries_of(TOPIC, await node.reader.pull(Pull(TOPIC, done)))
        except Damaged as damage:
            if damages is None:
                raise
            damages.append(damage)
            done = damage.last
            continue
        if not entries:
            return values
        values += [entry.value for entry in entries]
        done = entries[-1].number


def expected(count: int) -> list[bytes]:
    return [value_of(n // BATCH + 1, n % BATCH) for n in range(count)]


ACTS = (
    ("1. Kill -9 while producing", kill_in_flight),
    ("2. A bit turns on the disk", damage_a_byte),
    ("3. Policies decide in the row", prune),
    ("4. The row makes the state", same_state),
    ("5. A node in a simulated world, sixteen lives of ten seconds", simulate),
    (
        "6. Three machines in a chain, of which one dies, and an audit of all three on Spark",
        chained,
    ),
)

if __name__ == "__main__":
    sys.exit(main())
