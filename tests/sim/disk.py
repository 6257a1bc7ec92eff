"""A disk that survives its processes, with the faults of a real one.

`Media` is what lies on the machine's disk; `SimDisk` and `SimFile` are how one process sees it,
behind the Protocols of `node/env.py`.  The rules, adversarial where kernels differ:

- what was written is durable after a sync of that file, names after `sync_names` of their folder;
- a power loss leaves of un-synced writes any part, by sectors (`pages.py`), and of the un-synced
  name changes of each folder a prefix, each folder for itself;
- a killed process leaves the cache as it was; its locks are free, its open files are closed;
- a failed sync is forgotten by the kernel: the next one succeeds and the data is not durable;
- a full disk writes what fits and raises ENOSPC; blocks are counted, holes cost nothing, and a
  file without a name frees its blocks only when nobody has it open;
- every operation that changes something is a crash point: `crash_before(k)`.

Usable without a world: see `alone.py`.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from duckrow.node.env import Buffer

from .media import Folder, Media
from .pages import BLOCK, Pages
from .park import Life, SimCrashed

__all__ = ["Media", "SimDisk", "SimFile"]


class SimHeld:
    """What was held before a loss of power is as it was then: that process reads nothing any more."""

    __slots__ = ("_image", "_pages", "_path", "size")

    def __init__(self, pages: Pages, path: str) -> None:
        self._pages, self._image, self._path = pages, pages.cache, path
        self.size = pages.cache.size

    def read(self, offset: int, length: int) -> bytes:
        if self._pages.bad and self._pages.read_fails(offset, length):
            raise OSError(errno.EIO, f"{self._path}: simulated bad sector")
        found = self._image.read(offset, length)
        if len(found) < length:
            raise OSError(errno.EIO, f"{self._path}: it ends after {offset + len(found):,} bytes")
        return found


class SimFile:
    """One open file of one process."""

    __slots__ = ("_closed", "_disk", "_life", "_media", "_pages", "_path")

    def __init__(self, disk: SimDisk, pages: Pages, path: str) -> None:
        self._disk, self._media, self._life = disk, disk._media, disk._life
        self._pages, self._path = pages, path
        self._closed = False
        self._media.open(pages, disk._opened)

    @property
    def size(self) -> int:
        self._check()
        return self._pages.cache.size

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        self._check()
        assert offset >= 0
        media, pages = self._media, self._pages
        data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        if type(data) is not bytes:
            data = bytes(data)
        if media.dies_within():
            data = data[: media.rng.randint(0, len(data))]
            data = data[: media.room(pages, offset, len(data))]
            if data:
                pages.write(offset, data)
        media.step("write", self._path, offset, len(data))
        if media.fails("write_eio"):
            raise OSError(errno.EIO, f"{self._path}: simulated write error")
        fits = media.room(pages, offset, len(data))
        if fits < len(data):
            if fits:
                pages.write(offset, data[:fits])
            raise OSError(errno.ENOSPC, f"{self._path}: simulated full disk")
        if data:
            pages.write(offset, data)

    async def read(self, offset: int, length: int) -> bytes:
        await self._media.wait(self._life)
        self._check()
        assert offset >= 0
        assert length >= 0
        if self._media.fails("read_eio"):
            raise OSError(errno.EIO, f"{self._path}: simulated read error")
        if self._pages.bad and self._pages.read_fails(offset, length):
            raise OSError(errno.EIO, f"{self._path}: simulated bad sector")
        return self._pages.cache.read(offset, length)

    def hold(self) -> SimHeld:
        self._check()
        return SimHeld(self._pages, self._path)

    def truncate(self, size: int) -> None:
        self._check()
        self._media.step("truncate", self._path, size)
        self._media.give_back(self._pages.truncate(size))

    async def sync(self) -> None:
        self._check()
        media, pages = self._media, self._pages
        covered = pages.count
        await media.wait(self._life, sync=True)
        self._check()
        media.step("sync", self._path, covered)
        if media.fails("sync_eio"):
            pages.fail_sync(covered, media.rng)
            raise OSError(errno.EIO, f"{self._path}: simulated sync error")
        pages.sync(covered)

    def close(self) -> None:
        self._life.check()
        if not self._closed:
            self._closed = True
            self._media.close(self._pages, self._disk._opened)

    def _check(self) -> None:
        if not self._life.alive:
            raise SimCrashed
        if self._closed:
            raise OSError(errno.EBADF, f"{self._path} is closed")


class SimDisk:
    """One folder, as one process sees it."""

    def __init__(
        self, media: Media, life: Life, opened: dict[Pages, int], folder: Folder, prefix: str
    ) -> None:
        self._media, self._life, self._opened = media, life, opened
        self._folder, self._prefix = folder, prefix

    async def folder(self, name: str) -> SimDisk:
        path = await self._enter(name)
        found = self._folder.names.get(name)
        if found is None:
            self._media.step("folder", path)
            found = Folder()
            self._link(name, found)
        if not isinstance(found, Folder):
            raise NotADirectoryError(errno.ENOTDIR, f"{path} is a file")
        return SimDisk(self._media, self._life, self._opened, found, path + "/")

    async def open(self, name: str, *, create: bool = False) -> SimFile:
        path = await self._enter(name)
        found = self._folder.names.get(name)
        if found is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, f"{path} is missing")
            self._media.step("create", path)
            found = self._make(name)
        if not isinstance(found, Pages):
            raise IsADirectoryError(errno.EISDIR, f"{path} is a folder")
        return SimFile(self, found, path)

    async def reserve(self, name: str, size: int) -> None:
        path = await self._enter(name)
        if name in self._folder.names:
            raise FileExistsError(errno.EEXIST, f"{path} exists")
        self._media.step("reserve", path, 0, size)
        pages = Pages()
        if pages.missing_blocks(0, size) * BLOCK > self.free()[0]:
            raise OSError(errno.ENOSPC, f"{path}: simulated full disk")
        self._media.room(pages, 0, size)
        pages.cache.size = size
        self._link(name, pages)

    async def exists(self, name: str) -> bool:
        await self._enter(name)
        return name in self._folder.names

    async def names(self) -> list[str]:
        await self._enter("names")
        return sorted(self._folder.names)

    async def rename(self, old: str, new: str) -> None:
        path = await self._enter(old)
        _check_name(new)
        names = self._folder.names
        if old not in names:
            raise FileNotFoundError(errno.ENOENT, f"{path} is missing")
        self._media.step("rename", path)
        if old != new:
            if new in names:
                self._media.unname(names[new])
            names[new] = names.pop(old)
            self._folder.pending.append(("rename", old, new))

    async def unlink(self, name: str) -> None:
        path = await self._enter(name)
        thing = self._folder.names.get(name)
        if thing is None:
            raise FileNotFoundError(errno.ENOENT, f"{path} is missing")
        if not isinstance(thing, Pages):
            raise IsADirectoryError(errno.EISDIR, f"{path} is a folder")
        self._media.step("unlink", path)
        del self._folder.names[name]
        self._folder.pending.append(("unlink", name, None))
        self._media.unname(thing)

    async def sync_names(self) -> None:
        folder = self._folder
        covered = folder.settled + len(folder.pending)
        await self._media.wait(self._life, sync=True)
        self._media.step("sync_names", self._prefix)
        if self._media.fails("names_eio"):
            raise OSError(errno.EIO, f"{self._prefix}: simulated sync error")
        # Another sync may have ended meanwhile, and settled more than this one saw.
        folder.settle(max(0, covered - folder.settled))

    def lock(self, name: str) -> None:
        self._life.check()
        _check_name(name)
        path = self._prefix + name
        self._media.lock(path, self._life)
        pages = self._folder.names.get(name)
        if pages is None:
            self._media.step("create", path)
            pages = self._make(name)
        assert isinstance(pages, Pages)
        pages.truncate(0)
        pages.write(0, str(self._life.pid).encode())

    def unlock(self, name: str) -> None:
        self._life.check()
        self._media.unlock(self._prefix + name, self._life)

    def free(self) -> tuple[int, int]:
        self._life.check()
        capacity = self._media.capacity // BLOCK * BLOCK
        return max(0, capacity - self._media.used), capacity

    async def _enter(self, name: str) -> str:
        _check_name(name)
        await self._media.wait(self._life)
        return self._prefix + name

    def _make(self, name: str) -> Pages:
        pages = Pages()
        self._link(name, pages)
        return pages

    def _link(self, name: str, thing: Pages | Folder) -> None:
        self._folder.names[name] = thing
        self._folder.pending.append(("link", name, thing))
        if isinstance(thing, Pages):
            thing.named += 1


def _check_name(name: str) -> None:
    assert name not in ("", ".", "..") and "/" not in name, f"not a name: {name!r}"
