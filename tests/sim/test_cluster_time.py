"""Entries of a cluster have the time at which they were produced, wherever that was and however seldom."""

from __future__ import annotations

import trio

from duckrow.node.entries import Entry
from duckrow.node.trioclient import Client

from .townkit import Town, run

SECOND_US = 1_000_000


async def late_by(town: Town, row: Client, number: int) -> float:
    """How far from the clock of the client the newest entry is dated, in seconds."""
    before = town.env.wall_us()
    await row.produce("t", b"%d" % number)
    found: Entry = (await row.pull("t", number - 1))[0]
    return abs(found.time - before) / SECOND_US


async def all_tell(town: Town) -> None:
    """A majority has told its clock once, so there is a time of the row."""
    for id_ in (1, 2, 3):
        async with town.client(id_) as row:
            await row.produce("other", b"hello")


def test_where_one_machine_alone_produces_the_time_of_the_row_goes_on() -> None:
    async def use(town: Town) -> None:
        await all_tell(town)
        async with town.client(1) as row:
            for number in range(1, 30):
                assert await late_by(town, row, number) < 1.0
                await trio.sleep(1.5)
            state = town.nodes[2].state
            assert abs(town.env.wall_us() - state.row_time) < 5 * SECOND_US

    run(use)


def test_the_first_entry_after_a_long_rest_has_the_time_of_its_clock() -> None:
    async def use(town: Town) -> None:
        await all_tell(town)
        async with town.client(1) as row:
            assert await late_by(town, row, 1) < 1.0
            position = town.nodes[3].state.position
            await trio.sleep(50)
            assert await late_by(town, row, 2) < 1.0
            assert town.nodes[3].state.position - position < 15, "rest costs next to nothing"

    run(use)
