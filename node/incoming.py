"""Incoming: an image on its way in, written down as what it will be (images.py says how it becomes that).

The bodies come as the records that they lie in elsewhere, and each keeps its offset there; only the
number of its segment grows, by the same for all.  So where a body lies here follows from where it
lies there, and an index needs no more than that sum:

    there   00000003.seg   [SEGMENT ...][BUNDLE a][ITEM][BUNDLE b][ITEM][BUNDLE c]
    here    00000012.seg   [SEGMENT][GAP][BUNDLE a][MARK][BUNDLE b][MARK][BUNDLE c]

What lies between is dead: it becomes a MARK, or a GAP with a hole in it.  So these are segments like
others: read, scrubbed, rewritten, dropped, though no item is recorded in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import attrs

from .checksum import crc32c
from .chronicle import Chronicle, encode_opening
from .env import Buffer, Disk, File
from .errors import Corrupt
from .forms import BundleForm, GapForm, bodies, item_crc, split_heads
from .images import INCOMING, span, state_file
from .limits import KIB
from .places import place
from .positions import Column, encode_index
from .records import FLAG_REWRITTEN, PREFIX_BYTES, RecordKind, encode, padded, seed_of, size_of
from .segments import Segment, index_file, segment_file

HOLE_BYTES: Final = 4 * KIB  # a shorter stretch is written; a hole takes a block at least
OFFSET_MAX: Final = 1 << 27


class Piece(NamedTuple):
    """A BUNDLE record, as it lies in a segment elsewhere."""

    offset: int
    head: bytes
    body: Buffer  # the heads of its commands and their bodies; those that were left out are zeros


@attrs.define(eq=False)
class _Growing:
    number: int  # here
    seed: int
    file: File
    end: int = 0


class Incoming:
    """One image; `first` to `last` are the numbers of its segments where it comes from."""

    def __init__(
        self, disk: Disk, chronicle: Chronicle, position: int, first: int, last: int, own: int
    ) -> None:
        """`own`: the first of the numbers that the journal left out; `chronicle` as it was there."""
        self._disk, self._chronicle = disk, chronicle
        self._position, self.shift = position, own - first
        self._numbers = span(own, own + last - first)
        self._state: File | None = None
        self._growing: _Growing | None = None
        self._segments: list[Segment] = []

    async def write_state(self, offset: int, data: Buffer) -> None:
        """
        Raises:
            OSError.
        """
        if self._state is None:
            name = INCOMING + state_file(self._position, self.shift)
            self._state = await self._disk.open(name, create=True)
            self._state.truncate(0)
        self._state.write(offset, [data])

    async def write(self, segment: int, pieces: Sequence[Piece]) -> None:
        """Segments one after the other, and their records in order.

        Raises:
            Corrupt: it is not what can lie there.
            OSError.
        """
        growing = self._growing
        if growing is None or growing.number != segment + self.shift:
            await self._seal()
            growing = await self._begin(segment + self.shift)
        for piece in pieces:
            _check(piece)
            self._fill(growing, piece.offset)
            record = self._record(
                growing, RecordKind.BUNDLE, piece.head, piece.offset, len(piece.body)
            )
            growing.file.write(piece.offset, [record, piece.body])
            growing.end = piece.offset + size_of(len(piece.head), len(piece.body))

    async def finish(self) -> tuple[tuple[str, str], list[Segment]]:
        """All of it is there and durable: what a BASE says of the files, and the segments.

        Raises:
            OSError.
        """
        await self._seal()
        assert self._state is not None
        await self._state.sync()
        self.close()
        await self._disk.sync_names()
        return (state_file(self._position, self.shift), self._numbers), self._segments

    def close(self) -> None:
        if self._state is not None:
            self._state.close()
            self._state = None
        if self._growing is not None:
            self._growing.file.close()
            self._growing = None

    async def _begin(self, number: int) -> _Growing:
        known = self._chronicle
        file = await self._disk.open(INCOMING + segment_file(number), create=True)
        self._growing = growing = _Growing(number, seed_of(known.uuid, number), file)
        file.truncate(0)
        copies = Chronicle(
            known.uuid, position=known.position, digest=known.digest, floor=known.floor
        )
        opening = self._record(
            growing, RecordKind.SEGMENT, encode_opening(copies, number, 0), 0, 0, FLAG_REWRITTEN
        )
        file.write(0, [opening])
        growing.end = len(opening)
        return growing

    async def _seal(self) -> None:
        growing = self._growing
        if growing is None:
            return
        await growing.file.sync()
        growing.file.close()
        self._growing = None
        known, number = self._chronicle, growing.number
        column = Column(known.position + 1)
        index = encode_index(
            column,
            known,
            uuid=known.uuid,
            segment=number,
            covered=growing.end,
            sealed=True,
            rewritten=True,
        )
        file = await self._disk.open(INCOMING + index_file(number), create=True)
        try:
            file.truncate(0)
            file.write(0, index)
            await file.sync()
        finally:
            file.close()
        self._segments.append(
            Segment(
                number,
                known.uuid,
                column.first,
                column.last,
                growing.end,
                reach=self._position,
                rewritten=True,
            )
        )

    def _fill(self, growing: _Growing, until: int) -> None:
        """What nobody needs, up to the next record."""
        start, size = growing.end, until - growing.end
        if size == 0:
            return
        if size < PREFIX_BYTES or until % 8 or until > OFFSET_MAX:
            raise Corrupt(f"a record at {until:,} of a segment cannot follow one up to {start:,}")
        if size < HOLE_BYTES:
            record = self._record(growing, RecordKind.MARK, bytes(size - PREFIX_BYTES), start, 0)
        else:
            known = self._chronicle
            first, digest = known.position + 1, known.digest
            head = GapForm(first, first - 1, digest, digest, {}, ()).encode()
            length = size - size_of(len(head), 0)
            record = self._record(growing, RecordKind.GAP, head, start, length)
        growing.file.write(start, [record])

    def _record(
        self, growing: _Growing, kind: int, head: bytes, offset: int, length: int, flags: int = 0
    ) -> bytes:
        return encode(
            kind,
            head,
            seed=growing.seed,
            offset=offset,
            start_count=self._chronicle.start_count,
            durable=place(growing.number, 0),
            body_length=length,
            flags=flags,
        )


def _check(piece: Piece) -> None:
    """Every byte of it.

    Raises:
        Corrupt: it is not what it was.
    """
    form, body = BundleForm.decode(piece.head), memoryview(piece.body)
    heads = bytes(body[: form.heads_length])
    if item_crc(*form[:6], heads) != form.crc:
        raise Corrupt(f"the heads of bundle {form[:3]} are not what they were")
    end = padded(form.heads_length)
    for start, length, crc in bodies(split_heads(heads, form.commands), end):
        content = body[start : start + length]
        if crc32c(content) != crc and any(content):
            raise Corrupt(f"a body of bundle {form[:3]} is not what it was")
        end = start + padded(length)
    if end != len(body):
        raise Corrupt(f"bundle {form[:3]} has {len(body):,} bytes, and should have {end:,}")
