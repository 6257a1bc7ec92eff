"""The row store in its daily life: segments, their indexes, what goes, and what is read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import TypeVar

import pytest
import trio

from duckrow.node.commands import Command
from duckrow.node.env import Env
from duckrow.node.errors import Corrupt, NotFound
from duckrow.node.forms import DIGEST_ZERO, chain
from duckrow.node.lonerow import LoneRow
from duckrow.node.places import place
from duckrow.node.row import Bundle, Item
from duckrow.node.rowstore import RowStore
from duckrow.node.storeoptions import MEMORY, WRITE, StoreOptions
from sim.alone import Machine
from sim.storekit import Story, command, number_of, one_life, small

T = TypeVar("T")


def run(
    machine: Machine,
    work: Callable[[LoneRow, Story], Awaitable[T]],
    options: StoreOptions | None = None,
    *,
    orderly: bool = False,
) -> T:
    options = options or small()
    story = Story(options, submitted=[[]])
    return one_life(machine, options, lambda row: work(row, story), orderly=orderly)


async def fill(row: LoneRow, story: Story) -> list[Item]:
    """Four sealed segments, and an open one."""
    items = []
    for size in [990] * 13:
        items += await story.produce(row, size)
    await trio.sleep(1)
    return items


def sealed(row: LoneRow) -> list[int]:
    return [segment.number for segment in row.store.segments() if segment.sealed]


# -- segments -------------------------------------------------------------------------------


def test_a_segment_is_sealed_when_the_next_record_would_not_fit() -> None:
    async def work(row: LoneRow, story: Story) -> None:
        await fill(row, story)
        segments = row.store.segments()
        assert [segment.number for segment in segments] == [1, 2, 3, 4, 5]
        assert all(segment.bytes <= 4096 for segment in segments)
        assert [segment.sealed for segment in segments] == [True] * 4 + [False]
        assert segments[0].first == 1
        for one, other in pairwise(segments):
            assert one.last + 1 == other.first
            assert one.reach == one.last

    run(Machine(1), work)


def test_what_is_larger_than_a_segment_gets_one_of_its_own() -> None:
    async def work(row: LoneRow, story: Story) -> None:
        await story.produce(row, 10)
        await story.produce(row, 20_000)
        await story.produce(row, 30_000)
        await story.produce(row, 10)
        bodies = [
            len(each.body)
            for item in await row.store.read_items(2, 1 << 20, bodies=True)
            for each in item.content.commands  # type: ignore[union-attr]
        ]
        assert [size > 5000 for size in bodies] == [False, True, True, False]
        assert len(row.store.segments()) == 4

    run(Machine(1), work)


def test_a_sealed_segment_that_is_durable_gets_its_index_file() -> None:
    machine = Machine(1)
    run(machine, fill)

    names = machine.media.paths(durable=True)
    assert [name for name in names if name.endswith(".pos")] == [
        f"row/{number:08d}.pos" for number in (1, 2, 3, 4)
    ]


def test_no_index_file_is_written_before_its_segment_and_the_next_begin_are_durable() -> None:
    machine = Machine(1)
    media = machine.media
    indexed: list[str] = []

    def note(kind: str, path: str, _offset: int, _length: int) -> None:
        if kind == "create" and path.endswith(".pos.new"):
            segment = path.replace(".pos.new", ".seg")
            indexed.append(segment)
            assert media.durable_content(segment) == media.content(segment)
            following = f"row/{int(segment[4:12]) + 1:08d}.seg"
            assert following in media.paths(durable=True)
            assert media.durable_content(following)

    async def work(row: LoneRow, story: Story) -> None:
        media.note = note
        media.sync_latency = 0.07
        for _ in range(30):
            await story.produce(row, 990)
            await trio.sleep(0.01)
        await trio.sleep(9)
        media.note = None
        assert len(indexed) == len(sealed(row)) > 5

    run(machine, work, small(level=WRITE))


def test_after_an_orderly_close_nothing_is_read_record_by_record() -> None:
    machine = Machine(1)
    run(machine, fill, orderly=True)
    machine.media.power_loss()

    async def work(row: LoneRow, _story: Story) -> None:
        recovered = row.store.recovered
        assert (recovered.records, recovered.rewritten_bytes, recovered.cut_bytes) == (0, 0, 0)
        assert recovered.position == 14
        assert len(await row.store.read_items(1, 1 << 20)) == 15

    run(machine, work)


def test_after_a_kill_only_the_segments_without_an_index_are_read() -> None:
    machine = Machine(1)
    run(machine, fill)

    async def work(row: LoneRow, _story: Story) -> None:
        recovered = row.store.recovered
        # SEGMENT, START, VIEW and ITEM, or two for each bundle; and marks.
        assert 0 < recovered.records < 12
        assert recovered.position == 14

    run(machine, work)


def test_what_came_after_an_orderly_close_is_found_behind_its_index() -> None:
    machine = Machine(1)

    async def add(row: LoneRow, story: Story) -> int:
        await story.produce(row, 10)
        return row.store.recovered.records

    assert run(machine, add, orderly=True) == 0
    assert run(machine, add) == 0
    # The index of the first end is still there, and speaks of the beginning.
    assert 0 < run(machine, add) < 10
    assert run(machine, add, orderly=True) < 17
    assert run(machine, add) == 0


@pytest.mark.parametrize("number", [1, 2, 4])
def test_an_index_file_that_is_missing_is_made_again(number: int) -> None:
    machine = Machine(1)
    run(machine, fill)
    whole = machine.media.content(f"row/{number:08d}.pos")

    async def lose(env: Env) -> None:
        await (await env.disk.folder("row")).unlink(f"{number:08d}.pos")

    async def work(row: LoneRow, _story: Story) -> None:
        assert row.store.recovered.damages == ()
        await trio.sleep(1)

    machine.run(lose)
    run(machine, work)

    assert machine.media.content(f"row/{number:08d}.pos") == whole


def test_an_index_file_that_rots_while_the_store_runs_is_made_again() -> None:
    machine = Machine(1)

    async def work(row: LoneRow, story: Story) -> None:
        await fill(row, story)
        machine.media.flip("row/00000002.pos", 100)
        places = [await row.store.place_of(position) for position in range(1, 14)]
        assert places == sorted(places)
        await row.store.index_sealed()
        assert await row.store.scrub() == []

    run(machine, work)


# -- reading --------------------------------------------------------------------------------


def test_items_and_bodies_are_read_by_position_and_by_place() -> None:
    async def work(row: LoneRow, story: Story) -> None:
        items = []
        for sizes in ((10,), (0, 3000, 20), tuple([50] * 60), (9000,), (1, 2)):
            items += await story.produce(row, *sizes)
        store = row.store
        read = await store.read_items(2, 1 << 20, bodies=True)
        assert read == items
        for item in items:
            assert isinstance(item.content, Bundle)
            heads = await store.read_heads(item.place)
            assert heads.crc == item.crc
            assert heads.bundle == item.content._replace(
                commands=tuple(Command(head) for head, _ in item.content.commands)
            )
            for index, each in enumerate(item.content.commands):
                assert await store.read_body(item.place + index) == each.body
        with pytest.raises(Corrupt, match="has no command 2"):
            await store.read_body(items[-1].place + 2)

    run(Machine(1), work)


def test_items_come_within_the_limit_but_one_always() -> None:
    async def work(row: LoneRow, story: Story) -> None:
        await fill(row, story)
        store = row.store
        assert [i.position for i in await store.read_items(3, 1, bodies=True)] == [3]
        assert [i.position for i in await store.read_items(3, 3000, bodies=True)] == [3, 4, 5]
        assert len(await store.read_items(3, 3000)) > 10, "without bodies they are small"
        assert [i.position for i in await store.read_items(3, 1 << 20, end=4)] == [3, 4]
        assert await store.read_items(store.position + 1, 100) == []

    run(Machine(1), work)


def test_what_is_not_there_is_not_found() -> None:
    async def work(row: LoneRow, story: Story) -> None:
        await fill(row, story)
        store = row.store
        for position in (0, 15, 99):
            with pytest.raises(NotFound, match="it has 1 to 14"):
                await store.place_of(position)
        with pytest.raises(NotFound, match=r"00000077\.seg"):
            await store.read_body(place(77, 0))

    run(Machine(1), work)


def test_a_place_where_no_bundle_begins_is_told() -> None:
    async def work(row: LoneRow, story: Story) -> None:
        (item,) = await story.produce(row, 100)
        mark = await row.store.place_of(1)
        for wrong in (item.place + (8 >> 3 << 14), mark):
            with pytest.raises(Corrupt, match=r"00000001\.seg, offset"):
                await row.store.read_body(wrong)

    run(Machine(1), work)


def test_the_digest_of_every_position_is_known() -> None:
    async def work(row: LoneRow, story: Story) -> None:
        await fill(row, story)
        digest = DIGEST_ZERO
        assert await row.store.digest_of(0) == digest
        for item in await row.store.read_items(1, 1 << 20):
            digest = chain(digest, item.position, item.crc)
            assert await row.store.digest_of(item.position) == digest

    run(Machine(1), work)


def test_readers_are_served_while_segments_come_and_go() -> None:
    async def work(row: LoneRow, story: Story) -> None:
        items = await fill(row, story)

        async def read() -> None:
            for _ in range(30):
                for item in items:
                    try:
                        body = await row.store.read_body(item.place)
                    except NotFound:
                        continue
                    number = int(body[1 : body.index(b">")])
                    assert body == command(number, 990).body

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(read)
            for _ in range(10):
                await story.produce(row, 990)
                row.release(row.store.position, row.store.position)
                await row.store.drop(sealed(row))

    run(Machine(1), work, small(open_files=2))


# -- forgetting -----------------------------------------------------------------------------


def test_only_what_is_released_sealed_and_not_followable_is_dropped() -> None:
    async def work(row: LoneRow, story: Story) -> None:
        await fill(row, story)
        store = row.store
        reaches = {segment.number: segment.reach for segment in store.segments()}
        everything = range(1, 6)
        assert await store.drop(everything) == [], "nothing was released"
        row.release(reaches[1], 99)
        assert await store.drop(everything) == [], "its last item may still be needed"
        row.release(99, reaches[1])
        assert await store.drop(everything) == [], "so may its last body"
        row.release(reaches[1] + 1, 99)
        assert await store.drop([2, 3]) == []
        assert await store.drop(everything) == [1]
        row.release(99, 99)
        # Of 4,096 bytes that stay followable the open segment has too few.
        assert await store.drop(everything) == [2, 3]
        assert sealed(row) == [4]
        assert store.floor == reaches[3] + 1

    run(Machine(1), work)


def test_a_segment_reaches_as_far_as_the_bodies_that_were_placed_later_from_another() -> None:
    """Its last bundle lost its place to a torn write, and gets it in the next segment."""
    machine, options = Machine(1), small(level=MEMORY)

    async def fill_up(row: LoneRow, story: Story) -> int:
        size = row.store.segments()[0].bytes
        await story.produce(row, 100)
        more = row.store.segments()[0].bytes - size  # for 100 bytes
        while (left := 4096 - row.store.segments()[0].bytes) > 3 * more:
            await story.produce(row, 100)
        await story.produce(row, 100 + left - more - 64)
        return row.store.position

    async def reach(row: LoneRow, story: Story) -> tuple[int, int]:
        first = row.store.segments()[0]
        await fill(row, story)
        assert not row.store.recovered.damages
        return first.last, first.reach

    position = run(machine, fill_up, options)
    machine.media.kill()
    pages = machine.media.pages("row/00000001.seg")
    pages.truncate(pages.cache.size - 8)

    found = [run(machine, reach, options, orderly=orderly) for orderly in (False, True, False)]

    assert found == [(position - 1, position)] * 3


def test_the_floor_survives_a_restart_whatever_went() -> None:
    machine = Machine(1)

    async def drop(row: LoneRow, story: Story) -> int:
        await fill(row, story)
        row.release(row.store.position, row.store.position)
        assert await row.store.drop([2]) == [2]
        return row.store.floor

    async def look(row: LoneRow, _story: Story) -> int:
        assert row.store.recovered.damages == ()
        assert sealed(row) == [1, 3, 4]
        with pytest.raises(NotFound):
            await row.store.place_of(row.store.floor - 1)
        assert (await row.store.read_items(row.store.floor, 1))[0].position == row.store.floor
        # Who has everything before it can compare digests.
        before = await row.store.digest_of(row.store.floor - 1)
        (item,) = await row.store.read_items(row.store.floor, 1)
        assert chain(before, item.position, item.crc) == await row.store.digest_of(item.position)
        with pytest.raises(NotFound):
            await row.store.digest_of(row.store.floor - 2)
        # What is older than the floor can still be read, where it is there.
        assert (await row.store.read_items(1, 1))[0].position == 1
        return row.store.floor

    floor = run(machine, drop)
    assert floor > 4
    machine.media.power_loss()
    assert [run(machine, look, orderly=orderly) for orderly in (False, True, False)] == [floor] * 3


def test_an_older_segment_goes_only_after_the_copies_in_the_newest_are_durable() -> None:
    """At level memory nothing else would make them so."""
    machine = Machine(1)

    async def work(row: LoneRow, story: Story) -> None:
        await fill(row, story)
        await story.produce(row, 990, 990, 990)  # a new segment, not synced
        row.release(row.store.position, row.store.position)
        assert await row.store.drop(sealed(row))

    async def look(row: LoneRow, _story: Story) -> None:
        assert row.store.recovered.position >= 14
        assert row.store.recovered.damages == ()

    for seed in range(10):
        machine = Machine(seed)
        run(machine, work, small(level=MEMORY))
        machine.media.power_loss()
        run(machine, look, small(level=MEMORY))


def test_views_and_starts_are_known_when_the_segments_that_said_them_are_gone() -> None:
    machine = Machine(1)

    async def drop(row: LoneRow, story: Story) -> tuple[object, object]:
        await fill(row, story)
        row.release(row.store.position, row.store.position)
        assert 1 in await row.store.drop(sealed(row))
        return row.store.view, dict(row.store.chronicle.starts)

    async def look(env: Env) -> tuple[object, object]:
        store = await RowStore.open(await env.disk.folder("row"), env, small())
        return store.view, dict(store.chronicle.starts)

    known = run(machine, drop)
    assert machine.run(look) == known


def test_a_scrub_finds_what_nobody_reads() -> None:
    machine = Machine(1)

    async def work(row: LoneRow, story: Story) -> None:
        await fill(row, story)
        assert await row.store.scrub() == []
        machine.media.flip("row/00000002.seg", 1000)
        machine.media.flip("row/00000003.pos", 100)
        found = await row.store.scrub()
        assert [(damage.file, damage.what) for damage in found] == [
            ("00000002.seg", "a body"),
            ("00000003.pos", "the index, which is made again"),
        ]
        assert found[0].first == found[0].last > 0
        assert number_of(command(1)) == 1

    run(machine, work, small(level=WRITE))
