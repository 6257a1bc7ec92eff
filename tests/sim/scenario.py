"""One simulated run: a node, its clients, the faults, and the check, all decided by one seed.

    result = run_seed(7)
    assert result.ok, result

What is looked at while it runs: every item that any life of the node applies is the same item, with
the same digest, as any earlier life applied at that position, and the state's hash at a position is
always the same.  At the end the faults stop; within a few calm seconds everybody must get on, and
the history is checked.
"""

from __future__ import annotations

import time
from math import inf

import attrs
import trio

from checker import Content, check
from checker.history import Report
from duckrow.node.alone import Options, open_node
from duckrow.node.capture import state_hash
from duckrow.node.env import Env
from duckrow.node.errors import Corrupt, Damaged, DiskFailed, DuckrowError, Full
from duckrow.node.housekeeping import HousekeepingOptions
from duckrow.node.keeper import Keeper
from duckrow.node.reading import Pull
from duckrow.node.row import Item
from duckrow.node.storeoptions import StoreOptions

from .administrator import Administrator
from .clock import SimDeadlock
from .faults import Fate
from .plan import Plan, drawn
from .service import batches_of, serve
from .stager import Stager
from .workload import NODE, Consumer, Observed, Producer
from .world import World

# How a node may end by itself: its disk has failed, or is too full to begin.
ENDS = (DiskFailed, Full, OSError)
HASH_EVERY = 64  # items


@attrs.define
class Outcome:
    seed: int
    plan: Plan
    digest: str
    steps: int
    simulated: float
    cpu: float
    report: Report
    problems: list[str]
    counts: dict[str, int]
    trace: list[str] | None = None

    @property
    def ok(self) -> bool:
        return self.report.ok and not self.problems

    @property
    def kinds(self) -> list[str]:
        return sorted({*self.report.kinds, *(text.split(":")[0] for text in self.problems)})

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {', '.join(self.kinds) or 'no anomaly'}"]
        return "\n".join(
            [*lines, *self.problems[:10], *([str(self.report)] if not self.report.ok else [])]
        )


def run_seed(
    seed: int, plan: Plan | None = None, *, keep_trace: bool = False, trace_steps: bool = True
) -> Outcome:
    began = time.process_time()
    world = World(seed, keep_trace=keep_trace, trace_steps=trace_steps, tolerate=ENDS)
    plan = drawn(world.rng("plan")) if plan is None else plan
    world.buggify = plan.buggify
    run = _Run(world, plan)
    try:
        world.run(run.main)
    except SimDeadlock as error:
        run.seen.problems.append(f"deadlock: {error}")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        run.seen.problems.append(f"crash: {_text(error)}")
    run.seen.problems.extend(f"handler: {text}" for text in world.handler_errors)
    run.seen.history.ended = world.clock.now
    report = check(run.seen.history)
    return Outcome(
        seed,
        plan,
        world.trace.digest(),
        world.steps,
        world.clock.now,
        time.process_time() - began,
        report,
        run.seen.problems,
        {**world.counts, **{f"disk {k}": n for k, n in world.hosts[NODE].media.counts.items()}},
        world.trace.text() if keep_trace else None,
    )


