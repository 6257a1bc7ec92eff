"""The reserves: what a disk that runs full is kept from, so that somebody can still make room.

    ok      more than the soft reserve is free
    soft    less: commands with bodies are refused; clock, prune, delete, policies go on
    hard    a write did not fit: the file `reserve` was given up, and what makes room is written
            into the space that it had

Back to ok by itself, once twice the soft reserve is free; so it does not flap.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from .env import Disk
from .errors import DiskFailed, Full
from .storeoptions import StoreOptions

OK: Final = "ok"
SOFT: Final = "soft"
HARD: Final = "hard"
NAME: Final = "reserve"


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
        self._held = False  # the file is there
        self.state = OK
        self.on_hard: Callable[[], None] = lambda: None  # somebody has to look at it from now on

    async def open(self, *, blank: bool) -> None:
        """
        Raises:
            DiskFailed: the file could not be made, and not for lack of space.
        """
        self._held = not self._options.hard_reserve_bytes or await self._is_whole()
        if not self._held:
            self.state = HARD
            await self.restore(enough=0 if blank else None)
        self.look()

    async def _is_whole(self) -> bool:
        """One of another size goes: it was chosen otherwise, or a crash came while it was made."""
        try:
            file = await self._disk.open(NAME)
        except FileNotFoundError:
            return False
        size = file.size
        file.close()
        if size == self._options.hard_reserve_bytes:
            return True
        try:
            await self._disk.unlink(NAME)
        except OSError as error:
            raise DiskFailed(f"the reserve could not be made anew: {error}") from error
        return False

    def look(self) -> None:
        self.state = judge(self.state, self._free(), self._soft())

    async def restore(self, *, enough: int | None = None) -> None:
        """Makes the file again if so much is free; by default twice the soft reserve."""
        if self.state != HARD or self._free() < (2 * self._soft() if enough is None else enough):
            return
        if not self._held:
            try:
                await self._disk.reserve(NAME, self._options.hard_reserve_bytes)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise DiskFailed(f"the reserve could not be made: {error}") from error
                return
            self._held = True
        self.state = OK
        self.look()

    async def give_up(self) -> bool:
        """A write did not fit.  True: there is more space now."""
        self.state = HARD
        self.on_hard()
        if not self._held or not self._options.hard_reserve_bytes:
            return False
        self._held, gone = False, False
        try:
            await self._disk.unlink(NAME)
            gone = True
        except OSError as error:
            raise DiskFailed(f"the reserve could not be given up: {error}") from error
        finally:
            self._held = not gone  # cancelled: it is still there
        return True

    def full(self) -> Full:
        """What a caller is told whose command was not written."""
        free, soft = self._free(), self._soft()
        return Full(
            f"the disk is full: {free:,} bytes are free, and a reserve of {soft:,} is kept for what "
            f"makes room; delete or prune something: it goes on by itself at {2 * soft:,} free bytes"
        )

    def _free(self) -> int:
        return self._disk.free()[0]

    def _soft(self) -> int:
        options = self._options
        share = int(self._disk.free()[1] * options.soft_reserve_fraction)
        return max(options.soft_reserve_bytes, share)
