"""A disk that is only read: what a recovery does to a folder is done to its names alone, and here alone.

    the folder          names, bytes
    what is seen here   the same bytes, under names as if all were renamed and unlinked that should be

Nothing is written: a damaged stretch that a recovery puts back is read again as it is, and told as damaged.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

import attrs

from duckrow.node.env import Buffer, Disk, File, Held


@attrs.define(eq=False)
class OnlyReadFile:
    _file: File

    @property
    def size(self) -> int:
        return self._file.size

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        pass

    async def read(self, offset: int, length: int) -> bytes:
        return await self._file.read(offset, length)

    def hold(self) -> Held:
        return self._file.hold()

    def truncate(self, size: int) -> None:
        pass

    async def sync(self) -> None:
        pass

    def close(self) -> None:
        self._file.close()


@attrs.define(eq=False)
class OnlyRead:
    """Of a folder that is there; its lock is a real one."""

    _disk: Disk
    _seen: dict[str, str | None] = attrs.field(factory=dict, init=False)  # None: no more

    async def folder(self, name: str) -> Disk:
        return OnlyRead(await self._disk.folder(name))

    async def open(self, name: str, *, create: bool = False) -> File:
        real = self._seen.get(name, name)
        if real is None or (create and not await self._disk.exists(real)):
            code = errno.EROFS if create else errno.ENOENT
            raise OSError(code, "it is only read", name)
        return OnlyReadFile(await self._disk.open(real))

    async def reserve(self, name: str, size: int) -> None:
        pass

    async def exists(self, name: str) -> bool:
        real = self._seen.get(name, name)
        return real is not None and await self._disk.exists(real)

    async def names(self) -> list[str]:
        there = [name for name in await self._disk.names() if name not in self._seen]
        return sorted([*there, *(name for name, real in self._seen.items() if real is not None)])

    async def rename(self, old: str, new: str) -> None:
        self._seen[new], self._seen[old] = self._seen.get(old, old), None

    async def unlink(self, name: str) -> None:
        self._seen[name] = None

    async def sync_names(self) -> None:
        pass

    def lock(self, name: str) -> None:
        self._disk.lock(name)

    def unlock(self, name: str) -> None:
        self._disk.unlock(name)

    def free(self) -> tuple[int, int]:
        return self._disk.free()
