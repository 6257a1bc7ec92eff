"""Scrub rounds: when everything is read, how fast, and what came of it.

    a week after the last round ended ─► a round: all segments, index files of numbers and
                                         snapshots, at a pace ─► report ─► `scrubbed`

The file `scrubbed` says when the last round ended, so a restart does not begin anew; one that cannot
be read, or that lies in the future, makes a round due.  A round that a restart cuts short begins
again from the first segment.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Final

import attrs
import trio

from .damage import Damage
from .env import Disk
from .errors import DiskFailed
from .rowstore import RowStore
from .scrub import Scrub
from .segments import ASIDE

NAME: Final = "scrubbed"
SETTLE_SECONDS: Final = 60.0  # after a start: there is enough to do
_DIGITS_MAX: Final = 20


@attrs.frozen
class ScrubReport:
    """What one round found."""

    began_us: int  # wall clock
    ended_us: int
    bytes: int  # that were read
    damages: tuple[Damage, ...]


def _nobody_listens(_report: ScrubReport) -> None:
    pass


class ScrubRounds:
    def __init__(self, store: RowStore, disk: Disk, wall_us: Callable[[], int]) -> None:
        self.last: ScrubReport | None = None  # of this process
        self.on_report: Callable[[ScrubReport], None] = _nobody_listens
        # What lies outside the row, and is read in the same rounds.
        self.others: Sequence[Scrub] = ()
        self._store, self._disk, self._wall_us = store, disk, wall_us
        self._bytes = 0

    async def run(self) -> None:
        """Until cancelled; returns at once if `scrub_seconds` is 0.

        Raises:
            DiskFailed: the process has to end.
        """
        seconds = self._store.options.scrub_seconds
        if not seconds:
            return
        await trio.sleep(max(await self.due_seconds(), SETTLE_SECONDS))
        while True:
            await self.round()
            await trio.sleep(seconds)

    async def due_seconds(self) -> float:
        """Until the next round is due; 0: it is now."""
        now, ended = self._wall_us(), await self._ended()
        if ended is None or ended > now:
            return 0.0
        return max(0.0, self._store.options.scrub_seconds - (now - ended) / 1e6)

    async def round(self) -> ScrubReport:
        """Reads everything that is durable; finds damage before somebody needs what it hit.

        Raises:
            DiskFailed: that it ended could not be written down.
        """
        began, self._bytes = self._wall_us(), 0
        damages = await self._store.scrub(self._pace)
        for other in self.others:
            damages += await other(self._pace)
        ended = self._wall_us()
        self.last = ScrubReport(began, ended, self._bytes, tuple(damages))
        self.on_report(self.last)
        await self._note(ended)
        return self.last

    async def _pace(self, read: int) -> None:
        self._bytes += read
        await trio.sleep(read / self._store.options.scrub_bytes_per_second)

    async def _ended(self) -> int | None:
        try:
            file = await self._disk.open(NAME)
        except FileNotFoundError:
            return None
        try:
            content = await file.read(0, _DIGITS_MAX)
        except OSError:
            return None
        finally:
            file.close()
        return int(content) if content.isdigit() else None

    async def _note(self, ended: int) -> None:
        """A full disk may keep it out: then the next start makes one round too many."""
        disk = self._disk
        try:
            file = await disk.open(NAME + ASIDE, create=True)
            try:
                file.truncate(0)
                file.write(0, [b"%d" % ended])
                await file.sync()
            finally:
                file.close()
            await disk.rename(NAME + ASIDE, NAME)
            await disk.sync_names()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise DiskFailed(f"writing down that a scrub ended: {error}") from error
            if await disk.exists(NAME + ASIDE):
                await disk.unlink(NAME + ASIDE)
