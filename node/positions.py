"""Positions: where the items lie that the ITEM records of one segment number.

Positions of a segment are consecutive, so an index is a first position and a column of places, 8
bytes an item.  The open segment's is in memory.  When a segment is sealed and durable its column is
written next to it, and read when somebody asks:

    magic | crc of the head | head length | head, to 8 | places, u64 each

The head also holds the chronicle at the end of the segment.  An index file is written only after
everything it speaks of was synced, so it proves that, and recovery need not read the segment.  One
is also written for the open segment when the store is closed in order; it then covers a part of
what the segment may become.
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import Final

import attrs

from . import cbor
from .checksum import crc32c
from .chronicle import Chronicle
from .env import Buffer
from .errors import Corrupt
from .places import SEGMENT_SHIFT
from .records import padded, padding

MAGIC: Final = b"duckrow."
VERSION: Final = 1
LOST: Final = 0  # the place of an item that damage took; segments count from 1, so it is free
# Set in the place of an item that a rewrite left out; the place is then that of the GAP record.
LEFT_OUT: Final = 1
HEAD_BYTES_MAX: Final = 1 << 20
_FIELDS: Final = 11
_START: Final = struct.Struct("<8sII")

assert sys.byteorder == "little", (
    "columns are used as they lie in the file, and they are little endian"
)


@attrs.define
class Column:
    """The positions that one segment's ITEM records number, in memory."""

    first: int
    places: array[int] = attrs.field(factory=lambda: array("Q"))
    reaches: dict[int, int] = attrs.field(factory=dict)  # older segment -> see IndexHead

    @property
    def last(self) -> int:
        return self.first + len(self.places) - 1

    def add(self, place: int, segment: int) -> None:
        """The next position; `segment` is the one whose ITEM record says so."""
        self.places.append(place)
        if (holder := place >> SEGMENT_SHIFT) != segment and place != LOST:
            self.reaches[holder] = self.last


@attrs.define
class IndexHead:
    """What an index file says besides the places."""

    uuid: bytes
    segment: int
    first: int  # position of the first item
    count: int
    covered: int  # bytes of the segment that it speaks of
    rewritten: bool
    sealed: bool  # it speaks of the whole segment, which was durable, and so was the next one
    reaches: dict[int, int]  # older segment -> highest position here whose body lies there
    places_crc: int
    chronicle: Chronicle  # as it was at `covered`
    places_at: int = 0  # offset of the places in the file

    @property
    def last(self) -> int:
        """first - 1: none."""
        return self.first + self.count - 1

    @property
    def size(self) -> int:
        return self.places_at + 8 * self.count


def encode_index(
    column: Column,
    chronicle: Chronicle,
    *,
    uuid: bytes,  # of the segment; the chronicle may speak of a fresh one already
    segment: int,
    covered: int,
    sealed: bool,
    rewritten: bool,
) -> list[Buffer]:
    """The file, as buffers that follow each other."""
    places = memoryview(column.places).cast("B")
    head = cbor.dumps(
        [
            VERSION,
            uuid,
            segment,
            column.first,
            len(column.places),
            covered,
            rewritten,
            sealed,
            [[older, reach] for older, reach in column.reaches.items()],
            crc32c(places),
            chronicle.copies(),
        ]
    )
    start = _START.pack(MAGIC, crc32c(head), len(head))
    return [start + head + padding(len(head)), places]


def index_head_length(start: Buffer) -> int:
    """How many bytes from the beginning of the file hold its head; 0: it is not an index file."""
    if len(start) < _START.size:
        return 0
    magic, _, length = _START.unpack_from(start)
    if magic != MAGIC or length > HEAD_BYTES_MAX:
        return 0
    return _START.size + padded(length)


def decode_index_head(raw: bytes) -> IndexHead:
    """From at least `index_head_length` bytes.

    Raises:
        Corrupt: it is not the head of an index file.
    """
    needed = index_head_length(raw)
    if not needed or len(raw) < needed:
        raise Corrupt("this is not the beginning of an index file")
    _, crc, length = _START.unpack_from(raw)
    head = raw[_START.size : _START.size + length]
    if crc32c(head) != crc:
        raise Corrupt(f"the crc32c of an index file's head is {crc32c(head):08x}, not {crc:08x}")
    found = cbor.loads_array(head, HEAD_BYTES_MAX)
    if len(found) < _FIELDS or found[0] != VERSION:
        raise cbor.malformed(f"the head of an index file of version {VERSION}", found)
    _, uuid, segment, first, count, covered, rewritten, sealed, reaches, places_crc, copies = found[
        :_FIELDS
    ]
    try:
        by_segment = dict(reaches)
    except (TypeError, ValueError) as error:
        raise cbor.malformed("the head of an index file", found) from error
    return IndexHead(
        uuid,
        segment,
        first,
        count,
        covered,
        bool(rewritten),
        bool(sealed),
        by_segment,
        places_crc,
        Chronicle.of_copies(copies),
        needed,
    )


def check_places(head: IndexHead, column: Buffer) -> None:
    """
    Raises:
        Corrupt: these are not the places that the head was written with.
    """
    if len(column) != 8 * head.count or crc32c(column) != head.places_crc:
        raise Corrupt(f"the places in the index of segment {head.segment} are damaged")
