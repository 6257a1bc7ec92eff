"""How the rows of each table are written into captures: as flat arrays, without their table's name.

A form is strict: a row with another number of fields, or another type in one, is refused.  Fields
that a later version adds go with a new number of the table, or of the capture's format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Final, NamedTuple

from .policies import DEFAULT, Policy
from .runs import RUN_BYTES
from .state import State
from .tables import Recent, Table
from .values import (
    PARTITION_BITS,
    PARTITION_MASK,
    Known,
    Lane,
    LaneKey,
    Partition,
    Producer,
    Staged,
    Topic,
    Waiting,
    Writer,
)

Row = list[Any]


class Form(NamedTuple):
    number: int
    table: Callable[[State], Table[Any, Any]]
    types: tuple[type, ...]
    encode: Callable[[Any, Any], Row]
    decode: Callable[[State, Row], None]

    def in_order(self, state: State) -> Iterator[tuple[Any, Any]]:
        """The rows as they are, in the one order that two equal states have in common."""
        table = self.table(state)
        if isinstance(table, Recent):
            return iter(table.rows.items())
        return iter(sorted(table.rows.items(), key=itemgetter(0)))

    def begin(self, state: State, *, in_order: bool) -> Iterator[tuple[Any, Any]]:
        """The same as of this moment, however slowly they are taken; or in any order."""
        table = self.table(state)
        return table.begin(list.sort if in_order and not isinstance(table, Recent) else None)


def encode_chunks(key: int, partition: Partition) -> Iterator[Row]:
    """The full chunks of runs, a row each, since together they may be larger than a capture's chunk."""
    for chunk in partition.chunks:
        yield [key >> PARTITION_BITS, key & PARTITION_MASK, chunk]


def decode_chunk(state: State, row: Row) -> None:
    """Follows its partition, after the chunks that came before it."""
    topic_id, partition, chunk = row
    key = topic_id << PARTITION_BITS | partition
    _check(type(chunk) is bytes and len(chunk) > 0 and len(chunk) % RUN_BYTES == 0)
    now = state.partitions.rows[key]
    state.partitions.put(key, now._replace(chunks=(*now.chunks, chunk)))


def _encode_topic(name: str, topic: Topic) -> Row:
    return [name, topic.id, list(topic.policy)]


def _decode_topic(state: State, row: Row) -> None:
    name, topic_id, fields = row
    policy = Policy(*_ints(fields, len(Policy._fields)))
    state.topics.put(name, Topic(topic_id, name, DEFAULT if policy == DEFAULT else policy))


def _encode_partition(key: int, partition: Partition) -> Row:
    first, last, time, size, _, tail = partition
    return [key >> PARTITION_BITS, key & PARTITION_MASK, first, last, time, size, tail]


def _decode_partition(state: State, row: Row) -> None:
    topic_id, partition, first, last, time, size, tail = row
    _check(len(tail) % RUN_BYTES == 0)
    state.partitions.put(
        topic_id << PARTITION_BITS | partition,
        Partition(first, last, time, size, (), tail),
    )


def _encode_producer(pid: bytes, producer: Producer) -> Row:
    return [pid, *producer]


def _decode_producer(state: State, row: Row) -> None:
    pid, epoch, lanes = row
    state.producers.put(pid, Producer(epoch, lanes))


def _encode_lane(key: LaneKey, lane: Lane) -> Row:
    waiting = [each for pair in lane.waiting for each in pair]
    return [*key, lane.epoch, lane.last, lane.results, waiting]


def _decode_lane(state: State, row: Row) -> None:
    pid, name, partition, epoch, last, results, waiting = row
    pairs = tuple(zip(waiting[::2], waiting[1::2], strict=True))
    topic = state.topics.rows.get(name)
    name = topic.name if topic else name  # one string for all lanes of the topic
    state.lanes.put((pid, name, partition), Lane(epoch, last, results, pairs))


def _encode_waiting(ticket: int, batch: Waiting) -> Row:
    pid, epoch, topic, partition, seq, entries, size, time, ids, expect_last = batch
    return [ticket, pid, epoch, topic, partition, seq, entries, size, time, [*ids], expect_last]


def _decode_waiting(state: State, row: Row) -> None:
    ticket, pid, epoch, topic, partition, seq, entries, size, time, ids, expect_last = row
    _check(all(type(each) is bytes for each in ids))
    state.waiting.put(
        ticket,
        Waiting(pid, epoch, topic, partition, seq, entries, size, time, tuple(ids), expect_last),
    )


def _encode_staged(ticket: int, staged: Staged) -> Row:
    return [ticket, *staged]


def _decode_staged(state: State, row: Row) -> None:
    ticket, *fields = row
    state.stages.put(ticket, Staged(*fields))


def _encode_writer(name: bytes, writer: Writer) -> Row:
    return [name, *writer]


def _decode_writer(state: State, row: Row) -> None:
    name, *fields = row
    state.writers.put(name, Writer(*fields))


def _encode_known(key: tuple[int, bytes], known: Known) -> Row:
    return [*key, *known]


def _decode_known(state: State, row: Row) -> None:
    topic_id, name, *fields = row
    state.ids.put((topic_id, name), Known(*fields))


def _encode_sweep(topic_id: int, partition: int) -> Row:
    return [topic_id, partition]


def _decode_sweep(state: State, row: Row) -> None:
    topic_id, partition = row
    state.sweeps.put(topic_id, partition)


def _ints(fields: list[Any], count: int) -> list[int]:
    _check(len(fields) == count and all(type(field) is int for field in fields))
    return fields


def _check(holds: bool) -> None:
    if not holds:
        raise ValueError


# Topics come before what refers to them.
PARTITIONS: Final = 2
FORMS: Final = (
    Form(1, lambda state: state.topics, (str, int, list), _encode_topic, _decode_topic),
    Form(
        PARTITIONS,
        lambda state: state.partitions,
        (int, int, int, int, int, int, bytes),
        _encode_partition,
        _decode_partition,
    ),
    Form(3, lambda state: state.producers, (bytes, int, int), _encode_producer, _decode_producer),
    Form(
        4,
        lambda state: state.lanes,
        (bytes, str, int, int, int, bytes, list),
        _encode_lane,
        _decode_lane,
    ),
    Form(
        5,
        lambda state: state.waiting,
        (int, bytes, int, str, int, int, int, int, int, list, int),
        _encode_waiting,
        _decode_waiting,
    ),
    Form(
        6,
        lambda state: state.stages,
        (int, str, int, int, int, int, int, bytes, int, int, int),
        _encode_staged,
        _decode_staged,
    ),
    Form(7, lambda state: state.writers, (bytes, int, int, int), _encode_writer, _decode_writer),
    Form(
        8,
        lambda state: state.ids,
        (int, bytes, int, int, int, int, int),
        _encode_known,
        _decode_known,
    ),
    Form(10, lambda state: state.sweeps, (int, int), _encode_sweep, _decode_sweep),  # 9: runs
)
