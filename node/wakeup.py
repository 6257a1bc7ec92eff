"""One task waits, others wake it: the cheapest thing in trio that does this.

A wake-up while nobody waits is kept, and several are one.  Whoever waits looks again at what it
waits for, so a wake-up too many does no harm.
"""

from __future__ import annotations

import trio


class Wakeup:
    __slots__ = ("_pending", "_task")

    def __init__(self) -> None:
        self._pending = False
        self._task: trio.lowlevel.Task | None = None

    @property
    def is_pending(self) -> bool:
        """Who waits next need not wait."""
        return self._pending

    @property
    def is_awaited(self) -> bool:
        """Somebody waits, and nobody has woken him."""
        return self._task is not None

    def wake(self) -> None:
        task = self._task
        if task is None:
            self._pending = True
        else:
            self._task = None
            trio.lowlevel.reschedule(task)

    async def wait(self) -> None:
        """Until it is woken, or was since the last time.  One task at a time."""
        if self._pending:
            self._pending = False
            await trio.lowlevel.checkpoint_if_cancelled()
            return
        assert self._task is None, "two tasks wait for one wake-up"
        self._task = trio.lowlevel.current_task()

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
