"""The world: hosts, their network and disks, a clock that jumps, and one seed that decides all.

    world = World(seed=7)

    async def main(world: World) -> None:
        world.start("a", program)                 # async def program(env: Env) -> None
        await trio.sleep(3)
        world.kill("a", power=True)
        world.start("a", program)
        ...

    world.run(main)
    print(world.trace.digest())

Everything runs in one `trio.run`: programs are trio tasks, `main` is the hand of fate.  The digest
covers each scheduler step, message, disk operation and fault, so two runs with equal digests were
the same run.
"""

from __future__ import annotations

import contextvars
import gc
import hashlib
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import outcome
import trio

from duckrow.node.env import Env

from .alone import EPOCH_US
from .clock import Order, SimClock, SimDeadlock, scheduled_by
from .disk import Media
from .guard import guarded
from .net import Listener, Net, SimNet
from .park import Life, SimCrashed, bare, leaves
from .stream import SimStream
from .trace import Trace

T = TypeVar("T")


class SimLivelock(Exception):
    """Raised when tasks run and run, and time stands still."""


Program = Callable[[Env], Awaitable[object]]

STEPS_AT_ONCE = 300_000  # without time going on: more than any work takes that comes to an end

_label: contextvars.ContextVar[str] = contextvars.ContextVar("label", default="-")


