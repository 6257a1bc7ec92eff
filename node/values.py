"""The values in the tables of the state.  They never change; a change makes another one.

A topic partition in the middle of its life:

      gone         there            next     in the row without numbers
    1 ... 40  |  41 ....... 90  |    91      tickets of batches that wait for room
                first     last

An empty partition has first = last + 1.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .policies import Policy

COMMAND_BITS: Final = 14  # BUNDLE_COMMANDS_MAX
COMMAND_MASK: Final = (1 << COMMAND_BITS) - 1
PARTITION_BITS: Final = 10  # PARTITIONS_MAX
PARTITION_MASK: Final = (1 << PARTITION_BITS) - 1

LaneKey = tuple[bytes, str, int]  # pid, topic name ("" without one), partition


def ticket_of(position: int, index: int) -> int:
    """Names a command by its place in the row; tickets grow as the row does."""
    return position << COMMAND_BITS | index


def position_of(ticket: int) -> int:
    return ticket >> COMMAND_BITS


def index_of(ticket: int) -> int:
    return ticket & COMMAND_MASK


class Topic(NamedTuple):
    id: int  # the ticket of the command that created it, so no two ever have the same
    name: str
    policy: Policy

    def key(self, partition: int) -> int:
        """Of a partition in the tables: one number, since tuples cost more to make and to keep."""
        return self.id << PARTITION_BITS | partition


class Partition(NamedTuple):
    first: int = 1
    last: int = 0
    time: int = 0  # of the last entry there ever was; entry times never go back
    size: int = 0  # bytes of the runs
    chunks: tuple[bytes, ...] = ()  # full chunks of runs, oldest first, see runs.py
    tail: bytes = b""  # the chunk that is being filled


class Producer(NamedTuple):
    epoch: int  # the highest one that applied anything
    lanes: int  # how many it has; it goes with the last


class Lane(NamedTuple):
    epoch: int
    last: int  # seq of the last command that was applied
    results: bytes  # of the last seqs, packed, see lanes.py
    waiting: tuple[tuple[int, int], ...]  # (seq, ticket) of batches without numbers, oldest first


class Waiting(NamedTuple):
    """A batch in the row that gets its numbers when there is room."""

    pid: bytes
    epoch: int
    topic: str
    partition: int
    seq: int
    entries: int
    size: int
    time: int
    ids: tuple[bytes, ...]
    expect_last: int  # -1: anything


class Staged(NamedTuple):
    """A batch in the row that gets its numbers from a commit."""

    topic: str
    topic_id: int
    partition: int
    entries: int
    size: int
    time: int
    writer: bytes
    batch: int
    task: int
    since: int  # row time


class Writer(NamedTuple):
    """What a writer of stages committed last."""

    batch: int
    entries: int
    position: int


class Known(NamedTuple):
    """An entry that was given an id by its producer."""

    turn: int  # ids are forgotten in the order in which they were numbered
    partition: int
    number: int
    time: int
    position: int
