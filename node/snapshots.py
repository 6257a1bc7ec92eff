"""Snapshots of the state on disk: two are kept, and recovery takes the newest that is whole and fits.

A snapshot is written aside, synced and renamed, so a name that is there is a file that was whole
once.  It names the store, the lineage and the digest of the row that it belongs to: one that was
copied from another machine, or that speaks of a row that no longer exists, is ignored.

    header   magic, format, store uuid, lineage, position, digest
    chunk    kind, bytes                      as many as it takes
    end      how many chunks there were

Each is `u32 length | u32 crc32c, salted with its ordinal | CBOR`, so that chunks neither swap nor vanish.
"""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from typing import Any

import attrs
import trio

from . import cbor
from .checksum import crc32c
from .damage import Damage
from .env import Disk, File
from .errors import Corrupt, DiskFailed

MAGIC = "duckrow snapshot"
FORMAT = 1
KEPT = 2  # the second is for the day when the first turns out to be damaged
IDLE_SHARE = 9.0  # after each slice the writer rests nine times as long: a tenth of a core at most
_LENGTHS = struct.Struct("<II")
_ASIDE = "writing"
_NAME = "snapshot-"
_DIGITS = 20
_IS_OURS = re.compile(rf"{_NAME}\d{{{_DIGITS}}}", re.ASCII).fullmatch
_END = "end"
_PLACE = "place"


@attrs.frozen
class Identity:
    """What a snapshot belongs to."""

    store: bytes
    lineage: int
    position: int
    digest: bytes


@attrs.frozen
class Snapshot:
    identity: Identity
    chunks: tuple[tuple[str, bytes], ...]  # (kind, bytes) in the order they were written

    def of(self, kind: str) -> list[bytes]:
        return [chunk for name, chunk in self.chunks if name == kind]

    @property
    def place(self) -> int:
        """Where the item at its position lay; 0: that was not known.

        Raises:
            Corrupt: it does not say so.
        """
        return sum(place for chunk in self.of(_PLACE) for place in cbor.loads_own(chunk))


def place_chunk(place: int) -> tuple[str, bytes]:
    """What a place of the index tells is true as long as the row has not lost its end, and got it again."""
    return _PLACE, cbor.dumps([place])


