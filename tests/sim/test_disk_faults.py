"""The simulated disk: syncs that fail, no space, damage."""

from __future__ import annotations

import errno

import pytest

from duckrow.node.env import Env
from sim.alone import Machine
from sim.diskkit import after_power_loss, write_synced
from sim.pages import BLOCK, SECTOR


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
