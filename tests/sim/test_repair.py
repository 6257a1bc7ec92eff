"""Damage at one machine of a cluster is made good from the others, while it goes on."""

from __future__ import annotations

import trio

from duckrow.bridge.messages import Ask
from duckrow.bridge.repair import ANSWER_BYTES
from duckrow.node.row import Item
from sim.clusterkit import BODY
from sim.pairkit import Split, everything, play
from sim.repairkit import KEEP, busy, segments, until_mended


def test_a_reader_waits_until_what_it_wants_is_mended() -> None:
    async def script(split: Split) -> None:
        await busy(split)
        name, media = segments(split, 3)[1], split.world.host("m3").media
        for offset in range(600, len(media.content(name)), 500):
            media.flip(name, offset)
        split.kill("n", 3)  # it has what it read last in memory
        split.start_node(3)
        await split.until()
        assert await everything(split.nodes[3]), "all of it is whole"
        await until_mended(split, 3)
        assert await split.bridges[3].store.scrub() == []
        await split.end()

    play(1, script, keep=KEEP)


def test_what_a_start_finds_is_mended_while_it_goes_on() -> None:
    """The machine was killed, and what it wrote last is damaged: it is a stranger, and comes back."""

    async def script(split: Split) -> None:
        await busy(split)
        split.kill("m", 3)
        media = split.world.host("m3").media
        for name in segments(split, 3)[-2:]:
            media.flip(name, 1500)
        before = len(split.results)
        split.start_bridge(3)
        await split.until()
        await trio.sleep(1)
        assert len(split.results) > before
        bridge = split.bridges[3]
        bridge.repair.suspect(await bridge.store.scrub())  # a start reads what is new only
        with trio.fail_after(20):
            while await bridge.store.scrub():
                await trio.sleep(0.2)
        await split.end()

    for seed in (2, 3):
        play(seed, script, keep=KEEP)


def test_who_waits_for_what_the_disk_gives_at_another_try_waits_no_longer() -> None:
    """Nothing was damaged, so nobody looked again: the node, or who follows, stood still for ever."""

    async def script(split: Split) -> None:
        await busy(split)
        store, media = split.bridges[3].store, split.world.host("m3").media
        position, tries = store.segments()[1].first, 6

        async def read() -> list[Item]:
            nonlocal tries
            tries -= 1
            media.read_eio = 1000 if tries > 0 else 0
            try:
                return await store.read_items(position, 1)
            finally:
                media.read_eio = 0

        with trio.fail_after(10):
            (item,) = await split.bridges[3].readers.insist(position, read)
        assert item.position == position
        await split.end()

    play(1, script, keep=KEEP)


def test_a_node_that_waits_for_what_nobody_has_keeps_its_bridge_from_nothing() -> None:
    """It waits for a change, and does not ask again and again (the seeds would stand still)."""

    async def script(split: Split) -> None:
        await busy(split)
        split.world.net.partition(["m3"], ["m1", "m2"])
        name, media = segments(split, 3)[1], split.world.host("m3").media
        for offset in range(600, len(media.content(name)), 500):
            media.flip(name, offset)
        split.kill("n", 3)
        split.lose_disk("n3")
        split.start_node(3)  # it reads the row from the beginning
        with trio.fail_after(20):
            while len(split.bridges[3].repair.told()) < 2:
                await trio.sleep(0.1)
        steps = split.world.steps
        await trio.sleep(1)
        assert split.world.steps - steps < 5000
        split.world.net.heal()
        await until_mended(split, 3, seconds=90)
        await split.until()
        await split.end()

    play(8, script, keep=KEEP)


def test_what_nobody_reads_is_read_by_the_scrub_of_its_bridge_and_mended() -> None:
    async def script(split: Split) -> None:
        await busy(split)
        split.producing = False
        split.world.host("m3").media.flip(segments(split, 3)[1], 1500)
        await until_mended(split, 3, seconds=300)
        assert await split.bridges[3].store.scrub() == []
        await split.end()

    split = play(8, script, keep=KEEP, scrub_seconds=100)
    assert any("m3 scrubbed" in note for note in split.notes)


def test_what_is_asked_for_again_over_a_slow_link_does_not_cost_the_link() -> None:
    """The first answer is still on its way, and the next would only wait behind it."""

    async def script(split: Split) -> None:
        await busy(split)
        split.producing = False
        await trio.sleep(1)
        bridge = split.bridges[3]
        asked, waiting = tuple(range(bridge.store.position - 8, bridge.store.position)), 0
        split.world.net.cut("m3", "m1")
        for _ in range(60):
            for _ in range(100):
                bridge.repair.heard(1, Ask(asked))
            await trio.sleep(0.001)
            waiting = max(waiting, bridge.links.waiting_bytes(1))
        assert ANSWER_BYTES < waiting < ANSWER_BYTES + 10_000
        split.world.net.heal()
        await split.until()
        await split.end()
        assert not any("link_too_slow" in note for note in split.notes)

    play(1, script, keep=KEEP)


def test_who_asks_for_what_is_still_to_come_hears_nothing() -> None:
    """The bridge that was asked ended."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        bridge = split.bridges[3]
        bridge.repair.heard(1, Ask((bridge.store.position + 1_000,)))
        await trio.sleep(1)
        assert split.world.host("m3").alive
        await split.end()

    play(1, script)


def test_a_file_that_is_written_to_is_mended_once_the_disk_has_room_again() -> None:
    """It has to be sealed first, which a full disk does not let: nobody had tried that again."""

    async def script(split: Split) -> None:
        await busy(split)
        split.producing = False
        await trio.sleep(1)
        bridge, media = split.bridges[3], split.world.host("m3").media
        name = segments(split, 3)[-1]
        media.flip(name, media.content(name).rindex(BODY))
        before, media.capacity = media.capacity, media.used
        bridge.repair.suspect(await bridge.store.scrub())
        with trio.fail_after(20):
            while not any("m3 repair_waits" in note for note in split.notes):
                await trio.sleep(0.1)
        media.capacity = before
        await until_mended(split, 3)
        await split.until()
        await split.end()

    play(1, script, keep=KEEP)
