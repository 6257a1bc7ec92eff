"""The producer in the node's own process: whatever goes wrong with a batch, the next one goes on."""

import pytest
import trio

from duckrow.node import makers
from duckrow.node.entries import entries_of
from duckrow.node.errors import Conflict, Full, LimitExceeded, NoQuorum, NotFound, Refused
from duckrow.node.keeper import Keeper
from duckrow.node.producer import Producer
from duckrow.node.reading import Pull

from .alone import Machine
from .nodekit import Owner, run, values


def test_a_batch_that_cannot_be_made_costs_no_turn() -> None:
    async def work(node: Keeper) -> None:
        producer = Producer(node)
        await producer.produce("t", [b"one"])

        with pytest.raises(Refused, match="at least one entry"):
            await producer.produce("t", [])
        with pytest.raises(LimitExceeded):
            await producer.produce("t", [bytes(2 << 20)])
        with pytest.raises(NotFound, match="partition"):
            await producer.produce("t", [b"-"], partition=3)
        with pytest.raises(Refused, match="topic name"):
            await producer.produce("t/", [b"-"])

        assert (await producer.produce("t", [b"two"])).first == 2

    run(Machine(), work)


def test_after_a_full_disk_a_producer_goes_on() -> None:
    """Those that were refused before they were taken, and those that did not fit when written."""
    machine = Machine()

    async def work(node: Keeper) -> None:
        producer = Producer(node)
        refused: list[str] = []

        async def produce(value: bytes) -> None:
            try:
                await producer.produce("t", [value])
            except Full as error:
                refused.append(str(error))

        await produce(b"one")
        machine.media.capacity = machine.media.used
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(produce, bytes(20_000))
        await produce(b"-")
        assert len(refused) == 6

        machine.media.capacity = 1 << 40
        await trio.sleep(5.0)
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(produce, b"more")
        assert len(refused) == 6
        assert await values(node, "t") == [b"one", *[b"more"] * 5]

    run(machine, work)


def test_too_much_at_once_is_refused_and_what_follows_is_not() -> None:
    machine = Machine()
    machine.media.sync_latency = 0.01

    async def work(node: Keeper) -> None:
        producer = Producer(node)
        done: list[int] = []

        async def produce(size: int) -> None:
            try:
                done.append((await producer.produce("t", [bytes(size)])).first)
            except NoQuorum:
                done.append(0)

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(produce, 1 << 20)

        assert 0 in done
        assert (await producer.produce("t", [b"more"])).first == 100 - done.count(0) + 1

    run(machine, work)


def test_who_stops_waiting_for_room_gets_none() -> None:
    async def work(node: Keeper) -> None:
        owner = Owner(node)
        await owner.order(makers.create, "t", {"max_entries": 1, "when_full": "block"})
        producer = Producer(node)
        await producer.produce("t", [b"one"])

        with trio.move_on_after(3.0) as scope:
            await producer.produce("t", [b"late"])
        assert scope.cancelled_caught
        await owner.order(makers.prune, "t", 1)

        assert (await producer.produce("t", [b"two"])).first == 2
        assert await values(node, "t") == [b"two"]

    run(Machine(), work)


@pytest.mark.parametrize("after", [0.0, 0.05, 0.1])
def test_who_stops_waiting_loses_nothing_of_what_follows(after: float) -> None:
    """Before the batch is written, while it is, and in the moment of its answer."""
    machine = Machine()
    machine.media.sync_latency = 0.1

    async def work(node: Keeper) -> None:
        producer = Producer(node)
        with trio.move_on_after(after):
            await producer.produce("t", [b"perhaps"])
        numbers = [(await producer.produce("t", [b"%d" % each])).first for each in range(3)]

        there = await values(node, "t")
        assert there[-3:] == [b"0", b"1", b"2"]
        assert numbers == list(range(len(there) - 2, len(there) + 1))

    run(machine, work)


def test_hundreds_who_stop_waiting_together_hold_nobody_up() -> None:
    """On a full disk: batches that are refused, and skips of some of them that came too early."""
    machine = Machine(seed=3)
    machine.media.sync_latency = 0.01

    async def work(node: Keeper) -> None:
        producer = Producer(node)
        await producer.produce("t", [b"first"])
        machine.media.capacity = machine.media.used + 100_000
        refused: list[int] = []

        async def produce(number: int) -> None:
            with trio.move_on_after(0.0 if number % 3 else 1.0):
                try:
                    await producer.produce("t", [bytes(3_000)])
                except Full:
                    refused.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(produce, number)
        assert refused
        machine.media.capacity = 1 << 40
        await trio.sleep(5.0)

        before = len(await values(node, "t"))
        assert (await producer.produce("t", [b"last"])).first == before + 1

    run(machine, work)


def test_a_topic_that_was_deleted_is_told_once() -> None:
    async def work(node: Keeper) -> None:
        owner = Owner(node)
        producer = Producer(node)
        for _ in range(3):
            await producer.produce("t", [b"old"])
        await owner.order(makers.delete, "t")

        with pytest.raises(Conflict, match="not known"):
            await producer.produce("t", [b"-"])
        assert (await producer.produce("t", [b"new"])).first == 1
        assert (await producer.produce("t", [b"newer"])).first == 2

    run(Machine(), work)


def test_a_producer_gives_keys_and_ids_and_says_which_number_it_expects() -> None:
    async def work(node: Keeper) -> None:
        producer, other = Producer(node), Producer(node)
        first = await producer.produce("t", [b"a", b"b"], keys=[b"k", None], ids=[b"1", b"2"])
        again = await other.produce("t", [b"a", b"b"], ids=[b"1", b"2"])
        assert (first.first, again.first, again.duplicate) == (1, 1, True)

        assert (await producer.produce("t", [b"c"], expect_last=2)).first == 3
        with pytest.raises(Conflict, match="the last number is 3"):
            await producer.produce("t", [b"d"], expect_last=2)
        found = entries_of("t", await node.reader.pull(Pull("t", 0)))
        assert [(entry.key, entry.value) for entry in found] == [
            (b"k", b"a"),
            (None, b"b"),
            (None, b"c"),
        ]

    run(Machine(), work)
