"""Pauses: how long the loop is busy with one thing while a million entries are pruned.

Everything in a node is a task of one loop, so the longest step of any task is the longest that
anybody waits for nothing.  An instrument of trio takes the CPU time of each step: on a machine that
others use as well, the clock would tell of them.  What it tells, less the time in which the thread
could have run and another did, is in the note, and so is the longest step before the pruning.

All ways to prune are taken: up to a number, by count, by bytes, by age, in one topic and in many;
then the node goes on until its dead segments are gone, and mostly dead ones are rewritten.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from duckrow.node import makers
from duckrow.node.alone import Options, open_node
from duckrow.node.commands import Command
from duckrow.node.daemon import calm_collector
from duckrow.node.housekeeping import HousekeepingOptions
from duckrow.node.keeper import Keeper
from duckrow.node.limits import MIB
from duckrow.node.realio import real_env
from duckrow.node.storeoptions import WRITE, StoreOptions

from .bench_client import BLOCK, Client
from .bench_figures import Figure, Rounds, Settings, at_most

PAUSE_MS = 5.0
SEGMENT_BYTES = 16 * MIB  # small, so that many of them die
OPTIONS = Options(
    store=StoreOptions(level=WRITE, segment_bytes=SEGMENT_BYTES, followable_bytes=SEGMENT_BYTES),
    housekeeping=HousekeepingOptions(snapshot_bytes=SEGMENT_BYTES, followable_bytes=SEGMENT_BYTES),
)
AGE_SECONDS = 10  # a topic keeps its entries so long, if it is pruned by age
MANY = 10_000  # topics
_OURS = "duckrow.tools."  # tasks of this benchmark, which nobody has to wait for
TIDY_SECONDS = 150.0  # until nothing is left to be done


@attrs.frozen
class Scene:
    """What is there, and how it is pruned."""

    name: str
    batch: int
    rounds: int = 3
    topics: int = 1
    of: int = 1  # one topic in so many is kept
    policy: dict[str, int] = attrs.field(factory=dict)  # empty: PRUNE up to a number


def scenes(settings: Settings) -> tuple[Scene, ...]:
    age = {"max_age": settings.scaled(AGE_SECONDS, 2) * 1_000_000}
    many = settings.scaled(MANY, 200)
    return (
        Scene("singles, up to a number: segments go", 1, rounds=1),
        Scene("singles, 2 topics of 3: segments are rewritten", 1, rounds=1, topics=3, of=3),
        Scene("batches of 100, max_entries lowered", 100, policy={"max_entries": 1_000}),
        Scene("batches of 100, max_bytes lowered", 100, policy={"max_bytes": 1 * MIB}),
        Scene("batches of 100, max_age lowered", 100, policy={"max_age": 1}),
        Scene(f"batches of 10 in {many:,} topics, by age", 10, 1, topics=many, policy=age),
    )


def pauses(settings: Settings) -> Iterator[Figure]:
    entries = settings.scaled(1_000_000, 20_000)
    for number, scene in enumerate(scenes(settings)):
        found = []
        for round_ in range(scene.rounds):
            settings.tell(f"pauses: {scene.name}, round {round_ + 1} of {scene.rounds}")
            folder = settings.folder / f"{number}-{round_}"
            found.append(trio.run(_prune, folder, scene, entries))
            shutil.rmtree(folder)
        before = max(before.cpu for _, before in found) * 1e3
        clock = max(steps.clock for steps, _ in found) * 1e3
        tasks = ", ".join(dict.fromkeys(steps.task for steps, _ in found))
        yield Figure.of(
            scene.name,
            Rounds.of([steps.cpu for steps, _ in found], 1e3),
            "CPU ms",
            at_most(PAUSE_MS),
            f"{entries:,} entries are pruned; the longest step is one of {tasks}; before it was "
            f"{before:.2g} CPU ms; by the clock no step took more than {clock:.2g} ms",
        )


@attrs.define(eq=False)
class Steps(trio.abc.Instrument):
    """The longest step of any task, in seconds."""

    cpu: float = 0.0
    task: str = ""  # whose it was
    clock: float = 0.0  # perhaps another step: less those in which others had the processor
    _began: tuple[float, float, float] | None = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = None
        if not task.name.startswith(_OURS):
            self._began = _waited(), time.perf_counter(), time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._began is None:
            return
        waited, clock, cpu = self._began
        cpu, clock = time.thread_time() - cpu, time.perf_counter() - clock
        if cpu > self.cpu:
            self.cpu, self.task = cpu, task.name.removeprefix("duckrow.")
        if clock > self.clock:
            self.clock = max(self.clock, clock - (_waited() - waited))


def _waited() -> float:
    """Seconds for which this thread could have run, and was not let."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


async def _prune(folder: Path, scene: Scene, entries: int) -> tuple[Steps, Steps]:
    topics = [f"topic-{number}" for number in range(scene.topics)]
    kept = topics[:: scene.of] if scene.of > 1 else []
    pruned = [topic for topic in topics if topic not in kept]
    async with open_node(real_env("bench", folder), OPTIONS) as node:
        calm_collector()
        if scene.topics > 100:  # the policy is there from the start
            for command in _pruning(node, topics, scene):
                await node.order(command)
        clients = [Client(node, scene.batch, topics)]
        if scene.of > 1:  # a topic's bundles lie together, or there would be nothing to free
            clients = [Client(node, scene.batch, [topic]) for topic in topics]
        total = entries * scene.of // max(1, scene.of - 1)
        for number in range(total // (scene.batch * BLOCK)):
            await clients[number % len(clients)].block()
        end = node.row.store.segments()[-1].number
        async with watched() as limit:
            await _go_on(node)
        async with watched() as steps:
            if scene.topics <= 100:
                for command in _pruning(node, pruned, scene):
                    await node.order(command)
            with trio.fail_after(TIDY_SECONDS):
                while not (_is_tidy(node, end) and _is_pruned(node, pruned)):
                    await _go_on(node)
    return steps, limit


def _is_pruned(node: Keeper, names: Sequence[str]) -> bool:
    """Nine tenths of each are gone."""
    for name in names:
        topic = node.state.topic(name)
        assert topic is not None
        partition = node.state.partition(topic.id, 0)
        if partition.first <= partition.last * 0.9:
            return False
    return True


def _is_tidy(node: Keeper, end: int) -> bool:
    """Segments before `end` are gone or rewritten."""
    return all(each.number >= end or each.rewritten for each in node.row.store.segments())


async def _go_on(node: Keeper) -> None:
    """More entries, enough for a snapshot."""
    client, written = Client(node, 100, ["new"]), 0
    while written < SEGMENT_BYTES:
        await client.block()
        written += BLOCK * 100 * 100
        await trio.sleep(0.2)


def _pruning(node: Keeper, topics: Sequence[str], scene: Scene) -> Iterator[Command]:
    pid = node.fresh_pid()
    for seq, name in enumerate(topics, 1):
        turn = makers.Turn(pid, seq, done=seq - 1, time=node.wall_us())
        topic = node.state.topic(name)
        if topic is None:
            yield makers.create(turn, name, scene.policy)
        elif scene.policy:
            yield makers.configure(turn, name, scene.policy)
        else:
            yield makers.prune(turn, name, node.state.partition(topic.id, 0).last)


@asynccontextmanager
async def watched() -> AsyncIterator[Steps]:
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    try:
        yield steps
    finally:
        trio.lowlevel.remove_instrument(steps)
