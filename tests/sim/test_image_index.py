"""What a node cannot know from its own files any more comes with an image (N4, N5)."""

from __future__ import annotations

import pytest
import trio

from duckrow.node import adopting
from duckrow.node.errors import Damaged
from sim.imagekit import KEEP, LONG, aged, imaged, old_index
from sim.pairkit import Split, everything, play


@pytest.mark.parametrize("observers", [(), (2,)])
def test_a_node_whose_index_has_lost_something_gets_it_from_another_machine(
    observers: tuple[int, ...],
) -> None:
    """N5.  That of an observer may end where its row does, and its places are others even so."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        name = await old_index(split, 2)
        split.producing = False
        await trio.sleep(1)
        await split.stop_node(2)
        media = split.world.host("n2").media
        media.flip(name, media.pages(name).cache.size - 40)  # of its directory: it is not loaded
        split.start_node(2)
        with trio.fail_after(30):
            while split.replaced != [2]:
                await trio.sleep(0.1)
        await split.until()
        await split.end()

    split = play(6, script, keep=LONG, observers=observers)
    assert any("n2 index_lacks" in note for note in split.notes)
    assert any("m2 image_taken" in note for note in split.notes)


@pytest.mark.parametrize("who", ["a scrub", "a reader"])
def test_rows_of_the_index_that_cannot_be_put_right_come_from_another_machine(who: str) -> None:
    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        name = await old_index(split, 2)
        split.producing = False
        media = split.world.host("n2").media
        for bit in (3, 77):  # one alone would be put right
            media.flip(name, bit)
        if who == "a reader":
            split.kill("n", 2)  # it has what it read last in memory
            split.start_node(2)
            await split.until()
            with pytest.raises(Damaged, match="the index has lost them"):
                await everything(split.nodes[2])
        with trio.fail_after(300):
            while split.replaced != [2]:
                await trio.sleep(1)
        await split.until()
        await split.end()

    split = play(7, script, keep=LONG, scrub_seconds=100 if who == "a scrub" else 0)
    assert any("n2 scrubbed" in note for note in split.notes) == (who == "a scrub")
    assert any("n2 index_lacks" in note for note in split.notes)


def test_a_node_that_cannot_read_which_image_its_files_speak_of_takes_another_one() -> None:
    """It ended at each start."""

    async def script(split: Split) -> None:
        await imaged(split)
        split.producing = True
        with trio.fail_after(60):
            while await split.bridges[3].store.images.state() is not None:  # it could be had again
                await trio.sleep(0.2)
        await split.stop_node(3)
        split.world.host("n3").media.spoil(f"state/{adopting.NAME}", 0)
        split.start_node(3)
        await split.until()
        await split.end()
        await split.stop_node(3)
        split.start_node(3)
        await split.until()
        await split.end()

    split = play(1, script, keep=KEEP)
    assert sum("m3 image_taken" in note for note in split.notes) == 2


def test_a_node_whose_disk_gives_none_of_its_snapshots_takes_an_image() -> None:
    """Another try might have read them, but each start was one, and ended."""

    async def script(split: Split) -> None:
        await aged(split, 1, 2, 3)
        await split.stop_node(3)
        media = split.world.host("n3").media
        for name in media.paths():
            if "snapshot-" in name:
                media.spoil(name, 0)
        split.start_node(3)
        await split.until()
        await split.end()

    split = play(1, script, keep=KEEP)
    assert sum("m3 image_taken" in note for note in split.notes) == 1


@pytest.mark.parametrize("name", [adopting.NAME, "snapshot-"])
def test_a_node_whose_disk_gives_at_another_try_what_it_knows_takes_no_image(name: str) -> None:
    """The whole row was fetched for it, and what was pinned here for the archive went."""

    async def script(split: Split) -> None:
        await imaged(split)
        await split.stop_node(3)
        media = split.world.host("n3").media
        spoilt = [path for path in media.paths() if path.startswith(f"state/{name}")]
        for path in spoilt:
            media.spoil(path, 0)
        split.start_node(3)
        with trio.fail_after(10):
            while not any("n3 state_missing error=the" in note for note in split.notes):
                await trio.sleep(0.1)
        for path in spoilt:
            media.pages(path).bad.clear()
        await split.until()
        await split.end()

    split = play(1, script, keep=KEEP)
    assert sum("m3 image_taken" in note for note in split.notes) == 1


def test_a_file_of_the_index_that_came_with_an_image_and_is_lost_comes_with_another_one() -> None:
    """What came has no items, and the row here had come as far: it counted as dead, and the bodies went, too."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await old_index(split, 3)
        split.producing = False
        await trio.sleep(1)
        split.nodes[3].numbers.on_lost()
        with trio.fail_after(30):
            while split.replaced != [3]:
                await trio.sleep(0.1)
        await split.until()
        store = split.bridges[3].store
        base = store.chronicle.base
        assert base is not None
        split.producing = True
        with trio.fail_after(30):
            while store.segments()[0].first <= base.position:
                await trio.sleep(0.1)  # for what was there before the image to go
        split.producing = False
        await trio.sleep(1)
        last, numbers = int(base.files[1].split("-")[1]), split.nodes[3].numbers
        newest = max(n for n in numbers.installed if n <= last and numbers.usage.holders(n))
        await split.stop_node(3)
        name, media = f"numbers/{newest:08d}.numbers", split.world.host("n3").media
        media.flip(name, media.pages(name).cache.size - 40)  # of its directory: it is not loaded
        split.start_node(3)
        with trio.fail_after(30):
            while split.replaced != [3, 3]:
                await trio.sleep(0.1)
        await split.until()
        assert await everything(split.nodes[3]) == await everything(split.nodes[1])
        await split.end()

    play(6, script, keep=LONG)


