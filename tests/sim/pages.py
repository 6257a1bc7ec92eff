"""The bytes of one simulated file: what processes see, and what a power loss would leave.

A real kernel shows every process the page cache, and brings pages to the disk when it likes,
sector by sector, unless a sync makes it.  Here the cache is one bytearray, and each change since
the last sync is logged with what it covered.  So a sync costs nothing (the log is dropped), and a
power loss takes all logged changes back and then decides, sector by sector, how far each got:

    sector     0       1       2       3
    base     [aaaa]  [aa..]  [....]  [....]      after the last sync
    change 0          bbb
    change 1            b     bbbb    b          one write over three sectors
    change 2                           cc
    kept up to  -       0       2       1        drawn for each sector: any moment of its past
    after    [aaaa]  [aabb]  [bbbb]  [b...]

Whole sectors are as some moment left them (512 bytes are written or not), but no two sectors need
to be of the same moment, nor does the length of the file.

After a *failed* sync cache and disk part: the pages count as clean, later syncs succeed, and what
they held is not on the disk (Can Applications Recover from fsync Failures?, ATC 2020).  From then
on the durable bytes are kept as a second image.
"""

from __future__ import annotations

import random
from typing import NamedTuple

SECTOR = 512
BLOCK = 4096


class Image:
    """A sparse array of bytes: what lies between `data` and `size` is zeros."""

    __slots__ = ("data", "size")

    def __init__(self, data: bytearray | None = None, size: int = 0) -> None:
        self.data = bytearray() if data is None else data
        self.size = size

    def copy(self) -> Image:
        return Image(bytearray(self.data), self.size)

    def read(self, offset: int, length: int) -> bytes:
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        found = bytes(memoryview(self.data)[offset : offset + length])
        return found if len(found) == length else found + bytes(length - len(found))

    def put(self, offset: int, data: bytes | memoryview) -> None:
        if not data:
            return
        end = offset + len(data)
        if end <= len(self.data):
            self.data[offset:end] = data
        else:
            # Up to here in place, so that what follows is one append.
            shared = len(self.data) - offset
            if shared > 0:
                self.data[offset:] = data[:shared]
                data = data[shared:]
            self._append(bytes(-shared) if shared < 0 else b"", data)
        self.size = max(self.size, end)

    def resize(self, size: int) -> None:
        if size < len(self.data):
            try:
                del self.data[size:]
            except BufferError:
                self.data = self.data[:size]
        self.size = size

    def _append(self, gap: bytes, data: bytes | memoryview) -> None:
        try:
            self.data += gap
            self.data += data
        except BufferError:
            # A map of a process that is gone may still be referred to: it keeps the old array.
            self.data = self.data[:]
            self.data += gap
            self.data += data


class Change(NamedTuple):
    """A write (`new` bytes) or a truncation (`new` is None: zeros up to the old end)."""

    serial: int
    offset: int
    new: bytes | None
    old: bytes  # what was there, as far as there was anything
    old_size: int
    size: int  # after it

    @property
    def end(self) -> int:
        if self.new is not None:
            return self.offset + len(self.new)
        return max(self.offset, self.old_size)


