"""Scrub rounds: when everything is read, how fast, and what came of it.

    a week after the last round ended ─► a round: all segments, index files of numbers and
                                         snapshots, at a pace ─► report ─► `scrubbed`

The file `scrubbed` says when the last round ended, so a restart does not begin anew; one that cannot
be read, or that lies in the future, makes a round due.  A round that a restart cuts short begins
again from the first segment.  Where a machine has two processes, each reads its own folder in rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs
import trio

from . import smallfile
from .damage import Damage, tell_of_damages
from .env import Disk
from .events import INFO, Note
from .scrub import Scrub
from .storeoptions import StoreOptions

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


def tell_of_scrub(note: Note, report: ScrubReport) -> None:
    seconds = (report.ended_us - report.began_us) / 1e6
    note(
        INFO,
        "scrubbed bytes=%d seconds=%.1f damages=%d",
        report.bytes,
        seconds,
        len(report.damages),
    )
    tell_of_damages(note, report.damages)


def _nobody_listens(_report: ScrubReport) -> None:
    pass


class ScrubRounds:
    """`disk` is where it is noted; each of `scrubs` reads something through."""

    def __init__(
        self,
        disk: Disk,
        wall_us: Callable[[], int],
        options: StoreOptions,
        scrubs: Sequence[Scrub],
    ) -> None:
        self.last: ScrubReport | None = None  # of this process
        self.on_report: Callable[[ScrubReport], None] = _nobody_listens
        self.scrubs = scrubs
        self._disk, self._wall_us, self._options = disk, wall_us, options
        self._bytes = 0

    async def run(self) -> None:
        """Until cancelled; returns at once if `scrub_seconds` is 0.

        Raises:
            DiskFailed: the process has to end.
        """
        seconds = self._options.scrub_seconds
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
        return max(0.0, self._options.scrub_seconds - (now - ended) / 1e6)

    async def round(self) -> ScrubReport:
        """Reads everything that is durable; finds damage before somebody needs what it hit.

        Raises:
            DiskFailed: that it ended could not be written down.
        """
        began, self._bytes = self._wall_us(), 0
        damages: list[Damage] = []
        for scrub in self.scrubs:
            damages += await scrub(self._pace)
        ended = self._wall_us()
        self.last = ScrubReport(began, ended, self._bytes, tuple(damages))
        self.on_report(self.last)
        await self._note(ended)
        return self.last

    async def _pace(self, read: int) -> None:
        self._bytes += read
        await trio.sleep(read / self._options.scrub_bytes_per_second)

    async def _ended(self) -> int | None:
        try:
            content = await smallfile.get(self._disk, NAME, _DIGITS_MAX)
        except OSError:
            return None
        return int(content) if content.isdigit() else None

    async def _note(self, ended: int) -> None:
        """A full disk may keep it out: then the next start makes one round too many."""
        await smallfile.put(self._disk, NAME, b"%d" % ended)
