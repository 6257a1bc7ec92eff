"""Sectors that cannot be read in the middle of the row are damage: told, and nothing else suffers."""

from __future__ import annotations

from functools import partial

import pytest

from duckrow.node.carrying import write_again
from duckrow.node.env import Env
from duckrow.node.errors import Corrupt
from duckrow.node.lonerow import LoneRow
from sim.alone import Machine
from sim.storekit import Story

from .test_rowstore_damage import fill, fill_segments, story_of


@pytest.mark.parametrize("sector", [0, 3, 9])
def test_what_is_written_again_leaves_out_a_sector_that_cannot_be_read(sector: int) -> None:
    machine, length = Machine(1), 9 * 512 + 100

    async def main(env: Env) -> None:
        file = await env.disk.open("file", create=True)
        file.write(0, [bytes(range(256)) * (length // 256) + bytes(length % 256)])
        await file.sync()
        before = machine.media.content("file")
        machine.media.spoil("file", sector * 512)

        await write_again(file, 8, length)

        changes = machine.media.pages("file").changes
        written = sum(change.end - change.offset for change in changes)
        assert written == length - 8 - {0: 504, 3: 512, 9: 100}[sector]
        assert machine.media.content("file") == before

    machine.run(main)


async def digests(env: Env, *, story: Story) -> list[bool]:
    row = await LoneRow.open(await env.disk.folder("row"), env, story.options)
    found = []
    for position in range(1, row.store.position + 1):
        try:
            found.append(bool(await row.store.digest_of(position)))
        except Corrupt:
            found.append(False)
    await row.close()
    return found


@pytest.mark.parametrize("offset", range(0, 8 * 512, 512))
def test_a_digest_that_lies_in_a_sector_that_cannot_be_read_is_told_to_be_damaged(
    offset: int,
) -> None:
    machine, story = story_of(fill_segments, orderly=True)
    machine.media.spoil("row/00000002.seg", offset)

    assert machine.run(partial(digests, story=story)).count(False) <= 2


def test_without_such_a_sector_each_position_has_its_digest() -> None:
    machine, story = story_of(fill)

    assert all(machine.run(partial(digests, story=story)))
