"""Found: what lies in the folder of a row, before anything is decided about it.

Names, index files, and whose the segments are: by the copies at the beginning of one, by its index,
or by any START in it.
"""

from __future__ import annotations

from typing import Final

from .carrying import Tail
from .chronicle import Opening
from .damage import Damage
from .env import Disk, File
from .errors import Corrupt, DiskFailed
from .positions import IndexHead
from .records import REACH_MAX, seed_of
from .search import find_uuid, next_record
from .segmentreads import PAGE_BYTES, Unread, feed, opening_in, read_index_head, read_or_zeros
from .segments import ASIDE, index_file, index_number, segment_file, segment_number

GENESIS_BYTES_MAX: Final = 512  # a first segment of this size cannot hold anything durable yet


class Found:
    """Its files stay open until it is closed."""

    def __init__(self, disk: Disk, window_bytes: int) -> None:
        self.numbers: list[int] = []  # of the segments, oldest first
        self.uuids: tuple[bytes, ...] = ()  # of the store, the newest first; none: it is blank
        # By segment; where the newest are gone, the index says that they were there.
        self.indexes: dict[int, IndexHead] = {}
        self.left: dict[int, IndexHead] = {}  # of older segments that are gone
        self.damages: list[Damage] = []
        self.damaged: list[int] = []  # segments of which the index is
        self._disk, self._window = disk, window_bytes
        self._files: dict[int, File] = {}
        self._unread: dict[int, Unread] = {}  # by segment

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    async def look(self) -> None:
        """Reads names and index files; leftovers are unlinked."""
        names = await self._disk.names()
        self.numbers = numbers = [
            number for name in names if (number := segment_number(name)) is not None
        ]
        last = numbers[-1] if numbers else 0
        for name in names:
            number = index_number(name)
            if number is None:
                if name.endswith(ASIDE):
                    await self._disk.unlink(name)
                continue
            head = await read_index_head(self._disk, number)
            if head is not None and (number in numbers or number > last):
                self.indexes[number] = head
            elif number in numbers:
                self.damaged.append(number)
                what = "the index, which is made again"
                self.damages.append(Damage(index_file(number), 0, 0, what, mended=True))
            elif head is not None:
                self.left[number] = head
            else:
                await self._disk.unlink(name)
        self.uuids = await self._whose()
        self.indexes = {n: i for n, i in self.indexes.items() if i.uuid in self.uuids}
        self.left = {n: i for n, i in self.left.items() if i.uuid in self.uuids}

    async def _whose(self) -> tuple[bytes, ...]:
        """The uuids of the store, the newest first; none: there is nothing yet.

        Raises:
            Corrupt: nothing says whose these files are.
            DiskFailed: the disk does not give what would say it.
        """
        numbers = self.numbers
        named: list[bytes] = []  # by starts in segments whose beginning is damaged: newer names
        for number in reversed(numbers):
            opening = await self._opening(number)
            if opening is None and number in self.indexes:
                uuids = self.indexes[number].chronicle.uuids
            elif opening is not None:
                uuids = opening.chronicle.uuids
            else:
                file, unread = await self.file(number), self._unread_of(number)
                uuid = find_uuid(await read_or_zeros(file, 0, self._window, unread), number)
                named += [] if uuid is None or uuid in named else [uuid]
                continue
            uuids = (*[uuid for uuid in named if uuid not in uuids], *uuids)
            return self._named_since(number, uuids)
        if named:
            return tuple(named)
        if self.indexes and not numbers:
            newest = max(self.indexes)
            raise Corrupt(
                f"{segment_file(newest)} is not there, nor any other, and {index_file(newest)} speaks "
                "of it; nothing was changed: restore the folder from a copy"
            )
        genesis = numbers == [1] and not self.indexes
        if numbers and not (genesis and (await self.file(1)).size <= GENESIS_BYTES_MAX):
            if any(self._unread.values()):
                raise DiskFailed(
                    f"the disk does not give what says which store {segment_file(numbers[-1])} "
                    "belongs to; nothing was changed: try again"
                )
            raise Corrupt(
                f"nothing in {segment_file(numbers[-1])} says which store it belongs to, neither "
                "its beginning nor a start; nothing was changed: restore the folder from a copy"
            )
        return ()

    def _named_since(self, number: int, uuids: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """The first file of a new name may be damaged, or gone: only its index tells of both, or that of the one before."""
        for later in sorted(n for n in self.indexes if n >= number):
            newer = self.indexes[later].chronicle.uuids
            if {*uuids} <= {*newer}:
                uuids = newer
        return uuids

    async def forget_genesis(self) -> None:
        """Where the very first sync of the store was never reached."""
        assert not self.uuids
        for number in self.numbers:
            await self._disk.unlink(segment_file(number))

    async def segment(self, number: int) -> Tail:
        file, unread = await self.file(number), self._unread_of(number)
        opening = await self._opening(number)
        if opening is not None:
            self._check_owner(number, opening.uuid)
            return Tail(number, file, opening.uuid, opening, unread)
        for uuid in self.uuids:
            found, _, _ = await feed(
                next_record(seed_of(uuid, number), file.size, 0, self._window, 0), file, unread
            )
            if found is not None:
                return Tail(number, file, uuid, None, unread)
        return Tail(number, file, self.uuids[0], None, unread)

    def _check_owner(self, number: int, uuid: bytes) -> None:
        if uuid not in self.uuids:
            raise Corrupt(
                f"{segment_file(number)} belongs to store {uuid.hex()}, the newest file to store "
                f"{self.uuids[0].hex()}: two folders were mixed up; nothing was changed"
            )

    async def file(self, number: int) -> File:
        if number not in self._files:
            self._files[number] = await self._disk.open(segment_file(number))
        return self._files[number]

    def _unread_of(self, number: int) -> Unread:
        return self._unread.setdefault(number, [])

    async def _opening(self, number: int) -> Opening | None:
        file, unread = await self.file(number), self._unread_of(number)
        found = opening_in(await read_or_zeros(file, 0, PAGE_BYTES, unread), number)
        if found is None:
            found = opening_in(await read_or_zeros(file, 0, REACH_MAX, unread), number)
        return found
