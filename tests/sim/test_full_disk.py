"""A disk that is full to the last byte: what is dead makes room, and everything goes on by itself."""

from __future__ import annotations

import attrs
import pytest
import trio

from duckrow.node import makers
from duckrow.node.alone import LoneKeeper, Options
from duckrow.node.errors import Full
from duckrow.node.housekeeping import HousekeepingOptions
from duckrow.node.keeper import Keeper
from duckrow.node.limits import KIB
from duckrow.node.producer import Producer
from duckrow.node.rowstore import RowStore
from duckrow.node.scrub import at_once
from duckrow.node.storeoptions import StoreOptions

from .alone import Machine
from .nodekit import Owner, run, values
from .pages import BLOCK

PATIENCE = 120.0  # seconds
MINUTE_US = 60_000_000
DEAD = 10**9  # above every number
RESERVE = 64 * KIB


def options(segment_bytes: int) -> Options:
    return Options(
        store=StoreOptions(
            segment_bytes=segment_bytes,
            followable_bytes=segment_bytes,
            soft_reserve_bytes=RESERVE,
            soft_reserve_fraction=0.0,
            hard_reserve_bytes=RESERVE,
            window_bytes=64 * KIB,
        ),
        housekeeping=HousekeepingOptions(
            snapshot_items=300, snapshot_bytes=4 * segment_bytes, followable_bytes=segment_bytes
        ),
    )


async def fill(node: Keeper, size: int, count: int) -> None:
    producer = Producer(node)
    if node.state.topic("kept") is None:
        await producer.produce("kept", [b"kept"])
    for _ in range(count):
        await producer.produce("t", [bytes(size)])


async def is_refused(node: Keeper) -> bool:
    try:
        await Producer(node).produce("t", [bytes(100)])
    except Full:
        return True
    return False


async def make_room(node: Keeper, how: str) -> None:
    owner = Owner(node, node.fresh_pid())
    if how == "pruned":
        await owner.order(makers.prune, "t", DEAD)
    elif how == "deleted":
        await owner.order(makers.delete, "t")
    elif how == "limited":
        await owner.order(makers.configure, "t", {"max_entries": 1})


async def goes_on(node: Keeper, machine: Machine) -> None:
    assert not await is_refused(node), f"{node.row.status().disk}, {machine.media.used:,} are used"
    assert await values(node, "kept") == [b"kept"]
    assert node.row.status().disk == "ok"


SEGMENTS = [16 * KIB, 64 * KIB, 200 * KIB]


@pytest.mark.parametrize("segment", SEGMENTS)
@pytest.mark.parametrize("how", ["pruned", "deleted", "limited", "aged"])
@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_a_disk_that_others_filled_to_the_last_byte_has_room_again(
    segment: int, how: str, blocks: int
) -> None:
    machine = Machine(blocks)

    async def work(node: Keeper) -> None:
        if how == "aged":
            await Owner(node).order(makers.create, "t", {"max_age": MINUTE_US})
        await fill(node, 1_000, 1_000)
        machine.media.capacity = machine.media.used + blocks * BLOCK
        while not await is_refused(node):
            pass
        assert node.row.status().disk != "ok"
        await make_room(node, how)
        await trio.sleep(PATIENCE)
        await goes_on(node, machine)

    run(machine, work, options(segment))
    run(machine, lambda node: goes_on(node, machine), options(segment))


def test_segments_without_an_index_file_get_it_on_a_full_disk() -> None:
    """However they came to have none: without one nothing goes, and nothing else ends it."""
    machine = Machine(1)

    async def work(node: Keeper) -> None:
        media, store = machine.media, node.row.store
        assert isinstance(store, RowStore)
        await fill(node, 1_000, 50)
        media.sync_latency = 0.01
        while not store.unindexed:
            await fill(node, 1_000, 1)
        media.capacity = media.used
        while not await is_refused(node):
            pass
        assert store.unindexed
        assert node.row.status().disk == "hard"
        await make_room(node, "pruned")
        await trio.sleep(PATIENCE)
        assert not store.unindexed

    run(machine, work, options(16 * KIB))


def test_what_grows_old_bit_by_bit_on_a_full_disk_costs_an_item_a_second() -> None:
    """Their clock commands would take the space that the command needs which makes room."""
    machine = Machine(1)

    async def work(node: Keeper) -> None:
        await Owner(node).order(makers.create, "t", {"max_age": MINUTE_US})
        for _ in range(50):
            await fill(node, 1_000, 1)
            await trio.sleep(0.01)
        machine.media.capacity = machine.media.used
        while not await is_refused(node):
            pass
        await trio.sleep(MINUTE_US / 1e6 - 1)
        before = node.state.position
        await trio.sleep(10)
        topic = node.state.topic("t")
        assert topic is not None
        assert node.state.partition(topic.id, 0).first > 40
        assert node.state.position - before < 10

    run(machine, work, options(16 * KIB))


@pytest.mark.parametrize("how", ["the archive is switched off", "the archiver comes"])
@pytest.mark.parametrize("blocks", [0, 3])
def test_a_disk_that_is_full_of_what_was_kept_for_an_archive_has_room_again(
    how: str, blocks: int
) -> None:
    machine = Machine(blocks)

    async def work(node: Keeper) -> None:
        policy = {"archive": 10, "max_entries": 20}
        await Owner(node).order(makers.create, "t", policy)
        await fill(node, 1_000, 1_000)
        machine.media.capacity = machine.media.used + blocks * BLOCK
        while not await is_refused(node):
            pass
        await make_room(node, "pruned")
        await trio.sleep(PATIENCE)
        assert await is_refused(node), "what is pruned stays"
        if how == "the archiver comes":
            (pin,) = node.pins.listed(("", -1), 2)
            node.pins.tell("t", pin.topic_id, 0, pin.last)
        else:
            await Owner(node, node.fresh_pid()).order(makers.configure, "t", {"archive": None})
        await trio.sleep(PATIENCE)
        await goes_on(node, machine)

    run(machine, work, options(16 * KIB))
    run(machine, lambda node: goes_on(node, machine), options(16 * KIB))


