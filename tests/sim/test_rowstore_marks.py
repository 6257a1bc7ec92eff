"""Marks: after each sync a record says how much is durable now, whatever else was written meanwhile."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from duckrow.node import doubt, restored
from duckrow.node.doubt import leave_doubt
from duckrow.node.env import Env
from duckrow.node.lonerow import LoneRow
from duckrow.node.records import PREFIX_BYTES
from duckrow.node.storeoptions import MEMORY, WRITE
from sim.alone import Machine
from sim.pages import BLOCK
from sim.storekit import Story, small

from .test_rowstore_damage import SEGMENT, flipped, seen


async def one_before_and_one_during_a_sync(row: LoneRow, story: Story) -> None:
    await story.produce(row, 40)
    while not row.store.syncing:
        await trio.sleep(0.001)
    await story.produce(row, 50)
    while row.store.syncing:
        await trio.sleep(0.001)


async def take(row: LoneRow, story: Story, count: int) -> None:
    while count:
        for item in await row.take():
            story.see(item)
            count -= 1
    story.note(row)


def test_what_a_sync_made_durable_is_not_torn_although_more_was_written_during_it() -> None:
    machine, story = Machine(1), Story(small(level=WRITE))
    machine.media.sync_latency = 0.02
    machine.run(story.life(one_before_and_one_during_a_sync, orderly=False))
    content = machine.media.content(SEGMENT)
    last = max(story.seen)
    # The heads of the first one: it was durable, and the second does not know it.
    flipped(machine, SEGMENT, content.index(b"<1>") - 20)
    machine.media.kill()

    outcome = seen(machine, story)

    assert outcome.damages or outcome.broken
    assert all(item.position > last for item in outcome.new)


def test_the_last_record_of_a_full_segment_has_its_mark_too() -> None:
    """Two syncs come after it was written, and there is room for the mark of the first."""
    machine, story = Machine(1), Story(small(bundle_bytes=64))
    machine.media.sync_latency = 0.02

    async def fill_segment(row: LoneRow, story: Story) -> None:
        size, store = row.store.options.segment_bytes, row.store
        before = store.segments()[-1].bytes
        await story.produce(row, 496)
        while row.store.syncing:
            await trio.sleep(0.001)
        after = store.segments()[-1].bytes
        more = size - after - 2 * (after - before)  # left by two more of the first one's size
        first, last = story.make(496), story.make(496 + more + 16)  # which have a mark too many
        story.submitted[-1] += [2, 3]
        row.submit([first])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take, row, story, 2)
            while not store.syncing:
                await trio.sleep(0.001)
            row.submit([last])
        assert len(store.segments()) == 1

    machine.run(story.life(fill_segment, orderly=False))
    last = max(story.seen)
    flipped(machine, SEGMENT, machine.media.content(SEGMENT).index(b"<3>") - 20)

    outcome = seen(machine, story)

    assert outcome.damages or outcome.broken
    assert all(item.position > last for item in outcome.new)


async def fill_block(row: LoneRow, story: Story, machine: Machine) -> None:
    """The last record ends 8 bytes before its block does, and there is no other one."""
    before = row.store.segments()[-1].bytes
    await story.produce(row, 496)
    after = row.store.segments()[-1].bytes
    machine.media.capacity = machine.media.used
    room = -after % BLOCK - 8
    await story.produce(row, 496 + room - (after - before - PREFIX_BYTES))
    await trio.lowlevel.checkpoint()


def test_a_mark_that_does_not_fit_on_a_full_disk_takes_the_reserve() -> None:
    machine, story = Machine(1), Story(small(segment_bytes=1 << 16))
    machine.run(story.life(partial(fill_block, machine=machine), orderly=False))
    last = max(story.seen)
    flipped(machine, SEGMENT, machine.media.content(SEGMENT).index(b"<2>") - 20)
    machine.media.capacity = 1 << 40

    outcome = seen(machine, story)

    assert outcome.damages or outcome.broken
    assert all(item.position > last for item in outcome.new)


def test_a_reserve_that_a_mark_took_is_made_again() -> None:
    machine, story = Machine(1), Story(small(segment_bytes=1 << 16))

    async def fill_and_wait(row: LoneRow, story: Story) -> None:
        await fill_block(row, story, machine)
        assert row.status().disk == "hard"
        machine.media.capacity = 1 << 40
        await trio.sleep(2 * row.store.options.reserve_seconds)
        assert row.status().disk == "ok"
        await story.produce(row, 10)

    machine.run(story.life(fill_and_wait))


async def idle(_row: LoneRow, _story: Story) -> None:
    pass


async def three(row: LoneRow, story: Story) -> None:
    assert row.store.view is not None
    story.lineage = row.store.view.lineage
    for size in (40, 50, 60):
        await story.produce(row, size)


def damaged_behind_all_marks(level: str) -> tuple[Machine, Story]:
    """The kernel wrote everything when it liked, and nobody has asked for a sync yet."""
    machine, story = Machine(1), Story(small(level=level))
    machine.run(story.life(three, orderly=False))
    pages = machine.media.pages(SEGMENT)
    pages.sync(pages.count)
    flipped(machine, SEGMENT, machine.media.content(SEGMENT).index(b"<2>") + 20)
    return machine, story


@pytest.mark.parametrize("level", [WRITE, MEMORY])
def test_what_was_answered_before_any_sync_is_not_torn_by_a_kill(level: str) -> None:
    """Behind it lies what the same process wrote later, and the machine has run on since."""
    machine, story = damaged_behind_all_marks(level)
    last = max(story.seen)

    outcome = seen(machine, story)

    assert outcome.bad == [3]
    assert outcome.lineage == story.lineage
    assert outcome.new[0].position > last


async def leave_a_note(env: Env) -> None:
    await leave_doubt(await env.disk.folder("row"))


@pytest.mark.parametrize("level", [WRITE, MEMORY])
@pytest.mark.parametrize("how", ["power", "failed sync"])
def test_what_the_kernel_may_have_lost_is_torn_and_begins_a_lineage(level: str, how: str) -> None:
    machine, story = damaged_behind_all_marks(level)
    if how == "power":
        machine.media.power_loss()
    else:
        machine.run(leave_a_note)
    story.seen = {position: crc for position, crc in story.seen.items() if position < 3}

    outcome = seen(machine, story)

    assert outcome.lineage != story.lineage
    assert not outcome.damages
    assert outcome.new[0].position == 4  # behind entry 1, and the mark of this start


@pytest.mark.parametrize("before", [None, WRITE, MEMORY])
def test_at_level_fsync_what_nobody_was_told_of_is_torn(before: str | None) -> None:
    """Whatever the level of an earlier life under the same boot."""
    machine, story = Machine(1), Story(small())
    if before is not None:
        machine.run(Story(small(level=before)).life(idle, orderly=False))

    async def unanswered(row: LoneRow, story: Story) -> None:
        await three(row, story)
        machine.media.sync_latency = 10.0
        row.submit([story.make(50), story.make(60)])
        with trio.move_on_after(1):
            await row.take()

    machine.run(story.life(unanswered, orderly=False))
    pages = machine.media.pages(SEGMENT)
    pages.sync(pages.count)
    flipped(machine, SEGMENT, machine.media.content(SEGMENT).index(b"<4>") + 20)
    machine.media.sync_latency, last = 0.0, max(story.seen)

    outcome = seen(machine, story)

    assert not outcome.damages
    assert not outcome.bad
    assert not outcome.scrubbed
    assert outcome.new[0].position > last


def test_a_row_that_was_closed_on_a_full_disk_is_known_to_end_where_it_did() -> None:
    machine, story = Machine(1), Story(small())

    async def fill_disk(row: LoneRow, story: Story) -> None:
        await three(row, story)
        machine.media.capacity = machine.media.used

    machine.run(story.life(fill_disk))
    machine.media.capacity = 1 << 40
    pages = machine.media.pages(SEGMENT)
    pages.truncate(machine.media.content(SEGMENT).index(b"<2>"))
    last = max(story.seen)

    outcome = seen(machine, story)

    assert outcome.broken
    assert all(item.position > last for item in outcome.new)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", [doubt.NAME, restored.NAME])
def test_a_mark_that_was_left_is_there_after_a_loss_of_power(name: str, seed: int) -> None:
    machine = Machine(seed)

    async def leave(env: Env) -> None:
        folder = await env.disk.folder("row")
        await env.disk.sync_names()  # it has been there for long
        if name == doubt.NAME:
            await leave_doubt(folder)
        else:
            assert await restored.note(folder)

    machine.run(leave)
    machine.media.power_loss()

    assert f"row/{name}" in machine.media.paths()
