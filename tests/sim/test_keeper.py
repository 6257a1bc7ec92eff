"""The keeper: answers, wakes, and reminds the row of the time."""

import attrs
import pytest
import trio

from duckrow.node import columns, makers
from duckrow.node.alone import open_node
from duckrow.node.capture import state_hash
from duckrow.node.commands import Command
from duckrow.node.effects import Code, Result
from duckrow.node.env import Env
from duckrow.node.errors import Full, NoQuorum, Timeout
from duckrow.node.keeper import SHOWN_FIRST, Keeper
from duckrow.node.producer import Producer
from duckrow.node.reading import Pull

from .alone import Machine
from .nodekit import PID, SMALL, Owner, run, values


def produce(seq: int, value: bytes = b"v", topic: str = "t") -> Command:
    turn = makers.Turn(PID, seq, 1, seq - 1, 0)
    return makers.produce(turn, topic, columns.encode([value]), 1)


def test_an_order_is_answered_with_what_became_of_it() -> None:
    async def work(node: Keeper) -> None:
        result = await node.order(produce(1))

        assert (result.code, result.first, result.count) == (Code.ORDERED, 1, 1)
        assert await values(node, "t") == [b"v"]

    run(Machine(), work)


def test_everybody_who_asks_for_the_same_command_gets_the_same_numbers() -> None:
    async def work(node: Keeper) -> None:
        results: list[Result] = []

        async def ask() -> None:
            results.append(await node.order(produce(1)))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)

        assert [result.first for result in results] == [1, 1, 1]
        assert await values(node, "t") == [b"v"]

    run(Machine(), work)


@pytest.mark.parametrize("readers", [1, SHOWN_FIRST, SHOWN_FIRST + 1])
@pytest.mark.parametrize("seed", range(4))
def test_a_few_readers_that_wait_are_shown_what_came_before_it_is_answered(
    readers: int, seed: int
) -> None:
    async def work(node: Keeper) -> None:
        seen: list[str] = []

        async def read() -> None:
            await node.waiters.wait("t")
            seen.append("shown")

        async with trio.open_nursery() as nursery:
            for _ in range(readers):
                nursery.start_soon(read)
            await trio.sleep(0.01)
            node.on_turn = lambda: seen.append("answered") if node.state.topics else None
            await node.order(produce(1))
            await trio.sleep(0.01)

        shown = seen[: seen.index("answered")]
        assert len(shown) == (readers if readers <= SHOWN_FIRST else 0)

    run(Machine(seed), work)


def test_whoever_stops_waiting_leaves_nothing_behind_and_can_ask_again() -> None:
    async def work(node: Keeper) -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await node.order(produce(1))

        assert len(node.calls) == 0
        again = await node.order(produce(1))
        assert (again.code, again.first) == (Code.ORDERED, 1)
        assert await values(node, "t") == [b"v"]

    run(Machine(), work)


