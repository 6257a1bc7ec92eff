"""Lanes: exactly once, decided while applying, on every node alike.

A producer (pid, epoch) counts its commands 1, 2, 3 ... in each lane (pid, topic, partition); what
concerns no topic goes in lane (pid, "", 0).  For a command of a lane that has applied up to `last`:

    epoch below the producer's   FENCED                       D2
    seq = last + 1               it is applied                D2
    seq <= last                  the result it had, again     D2, D6
    seq > last + 1               GAP, nothing is done         D3
    lane unknown                 seq has to be 1, else UNKNOWN_PRODUCER    D4

A command that is rejected consumes its seq like any other, and its result is kept (D5).  A higher
epoch in one lane makes the others of the pid start at 1 again; that is noticed in each when it is
used next.  Lanes are bounded in number; the one that applied nothing for longest goes first (D4).

A lane hangs on its topic and goes with it.  So a command that names another topic id than there is
now belongs to a lane that is gone: it is answered CONFLICT and consumes nothing, and the producer
starts at 1 with the new topic.  Neither consumes anything what can have no lane: names that no
topic may have.

Results up to `done`, which the producer says it has, are forgotten, and all but the last 64; where
there are so many lanes that all together would have more than half a million, but the last 8 or more.
"""

from __future__ import annotations

import struct
from typing import Final

from .commands import Head
from .effects import WAITING, Answer, Code, Effect, Reason, Result
from .limits import (
    FORGOTTEN_PER_COMMAND,
    LANE_RESULTS_MAX,
    LANE_RESULTS_MIN,
    PARTITIONS_MAX,
    RESULTS_TOTAL,
)
from .names import is_topic_name
from .state import State
from .values import Lane, LaneKey, Producer, Waiting

# code, reason, count, first, time, position, detail
_RESULT: Final = struct.Struct("<BBIqqqq")
RESULT_BYTES: Final = _RESULT.size


def admit(state: State, head: Head) -> Lane | Result:
    """The lane, if the command is the next in it; else the answer, and nothing is done.

    A lane with last = 0 is a new one, or one that starts again.
    """
    lane = state.lanes.rows.get((head.pid, head.topic, head.partition))
    epoch, topic_id = head.epoch, head.topic_id
    if (
        lane is not None
        and head.seq == lane.last + 1
        and epoch == lane.epoch == state.producers.rows[head.pid].epoch
        and (not topic_id or _is_meant(state, head))
    ):
        return lane
    return _admit_other(state, head, lane)


def _admit_other(state: State, head: Head, lane: Lane | None) -> Lane | Result:
    position = state.position
    if lane is None and not _can_be(head.lane):
        return Result(Code.REFUSED, reason=Reason.BAD_LANE, position=position)
    if head.seq < 1:
        return Result(Code.REFUSED, reason=Reason.BAD_SEQ, position=position)
    if head.topic_id and not _is_meant(state, head):
        topic = state.topics.rows.get(head.topic)
        there = topic.id if topic else 0
        return Result(Code.CONFLICT, reason=Reason.OTHER_TOPIC, detail=there, position=position)
    producer = state.producers.rows.get(head.pid)
    if producer is not None and head.epoch < producer.epoch:
        return Result(Code.FENCED, detail=producer.epoch, position=position)
    if lane is None or lane.epoch != head.epoch:
        if head.seq == 1:
            return Lane(head.epoch, 0, b"", ())
        if lane is None and (producer is None or producer.epoch == head.epoch):
            return Result(Code.UNKNOWN_PRODUCER, position=position)
        return Result(Code.GAP, detail=1, position=position)  # it is known to start again
    if head.seq <= lane.last:
        return remembered(lane, head.seq)
    assert head.seq > lane.last + 1, "the next one was admitted"
    return Result(Code.GAP, detail=lane.last + 1, position=position)


def remembered(lane: Lane, seq: int) -> Result:
    """What became of a seq that was applied."""
    if waiting_ticket(lane, seq) is not None:
        return Result(Code.WAITING, duplicate=True)
    start = len(lane.results) - (lane.last - seq + 1) * RESULT_BYTES
    if start < 0:
        return Result(Code.FORGOTTEN, duplicate=True)
    code, reason, count, first, time, position, detail = _RESULT.unpack_from(lane.results, start)
    return Result(code, first, count, time, position, detail, reason, True)


def waiting_ticket(lane: Lane, seq: int) -> int | None:
    for waiting_seq, ticket in lane.waiting:
        if waiting_seq == seq:
            return ticket
    return None


