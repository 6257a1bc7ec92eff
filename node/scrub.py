"""Scrub: every durable byte is read and checked, so that damage is found before it is needed.

Recovery and readers check what they need; this checks the rest too: old segments, bodies nobody
reads, padding.  Items are followed through the chain of digests from the copies at the beginning.

`Scrubbing` is pure, as recovery is; `scrub` reads for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from itertools import pairwise
from typing import Final

import attrs

from .checksum import crc32c
from .chronicle import Opening
from .commands import decode_head
from .damage import Damage
from .env import File
from .errors import Corrupt, LimitExceeded, NotFound
from .forms import BaseForm, BundleForm, GapForm, ItemForm, bodies, chain, item_crc, split_heads
from .limits import KIB
from .places import place, record_of
from .positions import LOST
from .records import PREFIX_BYTES, REACH_MAX, Record, RecordKind, decode, padded
from .search import next_record
from .segmentreads import Unread, read_or_zeros, touches
from .segments import Segment, index_file, segment_file
from .shelf import Shelf

Reads = Generator[tuple[int, int], bytes, None]
Pace = Callable[[int], Awaitable[None]]
Scrub = Callable[[Pace], Awaitable[list[Damage]]]  # reads something through
WINDOW_BYTES: Final = 64 * KIB  # checked at once: a few milliseconds, even of small entries


async def at_once(_read: int) -> None:
    pass


async def scrub(
    shelf: Shelf, durable_bytes: Callable[[Segment], int], pace: Pace = at_once
) -> list[Damage]:
    """All segments that are there now, with their index files; `pace` is told what was read."""
    damages: list[Damage] = []
    for segment in list(shelf.segments):
        if segment.number not in shelf:
            continue
        try:
            found = await _scrub_segment(shelf, segment, durable_bytes(segment), pace)
        except NotFound as error:
            file = segment_file(segment.number)
            found = [Damage(file, 0, segment.size, str(error), segment.first, segment.last)]
        if segment.number in shelf:  # else it was dropped meanwhile, and its files with it
            damages += found
    return damages


async def _scrub_segment(shelf: Shelf, segment: Segment, end: int, pace: Pace) -> list[Damage]:
    in_memory = segment.column is not None
    scrubbing = Scrubbing(segment, end, min(shelf.window_bytes, WINDOW_BYTES))
    handle = await shelf.files.acquire(segment.number)
    try:
        await _read_on(scrubbing.run(), handle.file, pace, scrubbing.unread)
    finally:
        shelf.files.release(handle)
    places = await shelf.places_again(segment)
    damages = [
        attrs.evolve(damage, first=first, last=last)
        for damage in scrubbing.damages
        for first, last in [touched(segment, places, damage)]
    ]
    if not segment.size:
        damages.append(Damage(segment_file(segment.number), 0, 0, "the whole file"))
    elif LOST in places:
        # What is there may be whole; nothing else would tell that more was.
        lost = [segment.first + index for index, where in enumerate(places) if where == LOST]
        file, what = segment_file(segment.number), "items, with their places"
        damages.append(Damage(file, 0, segment.size, what, lost[0], lost[-1]))
    if not in_memory and segment.column is not None:
        file = index_file(segment.number)
        damages.append(Damage(file, 0, 0, "the index, which is made again", mended=True))
    return damages


async def _read_on(reads: Reads, file: File, pace: Pace, unread: Unread) -> None:
    wanted = next(reads, None)
    while wanted is not None:
        found = await read_or_zeros(file, *wanted, unread)
        await pace(len(found))
        try:
            wanted = reads.send(found)
        except StopIteration:
            return


def touched(segment: Segment, places: Sequence[int], damage: Damage) -> tuple[int, int]:
    """The first and the last position, of those recorded here, whose bundle the damage touches.

    0, 0: none of them; a later segment may record one whose bundle lies here.
    """
    start = place(segment.number, damage.offset & ~7)
    end = place(segment.number, damage.offset + damage.length + 7 & ~7)
    positions = [
        segment.first + index
        for index, (where, following) in enumerate(pairwise([*map(record_of, places), end]))
        if where < end and following > start
    ]
    return (positions[0], positions[-1]) if positions else (0, 0)


@attrs.define
class Scrubbing:
    """Of one segment, from its beginning to `end`."""

    segment: Segment
    end: int
    window_bytes: int
    damages: list[Damage] = attrs.field(factory=list, init=False)
    unread: Unread = attrs.field(factory=list, init=False)  # whoever reads for it adds to this
    _digest: bytes = attrs.field(default=b"", init=False)  # empty: not known after damage
    _position: int = attrs.field(default=0, init=False)
    # Bundles of which nothing seems to be left, by place, and their topics.
    _hollow: dict[int, tuple[Record, tuple[str, ...]]] = attrs.field(factory=dict, init=False)

    def run(self) -> Reads:
        segment, offset = self.segment, 0
        window, base = b"", 0
        size = max(self.window_bytes, REACH_MAX)
        while offset < self.end:
            record = decode(window, base, offset, segment.seed)
            if record is None or _needed(record) > base + len(window):
                length = size if record is None else max(size, _needed(record) - offset)
                window = yield offset, length
                base = offset
                record = decode(window, base, offset, segment.seed)
            if record is None or _needed(record) > base + len(window):
                found, window, base = yield from next_record(
                    segment.seed, self.end, offset + 8, self.window_bytes, 0
                )
                following = self.end if found is None else min(found.offset, self.end)
                self._lost(offset, following)
                self._digest = b""
                offset = following
                continue
            self._check(record, window, base)
            offset = record.end

    def _lost(self, offset: int, end: int) -> None:
        """From one good record to the next."""
        self._tell(offset, end - offset, "records of unknown kind")

    def _check(self, record: Record, window: bytes, base: int) -> None:
        try:
            if record.kind == RecordKind.SEGMENT:
                copies = Opening.decode(record).chronicle
                self._position, self._digest = copies.position, copies.digest
            elif record.kind == RecordKind.BUNDLE:
                self._check_bundle(record, window, base)
            elif record.kind == RecordKind.ITEM:
                self._check_item(record)
            elif record.kind == RecordKind.GAP:
                self._check_gap(record)
            elif record.kind == RecordKind.BASE:
                image = BaseForm.decode(record.head)
                self._position, self._digest = image.position, image.digest
            elif record.body_length:
                self._tell(record.offset, record.end - record.offset, "a body that should not be")
        except (Corrupt, LimitExceeded) as error:
            self._tell(record.offset, record.end - record.offset, str(error))

    def _check_bundle(self, record: Record, window: bytes, base: int) -> None:
        form = BundleForm.decode(record.head)
        start = record.body_offset
        heads = window[start - base : start - base + form.heads_length]
        if item_crc(*form[:6], heads) != form.crc:
            self._tell(start, form.heads_length, f"the heads of {form.commands:,} commands")
            return
        split = split_heads(heads, form.commands)
        at = start + form.heads_length
        left_out, stays = dict[str, None](), False
        for head, (offset, length, crc) in zip(
            split, bodies(split, start + padded(form.heads_length)), strict=True
        ):
            self._check_padding(window, base, at, offset)
            at = offset + length
            body = window[offset - base : at - base]
            if crc32c(body) == crc:
                stays |= length > 0
            elif self._is_left_out(body, offset):
                left_out[decode_head(head).topic] = None
            else:
                stays = True
                self._tell(offset, length, "a body", topics=(decode_head(head).topic,))
        self._check_padding(window, base, at, record.end)
        if left_out and not stays:
            self._hollow[place(self.segment.number, record.offset)] = record, tuple(left_out)

    def _is_left_out(self, body: bytes, offset: int) -> bool:
        return (
            self.segment.rewritten and not any(body) and not touches(self.unread, offset, len(body))
        )

    def _check_padding(self, window: bytes, base: int, start: int, end: int) -> None:
        if any(window[start - base : end - base]):
            self._tell(start, end - start, "padding", mended=True)

    def _check_item(self, record: Record) -> None:
        item = ItemForm.decode(record.head)
        if self._digest and (
            item.position != self._position + 1
            or chain(self._digest, item.position, item.crc) != item.digest
        ):
            self._tell(record.offset, PREFIX_BYTES, f"what came before position {item.position}")
        self._position, self._digest = item.position, item.digest
        if (hollow := self._hollow.pop(item.place, None)) is not None:
            self._tell_hollow(*hollow)

    def _tell_hollow(self, record: Record, topics: tuple[str, ...]) -> None:
        """Its place is known here, so a rewrite would have left all of it out: zeros took what was alive."""
        length = record.end - record.body_offset
        self._tell(record.body_offset, length, "bodies that were alive", topics=topics)

    def _check_gap(self, record: Record) -> None:
        gap = GapForm.decode(record.head)
        if self._digest and (gap.first != self._position + 1 or gap.before != self._digest):
            self._tell(record.offset, PREFIX_BYTES, f"what came before position {gap.first}")
        self._position, self._digest = gap.last, gap.digest

    def _tell(
        self,
        offset: int,
        length: int,
        what: str,
        *,
        topics: tuple[str, ...] = (),
        mended: bool = False,
    ) -> None:
        file = segment_file(self.segment.number)
        self.damages.append(Damage(file, offset, length, what, topics=topics, mended=mended))


def _needed(record: Record) -> int:
    """Where what has to be read of it ends: a gap's body is a hole."""
    return record.body_offset if record.kind == RecordKind.GAP else record.end
