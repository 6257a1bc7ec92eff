"""The simulated disk: what survives what."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from duckrow.node.env import Env, File
from sim.alone import Machine
from sim.clock import SimDeadlock
from sim.disk import Media
from sim.pages import BLOCK, SECTOR, Pages
from sim.park import SimCrashed


async def write_synced(env: Env, name: str, data: bytes) -> File:
    file = await env.disk.open(name, create=True)
    file.write(0, [data])
    await file.sync()
    await env.disk.sync_names()
    return file


def after_power_loss(seed: int, main: Callable[[Env], object]) -> Media:
    machine = Machine(seed)
    machine.run(main)  # type: ignore[arg-type]
    machine.media.power_loss()
    return machine.media


# -- power loss ---------------------------------------------------------------------------


def test_what_was_synced_survives_a_power_loss_and_what_was_not_may_go_in_any_way() -> None:
    async def main(env: Env) -> None:
        file = await write_synced(env, "log", b"A" * 1000)
        file.write(1000, [b"B" * 4000])

    tails = []
    for seed in range(60):
        content = after_power_loss(seed, main).content("log")
        assert content[:1000] == b"A" * 1000
        tails.append(content[1000:])

    assert b"" in tails
    assert b"B" * 4000 in tails
    assert any(0 < tail.count(b"B") < 4000 and tail.count(0) for tail in tails)


def test_later_writes_may_survive_earlier_ones() -> None:
    async def main(env: Env) -> None:
        file = await write_synced(env, "log", bytes(8 * SECTOR))
        for sector in range(8):
            file.write(sector * SECTOR, [bytes([sector + 1]) * SECTOR])

    seen = [after_power_loss(seed, main).content("log")[::SECTOR] for seed in range(60)]

    assert any(sectors[7] == 8 and not all(sectors[:7]) for sectors in seen)


def test_any_of_several_writes_may_be_lost() -> None:
    async def main(env: Env) -> None:
        file = await write_synced(env, "log", bytes(8 * SECTOR))
        for sector in range(8):
            file.write(sector * SECTOR, [b"x" * SECTOR])

    seen = {after_power_loss(seed, main).content("log")[::SECTOR] for seed in range(200)}

    assert any(sectors.count(0) == 1 for sectors in seen)
    # Two kept ones with a lost one on either side: no prefix, and not one alone.
    scattered = {sectors for sectors in seen if sectors.strip(b"\0").count(0) > 1}
    assert len(scattered) > 10


def test_a_buffer_that_is_changed_after_the_write_changes_nothing_on_the_disk() -> None:
    async def main(env: Env) -> None:
        file = await write_synced(env, "log", b"")
        buffer = bytearray(b"abc")
        file.write(0, [buffer])
        buffer[:] = b"xyz"

    assert {after_power_loss(seed, main).content("log") for seed in range(30)} <= {
        b"",
        b"abc",
        b"\0\0\0",
    }


def test_a_sector_is_never_torn() -> None:
    async def main(env: Env) -> None:
        file = await write_synced(env, "log", b"a" * SECTOR * 4)
        file.write(0, [b"b" * SECTOR * 4])
        file.write(0, [b"c" * SECTOR * 4])

    for seed in range(60):
        content = after_power_loss(seed, main).content("log")
        sectors = [content[at : at + SECTOR] for at in range(0, len(content), SECTOR)]
        assert all(sector in (b"a" * SECTOR, b"b" * SECTOR, b"c" * SECTOR) for sector in sectors)


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3000), st.integers(1, 2000)),
        st.tuples(st.just("truncate"), st.integers(0, 4000), st.just(0)),
        st.tuples(st.just("sync"), st.just(0), st.just(0)),
        st.tuples(st.just("fail"), st.just(0), st.just(0)),
        st.tuples(st.just("evict"), st.just(0), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(CHANGES, st.integers(0, 1 << 32))
def test_each_byte_is_as_some_moment_since_its_last_sync_left_it(
    changes: list[tuple[str, int, int]], seed: int
) -> None:
    rng, pages = random.Random(seed), Pages()
    ever: dict[int, set[int]] = {}  # by offset: what a power loss may show there
    sizes = {0}

    def saw() -> None:
        content = pages.cache.read(0, pages.cache.size).ljust(5000, b"\0")
        for offset in range(0, 5000, 97):
            ever.setdefault(offset, {0}).add(content[offset])
        sizes.add(pages.cache.size)

    failed = False
    for fresh, (kind, where, length) in enumerate(changes, 1):
        if kind == "write":
            pages.write(where, bytes([fresh]) * length)
        elif kind == "truncate":
            pages.truncate(where)
        elif kind == "sync":
            pages.sync(pages.count)
            if not failed:  # exactly this is what lies on the disk now
                ever.clear()
                sizes.clear()
                content = pages.cache.read(0, pages.cache.size).ljust(5000, b"\0")
                ever.update({offset: {content[offset]} for offset in range(0, 5000, 97)})
        elif kind == "fail":
            pages.fail_sync(pages.count, rng)
            failed = True
        else:
            before = pages.cache.read(0, pages.cache.size)
            pages.evict()
            assert failed or pages.cache.read(0, pages.cache.size) == before
        saw()

    pages.lose_power(rng)
    content = pages.cache.read(0, pages.cache.size).ljust(5000, b"\0")

    assert pages.cache.size in sizes
    for offset, values in ever.items():
        assert content[offset] in values or (offset >= pages.cache.size and not content[offset])
    assert not pages.changes
    assert pages.durable is None


def test_a_size_may_reach_the_disk_before_the_bytes_and_shows_zeros() -> None:
    async def main(env: Env) -> None:
        file = await write_synced(env, "log", b"a" * SECTOR)
        file.write(SECTOR, [b"b" * SECTOR])

    contents = [after_power_loss(seed, main).content("log") for seed in range(60)]

    assert b"a" * SECTOR + bytes(SECTOR) in contents


# -- names --------------------------------------------------------------------------------


def test_of_names_that_were_not_synced_a_prefix_of_the_changes_survives() -> None:
    async def main(env: Env) -> None:
        await write_synced(env, "old", b"1")
        await env.disk.rename("old", "new")
        await env.disk.open("next", create=True)
        await env.disk.unlink("new")

    seen = {tuple(after_power_loss(seed, main).paths()) for seed in range(40)}

    assert seen == {("old",), ("new",), ("new", "next"), ("next",)}


def test_a_rename_over_a_file_is_the_old_or_the_new_one_and_never_none() -> None:
    async def main(env: Env) -> None:
        await write_synced(env, "snapshot", b"old")
        file = await env.disk.open("aside", create=True)
        file.write(0, [b"new"])
        await file.sync()
        await env.disk.rename("aside", "snapshot")

    seen = {after_power_loss(seed, main).content("snapshot") for seed in range(30)}

    assert seen == {b"old", b"new"}


def test_a_folder_whose_name_was_not_synced_may_be_lost_with_all_that_is_in_it() -> None:
    async def main(env: Env) -> None:
        folder = await env.disk.folder("row")
        file = await folder.open("log", create=True)
        file.write(0, [b"x"])
        await file.sync()
        await folder.sync_names()

    seen = {tuple(after_power_loss(seed, main).paths()) for seed in range(30)}

    assert seen == {(), ("row/log",)}


def test_a_sync_of_names_covers_what_was_there_when_it_began() -> None:
    machine = Machine()
    machine.media.sync_latency = 1.0

    async def main(env: Env) -> None:
        await env.disk.open("before", create=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(env.disk.sync_names)
            await trio.sleep(0.5)
            await env.disk.open("during", create=True)
        machine.media.rng.seed(0)

    machine.run(main)

    assert machine.media.paths(durable=True) == ["before"]


# -- syncs --------------------------------------------------------------------------------


def test_a_sync_covers_what_was_written_before_it_began() -> None:
    machine = Machine()
    machine.media.sync_latency = 1.0

    async def main(env: Env) -> None:
        file = await write_synced(env, "log", b"a")
        file.write(1, [b"b"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(file.sync)
            await trio.sleep(0.5)
            file.write(2, [b"c"])
        assert trio.current_time() == 3.0

    machine.run(main)

    assert machine.media.durable_content("log") == b"ab"


def test_after_a_failed_sync_the_next_succeeds_and_what_it_should_have_saved_is_lost() -> None:
    lost = 0
    for seed in range(40):
        machine = Machine(seed)

        async def main(env: Env, machine: Machine = machine) -> None:
            file = await write_synced(env, "log", b"a" * SECTOR)
            file.write(SECTOR, [b"b" * SECTOR])
            machine.media.sync_eio = 1
            with pytest.raises(OSError, match="sync") as caught:
                await file.sync()
            assert caught.value.errno == errno.EIO
            file.write(2 * SECTOR, [b"c" * SECTOR])
            await file.sync()
            assert await file.read(0, 4 * SECTOR) == b"".join(
                letter * SECTOR for letter in (b"a", b"b", b"c")
            )

        machine.run(main)
        machine.media.power_loss()
        content = machine.media.content("log")
        assert content[:SECTOR] == b"a" * SECTOR
        assert content[2 * SECTOR :] == b"c" * SECTOR
        lost += content[SECTOR : 2 * SECTOR] != b"b" * SECTOR

    assert lost > 10


def test_rewriting_what_a_failed_sync_lost_makes_it_durable() -> None:
    machine = Machine(3)

    async def main(env: Env) -> None:
        file = await write_synced(env, "log", b"a" * SECTOR)
        file.write(SECTOR, [b"b" * SECTOR])
        machine.media.sync_eio = 1
        with pytest.raises(OSError, match="sync"):
            await file.sync()
        file.write(SECTOR, [await file.read(SECTOR, SECTOR)])
        await file.sync()

    machine.run(main)
    machine.media.power_loss()

    assert machine.media.content("log") == b"a" * SECTOR + b"b" * SECTOR


def test_an_evicted_page_shows_what_a_failed_sync_lost() -> None:
    seen = set()
    for seed in range(20):
        machine = Machine(seed)

        async def main(env: Env, machine: Machine = machine) -> None:
            file = await write_synced(env, "log", b"a" * SECTOR)
            file.write(0, [b"b" * SECTOR])
            machine.media.sync_eio = 1
            with pytest.raises(OSError, match="sync"):
                await file.sync()
            file.write(SECTOR, [b"c"])
            machine.media.evict("log")
            seen.add((await file.read(0, 1), await file.read(SECTOR, 1)))

        machine.run(main)

    assert seen == {(b"a", b"c"), (b"b", b"c")}


def test_a_failed_sync_of_names_leaves_them_to_the_next() -> None:
    machine = Machine()

    async def main(env: Env) -> None:
        await env.disk.open("log", create=True)
        machine.media.names_eio = 1
        with pytest.raises(OSError, match="sync"):
            await env.disk.sync_names()
        assert machine.media.paths(durable=True) == []
        await env.disk.sync_names()

    machine.run(main)

    assert machine.media.paths(durable=True) == ["log"]


# -- space --------------------------------------------------------------------------------


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    machine = Machine()
    machine.media.capacity = 2 * BLOCK

    async def main(env: Env) -> None:
        file = await env.disk.open("log", create=True)
        file.write(0, [b"x" * 100])
        with pytest.raises(OSError, match="full") as caught:
            file.write(100, [b"y" * 3 * BLOCK])
        assert caught.value.errno == errno.ENOSPC
        assert file.size == 2 * BLOCK
        assert env.disk.free() == (0, 2 * BLOCK)
        file.truncate(100)
        assert env.disk.free() == (BLOCK, 2 * BLOCK)
        file.write(50, [b"z" * 100])

    machine.run(main)


def test_holes_cost_nothing_and_unlinked_files_cost_until_they_are_closed() -> None:
    machine = Machine()

    async def main(env: Env) -> None:
        file = await env.disk.open("sparse", create=True)
        file.write(100 * BLOCK, [b"x"])
        assert machine.media.used == BLOCK
        assert await file.read(0, 3) == b"\0\0\0"
        other = await env.disk.open("sparse")
        await env.disk.unlink("sparse")
        file.close()
        assert machine.media.used == BLOCK
        other.close()
        assert machine.media.used == 0

    machine.run(main)


def test_a_file_that_was_renamed_over_gives_its_space_back() -> None:
    machine = Machine()

    async def main(env: Env) -> None:
        (await write_synced(env, "old", b"x" * 3 * BLOCK)).close()
        (await write_synced(env, "new", b"x" * BLOCK)).close()
        await env.disk.rename("new", "old")
        assert machine.media.used == BLOCK

    machine.run(main)


def test_a_killed_process_frees_what_it_alone_had_open() -> None:
    machine = Machine()

    async def main(env: Env) -> None:
        file = await env.disk.open("log", create=True)
        file.write(0, [b"x"])
        await env.disk.unlink("log")
        assert machine.media.used == BLOCK

    machine.run(main)

    assert machine.media.used == 0


def test_a_reserve_holds_its_bytes_and_gives_them_back() -> None:
    machine = Machine()
    machine.media.capacity = 10 * BLOCK

    async def main(env: Env) -> None:
        await env.disk.reserve("reserve", 8 * BLOCK)
        file = await env.disk.open("log", create=True)
        with pytest.raises(OSError, match="full"):
            file.write(0, [b"x" * 3 * BLOCK])
        await env.disk.unlink("reserve")
        file.write(0, [b"x" * 3 * BLOCK])
        with pytest.raises(OSError, match="full"):
            await env.disk.reserve("reserve", 8 * BLOCK)

    machine.run(main)


def test_space_is_counted_anew_after_a_power_loss() -> None:
    async def main(env: Env) -> None:
        await write_synced(env, "log", b"x" * BLOCK)
        await write_synced(env, "gone", b"x" * BLOCK)
        await env.disk.unlink("gone")

    used = {after_power_loss(seed, main).used for seed in range(20)}

    assert used == {BLOCK, 2 * BLOCK}


# -- damage -------------------------------------------------------------------------------


def test_a_flipped_bit_is_seen_by_reads_and_survives_a_power_loss() -> None:
    machine = Machine()

    async def main(env: Env) -> bytes:
        file = await env.disk.open("log")
        return await file.read(0, 10)

    machine.run(lambda env: write_synced(env, "log", bytes(10)))
    machine.media.flip("log", 3, 4)

    assert machine.run(main) == b"\0\0\0\x10" + bytes(6)
    machine.media.power_loss()
    assert machine.run(main) == b"\0\0\0\x10" + bytes(6)


def test_a_flip_under_bytes_that_are_not_on_the_disk_yet_is_not_seen() -> None:
    machine = Machine()

    async def main(env: Env) -> None:
        file = await write_synced(env, "log", b"aa")
        file.write(0, [b"b"])
        machine.media.flip("log", 0, 0)
        machine.media.flip("log", 1, 0)
        assert await file.read(0, 2) == b"b`"

    machine.run(main)

    assert machine.media.durable_content("log") == b"``"


def test_reads_fail_as_often_as_they_were_told_to() -> None:
    machine = Machine()

    async def main(env: Env) -> None:
        file = await write_synced(env, "log", b"a")
        machine.media.read_eio = 1
        with pytest.raises(OSError, match="read error"):
            await file.read(0, 1)
        assert await file.read(0, 1) == b"a"

    machine.run(main)


def test_a_bad_sector_cannot_be_read_until_it_is_written_in_full() -> None:
    machine = Machine()

    async def main(env: Env) -> None:
        file = await write_synced(env, "log", b"a" * 3 * SECTOR)
        machine.media.spoil("log", SECTOR + 3)
        assert await file.read(0, SECTOR) == b"a" * SECTOR
        for offset, length in ((SECTOR, 1), (0, 3 * SECTOR), (2 * SECTOR - 1, 2)):
            with pytest.raises(OSError, match="bad sector"):
                await file.read(offset, length)
        file.write(SECTOR + 1, [b"b" * SECTOR])
        with pytest.raises(OSError, match="bad sector"):
            await file.read(SECTOR, 1)
        file.write(SECTOR, [b"b" * SECTOR])
        assert await file.read(SECTOR, 1) == b"b"

    machine.run(main)


# -- crash points -------------------------------------------------------------------------


async def five_operations(env: Env) -> str:
    file = await env.disk.open("log", create=True)  # 1
    file.write(0, [b"x" * 10])  # 2
    await file.sync()  # 3
    await env.disk.sync_names()  # 4
    file.truncate(5)  # 5
    assert await file.read(0, 10) == b"xxxxx"
    return "done"


@pytest.mark.parametrize(
    ("k", "durable"), [(1, []), (2, []), (3, []), (4, []), (5, ["log"]), (6, ["log"])]
)
def test_a_process_dies_just_before_the_operation_it_was_told(k: int, durable: list[str]) -> None:
    machine = Machine()
    machine.media.crash_before(k)

    if k <= 5:
        with pytest.raises(SimCrashed):
            machine.run(five_operations)
        assert machine.media.operations == k
    else:
        assert machine.run(five_operations) == "done"
    assert machine.media.paths(durable=True) == durable
    if k == 5:
        assert machine.media.content("log") == b"x" * 10


def test_a_write_in_flight_can_get_through_in_part() -> None:
    sizes = set()
    for seed in range(40):
        machine = Machine(seed)
        machine.media.crash_before(2, part=True)
        with pytest.raises(SimCrashed):
            machine.run(five_operations)
        sizes.add(len(machine.media.content("log")))

    assert sizes == set(range(11))


def test_the_dead_touch_nothing() -> None:
    machine = Machine()
    late: list[str] = []

    async def main(env: Env) -> None:
        file = await write_synced(env, "log", b"a")
        try:
            machine.media.kill()
            await trio.sleep(1)
        finally:
            with trio.CancelScope(shield=True):
                for call in (
                    lambda: file.write(0, [b"last words"]),
                    lambda: file.truncate(0),
                    file.hold,
                    file.close,
                    lambda: file.size,
                    env.disk.free,
                    lambda: env.disk.lock("lock"),
                ):
                    with pytest.raises(SimCrashed):
                        call()
                for wait in (
                    lambda: file.read(0, 1),
                    file.sync,
                    lambda: env.disk.open("new", create=True),
                    lambda: env.disk.rename("log", "new"),
                    lambda: env.disk.unlink("log"),
                    lambda: env.disk.folder("new"),
                    lambda: env.disk.reserve("new", 10),
                    lambda: env.disk.exists("log"),
                    env.disk.names,
                    env.disk.sync_names,
                ):
                    with pytest.raises(SimCrashed):
                        await wait()
                late.append("looked")

    machine.run(main)

    assert late == ["looked"]
    assert machine.media.paths() == ["log"]
    assert machine.media.content("log") == b"a"


# -- locks, held files, one machine -------------------------------------------------------------


def test_a_lock_dies_with_its_process() -> None:
    machine = Machine()

    async def main(env: Env) -> None:
        env.disk.lock("lock")
        with pytest.raises(BlockingIOError, match="held by process 10"):
            machine.media.disk().lock("lock")

    machine.run(main)
    machine.run(main)


def test_a_file_that_is_held_outlives_the_process_that_held_it_and_does_not_hold_up_the_next() -> (
    None
):
    machine = Machine()
    held = []

    async def first(env: Env) -> None:
        held.append((await write_synced(env, "log", b"abc")).hold())

    async def second(env: Env) -> None:
        file = await env.disk.open("log")
        file.write(3, [b"def"])
        file.truncate(5)

    machine.run(first)
    machine.run(second)

    assert held[0].read(0, 3) == b"abc"
    assert machine.media.content("log") == b"abcde"


def test_the_boot_id_changes_with_the_power_and_not_with_the_process() -> None:
    machine = Machine()

    async def main(env: Env) -> str:
        return env.boot_id

    first, second = machine.run(main), machine.run(main)
    machine.media.power_loss()

    assert first == second != machine.run(main)


def test_a_program_that_can_never_go_on_is_a_deadlock() -> None:
    with pytest.raises(SimDeadlock):
        Machine().run(lambda _env: trio.Event().wait())


def test_appending_64_mib_in_small_writes_costs_no_copies_of_the_file() -> None:
    media = Media()
    pages = Pages()
    chunk = b"x" * 65536
    for index in range(1024):
        pages.write(index * len(chunk), chunk)
        if index % 64 == 63:
            pages.sync(pages.count)

    assert pages.cache.size == 64 << 20
    assert pages.changes == []
    assert media.used == 0
