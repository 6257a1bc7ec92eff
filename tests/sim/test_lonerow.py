"""The row of a cluster of one: starts, levels, bundles, and who may have it."""

from __future__ import annotations

from functools import partial

import attrs
import pytest
import trio

from duckrow.node.chronicle import STARTS_KEPT
from duckrow.node.env import Env
from duckrow.node.errors import Conflict, Corrupt, NoQuorum, Refused
from duckrow.node.forms import decode_view, encode_view
from duckrow.node.lonerow import LoneRow
from duckrow.node.row import Bundle, Item, Member, View
from duckrow.node.rowstore import RowStore
from duckrow.node.storeoptions import FSYNC, LEVELS, MEMORY, WRITE
from sim.alone import Machine
from sim.storekit import Story, command, number_of, one_life, small


async def view_of(row: LoneRow) -> View:
    view = row.store.view
    assert view is not None
    return view


def bundle(item: Item) -> Bundle:
    assert isinstance(item.content, Bundle)
    return item.content


# -- starts ---------------------------------------------------------------------------------


def test_a_blank_folder_begins_with_view_1_of_this_node_alone() -> None:
    """N7."""

    async def work(row: LoneRow) -> None:
        view = await view_of(row)
        assert view.id == 1
        assert [member.id for member in view.members] == [1]
        assert view.voters == ((1, 1, row.store.uuid, True),)
        assert view.durability == FSYNC
        assert row.store.recovered.blank
        assert row.status().position == row.status().durable == 1
        items = await row.store.read_items(1, 1000)
        assert items[0].content == view

    one_life(Machine(1), small(), work)


def test_every_start_is_a_new_incarnation_and_a_new_view_whose_cut_says_what_the_last_one_made() -> (
    None
):
    """N7."""
    machine = Machine(1)

    async def work(row: LoneRow) -> View:
        await Story(row.store.options, submitted=[[]]).produce(row, 10)
        await Story(row.store.options, submitted=[[]]).produce(row, 10)
        return await view_of(row)

    views = [one_life(machine, small(), work, orderly=turn % 2 == 0) for turn in range(4)]

    assert [view.id for view in views] == [1, 2, 3, 4]
    assert len({view.members[0].incarnation for view in views}) == 4
    assert [view.cut for view in views] == [(), ((1, 2),), ((1, 2),), ((1, 2),)]
    assert len({view.cluster for view in views}) == len({view.lineage for view in views}) == 1


def test_a_view_in_which_nothing_was_made_is_cut_at_0() -> None:
    machine = Machine(1)

    async def work(row: LoneRow) -> None:
        await Story(row.store.options, submitted=[[]]).produce(row, 10)

    one_life(machine, small(), work)
    cuts = [one_life(machine, small(), view_of).cut for _ in range(3)]

    assert cuts == [((1, 1),), ((1, 0),), ((1, 0),)]


def test_a_start_is_durable_before_its_mark_is_written() -> None:
    machine = Machine(1)
    one_life(machine, small(), view_of, orderly=True)
    operations: list[str] = []
    machine.media.note = lambda kind, path, _offset, _length: (
        operations.append(kind) if path.endswith(".seg") else None
    )

    async def work(row: LoneRow) -> None:
        # START, its sync, and what follows a sync; VIEW and ITEM, and the same.
        assert operations == ["write", "sync", "write"] * 2

    one_life(machine, small(), work)


def test_bundles_are_named_and_stamped_anew_in_every_view() -> None:
    machine = Machine(1)

    async def work(row: LoneRow) -> list[tuple[int, int, int, int]]:
        story = Story(row.store.options, submitted=[[]])
        items = await story.produce(row, 10) + await story.produce(row, 10)
        return [bundle(item)[:4] for item in items]

    assert one_life(machine, small(), work) == [(1, 1, 1, 1), (1, 1, 2, 2)]
    assert one_life(machine, small(), work) == [(2, 1, 1, 1), (2, 1, 2, 2)]


@pytest.mark.parametrize("level", [WRITE, MEMORY])
def test_after_a_power_loss_that_may_have_lost_something_the_lineage_is_another(level: str) -> None:
    machine = Machine(1)

    async def work(row: LoneRow) -> int:
        await Story(row.store.options, submitted=[[]]).produce(row, 10)
        return (await view_of(row)).lineage

    first = one_life(machine, small(level=level), work)
    killed = one_life(machine, small(level=level), work)
    closed = one_life(machine, small(level=level), work, orderly=True)
    machine.media.power_loss()
    after_close = one_life(machine, small(level=level), work)
    machine.media.power_loss()
    after_loss = one_life(machine, small(level=level), work)

    assert first == killed == closed == after_close != after_loss


