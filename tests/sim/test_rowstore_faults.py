"""Disks that fail: an error of a write or a sync ends the process; a full disk only makes it wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from duckrow.node.env import Env
from duckrow.node.errors import DiskFailed, Full, NoQuorum
from duckrow.node.lonerow import LoneRow
from duckrow.node.reserve import HARD, OK, SOFT
from duckrow.node.storeoptions import FSYNC, LEVELS, WRITE, StoreOptions
from sim.alone import Machine
from sim.disk import Media
from sim.pages import BLOCK
from sim.storekit import Story, bodyless, number_of, one_life, small

Work = Callable[[LoneRow], Awaitable[None]]


def run(machine: Machine, options: StoreOptions, work: Work, *, orderly: bool = False) -> None:
    """One life; what fails in it comes out bare."""

    try:
        one_life(machine, options, work, orderly=orderly)
    except BaseExceptionGroup as group:  # whoever waits for the disk hears of it, not `run` alone
        failed, others = group.split(DiskFailed)
        if others is not None or failed is None:
            raise
        raise DiskFailed(str(failed.exceptions)) from group


def told(machine: Machine, options: StoreOptions, *, power: bool) -> int:
    """The position of the row after a death, as the next life tells it."""
    machine.media.power_loss() if power else machine.media.kill()
    positions = []

    async def look(row: LoneRow) -> None:
        positions.append(row.store.recovered.position)
        items = await row.store.read_items(1, 1 << 20, bodies=True)
        assert [item.position for item in items] == list(range(1, row.store.position + 1))

    run(machine, options, look)
    return positions[0]


# -- errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("fault", ["sync_eio", "write_eio"])
def test_an_error_of_a_write_or_a_sync_ends_the_process(level: str, fault: str) -> None:
    async def work(row: LoneRow) -> None:
        setattr(machine.media, fault, 1)
        story = Story(row.store.options, submitted=[[]])
        await story.produce(row, *[300] * 30)
        await story.produce(row, *[300] * 30)
        await trio.sleep(10)

    machine = Machine(1)
    with pytest.raises(DiskFailed, match=r"\[Errno 5\]"):
        run(machine, small(level=level), work)


def test_a_folder_that_cannot_be_synced_ends_the_process() -> None:
    async def work(row: LoneRow) -> None:
        machine.media.names_eio = 1
        await Story(row.store.options, submitted=[[]]).produce(row, *[900] * 9)

    machine = Machine(1)
    with pytest.raises(DiskFailed):
        run(machine, small(), work)


def test_after_an_error_nothing_is_taken_any_more() -> None:
    async def main(env: Env) -> None:
        row = await LoneRow.open(await env.disk.folder("row"), env, small())
        row.follow(row.store.position)
        story = Story(row.store.options)
        row.submit([story.make()])
        machine.media.sync_eio = 1
        with pytest.raises(BaseExceptionGroup) as caught:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(row.run)
                with pytest.raises(DiskFailed):
                    await row.take()
        assert caught.group_contains(DiskFailed)
        with pytest.raises(DiskFailed):
            row.submit([story.make()])
        with pytest.raises(DiskFailed):
            await row.take()
        await row.close()

    machine = Machine(1)
    machine.run(main)


def test_what_a_failed_sync_left_in_the_cache_is_written_again_before_it_is_told() -> None:
    """The kernel holds it for clean: a later sync alone would succeed, and make nothing durable."""
    options = small()

    async def work(row: LoneRow) -> None:
        story = Story(row.store.options, submitted=[[]])
        await story.produce(row, 100)
        machine.media.sync_eio = 1
        await story.produce(row, 100)

    for seed in range(20):
        machine = Machine(seed)
        with pytest.raises(DiskFailed):
            run(machine, options, work)
        # Positions 1 to 3: the mark, the bundle, and the bundle whose sync failed.
        assert told(machine, options, power=False) == 3
        assert told(machine, options, power=True) == 4


async def answered(row: LoneRow) -> None:
    """What the kernel has is answered, at these levels; then the sync fails."""
    await Story(row.store.options, submitted=[[]]).produce(row, 100, 100)
    await row.store.sync()
    await Story(row.store.options, submitted=[[]]).produce(row, 100, 100)
    await row.store.sync()


def lineage_of(machine: Machine, options: StoreOptions) -> int:
    found = []

    async def look(row: LoneRow) -> None:
        assert row.store.view is not None
        found.append(row.store.view.lineage)

    run(machine, options, look)
    return found[0]


def evict(machine: Machine) -> None:
    machine.media.kill()
    for path in machine.media.paths():
        machine.media.evict(path)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("where", ["at work", "in recovery"])
def test_after_a_failed_sync_a_new_lineage_says_that_something_answered_may_be_lost(
    level: str, where: str
) -> None:
    """The machine did not restart, and the kernel has dropped what it could not write."""

    async def work(row: LoneRow) -> None:
        if where == "at work":
            machine.media.sync_eio = 1
        await answered(row)

    async def unsynced(row: LoneRow) -> None:
        await Story(options, submitted=[[]]).produce(row, 100)

    machine, options = Machine(1), small(level=level)
    before = lineage_of(machine, options)
    if where == "at work":
        with pytest.raises(DiskFailed):
            run(machine, options, work)
    else:
        run(machine, options, unsynced)
        machine.media.kill()
        machine.media.sync_eio = 1
        with pytest.raises(DiskFailed):
            lineage_of(machine, options)
    evict(machine)

    after = lineage_of(machine, options)

    assert (after == before) == (level == FSYNC)
    assert lineage_of(machine, options) == after, "once"
    assert "row/doubt" not in machine.media.paths()


def test_a_sync_that_fails_in_recovery_ends_the_start() -> None:
    async def nothing(row: LoneRow) -> None: ...

    async def work(row: LoneRow) -> None:
        row.submit([Story(row.store.options).make()])
        await row.take()

    machine = Machine(1)
    run(machine, small(level=WRITE), work)
    machine.media.sync_eio = 1
    with pytest.raises(DiskFailed, match="recovery"):
        run(machine, small(level=WRITE), nothing)
    run(machine, small(level=WRITE), nothing)


# -- a full disk ----------------------------------------------------------------------------


def leave(media: Media, blocks: int) -> None:
    """So many blocks are free from now on."""
    media.capacity = media.used + blocks * BLOCK


async def fill_up(row: LoneRow, story: Story) -> list[int]:
    """Produces until the disk is full; the numbers that are in the row."""
    written: list[int] = []
    for _ in range(1000):
        each = story.make(700)
        try:
            row.submit([each])
        except Full:
            return written
        items = await row.take()
        refused = row.take_refused()
        assert bool(items) != bool(refused)
        if refused:
            command, error = refused[0]
            assert command is each
            assert "free" in str(error)
            return written
        written.append(number_of(each))
    raise AssertionError("the disk was never full")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("blocks", range(6))
def test_a_full_disk_takes_what_makes_room_into_the_reserve_and_goes_on_by_itself(
    level: str, blocks: int
) -> None:
    options = small(level=level, hard_reserve_bytes=2 * BLOCK, soft_reserve_bytes=BLOCK)

    async def work(row: LoneRow) -> None:
        story = Story(options)
        leave(machine.media, blocks)
        # What the free space is was not looked at: the write finds out.
        written = await fill_up(row, story)
        assert row.status().disk in (SOFT, HARD)
        with pytest.raises(Full, match=r"bytes are free, and a reserve of 4,096"):
            row.submit([story.make()])
        row.submit([bodyless(1), bodyless(2)])
        items = await row.take()
        assert [len(item.content.commands) for item in items] == [2]  # type: ignore[union-attr]
        leave(machine.media, 1 if row.status().disk == SOFT else 0)
        await trio.sleep(5)
        assert row.status().disk in (SOFT, HARD)
        machine.media.capacity += 40 * BLOCK
        await trio.sleep(2)
        assert row.status().disk == OK
        assert await machine_has(machine, "row/reserve")
        row.submit([story.make()])
        assert len(await row.take()) == 1
        numbers = [
            number_of(command)
            for item in await row.store.read_items(2, 1 << 20, bodies=True)
            for command in item.content.commands  # type: ignore[union-attr]
            if command.body
        ]
        assert numbers[:-1] == written

    machine = Machine(blocks)
    run(machine, options, work, orderly=True)
    assert told(machine, options, power=True) > 3


def test_what_comes_while_a_write_turns_out_not_to_fit_stays_behind_it() -> None:
    options = small(level=WRITE)

    async def work(row: LoneRow) -> None:
        story = Story(options)
        number = 0

        async def submit_always() -> None:
            nonlocal number
            while True:
                number += 1
                row.submit([bodyless(number)])
                await trio.lowlevel.checkpoint()

        while row.store.segments()[-1].bytes < options.segment_bytes - 500:
            row.submit([story.make(100)])
            await row.take()
        position = row.store.position
        leave(machine.media, 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(submit_always)
            while row.store.segments()[-1].number == 1:
                await row.take()
            assert row.status().disk == HARD, (
                "the next segment fitted only when the reserve was gone"
            )
            nursery.cancel_scope.cancel()
        written = [
            command
            for item in await row.store.read_items(position + 1, 1 << 20)
            for command in item.content.commands  # type: ignore[union-attr]
        ]
        assert written == [bodyless(n + 1) for n in range(len(written))]

    machine = Machine(1)
    run(machine, options, work)


async def machine_has(machine: Machine, path: str) -> bool:
    return path in machine.media.paths()


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize("level", [FSYNC, WRITE])
def test_a_write_that_does_not_fit_leaves_nothing_behind_wherever_it_happens(
    level: str, power: bool
) -> None:
    """At each operation in turn the disk is found full, for the rest of that life."""
    starts = 0
    for k in range(1, 400):
        try:
            came, started = full_from(k, level, power=power)
        except BaseException as error:
            error.add_note(f"full at operation {k}")
            raise
        starts += started
        if not came:
            assert 0 < starts < k
            return
    pytest.fail("the script never came to its end")


def full_from(k: int, level: str, *, power: bool) -> tuple[bool, bool]:
    """Was there a k-th operation, and was the row open by then?"""
    # Segments of several blocks, so that a part of a write fits.
    options = small(level=level, soft_reserve_bytes=BLOCK, segment_bytes=3 * BLOCK)
    machine = Machine(k)
    media = machine.media
    story = Story(options, submitted=[[]])
    operations = 0
    started = False

    def note(_kind: str, _path: str, _offset: int, _length: int) -> None:
        nonlocal operations
        operations += 1
        if operations == k:
            media.capacity = media.used

    async def work(row: LoneRow) -> None:
        nonlocal started
        started = True
        for size in (10, 900, 10, 1500, 5500, 2500, 700, 7000, 700):
            each = story.make(size)
            try:
                row.submit([each])
            except Full:
                break
            for item in await row.take():
                story.see(item)
            if row.take_refused():
                break
        await trio.sleep(0.5)
        story.durable = row.store.durable_position

    async def check(env: Env) -> None:
        row = await LoneRow.open(await env.disk.folder("row"), env, options)
        assert row.store.recovered.damages == ()
        assert power or not started or row.store.recovered.cut_bytes == 0, "a part was left"
        row.follow(row.store.floor - 1)
        await story.check(row, power=power)
        assert await row.store.scrub() == []
        await row.close()

    media.note = note
    try:
        run(machine, options, work, orderly=True)
    except Full:
        assert not started, "only a start may give up"
    media.note = None
    media.capacity = 1 << 40
    media.power_loss() if power else media.kill()
    machine.run(check)
    return operations >= k, started


def test_below_the_soft_reserve_produces_are_refused_and_the_rest_goes_on() -> None:
    options = small(soft_reserve_bytes=30 * BLOCK)

    async def work(row: LoneRow) -> None:
        story = Story(options, submitted=[[]])
        await story.produce(row, 10)
        leave(machine.media, 29)
        row.store.reserve.look()
        with pytest.raises(Full, match=r"118,784 bytes are free, and a reserve of 122,880"):
            row.submit([story.make()])
        row.submit([bodyless(1)])
        assert len(await row.take()) == 1
        assert row.status().disk == SOFT
        leave(machine.media, 59)
        row.store.reserve.look()
        assert row.status().disk == SOFT, "it would flap"
        leave(machine.media, 60)
        row.store.reserve.look()
        assert row.status().disk == OK
        await story.produce(row, 10)

    machine = Machine(1)
    run(machine, options, work)


def test_the_free_space_is_looked_at_while_writing_and_again_by_itself() -> None:
    options = small(soft_reserve_bytes=30 * BLOCK, segment_bytes=1 << 20)

    async def work(row: LoneRow) -> None:
        story = Story(options, submitted=[[]])
        leave(machine.media, 90)
        for _ in range(100):
            try:
                await story.produce(row, 9_000)
            except Full:
                break
        assert row.status().disk == SOFT
        assert machine.media.capacity - machine.media.used > 0
        leave(machine.media, 100)
        await trio.sleep(2)
        assert row.status().disk == OK

    machine = Machine(1)
    run(machine, options, work)


def test_the_soft_reserve_is_a_share_of_a_large_disk() -> None:
    async def work(row: LoneRow) -> None:
        machine.media.capacity = 100 << 20
        row.store.reserve.look()
        assert row.status().disk == OK
        machine.media.capacity, used = 100 << 20, machine.media.used
        machine.media.give_back(-((97 << 20) - used) // BLOCK)
        row.store.reserve.look()
        assert row.status().disk == SOFT

    machine = Machine(1)
    run(machine, small(soft_reserve_fraction=0.04), work)


def test_a_node_starts_on_a_full_disk_with_the_help_of_the_reserve() -> None:
    options = small(hard_reserve_bytes=4 * BLOCK, soft_reserve_bytes=BLOCK)
    states = []

    async def work(row: LoneRow) -> None:
        await Story(options, submitted=[[]]).produce(row, 3000)

    async def look(row: LoneRow) -> None:
        states.append(row.status().disk)
        with pytest.raises(Full):
            row.submit([Story(options).make()])
        row.submit([bodyless(1)])
        assert len(await row.take()) == 1

    machine = Machine(1)
    run(machine, options, work)
    leave(machine.media, 0)
    for _ in range(12):
        run(machine, options, look)
    assert states[0] == SOFT
    assert states[-1] == HARD
    assert "row/reserve" not in machine.media.paths()


def test_a_node_that_cannot_even_write_its_start_says_that_the_disk_is_full() -> None:
    async def work(row: LoneRow) -> None:
        await Story(row.store.options, submitted=[[]]).produce(row, 3700)

    async def nothing(row: LoneRow) -> None: ...

    options = small(hard_reserve_bytes=0)
    machine = Machine(1)
    run(machine, options, work)
    leave(machine.media, 0)
    with pytest.raises(Full, match="0 bytes are free"):
        run(machine, options, nothing)
    leave(machine.media, 10)
    run(machine, options, nothing)


@pytest.mark.parametrize("size", [0, 4095, 4097, 8192])
def test_a_reserve_of_another_size_is_made_again(size: int) -> None:
    """A crash while it was made leaves a part; later it would be given up for nothing."""

    async def nothing(row: LoneRow) -> None:
        assert row.status().disk == OK

    machine = Machine(1)
    run(machine, small(hard_reserve_bytes=BLOCK), nothing)
    assert machine.media.pages("row/reserve").allocated == 1
    machine.media.pages("row/reserve").truncate(size)

    run(machine, small(hard_reserve_bytes=BLOCK), nothing)

    assert len(machine.media.content("row/reserve")) == BLOCK
    assert machine.media.pages("row/reserve").allocated == 1


def test_too_much_that_waits_is_refused() -> None:
    async def work(row: LoneRow) -> None:
        story = Story(row.store.options)
        row.submit([story.make(5000)])
        with pytest.raises(NoQuorum, match="wait for the disk"):
            row.submit([story.make(5000)])
        assert len(await row.take()) == 1

    run(Machine(1), small(pending_bytes=9000), work)


def test_what_lets_a_segment_go_is_durable_first_also_where_no_floor_fits() -> None:
    machine, options = Machine(1), small(level=WRITE, segment_bytes=16_384, hard_reserve_bytes=0)
    story = Story(options)

    async def work(row: LoneRow) -> None:
        store = row.store
        story.submitted.append([])
        while store.segments()[-1].number < 3:
            await story.produce(row, 3_000)
        await store.sync()
        assert await store.index_sealed()
        store.release(store.position, store.position)
        before = store.segments()[-1].bytes
        await story.produce(row, 0)
        each = store.segments()[-1].bytes - before
        await story.produce(row, (-store.segments()[-1].bytes - each - 16) % 4096)
        assert -store.segments()[-1].bytes % 4096 < 32, "a FLOOR would still fit in the last block"
        machine.media.capacity = machine.media.used

        assert await store.drop([1]) == [1]

        assert store.durable_position == store.position

    one_life(machine, options, work, running=False)
