"""Waiting: batches that are in the row and have no numbers yet, because their partition is full.

With `when_full = block` or `slot` a batch that finds no room consumes its seq and waits, in the
state, so nobody has to send it again.  Whatever makes room, be it pruning, age, a new policy or a
batch that is withdrawn, numbers those who wait, in the very item, first come first served:

    full    | a  b  c  wait         prune makes room for two:       a, b are numbered
                                                                    | c  waits, d comes behind it

The first of the queue decides: a smaller batch behind it does not slip through.  When its turn has
come a batch may be refused after all: its id is known by then, or another number is the last one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from . import ids, lanes
from .effects import ORDERED, Code, Effect, Reason, Result
from .limits import LANE_WAITING_MAX
from .numbering import append
from .policies import WhenFull, has_room, too_large
from .state import EMPTY, State
from .values import Lane, Topic, Waiting


def number(
    state: State,
    topic: Topic,
    partition: int,
    count: int,
    size: int,
    time: int,
    named: Sequence[bytes],
    expect_last: int,
    ticket: int,
    effects: list[Effect],
) -> Result | None:
    """Numbers a batch whose turn it is, or says why it never gets any; None: there is no room."""
    policy = topic.policy
    if named or expect_last >= 0 or policy.when_full or policy.max_bytes:
        final = _final(state, topic, partition, count, size, named, expect_last)
        if final is not None:
            return final
        now = state.partitions.rows.get(topic.key(partition), EMPTY)
        if not has_room(policy, now, count, size):
            return None
        if expect_last >= 0 and expect_last != now.last:
            return _other_last(state, now.last)
    first, time = append(state, topic, partition, count, size, time, ticket, effects)
    if named:
        ids.remember(state, topic, partition, first, time, named)
    result: Result = tuple.__new__(  # past its constructor, see commands.py
        Result, (ORDERED, first, count, time, state.position, 0, 0, False)
    )
    return result


def no_room(state: State, topic: Topic, batch: Waiting, ticket: int, lane: Lane) -> Result:
    """What becomes of a batch that cannot be numbered now: FULL, or it waits."""
    policy = topic.policy
    final = _final(
        state, topic, batch.partition, batch.entries, batch.size, batch.ids, batch.expect_last
    )
    if final is not None:
        return final
    if policy.when_full == WhenFull.REJECT:
        return Result(Code.FULL, position=state.position)
    limit = 1 if policy.when_full == WhenFull.SLOT else LANE_WAITING_MAX
    if len(lane.waiting) < limit:
        if len(state.waiting) < state.settings.waiting_max:
            state.waiting.put(ticket, batch)
            state.queues.setdefault(topic.key(batch.partition), OrderedDict())[ticket] = None
            return Result(Code.WAITING, count=batch.entries, position=state.position)
        limit = state.settings.waiting_max
    return Result(Code.FULL, reason=Reason.TOO_MANY_WAITING, detail=limit, position=state.position)


def fill(state: State, topic: Topic, partition: int, effects: list[Effect]) -> None:
    """There may be room: numbers those who wait, as many as fit, and as this item may."""
    key = topic.key(partition)
    queue = state.queues.get(key)
    while queue:
        if not state.budget:
            later(state, topic, partition)
            return
        ticket = next(iter(queue))
        batch = state.waiting.rows[ticket]
        result = number(
            state,
            topic,
            partition,
            batch.entries,
            batch.size,
            batch.time,
            batch.ids,
            batch.expect_last,
            ticket,
            effects,
        )
        if result is None:
            return
        state.budget -= 1
        _leave(state, key, ticket)
        lanes.settle(state, ticket, batch, result, effects)


def later(state: State, topic: Topic, partition: int) -> None:
    """This partition and those after it are to be looked at, see sweeping.py."""
    at = state.sweeps.rows.get(topic.id, partition)
    state.sweeps.put(topic.id, min(at, partition))


def withdraw(state: State, ticket: int, effects: list[Effect]) -> None:
    """Its producer gave up; the batch behind it may fit."""
    batch = state.waiting.rows[ticket]
    topic = state.topics.rows[batch.topic]
    _leave(state, topic.key(batch.partition), ticket)
    lanes.settle(state, ticket, batch, Result(Code.WITHDRAWN, position=state.position), effects)
    fill(state, topic, batch.partition, effects)


def drop_of_topic(state: State, topic: Topic, effects: list[Effect]) -> None:
    """The topic is deleted: those who wait are told that there is no such topic."""
    for partition in range(state.widths.get(topic.id, 0)):
        for ticket in state.queues.pop(topic.key(partition), ()):
            batch = state.waiting.drop(ticket)
            result = Result(Code.NOT_FOUND, position=state.position)
            lanes.settle(state, ticket, batch, result, effects)


def derive(state: State) -> None:
    """Builds the index from the table: tickets grow with the row, so they are the order."""
    state.queues = {}
    for ticket in sorted(state.waiting.rows):
        batch = state.waiting.rows[ticket]
        key = state.topics.rows[batch.topic].key(batch.partition)
        state.queues.setdefault(key, OrderedDict())[ticket] = None


def _leave(state: State, key: int, ticket: int) -> None:
    state.waiting.drop(ticket)
    queue = state.queues[key]
    del queue[ticket]
    if not queue:
        del state.queues[key]


def _final(
    state: State,
    topic: Topic,
    partition: int,
    count: int,
    size: int,
    named: Sequence[bytes],
    expect_last: int,
) -> Result | None:
    """An answer that no room and no wait can change."""
    if named and (known := ids.look(state, topic, partition, named)) is not None:
        return known
    if limit := too_large(topic.policy, count, size):
        return Result(Code.REFUSED, reason=Reason.TOO_LARGE, detail=limit, position=state.position)
    if expect_last >= 0:
        last = state.partitions.rows.get(topic.key(partition), EMPTY).last
        if expect_last < last:  # numbers never go back
            return _other_last(state, last)
    return None


def _other_last(state: State, last: int) -> Result:
    return Result(Code.CONFLICT, reason=Reason.OTHER_LAST, detail=last, position=state.position)
