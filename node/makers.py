"""Makers of commands: whoever wants something of the state writes it down with these.

They check every limit that can be checked without opening a body, and compute the body's crc32c,
the only time that it is computed rather than compared.  Whoever receives a command trusts the
readers of `node/commands.py` instead: a head may come from anybody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from . import cbor
from .checksum import crc32c
from .commands import PID_BYTES, Command, Kind, encode_fields
from .env import Buffer
from .errors import LimitExceeded, Refused
from .limits import (
    BATCH_BYTES_MAX,
    BATCH_ENTRIES_MAX,
    CODEC_MAX,
    COMMIT_STAGES_MAX,
    ID_BYTES_MAX,
    IDS_PER_BATCH_MAX,
    KEYED_ENTRIES_MAX,
    NUMBER_LIMIT,
    PARTITIONS_MAX,
    WRITER_BYTES_MAX,
)
from .names import check_topic_name

_HEAD_17: Final = b"\x91"  # CBOR: an array of so many: the common fields, and those of a produce
_NO_MORE: Final = 3 * cbor.dumps(None)  # no key hashes, no ids, no last number


class Turn(NamedTuple):
    """Whose command it is, and which of its lane: what every maker needs first."""

    pid: bytes
    seq: int
    epoch: int = 0
    done: int = 0
    time: int = 0


def produce(
    turn: Turn,
    topic: str,
    body: Buffer,
    count: int,
    *,
    partition: int = 0,
    partitions: int = 1,
    topic_id: int = 0,
    codec: int = 0,
    key_hashes: bytes | None = None,
    ids: Sequence[bytes] | None = None,
    expect_last: int | None = None,
) -> Command:
    """Number the `count` entries of `body`.

    `partitions` is how many the client thinks there are.  `key_hashes` holds a u32, little endian,
    for each entry.  `ids` are remembered in a window, so that an entry is not numbered twice.

    Raises:
        Refused: a limit (`LimitExceeded` then names it), the topic's name, or counts that differ.
    """
    _check_batch(topic, body, count, partition, partitions, codec, key_hashes)
    if ids is not None:
        _at_most("the number of ids in a batch", len(ids), IDS_PER_BATCH_MAX)
        if len(ids) != count:
            text = f"{len(ids):,} ids were given for {count:,} entries: one each, or none"
            raise Refused(text, ids=len(ids), entries=count)
        for each in ids:
            check_whole("the length of an id in bytes", len(each), 1, ID_BYTES_MAX)
        ids = list(ids)
    if expect_last is not None:
        _number("expect_last", expect_last)
    extra = (partitions, count, codec, key_hashes, ids, expect_last)
    return _command(Kind.PRODUCE, turn, topic, partition, topic_id, extra, body)


def produce_checked(
    turn: Turn,
    topic: str,
    body: Buffer,
    count: int,
    partition: int,
    partitions: int,
    key_hashes: bytes | None,
    ids: Sequence[bytes] | None,
    expect_last: int | None,
) -> Command:
    """As `produce`, of what its caller has checked, for clients that wait for each entry."""
    if key_hashes is None and ids is None and expect_last is None:
        pid, seq, epoch, done, time = turn
        crc = crc32c(body) if body else 0
        fields = partition, seq, done, time, len(body), crc, 0, partitions, count, 0
        head = _lane_head(pid, epoch, topic) + cbor.numbers(*fields) + _NO_MORE
        command: Command = tuple.__new__(Command, (head, body))
        return command
    extra = (partitions, count, 0, key_hashes, ids, expect_last)
    return _command(Kind.PRODUCE, turn, topic, partition, 0, extra, body)


@lru_cache(maxsize=256)
def _lane_head(pid: bytes, epoch: int, topic: str) -> bytes:
    """How the heads of all plain produces of a producer for a topic begin."""
    fields = int(Kind.PRODUCE), pid, epoch, topic
    return _HEAD_17 + b"".join(map(cbor.dumps, fields))


def stage(
    turn: Turn,
    topic: str,
    body: Buffer,
    count: int,
    *,
    writer: bytes,
    batch: int,
    task: int,
    partition: int = 0,
    partitions: int = 1,
    topic_id: int = 0,
    codec: int = 0,
    key_hashes: bytes | None = None,
) -> Command:
    """Keep the entries of `body` without numbers until `commit` names them, or until they expire.

    Raises:
        Refused: see `produce`.
    """
    _check_batch(topic, body, count, partition, partitions, codec, key_hashes)
    _check_writer(writer, batch)
    extra = (partitions, count, codec, key_hashes, writer, batch, _number("task", task))
    return _command(Kind.STAGE, turn, topic, partition, topic_id, extra, body)


def commit(turn: Turn, writer: bytes, batch: int, stages: Sequence[tuple[int, int]]) -> Command:
    """Number these stages, each a (position, index), in this order: all or none, and once.

    Raises:
        Refused: too many stages, or a writer without a name.
    """
    _check_writer(writer, batch)
    _at_most("the number of stages in a commit", len(stages), COMMIT_STAGES_MAX)
    listed = [[_number("a position", at), _number("an index", index)] for at, index in stages]
    return _command(Kind.COMMIT, turn, "", 0, 0, (writer, batch, listed))


def skip(turn: Turn, topic: str = "", partition: int = 0, *, topic_id: int = 0) -> Command:
    """Seq `turn.seq` of this lane will not come; if it came, withdraw it or tell what it became."""
    return _command(Kind.SKIP, turn, topic, partition, topic_id, ())


def create(turn: Turn, topic: str, policy: Mapping[str, Any] | None = None) -> Command:
    """
    Raises:
        Refused: the topic's name.
    """
    check_topic_name(topic)
    return _command(Kind.CREATE, turn, "", 0, 0, (topic, dict(policy or {})))


def configure(turn: Turn, topic: str, policy: Mapping[str, Any], *, topic_id: int = 0) -> Command:
    """Change what `policy` names and nothing else; None brings a default back.

    Raises:
        Refused: the topic's name.
    """
    check_topic_name(topic)
    return _command(Kind.CONFIGURE, turn, "", 0, topic_id, (topic, dict(policy)))


def delete(turn: Turn, topic: str, *, topic_id: int = 0) -> Command:
    """
    Raises:
        Refused: the topic's name.
    """
    check_topic_name(topic)
    return _command(Kind.DELETE, turn, "", 0, topic_id, (topic,))


def prune(turn: Turn, topic: str, number: int, *, partition: int = 0, topic_id: int = 0) -> Command:
    """Entries up to and including `number` go.

    Raises:
        Refused: the topic's name.
    """
    check_topic_name(topic)
    extra = (topic, _partition(partition), _number("a number", number))
    return _command(Kind.PRUNE, turn, "", 0, topic_id, extra)


def clock(turn: Turn) -> Command:
    return _command(Kind.CLOCK, turn, "", 0, 0, ())


def barrier(turn: Turn) -> Command:
    return _command(Kind.BARRIER, turn, "", 0, 0, ())


def switch(turn: Turn, version: int) -> Command:
    return _command(Kind.SWITCH, turn, "", 0, 0, (_number("a version", version),))


def settings(turn: Turn, values: Mapping[str, Any]) -> Command:
    return _command(Kind.SETTINGS, turn, "", 0, 0, (dict(values),))


def _command(
    kind: Kind,
    turn: Turn,
    topic: str,
    partition: int,
    topic_id: int,
    extra: tuple[Any, ...],
    body: Buffer = b"",
) -> Command:
    pid, seq, epoch, done, time = turn
    assert len(pid) == PID_BYTES, f"a pid has {PID_BYTES} bytes, not {len(pid)}"
    assert 0 <= seq | epoch | done | time | topic_id < NUMBER_LIMIT, f"out of range: {turn}"
    crc = crc32c(body) if body else 0
    common = (int(kind), pid, epoch, topic, partition, seq, done, time, len(body), crc, topic_id)
    return Command(encode_fields(common, extra), body)


def _check_batch(
    topic: str,
    body: Buffer,
    count: int,
    partition: int,
    partitions: int,
    codec: int,
    key_hashes: bytes | None,
) -> None:
    check_topic_name(topic)
    check_whole("the number of entries in a batch", count, 1, BATCH_ENTRIES_MAX)
    _at_most("the size of a batch in bytes", len(body), BATCH_BYTES_MAX)
    check_whole("the number of partitions", partitions, 1, PARTITIONS_MAX)
    _partition(partition)  # the topic may have more than the client knows
    check_whole("the codec", codec, 0, CODEC_MAX)
    if key_hashes is not None:
        _at_most("the number of entries in a batch with keys", count, KEYED_ENTRIES_MAX)
        if len(key_hashes) != 4 * count:
            raise Refused(
                f"{len(key_hashes):,} bytes of key hashes are not 4 for each of {count:,}",
                bytes=len(key_hashes),
                entries=count,
            )


def _check_writer(writer: bytes, batch: int) -> None:
    check_whole("the length of a writer's name in bytes", len(writer), 1, WRITER_BYTES_MAX)
    _number("a writer's batch", batch)


def _partition(partition: int) -> int:
    check_whole("the partition", partition, 0, PARTITIONS_MAX - 1)
    return partition


def _number(what: str, value: int) -> int:
    check_whole(what, value)
    return value


def _at_most(what: str, value: int, limit: int) -> None:
    if value > limit:
        raise LimitExceeded(what, value, limit)


def check_whole(what: str, value: int, least: int = 0, most: int = NUMBER_LIMIT - 1) -> None:
    """What does not fit a head would end the connection that it goes over.

    Raises:
        Refused, TypeError: it is no such number.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} is a whole number, and not {value!r:.60}")
    if value < least:
        text = f"{what} is {value:,}, and the least is {least:,}"
        raise Refused(text, what=what, value=value, least=least)
    _at_most(what, value, most)
