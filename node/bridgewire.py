"""What a node and its bridge say to each other, over a Unix socket (N1).

    node ──►  ATTACH  FOLLOW after  TAKEN bytes of items  SUBMIT commands  SETTLE names  RELEASE  LACKS
              ASK reference, what
    bridge ►  WELCOME  ITEM  STATUS  SEGMENTS  STAGED heads  REFUSED heads  ANSWER reference
    node ──►  PIECE number, bytes  GIVEN number, what          when the bridge says GIVE number

Frames as everywhere; heads are CBOR arrays that begin with the kind.  Items of the past come without
their bodies, and so do those that the node itself has submitted; others that were just ordered, with them.  Both ends are of one machine and one version,
but a kill leaves old ones behind: the first frame of each says its version.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from . import cbor, frames
from .commands import Command
from .env import Buffer
from .errors import Corrupt, DuckrowError, fields_of, rebuilt
from .frames import Frame
from .row import Bundle, Item, RowStatus, View
from .rowwire import (
    BUNDLE_FIELDS,
    MALFORMED,
    Written,
    decode_bundle,
    decode_item,
    encode_bundle,
    encode_heads,
    encode_item,
)

VERSION: Final = 4
RUNS_SECONDS: Final = 1.0  # between two words that a bridge runs, at most
Name = tuple[int, int, int]


class Said(enum.IntEnum):
    """By the node."""

    ATTACH = 1
    FOLLOW = 2
    SUBMIT = 3
    SETTLE = 4
    RELEASE = 5
    ASK = 6
    GIVEN = 7  # all of an image is there but the last piece: what it is
    PIECE = 8  # of it, in the body; an empty one is the last, and if GIVEN did not come, there is no image
    LACKS = 9  # its index has lost something: an image of another machine would bring it
    TAKEN = 10  # so many bytes more of items that came by this connection: others may come


class Told(enum.IntEnum):
    """By the bridge."""

    WELCOME = 1
    ITEM = 2
    STATUS = 3
    SEGMENTS = 4
    STAGED = 5
    REFUSED = 6
    ANSWER = 7
    GIVE = 8  # an image is wanted; its number is told with all its parts
    RUNS = 9  # nothing else


class What(enum.IntEnum):
    """A node asks of the store."""

    PLACE = 1  # of a position
    DIGEST = 2  # at a position
    HEADS = 3  # at a place
    BODY = 4  # at a place; whether it is alive
    SYNC = 5
    DROP = 6  # segments
    REWRITE = 7  # a segment, for the places in the body
    MEMBER = 8  # what an operator asks of the bridge: see bridge/admin.py
    IMAGE = 9  # a part of the state that came with one; with it the need for one is told


class Welcome(NamedTuple):
    version: int
    id: int
    uuid: bytes
    formers: tuple[bytes, ...]
    level: str
    floor: int
    ordered: tuple[Name, ...]  # stages that are in the row already; the state has them, or will
    image: str  # that the row began with: another one, another row; empty: with none
    leads_on: bool = True  # the last item that the node has lies where it lay


def frame(head: Iterable[Any], *body: Buffer) -> list[Buffer]:
    return frames.encode(cbor.dumps(list(head)), *body)


def opened(found: Frame) -> tuple[int, list[Any]]:
    """
    Raises:
        Corrupt: it is no message.
    """
    fields = cbor.loads_array(found.head)
    if not fields or type(fields[0]) is not int:
        raise cbor.malformed("what a node and its bridge say", fields)
    return fields[0], fields[1:]


# -- commands and items -------------------------------------------------------------------------


def submit(commands: Sequence[Command], *, accepted: bool = False) -> list[Buffer]:
    """`accepted`: STAGED is waited for, and told."""
    head, body = encode_bundle(_nameless(commands))
    return frame([int(Said.SUBMIT), *head, accepted], *body)


def is_awaited(fields: list[Any]) -> bool:
    """Of what `submit` makes."""
    return fields[BUNDLE_FIELDS:] == [True]


def refused(commands: Sequence[Command], error: DuckrowError) -> list[Buffer]:
    head, body = encode_heads(_nameless(commands))
    return frame([int(Told.REFUSED), *fields_of(error), *head], *body)


def commands_of(fields: list[Any], body: Buffer, *, heads_only: bool = False) -> Bundle:
    """
    Raises:
        Corrupt: they are not what they were.
    """
    try:
        return decode_bundle(fields, body, heads_only=heads_only)[0]
    except MALFORMED as error:
        raise cbor.malformed("commands", fields) from error


def staged(bundle: Bundle) -> list[Buffer]:
    return _heads_frame(Told.STAGED, bundle)


def _heads_frame(kind: Told, bundle: Bundle) -> list[Buffer]:
    head, body = encode_heads(bundle)
    return frame([int(kind), *head], *body)


def item(given: Item, own: int) -> list[Buffer]:
    """`own`: the node of this id has the bodies of what it submitted."""
    content = given.content
    whole = isinstance(content, View) or (content.origin != own and _is_whole(content))
    if whole:
        head, body = encode_item(given)
    else:
        assert isinstance(content, Bundle)
        heads = encode_heads(content)
        head, body = Written([given.position, given.crc, *heads.head], heads.body)
    return frame([int(Told.ITEM), given.place, whole, *head], *body)


def item_of(fields: list[Any], body: Buffer) -> Item:
    """
    Raises:
        Corrupt: it is not what it was.
    """
    try:
        place, whole, *rest = fields
        if whole:
            return decode_item(rest, body)._replace(place=place)
        position, crc, *heads = rest
        bundle, found, _ = decode_bundle(heads, body, heads_only=True)
    except MALFORMED as error:
        raise cbor.malformed("an item", fields) from error
    if found != crc:
        raise Corrupt(f"the heads of the item at position {position} are not what they were")
    return Item(position, place, crc, bundle)


def _is_whole(bundle: Bundle) -> bool:
    """One that was read again for its heads has no bodies; one of bodiless commands is whole, too."""
    return any(len(body) for _, body in bundle.commands)


def _nameless(commands: Sequence[Command]) -> Bundle:
    return Bundle(0, 0, 0, 0, 0, tuple(commands))


# -- what else is told --------------------------------------------------------------------------


def attach(last: tuple[int, int]) -> list[Buffer]:
    """`last`: position and place of the last item that came; zeros, if none did."""
    return frame([int(Said.ATTACH), VERSION, *last])


def last_of(fields: list[Any]) -> tuple[int, int]:
    """Of what `attach` makes.

    Raises:
        Corrupt: it is of another version.
    """
    version, *last = fields
    if version != VERSION:
        raise Corrupt(f"the node speaks version {version!r} to its bridge")
    return (last[0], last[1]) if len(last) > 1 else (0, 0)


def welcome(told: Welcome) -> list[Buffer]:
    names = [list(name) for name in told.ordered]
    formers = list(told.formers)
    return frame([int(Told.WELCOME), *told[:3], formers, *told[4:6], names, *told[7:]])


def welcome_of(fields: list[Any]) -> Welcome:
    """
    Raises:
        Corrupt: it is none, or of another version.
    """
    try:
        version, id_, uuid, formers, level, floor, names, *more = fields
        ordered = tuple([(view, origin, s) for view, origin, s in names])
    except MALFORMED as error:
        raise cbor.malformed("the welcome of a bridge", fields) from error
    if version != VERSION:
        raise Corrupt(f"the bridge speaks version {version!r} to its node, and this is {VERSION}")
    if not more or type(more[0]) is not str:
        raise cbor.malformed("the welcome of a bridge", fields)
    leads_on = more[1:2] != [False]
    return Welcome(version, id_, uuid, tuple(formers), level, floor, ordered, more[0], leads_on)


def status(told: RowStatus, floor: int) -> list[Buffer]:
    active, members, *rest, missing, witness = told
    return frame([int(Told.STATUS), floor, active, list(members), *rest, list(missing), witness])


def status_of(fields: list[Any]) -> tuple[int, RowStatus]:
    """The floor, too."""
    floor, active, members, position, durable, view, disk, missing, witness = fields[:9]
    told = RowStatus(active, tuple(members), position, durable, view, disk, tuple(missing), witness)
    return floor, told


Facts = tuple[int, int, int, int, int, bool, bool]  # of a segment: see SegmentInfo


def runs() -> list[Buffer]:
    return frame([int(Told.RUNS)])


def segments(told: Iterable[Facts]) -> list[Buffer]:
    """In the body: there may be more of them than fit a head."""
    return frame([int(Told.SEGMENTS)], array("Q", chain.from_iterable(told)).tobytes())


def segments_of(body: Buffer) -> Iterator[Facts]:
    numbers = iter(_numbers(body))
    for number, first, last, reach, size, sealed, rewritten in zip(*[numbers] * 7, strict=True):
        yield number, first, last, reach, size, bool(sealed), bool(rewritten)


def given(number: int, position: int, view: bytes, segments: Iterable[int]) -> list[Buffer]:
    """An image begins; the segments that it needs are in the body, as above."""
    return frame([int(Said.GIVEN), number, position, view], array("Q", segments).tobytes())


def given_of(fields: list[Any], body: Buffer) -> tuple[int, int, bytes, tuple[int, ...]]:
    number, position, view = fields[:3]
    return number, position, view, tuple(_numbers(body))


def _numbers(body: Buffer) -> array[int]:
    found = array("Q")
    found.frombytes(bytes(body))
    return found


# -- questions to the store ---------------------------------------------------------------------


def ask(reference: int, what: What, *arguments: object, places: Sequence[int] = ()) -> list[Buffer]:
    packed = array("Q", places).tobytes()
    return frame([int(Said.ASK), reference, int(what), *arguments], packed)


def places_of(body: Buffer) -> frozenset[int]:
    return frozenset(_numbers(body))


def answer(reference: int, value: object, *body: Buffer) -> list[Buffer]:
    return frame([int(Told.ANSWER), reference, True, value], *body)


def failure(reference: int, error: DuckrowError) -> list[Buffer]:
    return frame([int(Told.ANSWER), reference, False, *fields_of(error)])


def answer_of(fields: list[Any]) -> tuple[int, object]:
    """The reference, and the value or the error."""
    reference, fine, value, *more = fields
    return reference, value if fine else rebuilt(value, *more)
