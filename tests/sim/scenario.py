"""One simulated run: a node, its clients, the faults, and the check, all decided by one seed.

    result = run_seed(7)
    assert result.ok, result

What is looked at while it runs is in watch.py.  At the end the faults stop; within a few calm seconds everybody must get on, and
the history is checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs
import trio

from duckrow.cluster.checker import check
from duckrow.cluster.history import Loss, Report
from duckrow.node.alone import Options, open_node
from duckrow.node.capture import CHUNK_BYTES
from duckrow.node.env import Env
from duckrow.node.errors import Corrupt, DiskFailed, Full
from duckrow.node.events import ERROR
from duckrow.node.housekeeping import HousekeepingOptions
from duckrow.node.keeper import Keeper
from duckrow.node.storeoptions import WRITE, StoreOptions

from .administrator import Administrator
from .clock import SimDeadlock
from .consumers import Consumer
from .contents import contents, forgive_age
from .faults import Fate
from .pages import BLOCK
from .plan import Plan, drawn
from .producers import Producer
from .service import BACK_SECONDS, NODE, serve
from .stager import Stager
from .watch import Watch
from .workload import Observed
from .world import World

# How a node may end by itself: its disk has failed, or is too full to begin.
ENDS = (DiskFailed, Full, OSError)
BESIDE_BYTES = 3 * BLOCK  # of the reserve go to commands and to an index file, before a snapshot
SQUEEZED_BYTES = 200 * 1024  # so much is on the disk, at least, before it is made to run full
ROOM_SECONDS = 60.0
HELD_SECONDS = 5.0
SILENCE_SECONDS = 3.0
END_SECONDS = 30.0  # an end, or a start
SYNCS = 4  # of a sealed segment and its index: an end writes those that are not there yet
UNREAD_STARTS = 4  # in a row that failed: then somebody reads the page about damage


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
    notes: list[str] = attrs.field(factory=list)  # what the processes said

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
        run.seen.problems.append(f"crash: {text_of(error)}")
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
        self.seen.history.shared_bytes = plan.window * plan.batch * (plan.value_bytes + 16)
        self.node: Keeper | None = None
        self._open = False  # that one, or it is the last that was
        self.watch = Watch(world, self.seen)
        self.stopping = trio.Event()  # the node is to end in order
        self._unread = 0  # starts in a row that did not get what they have to read
        # Of a snapshot; in a third of the runs small ones, between which there is time for changes.
        self.slice_bytes = world.rng("slices").choice((CHUNK_BYTES, CHUNK_BYTES, 128))

    async def main(self, world: World) -> None:
        world.net.split, world.net.window = self.plan.split, self.plan.stream_bytes
        self.boot()
        world.hosts[NODE].media.sync_latency = self.plan.sync_seconds
        administrators: list[Administrator] = []

        async def administrate(env: Env) -> None:
            administrators.append(Administrator(env, self.seen))
            await administrators[0].run()

        world.start("admin", administrate)
        while not (administrators and administrators[0].ready.is_set() and self._have_topics()):
            await trio.sleep(0.05)
            assert world.clock.now < 60.0, "the topics cannot be made"
        for kind, letter, count in (
            (Producer, "p", self.plan.producers),
            (Consumer, "c", self.plan.consumers),
            (Stager, "s", self.plan.stagers),
        ):
            for index in range(count):
                self._add_client(f"{letter}{index}", kind)
        hands = [
            Fate(world, self.plan, self.seen, self.boot, self.stop, n)
            for n in range(self.plan.hands)
        ]
        async with trio.open_nursery() as nursery:
            for hand in hands:
                nursery.start_soon(hand.run)
        await self._end(hands[0])

    def _have_topics(self) -> bool:
        """For good: one that goes with the power comes back with the next produce, in one partition.

        At level `memory` it may go at any time, so it has one from the beginning (plan.py).
        """
        if self.plan.level != WRITE or self.node is None:
            return True
        return self.node.row.store.durable_position >= self.node.state.position

    def _add_client(self, name: str, kind: type[Producer | Consumer | Stager]) -> None:
        async def program(env: Env) -> None:
            starts = self.world.hosts[name].starts
            await kind(env, self.seen, f"{name}-{starts}").run()

        self.seen.programs[name] = program
        self.world.start(name, program)

    def boot(self) -> None:
        self._open, self.stopping = False, trio.Event()
        self.world.start(NODE, self._program)

    def stop(self) -> None:
        self.stopping.set()

    async def _program(self, env: Env) -> None:
        plan, stopping = self.plan, self.stopping
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
                snapshot_items=plan.snapshot_items,
                snapshot_bytes=1 << 20,
                followable_bytes=plan.segment_bytes,
                slice_bytes=self.slice_bytes,
                slice_seconds=0.001,  # on this clock they would take no time, and nobody rest
            ),
        )
        opened = False
        try:
            async with open_node(env, options) as node:
                opened = self._open = True
                self._unread = 0
                self.watch.attach(node)
                self.node = node
                await serve(env, node, self._note, stopping)
        except Corrupt as error:
            if opened or not self.seen.wild:
                raise
            self.seen.refused = str(error)
            self.world.note("refused")
        except DiskFailed:
            self._unread += not opened
            if self._unread == UNREAD_STARTS:
                self._unread = 0
                copied = self.world.hosts[NODE].media.copy_what_can_be_read()
                if any(path.endswith(".seg") for path in copied):
                    # Where that was the end, nothing tells what had been there.
                    self.seen.history.losses.append(Loss(0.0, trio.current_time()))
            raise

    def _note(
        self, level: int, template: str, /, *args: object, exc_info: BaseException | None = None
    ) -> None:
        if level >= ERROR:
            self.seen.problem("handler", template % args)

    async def _end(self, fate: Fate) -> None:
        """Calm: everybody gets on; then the node restarts, and holds what it held before."""
        fate.calm()
        history = self.seen.history
        await trio.sleep(0.5)
        await self._squeeze()
        fate.calm()
        await self._wait_open(fate)
        began = max(trio.current_time(), self.world.net.settled_at) + BACK_SECONDS
        self.seen.calm_since = began
        await trio.sleep_until(began + self.plan.calm)
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
        await trio.sleep(SILENCE_SECONDS)  # what they sent last arrives; and it grows old
        await self._take_content("before the restart")
        await self._end_node()
        self.boot()
        await trio.sleep(2.0)
        await self._wait_open(fate)
        await self._take_content("after it")
        forgive_age(self.seen.history, "before the restart", "after it")
        if self.seen.refused:
            history.finals.clear()

    async def _end_node(self) -> None:
        """In order, or not; a row that has ended, always in order."""
        host = self.world.hosts[NODE]
        if host.alive and (self.seen.ended or self.world.rng("end").random() < 0.5):
            self.stop()
            with trio.move_on_after(END_SECONDS + self._sync_seconds()):
                while host.alive:
                    await trio.sleep(0.1)
        if host.alive:
            if self.stopping.is_set():
                self.seen.problems.append("never-ends: the node was to end, and goes on")
            self.world.kill(NODE)

    async def _wait_open(self, fate: Fate) -> None:
        """What was told to end, in the last moment, ends and is started again."""
        host = self.world.hosts[NODE]
        await self._wait_while(lambda: host.alive and self.stopping.is_set())
        if self.stopping.is_set():
            fate.revive()
        await self._wait_while(lambda: host.alive and not self._open)

    async def _wait_while(self, goes_on: Callable[[], bool]) -> None:
        """A start after a kill reads and syncs what no index knows yet: thousands of small segments."""
        with trio.move_on_after(END_SECONDS + self._sync_seconds()):
            while goes_on():
                await trio.sleep(0.1)

    def _sync_seconds(self) -> float:
        """Of all segments, one after the other."""
        segments = 0 if self.node is None else len(self.node.row.store.segments())
        return segments * SYNCS * self.plan.sync_seconds

    async def _squeeze(self) -> None:
        """The disk runs full, and nobody makes it larger: who prunes gets the space back."""
        plan, media = self.plan, self.world.hosts[NODE].media
        most = SQUEEZED_BYTES + 4 * plan.segment_bytes  # of which so much can always go
        if "disk-full" not in plan.faults or self.seen.ended or media.used < most:
            return
        media.capacity = media.used + 8 * 1024
        self.seen.full = True
        await trio.sleep(3.0)
        if self.seen.ended:
            return
        self.world.note("squeeze", self._disk_state())
        done = trio.Event()

        async def make_room(env: Env) -> None:
            await Administrator(env, self.seen).make_room()
            done.set()

        self.world.start("room", make_room)
        # Where nothing is judged in the end a minute of refused produces is the dearest part of a run.
        seconds = HELD_SECONDS if self._is_small() else ROOM_SECONDS
        tried = 0  # bytes of a snapshot that did not fit, about
        with trio.move_on_after(seconds):
            await done.wait()
            while self._disk_state() != "ok":
                await trio.sleep(0.1)
                if "state/writing" in media.paths():
                    tried = max(tried, media.pages("state/writing").cache.size)
            return
        if not self.seen.ended and not self._holds_back(tried):
            self.seen.problems.append(
                f"no-room: the disk is {self._disk_state()!r}, although all was pruned"
                if done.is_set()
                else "no-room: nothing can be pruned"
            )

    def _holds_back(self, tried: int) -> bool:
        """Whether there need not be room, though everything was pruned.

        A batch that is staged, or waits, keeps the row from it on.  And where a segment is a few
        blocks, its index files take as much of the disk as it does, and more than the reserve.
        A snapshot that is larger than what they leave of the reserve does not fit either (decision 0009).
        """
        node = self.node
        if node is None:
            return False
        state, options = node.state, node.row.store.options
        media = self.world.hosts[NODE].media
        paths = [path for path in media.paths() if path.startswith("state/snapshot-")]
        snapshot = max((tried, *(media.pages(path).cache.size for path in paths)))
        return (
            bool(state.stages or state.waiting)
            or self._is_small()
            or not paths  # without one it is not known how large it has to be
            or snapshot + BESIDE_BYTES > options.hard_reserve_bytes
        )

    def _is_small(self) -> bool:
        """Also where that is a rare choice of the node's."""
        node, size = self.node, self.plan.segment_bytes
        return (size if node is None else node.row.store.options.segment_bytes) <= 4 * BLOCK

    def _disk_state(self) -> str:
        node = self.node
        alive = node is not None and self.world.hosts[NODE].alive
        return node.row.status().disk if node is not None and alive else "down"

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
        self.seen.history.finals[when] = await contents(node, self.seen)


def text_of(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(text_of(part) for part in error.exceptions)
    return f"{type(error).__name__}: {error}"


__all__ = ["Corrupt", "Outcome", "run_seed"]
