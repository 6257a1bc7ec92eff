"""What a simulated cluster demands of the machine whose disk was damaged: `cluster_disks.py`."""

from __future__ import annotations

import trio

from duckrow.node.damage import Damage
from duckrow.node.places import offset_of, place, segment_of
from duckrow.node.segments import segment_file
from sim.cluster_disks import owed
from sim.pairkit import Split, play

from .test_repair import KEEP, busy

INSIDE = 48  # a record: behind what each begins with


async def damaged(split: Split, where: int) -> list[Damage]:
    """What a scrub tells of a flipped bit of the record there, at machine 3."""
    name = f"row/{segment_file(segment_of(where))}"
    split.world.host("m3").media.flip(name, offset_of(where) + INSIDE)
    return await split.bridges[3].store.scrub()


async def until_whole(split: Split) -> None:
    bridge = split.bridges[3]
    with trio.fail_after(30):
        while found := await bridge.store.scrub():
            bridge.repair.suspect(found)
            await trio.sleep(0.1)
    assert not bridge.repair.wounds


def test_damage_that_belongs_to_no_position_is_to_be_mended() -> None:
    async def script(split: Split) -> None:
        await busy(split)
        bridge = split.bridges[3]
        found = await damaged(split, place(bridge.store.segments()[0].number, 0))
        assert [each.last for each in found] == [0]
        assert owed(bridge, found) == found
        await until_whole(split)
        await split.end()

    play(1, script, keep=KEEP)


def test_damage_is_to_be_mended_whose_position_a_later_segment_records() -> None:
    """A scrub does not tell of that position; after the next start its bridge did (seed 790094)."""

    async def script(split: Split) -> None:
        await busy(split)
        bridge = split.bridges[3]
        store = bridge.store
        early = next(each for each in store.segments() if each.reach > each.last)
        where = await store.place_of(early.reach)
        assert segment_of(where) == early.number
        found = await damaged(split, where)
        assert max(each.last for each in found) < early.reach
        floor, store.chronicle.floor = store.floor, early.reach
        assert owed(bridge, found) == found
        store.chronicle.floor = floor
        await until_whole(split)
        await split.end()

    play(1, script, keep=KEEP)


def test_damage_before_the_floor_is_to_be_mended_unless_nobody_else_has_what_was_there() -> None:
    """Entries that are kept lie there, too; all others had one of them (seed 760125)."""

    async def script(split: Split) -> None:
        await busy(split)
        split.world.net.partition(["m3"], ["m1", "m2"])
        bridge = split.bridges[3]
        store = bridge.store
        segment = store.segments()[1]
        position = segment.first + 5
        where = await store.place_of(position)
        assert segment_of(where) == segment.number
        found = await damaged(split, where)
        floor, store.chronicle.floor = store.floor, position + 1
        assert owed(bridge, found) == found, "nobody was asked"
        store.chronicle.floor = floor
        bridge.repair.suspect(found)
        with trio.fail_after(20):
            while not bridge.repair.asking.hopeless:
                await trio.sleep(0.1)
        assert owed(bridge, found) == found
        store.chronicle.floor = position + 1
        assert owed(bridge, found) == []
        store.chronicle.floor = floor
        split.world.net.heal()
        await until_whole(split)
        await split.end()

    play(1, script, keep=KEEP)


def test_what_all_neighbours_have_dropped_is_let_go_though_it_is_kept_here() -> None:
    """Its neighbour had dropped what the machine had not let go yet (seed 790572)."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        bridge = split.bridges[3]
        store = bridge.store
        store.pin(999, 0, ())  # all of it: as if the node had not let it go yet
        others = [split.bridges[each].store for each in (1, 2)]
        with trio.fail_after(60):
            while min(each.floor for each in others) <= store.segments()[0].reach:
                await trio.sleep(0.2)
        found = await damaged(split, await store.place_of(store.segments()[0].last))
        bridge.repair.suspect(found)
        with trio.fail_after(30):
            while not bridge.repair.asking.hopeless:
                await trio.sleep(0.1)
        assert store.floor == 1
        assert owed(bridge, found) == []
        await split.end()

    play(1, script, keep=100)
