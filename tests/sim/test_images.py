"""A machine that was away longer than the row is kept comes back by an image (C4, N4, N5)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from duckrow.bridge.imageforms import ImageMessage, ImageOffer, NoImage, WantImage
from duckrow.bridge.messages import Change, Message
from duckrow.node import bridged, housekeeping
from duckrow.node.adopting import Read, adopt, adopted
from duckrow.node.bridgedrow import BridgedRow
from duckrow.node.errors import DiskFailed
from duckrow.node.forms import BaseForm, encode_view
from duckrow.node.giving import Given, Send, give
from duckrow.node.images import INCOMING, Images, came_with
from duckrow.node.keeper import Keeper
from duckrow.node.limits import MIB
from duckrow.node.numberfolder import NumberFolder
from duckrow.node.row import Item, View
from duckrow.node.segments import Segment
from duckrow.node.snapshots import Snapshots
from sim.clusterkit import chain, mesh
from sim.imagekit import KEEP, LONG, away, forgotten, imaged
from sim.pairkit import Split, play


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


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOENT])
def test_a_bridge_whose_disk_keeps_the_state_of_an_image_ends_and_does_not_hang_up_on_its_node(
    error: int,
) -> None:
    """The node asked again and again, and each time its connection broke.  Where the state had gone already, as
    an earlier start of the node had asked for that, it goes on.
    """

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(1)
        await away(split, 3)
        await split.until()
        images, tried = split.bridges[3].store.images, trio.Event()
        unlink = images._disk.unlink

        async def fails(name: str) -> None:
            if name == images.name and not tried.is_set():
                tried.set()
                raise OSError(error, "simulated: it stays")
            await unlink(name)

        images._disk.unlink = fails  # type: ignore[method-assign]
        with trio.fail_after(60):
            await tried.wait()
        await trio.sleep(0.01)
        row = split.nodes[3].row
        assert isinstance(row, BridgedRow)
        assert split.world.host("m3").alive == row.is_attached == (error == errno.ENOENT)

    play(1, script, keep=KEEP, tolerate=(DiskFailed,))


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


def test_what_a_node_has_is_said_to_be_of_an_image_when_all_of_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or a death in the middle would leave what is of another row under that name."""
    before: list[str | None] = []

    async def watched(read: Read, store: bytes, snapshots: Snapshots, folder: NumberFolder) -> bool:
        before.append(await adopted(snapshots._folder))
        return await adopt(read, store, snapshots, folder)

    monkeypatch.setattr(bridged, "adopt", watched)

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await forgotten(split, *split.bridges)
        split.kill("n", 3)
        split.lose_disk("n3")
        split.start_node(3)
        await split.until()
        assert before
        assert split.bridges[3].store.images.name not in ("", *before)

    play(4, script, keep=KEEP)


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


