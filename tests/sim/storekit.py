"""What tests of the row store share: commands that know who they are, and a story that is checked.

A `Story` is told by several lives of a process on one machine.  It notes what was submitted, what
was handed out and what was said to be durable, and after each death `check` compares that with what
the next life finds.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
import trio

from duckrow.node.checksum import crc32c
from duckrow.node.commands import Command, Head, Kind, encode_head
from duckrow.node.env import Env
from duckrow.node.forms import chain
from duckrow.node.lonerow import LoneRow
from duckrow.node.row import Bundle, Item
from duckrow.node.storeoptions import FSYNC, StoreOptions
from sim.alone import Machine

PID = b"0123456789abcdef"


def command(number: int, size: int = 100) -> Command:
    """A produce whose body says who it is."""
    body = b"<%d>" % number + bytes(i * number & 255 for i in range(size))
    return with_body(Kind.PRODUCE, number, body)


def bodyless(number: int) -> Command:
    return with_body(Kind.CLOCK, number, b"")


def with_body(kind: Kind, number: int, body: bytes) -> Command:
    crc = crc32c(body) if body else 0
    topic = "t" if kind == Kind.PRODUCE else ""
    extra = (1, 1, 0, None, None, None) if kind == Kind.PRODUCE else ()
    head = Head(int(kind), PID, 1, topic, 0, number, 0, 0, len(body), crc, 0, extra)
    return Command(encode_head(head), body)


def number_of(command: Command) -> int:
    return int(bytes(command.body[1 : bytes(command.body).index(b">")]))


def small(**changes: object) -> StoreOptions:
    """Options with which a few kilobytes fill segments."""
    defaults: dict[str, object] = {
        "segment_bytes": 4096,
        "followable_bytes": 4096,
        "soft_reserve_bytes": 0,
        "soft_reserve_fraction": 0.0,
        "hard_reserve_bytes": 4096,
        "window_bytes": 4096,
        "scrub_seconds": 0,  # so that a deadlock is seen, instead of the years going by
    }
    return StoreOptions(**(defaults | changes))  # type: ignore[arg-type]


Work = Callable[[LoneRow, "Story"], Awaitable[None]]
T = TypeVar("T")


def one_life(
    machine: Machine,
    options: StoreOptions,
    work: Callable[[LoneRow], Awaitable[T]],
    *,
    orderly: bool = False,
    id_: int = 1,
    running: bool = True,
) -> T:
    """A process that goes on at the end of the row, works, and stops in the middle, or in order."""

    async def main(env: Env) -> T:
        row = await LoneRow.open(await env.disk.folder("row"), env, options, id_=id_)
        row.follow(row.store.position)
        async with trio.open_nursery() as nursery:
            if running:
                nursery.start_soon(row.run)
            result = await work(row)
            nursery.cancel_scope.cancel()
        if orderly:
            await row.close()
        return result

    return machine.run(main)


@attrs.define
class Story:
    options: StoreOptions
    submitted: list[list[int]] = attrs.field(factory=list)  # numbers, by life
    seen: dict[int, int] = attrs.field(factory=dict)  # position -> item crc, handed out
    durable: int = 0  # the highest position that was said to be
    lineage: int = 0
    lineages: int = 0  # how many there were
    sizes: dict[int, int] = attrs.field(factory=dict)  # number -> size
    dead: dict[int, None] = attrs.field(factory=dict)  # numbers whose bodies were given up
    _next: int = 1

    def life(self, work: Work, *, orderly: bool = True) -> Callable[[Env], Awaitable[None]]:
        """A process that opens the row, works, and closes it; or stops in the middle."""

        async def main(env: Env) -> None:
            row = await LoneRow.open(await env.disk.folder("row"), env, self.options)
            self.submitted.append([])
            row.follow(row.store.floor - 1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(row.run)
                await self.catch_up(row)
                self.note(row)
                await work(row, self)
                self.note(row)
                nursery.cancel_scope.cancel()
            if orderly:
                await row.close()
                self.durable = row.store.position

        return main

    def note(self, row: LoneRow) -> None:
        self.durable = max(self.durable, row.store.durable_position)

    async def catch_up(self, row: LoneRow) -> None:
        position = row.store.floor - 1
        while position < row.store.position:
            for item in await row.take():
                self.see(item)
                position = item.position

    def see(self, item: Item) -> None:
        assert self.seen.setdefault(item.position, item.crc) == item.crc

    def make(self, size: int = 100) -> Command:
        number, self._next = self._next, self._next + 1
        self.sizes[number] = size
        return command(number, size)

    async def produce(self, row: LoneRow, *sizes: int) -> list[Item]:
        """Submits one command of each size at once, and takes until all are there."""
        commands = [self.make(size) for size in sizes]
        self.submitted[-1] += map(number_of, commands)
        row.submit(commands)
        items: list[Item] = []
        while sum(map(_commands, items)) < len(commands):
            items += await row.take()
        for item in items:
            self.see(item)
        self.note(row)
        return items

    # -- after a death ----------------------------------------------------------------------

    async def check(self, row: LoneRow, *, power: bool) -> None:
        """Everything that was promised is there, and nothing that was not submitted."""
        store = row.store
        held = self.durable if power and self.options.level != FSYNC else max(self.seen, default=0)
        position, digest = store.floor - 1, await store.digest_of(store.floor - 1)
        found: list[int] = []
        view = store.view
        assert view is not None
        # What was lost may have been replaced, if there were other lives since.
        found_crcs = {i.position: i.crc for i in await store.read_items(position + 1, 1 << 30)}
        ends = [p for p, crc in self.seen.items() if p > position and found_crcs.get(p) != crc]
        if ends:
            assert min(ends) > held, f"position {min(ends)} is lost, {held} positions were held"
            assert view.lineage != self.lineage, "entries were lost, and the lineage is the same"
            self.seen = {p: crc for p, crc in self.seen.items() if p < min(ends)}
        self.lineages += view.lineage != self.lineage
        self.lineage = view.lineage
        while position < store.position:
            for item in await store.read_items(position + 1, 5_000, bodies=True):
                position += 1
                assert item.position == position
                digest = chain(digest, position, item.crc)
                assert digest == await store.digest_of(position)
                assert item.place == await store.place_of(position)
                self.see(item)
                if isinstance(item.content, Bundle):
                    for index, each in enumerate(item.content.commands):
                        number = number_of(each)
                        assert each == command(number, self.sizes[number])
                        assert await store.read_body(item.place + index) == each.body
                        found.append(number)
        assert digest == store.digest
        assert store.durable_position == store.position
        self.check_numbers(found)

    def check_numbers(self, found: list[int]) -> None:
        """Of each life a first part of what it submitted, but for what is below the floor."""
        for numbers in self.submitted:
            if numbers:
                of_life = [n for n in found if numbers[0] <= n <= numbers[-1]]
                if of_life:
                    assert of_life == list(range(of_life[0], of_life[-1] + 1))
                    assert found.index(of_life[0]) == 0 or of_life[0] == numbers[0]
        assert found == sorted(set(found))


def _commands(item: Item) -> int:
    return len(item.content.commands) if isinstance(item.content, Bundle) else 0


def flip(data: bytes, offset: int, rng: random.Random) -> bytes:
    return data[:offset] + bytes([data[offset] ^ 1 << rng.randrange(8)]) + data[offset + 1 :]
