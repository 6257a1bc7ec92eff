"""Rounds: one at a time, each in the task of whoever brings something.

    a link, the node, a sync ──► turn ──► rounds, until nothing is left        in that very task
    a beat, a wish, a job    ──► wake ──► the same, in a task that waits for it

To wake a task costs a turn of the loop, which for a single bundle is as much as the round.  Who comes
while a task is at it leaves there what it brings.  Jobs are done between two rounds, by `run` alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from duckrow.node.wakeup import Wakeup

from .jobs import Jobs


class Rounds:
    def __init__(self, make: Callable[[], Awaitable[None]]) -> None:
        """`make` is never cancelled where it waits, so a round is whole or the end of all."""
        self.due = True  # something came, or is to be looked at
        self.jobs = Jobs(self.wake)
        self._make, self._work = make, Wakeup()
        self._turning = True  # a task is at it; or there is none that may: `run` does not run
        self._failed: Exception | None = None  # what ends all, from a task that is not `run`

    def wake(self) -> None:
        self.due = True
        if not self._turning:
            self._work.wake()

    async def turn(self) -> None:
        """Returns when all that was brought is worked off, or somebody is at it."""
        self.due = True
        if self._turning:
            return
        try:
            await self._turn(jobs=False)
        except Exception as error:  # noqa: BLE001  # raised again where it concerns all
            self.fail(error)
            await trio.sleep_forever()

    def fail(self, error: Exception) -> None:
        """Ends all: `run` raises this, whoever met it."""
        self._turning, self._failed = True, error
        self._work.wake()

    async def run(self) -> None:
        """Until cancelled; nobody makes a round before or after.

        Raises:
            Exception: whatever a round raised, in whose task ever, or `fail` was told.
        """
        self._turning = False
        try:
            while self._failed is None:
                if not self._turning:
                    await self._turn(jobs=True)
                await self._work.wait()
            raise self._failed
        finally:
            self._turning = True

    async def _turn(self, *, jobs: bool) -> None:
        self._turning = True
        try:
            while self.due:
                if self.jobs.waiting:
                    if not jobs:
                        self._work.wake()
                        return
                    await self.jobs.run()
                self.due = False
                await self._make()
        finally:
            self._turning = False
