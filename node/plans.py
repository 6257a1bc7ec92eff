"""What a pull will read: rows of the index, cut to what is wanted, partitions merged in row order.

    partition 0    1-5 @ 12            6-9 @ 15
    partition 1             1-3 @ 14              4-4 @ 19
                     │         │           │         │
    plan           1-5 of 0  1-3 of 1  6-9 of 0  4-4 of 1

The order is (position of the item that numbered the batch, partition, number), the same on every
node.  Positions do not go back within a partition, so merging the next row of each gives all in
order, and a reader that stops anywhere goes on there from nothing but its last numbers.

Pure.  A plan covers some rows, not the whole pull: what a body weighs is known when it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heapreplace
from typing import Final, NamedTuple

from .cursors import Spans
from .numberfile import Row
from .numbers import Numbers

ROWS_AT_ONCE: Final = 256  # in a plan
_ROWS_AHEAD: Final = 16  # of each of several partitions, looked up together


class Want(NamedTuple):
    """Entries start <= number < stop of a batch."""

    partition: int
    row: Row
    start: int
    stop: int


class Hole(NamedTuple):
    """Numbers that should be there, of which the index knows nothing."""

    partition: int
    first: int
    last: int


class Plan(NamedTuple):
    wants: list[Want]
    hole: Hole | None = None  # what comes next; the plan ends before it


def plan(
    numbers: Numbers, topic_id: int, spans: Spans, starts: Mapping[int, int], entries: int
) -> Plan:
    """The next batches from `starts` on, until `entries` are wanted or it is enough for one plan."""
    assert entries > 0
    ahead = ROWS_AT_ONCE if len(starts) == 1 else _ROWS_AHEAD
    heads: list[tuple[int, int, _Feed]] = []
    for partition, start in starts.items():
        last = spans[partition][1]
        if start <= last:
            feed = _Feed(numbers, topic_id, partition, start, last, min(ahead, entries))
            row = feed.row()
            if row is None:
                return Plan([], feed.hole())
            heads.append((row.position, partition, feed))
    heapify(heads)
    wants: list[Want] = []
    while heads and entries > 0 and len(wants) < ROWS_AT_ONCE:
        _, partition, feed = heads[0]
        want = feed.take(entries)
        wants.append(want)
        entries -= want.stop - want.start
        if feed.start > feed.last:
            heappop(heads)
            continue
        row = feed.row()
        if row is None:
            return Plan(wants, feed.hole())
        heapreplace(heads, (row.position, partition, feed))
    return Plan(wants)


class _Feed:
    """The rows of one partition, some looked up ahead."""

    __slots__ = ("_ahead", "_at", "_numbers", "_rows", "_topic_id", "last", "partition", "start")

    def __init__(
        self, numbers: Numbers, topic_id: int, partition: int, start: int, last: int, ahead: int
    ) -> None:
        self._numbers, self._topic_id = numbers, topic_id
        self.partition, self.start, self.last = partition, start, last
        self._ahead = ahead
        self._rows: list[Row] = []
        self._at = 0

    def row(self) -> Row | None:
        """The one that holds `start`; None if the index does not know it."""
        if self._at == len(self._rows):
            self._rows = self._numbers.rows(self._topic_id, self.partition, self.start, self._ahead)
            self._at = 0
        return self._rows[self._at] if self._rows else None

    def take(self, entries: int) -> Want:
        row = self._rows[self._at]
        stop = min(row.first + row.count, self.last + 1, self.start + entries)
        want = Want(self.partition, row, self.start, stop)
        self.start = stop
        self._at += 1
        return want

    def hole(self) -> Hole:
        end = self._numbers.hole(self._topic_id, self.partition, self.start)
        return Hole(self.partition, self.start, self.last if end is None else min(end, self.last))
