"""The machine itself, where it is more than the contract that it shares with the simulation.

The contract is in tests/sim/test_env_contract.py and test_net_contract.py.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import random
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from duckrow.node import realio, realnet
from duckrow.node.realio import RealDisk, RealFile, boot_id, real_env
from duckrow.node.realnet import RealNet

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Another process that can import duckrow."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


async def ignore(_stream: trio.abc.Stream) -> None:
    pass


# -- files --------------------------------------------------------------------------------


def test_a_file_that_has_no_name_any_more_is_closed_elsewhere(tmp_path: Path) -> None:
    """What the kernel then does takes as long as the file is large."""
    path = tmp_path / "gone"
    path.touch()
    fd = os.open(path, os.O_RDWR)
    file, before = RealFile(fd), {*threading.enumerate()}
    path.unlink()

    file.close()

    for thread in {*threading.enumerate()} - before:
        thread.join()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.size  # noqa: B018 - closed it is at once


def test_more_files_are_held_than_a_process_may_usually_have_open(tmp_path: Path) -> None:
    code = """if True:
        import resource, sys, trio
        from duckrow.node.realio import real_env

        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 256))

        async def main():
            disk = real_env("here", sys.argv[1]).disk
            file = await disk.open("index", create=True)
            file.write(0, [b"abc"])
            return [file.hold() for _ in range(100)]

        print(sum(each.size for each in trio.run(main)))
        """
    with python(code, str(tmp_path)) as process:
        found, _ = process.communicate(timeout=60)

    assert found == "300\n"


def test_files_and_folders_are_for_the_owner_alone(tmp_path: Path) -> None:
    async def main() -> None:
        disk = RealDisk.at(tmp_path / "new" / "root")
        folder = await disk.folder("folder")
        (await folder.open("file", create=True)).close()
        await folder.reserve("reserve", 10)
        folder.lock("lock")
        folder.unlock("lock")

    before = os.umask(0)
    try:
        trio.run(main)
    finally:
        os.umask(before)

    root = tmp_path / "new" / "root"
    modes = {
        str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode)
        for path in (root, *root.rglob("*"))
    }
    assert modes == {
        ".": 0o700,
        "folder": 0o700,
        "folder/file": 0o600,
        "folder/reserve": 0o600,
        "folder/lock": 0o600,
    }


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"not ours")
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").symlink_to(outside / "file")
    (root / "folder").symlink_to(outside)

    async def main() -> None:
        disk = RealDisk.at(root)
        for create in (False, True):
            with pytest.raises(OSError, match=r".") as caught:
                await disk.open("file", create=create)
            assert caught.value.errno == errno.ELOOP
        with pytest.raises(NotADirectoryError):
            await disk.folder("folder")
        with pytest.raises(OSError, match=r"."):
            disk.lock("file")
        assert await disk.exists("file")

    trio.run(main)

    assert (outside / "file").read_bytes() == b"not ours"


def test_a_read_that_is_cached_takes_no_thread_and_one_that_is_not_takes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = 0
    run_sync = trio.to_thread.run_sync

    async def count(*args: object, **kwargs: object) -> object:
        nonlocal threads
        threads += 1
        return await run_sync(*args, **kwargs)  # type: ignore[arg-type]

    async def main() -> None:
        nonlocal threads
        disk = RealDisk.at(tmp_path)
        file = await disk.open("file", create=True)
        data = random.Random(1).randbytes(4 * MIB)
        file.write(0, [data])
        await file.sync()
        monkeypatch.setattr(trio.to_thread, "run_sync", count)
        for _ in range(100):
            assert await file.read(1000, 2000) == data[1000:3000]
        cached = threads
        fd = os.open(tmp_path / "file", os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        assert await file.read(2 * MIB, MIB) == data[2 * MIB : 3 * MIB]
        assert await file.read(0, 8 * MIB) == data
        assert (cached, threads > 0) == (0, True)

    trio.run(main)


def test_a_file_system_that_cannot_say_what_is_cached_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def refuse(*_args: object) -> int:
        nonlocal asked
        asked += 1
        raise OSError(errno.EOPNOTSUPP, "no RWF_NOWAIT here")

    async def main() -> None:
        disk = RealDisk.at(tmp_path)
        file = await disk.open("file", create=True)
        file.write(0, [b"abc"])
        monkeypatch.setattr(os, "preadv", refuse)
        for _ in range(3):
            assert await file.read(0, 3) == b"abc"

    trio.run(main)

    assert asked == 1


def test_a_read_of_which_a_part_is_cached_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(_fd: int, buffers: list[bytearray], _offset: int, _flags: int) -> int:
        buffers[0][:3] = b"abc"
        return 3

    async def main() -> None:
        file = await RealDisk.at(tmp_path).open("file", create=True)
        file.write(0, [b"abcdef"])
        monkeypatch.setattr(os, "preadv", half)
        assert await file.read(0, 6) == b"abcdef"

    trio.run(main)


@pytest.mark.parametrize("most", [1, 7, 1000, 1 << 20])
def test_short_writes_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """A signal or a quota may cut any write short."""
    pwritev = os.pwritev
    rng = random.Random(most)

    def short(fd: int, buffers: list[bytes], offset: int) -> int:
        whole = b"".join(buffers)
        return os.pwrite(fd, whole[: rng.randint(1, most)], offset)

    buffers = [rng.randbytes(rng.randrange(50)) for _ in range(100)]

    async def main() -> bytes:
        disk = RealDisk.at(tmp_path)
        file = await disk.open("file", create=True)
        monkeypatch.setattr(os, "pwritev", short)
        file.write(10, buffers)
        monkeypatch.setattr(os, "pwritev", pwritev)
        return await file.read(10, 100_000)

    assert trio.run(main) == b"".join(buffers)


def test_a_closed_file_never_touches_the_file_that_got_its_number(tmp_path: Path) -> None:
    async def main() -> None:
        disk = RealDisk.at(tmp_path)
        closed = await disk.open("one", create=True)
        closed.close()
        other = await disk.open("two", create=True)
        with pytest.raises(OSError, match=r"."):
            closed.write(0, [b"x"])
        with pytest.raises(OSError, match=r"."):
            await closed.sync()
        closed.close()
        assert other.size == 0

    trio.run(main)


def test_a_sync_reaches_the_file_and_a_sync_of_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, Path]] = []

    def told(name: str) -> None:
        sync = getattr(os, name)

        def told_and_done(fd: int) -> None:
            synced.append((name, Path(f"/proc/self/fd/{fd}").readlink()))
            sync(fd)

        monkeypatch.setattr(os, name, told_and_done)

    async def main() -> None:
        disk = RealDisk.at(tmp_path)
        row = await disk.folder("row")
        file = await row.open("log", create=True)
        await file.sync()
        await row.sync_names()
        await disk.sync_names()
        await row.reserve("reserve", 10)

    told("fsync")
    told("fdatasync")
    trio.run(main)

    row = tmp_path / "row"
    assert synced == [
        ("fdatasync", row / "log"),
        ("fsync", row),
        ("fsync", tmp_path),
        ("fdatasync", row / "reserve"),
    ]


def test_unlinking_a_reserve_frees_its_bytes(tmp_path: Path) -> None:
    async def main() -> None:
        disk = RealDisk.at(tmp_path)
        await disk.reserve("reserve", 16 * MIB)
        allocated = (tmp_path / "reserve").stat().st_blocks * 512
        assert allocated >= 16 * MIB
        await disk.unlink("reserve")

    trio.run(main)


# -- locks --------------------------------------------------------------------------------

HOLD = """
import sys, trio
from duckrow.node.realio import RealDisk
RealDisk.at(sys.argv[1]).lock("lock")
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_lock_is_held_against_other_processes_and_dies_with_its_holder(tmp_path: Path) -> None:
    holder = python(HOLD, str(tmp_path))
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        disk = RealDisk.at(tmp_path)
        with pytest.raises(BlockingIOError, match=f"held by process {holder.pid}$"):
            disk.lock("lock")
    finally:
        holder.kill()
        holder.communicate()

    disk.lock("lock")
    assert (tmp_path / "lock").read_text() == str(os.getpid())
    disk.unlock("lock")


