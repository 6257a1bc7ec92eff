"""Commands: one change of the replicated state each, and how their heads are written.

Every head is a CBOR array that begins alike, so that whoever only routes, counts or matches
reads the first eleven fields and nothing else:

    kind, pid, epoch, topic, partition, seq, done, time, length, crc, topic id, ...

(pid, topic, partition) is the *lane*; seq counts the commands of a lane from 1.  Commands that
concern no topic, and those on a topic as a whole (which its own lanes would not survive), go in
lane (pid, "", 0).  `time` is the wall clock, in microseconds, of whoever made the command.
`length` and `crc` (crc32c) describe the body, so whoever has checked the heads of an item knows
what its bodies must be.

What follows the common fields is `extra`; the readers below give it names, by kind:

    head = decode_head(command.head)        # is it a head?
    batch = Produce.of(head)                # is it the head of a produce?

A field that is added later goes to the end; a reader ignores what it does not know.  Readers check
the form and the limits of what they name, so that applying may trust both; they are on the hottest
path there is.  `node/makers.py` writes heads.
"""

from __future__ import annotations

import enum
from typing import Any, Final, NamedTuple, NoReturn, Self

from . import cbor
from .checksum import crc32c
from .env import Buffer
from .errors import Corrupt, LimitExceeded
from .limits import (
    BATCH_ENTRIES_MAX,
    CODEC_MAX,
    COMMIT_STAGES_MAX,
    HEAD_BYTES_MAX,
    ID_BYTES_MAX,
    IDS_PER_BATCH_MAX,
    NUMBER_LIMIT,
    PARTITIONS_MAX,
    WRITER_BYTES_MAX,
)


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
    """A decoded head.  What `extra` holds depends on the kind."""

    kind: int
    pid: bytes  # 16 random bytes, the producer
    epoch: int
    topic: str
    partition: int
    seq: int
    done: int  # the producer has the answers up to this seq; they may be forgotten
    time: int  # microseconds since 1970, the clock of whoever made the command
    length: int  # of the body
    crc: int  # crc32c of the body; 0 when it is empty
    topic_id: int  # the topic the client means; 0 = any, see `Conflict`
    extra: tuple[Any, ...]  # by kind

    @property
    def lane(self) -> tuple[bytes, str, int]:
        return self.pid, self.topic, self.partition


COMMON_FIELDS: Final = len(Head._fields) - 1
PID_BYTES: Final = 16


class Command(NamedTuple):
    """A head as it goes over wires and into files, and the body that nobody opens."""

    head: bytes
    body: Buffer = b""


def encode_head(head: Head) -> bytes:
    """
    Raises:
        LimitExceeded: its length does not fit the u16 that frames and records have for it.
    """
    return encode_fields(head[:COMMON_FIELDS], head.extra)


def encode_fields(common: tuple[Any, ...], extra: tuple[Any, ...]) -> bytes:
    """As `encode_head`, without a Head.

    Raises:
        LimitExceeded: see there.
    """
    raw = cbor.dumps([*common, *extra])
    if len(raw) > HEAD_BYTES_MAX:
        raise LimitExceeded("the head of this command in bytes", len(raw), HEAD_BYTES_MAX)
    return raw


def decode_head(raw: Buffer) -> Head:
    """Checks the form only: whether it makes sense is decided while applying.

    Raises:
        Corrupt: it is not a head.
        LimitExceeded: it is larger than any head.
    """
    fields = cbor.loads_array(raw)
    if len(fields) < COMMON_FIELDS:
        raise cbor.malformed("the head of a command", fields)
    (kind, pid, epoch, topic, partition, seq, done, time, length, crc, topic_id, *extra) = fields
    if not (
        type(pid) is bytes
        and len(pid) == PID_BYTES
        and type(topic) is str
        and type(kind) is type(epoch) is type(partition) is type(seq) is type(done) is int
        and type(time) is type(length) is type(crc) is type(topic_id) is int
        # All bits together: negative, or too large, if any of them is.
        and (bits := kind | epoch | partition | seq | done | time | length | crc | topic_id) >= 0
        and bits < NUMBER_LIMIT
    ):
        raise cbor.malformed("the head of a command", fields)
    # Past Head's own constructor, which costs as much as all the checks.
    head: Head = tuple.__new__(
        Head,
        (kind, pid, epoch, topic, partition, seq, done, time, length, crc, topic_id, tuple(extra)),
    )
    return head


def check_body(head: Head, body: Buffer) -> None:
    """
    Raises:
        Corrupt: it is not the body that the head was made for.
    """
    if len(body) != head.length:
        raise Corrupt(f"a body has {len(body):,} bytes, and its head says {head.length:,}")
    if (crc := crc32c(body)) != head.crc:
        raise Corrupt(f"the crc32c of a body is {crc:08x}, and its head says {head.crc:08x}")