class _Run:
    def __init__(self, world: World, plan: Plan) -> None:
        self.world, self.plan = world, plan
        self.seen = Observed(plan)
        self.node: Keeper | None = None
        self.items: dict[int, int] = {}  # crc of the item at each position
        self.hashes: dict[int, bytes] = {}
        self.lineage = 0
        self.stopping = trio.Event()  # the node is to end in order

    async def main(self, world: World) -> None:
        world.net.split = self.plan.split
        self.boot()
        world.hosts[NODE].media.sync_latency = self.plan.sync_seconds
        self.seen.wall_us = world.hosts[NODE].wall_us
        administrators: list[Administrator] = []

        async def administrate(env: Env) -> None:
            administrators.append(Administrator(env, self.seen))
            await administrators[0].run()

        world.start("admin", administrate)
        while not administrators or not administrators[0].ready.is_set():
            await trio.sleep(0.05)
            assert world.clock.now < 60.0, "the topics cannot be made"
        for index in range(self.plan.producers):
            world.start(f"p{index}", lambda env: Producer(env, self.seen).run())
        for index in range(self.plan.consumers):
            world.start(f"c{index}", lambda env: Consumer(env, self.seen).run())
        for index in range(self.plan.stagers):
            world.start(f"s{index}", lambda env: Stager(env, self.seen).run())
        hands = [
            Fate(world, self.plan, self.seen, self.boot, self.stop, n)
            for n in range(self.plan.hands)
        ]
        async with trio.open_nursery() as nursery:
            for hand in hands:
                nursery.start_soon(hand.run)
        await self._end(hands[0])

    def boot(self) -> None:
        self.world.start(NODE, self._program)

    def stop(self) -> None:
        self.stopping.set()

    async def _program(self, env: Env) -> None:
        plan = self.plan
        stopping = self.stopping = trio.Event()
        options = Options(
            store=StoreOptions(
                level=plan.level,
                segment_bytes=plan.segment_bytes,
                followable_bytes=plan.segment_bytes,
                soft_reserve_bytes=16 * 1024,
                soft_reserve_fraction=0.0,
                hard_reserve_bytes=32 * 1024,
                window_bytes=64 * 1024,
                scrub_seconds=0,  # so that a deadlock is seen, instead of the years going by
            ),
            housekeeping=HousekeepingOptions(
                snapshot_items=plan.snapshot_items, snapshot_bytes=1 << 20
            ),
        )
        opened = False
        try:
            async with open_node(env, options) as node:
                opened = True
                self._watch(node)
                self.node = node
                async with trio.open_nursery() as nursery:
                    await nursery.start(serve, env, node)
                    await stopping.wait()
                    nursery.cancel_scope.cancel()
        except Corrupt as error:
            if opened or not self.seen.wild:
                raise
            self.seen.refused = str(error)
            self.world.note("refused")

    def _watch(self, node: Keeper) -> None:
        """Looks at each item when it was applied, before anybody else does."""
        note = node.on_progress
        self._note_lineage(node)
        self._note_end(node)
        self._compare_hash(node)

        def applied(item: Item) -> None:
            known = self.items.setdefault(item.position, item.crc)
            if known != item.crc:
                self.seen.problems.append(
                    f"row-changed: position {item.position} was {known:08x} and is {item.crc:08x}"
                )
            if item.position % HASH_EVERY == 0:
                self._compare_hash(node)
                self._note_covered(node)
                self._look_at_queues(node)
            note(item)

        node.on_progress = applied

    def _note_lineage(self, node: Keeper) -> None:
        seen = self.seen
        lineage = node.state.view.lineage if node.state.view is not None else 0
        if seen.ambiguous or (seen.lossy and lineage != self.lineage):
            # What a loss of power took, others may now have in its place; the lineage says so.
            self.items.clear()
            self.hashes.clear()
        elif lineage != self.lineage and self.lineage and not seen.flips:
            seen.problems.append("lineage: there is a new one, and nothing can be lost")
        self.lineage = lineage
        seen.fresh, seen.ambiguous = None, False

    def _note_end(self, node: Keeper) -> None:
        """Damage may end the row: from then on it takes nothing, and never goes on."""
        broken, seen = node.row.broken, self.seen
        if broken is not None and seen.history.broken == inf:
            seen.history.broken = trio.current_time()
            self.world.note("broken")
            if not seen.wild:
                seen.problems.append(f"broken: {broken}, and nothing that it needs was damaged")
        elif broken is None and seen.history.broken < inf:
            seen.problems.append("broken: the row had ended, and goes on")

    def _look_at_queues(self, node: Keeper) -> None:
        """The first of those who wait does not fit; else it would not wait."""
        state = node.state
        for queue in state.queues.values():
            batch = state.waiting.rows[next(iter(queue))]
            topic = state.topics.rows[batch.topic]
            now, policy = state.partition(topic.id, batch.partition), topic.policy
            count = now.last - now.first + 1 + batch.entries
            if not (policy.max_entries and count > policy.max_entries) and not (
                policy.max_bytes and now.size + batch.size > policy.max_bytes
            ):
                self.seen.problems.append(f"waits-with-room: {batch.topic}/{batch.partition}")

    def _compare_hash(self, node: Keeper) -> None:
        value = state_hash(node.state)
        if self.hashes.setdefault(node.state.position, value) != value:
            self.seen.problems.append(f"state-differs: at position {node.state.position}")

    def _note_covered(self, node: Keeper) -> None:
        names = self.world.hosts[NODE].media.paths()
        snapshots = sorted(name for name in names if name.startswith("state/snapshot-"))
        if snapshots:
            below = int(snapshots[0].removeprefix("state/snapshot-"))
            self.seen.covered = {
                f"{info.number:08d}.seg"
                for info in node.row.store.segments()
                if info.sealed and info.last < below
            }

    async def _end(self, fate: Fate) -> None:
        """Calm: everybody gets on; then the node restarts, and holds what it held before."""
        fate.calm()
        history = self.seen.history
        await trio.sleep(0.5)
        fate.calm()
        began = trio.current_time() + 1.0
        self.seen.calm_since = began
        await trio.sleep(1.0 + self.plan.calm)
        self._take_calm(began)
        self.seen.stop.set()
        deadline = trio.current_time() + 90.0  # of the most patient client
        while trio.current_time() < deadline and self._unanswered() and not self.seen.ended:
            await trio.sleep(0.2)
            fate.revive()
        if self._unanswered() and not self.seen.ended:
            self.seen.problems.append(f"stuck: {self._unanswered()} produces have no answer")
        for name in list(self.world.hosts):
            if name != NODE and self.world.hosts[name].alive:
                self.world.kill(name)
        await trio.sleep(1.0)  # what they sent last arrives
        await self._take_content("before the restart")
        if self.world.hosts[NODE].alive:
            self.world.kill(NODE)
        self.boot()
        await trio.sleep(2.0)
        await self._take_content("after it")
        self._forgive_age()
        if self.seen.refused:
            history.finals.clear()

    def _take_calm(self, began: float) -> None:
        if not self.seen.ended:
            self.seen.history.calm.append((began, trio.current_time()))

    def _unanswered(self) -> int:
        return (
            sum(
                1
                for made in self.seen.history.produces
                if made.ended == float("inf") and not made.may_wait and made.outcome == "info"
            )
            if not self.seen.history.losses
            else 0
        )

    async def _take_content(self, when: str) -> None:
        node = self.node
        if node is None or not self.world.hosts[NODE].alive:
            if self.seen.refused:
                return
            self.seen.problems.append(f"down: there is no node {when}")
            return
        content: dict[tuple[str, int], Content] = {}
        for topic in node.state.topics.rows.values():
            for partition in range(topic.policy.partitions):
                content[topic.name, partition] = await self._read(node, topic.name, partition)
        self.seen.history.finals[when] = content

    def _forgive_age(self) -> None:
        """Entries go on growing old between the two looks, and make room for batches that wait."""
        finals = self.seen.history.finals
        aging = {one.topic for one in self.seen.history.configured if one.policy.max_age}
        for key, after in finals.get("after it", {}).items():
            before = finals.get("before the restart", {}).get(key)
            if before is not None and key[0] in aging and before.first < after.first:
                gone = min(after.first - before.first, len(before.values))
                before.first += gone
                before.values = before.values[gone:]
                before.numbers = (before.numbers or [])[gone:]
            waits = any(
                one.policy.when_full in ("block", "slot") for one in self.seen.history.configured
            )
            if before is not None and key[0] in aging and waits and after.last > before.last:
                more = after.last - max(before.last, after.first - 1)
                before.first = min(before.first, after.first) if before.values else after.first
                before.values = [*before.values, *after.values[-more:]]
                before.numbers = [*(before.numbers or []), *(after.numbers or [])[-more:]]

    async def _read(self, node: Keeper, topic: str, partition: int) -> Content:
        numbers: list[int] = []
        values: list[str | None] = []
        topic_now = node.state.topic(topic)
        assert topic_now is not None
        first = node.state.partition(topic_now.id, partition).first
        done = first - 1
        while True:
            try:
                found = await node.reader.pull(Pull(topic, done, partition=partition, limit=1000))
            except Damaged as damage:
                self.seen.tell((topic, partition), damage.first, damage.last)
                numbers += range(damage.first, damage.last + 1)
                values += [None] * (damage.last - damage.first + 1)
                done = damage.last
                continue
            except (DuckrowError, OSError) as error:
                self.seen.problems.append(f"unreadable: {topic}/{partition} after {done}: {error}")
                break
            heads = [[*batch[:-1], len(batch.body)] for batch in found.batches]
            body = b"".join(bytes(batch.body) for batch in found.batches)
            for batch in batches_of(topic, heads, body):
                for entry in batch.entries():
                    numbers.append(entry.number)
                    values.append(entry.value.decode().strip())
            if not found.batches:
                break
            done = numbers[-1]
        return Content(first, values, numbers)


def _text(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_text(part) for part in error.exceptions)
    return f"{type(error).__name__}: {error}"


__all__ = ["Corrupt", "Outcome", "run_seed"]
