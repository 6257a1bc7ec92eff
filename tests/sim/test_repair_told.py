"""What is told of damage: in the status, to neighbours, and where it took own commands."""

from __future__ import annotations

import pytest
import trio

from duckrow.bridge.repair import Repair
from duckrow.node.damage import TOLD, Damage
from duckrow.node.places import offset_of, segment_of
from duckrow.node.segments import segment_file
from duckrow.node.server import Server, ServerOptions
from sim.clusterkit import BODY
from sim.pairkit import Split, play
from sim.repairkit import KEEP, busy, segments, until_mended


def test_without_anybody_to_ask_it_is_told_and_mended_when_somebody_is_back() -> None:
    async def script(split: Split) -> None:
        await busy(split)
        split.world.net.partition(["m3"], ["m1", "m2"])
        name, media = segments(split, 3)[1], split.world.host("m3").media
        media.flip(name, media.content(name).index(BODY, 1500))
        bridge = split.bridges[3]
        bridge.repair.suspect(await bridge.store.scrub())
        with trio.fail_after(20):
            while len(bridge.repair.told()) < 2:
                await trio.sleep(0.1)
        assert name[-12:] in bridge.repair.told()[0]
        assert "no neighbour" in bridge.repair.told()[1]
        server = Server(split.nodes[3], ServerOptions(), lambda: (0, 0))
        assert (await server.told())["damaged"] == bridge.repair.told()
        split.world.net.heal()
        await until_mended(split, 3, seconds=90)
        assert bridge.repair.told() == []
        await split.until()
        await split.end()

    play(7, script, keep=KEEP)


def test_however_much_is_damaged_there_is_a_status_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 700 damaged segments, on an old disk of 45 GB, it was more than a frame holds: nothing was told."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        gone = [Damage(segment_file(number), 0, 0, "the whole file") for number in range(1500)]
        monkeypatch.setattr(split.bridges[3].repair, "_gone", gone)
        damaged = (await split.nodes[3].row.told())["damaged"]
        monkeypatch.undo()
        assert len(damaged) == TOLD + 1
        assert "1,480 more" in damaged[-1]

    play(6, script)


@pytest.mark.parametrize("how", ["the file is gone", "all of it", "one byte"])
def test_own_commands_that_damage_took_are_told_once_and_do_not_keep_their_file(how: str) -> None:
    """It was told as damaged at every start, also where an image had taken the place of its row."""

    async def script(split: Split) -> None:
        await busy(split)
        split.world.net.partition(["m3"], ["m1", "m2"])
        with trio.fail_after(10):
            while not (staged := split.bridges[3].store.chronicle.staged):
                await trio.sleep(0.001)
        split.kill("n", 3)  # or it would settle them
        (stage, *_) = staged.values()
        number = segment_of(stage.place)
        name = "row/" + segment_file(number)
        await trio.sleep(2)
        await split.bridges[3].store.seal(number)  # the next one tells of them, too
        await split.bridges[3].store.sync()
        if how == "the file is gone":
            await split.bridges[3].store.disk.unlink(segment_file(number))
            await split.bridges[3].store.disk.sync_names()
        split.kill("m", 3)
        media = split.world.host("m3").media
        if how == "one byte":
            media.flip(name, media.content(name).index(BODY, offset_of(stage.place)))
        elif how == "all of it":
            for offset in range(0, len(media.content(name)), 20):
                media.flip(name, offset)
        split.world.net.heal()
        for _ in range(2):
            split.start_bridge(3)
            split.start_node(3)
            if how != "one byte":  # of which nobody else has anything
                with trio.fail_after(60):
                    while not any("m3 image_taken" in note for note in split.notes):
                        await trio.sleep(0.1)
            await split.until()
            with trio.fail_after(20):
                while split.bridges[3].repair.told():
                    await trio.sleep(0.1)
            assert sum("m3 commands_lost" in note for note in split.notes) == 1
            split.kill("n", 3)
            split.kill("m", 3)
        split.start_bridge(3)
        split.start_node(3)
        await split.until()
        await split.end()

    play(12, script, keep=KEEP)


def test_neighbours_are_told_that_a_damaged_row_can_be_followed_from_behind_it_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Repair, "floor", 7)

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(0.5)
        told = split.bridges[2].member.neighbours.kept()
        assert split.bridges[1].store.floor == 1
        assert told[1].floor == 7

    play(1, script)
