"""A machine that was away longer than the row is kept comes back by an image (C4, N4, N5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from duckrow.bridge.messages import Change
from duckrow.node import adopting, housekeeping
from duckrow.node.errors import Damaged
from duckrow.node.giving import Given, Send, give
from duckrow.node.images import came_with
from duckrow.node.keeper import Keeper
from duckrow.node.limits import MIB
from duckrow.node.mending import Wound
from duckrow.node.row import Item
from duckrow.node.segments import index_file, segment_file, segment_number
from sim.clusterkit import BODY, chain, mesh
from sim.pairkit import Split, everything, play

KEEP = 100  # entries; a row is forgotten within seconds


async def forgotten(split: Split, *others: int) -> None:
    """Until these keep nothing of what there is now."""
    end = split.bridges[others[0]].store.position
    with trio.fail_after(120):
        while min(split.bridges[each].store.floor for each in others) <= end + 1:
            await trio.sleep(0.2)


async def away(split: Split, *ids: int) -> None:
    """These are killed, and come back when nobody keeps what comes next there."""
    for id_ in ids:
        split.kill("m", id_)
        split.kill("n", id_)
    await forgotten(split, *split.bridges)
    for id_ in ids:
        split.start_bridge(id_)
        split.start_node(id_)


@pytest.mark.parametrize("level", ["fsync", "write", "memory"])
def test_every_machine_forgets_what_was_pruned_whether_it_votes_or_not(level: str) -> None:
    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await forgotten(split, 1, 2, 3)
        await split.end()
        sizes = [len(bridge.store.segments()) for bridge in split.bridges.values()]
        assert max(sizes) < 2 * min(sizes)

    play(9, script, level, keep=KEEP, observers=(3,))


def test_who_was_away_too_long_takes_an_image_and_goes_on() -> None:
    """C4."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(1)
        await away(split, 3)
        await split.until()
        assert split.bridges[3].store.chronicle.base is not None
        await trio.sleep(1)
        await split.end()

    split = play(1, script, keep=KEEP)
    assert any("image_taken" in note for note in split.notes)


def test_a_bridge_that_was_cut_off_too_long_begins_anew_and_so_does_its_node() -> None:
    """What its clients asked meanwhile is staged, and ordered once."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(1)
        split.world.net.partition(["m3"], ["m1", "m2"])
        await trio.sleep(0.5)
        await forgotten(split, 1, 2)
        assert split.busy[3] is None
        split.world.net.heal()
        await split.until()
        assert split.replaced == [3]
        await trio.sleep(1)
        await split.end()

    play(2, script, keep=KEEP)


def test_a_node_that_lost_its_state_gets_it_from_another_machine() -> None:
    """N4: Its bridge leaves, takes an image, and acts again (N4)."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await forgotten(split, 2)
        split.kill("n", 2)
        split.lose_disk("n2")
        split.start_node(2)
        await trio.sleep(0.1)
        await split.until()
        await trio.sleep(1)
        await split.end()

    split = play(3, script, keep=KEEP)
    assert any("m2 image_taken" in note for note in split.notes)


def test_a_node_that_lost_its_state_gets_it_where_nothing_else_happens() -> None:
    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await forgotten(split, 2)
        split.producing = False
        await trio.sleep(1)
        split.kill("n", 2)
        split.lose_disk("n2")
        split.start_node(2)
        await trio.sleep(0.1)
        await split.until()
        await split.end()

    play(4, script, keep=KEEP)


def test_of_two_equal_machines_one_whose_node_lost_its_state_gets_it_while_the_other_has_more_weight() -> (
    None
):
    """N8: The other one alone is no majority, so till then it goes on acting, and its node has nothing."""

    async def script(split: Split) -> None:
        def weighs(weight: int) -> None:
            bridge = split.bridges[1]
            bridge.wish(Change(bridge.member.standing.newest.id, 1, weight))

        split.start_all()
        await split.until()
        await forgotten(split, 2)
        split.kill("n", 2)
        split.lose_disk("n2")
        split.start_node(2)
        await trio.sleep(10)
        assert 2 not in split.nodes
        assert split.bridges[1].status().active
        weighs(2)
        await split.until()
        weighs(1)
        await trio.sleep(1)
        await split.end()

    split = play(3, script, keep=KEEP, links=mesh(2))
    assert sum("m2 image_taken" in note for note in split.notes) == 1


def test_a_machine_whose_disks_are_new_gets_all_that_is_kept() -> None:
    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await forgotten(split, 2)
        for what in "mn":
            split.kill(what, 2)
            split.lose_disk(f"{what}2")
        split.start_bridge(2)
        split.start_node(2)
        await split.until()
        await trio.sleep(1)
        await split.end()

    play(5, script, keep=KEEP)