def encode(identity: Identity, chunks: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """The pieces of the file, one for each chunk, as the chunks come."""
    ordinal = 0
    yield _piece(ordinal, [MAGIC, FORMAT, *attrs.astuple(identity)])
    for kind, chunk in chunks:
        ordinal += 1
        yield _piece(ordinal, [kind, chunk])
    yield _piece(ordinal + 1, [_END, ordinal])


def decode(raw: bytes) -> Snapshot:
    """Raises Corrupt, naming the offset, when a byte is not what was written."""
    header, offset = _next(raw, 0, 0)
    magic, version, *identity = header
    if (magic, version) != (MAGIC, FORMAT):
        raise Corrupt(f"this is not a snapshot of format {FORMAT}: it begins with {header[:2]!r}")
    chunks: list[tuple[str, bytes]] = []
    while True:
        (kind, content), offset = _next(raw, offset, len(chunks) + 1)
        if kind == _END:
            break
        chunks.append((kind, content))
    if content != len(chunks) or offset != len(raw):
        raise Corrupt(f"the snapshot says it has {content} chunks, and has {len(chunks)}")
    return Snapshot(Identity(*identity), tuple(chunks))


class Pieces:
    """A file as it comes, in parts of any size."""

    def __init__(self) -> None:
        self.identity: Identity | None = None  # once the header has come
        self.ended = False
        self._rest = bytearray()
        self._ordinal = 0

    def take(self, data: bytes) -> Iterator[tuple[str, bytes]]:
        """The chunks that are whole now.

        Raises:
            Corrupt: a byte is not what was written.
        """
        rest = self._rest
        rest += data
        while len(rest) >= _LENGTHS.size:
            length, _ = _LENGTHS.unpack_from(rest)
            if len(rest) < _LENGTHS.size + length:
                return
            fields, end = _next(bytes(rest[: _LENGTHS.size + length]), 0, self._ordinal)
            del rest[:end]
            self._ordinal += 1
            if self._ordinal == 1:
                if fields[:2] != [MAGIC, FORMAT]:
                    raise Corrupt(f"this is not a snapshot of format {FORMAT}")
                self.identity = Identity(*fields[2:])
            elif fields[0] == _END:
                if fields[1] != self._ordinal - 2:
                    raise Corrupt(f"{fields[1]} chunks should have come, not {self._ordinal - 2}")
                self.ended = True
            else:
                yield fields[0], fields[1]


def _piece(ordinal: int, fields: list[object]) -> bytes:
    content = cbor.dumps(fields)
    return _LENGTHS.pack(len(content), crc32c(content, ordinal)) + content


def _next(raw: bytes, offset: int, ordinal: int) -> tuple[list[Any], int]:
    start = offset + _LENGTHS.size
    if start > len(raw):
        raise Corrupt(f"the snapshot ends at {len(raw)}, in the middle of chunk {ordinal}")
    length, crc = _LENGTHS.unpack_from(raw, offset)
    content = raw[start : start + length]
    if len(content) != length or crc32c(content, ordinal) != crc:
        raise Corrupt(f"chunk {ordinal} of the snapshot, at offset {offset}, is damaged")
    return cbor.loads_array(content, length), start + length


async def _check(file: File, pace: Callable[[int], Awaitable[None]]) -> None:
    """A chunk at a time.

    Raises:
        Corrupt, OSError: it is not what was written.
    """
    offset = ordinal = 0
    content = b""
    while offset < file.size:
        head = await file.read(offset, _LENGTHS.size)
        if len(head) < _LENGTHS.size:
            raise Corrupt(f"it ends in the middle of chunk {ordinal}")
        length, crc = _LENGTHS.unpack(head)
        content = await file.read(offset + _LENGTHS.size, length)
        if len(content) != length or crc32c(content, ordinal) != crc:
            raise Corrupt(f"chunk {ordinal} is damaged")
        offset, ordinal = offset + _LENGTHS.size + length, ordinal + 1
        await pace(_LENGTHS.size + length)
    if cbor.loads_array(content, len(content)) != [_END, ordinal - 2]:
        raise Corrupt(f"it ends after chunk {ordinal}")


class Snapshots:
    """The folder with the snapshots.  One writer; the keeper's snapshot task."""

    def __init__(self, folder: Disk) -> None:
        self._folder = folder
        self.refused: list[str] = []  # what `load` passed over, and why
        self.unread = False  # the disk did not give one of them
        # Positions of those that can be relied on, oldest first: read and found whole and fitting,
        # or written and synced by this life.
        self.whole: list[int] = []

    async def load(self, newest: int) -> list[Snapshot]:
        """The whole ones at or below position `newest`, newest first; the others are told in `refused`."""
        found = []
        for name in reversed(await self.names()):
            try:
                snapshot = decode(await self._read(name))
            except OSError as error:
                self.unread = True
                self.refused.append(f"{name}: {error}")
                continue
            except Corrupt as error:
                self.refused.append(f"{name}: {error}")
                continue
            if snapshot.identity.position > newest:
                self.refused.append(f"{name}: the row ends before it, at position {newest}")
                continue
            found.append(snapshot)
        return found

    async def write(
        self,
        identity: Identity,
        chunks: Iterable[tuple[str, bytes]],
        settle: Callable[[], Awaitable[None]],
        *,
        idle_share: float = IDLE_SHARE,
        slice_seconds: float = 0.0,
    ) -> bool:
        """Writes one in slices, resting in between, and forgets all but the newest two whole ones.

        `settle` returns when the row is durable up to the snapshot: one that speaks of items which
        a power loss can take back must never get its name (N4).

        False: the disk is full, and nothing has changed.

        Raises:
            DiskFailed: for any other error.
        """
        folder = self._folder
        try:
            file = await folder.open(_ASIDE, create=True)
            try:
                file.truncate(0)
                offset = 0
                pieces = encode(identity, chunks)
                while True:
                    began = trio.current_time()
                    piece = next(pieces, None)
                    if piece is None:
                        break
                    file.write(offset, [piece])
                    offset += len(piece)
                    await trio.sleep(idle_share * max(slice_seconds, trio.current_time() - began))
                await file.sync()
            finally:
                file.close()
            await settle()
            await folder.rename(_ASIDE, _name(identity.position))
            await folder.sync_names()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise DiskFailed(f"writing the snapshot at {identity.position}: {error}") from error
            if await folder.exists(_ASIDE):
                await folder.unlink(_ASIDE)
            return False
        self.whole = sorted({*self.whole, identity.position})
        if len(self.whole) >= KEPT:  # or those that could not be read are better than nothing
            self.whole = self.whole[-KEPT:]
            for position in await self.positions():
                if position not in self.whole:
                    await folder.unlink(_name(position))
        return True

    async def forget_damaged(self) -> bool:
        """What cannot be relied on, where something else can be: on a full disk it is in the way.

        True: there is more space now.
        """
        damaged = [each for each in await self.positions() if self.whole and each not in self.whole]
        for position in damaged:
            await self.forget(position)
        return bool(damaged)

    async def beyond(
        self, end: int, stores: Collection[bytes], lineage: int
    ) -> list[tuple[str, int]]:
        """Whole ones of this row above position `end`: file and position.

        Raises:
            DiskFailed: one of them cannot be read, and might say more than the row does.
        """
        found = []
        for name in await self.names():
            if _position(name) > end:
                try:
                    identity = decode(await self._read(name)).identity
                except Corrupt:
                    continue  # it proves nothing; `load` tells of it
                except OSError as error:
                    raise DiskFailed(f"the disk gives no {name}: {error}") from error
                if identity.store in stores and identity.lineage == lineage:
                    found.append((name, identity.position))
        return found

    async def positions(self) -> list[int]:
        """Of the snapshots that are there, oldest first."""
        return [_position(name) for name in await self.names()]

    async def names(self) -> list[str]:
        """Of the files that are there, oldest first."""
        return [name for name in await self._folder.names() if _IS_OURS(name)]

    async def scrub(self, pace: Callable[[int], Awaitable[None]]) -> list[Damage]:
        """Reads and checks those that can be relied on; one that is damaged cannot, from here on."""
        damages = []
        for position in list(self.whole):
            name, what = _name(position), "a snapshot, and another is written"
            try:
                file = await self._folder.open(name)
                try:
                    await _check(file, pace)
                finally:
                    file.close()
            except (Corrupt, OSError):
                if position in self.whole:  # else it was forgotten meanwhile
                    self.whole.remove(position)
                    damages.append(Damage(name, 0, 0, what, mended=True))
        return damages

    @property
    def newest(self) -> int:
        """Of those that can be relied on; 0: there is none.  A scrub may find it damaged meanwhile."""
        return max(self.whole, default=0)

    async def look_again(self, position: int) -> bool:
        """Whether that one still is as it was written."""
        try:
            decode(await self._read(_name(position)))
        except (Corrupt, OSError):
            return False
        return True

    async def forget(self, position: int) -> None:
        """For one that is not needed, or turned out not to belong to this row."""
        self.whole = [each for each in self.whole if each != position]
        await self._folder.unlink(_name(position))

    async def _read(self, name: str) -> bytes:
        file = await self._folder.open(name)
        try:
            return await file.read(0, file.size)
        finally:
            file.close()


def _name(position: int) -> str:
    return f"{_NAME}{position:0{_DIGITS}d}"


def _position(name: str) -> int:
    return int(name.removeprefix(_NAME))
