"""One file of the index number -> place: the rows of one segment, sorted and checked.

A *row* speaks of one batch, whatever the number of its entries:

    first u64 | place u64 | time i64 | position << 24 | count

`position` is that of the item that numbered the batch, and a file holds the rows that the items of
one segment numbered.  The body may lie in an older segment, where the batch waited or was staged:
such rows are *strays*, listed once more, so that nobody drops their bodies.

    rows          by (topic id, partition), then number; 2,048 make a block
    directory     u64 columns: key, first, last, first row, bytes that lie in this segment
    strays        u64 columns: key, first, last, segment of the bodies, bytes
    block sums    a crc32c for each block, so that the rows need not be read to trust the file
    trailer       what this is, the counts, and a crc32c of all that is not rows

All numbers are little endian.  The same bytes, unsealed, travel in snapshots: they are the part of
the index that a restart would otherwise lose.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from .checksum import crc32c
from .env import Buffer, Held
from .errors import Corrupt
from .limits import PARTITIONS_MAX
from .places import NOWHERE, SEGMENT_SHIFT, segment_of

ROW: Final = struct.Struct("<QQqQ")
ROW_BYTES: Final = ROW.size
# Offsets of the fields that rows are found by.
FIRST: Final = 0
_PLACE: Final = 8
TIME: Final = 16
POSITION: Final = 24
COUNT_BITS: Final = 24
COUNT_MASK: Final = (1 << COUNT_BITS) - 1
BLOCK_ROWS: Final = 2_048
BLOCK_BYTES: Final = BLOCK_ROWS * ROW_BYTES
WARM_BLOCKS_MAX: Final = 512  # 32 MiB
RUNS_AT_ONCE: Final = 256  # in one piece: half a millisecond
PARTITION_BITS: Final = 10
COLUMNS: Final = 5  # of the directory, and of the strays

_MAGIC: Final = b"duckrow#"
_TRAILER: Final = struct.Struct("<8s16s6Q?7x")
_CRC: Final = struct.Struct("<Q")  # of 32 bits; eight bytes, so that files are multiples of eight
_FIELD: Final = struct.Struct("<Q")

assert PARTITIONS_MAX <= 1 << PARTITION_BITS
assert sys.byteorder == "little", (
    "columns are used as they lie in the file, and they are little endian"
)


class Row(NamedTuple):
    """One batch."""

    first: int
    place: int  # of its body
    time: int  # of its entries, microseconds
    position: int  # of the item that numbered it
    count: int  # type: ignore[assignment]  # nobody counts occurrences in a row

    @property
    def last(self) -> int:
        return self.first + self.count - 1


class Run(NamedTuple):
    """The rows of one partition that one segment numbered, while they lie in memory."""

    key: int
    rows: bytearray  # only grows
    length: int  # of it, in rows, at the moment that is to be written
    size: int  # bytes of those bodies that lie in this segment


class Stray(NamedTuple):
    """Batches numbered by a later segment than the one that holds their bodies."""

    key: int
    first: int
    last: int
    segment: int  # of the bodies
    size: int


class Cover(NamedTuple):
    """Which part of the row a file speaks of: the items after `after`, up to and with `upto`."""

    segment: int
    after: int
    upto: int
    sealed: bool  # no item of this segment follows


def key_of(topic_id: int, partition: int) -> int:
    """A partition as one number; sorts as the pair does."""
    assert 0 <= partition < PARTITIONS_MAX
    return topic_id << PARTITION_BITS | partition


def split_key(key: int) -> tuple[int, int]:
    return key >> PARTITION_BITS, key & (1 << PARTITION_BITS) - 1


def decode_row(rows: Buffer, index: int) -> Row:
    first, place, time, packed = ROW.unpack_from(rows, index * ROW_BYTES)
    return Row(first, place, time, packed >> COUNT_BITS, packed & COUNT_MASK)


def decode_rows(rows: Buffer, start: int, stop: int) -> list[Row]:
    view = memoryview(rows)[start * ROW_BYTES : stop * ROW_BYTES]
    return [
        Row(first, place, time, packed >> COUNT_BITS, packed & COUNT_MASK)
        for first, place, time, packed in ROW.iter_unpack(view)
    ]


def read_field(rows: Buffer, row: int, offset: int) -> int:
    value: int = _FIELD.unpack_from(rows, row * ROW_BYTES + offset)[0]
    return value


def column(rows: Buffer, offset: int) -> memoryview[int]:
    """One field of all rows; a look into the buffer, which cannot grow while it is held."""
    return memoryview(rows).cast("Q")[offset // 8 :: ROW_BYTES // 8]


def encode(
    cover: Cover, store: bytes, runs: Iterable[Run], strays: Sequence[Stray]
) -> Iterator[bytes]:
    """The pieces of a file, in order, none larger than a block.

    The runs come sorted by key, and each is looked at when its turn comes.  No piece is the work of
    very many partitions, and one may be empty.
    """
    sums, rows = array("I"), 0
    block, given = bytearray(), 0  # how much of it was in pieces before
    columns = keys, firsts, lasts, starts, sizes = [array("Q") for _ in range(COLUMNS)]
    for count, (key, data, length, size) in enumerate(runs, 1):
        assert length > 0, "a partition without rows has no run"
        first, _, _, packed = ROW.unpack_from(data, (length - 1) * ROW_BYTES)
        keys.append(key)
        firsts.append(read_field(data, 0, FIRST))
        lasts.append(first + (packed & COUNT_MASK) - 1)
        starts.append(rows)
        sizes.append(size)
        rows += length
        at, end = 0, length * ROW_BYTES
        while at < end:
            taken = min(end - at, BLOCK_BYTES - len(block))
            block += data[at : at + taken]
            at += taken
            if len(block) == BLOCK_BYTES:
                sums.append(crc32c(block))
                yield bytes(block[given:])
                block.clear()
                given = 0
        if not count % RUNS_AT_ONCE:
            yield bytes(block[given:])
            given = len(block)
    if block:
        sums.append(crc32c(block))
        yield bytes(block[given:])
    yield from _tail(cover, store, rows, columns, strays, sums)


def _tail(
    cover: Cover,
    store: bytes,
    rows: int,
    columns: Sequence[array[int] | memoryview[int]],
    strays: Sequence[Stray],
    sums: array[int],
) -> Iterator[bytes]:
    if len(sums) % 2:
        sums.append(0)
    stray_columns = [array("Q", column) for column in zip(*strays, strict=True)]
    tail = b"".join(column.tobytes() for column in (*columns, *stray_columns, sums))
    counts = (cover.segment, cover.after, cover.upto, rows, len(columns[0]), len(strays))
    tail += _TRAILER.pack(_MAGIC, store, *counts, cover.sealed)
    tail += _CRC.pack(crc32c(tail))
    for at in range(0, len(tail), BLOCK_BYTES):
        yield tail[at : at + BLOCK_BYTES]


def moved(file: NumberFile, shift: int, store: bytes, after: int) -> Iterator[bytes]:
    """The pieces of the file that says the same in a store where its segments have higher numbers.

    Between `after` and what it covers nothing is alive, so that it covers that, too.

    Places grow by the same sum everywhere, so the rows of a block are moved by one addition of two
    very long numbers.  Only one that is not known stays so.

    Raises:
        Corrupt: it is damaged.
    """
    summand, nothing = bytearray(ROW_BYTES), bytes(ROW_BYTES)
    _FIELD.pack_into(summand, _PLACE, shift << SEGMENT_SHIFT)
    nowhere = segment_of(NOWHERE)
    lacks = any(stray.segment == nowhere for stray in file.strays)
    sums = array("I")
    for index in range(-(-file.rows // BLOCK_ROWS)):
        block = file.block(index)
        rows = len(block) // ROW_BYTES
        added: Buffer = summand * rows
        if lacks:
            segments = [segment_of(place) for place in column(block, _PLACE)]
            added = b"".join([nothing if each == nowhere else summand for each in segments])
        number = int.from_bytes(block, "little") + int.from_bytes(added, "little")
        block = number.to_bytes(len(block), "little")
        sums.append(crc32c(block))
        yield block
    columns = (file.keys, file.firsts, file.lasts, file.starts, file.sizes)
    strays = [
        stray if stray.segment == nowhere else stray._replace(segment=stray.segment + shift)
        for stray in file.strays
    ]
    cover = file.cover._replace(segment=file.cover.segment + shift, after=after)
    yield from _tail(cover, store, file.rows, columns, strays, sums)


class Warm:
    """Checked blocks of all files in the folder: what of the index is in memory.

    When there are too many, all go, and those that are needed are read and checked again.
    """

    __slots__ = ("_blocks", "_blocks_max", "_files")

    def __init__(self, blocks_max: int = WARM_BLOCKS_MAX) -> None:
        self._blocks, self._blocks_max = 0, blocks_max
        self._files: list[NumberFile] = []

    def add(self, file: NumberFile) -> None:
        """One more block of this file."""
        if self._blocks == self._blocks_max:
            for each in self._files:
                each.cool()
            self._blocks = 0
            self._files.clear()
        self._blocks += 1
        if not self._files or self._files[-1] is not file:
            self._files.append(file)


class NumberFile:
    """A whole file, on the disk or in memory.

    Opening reads the directory alone; a block of rows is checked when it is needed.
    """

    __slots__ = (
        "_blocks",
        "_read",
        "_warm",
        "captured",
        "cover",
        "firsts",
        "keys",
        "lasts",
        "rows",
        "sizes",
        "starts",
        "store",
        "strays",
        "sums",
        "tail",
    )

    def __init__(
        self,
        data: Buffer | Held,
        *,
        captured: bool = False,
        warm: Warm | None = None,
    ) -> None:
        """`captured`: it comes from a snapshot, and no folder has it.

        One that is on the disk is told who counts what of all of them is `warm`.

        Raises:
            Corrupt: this is no such file, or its directory is not what was written.
            OSError: the disk does not give it.
        """
        size, self._read = _reader(data)
        end = size - _CRC.size - _TRAILER.size
        if end < 0:
            raise Corrupt(f"the index file ends after {size} bytes, before its trailer does")
        magic, store, *numbers, sealed = _TRAILER.unpack(self._read(end, _TRAILER.size))
        segment, after, upto, rows, partitions, strays = numbers
        if magic != _MAGIC:
            raise Corrupt(f"this is no index file: its trailer begins with {magic!r}")
        blocks = -(-rows // BLOCK_ROWS)
        widths = [8 * partitions] * COLUMNS + [8 * strays] * COLUMNS + [8 * -(-blocks // 2)]
        if rows * ROW_BYTES + sum(widths) != end:
            raise Corrupt(
                f"the index file of segment {segment} should have {rows:,} rows of {partitions:,} "
                f"partitions, and that is not what {size:,} bytes hold"
            )
        at = rows * ROW_BYTES
        self.tail = bytes(self._read(at, size - at))  # all that is not rows
        directory = memoryview(self.tail)[: -_CRC.size]
        if crc32c(directory) != _CRC.unpack_from(self.tail, len(directory))[0]:
            raise Corrupt(f"the directory of the index file of segment {segment} is damaged")
        at, columns = 0, []
        for width in widths:
            columns.append(directory[at : at + width])
            at += width
        numbered = [column.cast("Q") for column in columns[:-1]]
        self.captured = captured
        self._warm = warm
        self.sums = columns[-1].cast("I")
        self._blocks: dict[int, Buffer] = {}  # checked
        self.cover = Cover(segment, after, upto, sealed)
        self.store: bytes = store
        self.rows: int = rows
        self.keys, self.firsts, self.lasts, self.starts, self.sizes = numbered[:COLUMNS]
        strays_of = zip(*(column.tolist() for column in numbered[COLUMNS:]), strict=True)
        self.strays = [Stray(*values) for values in strays_of]

    def find(self, key: int) -> int | None:
        """The place of a partition in the directory."""
        index = bisect_left(self.keys, key)
        return index if index < len(self.keys) and self.keys[index] == key else None

    def span(self, index: int) -> tuple[int, int]:
        """The rows of the partition at `index` of the directory: start <= row < stop."""
        following = index + 1
        stop = self.starts[following] if following < len(self.starts) else self.rows
        return self.starts[index], stop

    def field(self, row: int, offset: int) -> int:
        """Eight bytes of a row.  Raises Corrupt when its block is damaged."""
        block, row = divmod(row, BLOCK_ROWS)
        return read_field(self.block(block), row, offset)

    def lower_bound(self, start: int, stop: int, offset: int, target: int) -> int:
        """The first of rows start <= row < stop whose field is at least `target`, or `stop`.

        First by blocks, so that few of them are needed.  Raises Corrupt.
        """
        blocks = range(start // BLOCK_ROWS + 1, (stop - 1) // BLOCK_ROWS + 1)
        later = bisect_left(blocks, target, key=lambda b: self.field(b * BLOCK_ROWS, offset))
        block = start // BLOCK_ROWS + later
        before = block * BLOCK_ROWS
        lo, hi = max(start - before, 0), min(stop - before, BLOCK_ROWS)
        return before + bisect_left(column(self.block(block), offset), target, lo, hi)

    def decode(self, start: int, stop: int) -> list[Row]:
        """Rows start <= row < stop.  Raises Corrupt when one of their blocks is damaged."""
        found: list[Row] = []
        while start < stop:
            block, row = divmod(start, BLOCK_ROWS)
            end = min(row + stop - start, BLOCK_ROWS)
            found += decode_rows(self.block(block), row, end)
            start += end - row
        return found

    def run(self, index: int) -> bytes:
        """The rows of the partition at `index`, as they lie in the file.  Raises Corrupt."""
        start, stop = self.span(index)
        blocks = range(start // BLOCK_ROWS, (stop - 1) // BLOCK_ROWS + 1)
        rows = b"".join(map(self.block, blocks))
        at = blocks.start * BLOCK_ROWS
        return rows[(start - at) * ROW_BYTES : (stop - at) * ROW_BYTES]

    def raw(self) -> Iterator[bytes]:
        """All of it as it was written, in pieces.

        Raises:
            Corrupt: rows are damaged, or the disk does not give them.
        """
        for index in range(-(-self.rows // BLOCK_ROWS)):
            block = self.checked_before(index)
            yield bytes(self._intact(index)) if block is None else block
        for at in range(0, len(self.tail), BLOCK_BYTES):
            yield self.tail[at : at + BLOCK_BYTES]

    def is_whole(self) -> bool:
        """Reads and checks all of it."""
        try:
            for block in range(-(-self.rows // BLOCK_ROWS)):
                self.block(block)
        except Corrupt:
            return False
        return True

    def checked_before(self, index: int) -> bytes | None:
        """A block as it was when it was needed last, if that is still known."""
        block = self._blocks.get(index)
        return None if block is None or self._warm is None else bytes(block)

    def cool(self) -> None:
        """What is needed from here on is read and checked again."""
        self._blocks.clear()

    def block(self, index: int) -> Buffer:
        """Some rows, checked.  Raises Corrupt."""
        block = self._blocks.get(index)
        return self._checked(index) if block is None else block

    def _checked(self, index: int) -> Buffer:
        block = self._intact(index)
        if self._warm is not None:
            self._warm.add(self)
        self._blocks[index] = block
        return block

    def _intact(self, index: int) -> Buffer:
        """Read and checked, and not kept."""
        start, stop = index * BLOCK_ROWS, min((index + 1) * BLOCK_ROWS, self.rows)
        what = f"rows {start:,} to {stop - 1:,} of the index file of segment {self.cover.segment}"
        try:
            block = self._read(start * ROW_BYTES, (stop - start) * ROW_BYTES)
        except OSError as error:
            raise Corrupt(f"the disk does not give {what}: {error}") from error
        if crc32c(block) != self.sums[index]:
            raise Corrupt(f"{what} are damaged")
        return block


def _reader(data: Buffer | Held) -> tuple[int, Callable[[int, int], Buffer]]:
    """The size, and how bytes from an offset on are had."""
    if not isinstance(data, bytes | bytearray | memoryview):
        return data.size, data.read
    view = memoryview(data).toreadonly()
    return len(view), lambda offset, length: view[offset : offset + length]
