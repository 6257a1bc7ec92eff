"""Damage in what no other machine has whole any more goes with what it lies in, or with an image."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio

from duckrow.node import columns, makers
from duckrow.node.errors import Damaged
from duckrow.node.places import segment_of
from duckrow.node.reading import Pull
from duckrow.node.segments import segment_file
from duckrow.node.values import position_of
from sim.clusterkit import BODY
from sim.pairkit import Split, play
from sim.repairkit import KEEP, busy, segments


def test_damage_in_what_all_others_have_dropped_goes_with_it() -> None:
    async def script(split: Split) -> None:
        await busy(split)
        bridge, mine = split.bridges[3], 999
        (number,) = [s.number for s in bridge.store.segments()][1:2]
        bridge.store.pin(mine, 1 << 62, (number,))
        last = bridge.store.segments()[1].last
        with trio.fail_after(60):
            while min(each.store.floor for each in split.bridges.values()) <= last:
                await trio.sleep(0.2)
        name, media = segments(split, 3)[0], split.world.host("m3").media
        media.flip(name, media.content(name).index(BODY, 1500))
        bridge.repair.suspect(await bridge.store.scrub())
        with trio.fail_after(20):
            while len(bridge.repair.told()) < 2:
                await trio.sleep(0.1)
        bridge.store.unpin(mine)
        with trio.fail_after(60):
            while bridge.repair.told():
                await trio.sleep(0.2)
        assert number not in [s.number for s in bridge.store.segments()]
        await split.end()

    play(9, script, keep=100)


KEPT = columns.encode([b"kept" * 100])


async def thinned(split: Split) -> tuple[int, str]:
    """A segment that only machine 3 has whole, and its file; KEPT is alive in it, what came with that is not."""
    split.start_all()
    await split.until()
    node, store = split.nodes[1], split.bridges[3].store
    both = [("kept", KEPT), ("rides", columns.encode([bytes(20_000)]))]
    turns = [makers.Turn(node.fresh_pid(), seq=1, time=1) for _ in both]
    with trio.fail_after(10):
        while split.nodes[3].state.topic("rides") is None:
            await trio.sleep(0.1)
        node.row.submit(
            [makers.produce(turn, *each, 1) for turn, each in zip(turns, both, strict=True)]
        )
        while split.nodes[3].state.topic("kept") is None:
            await trio.sleep(0.1)
    (number,) = [s.number for s in store.segments() if s.bytes > 20_000]
    store.pin(999, 0, ())  # all of it: as if the node had not let it go yet
    with trio.fail_after(60):
        while not all(number in rewritten(split, each) for each in (1, 2)):
            await trio.sleep(0.2)
    return number, f"row/{segment_file(number)}"


def rewritten(split: Split, id_: int) -> list[int]:
    return [each.number for each in split.bridges[id_].store.segments() if each.rewritten]


def test_what_is_alive_in_an_item_that_others_keep_only_a_part_of_comes_with_an_image() -> None:
    """Nobody can give the item any more, but all have the entry: it was told as damaged for ever."""

    async def script(split: Split) -> None:
        _, name = await thinned(split)
        media = split.world.host("m3").media
        split.producing = False
        await trio.sleep(1)
        media.flip(name, media.content(name).index(KEPT) + 9)
        split.kill("n", 3)  # it has what came last in memory
        split.start_node(3)
        read = list[bytes]()
        with trio.fail_after(60):
            while not read:
                await split.until()
                with suppress(Damaged), trio.move_on_after(5):
                    pulled = await split.nodes[3].reader.pull(Pull("kept", limit=10))
                    read = [bytes(batch.body) for batch in pulled.batches]
                await trio.sleep(0.2)
        assert read == [KEPT]
        await split.until()
        await split.end()

    split = play(13, script, keep=100)
    assert sum("m3 image_taken" in note for note in split.notes) == 1


def test_what_is_pruned_and_pinned_for_the_archive_here_takes_no_image() -> None:
    """No image has it, and one would take all the rest that is pinned here, too."""
    body = columns.encode([b"pinned" * 100])

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        node, store = split.nodes[1], split.bridges[3].store
        turns = [makers.Turn(node.fresh_pid(), seq=1, time=1) for _ in range(3)]
        node.row.submit(
            [
                makers.create(turns[0], "own", {"archive": 1}),
                makers.produce(turns[1], "own", body, 1),
                makers.prune(turns[2], "own", 1),
            ]
        )
        store.pin(999, 0, ())  # so nothing of it is rewritten
        with trio.fail_after(10):
            while not all(has_pruned(split, id_) for id_ in (1, 2, 3)):
                await trio.sleep(0.1)
        topic = split.nodes[3].state.topic("own")
        assert topic is not None
        id_, row = topic.id, split.nodes[3].numbers.at_position(topic.id, 0, 0)
        assert row is not None
        for each in (1, 2):
            split.nodes[each].pins.tell("own", id_, 0, 1)
        with trio.fail_after(60):
            while not all(
                split.bridges[each].store.floor > position_of(id_) + 3 for each in (1, 2)
            ):
                await trio.sleep(0.2)
        name, media = f"row/{segment_file(segment_of(row.place))}", split.world.host("m3").media
        media.flip(name, media.content(name).index(body) + 9)
        split.kill("n", 3)  # it has what came last in memory
        split.start_node(3)
        with trio.fail_after(60):
            while 3 not in split.nodes:
                await trio.sleep(0.1)
        for _ in range(3):
            with pytest.raises(Damaged):
                await split.nodes[3].reader.pull(Pull("own", kept=True))
            await trio.sleep(1)
        await split.end()

    split = play(13, script, keep=100)
    assert not any("m3 image_taken" in note for note in split.notes)


def has_pruned(split: Split, id_: int) -> bool:
    topic = split.nodes[id_].state.topic("own")
    return topic is not None and split.nodes[id_].state.partition(topic.id, 0)[:2] == (2, 1)


def test_damage_that_a_rewrite_has_left_out_is_told_no_more() -> None:
    """It was, and its item was asked for, until the next start."""

    async def script(split: Split) -> None:
        number, name = await thinned(split)
        bridge, media = split.bridges[3], split.world.host("m3").media
        media.flip(name, media.content(name).index(bytes(10_000)) + 5_000)
        bridge.repair.look_at([number])
        with trio.fail_after(20):
            while len(bridge.repair.told()) < 2:
                await trio.sleep(0.1)
        bridge.store.unpin(999)
        with trio.fail_after(60):
            while number not in rewritten(split, 3):
                await trio.sleep(0.2)
        await trio.sleep(0.5)
        assert bridge.repair.told() == []
        await split.end()

    split = play(13, script, keep=100)
    assert not any("m3 image_taken" in note for note in split.notes)


def test_a_node_without_state_gets_an_image_for_what_is_damaged_and_dropped_elsewhere() -> None:
    """It reads the row from the beginning, which nobody else has any more: it had waited for ever (760212)."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        store = split.bridges[3].store
        store.pin(999, 0, ())  # all of it: as if the node had not let it go yet
        with trio.fail_after(60):
            while len(store.segments()) < 3 or (
                min(split.bridges[each].store.floor for each in (1, 2)) <= store.segments()[1].last
            ):
                await trio.sleep(0.2)
        assert store.floor == 1
        name, media = segments(split, 3)[1], split.world.host("m3").media
        for offset in range(600, len(media.content(name)), 500):
            media.flip(name, offset)
        split.kill("n", 3)
        split.lose_disk("n3")
        split.start_node(3)
        with trio.fail_after(5):
            while not any("m3 image_taken" in note for note in split.notes):
                await trio.sleep(0.1)
        await split.until()
        await trio.sleep(1)
        assert sum("m3 image_taken" in note for note in split.notes) == 1
        await split.end()

    for seed in (10, 11, 12):
        play(seed, script, keep=100)


def test_what_cannot_be_put_back_is_replaced_by_one_image_and_not_looked_at_again() -> None:
    """The damaged file may still be there: nothing of the row lies in it any more."""

    async def script(split: Split) -> None:
        await busy(split)
        split.kill("m", 3)
        name, media = segments(split, 3)[1], split.world.host("m3").media
        for path in (name, name.replace(".seg", ".pos")):
            for offset in range(0, len(media.content(path)), 20):
                media.flip(path, offset)
        split.start_bridge(3)
        with trio.fail_after(60):
            while not any("m3 image_taken" in note for note in split.notes):
                await trio.sleep(0.1)
        await split.until()
        split.producing = False  # or it would go, like all that is pruned
        for start in range(2):
            await trio.sleep(10)
            assert name in segments(split, 3), "or there would be nothing to look at"
            assert split.bridges[3].repair.told() == []
            assert sum("m3 image_taken" in note for note in split.notes) == 1, start
            split.kill("m", 3)
            split.start_bridge(3)
            await split.until()
        await split.end()

    play(11, script, keep=KEEP)