def test_an_image_of_many_small_segments_does_not_take_the_way_to_the_giver_for_each() -> None:
    way = 0.1  # seconds

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await forgotten(split, 2)
        split.producing = False
        await trio.sleep(1)
        for edge in (("m1", "m2"), ("m2", "m1"), ("m2", "m3"), ("m3", "m2")):
            split.world.net.link(*edge).delay = way
        split.kill("n", 3)
        split.lose_disk("n3")
        split.start_node(3)
        await trio.sleep(0.1)
        await split.until()
        await split.end()

    split = play(3, script, links=chain(3), keep=LONG)
    times = [
        float(note.split()[0])
        for what in ("m3 image_begins", "m3 image_taken")
        for note in split.notes
        if what in note
    ]
    store, (began, taken) = split.bridges[3].store, times
    came = [each for each in store.segments() if came_with(store.chronicle.base, each.number)]
    assert len(came) > 8
    assert taken - began < len(came) * 2 * way / 2


def test_an_image_goes_down_a_chain_hop_by_hop() -> None:
    """The middle of three: who is behind it can only have one from there."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(1)
        await away(split, 3, 4)
        await split.until(seconds=60)
        await trio.sleep(1)
        await split.end()

    links = {1: (2, 5), 2: (1, 3), 3: (2, 4), 4: (3,), 5: (1,)}
    play(6, script, keep=KEEP, links=links)


def test_who_has_to_act_without_a_state_passes_on_an_image_for_who_is_behind_it() -> None:
    """C4: Two of four are no majority, the fourth waited for an image of the third, and that one for the
    fourth, to leave and take one itself: for ever (seed 770007).
    """

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        split.kill("m", 4)
        split.kill("n", 4)
        await forgotten(split, 1, 2, 3)
        split.kill("n", 3)
        split.lose_disk("n3")
        split.start_node(3)
        await trio.sleep(2)
        assert 3 not in split.nodes
        assert split.bridges[3].status().active
        split.start_bridge(4)
        split.start_node(4)
        await split.until()
        await trio.sleep(1)
        await split.end()

    split = play(3, script, keep=KEEP, links=chain(4))
    taken = [note.split()[1] for note in split.notes if "image_taken" in note]
    assert taken == ["m4", "m3"]


def dies_amid_an_image(host_name: str, k: int, *, power: bool, level: str = "fsync") -> bool:
    """Machine 3 takes an image from 2; this process dies before its k-th operation, and comes back."""
    died = False

    async def script(split: Split) -> None:
        nonlocal died
        split.start_all()
        await split.until()
        await away(split, 3)
        host, linked = split.world.host(host_name), len(split.notes)
        with trio.fail_after(30):
            while not any("m3 link_up" in note for note in split.notes[linked:]):
                await trio.sleep(0.001)
        host.media.crash_before(k, part=k % 2 == 0)
        host.crash_is_power_loss = power
        with trio.move_on_after(2.0):
            while host.alive and split.bridges[3].store.chronicle.base is None:
                await trio.sleep(0.001)
            await trio.sleep(0.02)  # and what follows from it
        host.media.disarm()
        died = not host.alive
        if died:
            what, id_ = host_name[0], int(host_name[1])
            (split.bridges if what == "m" else split.nodes).pop(id_, None)
            split.busy.pop(id_, None) if what == "n" else None
            (split.start_bridge if what == "m" else split.start_node)(id_)
        await split.until()
        await trio.sleep(0.5)
        await split.end()

    try:
        play(k, script, level, links={1: (2,), 2: (1, 3), 3: (2,)}, keep=KEEP)
    except BaseException as error:
        error.add_note(f"{host_name} died before operation {k}, {power=}, {level}")
        raise
    return died


@pytest.mark.parametrize("who", ["m2", "n2", "m3", "n3"])
def test_giver_and_taker_may_die_amid_an_image(who: str) -> None:
    """N5."""
    for k in (9, 30):
        dies_amid_an_image(who, k, power=k % 3 == 0)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("who", ["m2", "n2", "m3", "n3"])
@pytest.mark.parametrize("power", [True, False])
def test_giver_and_taker_may_die_at_any_moment_of_an_image(who: str, power: bool) -> None:
    died = [dies_amid_an_image(who, k, power=power) for k in range(1, 70)]
    assert died.count(True) > 20


LONG = 1000  # entries: their index is older than both snapshots


async def old_index(split: Split, id_: int) -> str:
    """A file of the index of that node: some of it is wanted, and no replay begins before it."""
    with trio.fail_after(300):
        while True:
            await trio.sleep(0.2)
            node, bridge = split.nodes.get(id_), split.bridges[id_]
            if node is None or bridge.store.floor == 1:
                continue
            for segment in node.numbers.installed:
                file = node.numbers.file(segment)
                live = node.numbers.usage.holders(segment)
                if file is not None and live and file.cover.upto + 150 < node.state.position:
                    return f"numbers/{segment:08d}.numbers"


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


async def imaged(split: Split) -> list[str]:
    """Machine 3 has taken an image, all is at rest; the files of the segments that came with it."""
    split.start_all()
    await split.until()
    await trio.sleep(1)
    await away(split, 3)
    await split.until()
    split.producing = False
    await trio.sleep(2)
    base = split.bridges[3].store.chronicle.base
    assert base is not None
    first, last = map(int, base.files[1].split("-"))
    return [f"row/{number:08d}.seg" for number in range(first, last + 1)]


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


def test_a_node_that_cannot_read_which_image_its_files_speak_of_takes_another_one() -> None:
    """It ended at each start."""

    async def script(split: Split) -> None:
        await imaged(split)
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
        split.start_all()
        await split.until()
        await forgotten(split, 1, 2, 3)
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
        split.start_all()
        await split.until()
        await forgotten(split, 3)
        split.producing = False
        await trio.sleep(1)
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


def test_who_does_not_know_what_its_row_has_of_the_view_gives_no_image() -> None:
    """It had told that there was nothing: whoever took it took no item that followed, for ever."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await forgotten(split, 2)
        split.kill("n", 3)
        split.kill("m", 3)
        split.lose_disk("n3")
        await trio.sleep(3)
        split.producing = False
        await trio.sleep(1)
        assert split.bridges[2].status().members == (1, 2)
        split.kill("m", 2)
        media = split.world.host("m2").media
        name = [path for path in media.paths() if path.endswith(".seg")][-1]
        size = len(media.content(name))
        for offset in range(size // 4, size * 3 // 4, 300):
            media.flip(name, offset)
        split.world.net.partition(["m1"], ["m2"])
        split.producing = True
        await trio.sleep(0.2)  # machine 1 has bundles that come before the next mark
        split.start_bridge(2)
        split.start_bridge(3)
        split.start_node(3)
        with trio.fail_after(5):
            while split.bridges.get(2) is None:
                await trio.sleep(0.01)
        assert split.bridges[2].member.standing.uncounted
        await trio.sleep(8)
        assert not any("m3 image_taken" in note for note in split.notes)
        split.world.net.heal()
        await split.until()
        await split.end()

    for seed in (1, 2):
        play(seed, script, keep=KEEP, links=chain(3))


def test_what_is_counted_of_a_row_counts_for_nothing_once_an_image_has_its_place() -> None:
    """The disk is slow.  The journal had gone back to the view of the old row."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await forgotten(split, 3)
        split.kill("n", 3)
        split.kill("m", 3)
        split.lose_disk("n3")
        await trio.sleep(2)  # the others have another view
        media = split.world.host("m3").media
        name = [path for path in media.paths() if path.endswith(".seg")][-1]
        size = len(media.content(name))
        for offset in range(size // 4, size * 3 // 4, 300):
            media.flip(name, offset)
        split.start_bridge(3)
        with trio.fail_after(5):
            while split.bridges.get(3) is None:
                await trio.sleep(0.0001)
        journal, standing = split.bridges[3].journal, split.bridges[3].member.standing
        assert standing.uncounted
        counting, counted, read = trio.Event(), trio.Event(), journal.store.read_items

        async def slowly(position: int, limit: int, **more: Any) -> list[Item]:
            items = await read(position, limit, **more)
            if limit == MIB and not counting.is_set():
                counting.set()
                with trio.fail_after(5):
                    while standing.uncounted:
                        await trio.sleep(0.0001)
                counted.set()
            return items

        journal.store.read_items = slowly  # type: ignore[method-assign, assignment]
        await counting.wait()
        split.start_node(3)  # it has no state
        await counted.wait()
        for _ in range(5):
            await trio.sleep(0.0001)
            installed = journal.store.view
            assert installed is not None
            assert installed.id == standing.installed
        await split.until()
        assert sum("m3 image_taken" in note for note in split.notes) == 1
        await split.end()

    play(1, script, keep=KEEP)


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


def test_an_image_that_was_begun_for_a_bridge_that_died_does_not_get_into_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each bridge counts its images from one, and a node goes on writing the old one down for a while."""
    goes_on, calls = trio.Event(), 0

    async def slowly(keeper: Keeper, send: Send) -> bool:
        nonlocal calls
        calls += 1
        if calls > 1:
            return await give(keeper, send)
        await goes_on.wait()
        await send(None, b"of the old one")
        await send(None, b"")
        return True

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(1)
        parts: list[bytes] = []
        async with trio.open_nursery() as nursery:

            async def take(write: Callable[[bytes], None]) -> None:
                source = split.bridges[1].giving.source
                assert source is not None
                found.append(await source(write))

            found: list[Given | None] = []
            nursery.start_soon(take, lambda _: None)
            await trio.sleep(0.1)
            split.kill("m", 1)
            split.start_bridge(1)
            await split.until()
            found.clear()  # the other one had nothing
            nursery.start_soon(take, parts.append)
            await trio.sleep(0.1)
            assert parts == []
            goes_on.set()
            with trio.fail_after(5):
                while not found:
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert found[0] is not None
        assert b"of the old one" not in parts
        await split.end()

    monkeypatch.setattr(housekeeping, "give", slowly)
    play(1, script)


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
