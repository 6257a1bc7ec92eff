"""A node at its bridge: the state of a cluster's row on this machine, in a process of its own.

    async with open_bridged(env, host, port, Options()) as node:
        ...

Like `alone.py`, but the row belongs to the bridge; here are `state`, with the snapshots, and
`numbers`, with the index.  Both can be lost, and are made again from the row; where that does not
reach back so far, an image of another machine takes the place of all (N5).  They are read through once
a week, as the bridge reads the row.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import trio

from .adopting import NAME, adopt, adopted, note_adopted
from .alone import (
    ORDERLY,
    Options,
    StatelessError,
    UnreadStateError,
    durable_folders,
    recovered,
)
from .bridgedrow import BridgedRow
from .env import Disk, Env
from .errors import Corrupt, Disconnected
from .events import WARNING, Note, unheard
from .housekeeping import Housekeeping, HousekeepingOptions
from .keeper import Keeper
from .numberfolder import NumberFolder
from .rare import rare_housekeeping
from .scrubrounds import ScrubRounds, tell_of_scrub
from .snapshots import Snapshots
from .timekeeping import tell_time

IMAGE_SECONDS = 1.0  # between two looks whether the bridge has one
READ_TRIES = 3  # of what the disk does not give
LAST_SNAPSHOT_SECONDS = 5.0  # at an orderly end: the bridge may end, too


@asynccontextmanager
async def open_bridged(
    env: Env, host: str, port: int, options: Options, note: Note = unheard
) -> AsyncIterator[Keeper]:
    """Waits for the bridge, catches up, and serves until the block ends.

    Of `options.store` only what is said about scrubs is of use: the row is the bridge's.

    Raises:
        Corrupt: the state cannot be made from what is there; says what is missing.
        ReplacedError: in a group; an image took the place of the row, or another store: open it again.
        DiskFailed: in a group; the process has to end.
    """
    state, numbers = await durable_folders(env.disk, "state", "numbers")
    row = BridgedRow(env, host, port, note)
    async with trio.open_nursery() as connection:
        connection.start_soon(row.run)
        await row.ready.wait()
        keeper, housekeeping = await _recovered(
            env, row, state, numbers, options.housekeeping, note
        )
        keeper.numbers.on_lost = row.lack
        if housekeeping.unknown or keeper.lost_places:
            row.lack()
        scrubs = ScrubRounds(state, env.wall_us, options.store, row.caches)
        scrubs.on_report = partial(tell_of_scrub, note)
        row.on_give = lambda number: housekeeping.give_image(row.giver(number))
        orderly = False
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keeper.run)
                nursery.start_soon(housekeeping.run)
                nursery.start_soon(tell_time, keeper, row)
                nursery.start_soon(scrubs.run)
                try:
                    yield keeper
                finally:
                    nursery.cancel_scope.cancel()  # first: who may be cancelled is not told anything
                    row.leave()
            orderly = True
        except BaseExceptionGroup as group:
            orderly = group.split(ORDERLY)[1] is None
            raise
        finally:
            if orderly and row.is_attached:
                with trio.CancelScope(shield=True) as scope:  # sim-ok: as in alone.py
                    scope.deadline = trio.current_time() + LAST_SNAPSHOT_SECONDS
                    with suppress(Disconnected):
                        await housekeeping.snapshot(idle_share=0)
        connection.cancel_scope.cancel()


async def _recovered(
    env: Env, row: BridgedRow, state: Disk, numbers: Disk, options: HousekeepingOptions, note: Note
) -> tuple[Keeper, Housekeeping]:
    """With the state of an image, if there is no other; waits until there is one.

    What the disk does not give it may give another time, and an image costs the whole row.
    """
    tries = READ_TRIES
    while True:
        snapshots, folder = Snapshots(state), NumberFolder(numbers)
        image = row.image
        try:
            known = await adopted(state)
            if known is None:
                raise UnreadStateError(f"the disk does not give {NAME}")
            if known != image:
                what = f"{image or 'another row'} took the place of what is known here"
                raise StatelessError(what)
            rare = rare_housekeeping(env, options)
            return await recovered(Keeper, env, row, snapshots, folder, rare)
        except (StatelessError, UnreadStateError) as error:
            note(WARNING, "state_missing error=%s", error)
            tries -= 1
            if isinstance(error, UnreadStateError) and tries > 0:
                await trio.sleep(IMAGE_SECONDS)
                continue
        try:
            taken = await adopt(row.store.read_image, row.store.uuid, snapshots, folder)
            taken = taken and await note_adopted(state, image)
        except Corrupt as error:
            taken = False
            note(WARNING, "image_not_taken error=%s", error)
            row.lack()  # it will be no better next time
        if not taken:
            await trio.sleep(IMAGE_SECONDS)