def test_the_index_of_what_came_with_an_image_is_made_again() -> None:
    """What follows was begun before the image came: it says nothing of how long those files are."""

    async def script(split: Split) -> None:
        names, media = await imaged(split), split.world.host("m3").media
        split.kill("m", 3)
        for name in names:
            media.flip(name.replace(".seg", ".pos"), 20)
        split.start_bridge(3)
        await split.until()
        bridge = split.bridges[3]
        assert all(damage.mended for damage in bridge.store.recovered.damages)
        assert bridge.repair.told() == []
        assert await bridge.store.scrub() == []
        await split.end()

    play(1, script, keep=KEEP)


@pytest.mark.parametrize("orderly", [True, False], ids=["in order", "without a snapshot"])
@pytest.mark.parametrize("lost", [1, 2])
def test_what_a_node_knows_of_an_end_of_the_row_that_was_lost_and_came_again_is_not_believed(
    lost: int, orderly: bool
) -> None:
    """It lies elsewhere then: its entries were told as damaged there for ever, or others were read for them."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        media, bridge = split.world.host("m3").media, split.bridges[3]
        with trio.fail_after(60):
            while len(bridge.store.segments()) < 4 or bridge.store.segments()[-1].bytes < 4000:
                await trio.sleep(0.05)
        split.producing = False
        await trio.sleep(2)
        if orderly:
            await split.stop_node(3)
        else:  # then only files of the index speak of that end
            assert split.nodes[3].numbers.installed
            split.kill("n", 3)
        split.kill("m", 3)
        for path in [path for path in media.paths() if path.endswith(".seg")][-lost:]:
            await (await media.disk().folder("row")).unlink(path.removeprefix("row/"))
        split.start_bridge(3)
        with trio.fail_after(30):
            while 3 not in split.bridges or not split.bridges[3].member.standing.active:
                await trio.sleep(0.01)
        split.start_node(3)
        await split.until()
        split.producing = True
        await trio.sleep(2)
        await split.end()

    play(11, script, keep=LONG, snapshot_items=50 if orderly else 100_000)
