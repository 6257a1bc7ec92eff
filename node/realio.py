"""The machine: files, time and randomness; sockets are in `node/realnet.py`.

Which calls get a thread is decided by what they wait for.  A write ends in the page cache and is
made at once; a read asks the page cache first (RWF_NOWAIT) and only a miss takes a thread, whose
hand-over costs more than the copy; syncs and changes of names wait for the disk and always take
one, and so does the end of a file that has no name any more.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import resource
import stat
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import trio

from .env import Buffer, Env
from .realnet import RealNet
from .tally import Histogram

FILE_MODE = 0o600
FOLDER_MODE = 0o700
OPEN_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
IOV_MAX = os.sysconf("SC_IOV_MAX")
NOWAIT = os.RWF_NOWAIT
FAIR_READS = 64  # page cache hits in a row before other tasks get a turn
FAIR_BYTES = 1 << 20  # or so many bytes


class RealFile:
    """Closed means EBADF from every call, as the kernel says it."""

    __slots__ = ("_bytes", "_fd", "_nowait", "_reads", "_syncs")

    def __init__(self, fd: int, syncs: Histogram | None = None) -> None:
        self._fd = fd
        self._syncs = syncs
        self._nowait = NOWAIT  # 0 once the file system said that it cannot
        self._reads = self._bytes = 0  # page cache hits since the last turn for others

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        total = sum(map(len, buffers))
        if len(buffers) <= IOV_MAX:
            done = os.pwritev(self._fd, buffers, offset)
            if done == total:
                return
        else:
            done = 0
        left = _skip(buffers, done)
        while left:
            # Short: a signal, a full disk (then the next call says so), or too many buffers.
            written = os.pwritev(self._fd, list(islice(left, IOV_MAX)), offset + done)
            done += written
            left = _skip(left, written)
        assert done == total, f"{done} bytes were written, not {total}"

    async def read(self, offset: int, length: int) -> bytes:
        length = min(length, self.size - offset)
        if length <= 0:
            await trio.lowlevel.checkpoint()
            return b""
        buffer = bytearray(length)
        if self._from_cache(buffer, offset) != length:
            return await trio.to_thread.run_sync(_read_fully, self._fd, offset, length)
        await self._take_turns(length)
        return bytes(buffer)

    def hold(self) -> RealHeld:
        return RealHeld(os.dup(self._fd))

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    async def sync(self) -> None:
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        began = time.perf_counter()
        await trio.to_thread.run_sync(os.fdatasync, self._fd)
        if self._syncs is not None:
            self._syncs.add(time.perf_counter() - began)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        if os.fstat(fd).st_nlink:
            os.close(fd)
        else:
            # The last that was left of it: the kernel takes its pages back, which takes milliseconds.
            threading.Thread(target=os.close, args=(fd,)).start()

    def _from_cache(self, buffer: bytearray, offset: int) -> int:
        if not self._nowait:
            return 0
        try:
            return os.preadv(self._fd, [buffer], offset, self._nowait)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            self._nowait = 0
            return 0

    async def _take_turns(self, length: int) -> None:
        self._reads += 1
        self._bytes += length
        if self._reads >= FAIR_READS or self._bytes >= FAIR_BYTES:
            self._reads = self._bytes = 0
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()


class RealHeld:
    """Not a map: a page of one that the disk does not give, or that was cut off, is the end of the
    process, without a word (SIGBUS).  What is read here is in the page cache most of the time.
    """

    __slots__ = ("_fd", "size")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.size = os.fstat(fd).st_size

    def read(self, offset: int, length: int) -> bytes:
        found = _read_fully(self._fd, offset, length)
        if len(found) < length:
            raise OSError(errno.EIO, f"the file ends after {offset + len(found):,} bytes")
        return found

    def __del__(self) -> None:
        os.close(self._fd)


def _skip(buffers: Sequence[Buffer], done: int) -> Sequence[Buffer]:
    """What is left of the buffers after `done` bytes of them."""
    for index, buffer in enumerate(buffers):
        if done < len(buffer):
            return [memoryview(buffer)[done:], *buffers[index + 1 :]]
        done -= len(buffer)
    return []


def _read_fully(fd: int, offset: int, length: int) -> bytes:
    parts = []
    while length and (part := os.pread(fd, length, offset)):
        parts.append(part)
        offset += len(part)
        length -= len(part)
    return b"".join(parts)


class RealDisk:
    """One folder.  Links are never followed: a name is a file or folder that duckrow made."""

    def __init__(self, path: Path, locks: dict[Path, int], syncs: Histogram | None = None) -> None:
        self._path = path
        self.syncs = Histogram() if syncs is None else syncs  # of all files in all its folders
        self._locks = locks  # by path: the open lock file; shared by all folders of the process

    @classmethod
    def at(cls, path: str | Path) -> RealDisk:
        """The folder `path`, made (with its parents) when it is missing."""
        path = Path(path).absolute()
        try:
            path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        except FileExistsError as error:
            text = f"{path} should be a folder, and is something else"
            raise NotADirectoryError(errno.ENOTDIR, text) from error
        return cls(path, {})

    async def folder(self, name: str) -> RealDisk:
        path = self._at(name)

        def work() -> None:
            try:
                path.mkdir(mode=FOLDER_MODE)
            except FileExistsError:
                if not stat.S_ISDIR(path.lstat().st_mode):
                    text = f"{path} is not a folder"
                    raise NotADirectoryError(errno.ENOTDIR, text) from None

        await trio.to_thread.run_sync(work)
        return RealDisk(path, self._locks, self.syncs)

    async def open(self, name: str, *, create: bool = False) -> RealFile:
        flags = OPEN_FLAGS | os.O_CREAT if create else OPEN_FLAGS
        fd = await trio.to_thread.run_sync(os.open, self._at(name), flags, FILE_MODE)
        return RealFile(fd, self.syncs)

    async def reserve(self, name: str, size: int) -> None:
        path = self._at(name)

        def work() -> None:
            # Else ext4 takes all there is before it says no, and everybody's disk is full meanwhile.
            if size > self.free()[0]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            fd = os.open(path, OPEN_FLAGS | os.O_CREAT | os.O_EXCL, FILE_MODE)
            try:
                os.posix_fallocate(fd, 0, size)
                os.fdatasync(fd)
            except OSError:
                path.unlink()
                raise
            finally:
                os.close(fd)

        await trio.to_thread.run_sync(work)

    async def exists(self, name: str) -> bool:
        return await trio.to_thread.run_sync(os.path.lexists, self._at(name))

    async def names(self) -> list[str]:
        return await trio.to_thread.run_sync(
            lambda: sorted(path.name for path in self._path.iterdir())
        )

    async def rename(self, old: str, new: str) -> None:
        await trio.to_thread.run_sync(self._at(old).rename, self._at(new))

    async def unlink(self, name: str) -> None:
        await trio.to_thread.run_sync(self._at(name).unlink)

    async def sync_names(self) -> None:
        def work() -> None:
            fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

        await trio.to_thread.run_sync(work)

    def lock(self, name: str) -> None:
        path = self._at(name)
        fd = os.open(path, OPEN_FLAGS | os.O_CREAT, FILE_MODE)
        while not _flocked(fd, fcntl.LOCK_EX):
            # Whoever only looks who has it (locks.py) shares it for a moment, and is no holder.
            if not _flocked(fd, fcntl.LOCK_SH):
                holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
                os.close(fd)
                raise BlockingIOError(errno.EAGAIN, f"{path} is held by process {holder}")
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        self._locks[path] = fd

    def unlock(self, name: str) -> None:
        # The file stays: who unlinks a lock file may unlink the one that somebody just locked.
        os.close(self._locks.pop(self._at(name)))

    def free(self) -> tuple[int, int]:
        found = os.statvfs(self._path)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    def _at(self, name: str) -> Path:
        assert name not in ("", ".", "..") and "/" not in name, f"not a name: {name!r}"
        return self._path / name


def _flocked(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def boot_id() -> str:
    """What changes when the machine restarts.  Where it cannot be had, every process is a new boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return f"unknown-{uuid.uuid4()}"


def _allow_files() -> None:
    """As many open files as this process may have: each sealed segment needs one for its index of
    numbers, and with the usual 1,024 a row of 60 GB would be the end of it.
    """
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def real_env(name: str, folder: str | Path, addresses: Mapping[str, str] | None = None) -> Env:
    """This process, with its files in `folder`; without addresses it has no network."""
    _allow_files()
    return Env(
        name=name,
        disk=RealDisk.at(folder),
        net=RealNet(name, addresses or {}),
        rng=random.Random(os.urandom(32)),
        wall_us=lambda: time.time_ns() // 1000,
        boot_id=boot_id(),
    )
