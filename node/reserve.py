"""The reserves: what a disk that runs full is kept from, so that somebody can still make room.

    ok      more than the soft reserve is free
    soft    less: commands with bodies are refused; clock, prune, delete, policies go on
    hard    a write did not fit: the file `reserve` was given up, and what makes room is written
            into the space that it had

What makes room is commands, and files: snapshots, indexes.  So that files never take the space of
the command that would let them be smaller, commands have a file of their own to give up, `last`.

Back to ok by itself, once twice the soft reserve is free beside those files; so it does not flap, and what
was given up for a write is not taken back before it is done.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Final

from .env import Disk
from .errors import DiskFailed, Full
from .storeoptions import StoreOptions

OK: Final = "ok"
SOFT: Final = "soft"
HARD: Final = "hard"
NAME: Final = "reserve"
LAST: Final = "last"
LAST_SHARE: Final = 8  # it is so many times smaller


def judge(state: str, free: int, soft: int) -> str:
    """The state after `free` bytes were seen; `hard` ends only when the file is there again."""
    if state == HARD:
        return HARD
    if free < soft:
        return SOFT
    if free >= 2 * soft:
        return OK
    return state


class Reserve:
    """The free space of the disk of one folder."""

    def __init__(self, disk: Disk, options: StoreOptions) -> None:
        self._disk, self._options = disk, options
        hard = options.hard_reserve_bytes
        self._sizes = {NAME: hard, LAST: -(-hard // LAST_SHARE)} if hard else {}
        self._held: dict[str, None] = {}  # the files that are there
        self._making = set[str]()
        self.state = OK
        self.on_hard: Callable[[], None] = lambda: None  # somebody has to look at it from now on

    async def open(self, *, blank: bool) -> None:
        """
        Raises:
            DiskFailed: a file could not be made, and not for lack of space.
        """
        for name, size in self._sizes.items():
            if await self._is_whole(name, size):
                self._held[name] = None
        if self._held.keys() != self._sizes.keys():
            self.state = HARD
            await self.restore(enough=0 if blank else None)
        self.look()

    async def _is_whole(self, name: str, size: int) -> bool:
        """One of another size goes: it was chosen otherwise, or a crash came while it was made."""
        try:
            file = await self._disk.open(name)
        except FileNotFoundError:
            return False
        found = file.size
        file.close()
        if found == size:
            return True
        try:
            await self._disk.unlink(name)
        except OSError as error:
            raise DiskFailed(f"the reserve could not be made anew: {error}") from error
        return False

    def spares(self, size: int) -> bool:
        """Whether so much may be written for somebody else: nothing here comes near its end by it."""
        return self.state == OK and self._free() - size >= self._soft()

    def look(self) -> None:
        self.state = judge(self.state, self._free(), self._soft())

    async def restore(self, *, enough: int | None = None) -> None:
        """Makes the files again if so much is free; by default what leaves twice the soft reserve.

        With less, what was given up for a write would be taken back before that is done.
        """
        if self.state != HARD or self._free() < (self._enough() if enough is None else enough):
            return
        for name in self._sizes:
            if not await self._make(name):
                return
        if self._held.keys() == self._sizes.keys():  # else one was given up again meanwhile
            self.state = OK
            self.look()

    async def keep_last(self) -> None:
        """Space is free that files would take next: of it comes what commands need first."""
        if LAST in self._sizes:
            await self._make(LAST)

    async def _make(self, name: str) -> bool:
        """False: it does not fit."""
        if name in self._held or name in self._making:
            return True
        self._making.add(name)
        try:
            await self._disk.reserve(name, self._sizes[name])
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise DiskFailed(f"the reserve could not be made: {error}") from error
            return False
        finally:
            self._making.discard(name)
        self._held[name] = None
        return True

    async def give_up(self, *, last: bool = False) -> bool:
        """A write did not fit.  True: there is more space now.

        With `last`, for commands: if the reserve is gone, the last of it goes, too.
        """
        self.state = HARD
        self.on_hard()
        name = NAME if NAME in self._held or not last else LAST
        if name not in self._held:
            return False
        del self._held[name]
        gone = False
        try:
            await self._disk.unlink(name)
            gone = True
        except OSError as error:
            raise DiskFailed(f"the reserve could not be given up: {error}") from error
        finally:
            if not gone:  # cancelled: it is still there
                self._held[name] = None
        return True

    async def insist(self, step: Callable[[], Awaitable[None]]) -> None:
        """What a start has to write may use the reserve.

        Raises:
            Full: even so it does not fit.
        """
        while True:
            try:
                await step()
                return
            except Full:
                if not await self.give_up(last=True):
                    raise

    def full(self) -> Full:
        """What a caller is told whose command was not written."""
        free, soft, enough = self._free(), self._soft(), self._enough()
        return Full(
            f"the disk is full: {free:,} bytes are free, and a reserve of {soft:,} is kept for what "
            f"makes room; delete or prune something: it goes on by itself at {enough:,} free bytes",
            free=free,
            needed=enough,
        )

    def _enough(self) -> int:
        """Free bytes at which all is well again, the files of the reserve included that are gone."""
        gone = sum(size for name, size in self._sizes.items() if name not in self._held)
        return 2 * self._soft() + gone

    def _free(self) -> int:
        return self._disk.free()[0]

    def _soft(self) -> int:
        options = self._options
        share = int(self._disk.free()[1] * options.soft_reserve_fraction)
        return max(options.soft_reserve_bytes, share)
