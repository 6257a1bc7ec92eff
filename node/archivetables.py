"""Rows of the archive: batches as Arrow tables, one for each row group, and back.

    batches ──► row groups ──► tables ──► Parquet ──► tables ──► batches

Columns go over whole: ends become offsets, and no entry becomes an object, but for headers and for
batches so small that a list costs less.  docs/reference/archive.md tells what the columns are.

pyarrow is imported where an archive is touched, and nowhere else.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from .archivenames import Named
from .columns import Columns, write_headers
from .entries import Batch
from .errors import Refused
from .limits import MIB
from .strings import Strings, joined

GROUP_ROWS: Final = 65_536
GROUP_BYTES: Final = 16 * MIB  # of keys, values and headers
COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers", "producer", "position")
Listed = Callable[[Batch], Sequence[bytes | None]]
_FEW: Final = 64  # entries of a batch: a list of them costs less than columns of their own


def pyarrow() -> Any:
    """
    Raises:
        Refused: it is not installed.
    """
    try:
        import pyarrow as found
    except ImportError as error:
        raise Refused("the archive needs pyarrow: pip install 'duckrow[archive]'") from error
    return found


def schema() -> Any:
    arrow = pyarrow()
    header = arrow.struct(
        [arrow.field("key", arrow.string(), nullable=False), arrow.field("value", arrow.binary())]
    )
    return arrow.schema(
        [
            arrow.field("offset", arrow.int64(), nullable=False),
            arrow.field("timestamp", arrow.timestamp("us", "UTC"), nullable=False),
            arrow.field("key", arrow.binary()),
            arrow.field("value", arrow.binary(), nullable=False),
            arrow.field("headers", arrow.list_(header)),
            arrow.field("producer", arrow.string(), nullable=False),
            arrow.field("position", arrow.int64(), nullable=False),
        ]
    )


# -- what goes into a file ------------------------------------------------------------------------


def groups(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    """Row groups: where one ends depends on the entries alone, not on how they came."""
    group: list[Batch] = []
    rows = size = 0
    for whole in batches:
        batch = whole
        while True:
            fitting = _fitting(batch, GROUP_ROWS - rows, GROUP_BYTES - size)
            part = batch.part(0, fitting)
            group.append(part)
            rows, size = rows + fitting, size + weight(part.columns, part.lo, part.hi)
            if rows >= GROUP_ROWS or size >= GROUP_BYTES:
                yield group
                group, rows, size = [], 0, 0
            if fitting == len(batch):
                break
            batch = batch.part(fitting, len(batch))
    if group:
        yield group


def weight(columns: Columns, lo: int, hi: int) -> int:
    """Bytes of keys, values and headers of entries lo <= i < hi."""
    found = 0
    for strings in (columns.values, columns.keys, columns.headers):
        if strings is not None:
            start, stop = strings.span(lo, hi)
            found += stop - start
    return found


def _fitting(batch: Batch, rows: int, room: int) -> int:
    """How many of its entries go into the group: with the last of them it may be full."""
    most = min(rows, len(batch))
    columns, lo = batch.columns, batch.lo
    if weight(columns, lo, lo + most) < room:
        return most
    return 1 + bisect_left(range(1, most), room, key=lambda n: weight(columns, lo, lo + n))


def table(batches: Sequence[Batch]) -> Any:
    """All entries of these batches, in this order."""
    arrow = pyarrow()
    form = schema()
    counts = [len(batch) for batch in batches]
    rows = sum(counts)
    first, last = batches[0].first, batches[-1].last
    assert last - first + 1 == rows, "batches of a file follow on one another"
    offsets = array("q", range(first, last + 1))
    times = _repeated("q", [batch.time for batch in batches], counts)
    positions = _repeated("q", [batch.position for batch in batches], counts)
    names: dict[bytes, int] = {}
    which = _repeated("i", [names.setdefault(b.producer, len(names)) for b in batches], counts)
    producers = arrow.DictionaryArray.from_arrays(
        _numbers(arrow, arrow.int32(), which, rows), arrow.array([name.hex() for name in names])
    )
    return arrow.table(
        [
            _numbers(arrow, form.field("offset").type, offsets, rows),
            _numbers(arrow, form.field("timestamp").type, times, rows),
            _keys(arrow, batches),
            _values(arrow, batches),
            _headers(arrow, form.field("headers").type, batches),
            producers.dictionary_decode(),
            _numbers(arrow, form.field("position").type, positions, rows),
        ],
        schema=form,
    )


def _repeated(kind: str, numbers: Sequence[int], counts: Sequence[int]) -> array[int]:
    found: array[int] = array(kind)
    for number, count in zip(numbers, counts, strict=True):
        found += array(kind, [number]) * count
    return found


def _numbers(arrow: Any, kind: Any, found: array[int], rows: int) -> Any:
    return arrow.Array.from_buffers(kind, rows, [None, arrow.py_buffer(found)])


def _values(arrow: Any, batches: Sequence[Batch]) -> Any:
    return _pieces(
        arrow,
        batches,
        lambda batch: batch.columns.value_list(batch.lo, batch.hi),
        lambda batch: _strings(arrow, batch.columns.values, batch.lo, batch.hi),
    )


def _keys(arrow: Any, batches: Sequence[Batch]) -> Any:
    def columnar(batch: Batch) -> Any:
        columns = batch.columns
        if columns.keys is None:
            return arrow.nulls(len(batch), arrow.binary())
        if columns.null_keys is None:
            return _strings(arrow, columns.keys, batch.lo, batch.hi)
        return arrow.array(columns.key_list(batch.lo, batch.hi), arrow.binary())

    return _pieces(
        arrow, batches, lambda batch: batch.columns.key_list(batch.lo, batch.hi), columnar
    )


def _pieces(
    arrow: Any, batches: Sequence[Batch], listed: Listed, columnar: Callable[[Batch], Any]
) -> Any:
    """A chunk for each large batch, and one for each run of small ones."""
    chunks: list[Any] = []
    few: list[bytes | None] = []
    for batch in batches:
        if len(batch) < _FEW:
            few += listed(batch)
            continue
        if few:
            chunks.append(arrow.array(few, arrow.binary()))
            few = []
        chunks.append(columnar(batch))
    if few:
        chunks.append(arrow.array(few, arrow.binary()))
    return arrow.chunked_array(chunks, arrow.binary())


def _strings(arrow: Any, strings: Strings, lo: int, hi: int) -> Any:
    ends = array("I", [strings.ends[lo - 1] if lo else 0])
    ends.frombytes(strings.ends[lo:hi].cast("B"))
    buffers = [None, arrow.py_buffer(ends), arrow.py_buffer(strings.data)]
    return arrow.Array.from_buffers(arrow.binary(), hi - lo, buffers)


def _headers(arrow: Any, kind: Any, batches: Sequence[Batch]) -> Any:
    chunks: list[Any] = []  # a number: so many without headers
    for batch in batches:
        if batch.columns.headers is None:
            if chunks and isinstance(chunks[-1], int):
                chunks[-1] += len(batch)
            else:
                chunks.append(len(batch))
            continue
        rows = [
            [{"key": key, "value": value} for key, value in each] if each else None
            for each in batch.columns.header_list(batch.lo, batch.hi)
        ]
        chunks.append(arrow.array(rows, kind))
    made = [arrow.nulls(each, kind) if isinstance(each, int) else each for each in chunks]
    return arrow.chunked_array(made, kind)


# -- what comes out of a file -----------------------------------------------------------------------


def batches_of(name: Named, rows: Any) -> Iterator[Batch]:
    """The batches of a table: runs of rows that one item numbered together, without copying values.

    Raises:
        Corrupt: its columns are not those of an archive.
    """
    for chunk in rows.to_batches():
        if chunk.num_rows:
            yield from _batches(name, chunk)


def _batches(name: Named, rows: Any) -> Iterator[Batch]:
    found = {each: rows.column(each) for each in COLUMNS}
    columns = Columns(
        b"",
        rows.num_rows,
        strings_of(found["value"]),
        *_keys_of(found["key"]),
        headers=_headers_of(found["headers"]),
    )
    firsts, times, positions = (int64s(found[each]) for each in ("offset", "timestamp", "position"))
    producers = found["producer"].dictionary_encode()
    which = producers.indices.to_pylist()
    names = [bytes.fromhex(each) for each in producers.dictionary.to_pylist()]
    start = 0
    for at in range(1, rows.num_rows + 1):
        if (
            at < rows.num_rows
            and positions[at] == positions[start]
            and which[at] == which[start]
            and times[at] == times[start]
            and firsts[at] == firsts[at - 1] + 1
        ):
            continue
        yield Batch(
            name.topic,
            name.partition,
            firsts[start],
            times[start],
            names[which[start]],
            columns,
            start,
            at,
            positions[start],
        )
        start = at


def int64s(column: Any) -> memoryview:
    start = column.offset
    return memoryview(column.buffers()[1]).cast("B").cast("q")[start : start + len(column)]


def strings_of(column: Any) -> Strings:
    """Ends are counted from the beginning of the data, whatever comes before these rows."""
    buffers, count, start = column.buffers(), len(column), column.offset
    if buffers[2] is None:
        return Strings(memoryview(array("I", [0] * count)), memoryview(b""))
    offsets = memoryview(buffers[1]).cast("B").cast("I")[start : start + count + 1]
    data = memoryview(buffers[2]).cast("B")[: offsets[count]]
    return Strings(offsets[1:], data) if not offsets[0] else _moved(offsets, data)


def _moved(offsets: memoryview, data: memoryview) -> Strings:
    begin = offsets[0]
    return Strings(
        memoryview(array("I", [end - begin for end in offsets[1:]])), data[begin : offsets[-1]]
    )


def _keys_of(column: Any) -> tuple[Strings | None, memoryview | None]:
    count = len(column)
    if column.null_count == count:
        return None, None
    if not column.null_count:
        return strings_of(column), None
    bits = bytearray((count + 7) // 8)
    for at, missing in enumerate(column.is_null().to_pylist()):
        bits[at // 8] |= missing << at % 8
    return strings_of(column), memoryview(bytes(bits))


def _headers_of(column: Any) -> Strings | None:
    if column.null_count == len(column):
        return None
    return joined(
        write_headers([(each["key"], each["value"]) for each in row or ()])
        for row in column.to_pylist()
    )
