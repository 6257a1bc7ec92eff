"""The folder with the files of the index: one for each sealed segment, written aside and renamed.

A file is written when its last item is durable in the row store, so that it never speaks of an item
that a power loss can take back.  What no file holds is in the snapshots (`Numbers.capture`).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Iterable, Sequence

import trio

from .damage import Damage
from .env import Disk
from .errors import Corrupt, DiskFailed
from .numberfile import NumberFile, Warm
from .numbers import Numbers
from .numberscrub import Pace, scrub_file

_SUFFIX = ".numbers"
_DIGITS = 8
_IS_OURS = re.compile(rf"\d{{{_DIGITS}}}{re.escape(_SUFFIX)}", re.ASCII).fullmatch
_ASIDE = "writing"


class NumberFolder:
    """One writer: the task of the keeper that looks after the index."""

    def __init__(self, folder: Disk) -> None:
        self._folder = folder
        self._warm = Warm()
        self.refused: list[str] = []  # what `load` passed over, and why

    async def beyond(
        self, end: int, stores: Collection[bytes], segment: int
    ) -> list[tuple[str, int]]:
        """Whole files of this row, from `segment` on, that speak of items above position `end`."""
        found = []
        for name in await self.names():
            if name >= _name(segment):
                try:
                    file = await self._open(name)
                except (Corrupt, OSError):
                    continue  # it proves nothing; `load` tells of it
                if file.store in stores and file.cover.upto > end:
                    found.append((name, file.cover.upto))
        return found

    async def names(self) -> list[str]:
        """Of the files that are there, oldest first."""
        return [name for name in await self._folder.names() if _IS_OURS(name)]

    async def load(
        self, store: bytes, end: int, formers: Collection[bytes] = (), *, keep: bool = False
    ) -> list[NumberFile]:
        """The whole files of this store whose row ends at position `end`; the others are told.

        `formers` are uuids that it had before: its row stayed the same.  A damaged file stays where
        it is until it is written again; one that belongs to another store, or to a part of the row
        that is no more, could be believed later, and goes; not if the row is damaged (`keep`), since
        it may be what proves that.
        """
        files: list[NumberFile] = []
        for name in await self.names():
            try:
                file = await self._open(name)
            except (Corrupt, OSError) as error:
                self.refused.append(f"{name}: {error}")
                continue
            why = _stranger(file, name, (store, *formers), end)
            if why:
                self.refused.append(f"{name}: {why}")
                if not keep:
                    await self._folder.unlink(name)
            else:
                files.append(file)
        return files

    async def write(self, numbers: Numbers) -> bool:
        """Writes and installs the segment that waits.  False: the disk is full, nothing changed.

        Raises:
            DiskFailed: for any other error.
        """
        cover = numbers.waiting()
        assert cover is not None, "nothing waits"
        if not await self._write(_name(cover.segment), numbers.pieces()):
            return False
        for _ in numbers.install(await self._open(_name(cover.segment))):
            await trio.lowlevel.checkpoint()
        return True

    async def scrub(self, numbers: Numbers, pace: Pace) -> list[Damage]:
        """Reads and checks every file in use, and mends what it can.

        Raises:
            DiskFailed: what is mended could not be written.
        """
        damages: list[Damage] = []
        for segment in numbers.installed:
            name = _name(segment)
            try:
                on_disk = await self._folder.open(name)
            except FileNotFoundError:
                if numbers.file(segment) is not None:
                    damages.append(Damage(name, 0, 0, "the whole file"))
                continue
            try:
                if (file := numbers.file(segment)) is not None:
                    damages += await scrub_file(name, on_disk, file, pace)
            finally:
                on_disk.close()
        return damages

    async def drop(self, numbers: Numbers, segment: int) -> None:
        """After the store has dropped the segment."""
        numbers.drop(segment)
        if await self._folder.exists(_name(segment)):
            await self._folder.unlink(_name(segment))

    async def forget(self, segment: int) -> None:
        """The file is of no use any more; nobody has loaded it."""
        await self._folder.unlink(_name(segment))
        await self._folder.sync_names()

    async def put(self, segment: int, pieces: Iterable[bytes]) -> bool:
        """A file that is not made here.  False: the disk is full.

        Raises:
            DiskFailed: for any other error.
        """
        return await self._write(_name(segment), pieces)

    async def clear(self) -> None:
        """All of it speaks of another row."""
        for name in await self.names():
            await self._folder.unlink(name)
        await self._folder.sync_names()

    async def _open(self, name: str) -> NumberFile:
        file = await self._folder.open(name)
        try:
            if not file.size:
                raise Corrupt("it is empty")
            return NumberFile(file.hold(), warm=self._warm)
        finally:
            file.close()

    async def _write(self, name: str, pieces: Iterable[bytes | memoryview]) -> bool:
        folder = self._folder
        try:
            file = await folder.open(_ASIDE, create=True)
            try:
                file.truncate(0)
                offset = 0
                for piece in pieces:
                    if piece:
                        file.write(offset, [piece])
                        offset += len(piece)
                    await trio.lowlevel.checkpoint()
                await file.sync()
            finally:
                file.close()
            await folder.rename(_ASIDE, name)
            await folder.sync_names()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise DiskFailed(f"writing the index file {name}: {error}") from error
            if await folder.exists(_ASIDE):
                await folder.unlink(_ASIDE)
            return False
        return True


def _stranger(file: NumberFile, name: str, stores: Sequence[bytes], end: int) -> str:
    """Why a whole file is not one of this row; empty if it is."""
    cover = file.cover
    if file.store not in stores:
        return f"it belongs to store {file.store.hex()}, and this is {stores[0].hex()}"
    if name != _name(cover.segment) or not cover.sealed:
        return f"it speaks of segment {cover.segment}"
    if cover.upto > end:
        return f"it speaks of items up to {cover.upto}, and the row ends at {end}"
    return ""


def _name(segment: int) -> str:
    return f"{segment:0{_DIGITS}d}{_SUFFIX}"
