"""Takeover: a node that goes on alone, in the folder of a bridge, orders what was staged there.

Commands that were accepted and have no place in the row get one now, in the order in which a bridge has
them again after a start: bundles of a view before what it left staged (P3).  Each is
followed by the record that its stage is over, in one file: a crash loses the second one at most, and
then it is ordered again, which changes nothing (D2).
"""

from __future__ import annotations

from collections.abc import Callable

from .chronicle import Name
from .commands import Command
from .errors import Corrupt, NotFound
from .rowstore import RowStore


async def take_over(store: RowStore, view: int, id_: int, wall_us: Callable[[], int]) -> int:
    """The s of the last bundle that was made of it in this view; all of it is durable.

    Raises:
        Full, DiskFailed.
    """
    s = 0
    for name, stage in sorted(store.chronicle.staged.items(), key=_newest_view_first):
        if not stage.ordered:
            commands = await _read(store, stage.place)
            if not commands:
                continue
            s += 1
            await store.appending.append(view, id_, s, s, wall_us(), commands)
        await store.appending.settle([name])
    if store.dirty:
        await store.sync()
    return s


def _newest_view_first(stage: tuple[Name, object]) -> int:
    (view, _, _), _ = stage
    return -view  # those that no view has taken, of view 0, last


async def _read(store: RowStore, place: int) -> list[Command]:
    """None of them where damage took one: it stays a stage, and the scrub tells."""
    try:
        heads = (await store.read_heads(place)).bundle.commands
        return [
            Command(head, await store.read_body(place + index))
            for index, (head, _) in enumerate(heads)
        ]
    except (Corrupt, NotFound):
        return []
