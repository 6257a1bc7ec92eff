"""Blocking pulls: who waits for which topic, and waking them without polling.

A waiter parks under the *name* of a topic, which need not exist yet, and under a partition or under
none, which means all.  Waking costs a step for each one that is woken and none for the others,
however many there are.

There is one thread.  Whoever finds nothing and parks, without a checkpoint in between, cannot miss
what comes after; `wait` has no checkpoint before it parks.  A waiter that is cancelled leaves the
parking lot on its own, and the last one of a lot takes the lot away.
"""

from __future__ import annotations

import attrs
import trio

ALL = -1  # in the place of a partition: a waiter for any of them

Lots = dict[int, trio.lowlevel.ParkingLot]


@attrs.frozen
class WaitersStatistics:
    waiting: int
    topics: int  # that somebody waits for
    woken: int  # ever


class Waiters:
    """All blocked pulls of a node."""

    def __init__(self) -> None:
        self._lots: dict[str, Lots] = {}  # only lots in which somebody is parked
        self.woken = 0  # ever
        self._waiting = 0

    async def wait(self, topic: str, partition: int = ALL) -> None:
        """Until something comes in the partition; it may have been taken away again by then."""
        lots = self._lots.setdefault(topic, {})
        lot = lots.get(partition)
        if lot is None:
            lot = lots[partition] = trio.lowlevel.ParkingLot()
        self._waiting += 1
        try:
            await lot.park()
        finally:
            self._waiting -= 1
            # Those who are woken together find it gone; a new one may have taken its place.
            if not lot and lots.get(partition) is lot:
                del lots[partition]
                if not lots:
                    del self._lots[topic]

    def wake(self, topic: str, partition: int) -> None:
        """Something came in this partition."""
        lots = self._lots.get(topic)
        if lots is not None:
            self._unpark(lots.get(ALL))
            self._unpark(lots.get(partition))

    def wake_all(self, topic: str) -> None:
        """The topic itself is another one now, or gone."""
        for lot in list(self._lots.get(topic, {}).values()):
            self._unpark(lot)

    def statistics(self) -> WaitersStatistics:
        return WaitersStatistics(self._waiting, len(self._lots), self.woken)

    def _unpark(self, lot: trio.lowlevel.ParkingLot | None) -> None:
        if lot is not None:
            self.woken += len(lot.unpark_all())