def record(state: State, lane: Lane, head: Head, result: Result, ticket: int) -> None:
    """The command was applied with this result: its seq is consumed."""
    key = head.pid, head.topic, head.partition
    epoch, last, results, waiting = lane
    kept = head.seq - head.done
    if kept > 1:
        if kept > LANE_RESULTS_MIN:
            share = RESULTS_TOTAL // (len(state.lanes.rows) + 1)
            kept = min(kept, LANE_RESULTS_MAX, max(LANE_RESULTS_MIN, share))
        results = (results + _packed(result))[-kept * RESULT_BYTES :]
    else:  # it waits for one answer at a time
        results = _packed(result)
    if result.code == WAITING:
        waiting = (*waiting, (head.seq, ticket))
    if not last:
        key = _begin(state, head, key)
    now: Lane = tuple.__new__(Lane, (epoch, last + 1, results, waiting))
    lanes = state.lanes
    lanes.renew(key, now)
    if len(lanes.rows) > state.settings.lanes_max:
        _forget_oldest(state)


def settle(
    state: State, ticket: int, batch: Waiting, result: Result, effects: list[Effect]
) -> None:
    """A batch that waited has its final result.  Its lane may have gone, or started again."""
    key = batch.pid, batch.topic, batch.partition
    lane = state.lanes.rows.get(key)
    if lane is not None and (batch.seq, ticket) in lane.waiting:
        waiting = tuple(pair for pair in lane.waiting if pair[1] != ticket)
        results = lane.results
        start = len(results) - (lane.last - batch.seq + 1) * RESULT_BYTES
        if start >= 0:
            results = results[:start] + _packed(result) + results[start + RESULT_BYTES :]
        state.lanes.put(key, Lane(lane.epoch, lane.last, results, waiting))
    effects.append(Answer(batch.pid, batch.topic, batch.partition, batch.seq, result, batch.epoch))


def assume(state: State, head: Head, last: int) -> None:
    """What a lane had applied is lost: it is taken to have come to `last`, whatever the results were."""
    producer = state.producers.rows.get(head.pid)
    if last > 0 and _can_be(head.lane) and (producer is None or producer.epoch <= head.epoch):
        key = _begin(state, head, head.lane)
        state.lanes.renew(key, Lane(head.epoch, last, b"", ()))


def drop_of_topic(state: State, name: str) -> None:
    for key in state.lanes_of.pop(name, {}):
        _drop(state, key)


def derive(state: State) -> None:
    """Builds the index from the tables."""
    state.lanes_of = {}
    for key in state.lanes.rows:
        state.lanes_of.setdefault(key[1], {})[key] = None


def _is_meant(state: State, head: Head) -> bool:
    """Whether the topic that the lane hangs on is the one whose id the head gives."""
    if not head.topic:
        return True  # a topic that its command names otherwise
    topic = state.topics.rows.get(head.topic)
    return topic is not None and topic.id == head.topic_id


def _can_be(key: LaneKey) -> bool:
    _, name, partition = key
    if not name:
        return partition == 0
    return partition < PARTITIONS_MAX and is_topic_name(name)


def _begin(state: State, head: Head, key: LaneKey) -> LaneKey:
    producer = state.producers.rows.get(head.pid)
    lanes = producer.lanes if producer else 0
    if key not in state.lanes.rows:
        lanes += 1
        topic = state.topics.rows.get(head.topic)
        if topic is not None:  # one string for all lanes of the topic
            key = head.pid, topic.name, head.partition
        state.lanes_of.setdefault(key[1], {})[key] = None
    state.producers.put(head.pid, Producer(head.epoch, lanes))
    return key


def _forget_oldest(state: State) -> None:
    for _ in range(min(FORGOTTEN_PER_COMMAND, len(state.lanes) - state.settings.lanes_max)):
        key = state.lanes.oldest()
        of_topic = state.lanes_of[key[1]]
        del of_topic[key]
        if not of_topic:
            del state.lanes_of[key[1]]
        _drop(state, key)


def _drop(state: State, key: LaneKey) -> None:
    state.lanes.drop(key)
    producer = state.producers.rows[key[0]]
    if producer.lanes > 1:
        state.producers.put(key[0], producer._replace(lanes=producer.lanes - 1))
    else:
        state.producers.drop(key[0])


def _packed(result: Result) -> bytes:
    code, first, count, time, position, detail, reason, _ = result
    return _RESULT.pack(code, reason, count, first, time, position, detail)
