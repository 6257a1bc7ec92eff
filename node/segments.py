"""Segments: the files of the row store, their names, and the few that are kept open.

00000007.seg   records; sealed as soon as 00000008.seg is there
00000007.pos   the index of a sealed one (positions.py), or of what an orderly close left
*.new          being written aside; of no meaning after a restart
reserve        space that is given up when the disk is full
doubt          a sync failed (doubt.py)
ended          where the row ended, if a full disk kept the index out (ended.py)
scrubbed       when everything was read last (scrubrounds.py)
image-…        the state of an image that became the row (images.py)
incoming-…     an image that is being received; of no meaning after a restart
outgoing       an image that is being given; of no meaning after a restart
lock           held by the process that owns the folder
"""

from __future__ import annotations

from typing import Final

import attrs

from .env import Disk, File
from .errors import NotFound
from .positions import Column
from .records import seed_of

ASIDE: Final = ".new"
_DATA: Final = ".seg"
_INDEX: Final = ".pos"
_DIGITS: Final = 8


def segment_file(number: int) -> str:
    return f"{number:0{_DIGITS}d}{_DATA}"


def index_file(number: int) -> str:
    return f"{number:0{_DIGITS}d}{_INDEX}"


def segment_number(name: str) -> int | None:
    """Of a segment's file; None: the file is something else."""
    return _number(name, _DATA)


def index_number(name: str) -> int | None:
    return _number(name, _INDEX)


def _number(name: str, ending: str) -> int | None:
    digits = name.removesuffix(ending)
    if digits == name or len(digits) != _DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)


@attrs.define
class Segment:
    """One file, as the running store knows it."""

    number: int
    uuid: bytes  # that it was begun with
    first: int  # position of the first item that it records
    last: int  # first - 1: none
    size: int
    reach: int = 0  # the highest position whose record or body lies in it
    rewritten: bool = False
    column: Column | None = None  # its index, while that is in memory
    unread: bool = False  # the disk gave not all of it: what seems lost is not written down as lost
    seed: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.seed = seed_of(self.uuid, self.number)
        self.reach = max(self.reach, self.last)


@attrs.frozen
class SegmentInfo:
    """What others are told of one."""

    number: int
    first: int  # positions of the items recorded in it, first to last; first > last: none
    last: int
    reach: int  # the highest position whose record or body lies in it
    bytes: int  # its length; a rewritten one takes less of the disk
    sealed: bool
    rewritten: bool


@attrs.define(eq=False)
class Handle:
    file: File
    users: int = 0
    gone: bool = False  # out of the table: the last user closes it


class OpenFiles:
    """Segment files that are read.  The one that is written stays; of the others the latest do."""

    def __init__(self, disk: Disk, limit: int) -> None:
        self._disk, self._limit = disk, limit
        self._handles: dict[int, Handle] = {}  # the least recently used first

    async def acquire(self, number: int) -> Handle:
        """For reading; to be released.

        Raises:
            NotFound: there is no such segment any more.
        """
        handle = self._handles.pop(number, None)
        if handle is None:
            name = segment_file(number)
            try:
                file = await self._disk.open(name)
            except FileNotFoundError as error:
                raise NotFound(f"segment {name} is no longer there: it was dropped") from error
            handle = self._handles.pop(number, None)
            if handle is None:
                handle = Handle(file)
                self._trim(self._limit - 1)
            else:  # another reader was faster
                file.close()
        self._handles[number] = handle
        handle.users += 1
        return handle

    def release(self, handle: Handle) -> None:
        handle.users -= 1
        if handle.gone and not handle.users:
            handle.file.close()

    def keep(self, number: int, file: File) -> Handle:
        """Takes over the file that is written; it stays open until it is released."""
        assert number not in self._handles
        handle = Handle(file, users=1)
        self._handles[number] = handle
        return handle

    def forget(self, number: int) -> None:
        """The file was unlinked, or another one took its name; readers end with the old one."""
        handle = self._handles.pop(number, None)
        if handle is not None:
            self._leave(handle)

    def close(self) -> None:
        for handle in self._handles.values():
            self._leave(handle)
        self._handles.clear()

    def _trim(self, limit: int) -> None:
        idle = [number for number, handle in self._handles.items() if not handle.users]
        for number in idle[: max(0, len(self._handles) - limit)]:
            self._leave(self._handles.pop(number))

    def _leave(self, handle: Handle) -> None:
        handle.gone = True
        if not handle.users:
            handle.file.close()