class Produce(NamedTuple):
    partitions: int  # how many the client thinks there are
    entries: int
    codec: int
    key_hashes: bytes | None  # a u32, little endian, for each entry
    ids: list[bytes] | None  # one for each entry
    expect_last: int | None

    @classmethod
    def of(cls, head: Head) -> Self:
        """
        Raises:
            Corrupt: see every reader here; the form is wrong, or a number is out of its range.
        """
        if len(head.extra) < 6:
            _malformed(cls, head)
        fields = partitions, entries, codec, key_hashes, ids, expect_last = head.extra[:6]
        if not (
            type(partitions) is type(entries) is type(codec) is int
            and 1 <= partitions <= PARTITIONS_MAX
            and 1 <= entries <= BATCH_ENTRIES_MAX
            and 0 <= codec <= CODEC_MAX
            and (
                key_hashes is None or (type(key_hashes) is bytes and len(key_hashes) == 4 * entries)
            )
            and (ids is None or _are_ids(ids, entries))
            and (expect_last is None or _is_number(expect_last))
        ):
            _malformed(cls, head)
        return tuple.__new__(cls, fields)


class Stage(NamedTuple):
    partitions: int
    entries: int
    codec: int
    key_hashes: bytes | None
    writer: bytes
    batch: int
    task: int

    @classmethod
    def of(cls, head: Head) -> Self:
        if len(head.extra) < 7:
            _malformed(cls, head)
        fields = partitions, entries, codec, key_hashes, writer, batch, task = head.extra[:7]
        if not (
            type(partitions) is type(entries) is type(codec) is int
            and 1 <= partitions <= PARTITIONS_MAX
            and 1 <= entries <= BATCH_ENTRIES_MAX
            and 0 <= codec <= CODEC_MAX
            and (
                key_hashes is None or (type(key_hashes) is bytes and len(key_hashes) == 4 * entries)
            )
            and _is_writer(writer)
            and _is_number(batch)
            and _is_number(task)
        ):
            _malformed(cls, head)
        return tuple.__new__(cls, fields)


class Commit(NamedTuple):
    writer: bytes
    batch: int
    stages: tuple[tuple[int, int], ...]  # (position, index) of each, in the order of numbering

    @classmethod
    def of(cls, head: Head) -> Self:
        if len(head.extra) < 3:
            _malformed(cls, head)
        writer, batch, stages = head.extra[:3]
        if not (
            _is_writer(writer)
            and _is_number(batch)
            and type(stages) is list
            and len(stages) <= COMMIT_STAGES_MAX
            and all(map(_is_pair, stages))
        ):
            _malformed(cls, head)
        return cls(writer, batch, tuple((position, index) for position, index in stages))


class TopicPolicy(NamedTuple):
    """What CREATE and CONFIGURE carry.  Whether the policy makes sense is not decided here."""

    topic: str
    policy: dict[str, Any]

    @classmethod
    def of(cls, head: Head) -> Self:
        if len(head.extra) < 2:
            _malformed(cls, head)
        topic, policy = head.extra[:2]
        if type(topic) is not str or not _is_map(policy):
            _malformed(cls, head)
        return cls(topic, policy)


class Delete(NamedTuple):
    topic: str

    @classmethod
    def of(cls, head: Head) -> Self:
        if len(head.extra) < 1 or type(head.extra[0]) is not str:
            _malformed(cls, head)
        return cls(head.extra[0])


class Prune(NamedTuple):
    topic: str
    partition: int
    number: int  # the last that goes

    @classmethod
    def of(cls, head: Head) -> Self:
        if len(head.extra) < 3:
            _malformed(cls, head)
        topic, partition, number = head.extra[:3]
        if type(topic) is not str or not (_is_number(partition) and _is_number(number)):
            _malformed(cls, head)
        return cls(topic, partition, number)


class Switch(NamedTuple):
    version: int

    @classmethod
    def of(cls, head: Head) -> Self:
        if len(head.extra) < 1 or not _is_number(head.extra[0]):
            _malformed(cls, head)
        return cls(head.extra[0])


class Settings(NamedTuple):
    values: dict[str, Any]

    @classmethod
    def of(cls, head: Head) -> Self:
        if len(head.extra) < 1 or not _is_map(head.extra[0]):
            _malformed(cls, head)
        return cls(head.extra[0])


def _malformed(reader: type, head: Head) -> NoReturn:
    raise cbor.malformed(f"the head of a command of kind {reader.__name__}", list(head))


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < NUMBER_LIMIT


def _is_writer(value: object) -> bool:
    return type(value) is bytes and 1 <= len(value) <= WRITER_BYTES_MAX


def _is_pair(value: object) -> bool:
    return type(value) is list and len(value) == 2 and all(map(_is_number, value))


def _is_map(value: object) -> bool:
    return type(value) is dict and all(type(key) is str for key in value)


def _are_ids(value: object, entries: int) -> bool:
    return (
        type(value) is list
        and len(value) == entries <= IDS_PER_BATCH_MAX
        and all(type(each) is bytes and 1 <= len(each) <= ID_BYTES_MAX for each in value)
    )
