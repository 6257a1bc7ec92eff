"""Follower: the node beside a bridge reads the row from its own position (N1, C2).

    past   from the store, as far as it is behind; bodies stay on the disk
    live   what was just ordered, from memory, whole

A cursor, not a queue: what is kept for a follower that does not come is bounded, and read again from
the store when it does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from duckrow.node.limits import KIB, MIB
from duckrow.node.row import Item
from duckrow.node.wakeup import Wakeup

from .sending import size_of_content

PAST_BYTES: Final = 256 * KIB  # of heads, read at once
LIVE_BYTES_MAX: Final = 8 * MIB

Read = Callable[[int, int], Awaitable[list[Item]]]  # from a position, so many bytes


class Follower:
    def __init__(self, after: int, end: int, read: Read) -> None:
        self._next = after + 1
        self._end = end  # of the row
        self._read = read
        self._live: deque[Item] = deque()
        self._live_bytes = 0
        self._reads = False  # `take` waits for the store
        self._wakeup = Wakeup()

    def placed(self, item: Item) -> bool:
        """The next item of the row.  False: it is known here, from before the row lost its end.

        Whoever says so then calls `take_nowait` or `wake`.
        """
        self._end = item.position
        if item.position < self._next:
            return False
        size = size_of_content(item.content)
        if self._live_bytes + size > LIVE_BYTES_MAX:
            self._live.clear()
            self._live_bytes = 0
        if not self._live or self._live[-1].position == item.position - 1:
            self._live.append(item)
            self._live_bytes += size
        return True

    @property
    def is_behind(self) -> bool:
        return self._next <= self._end

    def wake(self) -> None:
        """Whoever waits looks again."""
        self._wakeup.wake()

    def take_nowait(self) -> list[Item]:
        """The next items, if they are in memory: so what was just ordered costs no task its turn."""
        live = self._live
        if self._reads or not live or live[0].position != self._next:
            return []
        return self._taken()

    async def wait(self) -> None:
        """Until there is a next item."""
        while not self.is_behind:
            await self._wakeup.wait()

    async def take(self) -> list[Item]:
        """The next items; waits until there is one.

        Raises:
            NotFound, Corrupt: the store does not have them.
        """
        await self.wait()
        live = self._live
        while live and live[0].position < self._next:
            live.popleft()
        if live and live[0].position == self._next:
            return self._taken()
        self._reads = True
        try:
            items = await self._read(self._next, PAST_BYTES)
        finally:
            self._reads = False
        self._next = items[-1].position + 1
        return items

    def _taken(self) -> list[Item]:
        items = list(self._live)
        self._live.clear()
        self._live_bytes = 0
        self._next = items[-1].position + 1
        return items
