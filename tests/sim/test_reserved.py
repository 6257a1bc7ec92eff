"""Records that only a bridge writes, in the folder of a node alone: each keeps its meaning."""

from __future__ import annotations

import pytest
import trio

from duckrow.node.chronicle import Chronicle
from duckrow.node.env import Env
from duckrow.node.errors import Conflict, Corrupt
from duckrow.node.forms import BaseForm, SettledForm
from duckrow.node.images import state_file
from duckrow.node.lonerow import LoneRow
from duckrow.node.records import RecordKind
from sim.alone import Machine
from sim.storekit import Story, small


def written(machine: Machine, kind: RecordKind, head: bytes) -> Chronicle:
    """A life after which such a record lies behind some items; its chronicle, too."""

    async def main(env: Env) -> Chronicle:
        story = Story(small(), submitted=[[]])
        row = await LoneRow.open(await env.disk.folder("row"), env, story.options)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(row.run)
            await story.produce(row, 100, 100)
            await story.produce(row, 900)
            row.store._writer.append(kind, head)
            await row.store.sync()
            nursery.cancel_scope.cancel()
        return row.store.chronicle

    return machine.run(main)


def goes_on(machine: Machine, after: int, *, mended: bool = False) -> tuple[int, int]:
    """The next life follows from there, adds an item and closes; its floor, and the new position."""

    async def main(env: Env) -> tuple[int, int]:
        story = Story(small(), submitted=[[]])
        row = await LoneRow.open(await env.disk.folder("row"), env, story.options)
        assert all(damage.mended for damage in row.store.recovered.damages)
        assert bool(row.store.recovered.damages) == mended
        row.follow(after)
        seen = after
        async with trio.open_nursery() as nursery:
            nursery.start_soon(row.run)
            while seen < row.store.position:
                seen = (await row.take())[-1].position
            (item,) = await story.produce(row, 100)
            for size in (3000, 3000, 3000):
                await story.produce(row, size)
            while row.store.unindexed:
                await row.store.index_sealed()
            nursery.cancel_scope.cancel()
        assert await row.store.scrub() == []
        for position in range(row.store.floor, row.store.position + 1):
            assert await row.store.read_items(position, 1, bodies=True)
        await row.close()
        return row.store.floor, item.position

    return machine.run(main)


def test_what_is_settled_is_nothing_to_a_row_that_stages_nothing() -> None:
    machine = Machine(1)
    position = written(machine, RecordKind.SETTLED, SettledForm(1, 1, 1).encode()).position

    assert goes_on(machine, 0) == (1, position + 2)


def test_the_row_goes_on_behind_an_image_for_who_has_its_state() -> None:
    machine = Machine(1)
    installed = written(Machine(1), RecordKind.SETTLED, SettledForm(1, 1, 1).encode()).installed
    base = BaseForm(1000, b"d" * 16, installed, ("state",))
    written(machine, RecordKind.BASE, base.encode())

    for _ in range(2):
        with pytest.raises(Corrupt, match="a snapshot at 1000 or later is missing"):
            goes_on(machine, 0)
    floor, new = goes_on(machine, 1000)
    assert floor == 1001
    assert new > 1002
    machine.media.pages("row/00000001.pos").write(0, b"x")  # read again, it says the same
    assert goes_on(machine, new, mended=True) > (floor, new)


def test_two_images_of_one_position_have_two_names() -> None:
    """By its name a node tells whether what it knows is of another row."""

    installed = written(Machine(1), RecordKind.SETTLED, SettledForm(1, 1, 1).encode()).installed

    async def main(env: Env) -> None:
        row = await LoneRow.open(await env.disk.folder("row"), env, small())
        store = row.store
        first = await store.images.reserve(1000, 2, 1)
        files = state_file(1000, first - 1), "2-3"
        store.chronicle.based(BaseForm(1000, b"d" * 16, installed, files))
        second = await store.images.reserve(1000, 2, 4)  # of one who has higher numbers
        assert first < second
        assert state_file(1000, second - 4) != store.images.name

    Machine(1).run(main)


def test_who_promised_something_to_others_does_not_start_alone() -> None:
    machine = Machine(1)
    written(machine, RecordKind.REGISTER, b"promised")

    for _ in range(2):
        with pytest.raises(Conflict, match="start it with its bridge"):
            goes_on(machine, 0)
