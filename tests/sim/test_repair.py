"""Damage at one machine of a cluster is made good from the others, while it goes on."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio

from duckrow.bridge.messages import Ask
from duckrow.bridge.process import Bridge
from duckrow.bridge.repair import ANSWER_BYTES, Repair
from duckrow.node import columns, makers
from duckrow.node.bridgedrow import BridgedRow
from duckrow.node.damage import TOLD, Damage
from duckrow.node.errors import Damaged
from duckrow.node.places import offset_of, segment_of
from duckrow.node.reading import Pull
from duckrow.node.records import RecordKind, decode, seed_of
from duckrow.node.row import Item
from duckrow.node.scrub import at_once
from duckrow.node.segments import index_file, segment_file
from duckrow.node.server import Server, ServerOptions
from duckrow.node.values import position_of
from sim.clusterkit import BODY
from sim.imagekit import forgotten
from sim.pairkit import Split, everything, play

KEEP = 100_000  # entries; with a limit, segments are small


async def until_mended(split: Split, id_: int, *, seconds: float = 30) -> None:
    with trio.fail_after(seconds):
        while not any(f"m{id_} mended" in note for note in split.notes):
            await trio.sleep(0.05)


def segments(split: Split, id_: int) -> list[str]:
    media = split.world.host(f"m{id_}").media
    return [name for name in media.paths() if name.endswith(".seg")]


async def busy(split: Split, *, count: int = 3) -> None:
    """Until there are some sealed segments."""
    split.start_all()
    await split.until()
    with trio.fail_after(60):
        while len(segments(split, 3)) <= count:
            await trio.sleep(0.2)


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
        split.start_all()
        await split.until()
        await forgotten(split, 3)
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
    away: int, restart: bool
) -> None:
    """A start needs that place before a neighbour is linked, and nobody asks for it again: it was damaged for ever.
    If all are away for long, it goes on without, and takes an image when they are back; after a restart
    when somebody wants to read the batch.
    """

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


def test_a_start_waits_once_for_neighbours_and_not_for_each_place_that_is_damaged() -> None:
    """Each had cost ten seconds, and many batches may get their numbers at once."""

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


def test_a_place_that_is_not_known_is_not_handed_on_with_an_image() -> None:
    """Nobody had read the batch where its place was lost; who took the image was told of damage for ever."""

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
