"""All rows of one partition, in order, wherever they lie; and how one of them is found.

    leads     (1, segment 3)  (4001, segment 4)  (9001, segment 9)    in files
    tails                                          9501 …  12000 …    in memory

Numbers are contiguous from row to row, unless a file was lost or is damaged: a *hole*.  Times and
positions never go back.  So whatever is looked for is found by one bisection over the first rows of
the pieces and another one inside a piece.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from .errors import Corrupt
from .numberfile import (
    BLOCK_ROWS,
    COUNT_BITS,
    FIRST,
    POSITION,
    ROW_BYTES,
    NumberFile,
    Row,
    column,
    decode_rows,
    read_field,
)

LEAD_BITS: Final = 32
LEAD_MASK: Final = (1 << LEAD_BITS) - 1


class Tail:
    """The rows of one partition that one segment numbered, while they are in memory."""

    __slots__ = ("next", "rows", "size")

    def __init__(self, first: int) -> None:
        self.rows = bytearray()
        self.next = first  # the number that the next batch must begin with
        self.size = 0  # bytes of those bodies that lie in this segment

    @property
    def start(self) -> int:
        return 0

    @property
    def stop(self) -> int:
        return len(self.rows) // ROW_BYTES

    def field(self, row: int, offset: int) -> int:
        return read_field(self.rows, row, offset)

    def lower_bound(self, offset: int, target: int) -> int:
        return bisect_left(column(self.rows, offset), target)

    def decode(self, start: int, stop: int) -> list[Row]:
        return decode_rows(self.rows, start, stop)


class FileRows(NamedTuple):
    """The rows of one partition in a file.  Whatever touches a damaged block raises Corrupt."""

    file: NumberFile
    start: int
    stop: int

    def field(self, row: int, offset: int) -> int:
        return self.file.field(row, offset)

    def lower_bound(self, offset: int, target: int) -> int:
        """The first row whose field is at least `target`, or `stop`."""
        return self.file.lower_bound(self.start, self.stop, offset, target)

    def decode(self, start: int, stop: int) -> list[Row]:
        return self.file.decode(start, stop)


Piece = Tail | FileRows


class Chain:
    """The pieces of one partition, as they are now: made for one lookup, not to be kept."""

    __slots__ = ("_files", "_in_files", "_leads", "_tails")

    def __init__(
        self,
        leads: array[int] | None,
        files: Mapping[int, NumberFile],
        tails: Sequence[Tail],
    ) -> None:
        self._leads: Sequence[int] = () if leads is None else leads
        self._files, self._tails = files, tails
        self._in_files = len(self._leads) // 2

    def rows(self, number: int, limit: int) -> list[Row]:
        """The row that holds `number` and those after it, contiguous, at most `limit`.

        None when `number` is in a hole or past the end; the rows end before the next hole.
        """
        try:
            return self._rows(number, limit)
        except Corrupt:
            return self._rows_around_damage(number, limit)

    def hole(self, number: int) -> int | None:
        """The last number of the hole that `number` is in; None if nothing follows it."""
        return next((row.first - 1 for row in self.readable(number)), None)

    def is_whole(self, first: int, last: int) -> bool:
        """Whether pieces follow each other over all of these numbers; no file is touched."""
        number = first
        for index in range(max(0, self._holding(first)), len(self)):
            if number > last or self._begin(index, FIRST) > number:
                break
            number = max(number, self._end(index) + 1)
        return number > last

    def lower_bound(self, field: int, value: int) -> Row | None:
        """The first row whose time or position is at least `value`."""
        target = value << COUNT_BITS if field == POSITION else value
        try:
            return self._lower_bound(field, target)
        except Corrupt:
            # Times and positions still rise: the first one that can be read is the best answer.
            for row in self.readable(0):
                if (row.position if field == POSITION else row.time) >= value:
                    return row
            return None

    def readable(self, number: int) -> Iterator[Row]:
        """Every row that ends at or after `number`, passing over what is damaged or missing.

        Goes over a whole file block by block: for the rare case.
        """
        for index in range(max(0, self._holding(number)), len(self)):
            piece = self[index]
            start = piece.start
            while start < piece.stop:
                stop = min(piece.stop, (start // BLOCK_ROWS + 1) * BLOCK_ROWS)
                try:
                    passed = stop < piece.stop and piece.field(stop, FIRST) <= number
                    rows = [] if passed else piece.decode(start, stop)
                except Corrupt:
                    rows = _decode_alone(piece, start, stop)
                yield from (row for row in rows if row.last >= number)
                start = stop

    def __len__(self) -> int:
        return self._in_files + len(self._tails)

    def __getitem__(self, index: int) -> Piece:
        if index >= self._in_files:
            return self._tails[index - self._in_files]
        lead = self._leads[2 * index + 1]
        file = self._files[lead >> LEAD_BITS]
        return FileRows(file, *file.span(lead & LEAD_MASK))

    def _begin(self, index: int, offset: int) -> int:
        """A field of a piece's first row; its number without touching the file."""
        if offset == FIRST and index < self._in_files:
            return self._leads[2 * index]
        piece = self[index]
        return piece.field(piece.start, offset)

    def _end(self, index: int) -> int:
        """The last number of a piece."""
        if index >= self._in_files:
            return self._tails[index - self._in_files].next - 1
        lead = self._leads[2 * index + 1]
        return self._files[lead >> LEAD_BITS].lasts[lead & LEAD_MASK]

    def _holding(self, number: int) -> int:
        """The last piece that begins at or before `number`; -1 if none does."""
        last = len(self) - 1
        # Most readers are at the end.
        if last >= 0 and self._begin(last, FIRST) <= number:
            return last
        return bisect_left(range(len(self)), number + 1, key=lambda i: self._begin(i, FIRST)) - 1

    def _rows(self, number: int, limit: int) -> list[Row]:
        index = self._holding(number)
        if index < 0:
            return []
        piece = self[index]
        row = piece.lower_bound(FIRST, number + 1) - 1
        found = piece.decode(row, min(piece.stop, row + limit))
        if found[0].last < number:
            return []
        while len(found) < limit and index + 1 < len(self):
            index += 1
            if self._begin(index, FIRST) != found[-1].last + 1:
                break
            piece = self[index]
            found += piece.decode(piece.start, min(piece.stop, piece.start + limit - len(found)))
        return found

    def _rows_around_damage(self, number: int, limit: int) -> list[Row]:
        found: list[Row] = []
        for row in self.readable(number):
            if row.first > number or len(found) == limit:
                break
            found.append(row)
            number = row.last + 1
        return found

    def _lower_bound(self, field: int, target: int) -> Row | None:
        index = bisect_left(range(len(self)), target, key=lambda i: self._begin(i, field))
        # The last piece that begins below the target may hold it; else the next begins with it.
        if index:
            piece = self[index - 1]
            row = piece.lower_bound(field, target)
            if row < piece.stop:
                return piece.decode(row, row + 1)[0]
        if index < len(self):
            piece = self[index]
            return piece.decode(piece.start, piece.start + 1)[0]
        return None


def _decode_alone(piece: Piece, start: int, stop: int) -> list[Row]:
    """The block, if it is not the one that is damaged."""
    try:
        return piece.decode(start, stop)
    except Corrupt:
        return []
