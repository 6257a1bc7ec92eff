"""A node alone: a cluster of one, inside the process that opens it.

    async with open_node(machine("shop"), Options()) as node:
        ...

Three folders lie side by side: `row`, which is the truth; `state`, with the snapshots; and
`numbers`, with the index.  The last two can be lost, or damaged, and are made again from the row,
as long as the row reaches back far enough.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

import attrs
import trio

from . import keptplaces, pins
from .capture import restore
from .env import Disk, Env
from .errors import Corrupt, DiskFailed, NotFound, UnknownVersion
from .housekeeping import Housekeeping, HousekeepingOptions
from .keeper import Keeper
from .keptrow import KeptRow
from .lonerow import LoneRow
from .numberfile import NumberFile
from .numberfolder import NumberFolder
from .numbergrowing import restored
from .numbers import Numbers
from .proof import prover
from .rare import rare_cache, rare_housekeeping, rare_store
from .snapshots import Snapshot, Snapshots
from .state import State
from .storeoptions import StoreOptions
from .upkeep import unknown_segments

# What ends a node in order: a signal, say, or rules that only a newer program knows.
ORDERLY = (trio.Cancelled, UnknownVersion)

KeeperT = TypeVar("KeeperT", bound=Keeper)


@attrs.frozen(kw_only=True)
class Options:
    store: StoreOptions = attrs.field(factory=StoreOptions)
    housekeeping: HousekeepingOptions = attrs.field(factory=HousekeepingOptions)


_STATELESS: Final = (
    "restore a backup, or make again what the row still tells (`duckrow doctor --rebuild`); a "
    "machine of a cluster may start with an empty folder"
)


class StatelessError(Corrupt):
    """Raised when no snapshot is there that the row leads on from."""


class UnreadStateError(DiskFailed):
    """Raised when the disk does not give a snapshot that is needed: another try may read it."""


class LoneKeeper(Keeper):
    """The keeper of a node that has its row itself."""

    row: LoneRow


@asynccontextmanager
async def open_node(env: Env, options: Options) -> AsyncIterator[LoneKeeper]:
    """Recovers, serves until the block ends, and closes: files and lock are free, however it ends.

    It closes in order, so that the next start is a quick one, when the block comes to its end or is
    cancelled.  When the block or a task of the node raises, it is left as a kill would leave it.

    Raises:
        Conflict: another process has the folder.
        Corrupt: the state cannot be made from what is there; says what is missing.
        DiskFailed: in the group of the nursery; the process has to end.
    """
    folders = await durable_folders(env.disk, "row", "state", "numbers")
    snapshots, folder = Snapshots(folders[1]), NumberFolder(folders[2])
    prove = prover(folders[0], snapshots, folder)
    row = await LoneRow.open(folders[0], env, rare_store(env, options.store), prove=prove)
    try:
        rare = rare_housekeeping(env, options.housekeeping)
        keeper, housekeeping = await recovered(LoneKeeper, env, row, snapshots, folder, rare)
        orderly = False
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(row.run)
                nursery.start_soon(keeper.run)
                nursery.start_soon(housekeeping.run)
                yield keeper
                nursery.cancel_scope.cancel()
            orderly = True
        except trio.Cancelled:
            orderly = True
            raise
        except BaseExceptionGroup as group:
            orderly = group.split(ORDERLY)[1] is None
            raise
        finally:
            if orderly:
                with trio.CancelScope(shield=True):  # sim-ok: the dead write nothing
                    await housekeeping.snapshot(idle_share=0)  # nobody is left to be held up
                    await row.close()
    finally:
        row.abandon()


async def durable_folders(disk: Disk, *names: str) -> list[Disk]:
    """Made if they are not there, with names that no power loss takes: neither theirs, with all that
    was synced in them, nor those that a process gave to its files, and then died.

    Raises:
        DiskFailed.
    """
    try:
        folders = [await disk.folder(name) for name in names]
        for folder in (disk, *folders):
            await folder.sync_names()
    except OSError as error:
        raise DiskFailed(f"the folders of the node could not be made: {error}") from error
    return folders


async def recovered(
    sort: type[KeeperT],
    env: Env,
    row: KeptRow,
    snapshots: Snapshots,
    folder: NumberFolder,
    options: HousekeepingOptions,
) -> tuple[KeeperT, Housekeeping]:
    """The keeper, caught up; and who counts what it had to apply again."""
    store = row.store
    keep = row.broken is not None
    beginnings = await _beginnings(row, snapshots)
    files = await folder.load(store.uuid, store.position, store.formers, keep=keep)
    if beginnings and (row.stages or (store.formers and not keep)):
        files = await _proven(files, max(snapshots.whole, default=0), folder)
    best: tuple[State, Numbers, frozenset[int]] | None = None
    begun: Snapshot | None = None
    for snapshot in beginnings:
        state, chunks = State(), []
        if snapshot is not None:
            try:
                state = restore(snapshot.of("state"))
            except Corrupt as error:
                snapshots.refused.append(f"snapshot at {snapshot.identity.position}: {error}")
                snapshots.whole.remove(snapshot.identity.position)
                continue
            chunks = [chunk for chunk in snapshot.chunks if chunk[0] != "state"]
        numbers = Numbers(store.uuid)
        numbers.kept = keptplaces.of_waiting(keptplaces.restored(chunks), state)
        holes = numbers.load([*files, *restored(chunks)], state.position)
        lost = unknown_segments(holes, store.segments(), numbers.installed)
        if best is None or (
            # To know more numbers is not worth to end earlier, where the row is damaged in between.
            len(lost) < len(best[2]) and await row.leads(state.position, best[0].position)
        ):
            best, begun = (state, numbers, lost), snapshot
        if not lost:
            break
    if best is None:
        # What the disk does not give may be whole: another try, or another cable, may help.
        kind = UnreadStateError if snapshots.unread else StatelessError
        todo = "" if snapshots.unread else f"; {_STATELESS}"
        raise kind(
            f"the row begins at position {store.floor}, and no snapshot of the state reaches that "
            f"far: {'; '.join(snapshots.refused) or 'there is none'}{todo}"
        )
    state, numbers, lost = best
    row.follow(state.position)
    keeper = sort(row, state, numbers, rng=env.rng, wall_us=env.wall_us, cache=rare_cache(env))
    housekeeping = Housekeeping(keeper, snapshots, folder, options, lost)
    if begun is not None:
        keeper.pins.restore(begun.of(pins.CHUNK), begun.of(pins.ARCHIVE))
    housekeeping.resume()
    await keeper.catch_up()
    numbers.settle(lambda topic_id, partition: _first(state, topic_id, partition))
    if lost and _knows_all(keeper):
        housekeeping.unknown = ()  # all that was lost is dead
    there = {segment.number for segment in store.segments()}
    for number in numbers.installed:
        if number not in there and not numbers.usage.holders(number):
            await folder.drop(numbers, number)  # the store dropped it, and then the process ended
    return keeper, housekeeping


def _knows_all(keeper: Keeper) -> bool:
    """Whether the index says of each entry that is there, or kept for an archive, where it lies.

    A loss of power may bring a segment back that had been dropped, but not its file of the index.
    """
    state, numbers, kept = keeper.state, keeper.numbers, keeper.pins.kept
    return all(
        numbers.is_whole(
            topic.id, partition, kept(topic, partition), state.partition(topic.id, partition).last
        )
        for topic in state.topics.rows.values()
        for partition in range(topic.policy.partitions)
    )


async def _proven(
    files: Iterable[NumberFile], position: int, folder: NumberFolder
) -> list[NumberFile]:
    """Those that speak of nothing behind the newest snapshot: it has the rest, and the row all that follows.

    Of that nobody knows whether it still lies where it lay: the bridge may have lost the end of the row, and
    got it again from other machines.  Where a node goes on alone, the row has had another name since.
    """
    proven = []
    for file in files:
        if file.cover.upto <= position:
            proven.append(file)
        else:
            await folder.forget(file.cover.segment)
    return proven


async def _beginnings(row: KeptRow, snapshots: Snapshots) -> list[Snapshot | None]:
    """From where the rest of the row can be applied, the quickest first; None: from its first item."""
    found: list[Snapshot | None] = []
    end = row.store.position
    for position in await snapshots.positions():
        if position > end and row.broken is None:
            await snapshots.forget(position)  # of another row: this one will come to its position
    for snapshot in await snapshots.load(end):
        position = snapshot.identity.position
        if position < row.store.floor - 1:
            snapshots.refused.append(
                f"snapshot at {position}: the row goes on behind {row.store.floor - 1}"
            )
            continue
        try:
            why = await _misfit(row, snapshot)
        except Corrupt as error:
            # The row is damaged there: nobody can tell whether they fit, so it is not used.
            snapshots.refused.append(f"snapshot at {position}: {error}")
            continue
        if why:
            snapshots.refused.append(f"snapshot at {position}: {why}")
            await snapshots.forget(position)
        else:
            found.append(snapshot)
            snapshots.whole.insert(0, position)
    if row.store.floor == 1:
        found.append(None)
    return found


async def _misfit(row: KeptRow, snapshot: Snapshot) -> str:
    """Why a whole snapshot does not belong to this row; empty if it does.

    Raises:
        Corrupt: damage took what would tell.
    """
    store, identity = row.store, snapshot.identity
    if identity.store not in (store.uuid, *store.formers):
        return f"it belongs to store {identity.store.hex()}, and this is {store.uuid.hex()}"
    try:
        digest = await store.digest_of(identity.position)
    except NotFound:
        return "the row does not reach back to it"
    if digest != identity.digest:
        return "the row has another digest at its position"
    # The row may have lost its end since, and got it again from other machines: items are the same.
    with suppress(NotFound):  # an image stands for that item, or it was dropped since
        if snapshot.place not in (0, await store.place_of(identity.position)):
            return "what is there lies elsewhere now"
    return ""


def _first(state: State, topic_id: int, partition: int) -> int | None:
    if state.topic_of(topic_id) is None:
        return None
    return state.partition(topic_id, partition).first
