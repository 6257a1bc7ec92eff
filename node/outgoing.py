"""Outgoing: the records of a segment that an image is made of, slice by slice (N5).

Everything that is given was checked here.  What is damaged is given as if it had been left out, unless all
is wanted *whole*: whoever takes the image must not take damage for the row.
"""

from __future__ import annotations

from .checksum import crc32c
from .errors import Corrupt
from .forms import BundleForm, bodies, item_crc, split_heads
from .incoming import Piece
from .limits import KIB
from .records import REACH_MAX, Record, RecordKind, decode, padded
from .search import next_record
from .segmentreads import Unread, feed, read_or_zeros, touches
from .segments import Segment, segment_file
from .shelf import Shelf

WINDOW_BYTES = 256 * KIB


async def read_pieces(
    shelf: Shelf, number: int, offset: int, size: int, limit: int, *, whole: bool
) -> tuple[int, list[Piece]]:
    """Bundles from an offset on, up to `size`; and where to go on.  One, or more within the limit.

    Raises:
        NotFound: the segment was dropped.
        Corrupt: something of it is damaged, and was wanted whole.
    """
    segment = shelf.get(number)
    pieces: list[Piece] = []
    taken = 0
    window, base = b"", 0
    unread: Unread = []
    handle = await shelf.files.acquire(number)
    try:
        while offset < size and (taken < limit or not pieces):
            record = decode(window, base, offset, segment.seed)
            if record is None or _end_of(record) > base + len(window):
                length = max(WINDOW_BYTES, REACH_MAX, _end_of(record) - offset if record else 0)
                window, base = await read_or_zeros(handle.file, offset, length, unread), offset
                record = decode(window, base, offset, segment.seed)
            if record is None or record.end > size or _end_of(record) > base + len(window):
                if whole:
                    raise Corrupt(f"{segment_file(number)}, offset {offset:,}: no record is there")
                search = next_record(segment.seed, size, offset + 8, WINDOW_BYTES, 0)
                found = (await feed(search, handle.file))[0]
                offset = size if found is None else found.offset
                continue
            if record.kind == RecordKind.BUNDLE:
                body = window[record.body_offset - base : record.end - base]
                piece = _without_damage(segment, record, body, unread)
                if whole and (piece is None or piece.body is not body):
                    raise Corrupt(f"{segment_file(number)}: the bundle at {offset:,} is damaged")
                if piece is not None:
                    pieces.append(piece)
                    taken += len(piece.head) + len(piece.body)
            offset = record.end
    finally:
        shelf.files.release(handle)
    return offset, pieces


def _end_of(record: Record) -> int:
    """Where what has to be read of it ends: only the bodies of bundles are of use."""
    return record.end if record.kind == RecordKind.BUNDLE else record.body_offset


def _without_damage(segment: Segment, record: Record, body: bytes, unread: Unread) -> Piece | None:
    """Without those of its bodies that are damaged; None: its heads are."""

    def is_left_out(start: int, length: int) -> bool:
        return (
            segment.rewritten
            and not any(body[start : start + length])
            and not touches(unread, record.body_offset + start, length)
        )

    try:
        form = BundleForm.decode(record.head)
        heads = body[: form.heads_length]
        if item_crc(*form[:6], heads) != form.crc:
            return None
        damaged = [
            (start, length)
            for start, length, crc in bodies(
                split_heads(heads, form.commands), padded(form.heads_length)
            )
            if crc32c(body[start : start + length]) != crc and not is_left_out(start, length)
        ]
    except Corrupt:
        return None
    if damaged:
        mended = bytearray(body)
        for start, length in damaged:
            mended[start : start + length] = bytes(length)
        body = bytes(mended)
    return Piece(record.offset, record.head, body)
