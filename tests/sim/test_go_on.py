"""What a client orders while it is alone: ordered, applied and answered in its own turn."""

import pytest
import trio

from duckrow.node import makers
from duckrow.node.alone import LoneKeeper
from duckrow.node.calls import Told
from duckrow.node.commands import Command
from duckrow.node.effects import Code, Result
from duckrow.node.keeper import SHOWN_FIRST, Keeper
from duckrow.node.row import Bundle
from duckrow.node.state import State
from duckrow.node.storeoptions import FSYNC, WRITE

from .alone import Machine
from .nodekit import Owner, at_level, run, values
from .test_keeper import produce


def submit(node: Keeper, told: Told, *commands: Command) -> None:
    for command in commands:
        node.calls.tell(node.submit(command, later=True), told)


def test_who_is_alone_is_answered_in_his_own_turn() -> None:
    async def work(node: Keeper) -> None:
        await node.barrier()
        told: list[Result | Exception] = []
        for seq in (1, 2):
            submit(node, told.append, produce(seq, b"%d" % seq))
            node.go_on(alone=True)
            assert len(told) == seq, "without a checkpoint"

        await node.order(produce(3, b"3"))
        assert [result.first for result in told if isinstance(result, Result)] == [1, 2]
        assert await values(node, "t") == [b"1", b"2", b"3"]

    run(Machine(), work, at_level(WRITE))


def test_no_two_bundles_have_one_name_whoever_ordered_them() -> None:
    """(view, origin, s), and the time that goes with it."""

    async def work(node: LoneKeeper) -> None:
        first = await node.barrier() + 1
        for seq in (1, 2):
            submit(node, lambda _outcome: None, produce(seq))
            node.go_on(alone=True)
        await node.order(produce(3))
        submit(node, lambda _outcome: None, produce(4))
        node.go_on(alone=True)
        items = await node.row.store.read_items(first, 1 << 20)
        bundles = [item.content for item in items if isinstance(item.content, Bundle)]

        assert [bundle.s for bundle in bundles] == [*range(first - 1, first + 3)]
        assert [bundle.lamport for bundle in bundles] == [bundle.s for bundle in bundles]

    run(Machine(), work, at_level(WRITE))


def test_what_one_client_sent_together_is_one_item() -> None:
    async def work(node: Keeper) -> None:
        before = await node.barrier()
        told: list[Result | Exception] = []
        submit(node, told.append, produce(1), produce(2), produce(3))
        node.go_on(alone=True)

        assert len(told) == 3
        assert (node.state.position, node.tally.bundles) == (before + 1, before)

    run(Machine(), work, at_level(WRITE))


def test_who_is_not_alone_shares_the_next_item_with_the_others() -> None:
    async def work(node: Keeper) -> None:
        before = await node.barrier()
        told: list[Result | Exception] = []
        submit(node, told.append, produce(1))
        node.go_on(alone=False)
        submit(node, told.append, produce(2))
        node.go_on(alone=True)  # what came before him comes first
        assert told == []

        await node.barrier()
        assert len(told) == 2
        assert node.state.position == before + 1, "the barrier, too"

    run(Machine(), work, at_level(WRITE))


def test_at_level_fsync_nobody_is_answered_before_the_sync() -> None:
    async def work(node: Keeper) -> None:
        await node.barrier()
        told: list[Result | Exception] = []
        submit(node, told.append, produce(1))
        node.go_on(alone=True)
        assert told == []

        await node.barrier()
        assert len(told) == 1

    run(Machine(), work, at_level(FSYNC))


def test_while_a_batch_waits_for_room_all_goes_by_the_keeper() -> None:
    """What is numbered then may be a batch whose body has to be looked for."""

    async def work(node: Keeper) -> None:
        owner = Owner(node, b"o" * 16)
        await owner.order(makers.create, "t", {"max_entries": 1, "when_full": "block"})
        told: list[Result | Exception] = []
        submit(node, told.append, produce(1), produce(2))
        node.go_on(alone=True)
        assert [each.code for each in told if isinstance(each, Result)] == [
            Code.ORDERED,
            Code.WAITING,
        ]

        del told[:]
        submit(node, told.append, produce(1, topic="other"))
        node.go_on(alone=True)
        assert told == []
        await owner.order(makers.prune, "t", 1)
        assert len(told) == 2, "the batch that waited, and the one behind it"

    run(Machine(), work, at_level(WRITE))


def test_a_new_segment_is_begun_by_the_keeper() -> None:
    async def work(node: Keeper) -> None:
        await node.barrier()
        told: list[Result | Exception] = []
        later = 0
        for seq in range(1, 61):
            submit(node, told.append, produce(seq, bytes(500)))
            node.go_on(alone=True)
            if len(told) < seq:
                later += 1
                await node.barrier()
            assert len(told) == seq

        segments = node.row.store.segments()
        assert later == len(segments) - 1 > 2, "only where a segment was full"
        assert len(await values(node, "t")) == 60

    run(Machine(), work, at_level(WRITE))


@pytest.mark.parametrize("readers", [0, 1, SHOWN_FIRST, SHOWN_FIRST + 1])
def test_it_says_whether_readers_were_woken_who_are_to_come_first(readers: int) -> None:
    async def work(node: Keeper) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(readers):
                nursery.start_soon(node.waiters.wait, "t")
            await trio.sleep(0.01)
            submit(node, lambda _told: None, produce(1))
            assert node.go_on(alone=True) == (0 < readers <= SHOWN_FIRST)

    run(Machine(), work, at_level(WRITE))


def test_a_defect_met_in_the_turn_of_a_client_ends_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(node: Keeper) -> None:
        await node.barrier()

        def broken(*_args: object, **_named: object) -> State:
            raise AssertionError("a defect")

        monkeypatch.setattr("duckrow.node.keeper.apply", broken)
        submit(node, lambda _told: None, produce(1))
        node.go_on(alone=True)
        await trio.sleep(1)
        raise AssertionError("the node went on")

    with pytest.raises(AssertionError, match="a defect"):
        run(Machine(), work, at_level(WRITE))
