"""The fast lane of recovery: after a kill, hundreds of thousands of records are just what they
should be, and they are passed here with as few steps as Python allows.

    [BUNDLE heads bodies][ITEM][BUNDLE heads bodies][ITEM][MARK][BUNDLE ...

Only that: a bundle, right after it the item that places it next in the row, now and then a mark.
Every checksum is checked, and the chain of digests.  Whatever else comes ends it and is looked at by
those who know what it means, so nothing is decided here.
"""

from __future__ import annotations

import struct
from array import array
from contextlib import suppress
from hashlib import blake2b
from typing import Final

from . import cbor
from .checksum import crc32c
from .errors import Corrupt
from .forms import DIGEST_BYTES, IDENTITY, LINK
from .places import OFFSET_SHIFT, SEGMENT_SHIFT
from .records import PREFIX, PREFIX_BYTES, RecordKind


class Glide:
    __slots__ = (
        "digest",
        "durable",
        "heard",
        "offset",
        "places",
        "position",
        "records",
        "start_count",
    )

    def __init__(
        self, position: int, digest: bytes, places: array[int], offset: int, start_count: int
    ) -> None:
        self.position, self.digest, self.places, self.offset = position, digest, places, offset
        self.start_count = start_count  # of the incarnation that wrote; another one has a START
        self.durable = self.records = 0
        self.heard: dict[int, int] = {}  # origin -> s of its last bundle

    def run(self, window: bytes, base: int, end: int, segment: int, seed: int) -> None:
        """From `offset` on, while records end below `end`; `offset` then is where it stopped."""
        with suppress(Corrupt, TypeError, ValueError, struct.error):  # not what its kind should be
            self._run(window, base, end, segment << SEGMENT_SHIFT, seed)

    def _run(self, window: bytes, base: int, end: int, segment: int, seed: int) -> None:
        unpack, loads, pack_identity, pack_link = (
            PREFIX.unpack_from,
            cbor.loads_own,
            IDENTITY.pack,
            LINK.pack,
        )
        add = self.places.append
        position, digest, offset, records = self.position, self.digest, self.offset, self.records
        heard = self.heard
        limit, expected = end - base - PREFIX_BYTES, self.start_count
        while (at := offset - base) <= limit:
            crc, length, head_length, kind, _, start_count, durable = unpack(window, at)
            head_at = at + PREFIX_BYTES
            body_at = head_at + (head_length + 7 & ~7)
            if start_count != expected or crc32c(window[at + 4 : body_at], seed ^ offset) != crc:
                break
            if kind != _BUNDLE:
                if kind != _MARK:
                    break
                records += 1
                self.offset = offset = base + body_at
                self.durable, self.records = durable, records
                continue
            view, origin, s, lamport, stamp, commands, heads_length, item_crc = loads(
                window[head_at : head_at + head_length]
            )
            identity = pack_identity(view, origin, s, lamport, stamp, commands)
            if crc32c(window[body_at : body_at + heads_length], crc32c(identity)) != item_crc:
                break
            at = body_at + (length + 5 - head_length & ~7)  # of the body: length - 2 - head_length
            if at > limit:
                break
            crc, length, head_length, kind, _, start_count, durable = unpack(window, at)
            head_at = at + PREFIX_BYTES
            body_at = head_at + (head_length + 7 & ~7)
            if (
                kind != _ITEM
                or start_count != expected
                or body_at + base > end
                or crc32c(window[at + 4 : body_at], seed ^ (base + at)) != crc
            ):
                break
            found, where, found_crc, chained = loads(window[head_at : head_at + head_length])
            link = pack_link(digest, position + 1, item_crc)
            if (
                found != position + 1
                or where != segment | offset >> 3 << OFFSET_SHIFT
                or found_crc != item_crc
                or blake2b(link, digest_size=DIGEST_BYTES).digest() != chained
            ):
                break
            add(where)
            position, digest, offset = found, chained, base + body_at
            records += 2
            self.position, self.digest, self.offset = position, digest, offset
            heard[origin] = s
            self.durable, self.records = durable, records


_BUNDLE: Final = int(RecordKind.BUNDLE)
_ITEM: Final = int(RecordKind.ITEM)
_MARK: Final = int(RecordKind.MARK)
