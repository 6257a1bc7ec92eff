"""Numbering: entries get their numbers 1, 2, 3 ... here, and the oldest ones go here.

Nothing is done for each entry: a batch is a count, a size and a time.  What is left of it once it
has its numbers is a run (runs.py), and pruning goes by runs:

    runs     1..40 | 41..60 | 61..90         prune up to 45:
                     ▲ first = 41    ──►     41..60 | 61..90     first = 46, bytes as before

so a run counts with all its bytes until its last entry has gone.
"""

from __future__ import annotations

from . import runs
from .effects import Appended, Effect, Pruned
from .limits import RUNS_MAX, RUNS_MIN, RUNS_TOTAL
from .policies import DEFAULT, Policy, whole_spans
from .rowtime import entry_time
from .state import EMPTY, State
from .values import COMMAND_BITS, COMMAND_MASK, PARTITION_BITS, PARTITION_MASK, Partition, Topic


def append(
    state: State,
    topic: Topic,
    partition: int,
    count: int,
    size: int,
    time: int,
    ticket: int,
    effects: list[Effect],
) -> tuple[int, int]:
    """Numbers a batch for which there is room, and gives (first number, time of its entries)."""
    topic_id, name, policy = topic
    key = topic_id << PARTITION_BITS | partition
    kept, last, latest, total, chunks, tail = state.partitions.rows.get(key, EMPTY)
    if not last:
        widen(state, key)
    first = last + 1
    last += count
    total += size
    time = entry_time(state, latest, time)
    tail += runs.pack(first, size, time)
    if len(tail) == runs.CHUNK_BYTES:
        chunks, tail = _sealed(state, chunks, tail), b""
    # These two past their constructors, which would cost as much as all the rest.
    new: Partition = tuple.__new__(Partition, (kept, last, time, total, chunks, tail))
    state.partitions.put(key, new)
    body, index = ticket >> COMMAND_BITS, ticket & COMMAND_MASK
    effect: Appended = tuple.__new__(
        Appended, (topic_id, name, partition, first, count, time, size, body, index)
    )
    effects.append(effect)
    if policy is not DEFAULT:
        hold_to_limits(state, topic, partition, new, effects)
    return first, time


def widen(state: State, key: int) -> None:
    """Something is written to this partition: whoever goes over all of the topic has to come to it."""
    topic_id, partition = key >> PARTITION_BITS, key & PARTITION_MASK
    state.widths[topic_id] = max(state.widths.get(topic_id, 0), partition + 1)


def hold_to_limits(
    state: State, topic: Topic, partition: int, now: Partition, effects: list[Effect]
) -> None:
    """After entries or a policy came: drops what is too much, and notes when the rest is too old."""
    policy = topic.policy
    if not policy.when_full:
        first = now.first
        if policy.max_entries:
            first = max(first, now.last + 1 - policy.max_entries)
        if policy.max_bytes and now.size > policy.max_bytes:
            excess = now.size - policy.max_bytes
            within = runs.first_after_bytes(now.chunks, now.tail, excess)
            first = max(first, now.last + 1 if within is None else within)
        if first > now.first:
            now = prune(state, topic, partition, now, first, effects)
    if policy.max_age:
        note_age(state, topic, partition, now)


def prune(
    state: State, topic: Topic, partition: int, now: Partition, first: int, effects: list[Effect]
) -> Partition:
    """Entries below `first` go, as far as whole spans of the archive allow."""
    assert first <= now.last + 1, f"{first} is past the end, {now.last}"
    first = whole_spans(topic.policy, first)
    if first <= now.first:
        return now
    _, last, time, size, chunks, tail = now
    if first > last:
        size, chunks, tail = 0, (), b""
    else:
        chunks, tail, dead = runs.without(chunks, tail, first)
        size -= dead
    now = Partition(first, last, time, size, chunks, tail)
    state.partitions.put(topic.key(partition), now)
    effects.append(Pruned(topic.id, topic.name, partition, first))
    return now


def note_age(state: State, topic: Topic, partition: int, now: Partition) -> None:
    """Sees to it that the partition is looked at when its oldest run is too old, or before."""
    key = topic.key(partition)
    if key not in state.due.at and (due := too_old_at(topic.policy, now)) is not None:
        state.due.put(key, due)


def too_old_at(policy: Policy, now: Partition) -> int | None:
    """The time of the row at which age moves `first`; None: never, as things are."""
    if not policy.max_age or now.first > now.last:
        return None
    if not policy.archive:
        return runs.oldest(now.chunks, now.tail)[2] + policy.max_age
    end = whole_spans(policy, now.first) + policy.archive - 1  # of the span that goes next
    if end > now.last:
        return None
    return runs.run_of(now.chunks, now.tail, end)[2] + policy.max_age


def _sealed(state: State, chunks: tuple[bytes, ...], chunk: bytes) -> tuple[bytes, ...]:
    chunks = (*chunks, chunk)
    limit = min(RUNS_MAX, max(RUNS_MIN, RUNS_TOTAL // max(1, len(state.partitions))))
    if len(chunks) * runs.CHUNK_RUNS > limit:
        chunks = runs.thinned(chunks, limit)
    return chunks
