"""Pulls from the real row store, on a simulated disk: the parts as a node puts them together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.lowlevel

from core.library import Fact, Library, read
from duckrow.node.apply import apply
from duckrow.node.cache import Cache
from duckrow.node.cursors import FIRST
from duckrow.node.env import Env
from duckrow.node.errors import Damaged, NotFound
from duckrow.node.numberfolder import NumberFolder
from duckrow.node.numbergrowing import restored
from duckrow.node.numbers import Numbers
from duckrow.node.pins import Pins
from duckrow.node.places import segment_of
from duckrow.node.reading import Pull, Reader
from duckrow.node.row import Bundle, Item, View
from duckrow.node.rowstore import RowStore
from duckrow.node.state import State
from duckrow.node.storeoptions import StoreOptions
from duckrow.node.storereads import StoredHeads
from duckrow.node.upkeep import Plan
from duckrow.node.waiters import Waiters
from sim.alone import Machine

OPTIONS = StoreOptions(segment_bytes=8192, followable_bytes=8192)
LARGE = StoreOptions(segment_bytes=65536, followable_bytes=65536)  # many blocks of a file system


class Node:
    """The reading half of a node."""

    def __init__(self, env: Env, store: RowStore, folder: NumberFolder, cached: int) -> None:
        self.store, self.folder = store, folder
        self.state, self.numbers = State(), Numbers(store.uuid)
        self.cache, self.waiters = Cache(cached), Waiters()
        self.pins = Pins(self.state, self.numbers)
        self.reader = Reader(self.state, self.numbers, self.cache, store, self.waiters, self.pins)
        self.freed = 0  # by rewriting
        self.incarnation = env.rng.getrandbits(32)

    async def add(self, contents: list[Bundle | View]) -> None:
        """Writes items, applies them, indexes what was sealed."""
        await self.store.begin(self.incarnation)
        for content in contents:
            if isinstance(content, View):
                await self.store.appending.install(content)
                (item,) = await self.store.read_items(self.store.position, 1)
            else:
                item = await self.store.appending.append(*content)
                self.cache.put(item.place, content.commands)
            self.apply(item)
            while self.numbers.waiting() is not None:
                await self.store.sync()
                assert await self.folder.write(self.numbers)
        await self.store.sync()
        await self.store.index_sealed()

    async def replay(self) -> None:
        for item in await self.store.read_items(1, 1 << 30):
            self.apply(item)

    def apply(self, item: Item) -> None:
        self.numbers.note(item.position, item.place, apply(self.state, item), {})

    async def tidy(self) -> Plan:
        """Drops and rewrites what is dead."""
        self.store.release(self.state.position, self.state.position)
        plan = self.numbers.usage.plan(
            self.store.segments(),
            snapshot=self.state.position,
            oldest_body=None,
            in_memory=self.numbers.in_memory,
            followable=self.store.options.followable_bytes,
        )
        for segment in await self.store.drop(plan.drop):
            await self.folder.drop(self.numbers, segment)
        for segment in plan.rewrite:
            live = {place for some in self.numbers.live_places(segment) for place in some}
            self.freed += await self.store.rewrite(segment, live)
            self.numbers.usage.rewritten(segment)
        return plan

    async def all(self, topic: str = "t", **more: Any) -> list[Fact]:
        """Everything there is, from the oldest on, over what is damaged."""
        facts: list[Fact] = []
        after: Any = FIRST
        while True:
            pulled = await self.reader.pull(Pull(topic, after, **more))
            assert not pulled.missing
            if not pulled.batches:
                return facts
            facts += read(pulled)
            after = pulled.after


class Gone:
    """The store; counts what was asked of it and was gone."""

    def __init__(self, store: RowStore) -> None:
        self._store = store
        self.count = 0

    async def read_heads(self, place: int) -> StoredHeads:
        return await self._store.read_heads(place)

    async def read_body(self, place: int, *, is_live: bool = False) -> bytes:
        try:
            return await self._store.read_body(place, is_live=is_live)
        except NotFound:
            self.count += 1
            raise


@asynccontextmanager
async def opened(
    env: Env, *, cached: int = 0, options: StoreOptions = OPTIONS
) -> AsyncIterator[Node]:
    store = await RowStore.open(await env.disk.folder("row"), env, options)
    node = Node(env, store, NumberFolder(await env.disk.folder("numbers")), cached)
    yield node
    await store.close()


def written(
    machine: Machine, rounds: int = 30, size: int = 100, options: StoreOptions = OPTIONS
) -> Library:
    """A store with entries of three topics, one of them with partitions; many small segments."""
    library = Library()
    library.create("t", partitions=3)
    for n in range(rounds):
        library.item(
            library.entries("t", 1 + n % 5, partition=n % 3, size=50),
            library.entries("u", 2, size=size),
            library.entries("t", 1, partition=(n + 1) % 3),
        )
        library.add("v", 10, size=20)
    contents = [item.content for item in library.items]

    async def write(env: Env) -> None:
        async with opened(env, options=options) as node:
            await node.add(contents)
            assert len(node.store.segments()) > 4
            for topic in ("t", "u", "v"):
                assert await node.all(topic) == library.there(topic)

    machine.run(write)
    return library


@pytest.mark.parametrize("cached", [0, 1 << 20])
def test_what_was_written_is_read_and_again_after_a_restart(cached: int) -> None:
    machine = Machine()
    library = written(machine)

    async def look(env: Env) -> None:
        async with opened(env, cached=cached) as node:
            files = await node.folder.load(node.store.uuid, node.store.position)
            assert len(files) == len(node.store.segments()) - 1
            assert node.numbers.load(files, 0) == []
            await node.replay()
            assert node.numbers.installed == [file.cover.segment for file in files]
            for topic in ("t", "u", "v"):
                for limit in (1, 7, 1_000):
                    assert await node.all(topic, limit=limit) == library.there(topic)
            assert await node.all(partition=1) == library.there("t", 1)

    machine.run(look)


def test_dead_segments_go_and_mostly_dead_ones_are_rewritten_and_readers_do_not_notice() -> None:
    machine = Machine()
    library = written(machine, rounds=60, size=8_000, options=LARGE)

    async def tidy(env: Env) -> None:
        async with opened(env, options=LARGE) as node:
            await node.replay()
            while node.numbers.waiting() is not None:
                assert await node.folder.write(node.numbers)
            before = len(node.store.segments())
            done: list[Bundle | View] = []

            async def prune(topic: str, share: float, partition: int = 0) -> None:
                library.prune(int(library.at(topic, partition).last * share), topic, partition)
                done.append(library.items[-1].content)

            # All of "t" stays, of the others little: everything is mostly dead.
            for topic in ("u", "v"):
                await prune(topic, 0.8)
            await node.add(done)
            used = machine.media.used
            plan = await node.tidy()
            assert plan.rewrite
            assert not plan.drop
            assert node.freed > sum(each.bytes for each in node.store.segments()) / 3
            assert used - machine.media.used == node.freed
            assert (await node.tidy()).rewrite == ()
            for topic in ("t", "u", "v"):
                assert await node.all(topic) == library.there(topic)
            done.clear()
            for partition in range(3):
                await prune("t", 0.7, partition)
            await node.add(done)
            plan = await node.tidy()
            assert plan.drop
            assert len(node.store.segments()) < before
            for topic in ("t", "u", "v"):
                assert await node.all(topic) == library.there(topic)
                assert (await node.reader.pull(Pull(topic, FIRST))).batches

    machine.run(tidy)


def test_a_pull_that_is_overtaken_by_a_drop_starts_behind_it() -> None:
    machine = Machine()
    library = written(machine, rounds=60)

    async def overtake(env: Env) -> None:
        async with opened(env) as node:
            await node.replay()
            while node.numbers.waiting() is not None:
                assert await node.folder.write(node.numbers)
            for topic in ("u", "v"):
                library.prune(library.at(topic).last, topic)
            for partition in range(3):
                library.prune(int(library.at("t", partition).last * 0.5), "t", partition)
            prunes = [item.content for item in library.items[-5:]]
            turns: list[tuple[int, list[Fact]]] = []  # of whole rounds: missing, what was read
            gone = Gone(node.store)
            node.reader = Reader(
                node.state, node.numbers, node.cache, gone, node.waiters, node.pins
            )
            tidied = trio.Event()

            async def reader(limit: int) -> None:
                last = False
                while not last:
                    last = tidied.is_set()
                    after: Any = 0
                    missing, facts = 0, list[Fact]()
                    while (pulled := await node.reader.pull(Pull("t", after, limit=limit))).batches:
                        missing += pulled.missing
                        facts += read(pulled)
                        after = pulled.after
                    turns.append((missing, facts))

            machine.media.latency = 0.001
            async with trio.open_nursery() as nursery:
                for limit in (1, 2, 5, 20, 1_000):
                    nursery.start_soon(reader, limit)
                await trio.sleep(1)
                await node.add(prunes)
                assert (await node.tidy()).drop
                tidied.set()
            there, everything = library.there(), sum(library.at("t", p).last for p in range(3))
            assert gone.count
            assert {missing for missing, _ in turns} > {0, everything - len(there)}
            for missing, facts in turns:
                assert [fact for fact in facts if fact in there] == there
                assert missing + len(facts) == everything

    machine.run(overtake)


def test_a_flipped_bit_in_a_body_costs_the_entries_of_one_batch() -> None:
    machine = Machine()
    library = written(machine)
    there = library.there("v")

    async def aim(env: Env) -> tuple[int, int]:
        async with opened(env) as node:
            await node.replay()
            topic = node.state.topic("v")
            assert topic is not None
            row = node.numbers.rows(topic.id, 0, 55, 1)[0]
            heads = await node.store.read_heads(row.place)
            return segment_of(row.place), heads.bodies[0].offset + 40

    segment, offset = machine.run(aim)
    machine.media.flip(f"row/{segment:08d}.seg", offset)

    async def look(env: Env) -> None:
        async with opened(env) as node:
            await node.replay()
            assert await node.all("t") == library.there("t")
            pulled = await node.reader.pull(Pull("v"))
            assert read(pulled) == there[:50]
            with pytest.raises(Damaged, match="51 to 60 of partition 0 of topic 'v'") as caught:
                await node.reader.pull(Pull("v", pulled.after))
            pulled = await node.reader.pull(Pull("v", caught.value.last, partition=0))
            assert read(pulled) == there[60:]

    machine.run(look)


def test_the_open_segment_comes_back_from_a_snapshot() -> None:
    machine = Machine()
    library = written(machine)
    chunks: list[tuple[str, bytes]] = []

    async def snapshot(env: Env) -> int:
        async with opened(env) as node:
            files = await node.folder.load(node.store.uuid, node.store.position)
            node.numbers.load(files, 0)
            await node.replay()
            chunks.extend(node.numbers.capture())
            return node.state.position

    position = machine.run(snapshot)

    async def look(env: Env) -> None:
        async with opened(env) as node:
            files = await node.folder.load(node.store.uuid, node.store.position)
            assert node.numbers.load([*files, *restored(chunks)], position) == []
            # The state comes from its own snapshot; here it is made again.
            for item in await node.store.read_items(1, 1 << 30):
                apply(node.state, item)
            node.numbers.settle(lambda topic_id, p: node.state.partition(topic_id, p).first)
            for topic in ("t", "u", "v"):
                assert await node.all(topic) == library.there(topic)

    machine.run(look)


def test_a_place_in_a_segment_that_is_gone_is_not_found() -> None:
    """What the reader takes as: pruned meanwhile."""
    machine = Machine()
    written(machine)

    async def look(env: Env) -> None:
        async with opened(env) as node:
            with pytest.raises(NotFound):
                await node.store.read_body(1 << 50)
            with pytest.raises(NotFound):
                await node.store.read_heads(1 << 50)

    machine.run(look)