class Host:
    """One machine with one process.  Its disk and its name outlive the process."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.media = Media(world.rng("media", name))
        self.media.on_crash = self._crash
        self.media.note = self._note_disk
        self.crash_is_power_loss = False  # what a crash point of the disk does
        self.powered = True
        self.skew_us = 0  # of the wall clock; may be changed at any time
        self.starts = self.boots = 0
        self.life = Life(0)
        self.life.end()
        self.exits: list[Exception] = []  # how its processes failed by themselves
        self.listeners: dict[int, Listener] = {}
        self.unanswered: list[SimStream] = []  # peers whose data came while it was dark
        self.scope: trio.CancelScope | None = None
        self._sites: dict[str, bool] = {}

    @property
    def alive(self) -> bool:
        return self.life.alive

    def env(self) -> Env:
        world, life = self.world, self.life
        return Env(
            name=self.name,
            disk=self.media.disk(life),
            net=SimNet(self, life),
            rng=world.rng("process", self.name, self.starts),
            wall_us=self.wall_us,
            boot_id=f"{self.name}-boot-{self.boots}",
            buggify=self._buggify,
        )

    def wall_us(self) -> int:
        return EPOCH_US + int(self.world.clock.now * 1e6) + self.skew_us

    def _buggify(self, site: str, probability: float = 0.05) -> bool:
        """A quarter of the sites of each host act up, in this world."""
        rng = self.world.buggify_rng
        on = self._sites.get(site)
        if on is None:
            on = self._sites[site] = rng.random() < self.world.buggify
        if on and rng.random() < probability:
            self.world.note("buggify", self.name, site)
            return True
        return False

    def _crash(self) -> None:
        self.world.kill(self.name, power=self.crash_is_power_loss)

    def _note_disk(self, kind: str, path: str, offset: int, length: int) -> None:
        self.world.trace.add((kind, self.name, path, offset, length))


class World:
    def __init__(
        self,
        seed: int,
        *,
        keep_trace: bool = False,
        trace_steps: bool = True,
        guard: bool = True,
        buggify: float = 0.25,
        tolerate: tuple[type[Exception], ...] = (),
    ) -> None:
        self.seed = seed
        self.clock = SimClock()
        self.trace = Trace(keep=keep_trace)
        self.steps = 0
        self.counts: dict[str, int] = {}
        self.problems: list[str] = []
        self.handler_errors: list[str] = []
        self.buggify = buggify  # share of the sites that are active
        self.tolerate = tolerate  # how a process may end by itself, without failing the run
        self.buggify_rng = self.rng("buggify")
        self.hosts: dict[str, Host] = {}
        self.net = Net(self)
        self._guard = guard
        self._order = _Steps(self) if trace_steps else Order(seed)
        self._nursery: trio.Nursery | None = None
        self._endless: SimDeadlock | None = None  # somebody was told to end, and did not
        self.clock.on_jump = self.trace.time

    def rng(self, *name: object) -> random.Random:
        """A stream of its own for each use, so that one more draw here shifts nothing there."""
        text = "/".join(map(str, (self.seed, *name)))
        return random.Random(hashlib.blake2b(text.encode(), digest_size=8).digest())

    def note(self, kind: str, *facts: Any) -> None:
        """Into the trace: numbers and strings that are the same in every run of this seed."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.trace.add((kind, *facts))

    def host(self, name: str) -> Host:
        host = self.hosts.get(name)
        if host is None:
            host = self.hosts[name] = Host(self, name)
        return host

    # -- processes ------------------------------------------------------------------------

    def start(self, name: str, program: Program) -> Host:
        """Starts the process of that host, and its power if it was off."""
        assert self._nursery is not None, "start() is for inside of run()"
        host = self.host(name)
        assert not host.life.alive, f"{name} is running"
        host.starts += 1
        host.life = Life(1000 * host.starts + list(self.hosts).index(name))
        if not host.powered:
            host.powered = True
            self.net.host_started(host)
        self.note("start", name)
        self._nursery.start_soon(self._process, host, program, name=f"process {name}")
        return host

    def kill(self, name: str, *, power: bool = False) -> None:
        """kill -9, or a power loss.  A dark host may lose its power again: nothing happens."""
        host = self.hosts[name]
        self.note("power" if power else "kill", name)
        # The fence first: what the process does while it is cancelled touches nothing.
        host.life.end()
        host.listeners.clear()
        self.net.host_ended(host, silent=power)
        if power:
            host.powered = False
            host.boots += 1
            host.media.power_loss()
        else:
            host.media.kill()
        host.media.disarm()
        if host.scope is not None:
            host.scope.cancel()

    def pause(self, name: str) -> None:
        """SIGSTOP: calls that wait do not return; a plain write is as if before the signal."""
        self.note("pause", name)
        self.hosts[name].life.pause()

    def resume(self, name: str) -> None:
        self.note("resume", name)
        self.hosts[name].life.resume()

    def handler_failed(self, host: Host, error: Exception) -> None:
        """Network errors are a handler's daily life; anything else is kept for the scenario.

        What may end the process may end a handler before it.
        """
        daily = trio.BrokenResourceError | trio.ClosedResourceError | OSError
        self.note("handler", host.name, type(error).__name__)
        for leaf in leaves(error):
            if not isinstance(leaf, daily) and not isinstance(leaf, self.tolerate):
                self.handler_errors.append(f"{host.name}: {type(leaf).__name__}: {leaf}")

    async def _process(self, host: Host, program: Program) -> None:
        life = host.life
        _label.set(f"{host.name}.{host.starts}")
        env = host.env()
        with trio.CancelScope() as scope:
            host.scope = scope
            try:
                await program(env)
            except BaseException as error:
                for leaf in leaves(error):
                    if isinstance(leaf, Exception):
                        self._failed(host, life, leaf)
                    elif not isinstance(leaf, SimCrashed | trio.Cancelled):
                        raise
                if (cancelled := _cancelled(error)) is not None:
                    raise cancelled from None
        if life.alive:  # it ended by itself
            life.end()
            host.media.bury()
            host.listeners.clear()
            self.net.host_ended(host, silent=False)
            self.note("end", host.name)

    def _failed(self, host: Host, life: Life, error: Exception) -> None:
        if life.alive:  # what the dead say in their cleanup, nobody hears
            host.exits.append(error)
            self.note("exit", host.name, type(error).__name__)

    # -- running --------------------------------------------------------------------------

    def run(self, main: Callable[[World], Awaitable[T]]) -> T:
        """The result of `main`; then everything that still runs ends.

        Raises:
            SimDeadlock: nothing could happen any more; or what was told to end does not.
            ExceptionGroup: processes ended with errors that are not tolerated; with what `main`
                came to, if it failed.
        """
        instruments = [self._order.tasks] if isinstance(self._order, _Steps) else []
        with scheduled_by(self._order), guarded(self._guard):
            gc.disable()  # finalizers would run at moments that depend on allocations
            try:
                result = trio.run(self._run, main, clock=self.clock, instruments=instruments)
            except BaseExceptionGroup as group:
                error = bare(group)
                if isinstance(error, Exception):
                    self._raise_failures(error)  # the likelier reason
                raise error from None
            except SimDeadlock as deadlock:
                self._raise_failures(deadlock)  # here, too
                raise
            finally:
                gc.enable()
        self._raise_failures()
        return result

    def _raise_failures(self, *more: Exception) -> None:
        failed = [
            error
            for host in self.hosts.values()
            for error in host.exits
            if not isinstance(error, self.tolerate)
        ]
        if failed:
            raise ExceptionGroup(f"processes of seed {self.seed} failed", [*failed, *more])

    async def _run(self, main: Callable[[World], Awaitable[T]]) -> T:
        with trio.CancelScope() as scope:
            self.clock.on_deadlock = scope.cancel
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    result = await main(self)
                finally:  # also where it failed: who does not end now never will
                    self.clock.on_deadlock = self._goes_on
                for host in self.hosts.values():
                    host.life.end()
                nursery.cancel_scope.cancel()
            self.clock.on_deadlock = None
            if self._endless is not None:
                raise self._endless
            return result
        self.clock.on_deadlock = None
        raise SimDeadlock(f"nothing can happen any more, at {self.clock.now:.6f} s")

    def _goes_on(self) -> None:
        """All were told to end, and somebody waits for ever, behind a shield: it gets this in place of that."""
        assert self._nursery is not None
        names = ", ".join(sorted(task.name for task in self._nursery.child_tasks))
        self._endless = SimDeadlock(f"told to end, these go on: {names}")
        for task in _leaves(self._nursery):
            trio.lowlevel.reschedule(task, outcome.Error(self._endless))


