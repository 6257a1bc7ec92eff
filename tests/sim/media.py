"""What lies on the disk of one machine, whoever runs there: the rules of `disk.py`, and all faults."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import trio

from .clock import sleep
from .pages import BLOCK, SECTOR, Pages
from .park import Life, SimCrashed

if TYPE_CHECKING:
    from .disk import SimDisk

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
        from .disk import SimDisk  # it needs this module first

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

    def wipe(self) -> None:
        """A new disk is in its place."""
        self.kill()
        self._root, self._blocks = Folder(), 0

    def backup(self) -> Folder:
        """All that lies there, while nobody runs."""
        return deepcopy(self._root)

    def put_back(self, backup: Folder) -> None:
        """What lay there when the copy was made, and nothing else."""
        self.wipe()
        self._root = deepcopy(backup)
        self._blocks = sum(pages.allocated for _, pages in self._files(self._root, ""))

    def calm(self) -> None:
        """No error and no crash is to come; what is damaged stays so."""
        self.sync_eio = self.write_eio = self.read_eio = self.names_eio = 0
        self.disarm()

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

    @property
    def is_armed(self) -> bool:
        """Something is about to fail, or to end the process."""
        errors = self.sync_eio + self.write_eio + self.read_eio + self.names_eio
        return bool(errors) or self._crash_at != _FAR

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
        """Reading that sector fails with EIO until it is written again in full.

        Nothing happens to one that the kernel is still to write.
        """
        pages, sector = self.pages(path), offset // SECTOR
        if not pages.is_dirty(sector):
            pages.bad[sector] = None
            pages.damaged = True

    def copy_what_can_be_read(self) -> list[str]:
        """As `dd conv=noerror,sync` does: zeros in the place of sectors that cannot be read."""
        copied = []
        for path in self.paths():
            pages = self.pages(path)
            for sector in list(pages.bad):
                start = sector * SECTOR
                pages.write(start, bytes(max(0, min(SECTOR, pages.cache.size - start))))
            if pages.bad:
                pages.bad.clear()
                pages.sync(pages.count)
                self._note("copy", path, 0, 0)
                copied.append(path)
        return copied

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
    def open_files(self) -> int:
        """That processes have open."""
        return sum(sum(opened.values()) for _, opened in self._lives)

    @property
    def locked(self) -> list[str]:
        return sorted(self._locks)

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
            await sleep(mean)
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
