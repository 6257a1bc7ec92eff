"""What a journal still knows when damage hides a part of it."""

from __future__ import annotations

import pytest

from duckrow.node.damage import Damage
from duckrow.node.env import Env
from duckrow.node.forms import item_crc, join_heads
from duckrow.node.journal import Journal
from duckrow.node.row import Item
from duckrow.node.segments import index_file, segment_file
from duckrow.node.storeoptions import FSYNC, WRITE
from sim.alone import Machine
from sim.journalkit import ME, Tale, bundle, mend, opened
from sim.storekit import small


def test_what_waited_when_damage_was_found_counts_for_nothing_from_then_on() -> None:
    """U3: It comes again, into the same view; the next start knows what of it is in the row."""
    comes = [bundle(1, 3, s, s, 300) for s in (1, 2, 3)]
    machine = Machine(8)
    tale = Tale()

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        for each in comes:
            await tale.receive(journal, each)
        await tale.order(journal, comes[0])
        await tale.sync(journal)

    machine.run(tale.life(work, orderly=False))
    (name,) = [path for path in machine.media.paths() if path.endswith(".seg")]
    body = comes[1].commands[0].body
    machine.media.flip(name, machine.media.content(name).index(bytes(body)) + 5)

    async def follow(env: Env) -> None:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        assert journal.recovered.damaged
        assert journal.recovered.bundles == ()
        assert (journal.recovered.delivered or {})[3] == 1
        for each in comes[1:]:
            await journal.receive(each)
            await journal.order(journal.store.position + 1, each[:3])
        await journal.sync()

    machine.run(follow)

    async def again(env: Env) -> None:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        assert not journal.recovered.damaged
        assert (journal.recovered.delivered or {})[3] == 3
        assert journal.recovered.bundles == ()

    machine.run(again)


@pytest.mark.parametrize("late", [False, True], ids=["whole segments", "its record stays"])
def test_what_of_the_view_was_dropped_with_the_row_is_known_after_damage_too(late: bool) -> None:
    """Of a member that had nothing since, it seemed that nothing was in the row: its next did not fit."""
    machine, tale = Machine(6), Tale()

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        first = bundle(1, 3, 1, 1, 1500)
        await tale.receive(journal, first)
        if late:
            await journal.store.seal(1)
        await tale.order(journal, first)
        for s in range(1, 9):
            for origin in (1, ME):
                each = bundle(1, origin, s, 2 * s + origin, 1500)
                await tale.receive(journal, each)
                await tale.order(journal, each)
            await tale.settle(journal, (1, ME, s))
        await tale.sync(journal)
        store = journal.store
        await store.index_sealed()
        limit = 3 if late else store.position
        store.release(limit, limit)
        assert await store.drop([1, 2, 3])
        assert store.floor == 3 if late else store.floor > 3
        assert journal.delivered() == {1: 8, ME: 8, 3: 1}

    async def copied(env: Env) -> None:
        await (await (await env.disk.folder("row")).open("restored", create=True)).sync()

    machine.run(tale.life(work, orderly=False))
    machine.run(copied)
    found = machine.run(opened)
    assert found.damaged
    assert found.delivered == {1: 8, ME: 8, 3: 1}


@pytest.mark.parametrize("indexed", [False, True])
def test_a_lost_file_that_recorded_no_item_is_told_and_the_journal_opens(indexed: bool) -> None:
    """It held bundles only; what later files record of them could not be found, and no start could be made."""
    machine, tale = Machine(6), Tale()

    async def work(tale: Tale, journal: Journal) -> None:
        store = journal.store
        await tale.change_view(journal)
        await store.seal(1)
        for origin in (1, 3):
            await tale.receive(journal, bundle(1, origin, 1, origin, 1500))
        await store.seal(2)
        await tale.order(journal, bundle(1, 1, 1, 1, 1500))
        await tale.sync(journal)
        if indexed:
            await store.index_sealed()

    async def lose(env: Env) -> None:
        await (await env.disk.folder("row")).unlink(segment_file(2))

    async def again(env: Env) -> None:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        assert journal.recovered.damaged
        assert journal.recovered.delivered is None, "damage hides it"
        (damage,) = journal.store.recovered.damages
        assert (damage.file, damage.last) == (segment_file(2), 2)

    machine.run(tale.life(work, orderly=False))
    machine.run(lose)
    machine.run(again)


def test_what_was_acked_without_a_sync_is_missed_though_the_process_started_at_level_fsync() -> (
    None
):
    """The durability of the view was lowered since (N8): what was damaged there was cut off as torn."""
    machine, tale = Machine(11), Tale(small(level=FSYNC))

    async def ack(tale: Tale, journal: Journal) -> None:
        tale.options = small(level=WRITE)
        await tale.change_view(journal)
        end = journal.store.segments()[-1].bytes
        for s in range(1, 4):
            await tale.receive(journal, bundle(1, 1, s, s, 50))
        assert journal.store.dirty, "an ack says that it is there"
        name = f"row/{segment_file(journal.store.segments()[-1].number)}"
        machine.media.pages(name).write(end + 16, b"damage")

    machine.run(tale.life(ack, orderly=False))

    assert machine.run(opened).damaged