def test_a_batch_that_waits_for_room_is_answered_when_it_has_numbers() -> None:
    async def work(node: Keeper) -> None:
        owner = Owner(node, b"o" * 16)
        await owner.order(makers.create, "t", {"max_entries": 1, "when_full": "block"})
        await node.order(produce(1, b"first"))
        results: list[Result] = []

        async def second() -> None:
            results.append(await node.order(produce(2, b"second")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(second)
            await trio.sleep(0.01)
            assert results == []
            await owner.order(makers.prune, "t", 1)

        assert [(result.code, result.first) for result in results] == [(Code.ORDERED, 2)]

    run(Machine(), work)


def test_entries_grow_old_although_nothing_else_happens() -> None:
    async def work(node: Keeper) -> None:
        await Owner(node).order(makers.create, "t", {"max_age": 3_000_000})
        producer = Producer(node)
        await producer.produce("t", [b"old"])
        await trio.sleep(2.5)
        assert await values(node, "t") == [b"old"]

        await trio.sleep(1.0)

        assert await values(node, "t") == []

    run(Machine(), work)


def test_a_shorter_age_reminds_earlier() -> None:
    async def work(node: Keeper) -> None:
        owner = Owner(node)
        await owner.order(makers.create, "t", {"max_age": 3_600_000_000})
        await Producer(node).produce("t", [b"old"])
        await trio.sleep(1.0)

        await owner.order(makers.configure, "t", {"max_age": 2_000_000})

        await trio.sleep(1.5)
        assert await values(node, "t") == []

    run(Machine(), work)


def test_a_clock_that_is_set_back_delays_aging_and_nothing_else() -> None:
    machine = Machine()

    async def work(node: Keeper) -> None:
        await Owner(node).order(makers.create, "t", {"max_age": 1_000_000})
        await Producer(node).produce("t", [b"old"])
        machine.skew_us = -5_000_000
        await trio.sleep(3.0)
        assert await values(node, "t") == [b"old"]

        await trio.sleep(4.0)

        assert await values(node, "t") == []

    run(machine, work)


def test_a_clock_that_is_set_ahead_is_noticed_by_what_waits_to_grow_old() -> None:
    machine = Machine()

    async def work(node: Keeper) -> None:
        await Owner(node).order(makers.create, "t", {"max_age": 3_600_000_000})
        await Producer(node).produce("t", [b"old"])
        await trio.sleep(10.0)
        machine.skew_us = 3_600_000_000

        await trio.sleep(2.0)

        assert await values(node, "t") == []

    run(machine, work)


def test_an_idle_node_orders_nothing() -> None:
    async def work(node: Keeper) -> None:
        await Producer(node).produce("t", [b"v"])
        before = node.state.position

        await trio.sleep(3600)

        assert node.state.position == before

    run(Machine(), work)


def test_a_barrier_comes_after_everything_that_was_ordered_before() -> None:
    async def work(node: Keeper) -> None:
        result = await Producer(node).produce("t", [b"v"])

        assert await node.barrier() > result.position

    run(Machine(), work)


def test_what_the_node_wants_is_done_although_the_row_refused_it_before() -> None:
    async def work(node: Keeper) -> None:
        turn = makers.Turn(PID, 1, 1, 0, 0)
        settings = makers.settings(turn, {"create": "on-subscribe"})
        await node.order(settings)
        node.row.submit([produce(1, bytes(9000))])
        with pytest.raises(NoQuorum, match="wait for the disk"):
            await node.barrier()
        await trio.sleep(1.0)

        await node.subscribe("rides")

        assert node.state.topic("rides") is not None

    run(Machine(), work, attrs.evolve(SMALL, store=attrs.evolve(SMALL.store, pending_bytes=9000)))


def test_what_the_node_wants_is_done_although_the_row_has_forgotten_its_lane() -> None:
    """A node orders little itself, so its lane may be the one that applied nothing for longest."""

    async def work(node: Keeper) -> None:
        turn = makers.Turn(PID, 1, 1, 0, 0)
        settings = makers.settings(turn, {"create": "on-subscribe", "lanes_max": 1})
        await node.order(settings)
        await node.subscribe("one")
        await node.order(makers.barrier(makers.Turn(b"q" * 16, 1)))
        await node.subscribe("two")
        await node.barrier()

        assert {*node.state.topics.rows} == {"one", "two"}
        assert len(node.state.lanes) == 1

    run(Machine(), work)


def test_while_a_hash_of_the_state_is_made_others_get_their_turns_and_snapshots_wait() -> None:
    """As often as may be, beside a snapshot every forty items."""

    async def work(node: Keeper) -> None:
        turns, hashes = [0], dict[int, set[bytes]]()

        async def hash_on() -> None:
            while True:
                before = turns[0]
                position, value, _ = await node.hashed()
                if len(node.state.topics) == 300 and turns[0] > before:
                    hashes.setdefault(position, set()).add(value)
                await trio.lowlevel.checkpoint()

        async def take_turns() -> None:
            while True:
                turns[0] += 1
                await trio.lowlevel.checkpoint()

        await trio.sleep(1.0)
        for n in range(300):
            await node.order(produce(1, topic=f"topic-{n}"))
        snapshots = node.tally.snapshot_position
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hash_on)
            nursery.start_soon(take_turns)
            for n in range(100):
                await node.order(produce(2, topic=f"topic-{n}"))
            nursery.cancel_scope.cancel()

        assert len(hashes) > 10
        assert all(len(values) == 1 for values in hashes.values())
        assert node.tally.snapshot_position > snapshots
        assert (await node.hashed())[:2] == (node.state.position, state_hash(node.state))

    run(Machine(), work)


def test_a_full_disk_refuses_a_produce_for_certain() -> None:
    machine = Machine()

    async def work(node: Keeper) -> None:
        await node.order(produce(1))
        machine.media.capacity = machine.media.used

        with pytest.raises(Full, match="reserve"):
            await node.order(produce(2, bytes(20_000)))

        machine.media.capacity = 1 << 40
        await trio.sleep(5.0)
        assert (await node.order(produce(2))).first == 2

    run(machine, work)


def test_who_still_waits_when_the_node_stops_is_told() -> None:
    told: list[Exception] = []

    async def main(env: Env) -> None:
        async def wait_in_vain() -> None:
            try:
                await node.order(produce(2))
            except Timeout as error:
                told.append(error)

        async with trio.open_nursery() as nursery, open_node(env, SMALL) as node:
            owner = Owner(node, b"o" * 16)
            await owner.order(makers.create, "t", {"max_entries": 1, "when_full": "block"})
            await node.order(produce(1))
            nursery.start_soon(wait_in_vain)
            await trio.sleep(0.01)

    Machine().run(main)
    assert ["is stopping" in str(error) for error in told] == [True]


def test_what_was_not_answered_when_the_node_stopped_may_be_there_afterwards() -> None:
    """So it is told `Timeout`, which says that nobody knows."""
    machine = Machine()
    machine.media.sync_latency = 1.0

    async def main(env: Env) -> None:
        async def produce_late() -> None:
            with pytest.raises(Timeout):
                await node.order(produce(1))

        async with trio.open_nursery() as nursery, open_node(env, SMALL) as node:
            nursery.start_soon(produce_late)
            await trio.sleep(0.5)

    machine.run(main)

    async def look(node: Keeper) -> None:
        assert await values(node, "t") == [b"v"]

    run(machine, look)


def test_after_its_end_a_node_takes_nothing_and_says_so() -> None:
    async def main(env: Env) -> None:
        async with open_node(env, SMALL) as node:
            await node.order(produce(1))
        with pytest.raises(NoQuorum, match="stopping"):
            await node.order(produce(2))

    Machine().run(main)


def test_ten_thousand_wait_and_only_those_of_the_topic_wake() -> None:
    async def work(node: Keeper) -> None:
        woken: list[int] = []

        async def wait(number: int) -> None:
            pulled = await node.reader.pull(Pull(f"t{number % 1000}", 0, wait=1000.0))
            assert pulled.batches
            woken.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(10_000):
                nursery.start_soon(wait, number)
            await trio.sleep(0.01)
            await Producer(node).produce("t7", [b"v"])
            await trio.sleep(0.01)

            assert sorted(woken) == list(range(7, 10_000, 1000))
            assert node.waiters.statistics().woken == 10
            nursery.cancel_scope.cancel()

        assert node.waiters.statistics().waiting == 0

    run(Machine(), work)
