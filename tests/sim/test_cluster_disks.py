"""What a simulated cluster demands of the machine whose disk was damaged: `cluster_disks.py`."""

from __future__ import annotations

import pytest
import trio

from duckrow.node.damage import Damage
from duckrow.node.events import ERROR
from duckrow.node.places import offset_of, place, segment_of
from duckrow.node.segmentreads import SECTOR_BYTES
from duckrow.node.segments import segment_file
from sim import cluster_disks
from sim.cluster_disks import owed
from sim.cluster_plan import ClusterPlan
from sim.cluster_scenario import _Run
from sim.pairkit import Split, play
from sim.repairkit import KEEP, busy
from sim.world import World

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


def test_a_machine_whose_disk_does_not_give_a_sector_may_tell_of_damage_until_all_is_whole() -> (
    None
):
    """It was not given twice, to a reader and to who looked at it then, and nothing had been flipped (seed 921506)."""
    world = World(1)
    run = _Run(world, ClusterPlan(victim=2))
    fate, machine, problems = run.hands[0], run.machines[2], run.seen.problems
    media = machine.bridge_host.media

    async def script(_: World) -> None:
        fate.heal_net()
        fate.revive()
        with trio.fail_after(10):
            while not all(each.up and each.active for each in run.machines.values()):
                await trio.sleep(0.1)
        assert machine.bridge is not None
        assert media.pages("row/00000001.seg").cache.size <= SECTOR_BYTES
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fate.disks.strike, "read-error", 0.5, machine)
            await trio.sleep(0.1)
            media.read_eio = 1  # the first one had a reader
            machine.bridge.repair.look_at([1])
        assert [note.split()[2] for note in machine.notes[-2:]] == ["damaged", "mended"]
        assert not problems

        machine._note(ERROR, "commands_lost what=nothing flipped")
        run.machines[1]._note(ERROR, "damaged what=another machine")
        await fate.disks.until_mended()
        machine._note(ERROR, "damaged what=what was whole again")
        assert [text.partition("=")[2] for text in problems] == [
            "nothing flipped",
            "another machine",
            "what was whole again",
        ]

    world.run(script)


def test_what_a_disk_has_not_given_is_to_be_whole_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If nothing had been flipped, too, nobody looked."""
    monkeypatch.setattr(cluster_disks, "MENDED_SECONDS", 3.0)
    world = World(1)
    run = _Run(world, ClusterPlan(victim=2))
    fate, machine = run.hands[0], run.machines[2]

    async def script(_: World) -> None:
        machine.stays_dead = True
        await fate.disks.strike("read-error", 0.0, machine)
        await fate.disks.until_mended()
        assert run.seen.problems == ["not-mended: machine 2: ['it was never read']"]

    world.run(script)
