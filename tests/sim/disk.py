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
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import trio

from duckrow.node.env import Buffer

from .pages import BLOCK, Pages
from .park import Life, SimCrashed

_FAR = 1 << 62


class Folder:
    """A folder: its names as processes see them, as they are on the disk, and what lies between."""

    __slots__ = ("durable", "names", "pending", "settled")

    def __init__(self) -> None:
        self.names: dict[str, Pages | Folder] = {}
        self.durable: dict[str, Pages | Folder] = {}
        # ("link", name, thing), ("rename", old, new), ("unlink", name), in order
        self.pending: list[tuple[str, str, Any]] = []
        self.settled = 0  # changes ever that reached the disk

    def settle(self, count: int) -> None:
        """The first `count` pending changes reach the disk."""
        durable = self.durable
        for kind, name, more in self.pending[:count]:
            if kind == "link":
                durable[name] = more
            elif kind == "rename":
                durable[more] = durable.pop(name)
            else:
                del durable[name]
        del self.pending[:count]
        self.settled += count


class Media:
    """The disk of one machine.  All faults are switches here; all are off at first."""

    def __init__(self, seed: int | random.Random = 0, *, capacity: int = 1 << 40) -> None:
        rng = random.Random(seed) if isinstance(seed, int) else seed
        self.rng = rng
        self.capacity = capacity  # bytes; may be changed at any time
        self.latency = 0.0  # seconds of every operation that waits, but syncs
        self.sync_latency = 0.0
        self.sync_jitter = 0.0  # mean of what a sync takes on top, exponentially drawn
        self.sync_eio = 0  # the next n file syncs fail
        self.names_eio = 0  # the next n folder syncs fail
        self.write_eio = 0
        self.read_eio = 0
        self.operations = 0  # that changed something, ever: the crash points passed
        self.losses = 0  # of power
        self.counts: dict[str, int] = {}  # faults and operations by name
        self.on_crash: Callable[[], None] = self.kill  # what a crash point does
        self.note: Callable[[str, str, int, int], None] | None = None  # for a trace
        self._latency_rng = random.Random(rng.getrandbits(64))
        self._root = Folder()
        self._blocks = 0  # allocated
        self._crash_at = _FAR  # value of `operations`
        self._crash_part = False
        self._lives: list[tuple[Life, dict[Pages, int]]] = []
        self._locks: dict[str, Life] = {}
        self._pids = 0

    # -- processes ------------------------------------------------------------------------

    def disk(self, life: Life | None = None) -> SimDisk:
        """The root folder as a new process sees it; with `life`, as that process does."""
        if life is None:
            self._pids += 1
            life = Life(100 + self._pids)
        opened: dict[Pages, int] = {}
        self._lives.append((life, opened))
        return SimDisk(self, life, opened, self._root, "")

    def kill(self) -> None:
        """kill -9 of all processes: the cache survives."""
        for life, _ in self._lives:
            life.end()
        self.bury()

    def power_loss(self) -> None:
        """Kills all, drops the cache; what was not synced survives in part, or not at all."""
        self.kill()
        self.losses += 1
        self._lose_names(self._root)
        self._blocks = 0
        for _, pages in self._files(self._root, ""):
            how = pages.lose_power(self.rng)
            self._count("loss " + how)
            self._blocks += pages.allocated

    def bury(self) -> None:
        """Closes the files of processes that ended."""
        for life, opened in self._lives:
            if not life.alive:
                for pages, times in opened.items():
                    pages.opened -= times
                    self._release(pages)
                opened.clear()
        self._lives = [pair for pair in self._lives if pair[0].alive]
        self._locks = {path: life for path, life in self._locks.items() if life.alive}

    # -- aimed faults ---------------------------------------------------------------------

    def crash_before(self, k: int, *, part: bool = False) -> None:
        """The process dies just before its k-th changing operation from now (k = 1: the next).

        With `part`, if that operation is a write, a part of it still gets into the cache.
        """
        assert k >= 1
        self._crash_at, self._crash_part = self.operations + k, part

    def disarm(self) -> None:
        self._crash_at = _FAR

    def flip(self, path: str, offset: int | None = None, bit: int | None = None) -> int:
        """Flips one bit of a file, silently; drawn where not given.  Returns the offset."""
        pages = self.pages(path)
        if offset is None:
            offset = self.rng.randrange(pages.cache.size)
        pages.flip(offset, self.rng.randrange(8) if bit is None else bit)
        self._count("flip")
        self._note("flip", path, offset, 1)
        return offset

    def spoil(self, path: str, offset: int) -> None:
        """Reading that sector fails with EIO until it is written again in full."""
        self.pages(path).bad[offset // 512] = None

    def evict(self, path: str) -> None:
        """The kernel drops clean pages and reads them from the disk again."""
        self.pages(path).evict()

    # -- looking --------------------------------------------------------------------------

    def paths(self, *, durable: bool = False) -> list[str]:
        """All files, as `folder/name`."""
        return sorted(path for path, _ in self._files(self._root, "", durable=durable))

    def content(self, path: str) -> bytes:
        """As processes see it."""
        image = self.pages(path).cache
        return image.read(0, image.size)

    def durable_content(self, path: str) -> bytes:
        """As it certainly is on the disk: without anything that was not synced."""
        image = self.pages(path, durable=True).durable_image()
        return image.read(0, image.size)

    @property
    def used(self) -> int:
        """Bytes of allocated blocks."""
        return self._blocks * BLOCK

    def pages(self, path: str, *, durable: bool = False) -> Pages:
        *folders, name = path.split("/")
        folder = self._root
        for part in folders:
            inner = (folder.durable if durable else folder.names)[part]
            assert isinstance(inner, Folder)
            folder = inner
        pages = (folder.durable if durable else folder.names)[name]
        assert isinstance(pages, Pages), f"{path} is a folder"
        return pages

    # -- for SimDisk and SimFile ----------------------------------------------------------

    def step(self, kind: str, path: str, offset: int = 0, length: int = 0) -> None:
        """Before each changing operation: the crash point."""
        self.operations += 1
        if self.operations >= self._crash_at:
            self.crash(kind, path)
        self._count(kind)
        if self.note is not None:
            self.note(kind, path, offset, length)

    def dies_within(self) -> bool:
        """True: the coming write is the crash point, and a part of it gets through."""
        return self._crash_part and self.operations + 1 >= self._crash_at

    def crash(self, kind: str, path: str) -> None:
        self._crash_at = _FAR
        self._count("crash")
        self._note("crash:" + kind, path, 0, 0)
        self.on_crash()
        raise SimCrashed

    def fails(self, fault: str) -> bool:
        """Takes one of the armed faults of that kind, if there is one."""
        left: int = getattr(self, fault)
        if left:
            setattr(self, fault, left - 1)
            self._count(fault)
            return True
        return False

    def room(self, pages: Pages, offset: int, length: int) -> int:
        """How many bytes of a write fit; allocates their blocks."""
        missing = pages.missing_blocks(offset, length)
        if missing and missing > self.capacity // BLOCK - self._blocks:
            fits = length
            free = max(0, self.capacity // BLOCK - self._blocks)
            while fits and pages.missing_blocks(offset, fits) > free:
                fits = max(0, (offset + fits - 1) // BLOCK * BLOCK - offset)
            length = fits
            self._count("enospc")
        self._blocks += pages.allocate(offset, length)
        return length

    def give_back(self, blocks: int) -> None:
        self._blocks -= blocks

    def _release(self, pages: Pages) -> None:
        if not pages.named and not pages.opened:
            self._blocks -= pages.allocated

    def unname(self, thing: Pages | Folder) -> None:
        if isinstance(thing, Pages):
            pages = thing
            pages.named -= 1
            self._release(pages)

    def open(self, pages: Pages, opened: dict[Pages, int]) -> None:
        pages.opened += 1
        opened[pages] = opened.get(pages, 0) + 1

    def close(self, pages: Pages, opened: dict[Pages, int]) -> None:
        pages.opened -= 1
        opened[pages] -= 1
        if not opened[pages]:
            del opened[pages]
        self._release(pages)

    def lock(self, path: str, life: Life) -> None:
        holder = self._locks.get(path)
        if holder is not None and holder.alive:
            raise BlockingIOError(errno.EAGAIN, f"{path} is held by process {holder.pid}")
        self._locks[path] = life

    def unlock(self, path: str, life: Life) -> None:
        assert self._locks.get(path) is life, f"{path} is not held by process {life.pid}"
        del self._locks[path]

    async def wait(self, life: Life, *, sync: bool = False) -> None:
        """An operation takes its time; the process may be stopped or killed meanwhile."""
        if not life.alive or life.paused:
            await life.gate()
        mean = self.sync_latency if sync else self.latency
        if sync and self.sync_jitter:
            mean += self._latency_rng.expovariate(1 / self.sync_jitter)
        if mean:
            await trio.sleep(mean)
        else:
            await trio.lowlevel.checkpoint()
        if not life.alive or life.paused:
            await life.gate()

    def _lose_names(self, folder: Folder) -> None:
        if folder.pending:
            folder.settle(self.rng.randint(0, len(folder.pending)))
            folder.pending.clear()
        for thing in folder.names.values():
            if isinstance(thing, Pages):
                thing.named = 0
        folder.names = dict(folder.durable)
        for thing in folder.names.values():
            if isinstance(thing, Pages):
                thing.named = 1
            else:
                self._lose_names(thing)

    def _files(
        self, folder: Folder, prefix: str, *, durable: bool = False
    ) -> Iterator[tuple[str, Pages]]:
        for name, thing in (folder.durable if durable else folder.names).items():
            if isinstance(thing, Pages):
                yield prefix + name, thing
            else:
                yield from self._files(thing, f"{prefix}{name}/", durable=durable)

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _note(self, kind: str, path: str, offset: int, length: int) -> None:
        if self.note is not None:
            self.note(kind, path, offset, length)


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

    def map(self) -> memoryview:
        self._check()
        image = self._pages.cache
        if len(image.data) < image.size:
            return memoryview(image.read(0, image.size))
        return memoryview(image.data).toreadonly()

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