def test_damage_where_items_waited_for_their_places_hides_no_digest_of_them() -> None:
    """Nobody looked at it for that, as no item lies there: nodes found none of their snapshots fitting."""
    machine, tale = Machine(12), Tale(small(level=FSYNC))

    async def wait(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        store, waiting = journal.store, [bundle(1, 1, s, s, 30) for s in (1, 2)]
        for each in waiting:
            await tale.receive(journal, each)
        await store.seal(1)
        await tale.receive(journal, bundle(1, 3, 1, 3, 30))
        await store.seal(2)
        for each in waiting:
            await tale.order(journal, each)
        await tale.order(journal, bundle(1, 3, 1, 3, 30))
        await tale.sync(journal)
        digest = await store.digest_of(3)
        machine.media.flip(f"row/{segment_file(2)}", store.segments()[1].bytes - 100, 1)
        assert 2 not in await store.holders(3)
        assert await store.digest_of(3) == digest

    machine.run(tale.life(wait, orderly=False))


def test_what_is_known_of_the_place_of_an_item_at_the_very_end_is_no_damage_later() -> None:
    """Once that item had its place behind it, the next start did not know what had been there: it took a new name."""
    machine, tale = Machine(14), Tale()
    ends: list[int] = []

    async def order(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        await tale.receive(journal, bundle(1, 3, 1, 1, 50))
        ends.append(journal.store.segments()[-1].bytes)
        await tale.order(journal, bundle(1, 3, 1, 1, 50))
        await tale.sync(journal)

    async def order_again(env: Env) -> list[Damage]:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        found = journal.recovered
        assert (found.position, found.damaged, found.uuid) == (1, False, tale.uuid)
        assert [each[:3] for each in found.bundles] == [(1, 3, 1)]
        await journal.order(2, (1, 3, 1))
        await journal.sync()
        return list(journal.store.recovered.damages)

    async def look(tale: Tale, journal: Journal) -> None:
        assert journal.store.recovered.damages == ()
        assert await journal.store.scrub() == []

    machine.run(tale.life(order, orderly=False))
    machine.media.flip(f"row/{segment_file(1)}", ends[0] + 40)
    assert [each.mended for each in machine.run(order_again)] == [True]
    machine.run(tale.life(look, orderly=False))


def emptied(*, indexed: bool) -> tuple[Machine, Tale]:
    """A file in which two bundles lay that are in the row by the word of the one behind it."""
    machine, tale = Machine(17), Tale()

    async def work(tale: Tale, journal: Journal) -> None:
        store = journal.store
        await tale.change_view(journal)
        await store.seal(1)
        for s in (1, 2):
            await tale.receive(journal, bundle(1, 3, s, s, 50))
        await store.seal(2)
        for s in (1, 2):
            await tale.order(journal, bundle(1, 3, s, s, 50))
        await store.seal(3)
        await tale.sync(journal)
        if indexed:
            await store.index_sealed()

    machine.run(tale.life(work, orderly=False))
    pages = machine.media.pages(f"row/{segment_file(2)}")
    pages.truncate(0)
    pages.sync(pages.count)
    return machine, tale


def test_what_lacks_at_the_end_of_a_file_is_told_by_every_scrub_and_mended() -> None:
    """Its new index knew of no more than what was left, though the next file says how long it was."""
    machine, tale = emptied(indexed=False)

    async def start(env: Env) -> Journal:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        await journal.store.index_sealed()
        damages = await journal.store.scrub()
        assert [(each.file, each.mended) for each in damages] == [(segment_file(2), False)]
        return journal

    async def heal(env: Env) -> None:
        journal = await start(env)
        contents = {1 + s: bundle(1, 3, s, s, 50) for s in (1, 2)}
        items = {
            p: Item(p, 0, item_crc(*each[:5], 1, join_heads(each.commands)), each)
            for p, each in contents.items()
        }
        assert await mend(journal, 2, items) == ""
        assert await journal.store.scrub() == []
        (found,) = await journal.store.read_items(3, 1, bodies=True)
        assert found.content == items[3].content

    machine.run(start)
    machine.run(start)
    machine.run(heal)


def test_a_file_of_which_nothing_is_left_is_told_and_needs_an_image() -> None:
    """Its index is damaged, too, and the file behind it gone: nothing says how long it was.  It was taken for whole."""
    machine, tale = emptied(indexed=True)

    async def lose(env: Env) -> None:
        folder = await env.disk.folder("row")
        for name in (index_file(2), index_file(3), segment_file(3)):
            await folder.unlink(name)

    async def start(env: Env) -> None:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        await journal.store.index_sealed()
        assert segment_file(2) in [each.file for each in await journal.store.scrub()]
        assert await mend(journal, 2, {}) == "nothing is left of it"

    machine.run(lose)
    for _ in range(2):
        machine.run(start)
