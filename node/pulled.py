"""What a pull gives: batches, whole or cut, as many as its limits allow.

A batch goes to the reader as the producer made it, whatever part of it is wanted: sending costs
less than opening it.  Two kinds of batches are opened, if they are not compressed: those of which
less than a quarter is wanted, and a first one that is larger than the whole answer may be.

    in the row     |1 ........................ 1000|
    wanted                   |400 ... 900|               more than a quarter: all, start 400, stop 901
    wanted                   |400 . 450|                 a cut: entries 400 to 450

Pure.  At least one entry is given, however large it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import attrs

from . import columns
from .columns import Columns
from .cursors import After, Cursor
from .env import Buffer
from .errors import Corrupt, LimitExceeded
from .limits import PULL_BATCHES_MAX
from .plans import Want

Opener = Callable[[int, Buffer], Columns]  # of the body at a place

CUT_BELOW: Final = 4  # one in so many of the entries
COLUMNAR: Final = 0  # the codec that can be cut


class Batch(NamedTuple):
    """A batch, or a cut of one; wanted are its entries start <= number < stop."""

    partition: int
    first: int  # number of the first entry in the body
    count: int  # type: ignore[assignment]  # entries in the body
    start: int
    stop: int
    time: int  # of all its entries, microseconds
    position: int  # of the item that numbered it
    pid: bytes  # the producer
    codec: int
    body: Buffer


@attrs.frozen
class Pulled:
    """What there was."""

    topic_id: int  # 0: there is no such topic
    batches: list[Batch]
    missing: int  # entries that were pruned between `after` and the first batch
    after: After  # to go on with, at any node
    spans: Mapping[int, tuple[int, int]]  # first and last number there are, by partition
    archive: str = ""  # where the missing ones are; empty: the node knows of no archive


class Basket:
    """Fills with batches until a limit of the pull is reached."""

    __slots__ = ("_open", "batches", "bytes_left", "done", "entries_left", "full", "since")

    def __init__(self, entries: int, size: int, cursor: Cursor, open_: Opener) -> None:
        self._open = open_
        self.batches: list[Batch] = []
        self.entries_left = entries
        self.bytes_left = size
        self.full = False
        self.done = dict(cursor.done)
        self.since = cursor.since

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.done, self.since)

    def put(self, want: Want, pid: bytes, codec: int, body: Buffer) -> None:
        """Takes the batch, unless it does not fit any more; see `full`."""
        batch = self._batch(want, pid, codec, body)
        if self.batches and len(batch.body) > self.bytes_left:
            self.full = True
            return
        self.batches.append(batch)
        self.done[batch.partition] = batch.stop - 1
        self.entries_left -= batch.stop - batch.start
        self.bytes_left -= len(batch.body)
        self.full = (
            self.entries_left <= 0
            or self.bytes_left <= 0
            or batch.stop < want.stop
            or len(self.batches) >= PULL_BATCHES_MAX
        )

    def _batch(self, want: Want, pid: bytes, codec: int, body: Buffer) -> Batch:
        partition, row, start, stop = want
        first, count, room = row.first, row.count, self.bytes_left
        few = CUT_BELOW * (stop - start) < count
        if codec == COLUMNAR and (few or (not self.batches and len(body) > room)):
            try:
                opened = self._open(row.place, body)
                if len(opened) == count:
                    fitting = _fitting(opened, start - first, stop - first, room)
                    body = columns.cut(opened, start - first, start - first + fitting)
                    first, count, stop = start, fitting, start + fitting
            except (Corrupt, LimitExceeded):
                pass  # a stranger made it so; whoever reads it is told
        return Batch(partition, first, count, start, stop, row.time, row.position, pid, codec, body)


def _fitting(opened: Columns, lo: int, hi: int, room: int) -> int:
    """How many of the entries lo <= i < hi weigh at most `room` bytes together; at least one."""
    strings = [s for s in (opened.values, opened.keys, opened.headers) if s is not None]

    def weight(entries: int) -> int:
        spans = [s.span(lo, lo + entries) for s in strings]
        fixed = 4 * len(strings) + (0 if opened.created is None else 8)
        return sum(stop - start for start, stop in spans) + fixed * entries

    return max(1, bisect_right(range(1, hi - lo + 1), room, key=weight))
