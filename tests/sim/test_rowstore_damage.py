"""Damage: a flipped bit anywhere in what was durable is found, told, and spoils nothing else."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial

import attrs
import pytest
import trio

from duckrow.node.damage import Damage
from duckrow.node.env import Env
from duckrow.node.errors import Corrupt
from duckrow.node.lonerow import LoneRow
from duckrow.node.places import offset_of
from duckrow.node.positions import Column, encode_index
from duckrow.node.records import PREFIX_BYTES, RecordKind, decode, seed_of, size_of
from duckrow.node.row import Item
from duckrow.node.segmentreads import read_index_head, read_places
from duckrow.node.segments import index_file, index_number
from duckrow.node.storeoptions import WRITE
from sim.alone import Machine
from sim.storekit import Story, small

SEGMENT = "row/00000001.seg"


async def fill(row: LoneRow, story: Story) -> None:
    """Positions 2, 3 and 4; the mark of view 1 is at 1."""
    await story.produce(row, 40)
    await story.produce(row, 0, 30, 11)
    await story.produce(row, 5)
    await trio.lowlevel.checkpoint()  # so that the last sync leaves its mark


async def fill_segments(row: LoneRow, story: Story) -> None:
    for size in (900, 900, 900, 900, 900, 900, 900, 900, 900, 30, 30):
        await story.produce(row, size)
    await trio.sleep(1)


@attrs.define
class Outcome:
    """What a life saw of a store."""

    uuid: bytes
    formers: tuple[bytes, ...]
    lineage: int
    damages: tuple[Damage, ...]  # that recovery told
    scrubbed: list[Damage]
    bad: list[int]  # positions that cannot be read
    taken: list[int]  # positions that `take` brought, of the past
    broken: Corrupt | None
    new: list[Item]

    @property
    def what(self) -> list[str]:
        return [damage.what for damage in self.damages]


async def look(env: Env, *, story: Story, after: int = 0) -> Outcome:
    row = await LoneRow.open(await env.disk.folder("row"), env, story.options)
    store = row.store
    row.follow(after)
    story.submitted.append([])
    scrubbed = await store.scrub()
    bad = [position for position in story.seen if not await can_be_read(row, story, position)]
    taken: list[int] = []
    new: list[Item] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(row.run)
        while after + len(taken) < row.status().position:
            for item in await row.take():
                assert story.seen.get(item.position, item.crc) == item.crc
                taken.append(item.position)
        assert taken == list(range(after + 1, after + 1 + len(taken)))
        if row.broken is None:
            new = await story.produce(row, 50)
        else:
            with pytest.raises(Corrupt):
                row.submit([story.make()])
            with trio.move_on_after(10) as scope:
                await row.take()
            assert scope.cancelled_caught, "there is nothing more"
        nursery.cancel_scope.cancel()
    view = store.view
    assert view is not None
    outcome = Outcome(
        store.uuid,
        store.formers,
        view.lineage,
        store.recovered.damages,
        scrubbed,
        bad,
        taken,
        row.broken,
        new,
    )
    await row.close()
    return outcome


async def can_be_read(row: LoneRow, story: Story, position: int) -> bool:
    try:
        items = await row.store.read_items(position, 1, bodies=True)
    except Corrupt as error:
        assert f"position {position}" in str(error)
        assert ".seg" in str(error)
        return False
    assert [item.crc for item in items] in ([story.seen[position]], []), "[]: behind the end"
    return bool(items)


Fill = Callable[[LoneRow, Story], Awaitable[None]]


def story_of(
    work: Fill = fill, *, orderly: bool = False, level: str = "fsync"
) -> tuple[Machine, Story]:
    machine = Machine(1)
    story = Story(small(level=level))
    machine.run(story.life(work, orderly=orderly))
    return machine, story


def seen(machine: Machine, story: Story, *, after: int = 0) -> Outcome:
    return machine.run(partial(look, story=story, after=after))


def flipped(machine: Machine, path: str, offset: int) -> None:
    machine.media.flip(path, offset, random.Random(offset).randrange(8))


async def places(env: Env, *, story: Story) -> list[int]:
    """Offsets of the records of all positions, in their files."""
    row = await LoneRow.open(await env.disk.folder("row"), env, story.options)
    return [offset_of(await row.store.place_of(p)) for p in range(1, row.store.position)]


# -- every byte -----------------------------------------------------------------------------


def every_byte(work: Fill, path: str, step: int, *, orderly: bool) -> None:
    machine, _ = story_of(work, orderly=orderly)
    size = len(machine.media.durable_content(path))
    for offset in range(size % step, size, step):
        machine, story = story_of(work, orderly=orderly)
        flipped(machine, path, offset)
        last = max(story.seen)
        try:
            outcome = seen(machine, story)
            assert outcome.damages or outcome.scrubbed, "nobody noticed"
            # The item that is hit may be lost to readers; its neighbours are not.
            assert len(outcome.bad) <= 1
            if outcome.broken is None:
                assert outcome.taken[:last] == list(range(1, last + 1))
                assert all(item.position > last for item in outcome.new)
            else:
                assert outcome.bad == [len(outcome.taken) + 1]
                assert f"position {len(outcome.taken)}" in str(outcome.broken)
        except BaseException as error:
            error.add_note(f"byte {offset} of {size} of {path}")
            raise


@pytest.mark.parametrize("orderly", [False, True], ids=["killed", "closed"])
def test_a_flip_anywhere_is_told_and_spoils_one_item_at_most(orderly: bool) -> None:
    every_byte(fill, SEGMENT, 11, orderly=orderly)


@pytest.mark.parametrize("orderly", [False, True], ids=["killed", "closed"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_so_is_a_flip_in_any_segment(number: int, orderly: bool) -> None:
    every_byte(fill_segments, f"row/{number:08d}.seg", 131, orderly=orderly)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("orderly", [False, True], ids=["killed", "closed"])
def test_a_flip_of_every_byte(orderly: bool) -> None:
    every_byte(fill, SEGMENT, 1, orderly=orderly)
    for number in (1, 2, 3):
        every_byte(fill_segments, f"row/{number:08d}.seg", 7, orderly=orderly)


@pytest.mark.parametrize("orderly", [False, True], ids=["killed", "closed"])
def test_a_flip_anywhere_in_an_index_file_costs_nothing_but_time(orderly: bool) -> None:
    machine, _ = story_of(fill_segments, orderly=orderly)
    for path in [path for path in machine.media.paths() if path.endswith(".pos")]:
        for offset in range(0, len(machine.media.content(path)), 17):
            machine, story = story_of(fill_segments, orderly=orderly)
            flipped(machine, path, offset)
            outcome = seen(machine, story)
            assert outcome.bad == []
            assert outcome.broken is None
            assert all(damage.mended for damage in [*outcome.damages, *outcome.scrubbed])
            again = seen(machine, story)
            assert (again.damages, again.scrubbed) == ((), [])


# -- torn, or damaged -----------------------------------------------------------------------


def test_a_flip_in_the_last_acknowledged_record_is_no_torn_tail_once_the_mark_is_written() -> None:
    machine, story = story_of()
    last = machine.run(partial(places, story=story))[3]
    for offset in (last + 30, last + 70):
        machine, story = story_of()
        flipped(machine, SEGMENT, offset)
        outcome = seen(machine, story)
        assert outcome.bad == [4]
        assert outcome.taken == [1, 2, 3]
        assert outcome.broken is not None
        assert "position 4" in str(outcome.broken)


def test_without_the_mark_it_is_cut_as_a_torn_tail() -> None:
    """Nothing says that it was ever durable; so it is for the mark to be written soon."""
    machine, story = story_of()
    size = len(machine.media.content(SEGMENT))
    machine.media.pages(SEGMENT).truncate(size - PREFIX_BYTES)
    flipped(machine, SEGMENT, size - PREFIX_BYTES - 64 - 20)
    del story.seen[4]

    outcome = seen(machine, story)

    assert outcome.damages == ()
    assert outcome.broken is None


@pytest.mark.parametrize("filler", [b"\x00", b"\xff", b"\x0a", b"\x06\x00"])
def test_a_block_of_anything_is_damage(filler: bytes) -> None:
    for start in range(0, 1024, 128):
        machine, story = story_of()
        machine.media.pages(SEGMENT).write(start, (filler * 64)[:64])
        outcome = seen(machine, story)
        assert outcome.damages or outcome.scrubbed
        assert len(outcome.bad) <= 1
        assert outcome.taken[: max(story.seen)] or outcome.bad == [1]


def test_a_tail_of_anything_behind_the_end_is_cut() -> None:
    for filler in (b"\x00", b"\xff", b"\x0a\x00", b"\x06\x00\x01", random.Random(1).randbytes(999)):
        machine, story = story_of()
        pages = machine.media.pages(SEGMENT)
        pages.write(pages.cache.size, (filler * 1000)[:1000])
        outcome = seen(machine, story)
        assert (outcome.damages, outcome.bad, outcome.broken) == ((), [], None)


def test_a_record_that_strayed_is_not_taken_for_one() -> None:
    """The file doubled behind itself: every record in it is whole, and none belongs there."""
    machine, story = story_of()
    pages = machine.media.pages(SEGMENT)
    pages.write(pages.cache.size, machine.media.content(SEGMENT))

    outcome = seen(machine, story)

    assert (outcome.damages, outcome.bad, outcome.broken) == ((), [], None)


def test_a_file_that_ends_too_early_is_damage() -> None:
    machine, story = story_of(fill_segments)
    pages = machine.media.pages(SEGMENT)
    pages.truncate(pages.cache.size - 2000)
    machine.media.pages("row/00000001.pos").write(0, b"x")

    outcome = seen(machine, story)

    assert not all(damage.mended for damage in outcome.damages)
    assert outcome.broken is not None
    assert outcome.bad == list(range(min(outcome.bad), min(outcome.bad) + len(outcome.bad)))
    assert len(outcome.taken) == min(outcome.bad) - 1


@pytest.mark.parametrize("position", [2, 3, 4])
def test_a_file_that_is_shorter_than_its_index_says_is_damage_even_between_two_records(
    position: int,
) -> None:
    machine, story = story_of(orderly=True)
    offset = machine.run(partial(places, story=story))[position - 1]
    machine, story = story_of(orderly=True)
    machine.media.pages(SEGMENT).truncate(offset)

    outcome = seen(machine, story)

    assert outcome.broken is not None
    assert outcome.taken == list(range(1, position))
    assert outcome.bad == list(range(position, max(story.seen) + 1))


def test_what_was_cut_off_a_file_is_told_by_every_scrub() -> None:
    """As soon as an index said which items lack, nothing did, if all that was left of the file was whole."""
    machine, story = story_of(fill_segments)
    indexes = [path[4:] for path in machine.media.paths() if path.endswith(".pos")]
    offset = machine.run(partial(places, story=story))[2]
    machine, story = story_of(fill_segments)
    machine.run(partial(unlink_all, names=tuple(indexes)))
    machine.media.pages(SEGMENT).truncate(offset)

    for _ in range(3):
        outcome = seen(machine, story)
        found = [damage for damage in outcome.scrubbed if not damage.mended]
        assert {damage.file for damage in found} == {"00000001.seg"}
        assert min(damage.first for damage in found) == 3
        assert outcome.bad == list(range(3, max(damage.last for damage in found) + 1))


async def places_in(env: Env, *, story: Story, number: int) -> list[int]:
    """The positions that a segment records."""
    row = await LoneRow.open(await env.disk.folder("row"), env, story.options)
    segment = next(each for each in row.store.segments() if each.number == number)
    return [p for p in range(segment.first, segment.last + 1) if p in story.seen]


async def unlink_all(env: Env, *, names: tuple[str, ...]) -> None:
    folder = await env.disk.folder("row")
    for name in names:
        await folder.unlink(name)
    await folder.sync_names()


@pytest.mark.parametrize(
    "names", [("00000001.seg",), ("00000002.seg",), ("00000002.seg", "00000002.pos")]
)
def test_a_file_that_is_gone_is_damage(names: tuple[str, ...]) -> None:
    """The oldest may have been dropped; its index would have gone before it."""
    machine, story = story_of(fill_segments)
    machine.run(partial(unlink_all, names=names))

    for _ in range(3):
        outcome = seen(machine, story)
        assert [damage.file for damage in outcome.damages] == [names[0]]
        assert outcome.broken is not None
        assert len(outcome.taken) == min(outcome.bad) - 1


@pytest.mark.parametrize("number", [1, 2])
def test_a_file_that_is_empty_is_damage_and_what_was_durable_behind_it_stays(number: int) -> None:
    """Without an index it was taken for one that was never told of, and all files behind it went."""
    machine, story = story_of(fill_segments)
    file = f"{number:08d}.seg"
    files = [path for path in machine.media.paths() if path.endswith(".seg")]
    assert len(files) > 2
    lost = machine.run(partial(places_in, story=story, number=number))
    machine, story = story_of(fill_segments)
    indexes = [path[4:] for path in machine.media.paths() if path.endswith(".pos")]
    machine.run(partial(unlink_all, names=tuple(indexes)))
    machine.media.pages(f"row/{file}").truncate(0)

    for _ in range(3):
        outcome = seen(machine, story)
        assert {each.file for each in (*outcome.damages, *outcome.scrubbed)} == {file}
        assert outcome.bad == lost
        assert outcome.broken is not None
        assert outcome.taken == [position for position in story.seen if position < min(lost)]
    assert set(files) <= set(machine.media.paths())


@pytest.mark.parametrize("how", ["gone", "empty", "cut", "zeros"])
def test_without_the_last_file_nobody_knows_where_the_row_ended(how: str) -> None:
    """The index of the one before says that it was there.  New numbers could be old ones."""
    machine, story = story_of(fill_segments)
    last = max(path for path in machine.media.paths() if path.endswith(".seg"))
    pages = machine.media.pages(last)
    size = pages.cache.size
    if how == "gone":
        machine.run(partial(unlink_all, names=(last[4:],)))
    elif how == "zeros":
        pages.write(0, bytes(size))
    else:
        pages.truncate(0 if how == "empty" else 60)

    for _ in range(3):
        outcome = seen(machine, story)
        assert outcome.broken is not None
        assert last[4:] in str(outcome.broken)
        assert outcome.taken == [p for p in story.seen if p not in outcome.bad]
        assert outcome.bad == list(range(len(outcome.taken) + 1, max(story.seen) + 1))


def test_copies_that_are_alone_in_the_last_file_are_made_again() -> None:
    machine, story = story_of(fill_segments)
    numbers = [n for n in range(1, 9) if f"row/{n:08d}.seg" in machine.media.paths()]
    last = f"row/{numbers[-1]:08d}.seg"
    content = machine.media.content(last)
    length = size_of(int.from_bytes(content[8:10], "little"), 0)
    kept = machine.run(partial(places_in, story=story, number=numbers[-1]))
    machine, story = story_of(fill_segments)
    machine.media.pages(last).truncate(length)
    story.seen = {p: crc for p, crc in story.seen.items() if p not in kept}
    flipped(machine, last, 40)

    outcome = seen(machine, story)

    assert outcome.what == ["the beginning of the segment"]
    assert (outcome.bad, outcome.broken) == ([], None)
    assert outcome.scrubbed == []


def test_the_index_of_a_part_is_not_taken_for_that_of_the_whole() -> None:
    """Whoever restores an old index file, as an orderly close left it, hides nothing by that."""
    machine, story = story_of(fill, orderly=True)
    part = machine.media.content("row/00000001.pos")
    machine.run(story.life(fill_segments, orderly=False))
    pages = machine.media.pages("row/00000001.pos")
    assert machine.media.content("row/00000001.pos") != part
    pages.truncate(0)
    pages.write(0, part)

    outcome = seen(machine, story)

    assert (outcome.bad, outcome.broken) == ([], None)
    assert outcome.taken[: max(story.seen)] == list(range(1, len(outcome.taken) + 1))


def test_an_index_that_ends_before_its_segment_is_made_again() -> None:
    machine, story = story_of(fill_segments, orderly=True)

    async def shorten(env: Env) -> None:
        disk = await env.disk.folder("row")
        numbers = [n for name in await disk.names() if (n := index_number(name)) is not None]
        for number in numbers[-2:]:  # the one before the open one
            head = await read_index_head(disk, number)
            assert head is not None
            if not head.sealed:
                continue
            places = (await read_places(disk, head))[:-1]
            buffers = encode_index(
                Column(head.first, places, head.reaches),
                head.chronicle,
                uuid=head.uuid,
                segment=number,
                covered=head.covered,
                sealed=True,
                rewritten=head.rewritten,
            )
            file = await disk.open(index_file(number))
            file.truncate(0)
            file.write(0, buffers)
            await file.sync()
            file.close()

    machine.run(shorten)

    for _ in range(2):
        outcome = seen(machine, story)
        assert (outcome.bad, outcome.broken, outcome.damages) == ([], None, ())


# -- what is done about it ------------------------------------------------------------------


def test_the_place_of_an_item_is_made_again_and_put_back() -> None:
    machine, story = story_of()
    third = machine.run(partial(places, story=story))[2]
    machine, story = story_of()
    flipped(machine, SEGMENT, third - 24 - 30)  # before it: an item, a mark

    outcome = seen(machine, story)

    assert outcome.what == ["the place of an item, which is known"]
    assert (outcome.bad, outcome.broken) == ([], None)
    assert outcome.scrubbed == []


def test_damaged_heads_end_the_row_for_who_has_no_snapshot_above_them() -> None:
    machine, story = story_of()
    third = machine.run(partial(places, story=story))[2]
    for after, taken in ((0, [1, 2]), (1, [2]), (2, [])):
        machine, story = story_of()
        flipped(machine, SEGMENT, third + 60)
        outcome = seen(machine, story, after=after)
        assert (outcome.taken, outcome.bad) == (taken, [3])
        assert "00000001.seg" in str(outcome.broken)
        assert "position 3" in str(outcome.broken)


def test_damaged_heads_below_a_snapshot_are_told_and_the_row_goes_on() -> None:
    machine, story = story_of()
    third = machine.run(partial(places, story=story))[2]
    machine, story = story_of()
    flipped(machine, SEGMENT, third + 60)

    outcome = seen(machine, story, after=3)

    assert outcome.what == ["the heads of a bundle of 3 commands"]
    assert outcome.bad == [3]
    assert outcome.broken is None
    assert outcome.taken == [4, 5]
    assert [item.position for item in outcome.new] == [6]


def test_a_row_that_ended_takes_nothing_after_a_restart_either() -> None:
    machine, story = story_of()
    third = machine.run(partial(places, story=story))[2]
    machine, story = story_of()
    flipped(machine, SEGMENT, third + 60)
    for _ in range(3):
        outcome = seen(machine, story)
        assert outcome.taken == [1, 2]
        assert outcome.broken is not None


def test_a_damaged_body_spoils_nobody_elses_number() -> None:
    machine, story = story_of()
    content = machine.media.content(SEGMENT)
    flipped(machine, SEGMENT, content.index(b"<3>") + 5)

    outcome = seen(machine, story)

    assert outcome.damages == ()
    assert outcome.bad == [3]
    assert outcome.broken is None
    (damage,) = outcome.scrubbed
    assert (damage.what, damage.first, damage.last, damage.topics) == ("a body", 3, 3, ("t",))
    assert str(damage) == (
        f"00000001.seg: 33 bytes at {content.index(b'<3>')} are damaged: a body (position 3) of t"
    )


def test_a_sector_that_cannot_be_read_is_damage() -> None:
    machine, story = story_of(fill_segments, orderly=True)
    machine.media.spoil("row/00000002.seg", 1500)

    outcome = seen(machine, story)

    assert outcome.scrubbed
    assert len(outcome.bad) in (1, 2), "a sector may hold the end of one and the start of another"


def test_where_a_start_or_a_view_may_have_been_hit_the_store_takes_a_fresh_uuid_once() -> None:
    machine, story = story_of()
    before = machine.run(partial(look, story=story))
    machine, story = story_of()
    flipped(machine, SEGMENT, 120)  # the START record

    first, second, third = (seen(machine, story) for _ in range(3))

    assert first.uuid != before.uuid
    assert first.formers == (before.uuid,)
    for each in (first, second, third):
        assert (each.bad, each.broken) == ([], None), "the row stays"
    assert [(each.uuid, each.formers) for each in (second, third)] == [
        (first.uuid, first.formers)
    ] * 2
    assert second.lineage == before.lineage, "at level fsync nothing can have been lost"


def test_a_name_that_only_a_start_says_any_more_is_kept() -> None:
    machine, story = story_of()
    flipped(machine, SEGMENT, 120)  # the START record: the store takes another name
    machine.run(story.life(fill, orderly=False))
    machine.run(partial(unlink_all, names=("00000001.pos",)))
    flipped(machine, "row/00000002.seg", 100)  # the copies, which say it

    first, second = (seen(machine, story) for _ in range(2))

    assert len(first.formers) == 2
    assert (second.uuid, second.formers) == (first.uuid, first.formers)
    assert (first.bad, second.bad) == ([], [])


def test_the_next_start_counts_on_from_those_that_are_lost() -> None:
    """Else a start that reads all of it would take the newest file for that of an earlier one."""
    machine, story = story_of()
    uuid = machine.run(store_uuid)
    machine.run(story.life(fill, orderly=False))
    whole = machine.media.content(SEGMENT)
    starts, offset = [], 0
    while offset < len(whole):
        record = decode(whole, 0, offset, seed_of(uuid, 1))
        assert record is not None
        if record.kind == RecordKind.START:
            starts.append(offset)
        offset = record.end
    for offset in starts[1:]:
        flipped(machine, SEGMENT, offset + PREFIX_BYTES)
    first = seen(machine, story)
    machine.run(partial(unlink_all, names=("00000001.pos", "00000002.pos")))

    again = seen(machine, story)

    assert first.formers == (uuid,)
    assert (again.uuid, again.broken, again.bad) == (first.uuid, None, [])


async def store_uuid(env: Env) -> bytes:
    row = await LoneRow.open(await env.disk.folder("row"), env, small())
    return row.store.uuid


def test_at_level_write_a_lost_start_ends_the_lineage() -> None:
    """Nobody knows under which boot it ran."""
    machine, story = story_of(level=WRITE)
    before = seen(machine, story)
    machine, story = story_of(level=WRITE)
    machine.media.pages(SEGMENT)
    flipped(machine, SEGMENT, 120)

    assert seen(machine, story).lineage != before.lineage


@pytest.mark.parametrize("offset", [3, 40, 90, 340, 355])
def test_what_copies_and_marks_say_is_known_without_them_and_put_back(offset: int) -> None:
    machine, story = story_of()
    flipped(machine, SEGMENT, offset)
    outcome = seen(machine, story)
    assert outcome.formers == ()
    assert [damage.mended for damage in outcome.damages] == [True]
    assert outcome.scrubbed == []


# -- what cannot be ours --------------------------------------------------------------------


def test_files_of_two_stores_are_not_mixed_up() -> None:
    machine, story = story_of(fill_segments)
    other = Machine(2)
    other.run(Story(small()).life(fill_segments, orderly=False))
    for number in (1, 2, 3):
        machine, story = story_of(fill_segments)
        pages = machine.media.pages(f"row/{number:08d}.seg")
        pages.truncate(0)
        pages.write(0, other.media.content(f"row/{number:08d}.seg"))
        paths = {path: machine.media.content(path) for path in machine.media.paths()}
        if f"row/{number:08d}.pos" in paths:
            machine.media.pages(f"row/{number:08d}.pos").write(0, b"x")
        with pytest.raises(Corrupt, match="two folders were mixed up"):
            seen(machine, story)
        for path, content in paths.items():
            if path.endswith(".seg"):
                assert machine.media.content(path) == content, "nothing was changed"


def test_a_file_that_says_nothing_of_its_owner_is_left_alone() -> None:
    machine, story = story_of()
    pages = machine.media.pages(SEGMENT)
    pages.write(0, bytes(400))
    pages.write(400, bytes(pages.cache.size - 400))

    with pytest.raises(Corrupt, match="nothing was changed"):
        seen(machine, story)
    assert machine.media.content(SEGMENT) == bytes(pages.cache.size)
