"""Rewriting a mostly dead segment: a sparse file in which every record keeps its offset.

    old   [SEGMENT][BUNDLE heads body body][ITEM][BUNDLE heads body][ITEM]
    new   [SEGMENT][BUNDLE heads      body][ITEM][BUNDLE heads ....][ITEM]
          marked                 ^^^^ hole                     ^^^^

No index changes, and the row can still be followed through it, without its dead bodies.  Written
aside, synced, and renamed over the old file: a crash leaves either.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import trio

from .checksum import crc32c
from .env import File
from .errors import Corrupt
from .forms import BundleForm, bodies, item_crc, split_heads
from .limits import MIB
from .places import place
from .records import (
    FLAG_REWRITTEN,
    REACH_MAX,
    Record,
    RecordKind,
    decode,
    encode,
    padded,
)
from .segments import Segment, segment_file

_COPY_BYTES: Final = 1 * MIB
_STEPS_AT_ONCE: Final = 256  # records and commands: then other tasks get a turn


async def copy_live(old: File, new: File, segment: Segment, live: Collection[int]) -> int:
    """Copies everything but the bodies whose places are not in `live`; returns their bytes.

    Raises:
        Corrupt: a record of the old file is damaged; it is left as it is.
        OSError: of the new file.
    """
    offset = 0
    window, base = b"", 0
    copy = _Copy(new, segment, live)
    while offset < segment.size:
        record = decode(window, base, offset, segment.seed)
        if record is None or record.end > base + len(window):
            length = max(_COPY_BYTES, REACH_MAX, 0 if record is None else record.end - offset)
            window, base = await old.read(offset, length), offset
            record = decode(window, base, offset, segment.seed)
        if record is None or record.end > base + len(window):
            raise Corrupt(
                f"{segment_file(segment.number)} is damaged at offset {offset:,}: it is not rewritten"
            )
        at = offset - base
        if record.kind == RecordKind.SEGMENT:
            new.write(offset, [_marked(record, segment.seed)])
        elif record.kind == RecordKind.BUNDLE:
            await copy.bundle(record, window, base)
        else:
            new.write(offset, [window[at : at + record.end - offset]])
        await copy.step()
        offset = record.end
    # The last body may have been left out, and a file of the same length is what is expected.
    new.truncate(segment.size)
    return copy.left_out


class _Copy:
    def __init__(self, new: File, segment: Segment, live: Collection[int]) -> None:
        self.left_out = 0  # bytes of bodies
        self._new, self._segment, self._live = new, segment, live
        self._steps = 0

    async def step(self) -> None:
        """A segment holds hundreds of thousands of commands: nobody shall wait for all of them."""
        self._steps += 1
        if not self._steps % _STEPS_AT_ONCE:
            await trio.lowlevel.checkpoint()

    async def bundle(self, record: Record, window: bytes, base: int) -> None:
        new, number, file = self._new, self._segment.number, segment_file(self._segment.number)
        form = BundleForm.decode(record.head)
        first = record.body_offset + padded(form.heads_length)
        heads = window[record.body_offset - base : record.body_offset - base + form.heads_length]
        if item_crc(*form[:6], heads) != form.crc:
            raise Corrupt(f"{file} is damaged at offset {record.offset:,}: it is not rewritten")
        start, end = record.offset, first  # what is copied in one write
        for command, (offset, length, crc) in enumerate(
            bodies(split_heads(heads, form.commands), first)
        ):
            await self.step()
            if not length:
                continue
            if place(number, record.offset, command) in self._live:
                if crc32c(window[offset - base : offset - base + length]) != crc:
                    raise Corrupt(f"{file} is damaged at offset {offset:,}: it is not rewritten")
                if end != offset:
                    new.write(start, [window[start - base : end - base]])
                    start = offset
                end = offset + padded(length)
            else:
                self.left_out += padded(length)
        new.write(start, [window[start - base : end - base]])


def _marked(record: Record, seed: int) -> bytes:
    return encode(
        record.kind,
        record.head,
        seed=seed,
        offset=record.offset,
        start_count=record.start_count,
        durable=record.durable,
        flags=record.flags | FLAG_REWRITTEN,
    )
