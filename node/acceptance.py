"""Acceptance: which commands may be answered `accepted` (N3).

    1 2 3        are in the row
          4 5    came here, and go to the disk in this order
              7  came here, too; 6 did not

`accepted` promises a place in the order.  4 and 5 have one as soon as they are on this disk; 7 has
none, since it is refused wherever 6 is missing (D3).  6 may be on its way in the row, from another
node: so 7 is not refused here, but its answer waits for that of the order.

Of a lane of which nothing is on its way, the state alone says how far it has come, and whether it
still is there: it goes with its topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .commands import Head
from .effects import Answer
from .values import Lane, LaneKey

LANES_MAX: Final = 100_000  # who is forgotten waits for the order

Key = tuple[bytes, int, str, int]  # a lane of one epoch


class Acceptance:
    def __init__(self, lanes: Mapping[LaneKey, Lane]) -> None:
        self._lanes = lanes  # of the state
        # Highest seq here that none is missing before, as long as that is not decided in the row.
        self._until: dict[Key, int] = {}

    def came(self, head: Head) -> bool:
        """It is to be staged, behind all that came before.  False: one before it is missing here."""
        key, seq = _key(head), head.seq
        until = self._until.get(key, 0)
        if seq != until + 1 or not until:
            until = max(until, self._last(key))
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
        key, before = _key(head), head.seq - 1
        if self._until.get(key, 0) > before:
            if before > self._last(key):
                self._until[key] = before
            else:
                del self._until[key]

    def answered(self, answer: Answer) -> None:
        """It is decided in the row, wherever it came from."""
        if self._until:
            key = answer.pid, answer.epoch, answer.topic, answer.partition
            if self._until.get(key) == answer.seq:
                del self._until[key]

    def holds(self, pid: bytes, epoch: int, topic: str, partition: int, seq: int) -> bool:
        """Staged here, it has a place in the order."""
        key = pid, epoch, topic, partition
        return seq <= max(self._until.get(key, 0), self._last(key))

    def expected(self, head: Head) -> int:
        """The seq that has to come first."""
        key = _key(head)
        return max(self._until.get(key, 0), self._last(key)) + 1

    def _last(self, key: Key) -> int:
        pid, epoch, topic, partition = key
        lane = self._lanes.get((pid, topic, partition))
        return lane.last if lane is not None and lane.epoch == epoch else 0


def _key(head: Head) -> Key:
    return head.pid, head.epoch, head.topic, head.partition
