"""Batches that get their numbers while it is damaged where they lie."""

from __future__ import annotations

import pytest
import trio

from duckrow.node import makers
from duckrow.node.bridgedrow import BridgedRow
from duckrow.node.errors import Damaged
from duckrow.node.places import offset_of, segment_of
from duckrow.node.reading import Pull
from duckrow.node.records import RecordKind, decode, seed_of
from duckrow.node.scrub import at_once
from duckrow.node.segments import segment_file
from sim.clusterkit import BODY
from sim.imagekit import forgotten
from sim.nodekit import keep_no_places
from sim.pairkit import Split, play


async def with_damaged_places(split: Split, count: int = 1) -> None:
    """Machine 3 is down; what comes next there numbers batches whose places it cannot read."""
    split.start_all()
    await split.until()
    split.producing = False
    await trio.sleep(1)
    node, other = split.nodes[1], split.nodes[2]
    pid, found = node.fresh_pid(), list[int]()
    for seq in range(1, count + 1):
        turn = makers.Turn(pid, seq, time=1)
        stage = makers.stage(turn, "w", BODY, 3, writer=b"w", batch=1, task=seq)
        found.append((await other.order(stage)).position)
        for _ in range(3):
            await node.barrier()
    await trio.sleep(0.5)
    await split.stop_node(3)
    turn = makers.Turn(pid, 1, time=1)
    await node.order(makers.commit(turn, b"w", 1, [(position, 0) for position in found]))
    await trio.sleep(1)
    store, media = split.bridges[3].store, split.world.host("m3").media
    places, uuid = [await store.place_of(position) for position in found], store.uuid
    split.kill("m", 3)
    for place in places:
        number, offset, lost = segment_of(place), offset_of(place), 0
        content = media.content(f"row/{segment_file(number)}")
        while lost < 2:  # of two that came in another order than that of their names
            record = decode(content, 0, offset, seed_of(uuid, number))
            assert record is not None
            if record.kind == RecordKind.ITEM:
                media.flip(f"row/{segment_file(number)}", offset + 20)
                lost += 1
            offset = record.end


@pytest.mark.parametrize(("away", "restart"), [(0, False), (15, False), (15, True)])
def test_a_batch_that_gets_its_numbers_while_its_place_is_damaged_can_be_read(
    away: int, restart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start needs that place before a neighbour is linked, and nobody asks for it again: it was damaged for ever.
    If all are away for long, it goes on without, and takes an image when they are back; after a restart
    when somebody wants to read the batch.
    """
    keep_no_places(monkeypatch)

    async def script(split: Split) -> None:
        await with_damaged_places(split)
        split.world.net.partition(["m3"] if away else [], ["m1", "m2"])
        split.start_bridge(3)
        split.start_node(3)
        await trio.sleep(away)
        if restart:
            await split.stop_node(3)
            split.kill("m", 3)
            split.start_bridge(3)
            split.start_node(3)
        split.world.net.heal()
        await split.until()
        if restart:
            row = split.nodes[3].row
            assert isinstance(row, BridgedRow)
            assert not await row.caches[0](at_once)  # no file of that number is gone
            with pytest.raises(Damaged):
                await split.nodes[3].reader.pull(Pull("w", after=0))
        if away:
            with trio.fail_after(10):
                while split.replaced != [3]:
                    await trio.sleep(0.1)
            await split.until()
        pulled = await split.nodes[3].reader.pull(Pull("w", after=0))
        assert [bytes(batch.body) for batch in pulled.batches] == [BODY]
        assert any("m3 image_taken" in note for note in split.notes) == bool(away)
        await split.end()

    play(1, script)


def test_a_batch_whose_place_a_snapshot_says_can_be_read_though_the_row_cannot_say_it() -> None:
    async def script(split: Split) -> None:
        await with_damaged_places(split)
        split.world.net.partition(["m3"], ["m1", "m2"])
        split.start_bridge(3)
        split.start_node(3)
        with trio.fail_after(5):
            while 3 not in split.nodes:
                await trio.sleep(0.1)
        pulled = await split.nodes[3].reader.pull(Pull("w", after=0))
        assert [bytes(batch.body) for batch in pulled.batches] == [BODY]
        assert not any("n3 index_lacks" in note for note in split.notes)

    play(1, script)


def test_a_start_waits_once_for_neighbours_and_not_for_each_place_that_is_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each had cost ten seconds, and many batches may get their numbers at once."""
    keep_no_places(monkeypatch)

    async def script(split: Split) -> None:
        await with_damaged_places(split, 5)
        split.world.net.partition(["m3"], ["m1", "m2"])
        split.start_bridge(3)
        split.start_node(3)
        with trio.fail_after(15):
            while 3 not in split.nodes:
                await trio.sleep(0.1)
        assert any("n3 index_lacks" in note for note in split.notes)

    play(1, script)


def test_a_place_that_is_not_known_is_not_handed_on_with_an_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody had read the batch where its place was lost; who took the image was told of damage for ever."""
    keep_no_places(monkeypatch)

    async def script(split: Split) -> None:
        await with_damaged_places(split)
        split.world.net.partition(["m3"], ["m1", "m2"])
        split.start_bridge(3)
        split.start_node(3)
        await trio.sleep(15)
        split.world.net.heal()
        await split.until()
        split.producing = True
        await forgotten(split, 1, 3)
        for what in "nm":
            split.kill(what, 2)
            split.lose_disk(f"{what}2")
        split.start_bridge(2)
        split.start_node(2)
        with trio.fail_after(30):
            while not any("m2 image_taken" in note for note in split.notes):
                await trio.sleep(0.1)
        await split.until()
        for id_ in (2, 3):
            pulled = await split.nodes[id_].reader.pull(Pull("w", after=0))
            assert [bytes(batch.body) for batch in pulled.batches] == [BODY]
        await split.end()

    links = {1: (3, 4, 5), 2: (3,), 3: (1, 2), 4: (1, 5), 5: (1, 4)}
    play(1, script, links=links, keep=100)
