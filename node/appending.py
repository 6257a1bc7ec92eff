"""Appending: what is written to make something the next item of the row, and what is known then.

append     [BUNDLE heads, bodies][ITEM]      one write; alone, a bundle is placed as it comes
install    [VIEW][ITEM]                      the mark of a view
order      [ITEM]                            of what an earlier life left without a place

Between machines, the parts of both come one by one (journal.py): `receive`, `decide`, `order`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from .checksum import crc32c
from .chronicle import Chronicle, Name, Waiting
from .commands import Command
from .env import Buffer
from .forms import (
    ItemForm,
    SettledForm,
    Start,
    chain,
    encode_bundle,
    encode_item,
    encode_view,
    item_crc,
    join_heads,
)
from .limits import KIB
from .places import place
from .records import RecordKind, padding, size_of
from .row import Bundle, Item, View
from .writing import ITEM_BYTES_MAX, Writer

_BUNDLE: Final = int(RecordKind.BUNDLE)
_ITEM: Final = int(RecordKind.ITEM)
RECENT_BUNDLES: Final = 8  # whose encoding is remembered
JOIN_BYTES_MAX: Final = 8 * KIB  # a body below this is copied: cheaper than a buffer of its own


class Appending:
    def __init__(self, chronicle: Chronicle, writer: Writer) -> None:
        self._chronicle, self._writer = chronicle, writer

    async def append(
        self, view: int, origin: int, s: int, lamport: int, stamp: int, commands: Sequence[Command]
    ) -> Item:
        """Writes a bundle and makes it the next item.  The bodies are those that the heads say.

        Raises:
            Full: nothing of it was written.
            DiskFailed: the process has to end.
        """
        content = Bundle(view, origin, s, lamport, stamp, tuple(commands))
        made = _encoded(content)
        size = size_of(len(made.head), made.length)
        await self._writer.room(size + ITEM_BYTES_MAX)
        return self._append(content, made, size)

    def append_now(
        self, view: int, origin: int, s: int, lamport: int, stamp: int, commands: Sequence[Command]
    ) -> Item | None:
        """As `append`, without waiting for anything.  None: there has to be another segment first.

        Raises:
            Full, DiskFailed: as `append`.
        """
        content: Bundle = tuple.__new__(  # past its constructor, see commands.py
            Bundle, (view, origin, s, lamport, stamp, tuple(commands))
        )
        made = _encoded(content)
        size = size_of(len(made.head), made.length)
        if not self._writer.has_room(size + ITEM_BYTES_MAX):
            return None
        return self._append(content, made, size)

    def _append(self, content: Bundle, made: Encoded, size: int) -> Item:
        """There is room.  The write and what is known of it are one: no checkpoint."""
        chronicle, writer = self._chronicle, self._writer
        crc, _, head, body, length = made
        segment = writer.open
        assert segment is not None
        offset = segment.size
        where, position = place(segment.number, offset), chronicle.position + 1
        digest = chain(chronicle.digest, position, crc)
        bundle = writer.record(_BUNDLE, head, offset, body_length=length)
        item = writer.record(_ITEM, encode_item(position, where, crc, digest), offset + size)
        writer.write([bundle + body[0], *body[1:], item], size + len(item))
        chronicle.position, chronicle.digest = position, digest
        chronicle.heard[content.origin] = content.s
        writer.count(where, position)
        made_item: Item = tuple.__new__(Item, (position, where, crc, content))
        return made_item

    async def install(self, view: View) -> None:
        """Decides a view and makes its mark the next item.

        Raises:
            Full, DiskFailed: as `append`.
        """
        chronicle, writer, raw = self._chronicle, self._writer, encode_view(view)
        size = size_of(len(raw), 0)
        segment = await writer.room(size + ITEM_BYTES_MAX)
        where, crc = place(segment.number, segment.size), crc32c(raw)
        position = chronicle.position + 1
        digest = chain(chronicle.digest, position, crc)
        mark = writer.record(RecordKind.VIEW, raw, segment.size)
        item = writer.record(
            RecordKind.ITEM, ItemForm(position, where, crc, digest).encode(), segment.size + size
        )
        writer.write([mark, item], size + len(item))
        chronicle.decided(raw, where, crc)
        chronicle.ordered(position, where, crc, digest)
        writer.count(where, position)

    async def receive(self, bundle: Bundle) -> int:
        """Writes a bundle whose place in the row is not known yet; where it lies.

        Raises:
            Full, DiskFailed: as `append`.
        """
        writer = self._writer
        crc, _, head, body, length = encoded(bundle)
        size = size_of(len(head), length)
        segment = await writer.room(size)
        where = place(segment.number, segment.size)
        record = writer.record(RecordKind.BUNDLE, head, segment.size, body_length=length)
        writer.write([record + body[0], *body[1:]], size)
        self._chronicle.received(where, Waiting(bundle.view, bundle.origin, bundle.s, crc))
        return where

    async def decide(self, view: bytes) -> int:
        """Writes a view whose mark is not in the row yet; where it lies.

        Raises:
            Full, DiskFailed: as `append`.
        """
        segment = await self._writer.room(size_of(len(view), 0))
        where = place(segment.number, segment.size)
        self._writer.append(RecordKind.VIEW, view)
        self._chronicle.decided(view, where, crc32c(view))
        return where

    async def order(self, where: int) -> None:
        """Makes what waits there the next item.

        Raises:
            Full, DiskFailed: as `append`.
        """
        await self._writer.room(ITEM_BYTES_MAX)
        self._writer.order(where)

    async def note(self, kind: RecordKind, head: bytes) -> None:
        """A REGISTER, or what is now known of an older START.

        Raises:
            Full, DiskFailed: as `append`.
        """
        await self._writer.room(size_of(len(head), 0))
        self._writer.append(kind, head)
        if kind == RecordKind.REGISTER:
            self._chronicle.register = head
        else:
            assert kind == RecordKind.START
            self._chronicle.start(Start.decode(head))

    async def settle(self, names: Sequence[Name]) -> None:
        """A SETTLED for each of them, in one write.

        Raises:
            Full, DiskFailed: as `append`.
        """
        writer = self._writer
        heads = [SettledForm(*name).encode() for name in names]
        segment = await writer.room(sum([size_of(len(head), 0) for head in heads]))
        records: list[Buffer] = []
        offset = segment.size
        for head in heads:
            record = writer.record(RecordKind.SETTLED, head, offset)
            records.append(record)
            offset += len(record)
        writer.write(records, offset - segment.size)
        for name in names:
            self._chronicle.settled(name)

    async def order_waiting(self) -> None:
        """Makes items of what the last incarnation left without a place in the row, in s order.

        Raises:
            Full, DiskFailed: as `append`.
        """
        for where in self._chronicle.in_order():
            await self.order(where)


class Encoded(NamedTuple):
    crc: int  # of the item
    heads_length: int  # of the heads block, not padded
    head: bytes
    body: list[Buffer]  # the heads block first, then the bodies
    length: int  # of the body


def encoded(bundle: Bundle) -> Encoded:
    """As it lies in a record, and goes from bridge to bridge; large bodies are not copied.

    A bundle is written, sent and told, one soon after the other: the last few are remembered.
    """
    found = _recent.get(id(bundle))  # sim-ok: the same bytes, whatever the address
    if found is not None:
        return found[1]  # what is remembered lives, so no other has its id
    if len(_recent) == RECENT_BUNDLES:
        del _recent[next(iter(_recent))]
    form = _encoded(bundle)
    _recent[id(bundle)] = bundle, form  # sim-ok: see above
    return form


def _encoded(bundle: Bundle) -> Encoded:
    view, origin, s, lamport, stamp, commands = bundle
    count, heads = len(commands), join_heads(commands)
    crc = item_crc(view, origin, s, lamport, stamp, count, heads)
    head = encode_bundle(view, origin, s, lamport, stamp, count, heads, crc)
    bodies, length = _gather(commands)
    padded = heads + padding(len(heads))
    made: Encoded = tuple.__new__(
        Encoded, (crc, len(heads), head, [padded, *bodies], length + len(padded))
    )
    return made


# By id.  Nodes of a simulation share it: what is in it follows from its bundle alone.
_recent: dict[int, tuple[Bundle, Encoded]] = {}  # sim-ok: see above


def _gather(commands: Sequence[Command]) -> tuple[list[Buffer], int]:
    """The bodies with their padding, in few buffers, and their length; large ones are not copied."""
    if len(commands) == 1:
        body = commands[0].body
        pad = padding(len(body))
        return [body, pad] if pad else [body], len(body) + len(pad)
    buffers: list[Buffer] = []
    small: list[Buffer] = []
    total = 0
    for _, body in commands:
        length = len(body)
        pad = padding(length)
        total += length + len(pad)
        if length < JOIN_BYTES_MAX:
            small += (body, pad)
        else:
            if small:
                buffers.append(b"".join(small))
            buffers.append(body)
            small = [pad]
    if small:
        buffers.append(b"".join(small))
    return buffers, total
