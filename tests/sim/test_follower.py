"""The cursor of the node beside a bridge: past from the store, live from memory, nothing twice."""

from __future__ import annotations

import random

import trio

from duckrow.bridge.follower import LIVE_BYTES_MAX, Follower
from duckrow.node.env import Env
from duckrow.node.row import Bundle, Item
from sim.alone import Machine
from sim.storekit import command


def item(position: int, size: int = 10) -> Item:
    return Item(position, 0, 0, Bundle(1, 1, position, position, 0, (command(position, size),)))


class Store:
    def __init__(self, end: int) -> None:
        self.end, self.reads = end, 0

    async def read(self, position: int, _limit: int) -> list[Item]:
        self.reads += 1
        await trio.sleep(0.001)
        return [item(p) for p in range(position, min(position + 5, self.end + 1))]


def positions(items: list[Item]) -> list[int]:
    return [each.position for each in items]


def test_the_past_is_read_and_what_is_placed_meanwhile_comes_once() -> None:
    async def main(_env: Env) -> None:
        store = Store(12)
        follower = Follower(3, 12, store.read)
        found = positions(await follower.take())
        for position in (13, 14):
            store.end = position
            assert follower.placed(item(position))
        while found[-1] < 14:
            found += positions(await follower.take())
        reads = store.reads
        assert follower.placed(item(15))
        found += positions(await follower.take())
        assert store.reads == reads, "what was just placed comes from memory"
        assert found == list(range(4, 16))

    Machine(1).run(main)


def test_it_waits_for_the_next_item() -> None:
    async def main(_env: Env) -> None:
        follower = Follower(0, 0, Store(0).read)
        found: list[int] = []

        async def take() -> None:
            found.extend(positions(await follower.take()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            await trio.sleep(1)
            assert found == []
            follower.placed(item(1))
            follower.wake()
        assert found == [1]

    Machine(1).run(main)


def test_what_it_has_already_is_told_and_not_given_again() -> None:
    """A row that lost its end with the power gets it back from the others."""

    async def main(_env: Env) -> None:
        store = Store(9)
        follower = Follower(7, 5, store.read)
        assert [follower.placed(item(position)) for position in (6, 7, 8)] == [False, False, True]
        assert positions(await follower.take()) == [8]

    Machine(1).run(main)


def test_what_waits_for_it_is_bounded_and_read_again() -> None:
    async def main(_env: Env) -> None:
        store = Store(0)
        follower = Follower(0, 0, store.read)
        held = 0
        for position in range(1, 31):
            store.end = position
            follower.placed(item(position, 1 << 20))
            held = max(held, follower._live_bytes)
        assert held <= LIVE_BYTES_MAX
        found: list[int] = []
        while not found or found[-1] < 30:
            found += positions(await follower.take())
        assert found == list(range(1, 31))
        assert store.reads > 3

    Machine(1).run(main)


def test_in_any_order_of_taking_and_placing_nothing_is_missed_or_doubled() -> None:
    for seed in range(20):
        rng = random.Random(seed)

        async def main(_env: Env, rng: random.Random = rng) -> None:
            end = rng.randrange(20)
            store = Store(end)
            after = rng.randrange(end + 1)
            follower = Follower(after, end, store.read)
            found = [after]

            async def place() -> None:
                for position in range(end + 1, end + 40):
                    await trio.sleep(rng.choice([0, 0.0005, 0.003]))
                    store.end = position
                    follower.placed(item(position))
                    if rng.random() < 0.5:
                        found.extend(positions(follower.take_nowait()))
                    follower.wake()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(place)
                while found[-1] < end + 39:
                    await trio.sleep(rng.choice([0, 0.0005, 0.01]))
                    with trio.move_on_after(0.1):  # all of it may have gone the other way
                        found += positions(await follower.take())
            assert found == list(range(after, end + 40))

        Machine(seed).run(main)
