"""What neighbours say about images: asked for slice by slice, by who takes one (C4, N5).

    WantImage(0, 0, 4711)     one of that position at least?      ◄── ImageOffer, or NoImage
    WantImage(p, 0, 81920)    of its state, from that offset      ◄── ImageSlice: bytes
    WantImage(p, 7, 4096)     of its segment 7, from that offset  ◄── ImageSlice: records

The beginnings of small segments are asked for together, all else one by one.  Who asks has all that was
answered before, so a slice that is lost with a link is asked for again.
Slices go out when nothing else waits.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from duckrow.node.checksum import crc32c
from duckrow.node.env import Buffer
from duckrow.node.errors import Corrupt
from duckrow.node.forms import DIGEST_BYTES, encode_view
from duckrow.node.incoming import Piece
from duckrow.node.row import View
from duckrow.node.rowwire import Written, as_bytes, as_view, check_numbers, of_pairs, pairs

_PIECE: Final = struct.Struct("<QHI")
_SEGMENT: Final = struct.Struct("<QQ")  # number and length


class WantImage(NamedTuple):
    image: int  # its position; 0: any
    segment: int  # 0: the state
    offset: int  # of any image: the least position that is of use


class ImageOffer(NamedTuple):
    image: int  # the position up to which it stands for the row
    digest: bytes
    view: View  # of the last mark there
    delivered: dict[int, int]  # by origin, of that view
    size: int  # of the state
    segments: dict[int, int]  # number and length of those that hold something alive


class ImageSlice(NamedTuple):
    image: int
    segment: int
    offset: int  # as it was asked for
    following: int  # where to go on; the length: this was the last
    data: Buffer = b""  # of the state
    pieces: tuple[Piece, ...] = ()  # of a segment


class NoImage(NamedTuple):
    """Not here and now; or not that one any more."""

    image: int


ImageMessage = WantImage | ImageOffer | ImageSlice | NoImage


def encode_offer(offer: ImageOffer) -> Written:
    """The segments are in the body: there may be more of them than fit a head."""
    image, digest, view, delivered, size, segments = offer
    body = b"".join([_SEGMENT.pack(*each) for each in segments.items()])
    told = [image, digest, encode_view(view), pairs(delivered), size, crc32c(body)]
    return Written(told, [body])


def decode_offer(fields: list[Any], body: Buffer) -> ImageOffer:
    image, digest, view, delivered, size, crc = fields[:6]
    check_numbers(image, size)
    if crc32c(body) != crc or len(body) % _SEGMENT.size:
        raise Corrupt("the segments of an image that is offered are not what they were")
    segments = dict(_SEGMENT.iter_unpack(body))
    check_numbers(*segments, *segments.values())
    if len(as_bytes(digest)) != DIGEST_BYTES:
        raise ValueError(digest)
    return ImageOffer(image, digest, as_view(view), of_pairs(delivered), size, segments)


def encode_slice(given: ImageSlice) -> Written:
    *told, data, pieces = given
    body: list[Buffer] = [data] if len(data) else []
    for offset, head, content in pieces:
        body += (_PIECE.pack(offset, len(head), len(content)), head, content)
    crc = 0
    for part in body:
        crc = crc32c(part, crc)
    return Written([*told, crc], body)


def decode_slice(fields: list[Any], body: Buffer) -> ImageSlice:
    image, segment, offset, following, crc = fields[:5]
    check_numbers(image, segment, offset, following)
    if crc32c(body) != crc:
        raise Corrupt("a slice of an image is not what it was")
    if not segment:
        return ImageSlice(image, segment, offset, following, body)
    window, pieces, at = memoryview(body), [], 0
    while at < len(window):
        if at + _PIECE.size > len(window):
            raise Corrupt("a slice of an image ends in the middle of a record")
        start, head, length = _PIECE.unpack_from(window, at)
        at += _PIECE.size
        end = at + head + length
        if end > len(window):
            raise Corrupt("a slice of an image ends in the middle of a record")
        pieces.append(Piece(start, bytes(window[at : at + head]), window[at + head : end]))
        at = end
    return ImageSlice(image, segment, offset, following, pieces=tuple(pieces))


def decode_want(fields: list[Any], _: Buffer) -> WantImage:
    check_numbers(*fields[:3])
    return WantImage(*fields[:3])


def decode_none(fields: list[Any], _: Buffer) -> NoImage:
    check_numbers(fields[0])
    return NoImage(fields[0])
