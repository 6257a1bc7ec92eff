"""What a client orders: pipelined, bounded, and answered once each is known."""

from __future__ import annotations

import trio

from duckrow.node import makers
from duckrow.node.calls import Key, Told
from duckrow.node.effects import Code
from duckrow.node.limits import MIB
from duckrow.node.requests import Outcome, Verb

from .wire import PID, There, serve


def test_orders_are_pipelined_and_all_are_answered() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        references = [await wire.order(wire.batch([b"%d" % n])) for n in range(500)]
        answers = [await wire.answer() for _ in references]

        assert [answer[0] for answer in answers] == references
        assert [answer[2][1] for answer in answers] == [*range(1, 501)]

    serve(work)


def test_orders_are_not_taken_in_without_end_before_some_are_answered() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        there.world.hosts["a"].media.sync_latency = 1.0
        most, tell = 0, there.keeper.calls.tell

        def counted(key: Key, told: Told, *, accepted: bool = False) -> None:
            nonlocal most
            tell(key, told, accepted=accepted)
            most = max(most, len(there.keeper.calls))

        there.keeper.calls.tell = counted  # type: ignore[method-assign]
        for _ in range(50):
            await wire.order(wire.batch([b"x" * MIB]))
        for _ in range(50):
            assert (await wire.answer())[1] == Outcome.DONE

        assert 1 < most <= 17

    serve(work)


def test_into_the_last_space_of_a_disk_goes_only_what_makes_room() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        await wire.produce(b"v")
        media = there.world.hosts["a"].media
        media.capacity = media.used
        await wire.order(wire.batch([bytes(20_000)]))
        assert (await wire.failure())[1] == "full"

        await wire.order(makers.skip(makers.Turn(PID, 1, 1), "t"))  # asks what became of it
        _, outcome, fields, _ = await wire.answer()
        assert (outcome, fields[:2]) == (Outcome.DONE, [Code.ORDERED, 1])
        turn = makers.Turn(b"o" * 16, 1)
        for command in (makers.skip(turn, "t"), makers.create(turn, "u"), makers.barrier(turn)):
            await wire.order(command)
            _, code, text = await wire.failure()
            assert (code, text[:40]) == ("full", "the disk is full, and its reserve is for")
        makes_room = [
            makers.prune(makers.Turn(b"o" * 16, 1), "t", 1),
            makers.configure(makers.Turn(b"o" * 16, 2), "t", {"max_entries": 1}),
            makers.delete(makers.Turn(b"o" * 16, 3), "t"),
        ]
        for command in makes_room:
            await wire.order(command)
            _, outcome, fields, _ = await wire.answer()
            assert (outcome, fields[0]) == (Outcome.DONE, Code.ORDERED)

    serve(work)


def test_a_client_that_leaves_with_orders_under_way_leaves_nothing_and_they_are_done() -> None:
    async def work(there: There) -> None:
        wire = await there.connect()
        for n in range(10):
            await wire.order(wire.batch([b"%d" % n]))
        await wire.stream.aclose()
        await trio.sleep(1)

        assert (len(there.keeper.calls), there.server.sessions) == (0, {})
        topic = there.keeper.state.topic("t")
        assert topic is not None
        assert there.keeper.state.partition(topic.id, 0).last == 10

    serve(work)


def test_a_batch_that_waits_for_room_is_told_twice_and_forgotten_when_its_client_leaves() -> None:
    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        turn = makers.Turn(b"o" * 16, 1)
        await wire.order(makers.create(turn, "t", {"max_entries": 1, "when_full": "block"}))
        await wire.answer()
        await wire.produce(b"first")
        for _ in range(2):
            await wire.order(wire.batch([b"more"]))
            assert (await wire.answer())[1:3:1][0] == Outcome.MORE
        await other.order(makers.prune(makers.Turn(b"o" * 16, 2), "t", 1))
        await other.answer()
        _, outcome, fields, _ = await wire.answer()
        assert (outcome, fields[:2]) == (Outcome.DONE, [Code.ORDERED, 2])
        await wire.stream.aclose()
        await trio.sleep(1)

        assert len(there.keeper.calls) == 0

    serve(work)


def test_a_receipt_is_waited_for_and_forgotten_when_its_client_leaves() -> None:
    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        await wire.produce(b"one")
        waits = await other.send(Verb.RECEIPT, "t", 0, PID, 1, 2, True)
        never = await other.send(Verb.RECEIPT, "t", 0, PID, 1, 9, True)
        await trio.sleep(1)
        await wire.produce(b"two")
        reference, outcome, fields, _ = await other.answer()
        assert (reference, outcome, fields[:2]) == (waits, Outcome.DONE, [Code.ORDERED, 2])
        assert never != waits
        await other.stream.aclose()
        await trio.sleep(1)

        assert len(there.keeper.calls) == 0

    serve(work)


def test_a_receipt_waits_on_where_a_copy_of_its_batch_found_an_earlier_one_missing() -> None:
    """D3: nothing was done, and the same batch comes again behind what was missing."""

    async def work(there: There) -> None:
        wire, other = await there.connect(), await there.connect()
        await wire.produce(b"one")
        second, third = wire.batch([b"two"]), wire.batch([b"three"])
        waits = await other.send(Verb.RECEIPT, "t", 0, PID, 1, 3, True)
        await trio.sleep(1)
        await wire.order(third)
        assert (await wire.answer())[2][0] == Code.GAP
        for command in (second, third):
            await wire.order(command)
            assert (await wire.answer())[2][0] == Code.ORDERED
        reference, outcome, fields, _ = await other.answer()

        assert (reference, outcome, fields[:2]) == (waits, Outcome.DONE, [Code.ORDERED, 3])

    serve(work)
