"""What clients of a town were told, and whether that was so."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import attrs

from duckrow.node.errors import (
    Conflict,
    Disconnected,
    DuckrowError,
    Full,
    NoQuorum,
    NotFound,
    Refused,
    Timeout,
)

from .applied import Applied, Log

Place = tuple[int, int]  # partition and number
Job = tuple[bytes, int]  # writer and batch
BLOCKED, DELETED = "b", "d"  # a topic that is full at times; one that comes and goes
CERTAIN = Full, NoQuorum, Refused, Conflict, NotFound  # nothing of it is written
IN_PART = "were written"  # but so much of a call was


@attrs.define(eq=False)
class Asked:
    """One call that produces, and what became of it as far as it was told."""

    client: int  # one life of a client
    kind: str
    topic: str
    values: list[bytes]
    began: float
    accepted: bool = False
    ended: float = inf
    told: list[tuple[int, int | None]] | None = (
        None  # partitions and numbers; None: it failed, or was given up
    )
    error: DuckrowError | None = None
    receipt: str = ""
    later: list[Place] = attrs.field(factory=list)  # as the receipt said later
    later_errors: list[DuckrowError] = attrs.field(factory=list)


@attrs.define(eq=False)
class Attempt:
    """At a job: all of it is there, or nothing."""

    values: list[bytes] = attrs.field(factory=list)
    is_done: bool = False  # as it was told


@attrs.define
class Told:
    """What all clients were told."""

    calls: list[Asked] = attrs.field(factory=list)
    reads: list[tuple[str, int, int, bytes]] = attrs.field(factory=list)
    jobs: dict[Job, list[Attempt]] = attrs.field(factory=dict)
    problems: list[str] = attrs.field(factory=list)
    forgets: bool = False  # the row has room for few lanes
    clients: int = 0
    values: int = 0

    def fresh(self) -> bytes:
        self.values += 1
        return b"<%d>" % self.values


def problems_of(told: Told, row: Applied) -> Iterator[str]:
    logs = row.entries()
    yield from told.problems
    yield from row.problems
    there: dict[bytes, dict[int, list[Place]]] = {}  # by value and topic id
    for (id_, partition), log in logs.items():
        for number, value in log.items():
            if value:
                there.setdefault(name_of(value), {}).setdefault(id_, []).append((partition, number))
    for value, places in there.items():
        # A late copy of the first batch of a lane that was forgotten begins it once more.
        if any(len(each) > 1 for each in places.values()) and not told.forgets:
            yield f"{value!r} is there twice: {places}"
    where = {
        value: [place for each in of.values() for place in each] for value, of in there.items()
    }
    # What was pruned before anybody read it may be known by its numbers alone.
    all_known = all(value for log in logs.values() for value in log.values())
    for asked in told.calls:
        if asked.topic != DELETED and (all_known or asked.topic != BLOCKED):
            yield from (f"{text}: {asked}" for text in _call(asked, where, told.forgets))
    yield from () if told.forgets else _order(told.calls, where)
    yield from _reads(told, row, logs)
    for job, attempts in told.jobs.items():
        found = [[value in where for value in each.values] for each in attempts]
        if sum(any(each) for each in found) > 1:
            yield f"job {job} is there more than once: {attempts}"
        if any(any(each) and not all(each) for each in found):
            yield f"job {job} is there in part: {attempts}"
        if any(each.is_done for each in attempts) and not any(any(each) for each in found):
            yield f"job {job} was told to be done: {attempts}"


def _call(asked: Asked, where: dict[bytes, list[Place]], forgets: bool) -> Iterator[str]:
    places = [where.get(value, []) for value in asked.values]
    all_places = {place for each in places for place in each}
    if asked.told is not None:
        # What waits for room may be refused in the end, and so may what is of a lane that was forgotten.
        is_sure = not asked.accepted or (asked.topic != BLOCKED and not forgets)
        if is_sure and not all(places):
            yield "told to be there, and is not"
        if not {place for place in asked.told if place[1]} <= all_places:
            yield f"is elsewhere: {all_places}"
        if not {*asked.later} <= all_places:
            yield f"is elsewhere than its receipt says: {all_places}"
        if is_sure and not all(
            isinstance(error, NoQuorum | Timeout) for error in asked.later_errors
        ):
            yield "its receipt was not honoured"
    elif asked.error is not None and asked.kind != "none" and IN_PART not in str(asked.error):
        # With an id an earlier call may have written it.
        if isinstance(asked.error, CERTAIN) and all_places and asked.kind != "id":
            yield f"certainly not written, and is at {all_places}"
        if not isinstance(asked.error, (*CERTAIN, Timeout, Disconnected)):
            yield "a strange error"


def _order(calls: list[Asked], where: dict[bytes, list[Place]]) -> Iterator[str]:
    """What a client produces when something was done is behind that."""
    lines: dict[tuple[int, str], list[Asked]] = {}
    for asked in calls:
        if asked.kind in ("one", "many", "none") and asked.topic != DELETED:
            lines.setdefault((asked.client, asked.topic), []).append(asked)
    for line in lines.values():
        for index, one in enumerate(line):
            before = [place for value in one.values for place in where.get(value, [])]
            if one.kind != "one" and one.topic == "t" and before != sorted(before):
                yield f"not in order: {one}, {before}"
            last = dict(sorted(before))
            for other in line[index + 1 :]:
                after = [place for value in other.values for place in where.get(value, [])]
                if one.ended <= other.began and any(n < last.get(p, 0) for p, n in after):
                    yield f"not in order: {one} at {before}, then {other} at {after}"


def _reads(told: Told, row: Applied, logs: dict[tuple[int, int], Log]) -> Iterator[str]:
    ids = {name: id_ for id_, name in row.names.items() if name != DELETED}
    for topic, partition, number, value in told.reads:
        found = logs.get((ids[topic], partition), {}).get(number)
        if found is None or name_of(found) != value:
            yield f"read {value!r} at {number} of {topic}/{partition}, where {found!r:.30} is"


def name_of(value: bytes) -> bytes:
    return bytes(value[:20]).partition(b">")[0] + b">"