def test_whoever_looks_who_has_a_lock_keeps_nobody_from_having_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk.at(tmp_path)
    disk.lock("lock")
    disk.unlock("lock")
    looker = os.open(tmp_path / "lock", os.O_RDONLY)
    fcntl.flock(looker, fcntl.LOCK_SH)
    tried: list[int] = []

    def flock(fd: int, how: int, flock: Callable[[int, int], None] = fcntl.flock) -> None:
        tried.append(how)
        if len(tried) == 3:
            os.close(looker)  # it has looked
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    disk.lock("lock")

    assert len(tried) == 3
    disk.unlock("lock")


# -- full disks ---------------------------------------------------------------------------


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    path = tmp_path / "tiny"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tiny", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


@pytest.mark.long  # it mounts: for root
def test_a_full_disk_takes_what_fits_and_says_so(tiny_disk: Path) -> None:
    async def main() -> None:
        disk = RealDisk.at(tiny_disk)
        free, size = disk.free()
        assert free <= size == MIB
        file = await disk.open("file", create=True)
        file.write(0, [b"x" * 1000])
        with pytest.raises(OSError, match=r".") as caught:
            file.write(1000, [b"y" * 700_000, b"z" * 700_000])
        assert caught.value.errno == errno.ENOSPC
        assert file.size == MIB
        assert disk.free()[0] == 0
        with pytest.raises(OSError, match=r".") as caught:
            await disk.reserve("reserve", 100_000)
        assert caught.value.errno == errno.ENOSPC
        assert await disk.names() == ["file"]
        file.truncate(1000)
        await disk.reserve("reserve", 900_000)
        with pytest.raises(OSError, match=r"."):
            file.write(1000, [b"y" * 300_000])
        file.truncate(1000)
        await disk.unlink("reserve")
        file.write(1000, [b"y" * 300_000])
        file.close()

    trio.run(main)


