"""Rebuilding: what can be made again of a node's folder is made again from the segments of its row.

    snapshots      none leads to the end of the row      a state is made of what is left (remaking.py)
    index          of numbers, a file lacks or is hurt   the items are counted again
    index          of positions                          as at every start

Nothing of the row is changed but what every start writes.  A snapshot of what was made is put beside
it, which the next start goes on from; a state that had to be guessed in part gets a new lineage then.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Final

import attrs

from . import restored
from .alone import Options, StatelessError, durable_folders, recovered
from .capture import capture
from .env import Disk, Env
from .errors import Corrupt, DiskFailed, Full
from .housekeeping import HousekeepingOptions
from .keeper import Keeper
from .lonerow import LoneRow
from .numberfile import split_key
from .numberfolder import NumberFolder
from .numbers import Numbers
from .proof import prover
from .remains import Remains
from .remaking import Remaking
from .snapshots import Identity, Snapshots
from .state import State
from .upkeep import unknown_segments

NAMED_MAX: Final = 10  # of a list, in a sentence


@attrs.frozen
class Rebuilt:
    """What was done, and what it costs, in sentences."""

    position: int
    made: tuple[str, ...] = ()  # empty: nothing lacked
    lost: tuple[str, ...] = ()


async def rebuild(env: Env, options: Options) -> Rebuilt:
    """Of a folder whose node does not run.

    Raises:
        Conflict: its node runs, or the row belongs to a cluster of several.
        Corrupt: it cannot be rebuilt, says why; or there is no row.
        Full: there is no room for the snapshot.
        DiskFailed: a write or a sync failed, or the disk does not give what is there.
    """
    folders = await durable_folders(env.disk, "row", "state", "numbers")
    snapshots, folder = Snapshots(folders[1]), NumberFolder(folders[2])
    prove = prover(folders[0], snapshots, folder)
    row = await LoneRow.open(folders[0], env, options.store, prove=prove)
    try:
        if row.store.lost is not None:
            raise Corrupt(
                f"{row.store.lost}; that cannot be made again: restore a backup, or export the "
                "topics and import them where the row begins anew"
            )
        done = await _rebuild(env, folders, row, snapshots, options.housekeeping)
        await row.close()
        return done
    finally:
        row.abandon()


async def _rebuild(
    env: Env,
    folders: list[Disk],
    row: LoneRow,
    snapshots: Snapshots,
    options: HousekeepingOptions,
) -> Rebuilt:
    store = row.store
    known, lacking = await _ordinary(env, row, snapshots, NumberFolder(folders[2]), options)
    folder = NumberFolder(folders[2])
    files = await folder.load(store.uuid, store.position, store.formers, keep=True)
    whole = [file for file in files if file.is_whole()]
    hurt = [file.cover for file in files if file not in whole]
    again = [cover for cover in hurt if cover.after + 1 >= store.floor]
    lost = [
        f"where some entries lie that positions {cover.after + 1:,} to {cover.upto:,} numbered: the "
        "file of the index is damaged, and the row does not go back so far"
        for cover in hurt
        if cover not in again
    ]
    if known is not None and not lacking and not again:
        return Rebuilt(store.position, lost=tuple(lost))

    numbers = Numbers(store.uuid)
    holes = numbers.load(whole, store.floor - 1)
    unknown = unknown_segments(holes, store.segments(), numbers.installed)
    remaking = Remaking(store, Remains(whole), numbers)
    await remaking.all()
    if unknown:
        segments = _named([f"{number:,}" for number in sorted(unknown)])
        lost.append(
            f"where entries lie whose bodies are in segments {segments}: no file of the index is "
            "left, and the row does not go back so far"
        )
    made, state = [], remaking.state
    if known is None:
        entries = sum(now.last + 1 - now.first for now in state.partitions.rows.values())
        made.append(
            f"a state up to position {store.position:,}, with {entries:,} entries in "
            f"{len(state.topics):,} topics"
        )
        lost += _lost(remaking, store.floor)
        await _note(folders[0])
    elif again or len(unknown) < len(lacking):
        made.append(f"what lacked of the index of numbers, from position {store.floor:,} on")
        if wrong := _differ(known, state):
            raise Corrupt(
                f"the index of numbers cannot be made again: {wrong}; what it lacks stays unread"
            )
        state = known
    if made:
        await _write(state, numbers, row, snapshots)
        for cover in again:
            await folder.forget(cover.segment)
    return Rebuilt(store.position, tuple(made), tuple(lost))


async def _ordinary(
    env: Env,
    row: LoneRow,
    snapshots: Snapshots,
    folder: NumberFolder,
    options: HousekeepingOptions,
) -> tuple[State | None, Collection[int]]:
    """The state as every start makes it, and in which segments its index lacks something."""
    try:
        keeper, housekeeping = await recovered(Keeper, env, row, snapshots, folder, options)
    except StatelessError:
        return None, ()
    if row.broken is not None:
        return None, ()
    return keeper.state, housekeeping.unknown


def _differ(known: State, made: State) -> str:
    """Where they count differently; empty: nowhere."""
    for key, now in known.partitions.rows.items():
        last = made.partitions.rows[key].last if key in made.partitions.rows else 0
        if now.last != last and now.first <= now.last:
            topic_id, partition = split_key(key)
            return (
                f"partition {partition} of topic {known.names[topic_id]!r} ends with entry "
                f"{now.last:,}, and counted by what is left it ends with {last:,}"
            )
    return ""


def _lost(remaking: Remaking, floor: int) -> list[str]:
    """What cannot be made again of a state."""
    found, lost = remaking.findings, []
    if floor > 1:
        lost.append(
            "the older part of the row is gone: topics without an entry in what is left are lost, "
            "and so are batches that waited or were staged in it; entries that were pruned, and "
            "not yet deleted, are there again"
        )
    if found.assumed:
        lost.append(
            f"the policies of {_named(sorted(found.assumed))}: they have none now, unless one was "
            "set later; `duckrow topic set` sets them again"
        )
    if found.unnamed:
        lost.append(f"{len(found.unnamed):,} topics whose names stand nowhere any more")
    if found.passed:
        positions = _named([f"{position:,}" for position in found.passed])
        lost.append(
            f"what the damaged items at positions {positions} did; if entries among them are in no "
            "index of numbers, those after them have lower numbers now"
        )
    if found.guessed and floor > 1:
        lost.append(
            f"the proof of the newest numbers: {found.guessed:,} batches stand in no index of "
            "numbers and were counted again; one that was sent twice, or was refused by a policy "
            "that is lost, counts"
        )
    lost.append(
        "who has read this row before gets `Conflict` once, since it begins a new lineage: it looks "
        "again at what is there, and goes on"
    )
    return lost


def _named(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")


async def _note(of_row: Disk) -> None:
    """The next start begins a new lineage."""
    try:
        await restored.note(of_row)
    except OSError as error:
        raise DiskFailed(f"the note {restored.NAME} could not be written: {error}") from error


async def _write(state: State, numbers: Numbers, row: LoneRow, snapshots: Snapshots) -> None:
    """
    Raises:
        Full, DiskFailed: nothing was changed.
    """
    store = row.store
    lineage = state.view.lineage if state.view is not None else 0
    digest = await store.digest_of(store.position)
    identity = Identity(store.uuid, lineage, store.position, digest)
    chunks = chain((("state", chunk) for chunk in capture(state)), numbers.capture())
    if not await snapshots.write(identity, chunks, store.sync, idle_share=0):
        raise Full(
            "there is no room for a snapshot of what was made again: make some, and try again"
        )
