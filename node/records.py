"""Records: how anything lies in the files of the row store, and how it is found again.

    0     4        8             10     11      12            16        24
    crc | length | head length | kind | flags | start count | durable | head, to 8 | body, to 8

`length` is that of the frame on a socket: 2, the head, the body.  `crc` (crc32c) covers everything
before the body; what lies in the body is covered by checksums in the head.  `start count` is that
of the incarnation that wrote the record; `durable` is the address (places.py) up to which the store
was durable then.  That is what tells a torn tail from damage: a bad record below an address that a
good one claims durable was whole once.

The checksum is salted with the store, the segment and the offset, so a record that strayed, an old
one that shines through, and a file of another store are all invalid where they lie.  A block of
00 or FF never passes, whatever the salt: no kind is 0 or 255.

Records begin at multiples of 8.  After damage the next one is found by looking at each of them.
"""

from __future__ import annotations

import enum
import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from .checksum import crc32c
from .env import Buffer
from .limits import FRAME_BYTES_MAX, HEAD_BYTES_MAX


class RecordKind(enum.IntEnum):
    """The numbers are on disk: never reuse one."""

    SEGMENT = 1  # the first of each file: whose it is, and copies of what older files say (N6)
    START = 2  # an incarnation begins
    CLEAN = 3  # it ended in order
    VIEW = 4  # the newest decided view
    REGISTER = 5  # promised and accepted for the next view; the bridge's
    BUNDLE = 6  # commands, received or own
    ITEM = 7  # a bundle or view is at this position of the row
    BASE = 8  # an image took the place of everything up to a position (N5); the bridge's
    SETTLED = 9  # an own bundle needs no staging any more (N3); the bridge's
    MARK = 10  # nothing but its `durable`, written after a sync when nothing else follows
    FLOOR = 11  # every item from a position on is whole; written before something older goes
    GAP = 12  # stands for records that nobody needs any more; its body is a hole up to the next one


PREFIX: Final = struct.Struct("<IIHBBIQ")
PREFIX_BYTES: Final = PREFIX.size
FLAG_REWRITTEN: Final = 1  # of SEGMENT: what was dead in this file was left out
REACH_MAX: Final = PREFIX_BYTES + HEAD_BYTES_MAX + 1  # of what `crc` covers
_CHECKED: Final = struct.Struct("<IHBBIQ")
_SALT: Final = struct.Struct("<16sQ")
_LAST_KIND: Final = max(RecordKind)
_GAP: Final = int(RecordKind.GAP)
_FLAGS_MAX: Final = FLAG_REWRITTEN
# Kind and flags, ten bytes into a record; the flags are only looked at, they may be a kind too.
_KIND_AT: Final = 10
_CANDIDATE: Final = re.compile(
    rb"[\x01-\x%02x](?=[\x00-\x%02x])" % (_LAST_KIND, _FLAGS_MAX), re.DOTALL
)
_PADDING: Final = tuple(bytes(n) for n in range(8))

assert PREFIX_BYTES == 24


class Record(NamedTuple):
    """What `crc` covers of one record, checked."""

    offset: int  # in its file
    kind: int
    flags: int
    start_count: int
    durable: int
    head: bytes
    body_offset: int
    body_length: int
    end: int


def seed_of(uuid: bytes, segment: int) -> int:
    """The salt of a file's checksums; the offset is added by `^`, which keeps offsets apart."""
    return crc32c(_SALT.pack(uuid, segment))


def padding(length: int) -> bytes:
    return _PADDING[-length & 7]


def padded(length: int) -> int:
    return length + 7 & ~7


def size_of(head_length: int, body_length: int) -> int:
    return PREFIX_BYTES + (head_length + 7 & ~7) + (body_length + 7 & ~7)


def encode(
    kind: int,
    head: bytes,
    *,
    seed: int,
    offset: int,
    start_count: int,
    durable: int,
    body_length: int = 0,
    flags: int = 0,
) -> bytes:
    """Everything of a record but its body."""
    length = len(head)
    checked = (
        _CHECKED.pack(2 + length + body_length, length, kind, flags, start_count, durable)
        + head
        + _PADDING[-length & 7]
    )
    return crc32c(checked, seed ^ offset).to_bytes(4, "little") + checked


def decode(window: Buffer, base: int, offset: int, seed: int | None) -> Record | None:
    """The record at `offset` of the file whose bytes from `base` on are in `window`.

    Without a seed it is not checked, but for its form.

    None: there is no valid one, or the window ends before its body begins; a window that holds
    REACH_MAX bytes from `offset` on, or the rest of the file, leaves no doubt.
    """
    at = offset - base
    if at + PREFIX_BYTES > len(window):
        return None
    crc, length, head_length, kind, flags, start_count, durable = PREFIX.unpack_from(window, at)
    body_at = at + PREFIX_BYTES + (head_length + 7 & ~7)
    body_length = length - 2 - head_length
    if (
        not 1 <= kind <= _LAST_KIND
        or flags > _FLAGS_MAX
        or body_length < 0
        or (body_length > FRAME_BYTES_MAX and kind != _GAP)
        or body_at > len(window)
        or (seed is not None and crc32c(window[at + 4 : body_at], seed ^ offset) != crc)
    ):
        return None
    head_at = at + PREFIX_BYTES
    return Record(
        offset,
        kind,
        flags,
        start_count,
        durable,
        bytes(window[head_at : head_at + head_length]),
        base + body_at,
        body_length,
        base + body_at + (body_length + 7 & ~7),
    )


def begins_again(
    left: bytes, head: bytes, seed: int, start_count: int, durable: int
) -> bytes | None:
    """The record that began a file, where its head is known, and what is left of it agrees; else None."""
    _, _, _, _, flags, started, claimed = PREFIX.unpack_from(left)
    flags &= _FLAGS_MAX
    for known in (flags, flags ^ FLAG_REWRITTEN):
        record = encode(
            RecordKind.SEGMENT,
            head,
            seed=seed,
            offset=0,
            start_count=started,
            durable=claimed,
            flags=known,
        )
        if record[:4] == left[:4]:
            return record
    if left[PREFIX_BYTES : PREFIX_BYTES + len(head)] != head:
        return None
    return encode(
        RecordKind.SEGMENT,
        head,
        seed=seed,
        offset=0,
        start_count=start_count,
        durable=durable,
        flags=flags,
    )


def is_rewritten(beginning: bytes) -> bool:
    """By the first record of a file."""
    return bool(beginning[_KIND_AT + 1] & FLAG_REWRITTEN)


def candidates(window: bytes, base: int, start: int = 0) -> Iterator[int]:
    """Offsets in the file at which a record could begin, by its kind and flags, from `start` on."""
    for match in _CANDIDATE.finditer(window, max(0, start - base) + _KIND_AT):
        offset = base + match.start() - _KIND_AT
        if offset & 7 == 0:
            yield offset


def first_after(
    window: bytes, base: int, offset: int, seed: int, start_count: int
) -> Record | None:
    """The first record at or after `offset` that is valid and of that start or a later one."""
    for candidate in candidates(window, base, offset):
        record = decode(window, base, candidate, seed)
        if record is not None and record.start_count >= start_count:
            return record
    return None


def last_in(window: bytes, base: int, seed: int) -> Record | None:
    """The last valid record that begins in the window, and whose head ends in it."""
    for candidate in reversed(list(candidates(window, base))):
        record = decode(window, base, candidate, seed)
        if record is not None:
            return record
    return None
