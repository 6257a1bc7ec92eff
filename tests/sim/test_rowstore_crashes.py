"""Crash points: the process dies before every single disk operation, in every way, and again while
it recovers.

The script below is told to its end once, to count its disk operations; then again and again, each
time with a death at the next one.
"""

from __future__ import annotations

import pytest
import trio

from duckrow.node.env import Env
from duckrow.node.lonerow import LoneRow
from duckrow.node.storeoptions import FSYNC, LEVELS, MEMORY, WRITE
from sim.alone import Machine
from sim.park import SimCrashed
from sim.storekit import Story, Work, small


async def fill(row: LoneRow, story: Story) -> None:
    """Produces of all shapes, over two segments."""
    await story.produce(row, 100)
    await story.produce(row, 0, 700, 30)
    await trio.sleep(0.06)  # level write syncs
    await story.produce(row, *[20] * 12)
    await story.produce(row, 1800)
    await story.produce(row, 900, 900)
    await row.store.sync()
    await story.produce(row, 60)


async def forget(row: LoneRow, story: Story) -> None:
    """Drops all but the newest; test_rewriting.py does this with rewriting."""
    await story.produce(row, 1500, 1500)
    await story.produce(row, 2500)
    await row.store.sync()
    while row.store.unindexed:
        await row.store.index_sealed()
    row.release(row.store.position, row.store.position)
    sealed = [segment.number for segment in row.store.segments() if segment.sealed]
    await row.store.drop(sealed[:-2])
    await story.produce(row, 200)


async def idle(row: LoneRow, story: Story) -> None:
    await trio.sleep(0.2)


LIVES: list[tuple[Work, bool]] = [
    (fill, False),
    (idle, True),
    (fill, True),
    (forget, False),
    (fill, False),
]


def tell(
    machine: Machine, story: Story, *, crash_at: int | None = None, part: bool = False
) -> bool:
    """False: it came to its end without a crash."""
    if crash_at is not None:
        machine.media.crash_before(crash_at, part=part)
    try:
        for work, orderly in LIVES:
            machine.run(story.life(work, orderly=orderly))
    except SimCrashed:
        return True
    machine.media.disarm()
    return False


def die(machine: Machine, *, power: bool) -> None:
    if power:
        machine.media.power_loss()
    else:
        machine.media.kill()


def recover(machine: Machine, story: Story, *, power: bool) -> None:
    """The next life finds what was promised, and can go on."""

    async def look(env: Env) -> None:
        row = await LoneRow.open(await env.disk.folder("row"), env, story.options)
        assert not [d for d in row.store.recovered.damages if not d.mended], "a crash is no damage"
        story.submitted.append([])
        row.follow(row.store.floor - 1)
        await story.check(row, power=power)
        assert await row.store.scrub() == []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(row.run)
            await story.catch_up(row)
            await story.produce(row, 300, 300)
            nursery.cancel_scope.cancel()
        await row.close()
        story.durable = row.store.position

    machine.run(look)


def operations(level: str) -> int:
    machine = Machine(1)
    story = Story(small(level=level))
    assert not tell(machine, story)
    recover(machine, story, power=False)
    return machine.media.operations


def walk(level: str, *, power: bool, seed: int = 0) -> None:
    """Dies at each operation in turn."""
    count = operations(level)
    for k in range(1, count + 1):
        machine = Machine(seed + k)
        story = Story(small(level=level))
        if not tell(machine, story, crash_at=k, part=k % 2 == 0):
            return
        die(machine, power=power)
        try:
            recover(machine, story, power=power)
        except BaseException as error:
            error.add_note(f"seed {seed}, crash point {k} of {count}")
            raise
    pytest.fail("the script never came to its end")


def walk_twice(level: str, step: int, *, seed: int = 0) -> int:
    """Dies at every `step`-th operation, and again at each one of the recovery from it."""
    crashes = 0
    for k in range(1 + seed % step, operations(level), step):
        for j in range(1, 60):
            machine = Machine(seed + 1000 * k + j)
            story = Story(small(level=level))
            if not tell(machine, story, crash_at=k, part=True):
                return crashes
            power = j % 3 != 0
            die(machine, power=power)
            machine.media.crash_before(j, part=True)
            try:
                try:
                    recover(machine, story, power=power)
                except SimCrashed:
                    crashes += 1
                else:
                    break
                die(machine, power=True)
                recover(machine, story, power=True)
            except BaseException as error:
                error.add_note(f"seed {seed}, crash points {k}, then {j}")
                raise
    return crashes


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
def test_a_crash_before_any_disk_operation_loses_nothing_promised(level: str, power: bool) -> None:
    walk(level, power=power)


@pytest.mark.parametrize("level", [FSYNC, WRITE])
def test_a_crash_while_recovering_from_a_crash_loses_nothing_promised(level: str) -> None:
    assert walk_twice(level, 23) > 50


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("level", LEVELS)
def test_no_way_to_die_loses_anything_promised(level: str) -> None:
    for seed in range(1, 9):
        walk(level, power=True, seed=100_000 * seed)
    for seed in range(1, 4):
        walk_twice(level, 5, seed=100_000 * seed)


def test_memory_is_synced_when_a_segment_is_sealed() -> None:
    async def work(row: LoneRow, story: Story) -> None:
        await fill(row, story)
        await trio.sleep(1)

    machine = Machine(3)
    machine.run(Story(small(level=MEMORY)).life(work, orderly=False))

    durable = machine.media.paths(durable=True)
    assert "row/00000001.pos" in durable
    assert machine.media.durable_content("row/00000001.seg") == machine.media.content(
        "row/00000001.seg"
    )
