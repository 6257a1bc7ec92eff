"""Entries as Arrow has them: the columns of their bodies are used as they lie, and no entry is touched.

    a body      ends u32 [3, 7, 12]      values "abcdefghijkl"
    Arrow       offsets  [0, 3, 7, 12]   values: the same bytes

A large batch is taken by itself; small ones are joined first, which costs less than a record batch
each.  Only headers are read one by one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from duckrow.node import columns
from duckrow.node.columns import Columns
from duckrow.node.entries import Batch
from duckrow.node.limits import BATCH_ENTRIES_MAX
from duckrow.node.strings import Strings

from .ranges import Range

LARGE_ENTRIES: Final = 1_000  # a batch that is not joined with others
_INVERTED: Final = bytes(255 - byte for byte in range(256))
LOG_APPEND_TIME: Final = 1  # what Kafka calls a time that the log gave

_Make = Callable[["Rows"], pa.Array]


@attrs.frozen
class Rows:
    """Entries that go into one record batch: parts of batches, behind one another in one partition."""

    batches: Sequence[Batch]
    columns: Columns  # of all of them
    lo: int
    hi: int

    def __len__(self) -> int:
        return self.hi - self.lo


def record_batches(
    batches: Sequence[Batch], schema: pa.Schema, most: int
) -> Iterator[pa.RecordBatch]:
    """All entries, in their order, at most so many in one."""
    for rows in _grouped(batches):
        made = pa.RecordBatch.from_arrays(
            [_MADE[name](rows) for name in schema.names], schema=schema
        )
        for at in range(0, len(rows), most):
            yield made.slice(at, most)


def archived_batches(
    rows: pa.Table, range_: Range, schema: pa.Schema, most: int
) -> Iterator[pa.RecordBatch]:
    """Rows of a file of the archive, which has the same columns but for those that its path says."""
    count = rows.num_rows
    said = {
        "topic": pa.scalar(range_.topic),
        "partition": pa.scalar(range_.partition, pa.int32()),
        "timestampType": pa.scalar(LOG_APPEND_TIME, pa.int32()),
    }
    whole = pa.Table.from_arrays(
        [
            pa.repeat(said[field.name], count)
            if field.name in said
            else rows.column(field.name).cast(field.type)
            for field in schema
        ],
        schema=schema,
    )
    return iter(whole.to_batches(max_chunksize=most))


def _grouped(batches: Sequence[Batch]) -> Iterator[Rows]:
    small: list[Batch] = []
    for batch in batches:
        if len(batch) < LARGE_ENTRIES:
            if small and (small[-1].last + 1, small[-1].partition) != (
                batch.first,
                batch.partition,
            ):
                yield _joined(small)
                small = []
            small.append(batch)
            continue
        if small:
            yield _joined(small)
            small = []
        yield Rows([batch], batch.columns, batch.lo, batch.hi)
    if small:
        yield _joined(small)


def _joined(batches: Sequence[Batch]) -> Rows:
    if len(batches) == 1:
        only = batches[0]
        return Rows(batches, only.columns, only.lo, only.hi)
    # Created times are in no column, and only some batches may have them.
    spans = [(attrs.evolve(each.columns, created=None), each.lo, each.hi) for each in batches]
    body = columns.gather(spans)
    together = columns.decode(body, trusted=True)
    return Rows(batches, together, 0, len(together))


def _strings(strings: Strings, lo: int, hi: int, valid: bytes | None = None) -> pa.Array:
    """Strings lo <= i < hi, as binary; `valid` says by a bit each which are there."""
    count = len(strings.ends)
    offsets = pa.py_buffer(b"".join((bytes(4), strings.ends)))
    validity = None if valid is None else pa.py_buffer(valid)
    whole = pa.Array.from_buffers(
        pa.binary(), count, [validity, offsets, pa.py_buffer(strings.data)]
    )
    return whole.slice(lo, hi - lo)


def _key(rows: Rows) -> pa.Array:
    found = rows.columns
    if found.keys is None:
        return _repeated(None, pa.binary()).slice(0, len(rows))
    nulls = found.null_keys
    valid = None if nulls is None else bytes(nulls).translate(_INVERTED)
    return _strings(found.keys, rows.lo, rows.hi, valid)


def _value(rows: Rows) -> pa.Array:
    return _strings(rows.columns.values, rows.lo, rows.hi)


def _topic(rows: Rows) -> pa.Array:
    return _repeated(rows.batches[0].topic, pa.string()).slice(0, len(rows))


def _partition(rows: Rows) -> pa.Array:
    return _repeated(rows.batches[0].partition, pa.int32()).slice(0, len(rows))


def _offset(rows: Rows) -> pa.Array:
    return pc.add(_counted().slice(0, len(rows)), rows.batches[0].first)


def _timestamp(rows: Rows) -> pa.Array:
    kind = pa.timestamp("us", tz="UTC")
    return _each(rows, kind, [batch.time for batch in rows.batches])


def _timestamp_type(rows: Rows) -> pa.Array:
    return _repeated(LOG_APPEND_TIME, pa.int32()).slice(0, len(rows))


@functools.lru_cache(maxsize=64)
def _repeated(value: object, kind: pa.DataType) -> pa.Array:
    """As often as a batch can have entries: most batches need a part of it."""
    return pa.repeat(pa.scalar(value, kind), BATCH_ENTRIES_MAX)


@functools.lru_cache(maxsize=1)
def _counted() -> pa.Array:
    return pa.array(range(BATCH_ENTRIES_MAX), pa.int64())


def _producer(rows: Rows) -> pa.Array:
    names = pa.array([batch.producer.hex() for batch in rows.batches])
    which = _each(rows, pa.int64(), range(len(rows.batches)))
    return names.take(which)


def _position(rows: Rows) -> pa.Array:
    return _each(rows, pa.int64(), [batch.position for batch in rows.batches])


def _each(rows: Rows, kind: pa.DataType, numbers: Sequence[int]) -> pa.Array:
    """A number of 64 bits for each batch, as often as it has entries."""
    data = b"".join(
        number.to_bytes(8, "little", signed=True) * len(batch)
        for number, batch in zip(numbers, rows.batches, strict=True)
    )
    return pa.Array.from_buffers(kind, len(rows), [None, pa.py_buffer(data)])


_HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)


def _headers(rows: Rows) -> pa.Array:
    if rows.columns.headers is None:
        return pa.nulls(len(rows), _HEADERS)
    found: list[Any] = [
        [*map(dict, map(zip, repeat(("key", "value")), pairs))] if pairs else None
        for pairs in rows.columns.header_list(rows.lo, rows.hi)
    ]
    return pa.array(found, _HEADERS)


_MADE: Final[dict[str, _Make]] = {
    "key": _key,
    "value": _value,
    "topic": _topic,
    "partition": _partition,
    "offset": _offset,
    "timestamp": _timestamp,
    "timestampType": _timestamp_type,
    "headers": _headers,
    "producer": _producer,
    "position": _position,
}
