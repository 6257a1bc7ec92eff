"""Aging: what falls due when the time of the row moves.

Only an item moves the time of the row, so everything here happens at an item, before its commands,
on every node alike.  Whoever wants it to happen while nothing else does submits a clock command
when `next_due` says so.

At most 64 partitions are pruned with an item, those longest due first; the rest with the next.
Those that a new policy has not reached yet (sweeping.py) wait until it has.
"""

from __future__ import annotations

from . import runs, staging
from .effects import Effect
from .limits import PARTITIONS_PER_ITEM
from .numbering import note_age, prune, too_old_at
from .state import State
from .sweeping import is_unswept
from .values import PARTITION_BITS, PARTITION_MASK
from .waiting import fill


def age(state: State, effects: list[Effect]) -> None:
    """Drops what the time of the row says is too old, and numbers those who waited for the room."""
    if state.stages.rows:
        staging.expire(state, PARTITIONS_PER_ITEM)
    if not state.due.at:
        return
    budget = PARTITIONS_PER_ITEM
    while budget and (noted := state.due.first()) is not None and noted[0] <= state.row_time:
        if _is_really(state, noted):
            _prune_old(state, noted[1], effects)
            budget -= 1


def next_due(state: State) -> int | None:
    """The earliest time of the row at which an item would drop something; None: never."""
    if state.sweeps.rows:
        return state.row_time
    expiry = staging.expires_at(state) if state.stages.rows else None
    if not state.due.at:
        return expiry
    while (noted := state.due.first()) is not None:
        if _is_really(state, noted):
            return noted[0] if expiry is None else min(noted[0], expiry)
    return expiry


def _is_really(state: State, noted: tuple[int, int]) -> bool:
    """Whether the partition is due when it was noted to be; if it is later, that is noted."""
    time, key = noted
    if is_unswept(state, key):
        state.due.drop(key)  # it is noted again when the sweep comes to it
        return False
    topic = state.topic_of(key >> PARTITION_BITS)
    assert topic is not None, "a deleted topic has no wake-up"
    really = too_old_at(topic.policy, state.partitions.rows[key])
    if really == time:
        return True
    if really is None:
        state.due.drop(key)
    else:
        assert really > time, "it was noted too late"
        state.due.put(key, really)
    return False


def _prune_old(state: State, key: int, effects: list[Effect]) -> None:
    topic = state.topic_of(key >> PARTITION_BITS)
    assert topic is not None, "a deleted topic has no wake-up"
    partition = key & PARTITION_MASK
    now = state.partitions.rows[key]
    old = state.row_time - topic.policy.max_age
    first = runs.first_after_time(now.chunks, now.tail, old)
    pruned = prune(state, topic, partition, now, first or now.last + 1, effects)
    assert pruned.first > now.first, "what is due moves something"
    state.due.drop(key)
    note_age(state, topic, partition, pruned)
    if key in state.queues:
        fill(state, topic, partition, effects)
