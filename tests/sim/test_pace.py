"""How long others wait: for many commands at once, for a rewrite, for a sync, for the next start."""

from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio

from duckrow.node import columns, makers
from duckrow.node.alone import Options, open_node
from duckrow.node.commands import Command
from duckrow.node.env import Env
from duckrow.node.errors import Refused
from duckrow.node.housekeeping import HousekeepingOptions
from duckrow.node.keeper import EFFECTS_AT_ONCE, Keeper
from duckrow.node.limits import BUNDLE_COMMANDS_MAX, SEGMENT_BYTES
from duckrow.node.lonerow import LARGE
from duckrow.node.producer import Producer
from duckrow.node.storeoptions import LEVELS, WRITE, StoreOptions

from .alone import Machine
from .grouping import grouped
from .nodekit import PID, SMALL, at_level, run
from .park import SimCrashed


def produces(count: int, size: int = 1) -> list[Command]:
    body = columns.encode([bytes(size)])
    turns = [makers.Turn(PID, seq, 1, seq - 1, 0) for seq in range(1, count + 1)]
    return [makers.produce(turn, "t", body, 1) for turn in turns]


async def turns_during(work: Callable[[], Awaitable[object]]) -> int:
    """How often another task got its turn."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await work()
        nursery.cancel_scope.cancel()
    return turns


@pytest.mark.parametrize("level", LEVELS)
def test_many_commands_at_once_are_applied_in_turns_with_others(level: str) -> None:
    most = EFFECTS_AT_ONCE // 2
    store = StoreOptions(
        level=level, soft_reserve_fraction=0.0, segment_bytes=1 << 20, bundle_commands=most
    )
    options = attrs.evolve(SMALL, store=store)
    count = 20 * EFFECTS_AT_ONCE

    async def work(node: Keeper) -> None:
        async def order() -> None:
            await node.calls.wait(node.submit(last, *before))

        *before, last = produces(count)
        # The other may have come late to the first.
        assert await turns_during(order) >= count // (EFFECTS_AT_ONCE + most) - 1
        assert node.state.partition(node.state.topics.rows["t"].id, 0).last == count

    run(Machine(), work, options)


def test_a_large_bundle_is_written_in_one_turn_and_applied_in_the_next() -> None:
    async def work(node: Keeper) -> None:
        between = False

        async def watch() -> None:
            nonlocal between
            while True:
                await trio.lowlevel.checkpoint()
                between |= node.row.store.position > node.state.position

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            *before, last = produces(LARGE)
            await node.calls.wait(node.submit(last, *before))
            nursery.cancel_scope.cancel()
        assert between

    run(Machine(), work, at_level(WRITE))


@pytest.mark.parametrize("count", [0, BUNDLE_COMMANDS_MAX + 1])
def test_a_bundle_has_as_many_commands_as_a_place_can_tell_apart(count: int) -> None:
    with pytest.raises(Refused, match="commands: they may have 1 to 16,384"):
        StoreOptions(bundle_commands=count)


def test_those_whom_a_sync_answers_share_the_next_one_with_those_who_came_meanwhile() -> None:
    assert grouped(producers=32).produces_per_sync > 28


def test_one_producer_alone_waits_for_one_sync_a_produce() -> None:
    found = grouped(producers=1, each=20, sync_seconds=0.005)

    assert found.syncs == 20
    assert found.seconds == pytest.approx(20 * 0.005)


def test_a_producer_that_comes_during_a_sync_waits_for_the_next_one_only() -> None:
    assert grouped(producers=2, each=20).syncs <= 22


@pytest.mark.parametrize("commands", [1, 10])
def test_a_restart_has_only_so_many_commands_to_apply_again(commands: int) -> None:
    """However large the bundles are that they came in."""
    options = Options(
        store=at_level(WRITE).store,
        housekeeping=HousekeepingOptions(snapshot_items=10**6, snapshot_commands=100),
    )
    machine = Machine()

    async def first(env: Env) -> None:
        async with open_node(env, options) as node:
            made = produces(400)
            for start in range(0, 400, commands):
                *before, last = made[start : start + commands]
                await node.calls.wait(node.submit(last, *before))
                await trio.sleep(0.01)
            machine.media.crash_before(1)

    with pytest.raises(SimCrashed):
        machine.run(first)
    newest = max(path for path in machine.media.paths() if path.startswith("state/snapshot-"))

    async def look(node: Keeper) -> int:
        return node.state.position - 1  # less the mark of its view

    replayed = run(machine, look, options) - int(newest.removeprefix("state/snapshot-"))
    assert replayed <= 110 // commands


def test_what_a_restart_applied_again_counts_for_the_next_snapshot() -> None:
    """Or a node that is killed again and again would have more and more to apply."""
    options = attrs.evolve(
        SMALL,
        store=attrs.evolve(SMALL.store, segment_bytes=SEGMENT_BYTES),
        housekeeping=HousekeepingOptions(snapshot_items=100),
    )
    machine = Machine()

    async def life(env: Env) -> None:
        async with open_node(env, options) as node:
            producer = Producer(node)
            for _ in range(60):
                await producer.produce("t", [b"v"])
            await trio.sleep(1)
            machine.media.crash_before(1)

    for _ in range(2):
        with pytest.raises(SimCrashed):
            machine.run(life)

    assert any(path.startswith("state/snapshot-") for path in machine.media.paths())
