"""What every `Env` keeps, the simulated one and the machine: one set of tests on both.

A fake that is easier to live with than the real thing makes every test that uses it lie.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from duckrow.node.env import Env
from duckrow.node.realio import real_env
from sim.alone import Machine

T = TypeVar("T")


Main = Callable[[Env], Awaitable[T]]


Run = Callable[[Main[T]], T]  # each call is a new process on the same disk


@pytest.fixture(params=["sim", "real"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run[object]:
    if request.param == "sim":
        return Machine().run
    return lambda main: trio.run(main, real_env("alone", tmp_path / "disk"))


def test_a_file_is_made_only_when_asked_for(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        with pytest.raises(FileNotFoundError):
            await env.disk.open("log")
        assert not await env.disk.exists("log")
        file = await env.disk.open("log", create=True)
        assert file.size == 0
        assert await env.disk.exists("log")
        file.write(0, [b"kept"])
        again = await env.disk.open("log", create=True)
        assert await again.read(0, 10) == b"kept"

    run(main)


def test_buffers_of_any_kind_are_written_one_after_the_other(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        file = await env.disk.open("log", create=True)
        file.write(0, [b"a", bytearray(b"bc"), b"", memoryview(b"xdefx")[1:4]])
        assert file.size == 6
        file.write(2, [b"CD"])
        assert await file.read(0, 100) == b"abCDef"
        file.write(6, [])
        file.write(100, [b""])
        assert file.size == 6

    run(main)


def test_buffers_may_be_changed_after_they_were_written(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        file = await env.disk.open("log", create=True)
        buffer = bytearray(b"abc")
        file.write(0, [buffer])
        file.write(3, [memoryview(buffer)])
        buffer[:] = b"xyz"
        assert await file.read(0, 6) == b"abcabc"

    run(main)


def test_thousands_of_buffers_and_megabytes_are_one_write(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        file = await env.disk.open("log", create=True)
        file.write(0, [b"%05d" % number for number in range(5000)])
        assert file.size == 25_000
        assert await file.read(24_995, 5) == b"04999"
        file.write(25_000, [b"x" * (8 << 20)])
        assert await file.read(25_000, 8 << 20) == b"x" * (8 << 20)

    run(main)


def test_a_read_is_short_only_at_the_end(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        file = await env.disk.open("log", create=True)
        file.write(0, [b"0123456789"])
        assert await file.read(3, 4) == b"3456"
        assert await file.read(8, 4) == b"89"
        assert await file.read(10, 4) == b""
        assert await file.read(1000, 4) == b""
        assert await file.read(3, 0) == b""
        assert type(await file.read(0, 1)) is bytes

    run(main)


def test_a_write_beyond_the_end_leaves_zeros_between(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        file = await env.disk.open("log", create=True)
        file.write(5000, [b"x"])
        assert file.size == 5001
        assert await file.read(0, 6000) == bytes(5000) + b"x"

    run(main)


def test_truncating_cuts_and_stretches(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        file = await env.disk.open("log", create=True)
        file.write(0, [b"0123456789"])
        file.truncate(4)
        assert await file.read(0, 10) == b"0123"
        file.truncate(6)
        assert await file.read(0, 10) == b"0123\0\0"
        file.truncate(0)
        assert file.size == 0

    run(main)


def test_two_handles_of_a_file_see_each_others_writes(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        one = await env.disk.open("log", create=True)
        two = await env.disk.open("log")
        one.write(0, [b"abc"])
        assert two.size == 3
        assert await two.read(0, 3) == b"abc"

    run(main)


def test_a_file_that_is_held_is_read_after_it_was_closed_and_unlinked(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        file = await env.disk.open("index", create=True)
        assert file.hold().read(0, 0) == b""
        file.write(0, [b"0123456789"])
        file.truncate(12)
        held = file.hold()
        file.close()
        await env.disk.unlink("index")
        assert held.size == 12
        assert held.read(3, 2) == b"34"
        assert held.read(9, 3) == b"9\0\0"

    run(main)


def test_what_is_held_and_was_cut_off_is_an_error_and_nothing_worse(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        file = await env.disk.open("index", create=True)
        file.write(0, [bytes(10_000)])
        held = file.hold()
        file.truncate(5_000)
        assert held.read(4_000, 1_000) == bytes(1_000)
        with pytest.raises(OSError, match="ends after 5,000") as caught:
            held.read(4_000, 1_001)
        assert caught.value.errno == errno.EIO

    run(main)


def test_a_sync_returns_and_what_was_synced_is_there_in_the_next_process(
    run: Run[bytes | None],
) -> None:
    async def write(env: Env) -> None:
        file = await env.disk.open("log", create=True)
        file.write(0, [b"abc"])
        await file.sync()
        await file.sync()
        await env.disk.sync_names()

    async def read(env: Env) -> bytes:
        return await (await env.disk.open("log")).read(0, 10)

    run(write)

    assert run(read) == b"abc"


@pytest.mark.parametrize("call", ["size", "write", "read", "hold", "truncate", "sync"])
def test_a_closed_file_refuses_everything_but_closing(run: Run[None], call: str) -> None:
    async def main(env: Env) -> None:
        file = await env.disk.open("log", create=True)
        file.write(0, [b"abc"])
        file.close()
        file.close()
        with pytest.raises(OSError, match=r".") as caught:
            if call == "size":
                _ = file.size
            elif call == "write":
                file.write(0, [b"x"])
            elif call == "read":
                await file.read(0, 1)
            elif call == "hold":
                file.hold()
            elif call == "truncate":
                file.truncate(0)
            else:
                await file.sync()
        assert caught.value.errno == errno.EBADF

    run(main)


def test_each_call_that_waits_can_be_cancelled(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        file = await env.disk.open("log", create=True)
        file.write(0, [b"abc"])
        for wait in (
            lambda: file.read(0, 1),
            lambda: file.read(9, 1),
            file.sync,
            lambda: env.disk.open("log"),
            lambda: env.disk.exists("log"),
            env.disk.names,
            env.disk.sync_names,
            lambda: env.disk.folder("folder"),
            lambda: env.disk.rename("log", "other"),
            lambda: env.disk.unlink("log"),
            lambda: env.disk.reserve("reserve", 10),
        ):
            with trio.CancelScope() as scope:
                scope.cancel()
                await wait()
            assert scope.cancelled_caught
        assert await env.disk.exists("log")

    run(main)


def test_others_get_their_turn_between_reads(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        file = await env.disk.open("log", create=True)
        file.write(0, [b"abc"])
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            for _ in range(1000):
                await file.read(0, 1)
            nursery.cancel_scope.cancel()
        assert turns > 5

    run(main)


def test_names_are_sorted_and_those_of_this_folder_alone(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        for name in ("b", "c", "a"):
            (await env.disk.open(name, create=True)).close()
        inner = await env.disk.folder("folder")
        await inner.open("inside", create=True)
        assert await env.disk.names() == ["a", "b", "c", "folder"]
        assert await inner.names() == ["inside"]
        again = await env.disk.folder("folder")
        assert await again.exists("inside")
        assert await env.disk.exists("folder")

    run(main)


def test_renaming_replaces_what_had_the_name(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        old = await env.disk.open("snapshot", create=True)
        old.write(0, [b"old"])
        new = await env.disk.open("aside", create=True)
        new.write(0, [b"new"])
        await env.disk.rename("aside", "snapshot")
        assert await env.disk.names() == ["snapshot"]
        assert await (await env.disk.open("snapshot")).read(0, 9) == b"new"
        assert await old.read(0, 9) == b"old"  # who has it open keeps it
        new.write(3, [b"er"])
        assert await (await env.disk.open("snapshot")).read(0, 9) == b"newer"

    run(main)


def test_what_is_missing_cannot_be_renamed_or_unlinked(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        with pytest.raises(FileNotFoundError):
            await env.disk.rename("missing", "other")
        with pytest.raises(FileNotFoundError):
            await env.disk.unlink("missing")

    run(main)


def test_an_unlinked_file_lives_until_it_is_closed(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        file = await env.disk.open("log", create=True)
        file.write(0, [b"abc"])
        await env.disk.unlink("log")
        assert not await env.disk.exists("log")
        assert await file.read(0, 3) == b"abc"
        new = await env.disk.open("log", create=True)
        assert new.size == 0

    run(main)


def test_files_and_folders_are_not_taken_for_each_other(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        await env.disk.open("file", create=True)
        await env.disk.folder("folder")
        with pytest.raises(NotADirectoryError):
            await env.disk.folder("file")
        with pytest.raises(IsADirectoryError):
            await env.disk.open("folder")
        with pytest.raises(IsADirectoryError):
            await env.disk.unlink("folder")

    run(main)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a"])
def test_a_name_is_a_name(run: Run[None], name: str) -> None:
    async def main(env: Env) -> None:
        for call in (env.disk.open, env.disk.folder, env.disk.unlink, env.disk.exists):
            with pytest.raises(AssertionError, match="not a name"):
                await call(name)
        with pytest.raises(AssertionError, match="not a name"):
            await env.disk.rename("a", name)
        with pytest.raises(AssertionError, match="not a name"):
            env.disk.lock(name)

    run(main)


def test_a_reserve_is_a_file_of_its_size_and_is_made_once(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        await env.disk.reserve("reserve", 1 << 20)
        file = await env.disk.open("reserve")
        assert file.size == 1 << 20
        assert await file.read(1000, 10) == bytes(10)
        with pytest.raises(FileExistsError):
            await env.disk.reserve("reserve", 1)
        await env.disk.unlink("reserve")

    run(main)


def test_a_reserve_that_does_not_fit_leaves_no_file(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        free, _ = env.disk.free()
        with pytest.raises(OSError, match=r".") as caught:
            await env.disk.reserve("reserve", free + (8 << 30))
        assert caught.value.errno in (errno.ENOSPC, errno.EFBIG)
        assert await env.disk.names() == []

    run(main)


def test_free_space_is_some_of_the_whole(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        free, size = env.disk.free()
        assert 0 < free <= size

    run(main)


def test_a_lock_is_held_once_names_its_holder_and_can_be_given_back(run: Run[None]) -> None:
    async def main(env: Env) -> None:
        folder = await env.disk.folder("folder")
        folder.lock("lock")
        with pytest.raises(BlockingIOError, match=r"held by process \d+"):
            folder.lock("lock")
        with pytest.raises(BlockingIOError, match=r"held by process \d+"):
            (await env.disk.folder("folder")).lock("lock")
        env.disk.lock("lock")
        assert await folder.names() == ["lock"]
        pid = await (await folder.open("lock")).read(0, 32)
        assert pid.isdigit()
        (await env.disk.folder("folder")).unlock("lock")
        folder.lock("lock")
        folder.unlock("lock")
        env.disk.unlock("lock")

    run(main)


def test_an_env_has_a_clock_chance_and_a_boot_id(run: Run[tuple[int, str, float]]) -> None:
    async def main(env: Env) -> tuple[int, str, float]:
        assert env.name == "alone"
        assert env.buggify("site") is False
        return env.wall_us(), env.boot_id, env.rng.random()

    (first, boot, chance), (second, again, other) = run(main), run(main)

    assert 1_600_000_000_000_000 < first <= second
    assert boot == again != ""
    assert chance != other