@pytest.mark.parametrize("segment", SEGMENTS)
@pytest.mark.parametrize("size", [300, 1_000, 9_000])
def test_a_disk_that_the_node_filled_has_room_again(segment: int, size: int) -> None:
    machine = Machine()
    machine.media.capacity = 1_000 * KIB

    async def work(node: Keeper) -> None:
        for _ in range(3):
            with pytest.raises(Full):
                await fill(node, size, 10**6)
            await make_room(node, "pruned")
            await trio.sleep(PATIENCE)
        assert not await is_refused(node), node.row.status().disk

    run(machine, work, options(segment))


@pytest.mark.parametrize("blocks", range(0, 40, 3))
def test_wherever_the_disk_ends_while_the_node_works_it_goes_on(blocks: int) -> None:
    """At any write of anything: a record, a segment, an index, a snapshot."""
    machine = Machine(blocks)

    async def work(node: Keeper) -> None:
        await fill(node, 500, 1_200)
        machine.media.capacity = machine.media.used + blocks * BLOCK
        with pytest.raises(Full):
            await fill(node, 500, 10**6)
        machine.media.capacity = machine.media.used  # what was the soft reserve has gone, too
        await make_room(node, "pruned")
        await trio.sleep(PATIENCE)
        await goes_on(node, machine)

    run(machine, work, options(32 * KIB))


@pytest.mark.parametrize("damaged", [False, True])
def test_without_one_free_block_the_only_snapshot_is_relied_on_if_it_can_be_read(
    damaged: bool,
) -> None:
    machine = Machine(24)

    async def work(node: Keeper) -> None:
        producer = Producer(node)
        for _ in range(48):
            await producer.produce("t", [bytes(12_000)])
        machine.media.capacity = machine.media.used + 5 * BLOCK
        while not await is_refused(node):
            pass
        await trio.sleep(1)
        machine.media.capacity = machine.media.used
        (only,) = [path for path in machine.media.paths() if path.startswith("state/")]
        if damaged:
            machine.media.flip(only)
        before = len(node.row.store.segments())
        await make_room(node, "pruned")
        await trio.sleep(PATIENCE)
        if damaged:
            assert len(node.row.store.segments()) == before
        else:
            assert not await is_refused(node)

    run(machine, work, options(64 * KIB))


def test_a_snapshot_that_is_damaged_makes_room_for_one_that_is_not() -> None:
    """The other one is from before nearly all there is, so what lies behind it is no room."""
    machine, chosen = Machine(25), options(64 * KIB)
    small_reserve = attrs.evolve(
        chosen.store, hard_reserve_bytes=8 * KIB, soft_reserve_bytes=8 * KIB
    )
    at_ends = attrs.evolve(chosen.housekeeping, snapshot_items=10_000, snapshot_bytes=1 << 30)
    chosen = attrs.evolve(chosen, store=small_reserve, housekeeping=at_ends)

    async def many_topics(node: Keeper) -> None:
        for number in range(290):
            await Producer(node).produce(f"topic-{number}", [b""])

    async def much(node: Keeper) -> None:
        await fill(node, 4_000, 250)

    async def full(node: Keeper) -> None:
        while not await is_refused(node):
            pass
        await make_room(node, "pruned")
        await trio.sleep(PATIENCE)
        await goes_on(node, machine)

    run(machine, many_topics, chosen)
    run(machine, much, chosen)
    older, newest = (path for path in machine.media.paths() if path.startswith("state/snapshot-"))
    assert machine.media.pages(older).cache.size > 4 * 8 * KIB
    machine.media.flip(newest)
    machine.media.capacity = machine.media.used + 4 * BLOCK
    run(machine, full, chosen)
    assert newest not in machine.media.paths()


def test_snapshots_that_a_scrub_finds_damaged_meanwhile_are_made_again() -> None:
    machine = Machine(1)
    met: list[int] = []

    async def work(node: LoneKeeper) -> None:
        await fill(node, 1_000, 1_000)
        machine.media.capacity = machine.media.used + BLOCK
        while not await is_refused(node):
            pass
        barrier = node.barrier

        async def damaged_meanwhile() -> int:
            for path in machine.media.paths():
                if path.startswith("state/snapshot-") and not met:
                    machine.media.flip(path)
            met.append(len(await node.row.scrubs.scrubs[-1](at_once)))
            return await barrier()

        setattr(node, "barrier", damaged_meanwhile)  # noqa: B010
        await make_room(node, "pruned")
        await trio.sleep(PATIENCE)
        assert met[0], "there was a barrier, and nothing to rely on behind it"
        await goes_on(node, machine)

    run(machine, work, options(16 * KIB))


def test_a_restart_in_the_middle_of_it_does_not_matter() -> None:
    machine = Machine()

    async def first(node: Keeper) -> None:
        await fill(node, 1_000, 1_000)
        machine.media.capacity = machine.media.used
        while not await is_refused(node):
            pass
        await make_room(node, "pruned")

    async def second(node: Keeper) -> None:
        await trio.sleep(PATIENCE)
        await goes_on(node, machine)

    run(machine, first, options(64 * KIB))
    run(machine, second, options(64 * KIB))
