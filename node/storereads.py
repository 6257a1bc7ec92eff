"""Reading from the row store: bundles, bodies and items, checked on their way out.

A place says where a record begins and which command of it is meant.  Where the body lies follows
from the lengths in the heads before it, so the heads are read first; one read of a page brings both
for small bundles.  Heads that were read are remembered for a while: who pulls reads on.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, NamedTuple

from .checksum import crc32c
from .chronicle import Chronicle
from .commands import Command
from .env import File
from .errors import Corrupt, NotFound
from .forms import (
    DIGEST_ZERO,
    BundleForm,
    GapForm,
    ItemForm,
    bodies,
    chain,
    decode_view,
    item_crc,
    split_heads,
)
from .limits import KIB, MIB
from .places import SEGMENT_SHIFT, command_of, offset_of, place, record_of, segment_of
from .positions import LEFT_OUT
from .records import PREFIX_BYTES, REACH_MAX, Record, RecordKind, decode, padded
from .row import Bundle, Item, View
from .segmentreads import Unread, opening_in, read_or_zeros
from .segments import Segment, segment_file
from .shelf import Shelf

PAGE_BYTES: Final = 4 * KIB  # the first read of a record: enough for the heads of most
RUN_BYTES: Final = 256 * KIB  # read at once of small items that lie together
HEADS_REMEMBERED: Final = 32
HEADS_REMEMBERED_BYTES_MAX: Final = 1 * MIB  # of one bundle; larger ones are not worth it


class Body(NamedTuple):
    offset: int  # in the segment's file
    length: int
    crc: int


class StoredHeads(NamedTuple):
    """A bundle without its bodies, as it lies in the store."""

    bundle: Bundle  # its commands have empty bodies
    crc: int  # of the item
    bodies: tuple[Body, ...]  # of each command


class _Found(NamedTuple):
    """A BUNDLE or VIEW record whose heads are whole, and the bytes around it that were read."""

    record: Record
    form: BundleForm | None  # None: it is a view
    heads: bytes
    window: bytes
    base: int


class StoreReads:
    """All that is read of a store; needs nothing of it but its segments."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._remembered: dict[int, StoredHeads] = {}  # by place; the oldest first

    async def read_heads(self, place_: int) -> StoredHeads:
        stored = self._remembered.get(record_of(place_))
        if stored is None:
            stored = await self._stored(place_, await self._find(place_, b"", 0, PAGE_BYTES))
        return stored

    async def read_body(self, place_: int) -> bytes:
        window, base = b"", 0
        stored = self._remembered.get(record_of(place_))
        if stored is None:
            found = await self._find(place_, b"", 0, PAGE_BYTES)
            stored, window, base = await self._stored(place_, found), found.window, found.base
        command = command_of(place_)
        if command >= len(stored.bodies):
            text = f"a bundle of {len(stored.bodies):,} commands has no command {command}"
            raise await self._corrupt(place_, text)
        return await self._body(place_, stored.bodies[command], window, base)

    async def read_items(
        self, position: int, end: int, limit_bytes: int, *, with_bodies: bool
    ) -> list[Item]:
        """Items from `position` to `end`; what is damaged ends it, or is raised if it comes first."""
        items: list[Item] = []
        size = 0
        window, base, segment = b"", 0, 0
        while position <= end and (size < limit_bytes or not items):
            try:
                where = await self._shelf.place_of(position)
                if where >> SEGMENT_SHIFT != segment:
                    window, segment = b"", segment_of(where)
                found = await self._find(where, window, base, RUN_BYTES)
                window, base = found.window, found.base
                if with_bodies:
                    size += found.record.end - found.record.offset
                    items.append(await self._whole_item(position, where, found))
                else:
                    size += PREFIX_BYTES + len(found.heads)
                    items.append(_item(position, where, found))
            except (Corrupt, NotFound):
                if items:
                    break
                raise
            position += 1
        return items

    async def digest_of(self, position: int) -> bytes:
        digest = await self._digest_at(position)
        if digest is None:
            # Its ITEM record is damaged; the one before and the item itself say the same.
            before = await self._digest_at(position - 1)
            where = await self._shelf.place_of(position)
            if before is None:
                raise await self._corrupt(where, "no record says the digest of the row there")
            item = _item(position, where, await self._find(where, b"", 0, PAGE_BYTES))
            digest = chain(before, position, item.crc)
        return digest

    async def recorded_digest(self, position: int) -> bytes:
        """As a record says it; empty: damage took what said so, or it was never here."""
        digest = None
        with suppress(Corrupt, NotFound):
            digest = await self._digest_at(position)
        digest = digest or await self._digest_copied(position)
        for segment in self._shelf.segments:
            if not digest and segment.first <= position <= segment.last:
                # The way there from where its bundle lies may be damaged.
                digest = await self._find_digest_in(segment, 0, position)
        return digest or b""

    async def _digest_at(self, position: int) -> bytes | None:
        """From the ITEM record; it comes after the record that it places, alone right after it."""
        if not position:
            return DIGEST_ZERO
        try:
            where = await self._shelf.entry_of(position)
        except NotFound:
            if (digest := await self._digest_copied(position)) is None:
                raise
            return digest
        for segment in self._shelf.segments:
            if segment.first <= position <= segment.last:
                # What lies in between, where it waited for its place, is of no concern.
                offset = offset_of(where) if segment_of(where) == segment.number else 0
                return await self._find_digest_in(segment, offset, position)
        return None

    async def _find_digest_in(self, segment: Segment, offset: int, position: int) -> bytes | None:
        handle = await self._shelf.files.acquire(segment.number)
        try:
            return await _find_digest(handle.file, segment, offset, position)
        finally:
            self._shelf.files.release(handle)

    async def _digest_copied(self, position: int) -> bytes | None:
        """From the copies at the beginning of the segment behind a position whose own was dropped."""
        for segment in self._shelf.segments:
            if segment.first == position + 1:
                copies = await self._copies(segment)
                if copies is not None and copies.position == position:
                    return copies.digest
        return None

    async def copies_before(self, position: int) -> Chronicle:
        """See `RowStore.copies_before`."""
        begun = [each for each in self._shelf.segments if each.first <= position + 1]
        copies = await self._copies(begun[-1]) if begun else None
        if copies is None or copies.position != begun[-1].first - 1:
            raise Corrupt(f"nothing tells how things stood before position {position + 1}")
        return copies

    async def _copies(self, segment: Segment) -> Chronicle | None:
        """Those at its beginning; None: they are damaged."""
        window = await self._read(place(segment.number, 0), 0, REACH_MAX)
        opening = opening_in(window, segment.number)
        return None if opening is None else opening.chronicle

    async def _whole_item(self, position: int, where: int, found: _Found) -> Item:
        item = _item(position, where, found)
        content = item.content
        if isinstance(content, View):
            return item
        stored = await self._stored(where, found)
        commands = [
            Command(head, await self._body(where, body, found.window, found.base))
            for (head, _), body in zip(content.commands, stored.bodies, strict=True)
        ]
        return item._replace(content=content._replace(commands=tuple(commands)))

    async def _find(self, place_: int, window: bytes, base: int, ahead: int) -> _Found:
        """The record at a place, with its heads.

        `window` may already hold it; else a new one of `ahead` bytes is read.
        """
        segment = self._shelf.get(place_ >> SEGMENT_SHIFT)
        offset = offset_of(place_)
        record = None
        if base <= offset < base + len(window):
            record = decode(window, base, offset, segment.seed)
        if record is None:
            window, base = await self._read(place_, offset, ahead), offset
            record = decode(window, base, offset, segment.seed)
            if record is None and len(window) == ahead < REACH_MAX:
                window = await self._read(place_, offset, REACH_MAX)
                record = decode(window, base, offset, segment.seed)
        if record is not None and record.kind == RecordKind.VIEW:
            return _Found(record, None, record.head, window, base)
        if record is None or record.kind != RecordKind.BUNDLE:
            await self._check_left_out(place_)
        if record is None:
            raise await self._corrupt(place_, "its record is damaged")
        if record.kind != RecordKind.BUNDLE:
            raise await self._corrupt(place_, f"a record of kind {record.kind} lies there")
        form = BundleForm.decode(record.head)
        at = record.body_offset - base
        heads = window[at : at + form.heads_length]
        if len(heads) < form.heads_length:
            missing = max(ahead, record.body_offset + form.heads_length - offset)
            window, base = await self._read(place_, offset, missing), offset
            at = record.body_offset - base
            heads = window[at : at + form.heads_length]
        if item_crc(*form[:6], heads) != form.crc:
            raise await self._corrupt(place_, "the heads of its commands are damaged")
        return _Found(record, form, heads, window, base)

    async def _stored(self, place_: int, found: _Found) -> StoredHeads:
        """Where the bodies lie, too."""
        form = found.form
        if form is None:
            raise await self._corrupt(place_, "a view mark has no commands")
        bundle = _bundle(form, found.heads)
        heads = [head for head, _ in bundle.commands]
        first = found.record.body_offset + padded(form.heads_length)
        stored = StoredHeads(bundle, form.crc, tuple([Body(*b) for b in bodies(heads, first)]))
        if form.heads_length <= HEADS_REMEMBERED_BYTES_MAX:
            self._remember(record_of(place_), stored)
        return stored

    async def _body(self, place_: int, wanted: Body, window: bytes, base: int) -> bytes:
        """Checked; out of the window if it holds it."""
        at = wanted.offset - base
        body = window[at : at + wanted.length] if at >= 0 else b""
        if len(body) < wanted.length:
            body = await self._read(place_, wanted.offset, wanted.length)
        if len(body) == wanted.length and crc32c(body) == wanted.crc:
            return body
        segment = self._shelf.get(segment_of(place_))
        zeros = len(body) == wanted.length and not any(body)  # else the file was cut
        if segment.rewritten and zeros and await self._is_given(place_, wanted):
            raise _left_out(place_, f"the body at {wanted.offset:,}")
        await self._check_left_out(place_)
        what = f"the {wanted.length:,} bytes of a body at {wanted.offset:,} are damaged"
        raise await self._corrupt(place_, what)

    async def _is_given(self, place_: int, wanted: Body) -> bool:
        """Its zeros are on the disk, and do not stand for what cannot be read."""
        unread: Unread = []
        await self._read(place_, wanted.offset, wanted.length, unread)
        return not unread

    async def _check_left_out(self, place_: int) -> None:
        """For what cannot be read: looks for a GAP over it, beginning with the last one before it.

        Raises:
            NotFound: there is one.
        """
        segment = self._shelf.get(segment_of(place_))
        if not segment.rewritten:
            return
        wanted, offset = record_of(place_), offset_of(place_)
        places = await self._shelf.places(segment)
        gap = max((p for p in places if p & LEFT_OUT and p <= wanted | LEFT_OUT), default=0)
        if gap:
            window = await self._read(gap, offset_of(gap), REACH_MAX)
            record = decode(window, offset_of(gap), offset_of(gap), segment.seed)
            if record is not None and record.kind == RecordKind.GAP and offset < record.end:
                raise _left_out(place_, f"what lay at {offset:,}")

    def _remember(self, place_: int, stored: StoredHeads) -> None:
        if len(self._remembered) >= HEADS_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[place_] = stored

    async def _read(
        self, place_: int, offset: int, length: int, unread: Unread | None = None
    ) -> bytes:
        handle = await self._shelf.files.acquire(segment_of(place_))
        try:
            return await read_or_zeros(handle.file, offset, length, unread)
        finally:
            self._shelf.files.release(handle)

    async def _corrupt(self, place_: int, what: str) -> Corrupt:
        number, offset = segment_of(place_), offset_of(place_)
        position = await self.position_of(place_)
        where = f"{segment_file(number)}, offset {offset:,}"
        return Corrupt(f"{where}, position {position or 'unknown'}: {what}")

    async def position_of(self, place_: int) -> int:
        """Of the item whose record is there; 0: not known.  Slow: only for those who look for damage."""
        wanted = record_of(place_)
        for segment in self._shelf.segments:
            if segment.number >= segment_of(wanted):
                places = await self._shelf.places(segment)
                try:
                    return segment.first + list(places).index(wanted)
                except ValueError:
                    continue
        return 0


