"""Entries as a reader sees them: columns first, objects when they are touched.

A pull brings *batches*: a body, and what the row says of all its entries alike.  `Entries` is the
sequence over them.  Whoever wants columns (Arrow, Spark, a gateway) takes `.batches` and never
makes an object; whoever iterates gets an `Entry` each, made a batch at a time in C.

    Entries   [ batch 5..9 ][ batch 10..10 ][ batch 11..40 ]      len, [i], iteration
    Batch       columns, first number, time, producer             entries lo <= i < hi of a body
    Entry       one of them
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, repeat
from typing import NamedTuple, SupportsIndex, overload

import attrs

from .codec import decode
from .columns import Columns, Headers
from .cursors import After, Cursor
from .errors import Corrupt, Damaged, LimitExceeded, Refused
from .pulled import Batch as PulledBatch
from .pulled import Pulled


class Entry(NamedTuple):
    """One entry of a topic.  A value: equal entries are equal, and nothing can be changed."""

    topic: str
    partition: int
    number: int  # 1, 2, 3 ... in its partition, the same on every node
    time: int  # microseconds since 1970, by the row
    producer: bytes  # 16 bytes; which producer, not which person
    key: bytes | None
    headers: Headers
    value: bytes

    def __repr__(self) -> str:
        return f"<Entry {self.topic}/{self.partition} {self.number}: {len(self.value):,} bytes>"


@attrs.frozen(eq=False)
class Batch:
    """Entries lo <= i < hi of a body, which were numbered one after the other."""

    topic: str
    partition: int
    first: int  # the number of entry lo
    time: int
    producer: bytes
    columns: Columns = attrs.field(repr=False)
    lo: int = 0
    hi: int = attrs.Factory(lambda self: self.columns.entries, takes_self=True)
    position: int = 0  # of the item that numbered it; 0: not known

    def __attrs_post_init__(self) -> None:
        assert 0 <= self.lo < self.hi <= self.columns.entries, f"{self.lo} to {self.hi}"

    def __len__(self) -> int:
        return self.hi - self.lo

    @property
    def last(self) -> int:
        return self.first + self.hi - self.lo - 1

    def part(self, lo: int, hi: int) -> Batch:
        """Entries lo <= i < hi of *this* batch, without copying them."""
        return attrs.evolve(self, first=self.first + lo, lo=self.lo + lo, hi=self.lo + hi)

    def entries(self) -> list[Entry]:
        """
        Raises:
            Corrupt: an entry has headers that are none.
        """
        return [*self]

    def __iter__(self) -> Iterator[Entry]:
        """Each is made when it is reached, where the one before it has just been given up.

        Raises:
            Corrupt: an entry has headers that are none.
        """
        span = self.lo, self.hi
        columns = self.columns
        fields = zip(
            repeat(self.topic),
            repeat(self.partition),
            range(self.first, self.last + 1),
            repeat(self.time),
            repeat(self.producer),
            repeat(None) if columns.keys is None else columns.key_list(*span),
            repeat(()) if columns.headers is None else columns.header_list(*span),
            columns.value_list(*span),
            strict=False,  # those that repeat never end
        )
        return map(_entry, fields)


# Straight from the fields to the object: no Python code runs for a single entry.
_entry = partial(tuple.__new__, Entry)


class Entries(Sequence[Entry]):
    """What a pull brings: a sequence of entries, perhaps empty, never to be changed.

    `first` and `last` are the numbers that the partition held when it was read, `spans` those of all
    partitions that were asked for; `missing` says how many entries after the cursor were pruned before
    they could be read, and `archive` where they are, if the node knows.  A pull goes on with `after`, at
    any node; `topic_id` says which topic of that name it was.
    """

    __slots__ = (
        "_ends",
        "after",
        "archive",
        "batches",
        "first",
        "last",
        "missing",
        "spans",
        "topic_id",
    )

    def __init__(
        self,
        batches: Sequence[Batch] = (),
        *,
        missing: int = 0,
        first: int = 1,
        last: int = 0,
        after: After = 0,
        topic_id: int = 0,
        spans: Mapping[int, tuple[int, int]] | None = None,
        archive: str = "",
    ) -> None:
        self.archive = archive
        self.after = after
        self.spans = spans or {}
        self.topic_id = topic_id
        self.batches = tuple(batches)
        self.missing = missing
        self.first = first
        self.last = last
        self._ends = [*accumulate(map(len, self.batches))]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Entry]:
        return chain.from_iterable(self.batches)

    def __reversed__(self) -> Iterator[Entry]:
        return chain.from_iterable(reversed(batch.entries()) for batch in reversed(self.batches))

    @overload
    def __getitem__(self, index: SupportsIndex) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Entry | list[Entry]:
        if isinstance(index, slice):
            wanted = range(len(self))[index]
            if not wanted:
                return []
            low, high = min(wanted[0], wanted[-1]), max(wanted[0], wanted[-1])
            return self._between(low, high + 1)[:: wanted.step]
        at = range(len(self))[index]
        return self._between(at, at + 1)[0]

    def _between(self, lo: int, hi: int) -> list[Entry]:
        """Entries lo <= i < hi; only the batches that hold some are opened."""
        found: list[Entry] = []
        number = bisect_right(self._ends, lo)
        while lo < hi:
            batch, end = self.batches[number], self._ends[number]
            start = end - len(batch)
            found += batch.part(lo - start, min(hi, end) - start).entries()
            lo, number = end, number + 1
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Entries):
            return NotImplemented
        return len(self) == len(other) and all(map(Entry.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        missing = f", {self.missing:,} missing before" if self.missing else ""
        return f"<Entries: {len(self):,}{missing}; the partition has {self.first} to {self.last}>"


def entries_of(topic: str, pulled: Pulled) -> Entries:
    """What a pull brought, opened, up to a batch that is not what its producer said.  For a pull from
    one partition `first` and `last` are its own.

    Raises:
        Damaged: there is one at once; it names the entries, so that whoever reads can pass them.
        Refused: it is of a codec that cannot be opened here.
    """
    batches: list[Batch] = []
    after = pulled.after
    for index, batch in enumerate(pulled.batches):
        try:
            columns = _opened(batch)
        except (Corrupt, Refused) as error:
            if batches:
                after = _before(pulled.batches[index:], after)
                break
            if isinstance(error, Corrupt | LimitExceeded):
                place = batch.partition, batch.start, batch.stop - 1
                raise Damaged(topic, *place, str(error)) from error
            raise
        lo, hi = batch.start - batch.first, batch.stop - batch.first
        where = batch.partition, batch.start, batch.time, batch.pid
        batches.append(Batch(topic, *where, columns, lo, hi, batch.position))
    spans = list(pulled.spans.values())
    first, last = spans[0] if len(spans) == 1 else (1, 0)
    return Entries(
        batches,
        missing=pulled.missing,
        first=first,
        last=last,
        after=after,
        topic_id=pulled.topic_id,
        spans=pulled.spans,
        archive=pulled.archive,
    )


def _opened(batch: PulledBatch) -> Columns:
    columns = decode(batch.codec, batch.body)
    if len(columns) != batch.count:  # nobody on the way opens what is packed
        text = f"a body holds {len(columns):,} entries, and its head says {batch.count:,}"
        raise Corrupt(text)
    return columns


def _before(batches: Sequence[PulledBatch], after: After) -> After:
    """Where a reader stands that has come to these batches, and not taken them."""
    assert isinstance(after, Cursor), "where there are batches, a node tells numbers"
    done = dict(after.done)
    for batch in reversed(batches):
        done[batch.partition] = batch.start - 1
    return attrs.evolve(after, done=done)
