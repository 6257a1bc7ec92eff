"""Staging: batches that are in the row without numbers until a commit numbers them all at once.

    stage w 7 ──► (40, 0)      stage w 7 ──► (41, 3)      commit w 7 [(40, 0), (41, 3)]
                                                          all in this order, or none; and once

Tasks of a job stage what they made and tell their driver the names, (position, index), which the
driver commits.  A task that was run twice has staged twice; the commit names one of them.  For
each writer the last batch that was committed is remembered, so committing it again answers the
same, and an older one is refused.  A commit drops what the writer staged up to that batch and did
not use.  Stages of a job that died expire with the time of the row.

A commit does not wait for room: it is answered FULL, keeps the stages, and may be tried again.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from .commands import Commit, Head, Stage
from .effects import Code, Effect, Reason, Result
from .limits import BUNDLE_COMMANDS_MAX, FORGOTTEN_PER_COMMAND, PARTITIONS_PER_ITEM
from .numbering import append
from .policies import has_room, too_large
from .state import EMPTY, State
from .topics import for_batch
from .values import Lane, Staged, Topic, Writer, index_of, ticket_of


def stage(state: State, head: Head, ticket: int, lane: Lane, effects: list[Effect]) -> Result:
    partitions, count, _, _, writer, batch, task = Stage.of(head)
    if len(state.stages) >= (limit := state.settings.stages_max):
        return Result(
            Code.FULL, reason=Reason.TOO_MANY_STAGES, detail=limit, position=state.position
        )
    topic = for_batch(state, head, partitions, ticket, effects)
    if isinstance(topic, Result):
        return topic
    if limit := too_large(topic.policy, count, head.length):
        return Result(Code.REFUSED, reason=Reason.TOO_LARGE, detail=limit, position=state.position)
    since = state.row_time or head.time  # until the row has a time, the client's is all there is
    state.stages.put(
        ticket,
        Staged(
            topic.name,
            topic.id,
            head.partition,
            count,
            head.length,
            head.time,
            writer,
            batch,
            task,
            since,
        ),
    )
    insort(state.stages_of.setdefault(writer, []), (batch, ticket))
    return Result(
        Code.STAGED, count=count, time=head.time, position=state.position, detail=index_of(ticket)
    )


def commit(state: State, head: Head, ticket: int, lane: Lane, effects: list[Effect]) -> Result:
    """Answers with the number of entries; where each stage went, its effect tells."""
    writer, batch, names = Commit.of(head)
    before = state.writers.rows.get(writer)
    if before is not None and batch == before.batch:
        return Result(Code.ORDERED, count=before.entries, position=before.position, duplicate=True)
    if before is not None and batch < before.batch:
        return _refused(state, Reason.BATCH_PASSED, before.batch)
    chosen = _chosen(state, writer, batch, names)
    if isinstance(chosen, Result):
        return chosen
    if (full := _full(state, chosen)) is not None:
        return full
    count = 0
    for name, topic, staged in chosen:
        append(
            state,
            topic,
            staged.partition,
            staged.entries,
            staged.size,
            staged.time,
            name,
            effects,
        )
        count += staged.entries
    state.writers.renew(writer, Writer(batch, count, state.position))
    if len(state.writers) > state.settings.writers_max:
        forget_writers(state)
    _drop_passed(state, writer, batch, [name for name, _, _ in chosen])
    return Result(Code.ORDERED, count=count, position=state.position)


def forget_writers(state: State) -> None:
    for _ in range(min(FORGOTTEN_PER_COMMAND, len(state.writers) - state.settings.writers_max)):
        state.writers.drop(state.writers.oldest())


def expires_at(state: State) -> int | None:
    """The time of the row at which the oldest stage expires."""
    stages = state.stages
    return stages.rows[stages.oldest()].since + state.settings.stage_expiry if stages else None


def expire(state: State, most: int) -> None:
    """Drops up to `most` of those that are due; the others count as gone all the same."""
    while most and (at := expires_at(state)) is not None and at <= state.row_time:
        _drop(state, state.stages.oldest())
        most -= 1


def derive(state: State) -> None:
    """Builds the index from the table."""
    state.stages_of = {}
    for name, staged in state.stages.rows.items():
        state.stages_of.setdefault(staged.writer, []).append((staged.batch, name))
    for of_writer in state.stages_of.values():
        of_writer.sort()


def _chosen(
    state: State, writer: bytes, batch: int, names: tuple[tuple[int, int], ...]
) -> list[tuple[int, Topic, Staged]] | Result:
    chosen: dict[int, tuple[int, Topic, Staged]] = {}
    for place, (position, index) in enumerate(names, 1):
        name = ticket_of(position, index)
        staged = state.stages.rows.get(name) if index < BUNDLE_COMMANDS_MAX else None
        topic = state.topics.rows.get(staged.topic) if staged else None
        if (
            staged is None
            or staged.since + state.settings.stage_expiry <= state.row_time
            or topic is None
            or topic.id != staged.topic_id
        ):
            return _refused(state, Reason.STAGE_GONE, place)
        if (staged.writer, staged.batch) != (writer, batch):
            return _refused(state, Reason.STAGE_OTHERS, place)
        if name in chosen:
            return _refused(state, Reason.STAGE_REPEATED, place)
        chosen[name] = name, topic, staged
    return list(chosen.values())


def _full(state: State, chosen: list[tuple[int, Topic, Staged]]) -> Result | None:
    """Whether all of them fit together, without passing those who wait for room."""
    together: dict[int, tuple[int, int]] = {}
    for _, topic, staged in chosen:
        key = topic.key(staged.partition)
        count, size = together.get(key, (0, 0))
        count, size = count + staged.entries, size + staged.size
        together[key] = count, size
        # Dropping the oldest makes room for one after the other.
        if not topic.policy.when_full:
            count, size = staged.entries, staged.size
        if limit := too_large(topic.policy, count, size):
            return _refused(state, Reason.TOO_LARGE, limit)
        now = state.partitions.rows.get(key, EMPTY)
        if key in state.queues or not has_room(topic.policy, now, count, size):
            return Result(Code.FULL, position=state.position)
    return None


def _drop_passed(state: State, writer: bytes, batch: int, chosen: list[int]) -> None:
    """What was committed goes, and of what the writer left behind so much; the rest later."""
    of_writer = state.stages_of.get(writer, [])
    end = bisect_left(of_writer, (batch + 1,))
    used = set(chosen)
    left = [each for each in of_writer[:end] if each[1] not in used]
    gone = left[:PARTITIONS_PER_ITEM]
    of_writer[:end] = left[PARTITIONS_PER_ITEM:]
    for name in (*chosen, *(name for _, name in gone)):
        state.stages.drop(name)
    if not of_writer:
        state.stages_of.pop(writer, None)


def _drop(state: State, name: int) -> None:
    staged = state.stages.drop(name)
    of_writer = state.stages_of[staged.writer]
    del of_writer[bisect_left(of_writer, (staged.batch, name))]
    if not of_writer:
        del state.stages_of[staged.writer]


def _refused(state: State, reason: Reason, detail: int) -> Result:
    return Result(Code.REFUSED, reason=reason, detail=detail, position=state.position)
