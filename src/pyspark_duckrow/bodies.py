"""Rows of Arrow as bodies of batches: the way back of arrow.py, and no row is touched either.

    record batches ──► rows of each partition, gathered ──► a piece, as soon as it is large enough

A commit names every piece, so rows of several record batches go into one.  Only what has to be looked at
is: keys, to hash them; partitions and topics, if there are several; and headers, which are written one by
one.  Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from duckrow.node import columns
from duckrow.node.checksum import crc32c
from duckrow.node.columns import Columns
from duckrow.node.errors import Refused
from duckrow.node.limits import BATCH_ENTRIES_MAX, KEYED_ENTRIES_MAX, MIB
from duckrow.node.strings import Strings, joined, shifted

GATHERED_BYTES: Final = 32 * MIB  # of all partitions; then all that is gathered goes
_ENTRY_BYTES: Final = 8  # what an entry costs besides its bytes, about
_PLAIN: Final = (pa.binary(), pa.string())


class Piece(NamedTuple):
    """What goes to a node as one batch."""

    topic: str
    partition: int
    partitions: int  # that the topic is thought to have
    body: bytes
    count: int  # type: ignore[assignment]  # nobody counts in a tuple
    key_hashes: bytes | None


@attrs.define
class _Gathered:
    """Rows of one partition that are no piece yet."""

    spans: list[columns.Span] = attrs.Factory(list)
    entries: int = 0
    size: int = 0  # in bytes, about
    is_keyed: bool = False

    def take(self, rows: Columns, lo: int, most: int) -> int:
        """Those from `lo` on that fit, at least one if there is nothing yet; where the next one is."""
        is_keyed = self.is_keyed or rows.keys is not None
        room = (KEYED_ENTRIES_MAX if is_keyed else BATCH_ENTRIES_MAX) - self.entries
        ends = range(lo + 1, min(len(rows), lo + room) + 1)
        hi = lo + bisect_right(ends, most - self.size, key=lambda end: _size(rows, lo, end))
        if hi == lo and not self.spans:
            hi += 1
        if hi > lo:
            self.spans.append((rows, lo, hi))
            self.entries, self.size = self.entries + hi - lo, self.size + _size(rows, lo, hi)
            self.is_keyed = is_keyed
        return hi

    def piece(self, topic: str, partition: int, partitions: int) -> Piece:
        keys = chain.from_iterable(rows.key_list(lo, hi) for rows, lo, hi in self.spans)
        hashes = columns.key_hashes(keys) if self.is_keyed else None
        body = columns.gather(self.spans)
        return Piece(topic, partition, partitions, body, self.entries, hashes)


def pieces(
    batches: Iterable[pa.RecordBatch],
    topic: str,
    partitions: Callable[[str], int],
    turn: int,
    most: int,
) -> Iterator[Piece]:
    """All rows, for their topics and partitions, in their order there, about `most` bytes in one.

    `turn` chooses the partition of rows that say nothing of it; with each batch it is the next one.

    Raises:
        Refused: a row without a value or a topic.
    """
    waiting: dict[tuple[str, int], _Gathered] = {}

    def taken(place: tuple[str, int]) -> Piece:
        return waiting.pop(place).piece(*place, partitions(place[0]))

    for number, rows in enumerate(batches, start=turn):
        for name in ("value", "topic"):
            if name in rows.schema.names and (name != "topic" or not topic):
                _check_no_nulls(rows, name)
        for name, of_topic in _by_topic(rows, topic):
            count = partitions(name)
            for partition, chosen in _by_partition(of_topic, count, number % count):
                together, lo, place = _columns(chosen), 0, (name, partition)
                while lo < len(chosen):
                    lo = waiting.setdefault(place, _Gathered()).take(together, lo, most)
                    if lo < len(chosen):
                        yield taken(place)
        if sum(each.size for each in waiting.values()) >= GATHERED_BYTES:
            yield from map(taken, [*waiting])
    yield from map(taken, [*waiting])


def _check_no_nulls(rows: pa.RecordBatch, name: str) -> None:
    column = rows.column(name)
    if column.null_count:
        at = pc.index(pc.is_null(column), True).as_py()
        raise Refused(
            f"{column.null_count:,} of {len(column):,} rows have no {name}, the first of them row "
            f"{at:,}: filter them, or give them one with coalesce"
        )


def _by_topic(rows: pa.RecordBatch, topic: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    if topic:
        yield topic, rows
        return
    column = rows.column("topic")
    names = pc.unique(column).to_pylist()
    for name in names:
        yield name, rows if len(names) == 1 else rows.filter(pc.equal(column, name))


def _by_partition(
    rows: pa.RecordBatch, count: int, otherwise: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """By what a row says; else by its key; else all in one."""
    told = _column(rows, "partition")
    if told is not None and told.null_count == len(told):
        told = None
    keys = _column(rows, "key") if count > 1 else None
    if told is None and (keys is None or keys.null_count == len(keys)):
        yield otherwise, rows
        return
    numbers: list[int | None] = [None] * len(rows) if told is None else told.to_pylist()
    hashed: list[Any] = [None] * len(rows) if keys is None else keys.to_pylist()
    where = [
        number if number is not None else otherwise if key is None else _of_key(key, count)
        for number, key in zip(numbers, hashed, strict=True)
    ]
    found = sorted(set(where))
    places = pa.array(where, pa.int32())
    for partition in found:
        yield partition, rows if len(found) == 1 else rows.filter(pc.equal(places, partition))


def _of_key(key: bytes | str, count: int) -> int:
    """As clients choose it: see columns.key_hashes."""
    raw = key.encode() if isinstance(key, str) else key
    return (crc32c(raw) if raw else 0) % count


def _size(rows: Columns, lo: int, hi: int) -> int:
    parts = rows.values, rows.keys, rows.headers
    spans = [each.span(lo, hi) for each in parts if each is not None]
    return sum(stop - start for start, stop in spans) + _ENTRY_BYTES * (hi - lo)


def _columns(rows: pa.RecordBatch) -> Columns:
    keys, nulls = _column(rows, "key"), None
    if keys is not None and keys.null_count == len(keys):
        keys = None
    if keys is not None and keys.null_count:
        nulls = memoryview(pc.is_null(keys).buffers()[1])[: (len(keys) + 7) // 8]
        keys = pc.fill_null(_plain(keys).cast(pa.binary()), b"")
    return Columns(
        b"",
        len(rows),
        _strings(rows.column("value")),
        None if keys is None else _strings(keys),
        nulls,
        headers=_headers(_column(rows, "headers")),
    )


def _headers(column: pa.Array | None) -> Strings | None:
    if column is None or column.null_count == len(column):
        return None
    if column.flatten().null_count:
        raise Refused("a header in the column headers is null: filter them")
    return joined(
        columns.write_headers([(each["key"], each["value"] or b"") for each in row or ()])
        for row in column.to_pylist()
    )


def _strings(column: pa.Array) -> Strings:
    plain = _plain(column)
    _, offsets, data = plain.buffers()
    places = memoryview(offsets).cast("B").cast("I")[plain.offset : plain.offset + len(plain) + 1]
    start, stop = places[0], places[-1]
    ends = memoryview(shifted(places[1:], -start)).cast("I")
    return Strings(ends, memoryview(b"" if data is None else data)[start:stop])


def _plain(column: pa.Array) -> pa.Array:
    """With ends of 32 bits."""
    return column if column.type in _PLAIN else column.cast(pa.binary())


def _column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    return rows.column(name) if name in rows.schema.names else None