class Pages:
    """One file (an inode): it may have no name, one name, or be open without one."""

    __slots__ = (
        "allocated",
        "bad",
        "blocks",
        "cache",
        "changes",
        "count",
        "damaged",
        "durable",
        "named",
        "opened",
    )

    def __init__(self) -> None:
        self.cache = Image()
        self.durable: Image | None = None  # None: the cache less the changes
        self.changes: list[Change] = []  # since the last sync, oldest first
        self.count = 0  # of all changes ever; the serial of the newest
        self.blocks = bytearray()  # 1 = allocated
        self.allocated = 0  # blocks
        self.bad: dict[int, None] = {}  # sectors that cannot be read
        self.damaged = False  # ever; what is mended is written to another file
        self.named = 0
        self.opened = 0

    # -- what processes do ----------------------------------------------------------------

    def missing_blocks(self, offset: int, length: int) -> int:
        """How many blocks a write there would have to allocate."""
        first, last = offset // BLOCK, (offset + length - 1) // BLOCK + 1
        known = self.blocks.count(1, first, last)
        return last - first - known if length else 0

    def allocate(self, offset: int, length: int) -> int:
        """Returns the number of new blocks."""
        if not length:
            return 0
        first, last = offset // BLOCK, (offset + length - 1) // BLOCK + 1
        if last > len(self.blocks):
            self.blocks.extend(bytes(last - len(self.blocks)))
        new = self.blocks.count(0, first, last)
        if new:
            self.blocks[first:last] = b"\1" * (last - first)
            self.allocated += new
        return new

    def write(self, offset: int, data: bytes) -> None:
        cache = self.cache
        end = offset + len(data)
        old = b"" if offset >= len(cache.data) else bytes(memoryview(cache.data)[offset:end])
        old_size = cache.size
        cache.put(offset, data)
        self.count += 1
        self.changes.append(Change(self.count, offset, data, old, old_size, cache.size))
        if self.bad:
            for sector in range(-(-offset // SECTOR), end // SECTOR):
                self.bad.pop(sector, None)  # a sector written in full is remapped

    def truncate(self, size: int) -> int:
        """Returns the number of blocks that became free."""
        cache = self.cache
        old = bytes(memoryview(cache.data)[size:])
        self.count += 1
        self.changes.append(Change(self.count, size, None, old, cache.size, size))
        cache.resize(size)
        return self._trim_blocks()

    def sync(self, serial: int) -> None:
        """Everything up to the change `serial` is durable."""
        if self.durable is not None:
            for change in self.changes:
                if change.serial <= serial:
                    apply(self.durable, change)
                    self.durable.resize(change.size)
        self._forget(serial)

    def fail_sync(self, serial: int, rng: random.Random) -> None:
        """Some of it may be durable, none of it will be tried again, the cache keeps all."""
        durable = self.durable_image()
        land(durable, [c for c in self.changes if c.serial <= serial], rng)
        self.durable = durable
        self._forget(serial)

    def read_fails(self, offset: int, length: int) -> bool:
        return any(offset < (s + 1) * SECTOR and s * SECTOR < offset + length for s in self.bad)

    def is_dirty(self, sector: int) -> bool:
        return any(sector in _sectors(change) for change in self.changes)

    # -- what the world does --------------------------------------------------------------

    def durable_image(self) -> Image:
        """What would be left if nothing that was not synced got to the disk; a copy."""
        if self.durable is not None:
            return self.durable.copy()
        image = self.cache.copy()
        self._undo(image)
        return image

    def lose_power(self, rng: random.Random) -> str:
        """Returns how the changes since the last sync fared: clean, none, all, prefix, any, one."""
        if not self.changes and self.durable is None:
            return "clean"
        if self.durable is not None:
            image = self.durable
        else:
            image = self.cache
            self._undo(image)
        how = land(image, self.changes, rng)
        self.cache, self.durable = image, None
        self.changes.clear()
        self._trim_blocks()
        return how

    def evict(self) -> None:
        """The kernel drops clean pages and reads them again; shows what a failed sync lost."""
        if self.durable is not None:
            self.cache = self.durable.copy()
            for change in self.changes:
                apply(self.cache, change)
                self.cache.resize(change.size)

    def flip(self, offset: int, bit: int) -> None:
        """Damages the medium; and what the cache shows, unless newer bytes lie over it there."""
        self.damaged = True
        if self.changes and self.durable is None:
            self.durable = self.durable_image()
        images = [self.cache] if self.durable is None else [self.durable]
        if self.durable is not None and not any(c.offset <= offset < c.end for c in self.changes):
            images.append(self.cache)
        for image in images:
            if offset < len(image.data):
                image.data[offset] ^= 1 << bit
            elif offset < image.size:
                image.put(offset, bytes([1 << bit]))

    def _undo(self, image: Image) -> None:
        for change in reversed(self.changes):
            image.put(
                change.offset, change.old + bytes(change.end - change.offset - len(change.old))
            )
            image.resize(change.old_size)

    def _forget(self, serial: int) -> None:
        changes = self.changes
        if changes and changes[-1].serial <= serial:
            changes.clear()
        else:
            self.changes = [c for c in changes if c.serial > serial]

    def _trim_blocks(self) -> int:
        last = -(-self.cache.size // BLOCK)
        freed = self.blocks.count(1, last)
        del self.blocks[last:]
        self.allocated -= freed
        return freed


def apply(image: Image, change: Change) -> None:
    """Its bytes, not its size."""
    if change.new is not None:
        image.put(change.offset, change.new)
    elif change.offset < image.size:
        image.put(change.offset, bytes(image.size - change.offset))


def land(image: Image, changes: list[Change], rng: random.Random) -> str:
    """Brings a drawn part of the changes onto the image.

    none     nothing had been written back
    all      everything had
    prefix   everything up to one change, and any sectors of that one
    any      each sector is as a moment of its own left it: lost, torn and reordered writes
    one      all but one sector
    """
    total = len(changes)
    if not total:
        return "clean"
    base_size = image.size
    how = rng.choices(("none", "all", "prefix", "any", "one"), (2, 2, 3, 3, 2))[0]
    whole = {"none": 0, "all": total, "prefix": rng.randrange(total), "any": 0, "one": total}[how]
    sizes = whole
    if how in ("any", "one"):
        likely = rng.choice((0.1, 0.5, 0.9))
        touched: dict[int, list[int]] = {}  # by sector: the changes of it
        for index, change in enumerate(changes):
            for sector in _sectors(change):
                touched.setdefault(sector, []).append(index)
        left_out = rng.choice(list(touched)) if touched else -1
        moments: dict[int, int] = {}  # by sector: the changes before this one reached it
        for sector, indexes in touched.items():
            complete = sector != left_out if how == "one" else rng.random() < likely
            moments[sector] = total if complete else rng.choice(indexes)
        sizes = total if rng.random() < 0.7 else rng.randint(0, total)
        for index, change in enumerate(changes):
            for sector in _sectors(change):
                if index < moments[sector]:
                    _apply_sector(image, change, sector)
    else:
        for change in changes[:whole]:
            apply(image, change)
        if how == "prefix":
            torn = changes[whole]
            sizes += rng.randrange(2)
            for sector in _sectors(torn):
                if rng.random() < 0.5:
                    _apply_sector(image, torn, sector)
    image.resize(changes[sizes - 1].size if sizes else base_size)
    return how


def _sectors(change: Change) -> range:
    return range(change.offset // SECTOR, -(-change.end // SECTOR))


def _apply_sector(image: Image, change: Change, sector: int) -> None:
    start = max(change.offset, sector * SECTOR)
    end = min(change.end, (sector + 1) * SECTOR)
    if change.new is None:
        image.put(start, bytes(end - start))
    else:
        image.put(start, memoryview(change.new)[start - change.offset : end - change.offset])