def _leaves(nursery: trio.Nursery) -> Iterator[trio.lowlevel.Task]:
    """Who waits for none of those below it."""
    for task in nursery.child_tasks:
        below = [each for one in task.child_nurseries for each in _leaves(one)]
        yield from below or (task,)


def _cancelled(error: BaseException) -> BaseException | None:
    """The part that belongs to trio, which has to get it back."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[0]
    return error if isinstance(error, trio.Cancelled) else None


class _Steps(Order):
    """Every scheduler decision goes into the trace: which task runs next.

    Trio's instruments could tell each step; but they cost as much as a step, and the order of a
    batch says the same.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world.seed)
        self.tasks = _Tasks(world.trace)
        self._world, self._add, self._numbers = world, world.trace.add, self.tasks.numbers
        self._now, self._since = -1.0, 0  # the moment, and the steps before it

    def shuffle(self, batch: list[trio.lowlevel.Task]) -> None:
        world = self._world
        world.steps += len(batch)
        if world.clock.now != self._now:
            self._now, self._since = world.clock.now, world.steps
        elif world.steps - self._since > STEPS_AT_ONCE:
            raise SimLivelock(f"tasks go on for ever at {self._now:.6f} s: {batch[0].name}")
        if len(batch) > 1:
            super().shuffle(batch)
            for task in reversed(batch):
                self._add(self._numbers[task])
        elif batch:
            self._add(self._numbers[batch[0]])


class _Tasks(trio.abc.Instrument):
    """Numbers for tasks, in the order in which they were spawned."""

    def __init__(self, trace: Trace) -> None:
        self.numbers: dict[trio.lowlevel.Task, int] = {}
        self._trace, self._count = trace, 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self._count += 1
        self.numbers[task] = self._count
        self._trace.add(("task", self._count, task.context.get(_label, "-"), task.name))

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        del self.numbers[task]
