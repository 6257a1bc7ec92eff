"""Experiments with many producers, consumers and topics, that also check what everybody saw.

    producers p  ──┐               ┌──► consumers c, each of which reads every topic from its start
                   ├──► topics t ──┤
    n entries each ┘               └──► ...           p·t·n entries, c times as many deliveries

Each entry says who produced it, as which of how many, and when.  All clients have connected before
the first entry is produced.  A case is *ok* if every consumer saw every entry once, under the numbers from
1 on, the entries of a producer in order, all consumers of a topic the same row, and there is no more in it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

from .crowd import Crowd

if TYPE_CHECKING:
    from duckrow import Client

PATIENCE: Final = 30.0  # without any entry, seconds: then something is lost
LOOK_SECONDS: Final = 1.0  # whether there is still somebody to wait for
_HEAD: Final = struct.Struct("<IIQ")  # producer, number of the entry, time in nanoseconds
HEAD_BYTES: Final = _HEAD.size


class Case(NamedTuple):
    producers: int
    consumers: int
    topics: int
    entries: int  # of each producer in each topic
    rate: float  # entries a second of each producer; 0: as fast as it can
    think: float  # seconds a consumer takes for each entry


class Seen(NamedTuple):
    """An entry as a consumer got it."""

    producer: int
    entry: int
    number: int
    seconds: float  # since it was produced


class Outcome(NamedTuple):
    seconds: float  # from the first produce to the last delivery
    rows: Sequence[Sequence[Sequence[Seen]]]  # by topic, by consumer
    stored: Sequence[int]  # by topic: entries that are there in the end
    errors: Sequence[Exception]

    @property
    def delays(self) -> list[float]:
        return sorted(seen.seconds for topic in self.rows for row in topic for seen in row)


def cases(
    producers: Sequence[int],
    consumers: Sequence[int],
    topics: Sequence[int],
    entries: int,
    rates: Sequence[float],
    thinks: Sequence[float],
) -> Iterator[Case]:
    for p, c, t, rate, think in product(producers, consumers, topics, rates, thinks):
        yield Case(p, c, t, entries, rate, think)


def is_right(case: Case, outcome: Outcome) -> bool:
    """Whether everybody saw what they should have."""
    return (
        not outcome.errors
        and [*outcome.stored] == [case.producers * case.entries] * case.topics
        and all(_is_whole(case, row) for topic in outcome.rows for row in topic)
        and all(_places(row) == _places(topic[0]) for topic in outcome.rows for row in topic)
    )


def _is_whole(case: Case, row: Sequence[Seen]) -> bool:
    of = [[seen.entry for seen in row if seen.producer == p] for p in range(case.producers)]
    numbers = [seen.number for seen in row]
    return all(entries == list(range(case.entries)) for entries in of) and numbers == list(
        range(1, case.producers * case.entries + 1)
    )


def _places(row: Sequence[Seen]) -> list[tuple[int, int, int]]:
    return [seen[:3] for seen in row]


def run(
    case: Case,
    connect: Callable[[int], Client],
    name: str,
    size: int,
    sleep: Callable[[float], None],
) -> Outcome:
    """The topics are new ones, called after `name`, and are removed afterwards.  `connect` gives the n-th
    client, from 0 on.
    """
    topics = [f"{name}-{number}" for number in range(case.topics)]
    rows: list[list[list[Seen]]] = [[[] for _ in range(case.consumers)] for _ in topics]
    crowd = Crowd(connect)
    produces = [
        partial(_produce, case, topics, producer, size, crowd, sleep)
        for producer in range(case.producers)
    ]
    consumes = [
        partial(_consume, case, topic, row, crowd, sleep)
        for topic, of_topic in zip(topics, rows, strict=True)
        for row in of_topic
    ]
    stored: list[int] = []
    try:
        seconds = crowd.run([*produces, *consumes])
    finally:
        with connect(0) as client:
            client.barrier()
            for topic in topics:
                if topic in client.topics():
                    stored.append(sum(part.entries for part in client.topic(topic).partitions))
                    client.delete_topic(topic)
    return Outcome(seconds, rows, stored, crowd.errors)


def _produce(
    case: Case,
    topics: Sequence[str],
    producer: int,
    size: int,
    crowd: Crowd,
    sleep: Callable[[float], None],
    client: Client,
) -> None:
    due = time.perf_counter()
    for entry in range(case.entries):
        for topic in topics:
            if crowd.failed.is_set():
                return
            if case.rate:
                sleep(max(0.0, due - time.perf_counter()))
                due += 1 / case.rate
            head = _HEAD.pack(producer, entry, time.perf_counter_ns())
            client.produce(topic, head.ljust(size, b"."))


def _consume(
    case: Case,
    topic: str,
    row: list[Seen],
    crowd: Crowd,
    sleep: Callable[[float], None],
    client: Client,
) -> None:
    after: object = 0
    waited = 0.0
    while len(row) < case.producers * case.entries and not crowd.failed.is_set():
        found = client.pull(topic, after, wait=LOOK_SECONDS)
        if not found:
            waited += LOOK_SECONDS
            if waited >= PATIENCE:
                return
            continue
        waited = 0.0
        now = time.perf_counter_ns()
        after = found.after
        for entry in found:
            producer, number, produced = _HEAD.unpack_from(entry.value)
            row.append(Seen(producer, number, entry.number, (now - produced) / 1e9))
            if case.think:
                sleep(case.think)
                now = time.perf_counter_ns()
