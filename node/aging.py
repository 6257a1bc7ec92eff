"""Aging: what falls due when the time of the row moves.

Only an item moves the time of the row, so everything here happens at an item, before its commands,
on every node alike.  Whoever wants it to happen while nothing else does submits a clock command
when `next_due` says so.

At most 1,000 partitions are pruned with an item, those longest due first; the rest with the next.
"""

from __future__ import annotations

from . import runs, staging
from .effects import Effect
from .limits import PRUNED_TOPICS_PER_ITEM
from .numbering import note_age, prune, too_old_at
from .state import State
from .values import PARTITION_BITS
from .waiting import fill

PARTITION_MASK = (1 << PARTITION_BITS) - 1


def age(state: State, effects: list[Effect]) -> None:
    """Drops what the time of the row says is too old, and numbers those who waited for the room."""
    staging.expire(state, PRUNED_TOPICS_PER_ITEM)
    budget = PRUNED_TOPICS_PER_ITEM
    while budget and (due := _first_due(state)) is not None and due[0] <= state.row_time:
        key = due[1]
        topic = state.topic_of(key >> PARTITION_BITS)
        assert topic is not None, "a deleted topic has no wake-up"
        partition = key & PARTITION_MASK
        now = state.partitions.rows[key]
        first = runs.first_after_time(now.chunks, now.tail, state.row_time - topic.policy.max_age)
        pruned = prune(
            state, topic, partition, now, now.last + 1 if first is None else first, effects
        )
        assert pruned.first > now.first, "what is due moves something"
        state.due.drop(key)
        note_age(state, topic, partition, pruned)
        fill(state, topic, partition, effects)
        budget -= 1


def next_due(state: State) -> int | None:
    """The earliest time of the row at which an item would drop something; None: never."""
    due = _first_due(state)
    times = [
        time for time in (due[0] if due else None, staging.expires_at(state)) if time is not None
    ]
    return min(times, default=None)


def _first_due(state: State) -> tuple[int, int] | None:
    """The partition whose oldest run is too old first, and when, after looking again."""
    while (noted := state.due.first()) is not None:
        key = noted[1]
        topic = state.topic_of(key >> PARTITION_BITS)
        assert topic is not None, "a deleted topic has no wake-up"
        really = too_old_at(topic.policy, state.partitions.rows[key])
        if really == noted[0]:
            return noted
        if really is None:
            state.due.drop(key)
        else:
            assert really > noted[0], "it was noted too late"
            state.due.put(key, really)
    return None
