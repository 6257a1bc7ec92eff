"""One machine without a network: the smallest world, for tests of whatever lives on a disk.

    machine = Machine(seed=7)
    machine.media.crash_before(12)
    with pytest.raises(SimCrashed):
        machine.run(fill)               # async def fill(env: Env) -> None
    machine.media.power_loss()          # or .kill(): the page cache survives
    assert machine.run(look) == ...

Each `run` is a new process: a fresh trio loop with a seeded scheduler and a clock that jumps.
Time goes on from run to run, the boot id changes with `power_loss` alone.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from duckrow.node.env import Env, Handler

from .clock import SimClock, SimDeadlock, seeded_scheduler
from .disk import Media
from .park import Life, bare

T = TypeVar("T")
EPOCH_US = 1_700_000_000_000_000  # the wall clock when a simulation begins


class NoNetwork:
    """For programs that need none."""

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        raise OSError(f"no network: cannot connect to {host}:{port}")

    async def serve(
        self,
        handler: Handler,
        port: int,
        *,
        task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        task_status.started(port)
        await trio.sleep_forever()


class Machine:
    """Runs programs one after the other on one disk."""

    def __init__(self, seed: int = 0, *, media: Media | None = None) -> None:
        self.seed = seed
        self.media = Media(seed) if media is None else media
        self.now = 0.0  # seconds since the machine was made
        self.skew_us = 0  # of the wall clock
        self.buggify: Callable[..., bool] = lambda _site, _probability=0.05: False
        self._runs = 0

    @property
    def boot_id(self) -> str:
        return f"boot-{self.seed}-{self.media.losses}"

    def run(self, main: Callable[[Env], Awaitable[T]]) -> T:
        """The result of `main`; a failure that every part of an exception group shares comes bare.

        Raises:
            SimCrashed: the process died at a crash point.
            SimDeadlock: nothing could happen any more.
        """
        self._runs += 1
        clock = SimClock(self.now)
        life = Life(100 + self._runs)
        env = Env(
            name="alone",
            disk=self.media.disk(life),
            net=NoNetwork(),
            rng=random.Random(f"{self.seed}/{self._runs}"),
            wall_us=lambda: EPOCH_US + int(clock.now * 1e6) + self.skew_us,
            boot_id=self.boot_id,
            buggify=self.buggify,
        )

        async def process() -> T:
            with trio.CancelScope() as scope:
                clock.on_deadlock = scope.cancel
                try:
                    return await main(env)
                finally:
                    clock.on_deadlock = None
            raise SimDeadlock(f"nothing can happen any more, at {clock.now:.6f} s")

        try:
            with seeded_scheduler(self.seed):
                return trio.run(process, clock=clock)
        except BaseExceptionGroup as group:
            raise bare(group) from group
        finally:
            self.now = clock.now
            life.end()
            self.media.bury()
