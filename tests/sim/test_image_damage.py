"""Damage and images: what one makes good, and what is not given with it (C4)."""

from __future__ import annotations

import pytest
import trio

from duckrow.node.errors import Damaged
from duckrow.node.segments import index_file, segment_file, segment_number
from duckrow.node.wounds import Wound
from sim.clusterkit import BODY
from sim.imagekit import KEEP, LONG, aged, forgotten, imaged, old_index
from sim.pairkit import Split, everything, play


def test_damage_in_what_came_with_an_image_is_made_good_by_another_one() -> None:
    """No item that could be asked for is recorded there."""

    async def script(split: Split) -> None:
        name, media = (await imaged(split))[-1], split.world.host("m3").media
        media.flip(name, media.content(name).rindex(BODY))
        bridge = split.bridges[3]
        bridge.repair.suspect(await bridge.store.scrub())
        with trio.fail_after(30):
            while bridge.repair.told() or split.replaced.count(3) < 2:
                await trio.sleep(0.2)
        await split.until()
        await split.end()

    split = play(1, script, keep=KEEP)
    assert sum("m3 image_taken" in note for note in split.notes) == 2


def test_a_file_that_came_with_an_image_and_is_gone_with_its_index_comes_with_another_one() -> None:
    """The row knows only between which numbers they were; what was pruned, and what was lost, looked the same."""

    async def script(split: Split) -> None:
        path = (await imaged(split))[-1]
        number = segment_number(path.removeprefix("row/"))
        assert number is not None
        split.kill("m", 3)
        folder = await split.world.host("m3").media.disk().folder("row")
        for name in (segment_file(number), index_file(number)):
            await folder.unlink(name)
        split.start_bridge(3)
        with trio.fail_after(200):
            while split.replaced.count(3) < 2:
                await trio.sleep(0.2)
        await split.until()
        await everything(split.nodes[3])
        await split.end()

    split = play(2, script, keep=KEEP, scrub_seconds=100)
    assert sum("m3 image_taken" in note for note in split.notes) == 2
    assert any("n3 damaged" in note and "the whole file" in note for note in split.notes)


def test_where_nothing_happens_one_image_makes_good_what_came_behind_another_one() -> None:
    """What it took the place of had no item, and seemed to go on behind it: image after image was taken,
    hundreds in a second, until the disk was full.
    """

    async def script(split: Split) -> None:
        number = segment_number((await imaged(split))[-1].removeprefix("row/"))
        assert number is not None
        bridge, media = split.bridges[3], split.world.host("m3").media
        assert bridge.store.segments()[-1].number == number + 1
        await bridge.store.disk.unlink(index_file(number))
        media.flip(f"row/{segment_file(number + 1)}", 100)
        bridge.repair.look_at([number + 1])
        with trio.fail_after(1):
            while sum("m3 image_taken" in note for note in split.notes) < 2:
                await trio.sleep(0.01)
        await trio.sleep(1)
        assert bridge.repair.told() == []
        assert sum("m3 image_taken" in note for note in split.notes) == 2
        await split.until()
        await split.end()

    play(1, script, keep=KEEP, observers=(3,))


@pytest.mark.parametrize("which", [0, 1], ids=["the oldest", "another"])
def test_a_file_of_the_row_that_is_gone_is_told_and_comes_back_with_an_image(which: int) -> None:
    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        media = split.world.host("m3").media
        with trio.fail_after(60):
            while sum(path.endswith(".seg") for path in media.paths()) < 4:
                await trio.sleep(0.2)
        split.producing = False
        await trio.sleep(2)  # its node has all of it in memory, and asks for nothing
        split.kill("m", 3)
        name = f"0000000{1 + which}.seg"
        await (await media.disk().folder("row")).unlink(name)
        split.start_bridge(3)
        with trio.fail_after(30):
            while split.bridges.get(3) is None:
                await trio.sleep(0.01)
        bridge = split.bridges[3]
        assert name in [damage.file for damage in bridge.store.recovered.damages]
        assert bridge.repair.told() == [f"{name} is gone: an image has to take its place"]
        with trio.fail_after(30):
            while bridge.repair.told():
                await trio.sleep(0.2)
        split.producing = True
        await split.until()
        await split.end()

    split = play(11, script, keep=LONG)
    assert any("m3 image_taken" in note for note in split.notes)


