"""Rewriting a mostly dead segment: a sparse file in which every record that stays keeps its offset.

    old   [SEGMENT][BUNDLE a][ITEM][BUNDLE b][ITEM][MARK][BUNDLE c][ITEM][BUNDLE d, e, f][ITEM]
    live                                                                         d,    f
    new   [SEGMENT][GAP ................................................][BUNDLE d  .  f][ITEM]
          marked        ^ a hole                                                    ^ a hole

What nobody needs any more: bodies that are not live, bundles without a live body, their ITEM
records, and MARKs.  A run of such records becomes one GAP.  It says what they meant to those who
read on behind them (forms.py), and its body, which no checksum covers, reaches to the next record,
so a scan steps over it like over any other.  An older GAP is a part of the run that it lies in.
All other kinds stay; so does a bundle whose ITEM is not in this segment.

Holes come in blocks of the file system.  A run that covers no whole block is copied as it is, and so
is a dead body.  What a rewrite would free is known before anything is written: `Rewriting` only
looks, and `copy` writes, aside; renamed over the old file: a crash leaves either.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import attrs
import trio

from .checksum import crc32c
from .chronicle import Opening
from .env import File
from .errors import Corrupt
from .forms import BaseForm, BundleForm, GapForm, ItemForm, bodies, item_crc, split_heads
from .limits import KIB, MIB
from .places import offset_of, place, segment_of
from .positions import LEFT_OUT
from .records import (
    FLAG_REWRITTEN,
    REACH_MAX,
    Record,
    RecordKind,
    decode,
    encode,
    padded,
    size_of,
)
from .segmentreads import read_or_zeros
from .segments import Segment, segment_file

BLOCK_BYTES: Final = (
    4 * KIB
)  # of most file systems; with larger ones less becomes free than is said
_COPY_BYTES: Final = 1 * MIB
_STEPS_AT_ONCE: Final = 64  # commands, and a record counts as some: then other tasks get a turn
_STEPS_OF_RECORD: Final = 4
_ORDERED_MAX: Final = 4_096  # places in the head of a GAP, which has to fit 65,535 bytes


class Gap(NamedTuple):
    offset: int
    end: int
    first: int  # positions, as in its head
    last: int
    record: bytes


@attrs.define
class _Run:
    """Records that nobody needs any more, one after the other."""

    offset: int
    first: int  # position of the next item there
    before: bytes  # digest of the row before it
    start_count: int = 0  # of the last record; `durable` too
    durable: int = 0
    heard: dict[int, int] = attrs.field(factory=dict)
    ordered: list[int] = attrs.field(factory=list)


@attrs.define
class Rewriting:
    """What of a segment stays, if of its bodies those at the places `live` do.

    `items` are the places that its ITEM records speak of.
    """

    segment: Segment
    live: Collection[int]
    items: AbstractSet[int]
    gaps: list[Gap] = attrs.field(factory=list, init=False)
    allocated: int = attrs.field(default=0, init=False)  # bytes of whole blocks that the file has
    freed: int = attrs.field(default=0, init=False)  # and of those that it would lose
    _opening: bytes = attrs.field(default=b"", init=False)  # the marked SEGMENT record
    _kept: list[list[int]] = attrs.field(factory=list, init=False)  # [start, end), after it
    _stay: dict[int, None] = attrs.field(factory=dict, init=False)  # places of what ITEMs stay for
    _run: _Run | None = attrs.field(default=None, init=False)
    _position: int = attrs.field(default=0, init=False)  # of the last item so far
    _digest: bytes = attrs.field(default=b"", init=False)
    _filled: bytearray = attrs.field(factory=bytearray, init=False)  # 1: the block holds something
    _needed: bytearray = attrs.field(factory=bytearray, init=False)  # 1: it will
    _steps: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        blocks = -(-self.segment.size // BLOCK_BYTES)
        self._needed = bytearray(blocks)
        self._filled = bytearray(blocks) if self.segment.rewritten else bytearray(b"\1" * blocks)

    async def look(self, old: File) -> None:
        """
        Raises:
            Corrupt: a record that would stay is damaged, or what lies where is not known.
        """
        segment, offset = self.segment, 0
        window, base = b"", 0
        while offset < segment.size:
            record = decode(window, base, offset, segment.seed)
            if record is None or _end_of(record) > base + len(window):
                length = max(_COPY_BYTES, REACH_MAX, _end_of(record) - offset if record else 0)
                window, base = await read_or_zeros(old, offset, length), offset
                record = decode(window, base, offset, segment.seed)
            if (
                record is None
                or _end_of(record) > base + len(window)
                or record.end > segment.size
                or (offset == 0) != (record.kind == RecordKind.SEGMENT)
            ):
                raise self._damaged(offset)
            if segment.rewritten:
                self._fill(window, base, offset, _end_of(record))
            await self._take(record, window, base)
            await self._step(_STEPS_OF_RECORD)
            offset = record.end
        self._end_run(segment.size)
        both = int.from_bytes(self._filled, "little") & ~int.from_bytes(self._needed, "little")
        self.allocated = BLOCK_BYTES * self._filled.count(1)
        self.freed = BLOCK_BYTES * both.bit_count()

    async def copy(self, old: File, new: File) -> None:
        """
        Raises:
            Corrupt: the old file cannot be read.
            OSError: of the new file.
        """
        new.write(0, [self._opening])
        for start, end in self._kept:
            for offset in range(start, end, _COPY_BYTES):
                length = min(_COPY_BYTES, end - offset)
                try:
                    data = await old.read(offset, length)
                except OSError as error:
                    raise self._damaged(offset) from error
                new.write(offset, [data])
        for gap in self.gaps:
            new.write(gap.offset, [gap.record])
            await self._step()
        # It may end with a hole, and a file of the same length is what is expected.
        new.truncate(self.segment.size)

    async def mark(self, places: array[int], first: int) -> None:
        """In the index of the segment: the items that will not be there, and whose bundles will not."""
        number = self.segment.number
        starts = [gap.offset for gap in self.gaps]
        for gap in self.gaps:
            start, end = gap.first - first, gap.last + 1 - first
            places[start:end] = array("Q", [place(number, gap.offset) | LEFT_OUT]) * (end - start)
        for index in range(len(places)):
            await self._step()
            where = places[index]
            if segment_of(where) == number:  # it may also be that of a gap which was there before
                at = bisect_right(starts, offset_of(where)) - 1
                if at >= 0 and offset_of(where) < self.gaps[at].end:
                    places[index] = place(number, starts[at]) | LEFT_OUT

    # -- one record -------------------------------------------------------------------------

    async def _take(self, record: Record, window: bytes, base: int) -> None:
        kind, head, number = record.kind, record.head, self.segment.number
        where = place(number, record.offset)
        if kind == RecordKind.MARK:
            self._run_over(record)
        elif kind == RecordKind.ITEM:
            item = ItemForm.decode(head)
            self._take_item(item, record)
            self._position, self._digest = item.position, item.digest
        elif kind == RecordKind.GAP:
            gap = GapForm.decode(head)
            if (gap.first, gap.before) != (self._position + 1, self._digest):
                raise self._damaged(record.offset)
            run = self._run_over(record)
            run.heard.update(gap.heard)
            run.ordered += [each for each in gap.ordered if offset_of(each) < run.offset]
            self._position, self._digest = gap.last, gap.digest
        elif kind == RecordKind.BUNDLE:
            form = BundleForm.decode(head)
            if where in self.items and not any(
                map(self.live.__contains__, range(where, where + form.commands))
            ):
                self._run_over(record).heard[form.origin] = form.s
            else:
                self._end_run(record.offset)
                self._stay[where] = None
                await self._keep_bundle(form, record, window, base)
        else:
            self._end_run(record.offset)
            self._stay[where] = None
            if kind == RecordKind.SEGMENT:
                copies = Opening.decode(record).chronicle
                self._position, self._digest = copies.position, copies.digest
                self._opening = self._encoded(
                    record.kind, head, record, flags=record.flags | FLAG_REWRITTEN
                )
                self._need(0, record.end)
            else:
                if kind == RecordKind.BASE:
                    image = BaseForm.decode(head)
                    self._position, self._digest = image.position, image.digest
                self._keep(record.offset, record.end)

    def _take_item(self, item: ItemForm, record: Record) -> None:
        if item.position != self._position + 1:
            raise self._damaged(record.offset)
        where = item.place
        if segment_of(where) != self.segment.number or where in self._stay:
            self._end_run(record.offset)
            self._keep(record.offset, record.end)
        else:
            run = self._run_over(record)
            if offset_of(where) < run.offset:
                run.ordered.append(where)

    async def _keep_bundle(
        self, form: BundleForm, record: Record, window: bytes, base: int
    ) -> None:
        where = place(self.segment.number, record.offset)
        at = record.body_offset - base
        heads = window[at : at + form.heads_length]
        if item_crc(*form[:6], heads) != form.crc:
            raise self._damaged(record.offset)
        start = record.offset  # of what is kept; from `end` on it is dead
        end = record.body_offset + padded(form.heads_length)
        for command, (offset, length, crc) in enumerate(
            bodies(split_heads(heads, form.commands), end)
        ):
            await self._step()
            if length and where + command in self.live:
                if crc32c(window[offset - base : offset - base + length]) != crc:
                    raise self._damaged(offset)
                if _whole_blocks(end, offset):
                    self._keep(start, end)
                    start = offset
                end = offset + padded(length)
        if not _whole_blocks(end, record.end):
            end = record.end
        self._keep(start, end)

    # -- runs -------------------------------------------------------------------------------

    def _run_over(self, record: Record) -> _Run:
        if self._run is None:
            self._run = _Run(record.offset, self._position + 1, self._digest)
        self._run.start_count, self._run.durable = record.start_count, record.durable
        return self._run

    def _end_run(self, end: int) -> None:
        run, self._run = self._run, None
        if run is None:
            return
        form = GapForm(
            run.first, self._position, run.before, self._digest, run.heard, tuple(run.ordered)
        )
        head = form.encode() if len(run.ordered) <= _ORDERED_MAX else b""
        body = run.offset + size_of(len(head), 0)
        # Behind the last record nothing of the last block is needed.
        until = -(-end // BLOCK_BYTES) * BLOCK_BYTES if end == self.segment.size else end
        if head and body <= end and _whole_blocks(body, until):
            record = self._encoded(RecordKind.GAP, head, run, body_length=end - body)
            self.gaps.append(Gap(run.offset, end, form.first, form.last, record))
            self._need(run.offset, body)
        else:
            self._keep(run.offset, end)

    def _encoded(
        self, kind: int, head: bytes, like: Record | _Run, *, body_length: int = 0, flags: int = 0
    ) -> bytes:
        return encode(
            kind,
            head,
            seed=self.segment.seed,
            offset=like.offset,
            start_count=like.start_count,
            durable=like.durable,
            body_length=body_length,
            flags=flags,
        )

    def _keep(self, start: int, end: int) -> None:
        if self._kept and self._kept[-1][1] == start:
            self._kept[-1][1] = end
        else:
            self._kept.append([start, end])
        self._need(start, end)

    def _need(self, start: int, end: int) -> None:
        first, after = start // BLOCK_BYTES, -(-end // BLOCK_BYTES)
        self._needed[first:after] = b"\1" * (after - first)

    def _fill(self, window: bytes, base: int, start: int, end: int) -> None:
        """In a file that has holes: they are read as zeros."""
        for block in range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES)):
            at, after = max(start, block * BLOCK_BYTES), min(end, (block + 1) * BLOCK_BYTES)
            if not self._filled[block] and any(window[at - base : after - base]):
                self._filled[block] = 1

    def _damaged(self, offset: int) -> Corrupt:
        file = segment_file(self.segment.number)
        return Corrupt(f"{file} is damaged at offset {offset:,}: it is not rewritten")

    async def _step(self, steps: int = 1) -> None:
        """A segment holds hundreds of thousands of commands: nobody shall wait for all of them."""
        self._steps += steps
        if self._steps >= _STEPS_AT_ONCE:
            self._steps = 0
            await trio.lowlevel.checkpoint()


def _whole_blocks(start: int, end: int) -> bool:
    return -(-start // BLOCK_BYTES) < end // BLOCK_BYTES


def _end_of(record: Record) -> int:
    """Where what there is of it ends: the body of a gap is a hole."""
    return record.body_offset if record.kind == RecordKind.GAP else record.end
