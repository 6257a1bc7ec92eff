"""Damage: a flipped bit anywhere in what was durable is found, told, and spoils nothing else."""

from __future__ import annotations

import random

import attrs
import pytest
import trio
import trio.lowlevel

from duckrow.node.damage import Damage
from duckrow.node.env import Env
from duckrow.node.errors import Corrupt
from duckrow.node.lonerow import LoneRow
from duckrow.node.row import Item
from sim.alone import Machine
from sim.storekit import Story, small


async def fill(row: LoneRow, story: Story) -> None:
    await story.produce(row, 40)
    await story.produce(row, 0, 30, 11)
    await story.produce(row, 5)
    await trio.lowlevel.checkpoint()


@attrs.define
class Outcome:
    """What a life saw of a damaged store."""

    damages: tuple[Damage, ...]  # that recovery told
    scrubbed: list[Damage]
    bad: list[int]  # positions that cannot be read
    taken: int  # the last position that `take` brought
    broken: Corrupt | None
    uuid: bytes
    new: list[Item]


def look(story: Story, outcomes: list[Outcome], *, after: int = 0) -> object:
    async def main(env: Env) -> None:
        row = await LoneRow.open(await env.disk.folder("row"), env, story.options)
        store = row.store
        row.follow(after)
        story.submitted.append([])
        scrubbed = await store.scrub()
        bad = []
        for position, crc in story.seen.items():
            try:
                items = await store.read_items(position, 1, bodies=True)
            except Corrupt as error:
                assert "position" in str(error)
                bad.append(position)
            else:
                assert items[0].crc == crc
        taken, new = after, []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(row.run)
            while taken < row.status().position:
                for item in await row.take():
                    assert item.position == taken + 1
                    assert story.seen.get(item.position, item.crc) == item.crc
                    taken += 1
            if row.broken is None:
                new = await story.produce(row, 50)
            else:
                with pytest.raises(Corrupt):
                    row.submit([story.make()])
            nursery.cancel_scope.cancel()
        outcomes.append(
            Outcome(store.recovered.damages, scrubbed, bad, taken, row.broken, store.uuid, new)
        )
        await row.close()

    return main


def story_of(seed: int, *, orderly: bool = False) -> tuple[Machine, Story]:
    machine = Machine(seed)
    story = Story(small())
    machine.run(story.life(fill, orderly=orderly))
    return machine, story


def with_flip(seed: int, path: str, offset: int, *, orderly: bool = False) -> tuple[Outcome, Story]:
    machine, story = story_of(seed, orderly=orderly)
    machine.media.flip(path, offset, random.Random(offset).randrange(8))
    outcomes: list[Outcome] = []
    machine.run(look(story, outcomes))  # type: ignore[arg-type]
    return outcomes[0], story


SEGMENT = "row/00000001.seg"


def every_byte(step: int) -> None:
    machine, _ = story_of(1)
    size = len(machine.media.durable_content(SEGMENT))
    assert size < 2000
    for offset in range(size % step, size, step):
        try:
            outcome, story = with_flip(1, SEGMENT, offset)
            assert outcome.damages or outcome.scrubbed, "nobody noticed"
            # The item that is hit may be lost to readers; its neighbours are not.
            assert len(outcome.bad) <= 1
            last = max(story.seen)
            if outcome.broken is not None:
                assert outcome.bad == [outcome.taken + 1]
            else:
                assert outcome.taken >= last - 1
                assert min(item.position for item in outcome.new) > max(
                    p for p in story.seen if p not in {i.position for i in outcome.new}
                )
        except BaseException as error:
            error.add_note(f"byte {offset} of {size}")
            raise


def test_a_flip_anywhere_in_a_durable_segment_is_told_and_spoils_one_item_at_most() -> None:
    every_byte(7)


@pytest.mark.long
def test_a_flip_of_every_byte() -> None:
    every_byte(1)