@pytest.mark.long  # it mounts: for root
def test_after_a_failed_sync_the_next_one_succeeds(tmp_path: Path) -> None:
    """Why a failed sync ends the process: this kernel, asked.  A thin image on a full disk."""
    thin, disk_path = tmp_path / "thin", tmp_path / "disk"
    thin.mkdir()
    disk_path.mkdir()
    commands = [
        ["mount", "-t", "tmpfs", "-o", "size=3m", "thin", str(thin)],
        ["truncate", "-s", "64M", str(thin / "image")],
        ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,nodiscard", str(thin / "image")],
        ["mount", "-o", "loop", str(thin / "image"), str(disk_path)],
    ]
    try:
        for command in commands:
            subprocess.run(command, check=True)

        async def main() -> list[int]:
            file = await RealDisk.at(disk_path).open("file", create=True)
            errors = []
            for block in range(200):
                file.write(block * 65536, [b"x" * 65536])
                try:
                    await file.sync()
                except OSError as error:
                    errors.append(error.errno or 0)
                    await file.sync()
                    break
            file.close()
            return errors

        assert trio.run(main) == [errno.EIO]
    finally:
        for path in (disk_path, thin):
            subprocess.run(["umount", "-l", str(path)], check=False)


# -- network ------------------------------------------------------------------------------


def test_a_unix_socket_is_for_the_owner_alone_and_goes_with_its_server(tmp_path: Path) -> None:
    async def main() -> None:
        net = RealNet("a", {"a": str(tmp_path)})
        async with trio.open_nursery() as nursery:
            await nursery.start(net.serve, ignore, 7)
            assert stat.S_IMODE((tmp_path / "7").stat().st_mode) == 0o600
            nursery.cancel_scope.cancel()
        assert not (tmp_path / "7").exists()

    before = os.umask(0)
    try:
        trio.run(main)
    finally:
        os.umask(before)


