"""Marks: after each sync a record says how much is durable now, whatever else was written meanwhile."""

from __future__ import annotations

import trio

from duckrow.node.lonerow import LoneRow
from duckrow.node.storeoptions import WRITE
from sim.alone import Machine
from sim.storekit import Story, small

from .test_rowstore_damage import SEGMENT, flipped, seen


async def one_before_and_one_during_a_sync(row: LoneRow, story: Story) -> None:
    await story.produce(row, 40)
    while not row.store.syncing:
        await trio.sleep(0.001)
    await story.produce(row, 50)
    while row.store.syncing:
        await trio.sleep(0.001)


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