def test_at_level_fsync_a_power_loss_keeps_the_lineage() -> None:
    machine = Machine(1)
    first = one_life(machine, small(), view_of)
    machine.media.power_loss()

    assert one_life(machine, small(), view_of).lineage == first.lineage


def test_the_level_of_the_incarnation_that_ran_decides_not_that_of_the_next() -> None:
    machine = Machine(1)
    first = one_life(machine, small(level=WRITE), view_of)
    machine.media.power_loss()
    second = one_life(machine, small(level=FSYNC), view_of)
    machine.media.power_loss()
    third = one_life(machine, small(level=WRITE), view_of)

    assert first.lineage != second.lineage == third.lineage


def test_it_is_the_incarnation_named_in_the_view_that_counts_not_the_last_that_started() -> None:
    """A start that was killed before its mark had no part in the row."""
    machine = Machine(1)

    async def work(row: LoneRow) -> int:
        await Story(row.store.options, submitted=[[]]).produce(row, 10)
        return (await view_of(row)).lineage

    async def only_start(env: Env) -> None:
        store = await RowStore.open(await env.disk.folder("row"), env, small(level=WRITE))
        await store.begin(77)

    first = one_life(machine, small(level=WRITE), work)
    machine.media.power_loss()
    machine.run(only_start)

    # Same boot as the last start, but not as the incarnation that acted.
    assert one_life(machine, small(level=WRITE), work) != first


def test_the_newest_starts_are_known_and_no_more_than_that() -> None:
    machine = Machine(1)

    async def starts(row: LoneRow) -> list[tuple[int, str, str, bool]]:
        return [
            (s.start_count, s.boot_id, s.level, s.clean)
            for s in row.store.chronicle.starts.values()
        ]

    async def look(env: Env) -> list[tuple[int, str, str, bool]]:
        store = await RowStore.open(await env.disk.folder("row"), env, small())
        return [
            (s.start_count, s.boot_id, s.level, s.clean) for s in store.chronicle.starts.values()
        ]

    boot = machine.boot_id
    assert one_life(machine, small(level=WRITE), starts, orderly=True) == [(1, boot, WRITE, False)]
    assert machine.run(look) == [(1, boot, WRITE, True)]
    assert one_life(machine, small(), starts) == [(1, boot, WRITE, True), (2, boot, FSYNC, False)]
    for _ in range(30):
        one_life(machine, small(), starts)
    kept = range(33 - STARTS_KEPT, 33)
    assert machine.run(look) == [(number, boot, FSYNC, False) for number in kept]


def test_a_bundle_without_a_place_in_the_row_gets_one_from_the_next_start() -> None:
    """The ITEM record was torn off; the bundle is whole, and this node's own."""
    machine = Machine(1)
    story = Story(small())

    async def work(row: LoneRow) -> None:
        story.submitted.append([])
        await story.produce(row, 10)
        (item,) = await story.produce(row, 500)
        size = row.store.segments()[-1].bytes
        machine.media.pages("row/00000001.seg").truncate(size - 24 - 64)
        story.seen.pop(item.position)

    async def look(row: LoneRow) -> list[tuple[int, type]]:
        items = await row.store.read_items(1, 1 << 20, bodies=True)
        assert number_of(bundle(items[2]).commands[0]) == 2
        return [(item.position, type(item.content)) for item in items]

    one_life(machine, small(), work)
    kinds = one_life(machine, small(), look)

    assert kinds == [(1, View), (2, Bundle), (3, Bundle), (4, View)]


# -- who may have it ------------------------------------------------------------------------


def test_a_second_process_is_refused_and_told_who_has_the_folder() -> None:
    async def main(env: Env) -> None:
        folder = await env.disk.folder("row")
        row = await LoneRow.open(folder, env, small())
        other = machine.media.disk()
        with pytest.raises(Conflict, match=r"held by process 101"):
            await LoneRow.open(await other.folder("row"), env, small())
        await row.close()
        again = await LoneRow.open(await other.folder("row"), env, small())
        assert again.store.recovered.position == 1

    machine = Machine(1)
    machine.run(main)


def test_a_failed_start_gives_the_lock_back() -> None:
    async def main(env: Env) -> None:
        folder = await env.disk.folder("row")
        row = await LoneRow.open(folder, env, small(), id_=1)
        await row.close()
        with pytest.raises(Conflict):
            await LoneRow.open(folder, env, small(), id_=2)
        await (await LoneRow.open(folder, env, small(), id_=1)).close()

    Machine(1).run(main)


