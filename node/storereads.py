"""Reading from the row store: bundles, bodies and items, checked on their way out.

A place says where a record begins and which command of it is meant.  Where the body lies follows
from the lengths in the heads before it, so the heads are read first; one read of a page brings both
for small bundles.  Heads that were read are remembered for a while: who pulls reads on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from .checksum import crc32c
from .commands import Command
from .env import File
from .errors import Corrupt, NotFound
from .forms import (
    DIGEST_ZERO,
    BundleForm,
    ItemForm,
    bodies,
    decode_view,
    item_crc,
    split_heads,
)
from .limits import KIB, MIB
from .places import command_of, offset_of, record_of, segment_of
from .records import REACH_MAX, Record, RecordKind, decode, padded
from .row import Bundle, Item, View
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
    record: Record
    content: StoredHeads | View
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
            stored = _bundle_of((await self._find(place_)).content)
        return stored

    async def read_body(self, place_: int) -> bytes:
        window, base = b"", 0
        stored = self._remembered.get(record_of(place_))
        if stored is None:
            found = await self._find(place_)
            stored, window, base = _bundle_of(found.content), found.window, found.base
        command = command_of(place_)
        if command >= len(stored.bodies):
            text = f"a bundle of {len(stored.bodies):,} commands has no command {command}"
            raise await self._corrupt(place_, text)
        wanted = stored.bodies[command]
        at = wanted.offset - base
        if at >= 0 and at + wanted.length <= len(window):
            body = window[at : at + wanted.length]
        else:
            body = await self._read(place_, wanted.offset, wanted.length)
        return await self._checked(place_, wanted, body)

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
                if segment_of(where) != segment:
                    window, segment = b"", segment_of(where)
                found = await self._find(where, window, base, ahead=RUN_BYTES)
                window, base = found.window, found.base
                item, bytes_ = await self._item(position, where, found, with_bodies)
            except (Corrupt, NotFound):
                if items:
                    break
                raise
            items.append(item)
            size += bytes_
            position += 1
        return items

    async def digest_of(self, position: int) -> bytes:
        if not position:
            return DIGEST_ZERO
        where = await self._shelf.place_of(position)
        number, offset = segment_of(where), offset_of(where)
        while number in self._shelf:
            # The ITEM record comes after the record that it places; alone, right after it.
            segment = self._shelf.get(number)
            handle = await self._shelf.files.acquire(number)
            try:
                digest = await _find_digest(handle.file, segment, offset, position)
            finally:
                self._shelf.files.release(handle)
            if digest is not None:
                return digest
            number, offset = number + 1, 0
        raise await self._corrupt(where, "no record says the digest of the row there")

    async def _item(
        self, position: int, where: int, found: _Found, with_bodies: bool
    ) -> tuple[Item, int]:
        content, window, base = found.content, found.window, found.base
        if isinstance(content, View):
            head = found.record.head
            return Item(position, where, crc32c(head), content), len(head)
        size = found.record.body_offset - found.record.offset
        bundle = content.bundle
        if with_bodies:
            commands = []
            for (head, _), body in zip(bundle.commands, content.bodies, strict=True):
                at = body.offset - base
                raw = window[at : at + body.length] if at >= 0 else b""
                if len(raw) != body.length:
                    raw = await self._read(where, body.offset, body.length)
                commands.append(Command(head, await self._checked(where, body, raw)))
            bundle = bundle._replace(commands=tuple(commands))
            size = found.record.end - found.record.offset
        return Item(position, where, content.crc, bundle), size

    async def _find(
        self, place_: int, window: bytes = b"", base: int = 0, *, ahead: int = PAGE_BYTES
    ) -> _Found:
        """The record at a place, with its heads; `window` may already hold it."""
        segment = self._shelf.get(segment_of(place_))
        offset = offset_of(place_)
        record = None
        if base <= offset < base + len(window):
            record = decode(window, base, offset, segment.seed)
        if record is None or record.body_offset > base + len(window):
            window, base = await self._read(place_, offset, ahead), offset
            record = decode(window, base, offset, segment.seed)
            if record is None and len(window) == ahead < REACH_MAX:
                window = await self._read(place_, offset, REACH_MAX)
                record = decode(window, base, offset, segment.seed)
        if record is None:
            raise await self._corrupt(place_, "its record is damaged")
        if record.kind == RecordKind.VIEW:
            return _Found(record, decode_view(record.head), window, base)
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
        stored = _stored(form, heads, record)
        if form.heads_length <= HEADS_REMEMBERED_BYTES_MAX:
            self._remember(record_of(place_), stored)
        return _Found(record, stored, window, base)

    def _remember(self, place_: int, stored: StoredHeads) -> None:
        if len(self._remembered) >= HEADS_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[place_] = stored

    async def _read(self, place_: int, offset: int, length: int) -> bytes:
        handle = await self._shelf.files.acquire(segment_of(place_))
        try:
            return await handle.file.read(offset, length)
        except OSError as error:
            raise await self._corrupt(place_, f"it cannot be read: {error}") from error
        finally:
            self._shelf.files.release(handle)

    async def _checked(self, place_: int, wanted: Body, body: bytes) -> bytes:
        if len(body) == wanted.length and crc32c(body) == wanted.crc:
            return body
        segment = self._shelf.get(segment_of(place_))
        if segment.rewritten and not any(body):
            raise NotFound(
                f"the body at {wanted.offset:,} of {segment_file(segment.number)} was pruned, and "
                "left out when the segment was rewritten"
            )
        what = f"the {wanted.length:,} bytes of a body at {wanted.offset:,} are damaged"
        raise await self._corrupt(place_, what)

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


def _bundle_of(content: StoredHeads | View) -> StoredHeads:
    if isinstance(content, View):
        raise Corrupt("the place of a view mark was given for that of a bundle")
    return content


def _stored(form: BundleForm, heads: bytes, record: Record) -> StoredHeads:
    split: Sequence[bytes] = split_heads(heads, form.commands)
    first = record.body_offset + padded(form.heads_length)
    return StoredHeads(
        Bundle(
            form.view,
            form.origin,
            form.s,
            form.lamport,
            form.stamp,
            tuple([Command(head) for head in split]),
        ),
        form.crc,
        tuple([Body(*body) for body in bodies(split, first)]),
    )


async def _find_digest(file: File, segment: Segment, offset: int, position: int) -> bytes | None:
    """From the ITEM record of a position, somewhere behind `offset`."""
    window, base = b"", 0
    while offset < segment.size:
        record = decode(window, base, offset, segment.seed) if offset >= base else None
        if record is None:
            window, base = await file.read(offset, REACH_MAX), offset
            record = decode(window, base, offset, segment.seed)
        if record is None:
            return None
        if record.kind == RecordKind.ITEM:
            item = ItemForm.decode(record.head)
            if item.position == position:
                return item.digest
        offset = record.end
    return None
