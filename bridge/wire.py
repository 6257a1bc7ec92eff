"""The wire between bridges: messages as frames, and frames as messages.

    [kind, fields ...]                      the head, strict CBOR; kinds are numbers, see `Kind`
    heads block, to 8 | bodies, each to 8   the body of a frame that carries a bundle: as on the disk

A bundle's bodies are neither copied nor opened, only checked: its item crc stands for the heads, and
the heads hold the crc of each body.  Whoever passes a bundle on sends the very same bytes.

Views go as they lie in a VIEW record.  Numbers are whole and below 2^64; whatever is otherwise is
`Corrupt`, and costs the link.  Fields that come later go to the end, and readers ignore what they
do not know.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any, Final

from duckrow.node import cbor, frames
from duckrow.node.env import Buffer
from duckrow.node.errors import Corrupt
from duckrow.node.forms import encode_view
from duckrow.node.frames import Frame
from duckrow.node.row import Bundle
from duckrow.node.rowwire import (
    BUNDLE_FIELDS,
    MALFORMED,
    Written,
    as_bytes,
    as_view,
    check_numbers,
    decode_bundle,
    decode_item,
    encode_bundle,
    encode_item,
    of_pairs,
    pairs,
)

from .imageforms import (
    ImageOffer,
    ImageSlice,
    NoImage,
    WantImage,
    decode_none,
    decode_offer,
    decode_slice,
    decode_want,
    encode_offer,
    encode_slice,
)
from .messages import (
    Acks,
    Ask,
    Base,
    Control,
    Follow,
    Link,
    Mended,
    Message,
    Newer,
)
from .wirecontrol import decode_payload, encode_payload


class Kind(enum.IntEnum):
    """The numbers go over wires: never reuse one."""

    LINK = 1
    BUNDLE = 2
    ACKS = 3
    BASE = 4
    FOLLOW = 5
    NEWER = 6
    CONTROL = 7
    ASK = 8
    MENDED = 9
    WANT_IMAGE = 10
    IMAGE_OFFER = 11
    IMAGE_SLICE = 12
    NO_IMAGE = 13


class Encoder:
    """Remembers the last Bundle and the last Acks: they go to several neighbours, one after the other."""

    def __init__(self) -> None:
        self._last: dict[type, tuple[Message, list[Buffer]]] = {}

    def encode(self, message: Message) -> list[Buffer]:
        """The buffers of one frame.

        Raises:
            LimitExceeded: it does not fit a frame.
        """
        kind = type(message)
        last = self._last.get(kind)
        if last is not None and last[0] is message:
            return last[1]
        head, body = _ENCODE[kind](message)
        buffers = frames.encode(cbor.dumps(head), *body)
        if kind in _SAID_TO_SEVERAL:
            self._last[kind] = message, buffers
        return buffers


class Decoder:
    """Remembers the last Link: while nothing happens it comes again with every beat."""

    def __init__(self) -> None:
        self._head = b""
        self._link: Link | None = None

    def decode(self, frame: Frame) -> Message:
        """
        Raises:
            Corrupt, LimitExceeded: as `decode`.
        """
        if self._link is not None and frame.head == self._head:
            return self._link
        message = decode(frame)
        if isinstance(message, Link):
            self._head, self._link = frame.head, message
        return message


def decode(frame: Frame) -> Message:
    """
    Raises:
        Corrupt: it is no message, or not whole.
        LimitExceeded: a head with more in it than any has.
    """
    fields = cbor.loads_array(frame.head)
    known = _DECODE.get(fields[0]) if fields and type(fields[0]) is int else None
    if known is None:
        raise cbor.malformed("a message between bridges", fields)
    least, decoder = known
    if len(fields) <= least:
        raise cbor.malformed("a message between bridges", fields)
    try:
        return decoder(fields[1:], frame.body)
    except MALFORMED as error:
        raise cbor.malformed("a message between bridges", fields) from error


def _encode_link(link: Link) -> Written:
    paths = [[node, *path] for node, path in link.paths.items()]
    follow = None if link.follow is None else list(link.follow)
    digest_position, digest = link.digest
    told = [link.view, link.position, digest_position, digest, link.floor, link.disk]
    return Written([_LINK, *told, paths, pairs(link.wants), follow, link.cluster])


def _decode_link(fields: list[Any], _: Buffer) -> Link:
    view, position, digest_position, digest, floor, disk, paths, wants, follow, cluster = fields[
        :10
    ]
    check_numbers(view, position, digest_position, floor)
    if type(disk) is not str:
        raise TypeError(disk)
    for path in paths:
        check_numbers(*path)
    if follow is not None:
        check_numbers(*follow)
        generation, after = follow
        follow = generation, after
    return Link(
        view,
        position,
        (digest_position, as_bytes(digest)),
        floor,
        disk,
        {node: tuple(path) for node, *path in paths},
        of_pairs(wants),
        follow,
        as_bytes(cluster),
    )


def _encode_whole_bundle(bundle: Bundle) -> Written:
    head, body = encode_bundle(bundle)
    return Written([_BUNDLE, *head], body)


def _encode_acks(acks: Acks) -> Written:
    view, member, s, of, beat = acks
    return Written([_ACKS, view, member, s, beat, *pairs(of)])


def _decode_acks(fields: list[Any], _: Buffer) -> Acks:
    view, member, s, beat, *of = fields
    check_numbers(view, member, s, beat)
    return Acks(view, member, s, of_pairs(of), beat)


def _decode_base(fields: list[Any], _: Buffer) -> Base:
    view, origin, s = fields[:3]
    check_numbers(view, origin, s)
    return Base(view, origin, s)


def _decode_whole_bundle(fields: list[Any], body: Buffer) -> Bundle:
    bundle, _, end = decode_bundle(fields, body)
    if end != len(body):
        raise Corrupt(f"behind bundle {bundle[:3]} there is something else in its frame")
    return bundle


def _encode_follow(follow: Follow) -> Written:
    head, body = encode_item(follow.item)
    return Written([_FOLLOW, follow.generation, *head], body)


def _decode_follow(fields: list[Any], body: Buffer) -> Follow:
    generation, *item = fields
    check_numbers(generation)
    return Follow(generation, decode_item(item, body))


def _encode_mended(mended: Mended) -> Written:
    head, body = encode_item(mended.item)
    return Written([_MENDED, *head], body)


def _encode_offer(offer: ImageOffer) -> Written:
    head, body = encode_offer(offer)
    return Written([int(Kind.IMAGE_OFFER), *head], body)


def _encode_slice(given: ImageSlice) -> Written:
    head, body = encode_slice(given)
    return Written([int(Kind.IMAGE_SLICE), *head], body)


def _decode_ask(fields: list[Any], _: Buffer) -> Ask:
    check_numbers(*fields[0])
    return Ask(tuple(fields[0]))


def _encode_control(control: Control) -> Written:
    source, incarnation, n, to, payload = control
    head, body = encode_payload(payload)
    return Written([_CONTROL, source, incarnation, n, to, *head], body)


def _decode_control(fields: list[Any], body: Buffer) -> Control:
    source, incarnation, n, to, *payload = fields
    check_numbers(source, incarnation, n)
    if to is not None:
        check_numbers(to)
    return Control(source, incarnation, n, to, decode_payload(payload, body))


_LINK: Final = int(Kind.LINK)
_BUNDLE: Final = int(Kind.BUNDLE)
_ACKS: Final = int(Kind.ACKS)
_FOLLOW: Final = int(Kind.FOLLOW)
_CONTROL: Final = int(Kind.CONTROL)
_MENDED: Final = int(Kind.MENDED)

_SAID_TO_SEVERAL: Final = frozenset((Bundle, Acks))
_ENCODE: Final[dict[type, Callable[[Any], Written]]] = {
    Link: _encode_link,
    Bundle: _encode_whole_bundle,
    Acks: _encode_acks,
    Base: lambda base: Written([int(Kind.BASE), *base]),
    Follow: _encode_follow,
    Newer: lambda newer: Written([int(Kind.NEWER), encode_view(newer.view)]),
    Control: _encode_control,
    Ask: lambda ask: Written([int(Kind.ASK), list(ask.positions)]),
    Mended: _encode_mended,
    WantImage: lambda want: Written([int(Kind.WANT_IMAGE), *want]),
    ImageOffer: _encode_offer,
    ImageSlice: _encode_slice,
    NoImage: lambda none: Written([int(Kind.NO_IMAGE), *none]),
}
# The least number of fields behind the kind, and who reads them.
_DECODE: Final[dict[int, tuple[int, Callable[[list[Any], Buffer], Message]]]] = {
    Kind.LINK: (10, _decode_link),
    Kind.BUNDLE: (BUNDLE_FIELDS, _decode_whole_bundle),
    Kind.ACKS: (4, _decode_acks),
    Kind.BASE: (3, _decode_base),
    Kind.FOLLOW: (4, _decode_follow),
    Kind.NEWER: (1, lambda fields, _: Newer(as_view(fields[0]))),
    Kind.CONTROL: (6, _decode_control),
    Kind.ASK: (1, _decode_ask),
    Kind.MENDED: (3, lambda fields, body: Mended(decode_item(fields, body))),
    Kind.WANT_IMAGE: (3, decode_want),
    Kind.IMAGE_OFFER: (6, decode_offer),
    Kind.IMAGE_SLICE: (5, decode_slice),
    Kind.NO_IMAGE: (1, decode_none),
}


def pieces(messages: Iterable[Message], encoder: Encoder) -> list[Buffer]:
    """All of them, for one vectored write."""
    return [buffer for message in messages for buffer in encoder.encode(message)]
