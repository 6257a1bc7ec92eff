"""Segments made of records, and read by recovery, without any disk."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import attrs

from duckrow.node.checksum import crc32c
from duckrow.node.chronicle import Chronicle, encode_opening
from duckrow.node.commands import Command, Head, Kind, encode_head
from duckrow.node.forms import (
    ItemForm,
    Start,
    chain,
    encode_bundle,
    encode_view,
    item_crc,
    join_heads,
)
from duckrow.node.places import place
from duckrow.node.records import RecordKind, encode, padding, seed_of
from duckrow.node.recovery import Recovery
from duckrow.node.row import Member, View

T = TypeVar("T")
UUID = b"0123456789abcdef"


def command(number: int, body: bytes) -> Command:
    crc = crc32c(body) if body else 0
    head = Head(
        int(Kind.PRODUCE),
        b"p" * 16,
        1,
        "t",
        0,
        number,
        0,
        0,
        len(body),
        crc,
        0,
        (1, 1, 0, None, None, None),
    )
    return Command(encode_head(head), body)


def view(number: int, incarnation: int) -> View:
    return View(number, (Member(1, incarnation, 1),), b"c" * 16, 5, "fsync")


@attrs.define
class Built:
    """A segment as it grows; `starts` are the offsets of its records."""

    number: int = 1
    chronicle: Chronicle = attrs.field(factory=lambda: Chronicle(UUID))
    data: bytearray = attrs.field(factory=bytearray)
    starts: list[int] = attrs.field(factory=list)
    kinds: list[RecordKind] = attrs.field(factory=list)
    durable: int = 0  # offset that the next records claim
    start_count: int = 0
    view: int = 0
    s: int = 0

    @property
    def seed(self) -> int:
        return seed_of(UUID, self.number)

    def record(self, kind: RecordKind, head: bytes, body: bytes = b"", flags: int = 0) -> int:
        offset = len(self.data)
        self.starts.append(offset)
        self.kinds.append(kind)
        self.data += encode(
            kind,
            head,
            seed=self.seed,
            offset=offset,
            start_count=self.start_count,
            durable=place(self.number, self.durable),
            body_length=len(body),
            flags=flags,
        )
        self.data += body + padding(len(body))
        return place(self.number, offset)

    def segment(self, before: int = 0) -> None:
        self.record(RecordKind.SEGMENT, encode_opening(self.chronicle, self.number, before))

    def start(self, incarnation: int) -> None:
        self.start_count += 1
        start = Start(incarnation, "boot", "fsync", self.start_count, UUID)
        self.record(RecordKind.START, start.encode())
        self.chronicle.start(start)

    def install(self, incarnation: int) -> None:
        self.view += 1
        self.s = 0
        raw = encode_view(view(self.view, incarnation))
        where = self.record(RecordKind.VIEW, raw)
        self.chronicle.decided(raw, where, crc32c(raw))
        self.item(where, crc32c(raw))

    def bundle(self, *sizes: int) -> tuple[int, int]:
        """Its place and crc."""
        self.s += 1
        commands = [command(self.s, bytes([self.s & 255]) * size) for size in sizes]
        heads = join_heads(commands)
        names = self.view, 1, self.s, self.s, 1_000_000 + self.s, len(commands)
        crc = item_crc(*names, heads)
        body = heads + padding(len(heads))
        for each in commands:
            body += bytes(each.body) + padding(len(each.body))
        where = self.record(RecordKind.BUNDLE, encode_bundle(*names, heads, crc), body)
        self.chronicle.heard[1] = self.s
        return where, crc

    def item(self, where: int, crc: int) -> None:
        position = self.chronicle.position + 1
        digest = chain(self.chronicle.digest, position, crc)
        self.record(RecordKind.ITEM, ItemForm(position, where, crc, digest).encode())
        self.chronicle.ordered(position, where, crc, digest)

    def produce(self, *sizes: int) -> None:
        self.item(*self.bundle(*sizes))

    def synced(self) -> None:
        self.durable = len(self.data)

    def mark(self) -> None:
        self.synced()
        self.record(RecordKind.MARK, b"")


def typical(*sizes: tuple[int, ...]) -> Built:
    built = Built()
    built.segment()
    built.start(11)
    built.synced()
    built.install(11)
    for each in sizes:
        built.mark()
        built.produce(*each)
    return built


def read(
    built: Built,
    data: bytes | None = None,
    *,
    durable: int = 0,
    recovery: Recovery | None = None,
    kind: type[Recovery] = Recovery,
    window: int = 1,
) -> tuple[Recovery, int]:
    """What recovery makes of the bytes, and where what it keeps of them ends."""
    data = bytes(built.data) if data is None else data
    if recovery is None:
        recovery = kind(place(built.number, durable), Chronicle(UUID), True)
    end = drive(recovery.scan(built.number, built.seed, len(data), window), data)
    return recovery, end


def drive(scan: Generator[tuple[int, int], bytes, T], data: bytes) -> T:
    try:
        offset, length = next(scan)
        while True:
            offset, length = scan.send(data[offset : offset + length])
    except StopIteration as stop:
        result: T = stop.value
        return result