@pytest.mark.parametrize("bits", [(3,), (3, 77)], ids=["is mended", "is not"])
def test_damage_in_the_index_of_who_gives_an_image_is_not_given_with_it(
    bits: tuple[int, ...],
) -> None:
    """Nobody could go on from it.  What the giver cannot put right, it first takes an image for itself."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        name = await old_index(split, 2)
        split.producing = False
        await trio.sleep(1)
        split.kill("n", 2)  # it has what it read last in memory
        for bit in bits:
            split.world.host("n2").media.flip(name, bit)
        split.start_node(2)
        await split.until()
        split.kill("n", 3)
        split.lose_disk("n3")
        split.start_node(3)
        await trio.sleep(0.1)
        await split.until(seconds=60)
        await split.end()

    links = {1: (2, 4, 5), 2: (1, 3), 3: (2,), 4: (1, 5), 5: (1, 4)}
    split = play(6, script, links=links, keep=LONG)
    assert any("m3 image_taken" in note for note in split.notes)
    assert not any("n3 image_not_taken" in note for note in split.notes)
    assert any("m2 image_taken" in note for note in split.notes) == (len(bits) > 1)


@pytest.mark.parametrize("is_given", [True, False], ids=["a bit", "a sector"])
def test_damage_in_the_state_of_an_image_is_made_good_by_another_one(is_given: bool) -> None:
    """Until it has two snapshots, a node that loses what it knows begins with that state again."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(1)
        split.kill("m", 3)
        split.kill("n", 3)
        await forgotten(split, 1, 2)
        split.producing = False
        split.start_bridge(3)
        split.start_node(3)
        await split.until()
        media = split.world.host("m3").media
        (name,) = [path for path in media.paths() if path.startswith("row/image-")]
        if is_given:
            media.flip(name, 500)
        else:
            media.spoil(name, 500)
        split.kill("n", 3)
        split.lose_disk("n3")
        split.start_node(3)
        await trio.sleep(0.1)
        await split.until()
        await split.end()

    split = play(1, script, keep=KEEP)
    assert any("n3 image_not_taken" in note for note in split.notes)
    assert sum("m3 image_taken" in note for note in split.notes) == 2


def test_an_image_may_come_while_a_damaged_file_is_written_anew() -> None:
    """The disk is slow.  What was known of the damage is of a row that is no more: the bridge had ended."""

    async def script(split: Split) -> None:
        await aged(split, 3, producing=False)
        bridge, media = split.bridges[3], split.world.host("m3").media
        mend = bridge.store.mending.mend

        async def slowly(wound: Wound) -> bool:
            done = await mend(wound)
            with trio.fail_after(20):
                while not any("m3 image_taken" in note for note in split.notes):
                    await trio.sleep(0.01)
            return done

        bridge.store.mending.mend = slowly  # type: ignore[method-assign]
        name = [path for path in media.paths() if path.endswith(".seg")][-2]
        media.flip(name, media.content(name).rindex(BODY))
        bridge.repair.suspect(await bridge.store.scrub())
        split.kill("n", 3)
        split.lose_disk("n3")
        split.start_node(3)
        await trio.sleep(0.1)
        await split.until()
        assert split.world.host("m3").alive
        assert bridge.repair.told() == []
        await split.end()

    split = play(1, script, keep=KEEP)
    assert any("m3 damaged" in note for note in split.notes)


@pytest.mark.parametrize("others_have_it", [True, False])
def test_what_is_damaged_at_who_gives_an_image_is_mended_before_it_is_given(
    others_have_it: bool,
) -> None:
    """Who took it could not have asked for it again: its clients were told of damage for ever."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(1)
        split.kill("m", 3)
        split.kill("n", 3)
        await forgotten(split, 1, 2)
        split.producing = False
        await trio.sleep(2)
        media = split.world.host("m1").media
        last = media.content([path for path in media.paths() if path.endswith(".seg")][-2])
        batch = last[last.rindex(BODY) - 16 : last.rindex(BODY) + len(BODY)]
        for id_ in (1,) if others_have_it else (1, 2):
            media = split.world.host(f"m{id_}").media
            (name,) = [path for path in media.paths() if batch in media.content(path)]
            media.flip(name, media.content(name).index(batch) + 16 + 3)
        split.start_bridge(3)
        split.start_node(3)
        await split.until(seconds=60)
        if others_have_it:
            assert any("m1 mended" in note for note in split.notes)
            await split.end()
        else:
            with pytest.raises(Damaged):
                await everything(split.nodes[3])

    links = {1: (2, 3), 2: (1,), 3: (1,)}
    split = play(1, script, keep=KEEP, links=links)
    assert any("m3 image_taken" in note for note in split.notes)


@pytest.mark.parametrize("own", [True, False], ids=["takes one", "can not"])
def test_who_needs_an_image_itself_takes_that_before_it_gives_one(own: bool) -> None:
    """What came with an image cannot be mended: who took it from there was told of damage for ever.
    Where no better one is to be had, it is given after a while as it is.
    """

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(1)
        split.kill("m", 2)
        split.kill("n", 2)
        await forgotten(split, 1, 4, 5)
        split.start_bridge(2)
        split.start_node(2)
        await split.until()
        split.producing = False
        await trio.sleep(2)
        media = split.world.host("m2").media
        for name in media.paths():
            if name.endswith(".seg") and BODY in media.content(name):
                media.flip(name, media.content(name).rindex(BODY) + 3)
        for what in "nm":
            split.kill(what, 3)
            split.lose_disk(f"{what}3")
        if not own:
            for id_ in (4, 5):
                split.kill("n", id_)
                split.kill("m", id_)
        split.start_bridge(3)
        split.start_node(3)
        if own:
            await split.until(seconds=60)
            await split.end()
        else:
            with trio.fail_after(180):
                while sum("m3 image_taken" in note for note in split.notes) < 2:
                    await trio.sleep(1)

    links = {1: (2, 4, 5), 2: (1, 3), 3: (2,), 4: (1, 5), 5: (1, 4)}
    split = play(6, script, links=links, keep=KEEP)
    assert any("m2 image_not_given" in note for note in split.notes)
    assert sum("m3 image_taken" in note for note in split.notes) == 2