def test_a_row_of_another_member_or_of_several_is_refused() -> None:
    async def several(row: LoneRow) -> None:
        view = await view_of(row)
        members = (*view.members, Member(2, 5, 1))
        await row.store.appending.install(attrs.evolve(view, id=2, members=members))

    machine = Machine(1)
    one_life(machine, small(), view_of)
    with pytest.raises(Conflict, match=r"members \[1\].*alone with id 7"):
        one_life(machine, small(), view_of, id_=7)
    one_life(machine, small(), several, orderly=True)
    with pytest.raises(Conflict, match=r"members \[1, 2\]"):
        one_life(machine, small(), view_of)


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(Refused, match="'often'"):
        small(level="often")
    with pytest.raises(Refused, match="1,000 bytes"):
        small(segment_bytes=1000)


# -- levels ---------------------------------------------------------------------------------


def test_at_level_fsync_nothing_is_handed_out_before_its_sync() -> None:
    async def work(row: LoneRow) -> None:
        story = Story(row.store.options)
        machine.media.sync_latency = 1.0
        row.submit([story.make()])
        began = trio.current_time()
        items = await row.take()
        assert trio.current_time() - began >= 1.0
        assert items[-1].position <= row.store.durable_position

    machine = Machine(1)
    one_life(machine, small(), work)


@pytest.mark.parametrize("level", [WRITE, MEMORY])
def test_below_fsync_items_are_handed_out_at_once(level: str) -> None:
    async def work(row: LoneRow) -> None:
        machine.media.sync_latency = 1.0
        row.submit([Story(row.store.options).make()])
        began = trio.current_time()
        items = await row.take()
        assert trio.current_time() == began
        assert items[-1].position > row.store.durable_position

    machine = Machine(1)
    one_life(machine, small(level=level), work)


def test_at_level_write_everything_is_durable_soon_after() -> None:
    async def work(row: LoneRow) -> None:
        await Story(row.store.options, submitted=[[]]).produce(row, 10)
        await trio.sleep(0.04)
        assert row.store.durable_position < row.store.position
        await trio.sleep(0.02)
        assert row.store.durable_position == row.store.position
        before = machine.media.counts["sync"]
        await trio.sleep(5)
        assert machine.media.counts["sync"] == before, "nobody syncs what is clean"

    machine = Machine(1)
    one_life(machine, small(level=WRITE), work)


def test_at_level_memory_nothing_is_synced_but_by_a_seal_and_the_close() -> None:
    async def work(row: LoneRow) -> None:
        await Story(row.store.options, submitted=[[]]).produce(row, 10)
        before = machine.media.counts["sync"]
        await trio.sleep(100)
        assert machine.media.counts["sync"] == before

    machine = Machine(1)
    one_life(machine, small(level=MEMORY), work, orderly=True)
    machine.media.power_loss()

    async def look(row: LoneRow) -> int:
        return row.store.recovered.position

    assert one_life(machine, small(level=MEMORY), look) == 2