def _left_out(place_: int, what: str) -> NotFound:
    file = segment_file(segment_of(place_))
    return NotFound(f"{what} of {file} was pruned, and left out when the segment was rewritten")


def _item(position: int, where: int, found: _Found) -> Item:
    """Without bodies."""
    form, heads = found.form, found.heads
    if form is None:
        return Item(position, where, crc32c(heads), decode_view(heads))
    return Item(position, where, form.crc, _bundle(form, heads))


def _bundle(form: BundleForm, heads: bytes) -> Bundle:
    view, origin, s, lamport, stamp, count, _, _ = form
    commands = tuple([Command(head) for head in split_heads(heads, count)])
    return Bundle(view, origin, s, lamport, stamp, commands)


async def _find_digest(file: File, segment: Segment, offset: int, position: int) -> bytes | None:
    """The digest, from the ITEM record of a position somewhere behind `offset`."""
    window, base = b"", 0
    while offset < segment.size:
        record = decode(window, base, offset, segment.seed) if offset >= base else None
        if record is None:
            window, base = await read_or_zeros(file, offset, REACH_MAX), offset
            record = decode(window, base, offset, segment.seed)
        if record is None:
            return None  # damage
        if record.kind == RecordKind.ITEM:
            item = ItemForm.decode(record.head)
            if item.position == position:
                return item.digest
            if item.position > position:
                return None
        elif record.kind == RecordKind.GAP:
            gap = GapForm.decode(record.head)
            if position in (gap.first - 1, gap.last):
                return gap.before if position < gap.first else gap.digest
            if gap.last > position:
                return None
        offset = record.end
    return None
