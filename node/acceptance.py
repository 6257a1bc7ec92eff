"""Acceptance: which commands may be answered `accepted` (N3).

    1 2 3        are in the row
          4 5    came here, and go to the disk in this order
              7  came here, too; 6 did not

`accepted` promises a place in the order.  4 and 5 have one as soon as they are on this disk; 7 has
none, since it is refused wherever 6 is missing (D3).  6 may be on its way in the row, from another
node: so 7 is not refused here, but its answer waits for that of the order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .commands import Head
from .values import Lane, LaneKey

LANES_MAX: Final = 100_000  # who is forgotten waits for the order

Key = tuple[bytes, int, str, int]  # a lane of one epoch


class Acceptance:
    def __init__(self, lanes: Mapping[LaneKey, Lane]) -> None:
        self._lanes = lanes  # of the state
        self._until: dict[Key, int] = {}  # highest seq here that none is missing before

    def came(self, head: Head) -> bool:
        """It is to be staged, behind all that came before.  False: one before it is missing here."""
        key, seq = _key(head), head.seq
        until = self._until.get(key, 0)
        if seq != until + 1:
            until = max(until, self._last(head))
            if seq > until + 1:
                return False
            if seq <= until:
                return True
        self._until[key] = seq
        if len(self._until) > LANES_MAX:
            del self._until[next(iter(self._until))]
        return True

    def refused(self, head: Head) -> None:
        """It was not taken, and so nothing behind it has a place."""
        key = _key(head)
        if self._until.get(key, 0) >= head.seq:
            self._until[key] = head.seq - 1

    def holds(self, pid: bytes, epoch: int, topic: str, partition: int, seq: int) -> bool:
        """Staged here, it has a place in the order."""
        return seq <= self._until.get((pid, epoch, topic, partition), 0)

    def expected(self, head: Head) -> int:
        """The seq that has to come first."""
        return max(self._until.get(_key(head), 0), self._last(head)) + 1

    def _last(self, head: Head) -> int:
        lane = self._lanes.get(head.lane)
        return lane.last if lane is not None and lane.epoch == head.epoch else 0


def _key(head: Head) -> Key:
    return head.pid, head.epoch, head.topic, head.partition