def test_while_a_sync_is_under_way_commands_gather_into_one_bundle() -> None:
    async def work(row: LoneRow) -> None:
        machine.media.sync_latency = 0.005
        done: dict[int, trio.Event] = {}

        async def producer(first: int) -> None:
            for number in range(first, first + 20):
                done[number] = trio.Event()
                row.submit([command(number)])
                await done[number].wait()

        async def taker() -> None:
            while True:
                for item in await row.take():
                    for each in bundle(item).commands:
                        done[number_of(each)].set()

        before = machine.media.counts["sync"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(taker)
            async with trio.open_nursery() as producers:
                for task in range(32):
                    producers.start_soon(producer, 1 + 100 * task)
            nursery.cancel_scope.cancel()
        syncs = machine.media.counts["sync"] - before
        assert 32 * 20 / syncs >= 15
        assert row.store.position - 1 <= syncs + 1, "what waits for the same sync is one bundle"

    machine = Machine(1)
    one_life(machine, small(segment_bytes=1 << 20), work)


def test_a_command_alone_is_not_held_back() -> None:
    async def work(row: LoneRow) -> None:
        story = Story(row.store.options, submitted=[[]])
        began = trio.current_time()
        for _ in range(10):
            await story.produce(row, 10)
        assert trio.current_time() == began, "no timer is on this way"

    one_life(Machine(1), small(), work)


# -- bundles --------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_open_becomes_one_bundle_within_its_limits(level: str) -> None:
    async def work(row: LoneRow) -> None:
        story = Story(row.store.options)
        row.submit([story.make(10) for _ in range(7)])
        row.submit([story.make(3000), story.make(3000), story.make(3000)])
        row.submit([story.make(9000), story.make(10)])
        items: list[Item] = []
        while sum(len(bundle(item).commands) for item in items) < 12:
            items += await row.take()
        sizes = [len(bundle(item).commands) for item in items]
        # Four commands at most, or 7,000 bytes, or one command.
        assert sizes == [4, 4, 2, 1, 1]
        numbers = [number_of(each) for item in items for each in bundle(item).commands]
        assert numbers == list(range(1, 13))

    options = small(level=level, bundle_bytes=7000, bundle_commands=4, segment_bytes=1 << 20)
    one_life(Machine(1), options, work)


def test_a_command_is_withdrawn_only_before_it_is_in_a_bundle() -> None:
    async def work(row: LoneRow) -> None:
        one, two = command(1), command(2)
        row.submit([one, two])
        assert row.withdraw(two)
        assert not row.withdraw(two)
        items = await row.take()
        assert bundle(items[0]).commands == (one,)
        assert not row.withdraw(one)

    one_life(Machine(1), small(), work)


def test_who_stops_waiting_loses_nothing() -> None:
    async def work(row: LoneRow) -> None:
        machine.media.sync_latency = 1.0
        story = Story(row.store.options)
        row.submit([story.make()])
        for _ in range(20):
            with trio.move_on_after(0.13) as scope:
                items = await row.take()
                break
        assert not scope.cancelled_caught
        assert number_of(bundle(items[0]).commands[0]) == 1

    machine = Machine(1)
    one_life(machine, small(), work)


def test_a_sync_that_was_cancelled_is_made_up_for_by_the_next() -> None:
    async def work(row: LoneRow) -> None:
        machine.media.sync_latency = 1.0
        await Story(row.store.options, submitted=[[]]).produce(row, 10)
        with trio.move_on_after(0.5) as scope:
            await row.store.sync()
        assert scope.cancelled_caught
        assert row.store.durable_position < row.store.position
        await row.store.sync()
        assert row.store.durable_position == row.store.position
        durable = machine.media.durable_content("row/00000001.seg")
        assert b"<1>" in durable

    machine = Machine(1)
    one_life(machine, small(level=MEMORY), work)


def test_after_the_close_nothing_is_taken() -> None:
    async def main(env: Env) -> None:
        row = await LoneRow.open(await env.disk.folder("row"), env, small())
        await row.close()
        with pytest.raises(NoQuorum, match="stopping"):
            row.submit([command(1)])
        assert not row.status().active

    Machine(1).run(main)


# -- the past -------------------------------------------------------------------------------


def test_the_past_comes_without_bodies_and_then_what_is_new_with_them() -> None:
    machine = Machine(1)
    story = Story(small())

    async def fill(row: LoneRow, _story: Story) -> None:
        for size in (10, 2000, 30, 3000, 700):
            await story.produce(row, size, size)

    async def take_all(row: LoneRow) -> list[Item]:
        items: list[Item] = []
        while not items or items[-1].position < row.store.position:
            items += await row.take()
        return items

    async def follow(env: Env, after: int) -> None:
        row = await LoneRow.open(await env.disk.folder("row"), env, small())
        row.follow(after)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(row.run)
            items = await take_all(row)
            assert [i.position for i in items] == list(range(after + 1, row.store.position + 1))
            for item in items:
                if isinstance(item.content, Bundle):
                    for index, (_, body) in enumerate(item.content.commands):
                        assert body == b""
                        assert (await row.store.read_body(item.place + index)).startswith(b"<")
            row.submit([command(99)])
            (item,) = await row.take()
            assert bundle(item).commands == (command(99),)
            nursery.cancel_scope.cancel()
        await row.close()

    machine.run(story.life(fill, orderly=False))
    for after in range(7):
        machine.run(partial(follow, after=after))


def test_it_does_not_follow_from_where_the_row_does_not_reach() -> None:
    async def main(env: Env) -> None:
        row = await LoneRow.open(await env.disk.folder("row"), env, small())
        with pytest.raises(Corrupt, match="items 1 to 1"):
            row.follow(2)
        row.follow(1)

    Machine(1).run(main)


def test_views_survive_their_encoding() -> None:
    view = View(
        id=9,
        members=(Member(1, 2**64 - 1, 1), Member(3, 5, 2)),
        cluster=b"c" * 16,
        lineage=4,
        durability=WRITE,
        min_copies=2,
        voters=((1, 1, b"u" * 16, True), (2, 1, b"w" * 16, False)),
        cut=((1, 7), (3, 0)),
        cont=(1,),
    )
    assert decode_view(encode_view(view)) == view