def test_a_socket_that_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "7"))

    async def main() -> None:
        net = RealNet("a", {"a": str(tmp_path)})

        async def greet(stream: trio.abc.Stream) -> None:
            await stream.send_all(b"hello")

        async with trio.open_nursery() as nursery:
            await nursery.start(net.serve, greet, 7)
            async with await net.connect("a", 7) as stream:
                assert await stream.receive_some() == b"hello"
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_processes_that_listen_in_one_folder_at_the_same_moment_wait_for_each_other(
    tmp_path: Path,
) -> None:
    """Of the bridges of a cluster that was started with paths too long for sockets one had ended now and then."""
    other = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(other, fcntl.LOCK_EX)
    threading.Timer(0.05, os.close, [other]).start()

    async def main() -> None:
        net = RealNet("a", {"a": str(tmp_path)})
        async with trio.open_nursery() as nursery:
            await nursery.start(net.serve, ignore, 7)
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_folder_that_somebody_keeps_locked_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(realnet, "BIND_TRIES", 2)
    other = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(other, fcntl.LOCK_EX)

    async def main() -> None:
        with pytest.raises(BlockingIOError, match=str(tmp_path)):
            await RealNet("a", {"a": str(tmp_path)}).serve(ignore, 7)

    trio.run(main)
    os.close(other)


def test_a_file_in_the_place_of_a_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "7").write_text("somebody's")

    async def main() -> None:
        with pytest.raises(OSError, match=r".") as caught:
            await RealNet("a", {"a": str(tmp_path)}).serve(ignore, 7)
        assert caught.value.errno == errno.EADDRINUSE

    trio.run(main)

    assert (tmp_path / "7").read_text() == "somebody's"


def test_where_nobody_can_listen_is_named() -> None:
    async def main() -> None:
        with pytest.raises(OSError, match=r"nobody can listen at /proc/self/7: ."):
            await RealNet("a", {"a": "/proc/self"}).serve(ignore, 7)

    trio.run(main)


def test_a_defect_in_a_handler_is_logged_and_a_lost_connection_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors: list[Exception] = [LookupError("a defect"), trio.BrokenResourceError()]

    async def handler(_stream: trio.abc.Stream) -> None:
        raise errors.pop()

    async def main() -> None:
        net = RealNet("a", {"a": "127.0.0.1"})
        async with trio.open_nursery() as nursery:
            port = await nursery.start(net.serve, handler, 0)
            assert port > 0
            for _ in range(2):
                async with await net.connect("a", port) as stream:
                    assert await stream.receive_some() == b""
            nursery.cancel_scope.cancel()

    with caplog.at_level(logging.INFO):
        trio.run(main)

    assert [record.getMessage() for record in caplog.records] == ["handler_failed"]


# -- the process --------------------------------------------------------------------------


def test_the_boot_id_is_the_machines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert boot_id() == boot_id() == real_env("a", tmp_path).boot_id

    def missing(*_args: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert boot_id() != boot_id()  # nothing known: nothing can be taken for the same boot


def test_two_processes_draw_differently(tmp_path: Path) -> None:
    code = (
        "import sys; from duckrow.node.realio import real_env;"
        "print(real_env('a', sys.argv[1]).rng.random())"
    )
    drawn = {python(code, str(tmp_path)).communicate()[0] for _ in range(2)}

    assert len(drawn) == 2


def test_skipping_buffers_leaves_exactly_the_rest() -> None:
    buffers = [b"abc", b"", b"de", b"f"]

    for done in range(7):
        assert b"".join(realio._skip(buffers, done)) == b"abcdef"[done:]
    assert isinstance(RealFile(-1), RealFile)
