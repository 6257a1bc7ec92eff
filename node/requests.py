"""What a client asks of a node and what it is answered: the heads of frames between the two.

    request   [reference, verb, ...]      body: of a command
    answer    [reference, outcome, ...]   body: batches of a pull

A client names each request with a reference of its own, and may have many under way; answers come
in any order.  The first request is HELLO, and nothing else is read before it was accepted.

    verb      fields                                              answered with
    HELLO     version, name, token, features                      see Welcome
    ORDER     head of a command, accepted                         the fields of a Result
    PULL      see Ask                                             see `encode_pulled`
    FOLLOW    see Ask, credit in bytes                            the same, again and again: MORE
    CREDIT    reference of a follow, bytes                        nothing
    CANCEL    reference of a pull or follow                       nothing; that one ends
    RECEIPT   topic, partition, pid, epoch, seq                   the fields of a Result
    TOPICS    the last name of the page before or "", seen        [[name, id, partitions] ...], more
    TOPIC     name, seen                                          id, policy, partitions
    STATUS    -                                                   a map
    CLIENTS   the last id of the page before, or nothing          [a map ...], more
    MEMBER    a map: what is asked, and its values                a map: who votes then
    KEPT      as PULL: also what is pinned for the archive        see `encode_pulled`
    PINS      topic and partition of the last one before          [see Pin ...], more, durable, archive
    UNPIN     topic, id, partition, safe, place, trouble, archive nothing more
    DIGEST    a position                                          the digest of the row up to there

Fields that come later go to the end, and readers ignore what they do not know.  Whoever is at the
other end may be anybody: forms are checked here, and what they mean is checked where it is done.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from . import cbor, cursors
from .cursors import After, Cursor
from .effects import Result
from .env import Buffer
from .errors import Corrupt, DuckrowError, fields_of
from .limits import NUMBER_LIMIT
from .pulled import Batch, Pulled

VERSION: Final = 1  # of this protocol


class Verb(enum.IntEnum):
    """The numbers go over wires: never reuse one."""

    HELLO = 1
    ORDER = 2
    PULL = 3
    FOLLOW = 4
    CREDIT = 5
    CANCEL = 6
    RECEIPT = 7
    TOPICS = 8
    TOPIC = 9
    STATUS = 10
    CLIENTS = 11
    MEMBER = 12
    KEPT = 13
    PINS = 14
    UNPIN = 15
    DIGEST = 16


class Outcome(enum.IntEnum):
    """The numbers go over wires: never reuse one."""

    DONE = 0
    FAILED = 1  # code, message, values
    MORE = 2  # of a follow: others come under the same reference


ORDER: Final = int(Verb.ORDER)  # plain numbers for the path of a produce
DONE: Final = int(Outcome.DONE)
MORE: Final = int(Outcome.MORE)
_PLAIN: Final = {int, bool}
_ARRAY_4: Final = b"\x84"  # CBOR: so many items follow
_ARRAY_10: Final = b"\x8a"
_SIZES: Final = {24: 1, 25: 2, 26: 4}  # of the number that follows
_ORDER_BYTES_MIN: Final = 12  # so that nothing that is looked at lies beyond the end


class Hello(NamedTuple):
    version: int
    name: str  # of the client, for people
    token: str
    features: dict[str, Any]

    @classmethod
    def of(cls, fields: Sequence[Any]) -> Hello:
        match fields:
            case [int(version), str(name), str(token), dict(features), *_]:
                return cls(version, name, token, features)
        raise cbor.malformed("a hello", list(fields))


class Welcome(NamedTuple):
    """Which node this is, and which row it has."""

    version: int
    node: str
    lineage: int
    cluster: bytes
    position: int
    limits: dict[str, int]

    @classmethod
    def of(cls, fields: Sequence[Any]) -> Welcome:
        match fields:
            case [int(a), str(b), int(c), bytes(d), int(e), dict(f), *_]:
                return cls(a, b, c, d, e, f)
        raise cbor.malformed("a welcome", list(fields))


class Ask(NamedTuple):
    """The fields of a pull; `seen` is a position that the answer has to know."""

    topic: str
    after: After = 0
    partition: int | None = None
    topic_id: int = 0
    limit: int = 1_000
    max_bytes: int = 1 << 20
    wait_us: int = 0
    seen: int = 0

    def fields(self) -> list[Any]:
        return [self.topic, _after_out(self.after), *self[2:]]

    @classmethod
    def of(cls, fields: Sequence[Any]) -> Ask:
        """
        Raises:
            Corrupt: it is not the form of a pull.
        """
        if len(fields) < len(cls._fields):
            raise cbor.malformed("a pull", list(fields))
        topic, after, partition, *rest = fields[: len(cls._fields)]
        if not (
            type(topic) is str
            and (partition is None or _is_number(partition))
            and all(map(_is_number, rest))
        ):
            raise cbor.malformed("a pull", list(fields))
        return cls(topic, _after_in(after), partition, *rest)


def request(reference: int, verb: int, *fields: Any) -> bytes:
    return cbor.dumps([reference, verb, *fields])


def order(reference: int, head: bytes, accepted: bool) -> bytes:
    """The request that a command be ordered."""
    return b"".join(
        (
            _ARRAY_4,
            cbor.numbers(reference, ORDER),
            cbor.bytes_head(len(head)),
            head,
            cbor.TRUE if accepted else cbor.FALSE,
        )
    )


def order_in(raw: bytes) -> tuple[int, bytes, bool] | None:
    """Reference, head and accepted, of what `order` has written; None: `opened` has to look at it."""
    if raw[:1] != _ARRAY_4 or len(raw) < _ORDER_BYTES_MIN:
        return None
    reference, at = raw[1], 2
    if reference >= 24:
        size = _SIZES.get(reference)
        if size is None:
            return None
        at += size
        reference = int.from_bytes(raw[2:at], "big")
    if raw[at] != ORDER or raw[at + 1] != 0x58:
        return None
    start = at + 3
    end = start + raw[at + 2]
    last = raw[end:]
    if last != cbor.FALSE and last != cbor.TRUE:
        return None
    return reference, raw[start:end], last == cbor.TRUE


def result(reference: int, outcome: int, found: Result) -> bytes:
    """What became of an order."""
    code, first, count, time, position, detail, reason, duplicate = found
    known = cbor.numbers(reference, outcome, code, first, count, time, position, detail, reason)
    return b"".join((_ARRAY_10, known, cbor.TRUE if duplicate else cbor.FALSE))


def result_in_answer(raw: bytes) -> tuple[int, int, Result] | None:
    """Reference, outcome and result, of what `result` has written; None: `opened` has to look."""
    if raw[:1] != _ARRAY_10:
        return None
    read = cbor.numbers_in(raw, 1, 9)
    if read is None:
        return None
    (reference, outcome, *fields), end = read
    last = raw[end:]
    if (last != cbor.FALSE and last != cbor.TRUE) or (outcome != DONE and outcome != MORE):
        return None
    found: Result = tuple.__new__(Result, (*fields, last == cbor.TRUE))
    return reference, outcome, found


def answer(reference: int, *fields: Any) -> bytes:
    return cbor.dumps([reference, DONE, *fields])


def failure(reference: int, error: DuckrowError) -> bytes:
    return cbor.dumps([reference, int(Outcome.FAILED), *fields_of(error)])


def opened(raw: Buffer) -> tuple[int, int, list[Any]]:
    """Reference, verb or outcome, and the fields.

    Raises:
        Corrupt, LimitExceeded: it is not the head of a request or an answer.
    """
    fields = cbor.loads_array(raw)
    if len(fields) < 2 or not (_is_number(fields[0]) and _is_number(fields[1])):
        raise cbor.malformed("the head of a request or an answer", fields)
    return fields[0], fields[1], fields[2:]


def result_in(fields: Sequence[Any]) -> Result:
    """
    Raises:
        Corrupt: it is not a result.
    """
    if len(fields) < len(Result._fields) or not set(map(type, fields[:8])) <= _PLAIN:
        raise cbor.malformed("a result", list(fields))
    return Result(*fields[: len(Result._fields)])


# -- batches ----------------------------------------------------------------------------------

# partition, codec, count, size of the body, first, start, stop, time, position, pid
_ROW: Final = struct.Struct("<IIIIQQQqQ16s")
_FOUND_HEAD: Final = b"\x87"  # an array of 7: reference, outcome, and five fields
_FOUND_HEAD_MORE: Final = b"\x88"  # and where the archive is, if something is missing
_ALIGNMENT: Final = 8  # of bodies, so that their arrays lie as they did at the producer


def encode_pulled(
    reference: int, pulled: Pulled, outcome: Outcome = Outcome.DONE
) -> tuple[bytes, list[Buffer]]:
    """Head and body: a row for each batch, and then their bodies, each padded."""
    fields, body = encode_found(pulled)
    return found(reference, outcome, fields), body


def found(reference: int, outcome: Outcome, fields: bytes) -> bytes:
    """The head of an answer with what was found; the fields may be those of many answers."""
    names = cbor.dumps(reference) + cbor.dumps(int(outcome))
    return b"".join((fields[:1], names, fields[1:]))


def encode_found(pulled: Pulled) -> tuple[bytes, list[Buffer]]:
    """What all who get the same are told: the head of the array and its fields, with no reference and
    outcome between them yet; and the body.
    """
    spans = [number for p, (first, last) in pulled.spans.items() for number in (p, first, last)]
    fields = [pulled.topic_id, pulled.missing, _after_out(pulled.after), spans, len(pulled.batches)]
    head = _FOUND_HEAD
    if pulled.archive:
        head = _FOUND_HEAD_MORE
        fields.append(pulled.archive)
    rows: list[bytes] = []
    bodies: list[Buffer] = []
    for partition, first, count, start, stop, time, position, pid, codec, body in pulled.batches:
        size = len(body)
        rows.append(
            _ROW.pack(partition, codec, count, size, first, start, stop, time, position, pid)
        )
        bodies.append(body)
        if size % _ALIGNMENT:
            bodies.append(bytes(-size % _ALIGNMENT))
    return b"".join([head, *map(cbor.dumps, fields)]), [b"".join(rows), *bodies]


def decode_pulled(fields: Sequence[Any], body: Buffer) -> Pulled:
    """
    Raises:
        Corrupt: the fields, or the rows in the body, are not those of a pull.
    """
    match fields:
        case [int(topic_id), int(missing), after, list(spans), int(count), *more] if len(
            spans
        ) % 3 == 0 and all(map(_is_number, spans)):
            archive = more[0] if more and type(more[0]) is str else ""
        case _:
            raise cbor.malformed("the answer to a pull", list(fields))
    at = count * _ROW.size
    if not 0 <= at <= len(body):
        raise Corrupt(f"{len(body):,} bytes cannot hold the rows of {count:,} batches")
    view = memoryview(body)
    batches: list[Batch] = []
    for row in _ROW.iter_unpack(view[:at]):
        partition, codec, entries, size, first, start, stop, time, position, pid = row
        if not first <= start < stop <= first + entries or at + size > len(body):
            raise Corrupt(f"the answer to a pull has a batch that cannot be: {row}")
        found = view[at : at + size]
        batches.append(
            Batch(partition, first, entries, start, stop, time, position, pid, codec, found)
        )
        at += size + -size % _ALIGNMENT
    found_spans = dict(zip(spans[::3], zip(spans[1::3], spans[2::3], strict=True), strict=True))
    return Pulled(topic_id, batches, missing, _after_in(after), found_spans, archive)


# -- where a reader stands ----------------------------------------------------------------------

_CURSOR, _LAST, _BACK = 0, 1, 2


def _after_out(after: After) -> Any:
    if isinstance(after, int):
        return after
    if isinstance(after, Cursor):
        return [_CURSOR, after.since, *(n for pair in after.done.items() for n in pair)]
    if isinstance(after, cursors.Back):
        return [_BACK, after.entries]
    return [_LAST]


def _after_in(form: Any) -> After:
    if _is_number(form):
        return int(form)
    if type(form) is list and form and all(map(_is_number, form)):
        kind, *numbers = form
        if kind == _LAST:
            return cursors.LAST
        if kind == _BACK and numbers:
            return cursors.Back(numbers[0])
        if kind == _CURSOR and len(numbers) % 2 == 1:
            return Cursor(dict(zip(numbers[1::2], numbers[2::2], strict=True)), numbers[0])
    raise cbor.malformed("a place to read after", form)


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < NUMBER_LIMIT
