"""Which segments of the row store are dead, and which are mostly dead and worth rewriting.

Nobody ever looks through all rows to find out.  For each segment there are two figures:

    holders   (partition, segment) pairs of which something is alive: an entry for each partition
              that the segment numbered, and one for each stretch of strays that it holds bodies of
    live      bytes of live batches in it, about

A partition is pruned from its oldest entries on, so all that a prune has to look at is the oldest
pair of that partition: dead or not.  Each pair dies once.  So the work is a few steps a prune, and
one more for each pair, that is, for each partition of a segment, not for each batch.  The oldest
pair of a partition is partly dead most of the time; its bytes are taken to be spread evenly.

A segment with no holders is dead.  Whether it may go depends on more: on snapshots, on bodies that
wait, and on how much of the row must stay for followers (rule N6).  The store has the last word; also
on whether a rewrite is worth it: what is dead may lie in pieces too small for the file system.

`stale` says that a segment has died since the last plan, or that half of it has.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import attrs

from .limits import FOLLOWABLE_BYTES_MIN

REWRITE_BELOW = 0.5  # of its bytes alive: two such segments cost as much as one full one


class Segment(Protocol):
    """What the store tells about one of its segments."""

    @property
    def number(self) -> int: ...

    @property
    def first(self) -> int:
        """The position of its first item; of its last one: `last`.  first > last: it has none."""
        ...

    @property
    def last(self) -> int: ...

    @property
    def reach(self) -> int:
        """The highest position whose record or body lies in it."""
        ...

    @property
    def bytes(self) -> int: ...

    @property
    def sealed(self) -> bool: ...

    @property
    def rewritten(self) -> bool: ...


@attrs.frozen
class Plan:
    drop: tuple[int, ...] = ()  # segments of which nothing is alive, oldest first
    rewrite: tuple[int, ...] = ()  # segments worth rewriting, the deadest first


class Usage:
    """What is alive in each segment.  The index tells it what comes and what dies."""

    def __init__(self) -> None:
        self._holders: dict[int, int] = {}
        self._live: dict[int, int] = {}
        self._worth: dict[int, int] = {}  # live bytes when a rewrite was last thought of
        self._watched: dict[int, float] = {}  # live bytes below which a rewrite may be worth it
        self.stale = False  # another plan may find something

    def hold(self, segment: int, size: int, *, holders: int = 1) -> None:
        """Something in it is alive, of `size` bytes."""
        self._holders[segment] = self._holders.get(segment, 0) + holders
        self._live[segment] = self._live.get(segment, 0) + size

    def grow(self, segment: int, size: int) -> None:
        """A holder has become larger."""
        self._live[segment] += size

    def shrink(self, segment: int, size: int) -> None:
        """A holder has lost a part."""
        self._live[segment] -= size
        self._look(segment)

    def release(self, segment: int, size: int) -> None:
        """A holder has died, and with it the `size` bytes that it still had."""
        self._holders[segment] -= 1
        self._live[segment] -= size
        self._look(segment)
        self.stale |= not self._holders[segment]
        assert self._holders[segment] >= 0, f"segment {segment} lost a holder that it never had"

    def holders(self, segment: int) -> int:
        return self._holders.get(segment, 0)

    def held(self) -> list[int]:
        """The segments in which something is alive, but for what is in memory of the index only."""
        return sorted(segment for segment, holders in self._holders.items() if holders)

    def live(self, segment: int) -> int:
        """Bytes of live batches in it, about."""
        return self._live.get(segment, 0)

    def rewritten(self, segment: int) -> None:
        """Or not, since too little would have become free: not again before as much has died."""
        self._worth[segment] = self.live(segment)
        self._watched[segment] = REWRITE_BELOW * self.live(segment)

    def forget(self, segment: int) -> None:
        """It was dropped."""
        for table in (self._holders, self._live, self._worth, self._watched):
            table.pop(segment, None)

    def plan(
        self,
        segments: Sequence[Segment],
        *,
        snapshot: int,
        oldest_body: int | None,
        in_memory: int,
        unknown: Collection[int] = (),
        followable: int = FOLLOWABLE_BYTES_MIN,
    ) -> Plan:
        """What may be dropped and what should be rewritten now; a step for each segment.

        `snapshot` is the position of the older one; `oldest_body` that of the oldest item with a
        body that waits or is staged; `in_memory` the oldest segment that has no index file yet;
        of the `unknown` segments the index has lost something, so nothing of them is known dead.
        """
        limit = snapshot if oldest_body is None else min(snapshot, oldest_body)
        drop: list[int] = []
        rewrite: list[tuple[float, int]] = []
        newer = 0  # bytes in segments after this one: what followers could still have
        self.stale = False
        self._watched.clear()
        for segment in reversed(segments):
            number, live = segment.number, self.live(segment.number)
            if segment.rewritten:
                self._worth.setdefault(number, live)
            below = REWRITE_BELOW * self._worth.get(number, segment.bytes)
            may_go = (
                segment.sealed
                and number < in_memory
                and segment.reach < limit
                and newer >= followable
                and number not in unknown
            )
            if may_go and not self.holders(number):
                drop.append(number)
            elif may_go and live < below:
                rewrite.append((live / segment.bytes, number))
            elif live >= below and segment.sealed:
                self._watched[number] = below
            newer += segment.bytes
        return Plan(tuple(reversed(drop)), tuple(number for _, number in sorted(rewrite)))

    def _look(self, segment: int) -> None:
        """It has lost something."""
        if self._live[segment] < self._watched.get(segment, 0):
            del self._watched[segment]
            self.stale = True


def unknown_segments(
    holes: Sequence[tuple[int, int]], segments: Sequence[Segment], installed: Collection[int]
) -> frozenset[int]:
    """Segments of which nothing is known dead, since the index lost what their items numbered.

    `holes` are the stretches (after, upto) of the row that `Numbers.load` could not find.  Bodies
    may lie in older segments than the items that number them, so all older ones are unknown, too.
    Dropped segments leave holes as well, which touch no segment that is there.  Those that came with
    an image have no items, and hold bodies of any up to their reach: of these, one whose file of the
    index is `installed` has lost nothing.
    """
    has_file = frozenset(installed)

    def is_touched(segment: Segment, after: int, upto: int) -> bool:
        if segment.first <= segment.last:
            return after < segment.last and segment.first <= upto
        return segment.sealed and segment.number not in has_file and after < segment.reach

    touched = [
        segment.number
        for segment in segments
        if any(is_touched(segment, after, upto) for after, upto in holes)
    ]
    newest = max(touched, default=-1)
    return frozenset(segment.number for segment in segments if segment.number <= newest)
