"""A machine of a cluster tells the row its clock, whoever produces, so that the time of the row goes on.

The time of the row is what clocks of a majority have come to (rowtime.py), and a clock is told with
every bundle.  So where one machine alone produces, the others have to tell theirs as well; or the time
would stand still, and with it the times of entries, which are bounded by it.

    entries come      each machine that has told nothing for a second says what time it is
    nothing comes     each does so now and then, or the first entry after a long rest would be dated back
"""

from __future__ import annotations

from typing import Final

import trio

from . import makers
from .bridgedrow import BridgedRow
from .errors import DuckrowError
from .keeper import Keeper
from .limits import ENTRY_FUTURE_US_MAX

TELL_SECONDS: Final = 1.0
IDLE_SECONDS: Final = ENTRY_FUTURE_US_MAX / 1e6 * 2 / 3  # so what comes next is not too far ahead


async def tell_time(keeper: Keeper, row: BridgedRow) -> None:
    """Until cancelled."""
    pid, told, entries = keeper.fresh_pid(), 0, 0
    while True:
        await trio.sleep(TELL_SECONDS)
        rests, entries = entries == keeper.tally.entries, keeper.tally.entries
        if not _is_needed(keeper, row, IDLE_SECONDS if rests else TELL_SECONDS):
            continue
        turn = makers.Turn(pid, told + 1, done=told, time=keeper.wall_us())
        try:
            await keeper.order(makers.clock(turn))
        except DuckrowError:
            continue  # nothing is ordered now, and so nothing needs a time
        told += 1


def _is_needed(keeper: Keeper, row: BridgedRow, seconds: float) -> bool:
    """This machine's clock counts, and it has told nothing for so long."""
    view, welcome = keeper.state.view, row.welcome
    if view is None or welcome is None or len(view.members) < 2 or not row.status().active:
        return False
    last = keeper.state.stamps.get(welcome.id, 0)
    return keeper.wall_us() - last >= seconds * 1e6
