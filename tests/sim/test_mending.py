"""A damaged segment gets back what lay there, whatever was hit, from items that others have."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest

from duckrow.node.commands import Command
from duckrow.node.env import Env
from duckrow.node.journal import Journal
from duckrow.node.places import offset_of, segment_of
from duckrow.node.positions import Column, encode_index
from duckrow.node.row import Bundle, Item
from duckrow.node.segmentreads import read_index_head, read_places
from duckrow.node.segments import index_file, segment_file, segment_number
from duckrow.node.storeoptions import FSYNC
from sim.alone import Machine
from sim.journalkit import ME, NOT_HURT, Tale, act, mend
from sim.park import SimCrashed
from sim.storekit import small

Script = Callable[[Machine, Journal], Awaitable[None]]
SECTOR = 512


async def all_items(journal: Journal) -> dict[int, Item]:
    store, found = journal.store, dict[int, Item]()
    for position in range(store.floor, store.position + 1):
        (found[position],) = await store.read_items(position, 1, bodies=True)
    return found


async def live(tale: Tale, journal: Journal) -> None:
    await tale.change_view(journal)
    await act(tale, journal)
    await tale.sync(journal)


def with_a_row(script: Script) -> None:
    """Two views, with bundles of three origins, in some segments; then what is to be tried."""
    machine, tale = Machine(1), Tale(small(level=FSYNC))

    async def last(tale: Tale, journal: Journal) -> None:
        await live(tale, journal)
        await script(machine, journal)

    machine.run(tale.life(live, orderly=True))
    machine.run(tale.life(last, orderly=False))


def flip_some(count: int, seed: int) -> None:
    async def script(machine: Machine, journal: Journal) -> None:
        rng, items, store = random.Random(seed), await all_items(journal), journal.store
        for _ in range(count):
            segment = rng.choice(store.segments())
            name, offset = f"row/{segment_file(segment.number)}", rng.randrange(segment.bytes)
            before = machine.media.content(name)
            machine.media.flip(name, offset)
            if machine.media.content(name) == before:
                continue  # the cache has a newer byte there
            assert await mend(journal, segment.number, items) == "", (name, offset)
            assert await store.scrub() == [], (name, offset)
            assert await all_items(journal) == items

    with_a_row(script)


def test_a_bit_that_was_flipped_anywhere_is_put_back() -> None:
    flip_some(60, 7)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(5))
def test_ten_thousand_flipped_bits_are_put_back(seed: int) -> None:
    flip_some(2000, seed)


def test_what_was_put_back_is_there_after_a_loss_of_power_too() -> None:
    async def script(machine: Machine, journal: Journal) -> None:
        items = await all_items(journal)
        await journal.sync()
        for segment in journal.store.segments()[:-1]:
            name = f"row/{segment_file(segment.number)}"
            whole = machine.media.content(name)
            machine.media.flip(name, segment.bytes // 2)
            assert await mend(journal, segment.number, items) == ""
            assert machine.media.durable_content(name) == whole

    with_a_row(script)


def test_the_beginning_of_a_segment_that_began_with_another_name_is_put_back() -> None:
    async def script(machine: Machine, journal: Journal) -> None:
        items, store = await all_items(journal), journal.store
        store.take_new_name()
        await store.begin(99)
        number = store.segments()[-1].number
        await store.index_sealed()
        # What is made again from the records of the segment before does not know the name.
        await store.disk.unlink(index_file(number - 1))
        assert await mend(journal, number - 1, items) == NOT_HURT
        machine.media.flip(f"row/{segment_file(number)}", 100)

        assert await mend(journal, number, items) == ""

        assert await store.scrub() == []

    with_a_row(script)


def test_a_sector_that_cannot_be_read_is_put_back() -> None:
    async def script(machine: Machine, journal: Journal) -> None:
        rng, items, store = random.Random(3), await all_items(journal), journal.store
        for _ in range(20):
            segment = rng.choice(store.segments()[1:-1])  # the first one's beginning is one sector
            name = f"row/{segment_file(segment.number)}"
            machine.media.spoil(name, rng.randrange(SECTOR, segment.bytes))
            assert await mend(journal, segment.number, items) in ("", NOT_HURT)
            assert await store.scrub() == []
            assert await all_items(journal) == items

    with_a_row(script)


def test_what_lay_behind_a_damaged_beginning_is_found_again_without_its_index() -> None:
    """One sector may hold both; the records had an older start than the beginning, and strayed there, it seemed."""

    async def script(machine: Machine, journal: Journal) -> None:
        items, store = await all_items(journal), journal.store
        await store.index_sealed()
        for segment in store.segments()[1:-1]:
            pages = machine.media.pages(f"row/{segment_file(segment.number)}")
            pages.write(SECTOR, bytes(2 * SECTOR))
            assert await mend(journal, segment.number, items) == ""
            await store.disk.unlink(index_file(segment.number))
            await store.scrub()  # it makes the index again
            assert await all_items(journal) == items

    with_a_row(script)


def test_what_is_put_back_behind_a_damaged_beginning_and_a_bundle_cut_short_is_found_again() -> (
    None
):
    """Of the file only the head of a bundle is whole: what came behind that had no start count, either."""

    async def script(machine: Machine, journal: Journal) -> None:
        items, store = await all_items(journal), journal.store
        await store.index_sealed()
        segment = store.segments()[4]
        first = next(i for i in items.values() if segment_of(i.place) == segment.number)
        pages = machine.media.pages(f"row/{segment_file(segment.number)}")
        pages.write(100, bytes(8))
        pages.truncate(offset_of(first.place) + 120)
        assert await mend(journal, segment.number, items) == ""
        await store.disk.unlink(index_file(segment.number))
        await store.scrub()  # it makes the index again
        assert await all_items(journal) == items

    with_a_row(script)


def test_a_beginning_that_would_be_longer_than_it_was_takes_the_place_of_nothing() -> None:
    """What lay where it ended then was left out, and the segment looked whole: nobody asked for it any more."""

    async def script(machine: Machine, journal: Journal) -> None:
        items, store = await all_items(journal), journal.store
        await store.index_sealed()
        number = store.segments()[4].number
        head = await read_index_head(store.disk, number - 1)
        assert head is not None
        column = Column(head.first, await read_places(store.disk, head), dict(head.reaches))
        head.chronicle.heard[99] = 1 << 40  # it was made again, and knows more
        index = encode_index(
            column,
            head.chronicle,
            uuid=head.uuid,
            segment=number - 1,
            covered=head.covered,
            sealed=True,
            rewritten=False,
        )
        file = await store.disk.open(index_file(number - 1))
        file.truncate(0)
        file.write(0, index)
        file.close()
        pages = machine.media.pages(f"row/{segment_file(number)}")
        pages.write(0, bytes(2 * SECTOR))
        assert "had another length" in await mend(journal, number, items)

    with_a_row(script)


def test_what_others_give_counts_only_if_the_digests_know_it() -> None:
    async def script(machine: Machine, journal: Journal) -> None:
        items, store = await all_items(journal), journal.store
        position = next(p for p, each in items.items() if isinstance(each.content, Bundle))
        content = items[position].content
        assert isinstance(content, Bundle)
        number = items[position].place >> 38
        name = f"row/{segment_file(number)}"
        at = machine.media.content(name).index(bytes(content.commands[0].body))
        machine.media.flip(name, at)
        wound = await store.mending.look(number, {})
        assert wound is not None
        other = Command(content.commands[0].head, b"something else")
        forged = items[position]._replace(
            crc=items[position].crc ^ 1, content=content._replace(commands=(other,))
        )
        wound.give(forged)
        assert await store.mending.refuse(wound) == [position]
        assert wound.lacking == [position], "it is still to be asked for"
        wound.give(items[position])
        assert await store.mending.refuse(wound) == []
        assert await store.mending.mend(wound)

    with_a_row(script)


def test_what_was_damaged_elsewhere_after_the_look_is_asked_for_too() -> None:
    """Of an item only the record of its place was lost; its bundle lies in another segment.  It ended the bridge."""

    async def script(machine: Machine, journal: Journal) -> None:
        items, store = await all_items(journal), journal.store
        number = store.segments()[4].number
        own = next(i for i in items.values() if segment_of(i.place) == number)
        hurt(machine, own.place)
        wound, elsewhere = None, 0
        for offset in range(400, store.segments()[4].bytes, 40):
            machine.media.flip(f"row/{segment_file(number)}", offset, 1)
            wound = await store.mending.look(number, journal.waiting())
            assert wound is not None
            lost = {p for m in wound.survey.missing for p in range(m.first, m.last + 1)}
            if elsewhere := min(lost - wound.wanted.keys(), default=0):
                break
            machine.media.flip(f"row/{segment_file(number)}", offset, 1)
        assert wound is not None
        assert wound.lacking, "something of it is asked for"
        for position in wound.lacking:
            wound.give(items[position])
        other = items[elsewhere].place
        hurt(machine, other)
        assert await store.mending.refuse(wound) == []
        assert wound.lacking == [elsewhere]
        wound.give(items[elsewhere])
        assert await store.mending.refuse(wound) == []
        assert await store.mending.mend(wound)
        assert await mend(journal, segment_of(other), items) == ""
        assert await store.scrub() == []
        assert await all_items(journal) == items

    with_a_row(script)


def hurt(machine: Machine, place: int) -> None:
    """The record that lies there."""
    machine.media.flip(f"row/{segment_file(segment_of(place))}", offset_of(place) + 20, 1)


def with_what_waited(script: Callable[[Machine, Journal, Item, int], Awaitable[None]]) -> None:
    """An item of a segment that has all its own otherwise, and the number of the one that records it."""

    async def found(machine: Machine, journal: Journal) -> None:
        store = journal.store
        position, items = store.position, await all_items(journal)
        await store.index_sealed()
        store.release(position, position)
        for each in store.segments()[:-3]:
            item = items.get(each.reach)
            if (
                item is not None
                and segment_of(item.place) == each.number
                and each.reach > each.last
            ):
                later = next(s for s in store.segments() if s.first <= each.reach <= s.last)
                await script(machine, journal, item, later.number)
                return
        pytest.fail("no bundle waits when its segment ends")

    with_a_row(found)


@pytest.mark.parametrize(
    "how", ["a flipped bit", "a bad sector", "a sector that is not given for a moment"]
)
def test_what_is_damaged_of_a_segment_after_the_look_is_seen_by_another_look(how: str) -> None:
    """It was taken for something that cannot be put back: an image took the place of the row."""

    async def script(machine: Machine, journal: Journal) -> None:
        items, store = await all_items(journal), journal.store
        number = store.segments()[4].number
        first, *_, last = (i for i in items.values() if segment_of(i.place) == number)
        assert offset_of(first.place) // SECTOR < offset_of(last.place) // SECTOR
        hurt(machine, first.place)
        wound = await store.mending.look(number, journal.waiting())
        assert wound is not None
        for position in wound.lacking:
            wound.give(items[position])
        assert await store.mending.refuse(wound) == []
        name, at = f"row/{segment_file(number)}", offset_of(last.place) + 100
        if how == "a flipped bit":
            machine.media.flip(name, at)
        elif how == "a bad sector":
            machine.media.spoil(name, at)
        else:
            machine.media.read_eio = 3  # of the whole, of a page, and of a sector

        assert not await store.mending.mend(wound)

        assert not wound.unfit
        assert await mend(journal, number, items) == ""
        assert await store.scrub() == []
        assert await all_items(journal) == items

    with_a_row(script)


def test_what_waited_when_its_segment_ended_is_not_left_out_once_the_record_of_its_place_is_dropped() -> (
    None
):
    """A mark took its place, as if nobody needed it, and its entries were damaged for ever (seed 925386)."""

    async def script(machine: Machine, journal: Journal, item: Item, later: int) -> None:
        assert await journal.store.drop([later]) == [later]
        hurt(machine, item.place)
        wound = await journal.store.mending.look(segment_of(item.place), journal.waiting())
        assert wound is not None
        assert "is in the row" in wound.unfit, "an image has to come"
        assert not await journal.store.mending.mend(wound)

    with_what_waited(script)


def test_what_waited_is_put_back_as_long_as_the_record_of_its_place_is_there() -> None:
    async def script(machine: Machine, journal: Journal, item: Item, later: int) -> None:
        assert await journal.store.drop([later + 1]) == [later + 1]
        hurt(machine, item.place)
        items = {item.position: item}
        assert await mend(journal, segment_of(item.place), items) == ""
        assert await journal.store.read_items(item.position, 1, bodies=True) == [item]

    with_what_waited(script)


def test_what_a_view_has_left_out_needs_no_image_though_newer_segments_are_dropped() -> None:
    machine, tale = Machine(1), Tale(small(level=FSYNC))

    async def life(tale: Tale, journal: Journal) -> None:
        store = journal.store
        await live(tale, journal)
        where = min(journal.waiting())
        await store.seal(segment_of(max(journal.waiting())))
        await tale.change_view(journal, cut=0)
        for _ in range(3):
            await act(tale, journal)
            await tale.change_view(journal)
        await store.index_sealed()
        store.release(store.position, store.position)
        newer = [s.number for s in store.segments() if s.number > segment_of(where) + 2]
        assert await store.drop(newer), "some of them"
        hurt(machine, where)
        assert await mend(journal, segment_of(where), {}) == ""

    machine.run(tale.life(life, orderly=False))


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_leaves_the_damaged_segment_or_the_mended_one(power: bool) -> None:
    left = {"damaged": 0, "mended": 0}
    for k in range(1, 14):
        machine, tale = Machine(1), Tale(small(level=FSYNC))
        items: dict[int, Item] = {}
        name = f"row/{segment_file(3)}"

        async def hurt(
            tale: Tale,
            journal: Journal,
            machine: Machine = machine,
            items: dict[int, Item] = items,
            name: str = name,
            k: int = k,
        ) -> None:
            await live(tale, journal)
            items |= await all_items(journal)
            machine.media.flip(name, 700)
            machine.media.crash_before(k, part=bool(k % 2))
            await mend(journal, 3, items)
            machine.media.disarm()

        async def look(
            tale: Tale, journal: Journal, items: dict[int, Item] = items, k: int = k
        ) -> None:
            damages = await journal.store.scrub()
            left["damaged" if damages else "mended"] += 1
            if damages:
                assert await mend(journal, 3, items) == ""
            assert {p: i for p, i in (await all_items(journal)).items() if p in items} == items

        machine.run(tale.life(live, orderly=True))
        try:
            machine.run(tale.life(hurt, orderly=False))
        except SimCrashed:
            if power:
                machine.media.power_loss()
        machine.run(tale.life(look, orderly=False))
    assert left["damaged"] > 2
    assert left["mended"] > 2


def test_what_a_start_finds_is_put_back_even_where_it_knows_no_place() -> None:
    """Killed, so that the newest segments are read at the next start, and the damage is seen then."""
    rng, mended = random.Random(11), 0
    for seed in range(25):
        machine, tale = Machine(seed), Tale(small(level=FSYNC))
        items: dict[int, Item] = {}

        async def told(tale: Tale, journal: Journal, items: dict[int, Item] = items) -> None:
            await live(tale, journal)
            items |= await all_items(journal)

        machine.run(tale.life(told, orderly=False))
        names = [name for name in machine.media.paths() if name.endswith(".seg")][-3:]
        name = rng.choice(names[:2])
        machine.media.flip(name, rng.randrange(300, len(machine.media.content(name))))

        async def heal(env: Env, items: dict[int, Item] = items) -> int:
            folder = await env.disk.folder("row")
            journal = await Journal.open(folder, env, small(level=FSYNC), ME)
            store = journal.store
            for damage in (*store.recovered.damages, *await store.scrub()):
                number = segment_number(damage.file)
                if number is None or damage.mended:
                    continue
                why = await mend(journal, number, items)
                if "where the bundle of item" in why:
                    return 0  # an image has to come
                assert why in ("", NOT_HURT), (why, damage)
            assert await store.scrub() == []
            found = await all_items(journal)
            assert found == {position: items[position] for position in found}
            journal.abandon()
            return 1

        mended += machine.run(heal)
    assert mended > 15
