"""A clock that jumps: trio's public Clock, plus timers of the simulated world.

Trio asks for the time to sleep only when no task can run.  Nothing outside can wake a simulation,
so that moment means: go straight to whatever happens next.  Unlike trio's MockClock it lands
exactly on the deadline, needs no second turn of the loop, never reads a real clock, and notices
when nothing will ever happen again.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from math import inf
from typing import TYPE_CHECKING, Any

import trio
import trio._core._run as _trio_run

if TYPE_CHECKING:
    from collections.abc import Iterator


class SimDeadlock(Exception):
    """Raised when no task can run and nothing is due, ever."""


class SimClock(trio.abc.Clock):
    def __init__(self, start: float = 0.0) -> None:
        self.now = start
        self.on_jump: Callable[[float], None] | None = None
        # None while trio itself starts or ends: then there is nobody to tell.
        self.on_deadlock: Callable[[], None] | None = None
        self._timers: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0  # equal times go in the order in which they were asked for

    def call_at(self, when: float, call: Callable[..., None], *args: Any) -> None:
        """Timers cannot be taken back; who may no longer want one looks when it fires."""
        self._count += 1
        heapq.heappush(self._timers, (max(when, self.now), self._count, call, args))

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        timers = self._timers
        target = timers[0][0] if timers else inf
        target = min(target, deadline)
        if target == inf:
            if self.on_deadlock is None:
                return 0.001
            self.on_deadlock()
            return 0
        if target > self.now:
            self.now = target
            if self.on_jump is not None:
                self.on_jump(target)
        while timers and timers[0][0] <= self.now:
            _, _, call, args = heapq.heappop(timers)
            call(*args)
        return 0


async def sleep(seconds: float) -> None:
    """For the world's own delays: a timer, where there are some, at a third of a trio.sleep."""
    clock = trio.lowlevel.current_clock()
    if not isinstance(clock, SimClock):
        await trio.sleep(seconds)
        return
    sleeper: list[trio.lowlevel.Task] = [trio.lowlevel.current_task()]

    def wake() -> None:
        if sleeper:
            trio.lowlevel.reschedule(sleeper.pop())

    def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
        sleeper.clear()
        return trio.lowlevel.Abort.SUCCEEDED

    clock.call_at(clock.now + seconds, wake)
    await trio.lowlevel.wait_task_rescheduled(abort)


class Order:
    """In the place of trio's generator: decides in which order the runnable tasks run."""

    def __init__(self, seed: int) -> None:
        self._shuffle = random.Random(seed).shuffle

    def shuffle(self, batch: list[trio.lowlevel.Task]) -> None:
        """Trio runs the last one first."""
        if len(batch) > 1:
            self._shuffle(batch)


@contextmanager
def scheduled_by(order: Order) -> Iterator[None]:
    """While it lasts, trio runs what is ready in the order that `order` decides.

    The switch is trio's own, made for Hypothesis: it sorts each batch of runnable tasks by age,
    so that the order in which they became runnable does not matter, and lets a generator of its
    own shuffle it.  The names are private; a test pins them.
    """
    was = _trio_run._ALLOW_DETERMINISTIC_SCHEDULING, _trio_run._r
    _trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    _trio_run._r = order  # type: ignore[assignment]
    try:
        yield
    finally:
        _trio_run._ALLOW_DETERMINISTIC_SCHEDULING, _trio_run._r = was  # type: ignore[misc]


def seeded_scheduler(seed: int) -> AbstractContextManager[None]:
    return scheduled_by(Order(seed))
