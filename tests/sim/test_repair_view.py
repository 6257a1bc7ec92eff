"""Damage at the end of a row hides what of the view is in it, and not for longer than it has to (X1)."""

from __future__ import annotations

import trio

from duckrow.bridge.process import Bridge
from duckrow.node.places import offset_of, segment_of
from duckrow.node.segments import index_file, segment_file
from sim.imagekit import aged, forgotten
from sim.pairkit import Split, play
from sim.repairkit import KEEP, busy, segments


def test_who_came_back_after_damage_speaks_for_all_that_it_acked_since() -> None:
    """X1: It had been inexact until its next start, so the last copy never went on."""

    async def acts(split: Split, *ids: int) -> None:
        with trio.fail_after(20):
            while any(id_ not in split.bridges for id_ in ids) or not all(
                split.bridges[id_].status().active and split.bridges[id_].status().members == ids
                for id_ in ids
            ):
                await trio.sleep(0.1)

    async def script(split: Split) -> None:
        await busy(split)
        await trio.sleep(1)
        split.kill("m", 3)
        media = split.world.host("m3").media
        for name in segments(split, 3)[-3:]:
            for offset in range(600, len(media.content(name)) - 300, 300):
                media.flip(name, offset)
        split.start_bridge(3)
        await split.until()
        assert split.bridges[3].journal.recovered.damaged
        split.kill("m", 1)
        await acts(split, 2, 3)
        split.kill("m", 2)
        split.start_bridge(1)
        await acts(split, 1, 3)
        split.start_bridge(2)
        await split.until()
        await split.end()

    play(6, script, keep=KEEP)


def test_what_hides_the_end_of_the_row_and_is_dropped_elsewhere_goes_with_an_image() -> None:
    """It could not be counted what of the view is in the row, so nothing was ever added to it again."""

    async def script(split: Split) -> None:
        await busy(split)
        split.bridges[3].store.pin(999, 0, ())  # all of it: as if the node had not let it go yet
        await trio.sleep(1)
        end = split.bridges[3].store.position
        split.kill("m", 3)
        with trio.fail_after(60):
            while min(split.bridges[each].store.floor for each in (1, 2)) <= end + 5:
                await trio.sleep(0.2)
        media = split.world.host("m3").media
        for name in segments(split, 3)[-3:]:
            for offset in range(600, len(media.content(name)) - 300, 300):
                media.flip(name, offset)
        split.start_bridge(3)
        await trio.sleep(0.5)
        assert split.bridges[3].journal.recovered.delivered is None
        await split.until()
        assert sum("m3 image_taken" in note for note in split.notes) == 1
        await split.end()

    for seed in (1, 2):
        play(seed, script, keep=100)


async def restarted(split: Split, id_: int) -> Bridge:
    split.start_bridge(id_)
    with trio.fail_after(5):
        while split.bridges.get(id_) is None:
            await trio.sleep(0.01)
    return split.bridges[id_]


def test_damage_in_what_an_image_left_behind_hides_nothing_of_the_view() -> None:
    """What is staged keeps its segment, which nothing can put back: nothing was added to the row for ever."""

    async def script(split: Split) -> None:
        await busy(split)
        net, media = split.world.net, split.world.host("m3").media
        net.partition(["m3"], ["m1", "m2"])
        await trio.sleep(3)
        held = max(split.bridges[3].store.chronicle.held)
        split.kill("n", 3)
        await forgotten(split, 1, 2)
        net.heal()
        store = split.bridges[3].store
        with trio.fail_after(30):
            while store.chronicle.base is None or store.position == store.chronicle.base.position:
                await trio.sleep(0.001)
        net.partition(["m3"], ["m1", "m2"])
        await trio.sleep(1)
        split.kill("m", 3)
        store = (await restarted(split, 3)).store  # what it has is durable, and known to be
        assert held in store.chronicle.held
        assert store.images.left_behind(held)
        end = await store.place_of(store.position)
        split.kill("m", 3)
        disk = await media.disk().folder("row")
        for name in (segment_file(held - 1), index_file(held - 1)):
            await disk.unlink(name)  # it was dropped
        media.flip(f"row/{segment_file(held)}", 100)
        media.flip(f"row/{segment_file(segment_of(end))}", offset_of(end) + 20)
        bridge = await restarted(split, 3)
        bridge.repair.look_at([held])
        await trio.sleep(1)
        assert bridge.member.standing.uncounted
        assert any("cannot be put back" in each for each in bridge.repair.told())
        net.heal()
        split.start_node(3)
        await split.until()
        await split.end()

    play(1, script, keep=100)


def test_who_cannot_count_the_view_for_what_nobody_has_any_more_takes_an_image() -> None:
    """It was away for long, and its end is damaged: it had followed nobody, and taken nothing, for ever."""

    async def script(split: Split) -> None:
        await aged(split, 3)
        await split.stop_node(3)  # with a snapshot of the end: it asks for nothing before it
        split.kill("m", 3)
        await forgotten(split, 1, 2)
        name, media = segments(split, 3)[-1], split.world.host("m3").media
        size = len(media.content(name))
        for offset in range(size // 4, size * 3 // 4, 300):
            media.flip(name, offset)
        split.start_bridge(3)
        split.start_node(3)
        with trio.fail_after(5):
            while split.bridges.get(3) is None:
                await trio.sleep(0.01)
        assert split.bridges[3].member.standing.uncounted
        await split.until()
        await trio.sleep(1)
        assert sum("m3 image_taken" in note for note in split.notes) == 1
        await split.end()

    for seed in (1, 2):
        play(seed, script, keep=100)