def test_an_image_tells_what_its_row_has_of_the_view_that_holds_at_its_end() -> None:
    """N5: Also where the row of who gives it went on, perhaps in the next view."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(0.5)
        split.kill("m", 3)
        await trio.sleep(2)
        giver, delivered = split.bridges[1], dict[int, int]()
        for item in await giver.store.read_items(1, MIB):
            content = item.content
            if isinstance(content, View):
                delivered = {}
            else:
                delivered[content.origin] = content.s
            told = await giver.giving._delivered(item.position)
            assert {origin: s for origin, s in told.items() if s} == delivered
        assert giver.member.standing.installed > 1

    play(1, script)


def test_all_of_an_image_is_durable_before_it_is_the_row_and_then_that_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """N5: From then on nobody else keeps what was there for this machine."""
    become, durable = Images.become, list[bool]()

    async def script(split: Split) -> None:
        media = split.world.host("m3").media

        async def watched(images: Images, base: BaseForm, segments: list[Segment]) -> None:
            came = {path for path in media.paths() if path.startswith(f"row/{INCOMING}")}
            durable.append(came != set() and came <= {*media.paths(durable=True)})
            durable.extend(
                media.durable_content(path) == media.content(path)
                for path in came.intersection(media.paths(durable=True))
            )
            await become(images, base, segments)
            durable.append(not images._writer.dirty)

        monkeypatch.setattr(Images, "become", watched)
        await imaged(split)
        assert len(durable) > 2
        assert all(durable)

    play(1, script, keep=KEEP)


def test_no_two_images_of_a_machine_have_one_name() -> None:
    """Its node would take the second one for the one that it has."""

    async def script(split: Split) -> None:
        await imaged(split)
        bridge = split.bridges[3]
        images = bridge.store.images
        _, position, shift = images.name.split("-")
        following = bridge.store.segments()[-1].number + 1
        reserve = partial(images.reserve, int(position), 1, following - int(shift))
        assert await bridge._rounds.jobs.do(reserve) == following + 1

    play(1, script, keep=KEEP)


def test_an_image_has_a_number_for_the_newest_segment_though_nothing_of_it_is_needed() -> None:
    """N5: The index speaks of it: whoever took the image would begin a segment of that number."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await trio.sleep(0.5)
        giver = split.bridges[1]
        newest, view = giver.store.segments()[-1].number, giver.store.view
        assert view is not None

        async def nothing_needed(write: Callable[[bytes], None]) -> Given:
            write(b"state")
            return Given(giver.store.position, encode_view(view), ())

        giver.giving.source = nothing_needed
        await giver.giving._make()
        offer = giver.giving._offer
        assert offer is not None
        assert offer.segments == {newest: 0}

    play(1, script)


def test_who_needs_an_image_itself_since_it_began_to_make_one_gives_none() -> None:
    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        giver, said = split.bridges[1], []
        source, put = giver.giving.source, giver.links.put
        assert source is not None

        async def lost_meanwhile(write: Callable[[bytes], None]) -> Given | None:
            giver.need_image()
            return await source(write)

        def heard(peer: int, message: Message) -> None:
            said.append(message)
            put(peer, message)

        giver.giving.source = lost_meanwhile
        giver.links.put = heard  # type: ignore[method-assign]
        giver.giving.wanted(3, WantImage(0, 0, 0))
        await trio.sleep(1)
        assert [each for each in said if isinstance(each, ImageOffer | NoImage)] == [NoImage(0)]

    play(1, script)


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


def test_an_image_is_asked_for_again_when_the_link_was_lost_and_is_back_before_that_is_heard() -> (
    None
):
    """A round may wait for the disk so long.  Nobody else was to be asked, so the machine waited for the answer
    a minute and a half.
    """

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        await away(split, 3)
        answered, giver = trio.Event(), split.bridges[2]
        answer = giver.giving._answer

        async def answer_late(want: WantImage) -> ImageMessage:
            found = await answer(want)
            made.set()
            await answered.wait()
            return found

        made = trio.Event()
        giver.giving._answer = answer_late  # type: ignore[method-assign]
        with trio.fail_after(5):
            await made.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(split.bridges[3]._rounds.jobs.do, partial(trio.sleep, 0.3))
            await trio.sleep(0.01)
            giver.links.hang_up(3, "as if it were lost")
            answered.set()
        with trio.fail_after(10):
            while not any("m3 image_taken" in note for note in split.notes):
                await trio.sleep(0.1)
        await split.until()
        await split.end()

    play(4, script, keep=KEEP, links={1: (2,), 2: (1, 3), 3: (2,)})


def test_a_node_may_go_just_when_its_bridge_begins_to_make_an_image() -> None:
    """The bridge ended with it."""

    async def script(split: Split) -> None:
        split.start_all()
        await split.until()
        bridge, media = split.bridges[1], split.world.host("m1").media
        media.latency = 0.1
        bridge.giving.wanted(3, WantImage(0, 0, 0))
        await trio.sleep(0.05)
        split.kill("n", 1)
        await trio.sleep(0.3)
        media.latency = 0
        assert split.world.host("m1").alive
        split.start_node(1)
        await split.until()
        await split.end()

    play(5, script)
