"""Commands: one change of the replicated state each, and how their heads are written.

Every head is a CBOR array that begins alike, so that whoever only routes, counts or matches
reads the first eleven fields and nothing else:

    kind, pid, epoch, topic, partition, seq, done, time, length, crc, topic id, ...

(pid, topic, partition) is the *lane*; seq counts the commands of a lane from 1.  Commands that
concern no topic go in lane (pid, "", 0).  `time` is the wall clock, in microseconds, of the node
that took the command.  `length` and `crc` (crc32c) describe the body, so whoever has checked the
heads of an item knows what its bodies must be.

A field that is added later goes to the end; a reader ignores what it does not know.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import cbor
from .env import Buffer
from .errors import Refused
from .limits import HEAD_BYTES_MAX


class Kind(enum.IntEnum):
    """What a command asks for.  The numbers are on disk: never reuse one."""

    PRODUCE = 1  # number a batch
    SKIP = 2  # seq will never come; or, if it came, withdraw it or tell what became of it
    CREATE = 3  # a topic, with its policy
    CONFIGURE = 4  # change a topic's policy
    DELETE = 5  # a topic
    PRUNE = 6  # entries up to a number
    CLOCK = 7  # nothing but the stamp of the bundle it travels in
    STAGE = 8  # keep a batch without numbers
    COMMIT = 9  # number stages, all or none, once for each (writer, batch)
    SWITCH = 10  # the version of the state machine (M5)
    BARRIER = 11  # nothing; its answer says that everything before it was applied
    SETTINGS = 12  # cluster-wide limits and defaults
    # 16-31 are kept for groups: open, claim, acknowledge, seek, close.


class Head(NamedTuple):
    """A decoded head.  What follows the common fields depends on the kind; see the makers below."""

    kind: int
    pid: bytes  # 16 random bytes, the producer
    epoch: int
    topic: str
    partition: int
    seq: int
    done: int  # the producer has the answers up to this seq; they may be forgotten
    time: int  # microseconds since 1970, the clock of the node that took the command
    length: int  # of the body
    crc: int  # crc32c of the body; 0 when it is empty
    topic_id: int  # the topic the client means; 0 = any, see `Conflict`
    extra: tuple[Any, ...]  # by kind

    @property
    def lane(self) -> tuple[bytes, str, int]:
        return self.pid, self.topic, self.partition


COMMON_FIELDS = len(Head._fields) - 1

# What `extra` holds, in order.  Fields added later have to have a default in the reader.
PRODUCE_PARTITIONS, PRODUCE_COUNT, PRODUCE_CODEC = 0, 1, 2
PRODUCE_KEY_HASHES, PRODUCE_IDS, PRODUCE_EXPECT_LAST = 3, 4, 5


class Command(NamedTuple):
    """A head as it goes over wires and into files, and the body that nobody opens."""

    head: bytes
    body: Buffer = b""


def encode_head(head: Head) -> bytes:
    raw = cbor.dumps([*head[:COMMON_FIELDS], *head.extra])
    if len(raw) > HEAD_BYTES_MAX:
        raise Refused(f"the head of this command is {len(raw):,} bytes, the limit is {HEAD_BYTES_MAX:,}")
    return raw


def decode_head(raw: Buffer) -> Head:
    """Checks the form only: whether it makes sense is decided while applying.

    Raises:
        Corrupt: it is not a head.
    """
    fields = cbor.loads_array(raw)
    if len(fields) < COMMON_FIELDS or not _is_head(fields):
        raise cbor.malformed("a command's head", fields)
    return Head(*fields[:COMMON_FIELDS], tuple(fields[COMMON_FIELDS:]))


def _is_head(fields: Sequence[Any]) -> bool:
    kind, pid, epoch, topic, partition, seq, done, time, length, crc, topic_id = fields[:COMMON_FIELDS]
    return (
        type(pid) is bytes
        and len(pid) == 16
        and type(topic) is str
        and type(kind) is type(epoch) is type(partition) is type(seq) is type(done) is int
        and type(time) is type(length) is type(crc) is type(topic_id) is int
        and min(kind, epoch, partition, seq, done, time, length, crc, topic_id) >= 0
    )


Stamp = Callable[[], int]
