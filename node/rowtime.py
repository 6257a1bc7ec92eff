"""The time of the row: what a majority of the members' clocks has reached.

Each bundle carries the clock of the bridge that made it.  The state keeps the last stamp of every
member of the last view mark.  The time of the row is the greatest t such that members whose stamp
is at least t hold more than half of the members' weight; and it never goes back.

    member   weight   stamp        members at or past t    weight of 3
       a        1      17:02  ──►  17:02: a                  1
       b        1      17:00  ──►  17:00: a, b               2   more than half: it is 17:00
       c        1      11:59

So one clock that is wrong moves nothing, and neither does a minority of them.  A member that has
not told its time yet counts as if it told the time of the row.
"""

from __future__ import annotations

from .limits import ENTRY_FUTURE_US_MAX
from .row import View
from .state import State


def mark(state: State, view: View) -> None:
    """Stamps are kept for the members of the last mark alone."""
    state.view = view
    members = {member.id for member in view.members}
    state.stamps = {member: stamp for member, stamp in state.stamps.items() if member in members}
    _advance(state)


def stamp(state: State, origin: int, at: int) -> None:
    """A bundle was made by `origin` when its clock said `at`."""
    members = state.view.members if state.view else ()
    for member in members:
        if member.id == origin:
            state.stamps[origin] = at
            if at > state.row_time:  # or it moves nothing
                if len(members) == 1 and member.weight:
                    state.row_time = at
                else:
                    _advance(state)
            return


def entry_time(state: State, latest: int, time: int) -> int:
    """The time of a batch: what its producer's clock said, within what the others can believe.

    Not before the partition's latest entry, so that a search by time works; not far past the row,
    so that a clock which is a year ahead does not take the topic with it.  Until a majority has
    told its time there is nothing to compare with.
    """
    if state.row_time and time > state.row_time + ENTRY_FUTURE_US_MAX:
        time = state.row_time + ENTRY_FUTURE_US_MAX
    return max(time, latest)


def _advance(state: State) -> None:
    assert state.view is not None
    now, stamps = state.row_time, state.stamps
    told = [(stamps.get(each.id, now), each.weight) for each in state.view.members]
    told.sort(reverse=True)
    missing = sum([weight for _, weight in told])  # twice what is lacking to one half
    for time, weight in told:
        missing -= 2 * weight
        if missing < 0:
            state.row_time = max(now, time)
            return
