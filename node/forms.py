"""Forms: what the records of each kind say, and what makes an item the same on every machine.

The heads are CBOR arrays (records.py says how they lie in files):

    SEGMENT   magic, version, uuid, segment, end of the segment before, then the copies (chronicle.py)
    START     incarnation, boot id, level, start count, uuid
    CLEAN     incarnation
    VIEW      id, members, cluster, lineage, durability, min copies, voters, cut, cont
    REGISTER  promised and accepted for the next view (registerform.py)
    BUNDLE    view, origin, s, lamport, stamp, count, length of the heads, item crc
    ITEM      position, place of the bundle or view, item crc, digest
    BASE      position, digest, view, files, and of each origin the last s of that view
    SETTLED   view, origin, s
    MARK      nothing
    FLOOR     position
    GAP       first and last position in it, digests before and after them, heard, ordered

The body of a BUNDLE: the heads block (`u16 length | head` for each command), then the body of each
command, each padded to 8.  The *item crc* covers what names and stamps the bundle, and the heads
block; the heads hold the crc of the bodies; so it stands for everything.  That of a view mark is
over its encoding.  The digest chains item crcs, so two rows with the same digest at a position are
the same up to there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from . import cbor
from .checksum import crc32c
from .commands import COMMON_FIELDS, Command, Head
from .env import Buffer
from .errors import Corrupt
from .records import padded
from .row import Member, View

DIGEST_BYTES: Final = 16
DIGEST_ZERO: Final = bytes(DIGEST_BYTES)  # of the empty row
UUID_BYTES: Final = 16
IDENTITY: Final = struct.Struct("<6Q")  # view, origin, s, lamport, stamp, number of commands
U64_LIMIT: Final = 1 << 64
_LENGTH, _CRC = Head._fields.index("length"), Head._fields.index("crc")
LINK: Final = struct.Struct("<16sQI")
_U16: Final = struct.Struct("<H")
_ARRAY_4: Final = b"\x84"  # CBOR: so many items follow
_ARRAY_8: Final = b"\x88"
_DIGEST: Final = cbor.bytes_head(DIGEST_BYTES)


class Start(NamedTuple):
    """An incarnation: one run of the process that owns the store."""

    incarnation: int
    boot_id: str
    level: str
    start_count: int
    uuid: bytes
    clean: bool = False  # not in the record: a CLEAN record of it exists

    def encode(self) -> bytes:
        return cbor.dumps(list(self[:5]))

    @classmethod
    def decode(cls, head: bytes) -> Start:
        incarnation, boot_id, level, count, uuid = fields(head, 5, "a start")
        if not (_are_counts(incarnation, count) and type(boot_id) is type(level) is str):
            raise cbor.malformed("a start", head)
        if type(uuid) is not bytes or len(uuid) != UUID_BYTES:
            raise cbor.malformed("a start", head)
        return cls(incarnation, boot_id, level, count, uuid)


class BundleForm(NamedTuple):
    view: int
    origin: int
    s: int
    lamport: int
    stamp: int
    commands: int  # how many
    heads_length: int  # of the heads block, not padded
    crc: int  # of the item

    @classmethod
    def decode(cls, head: bytes) -> BundleForm:
        found = view, origin, s, lamport, stamp, commands, length, crc = fields(head, 8, "a bundle")
        if not (
            type(view) is type(origin) is type(s) is type(lamport) is int
            and type(stamp) is type(commands) is type(length) is type(crc) is int
            and 0 <= view | origin | s | lamport | stamp | commands | length | crc < U64_LIMIT
        ):
            raise cbor.malformed("a bundle", found)
        form: BundleForm = tuple.__new__(cls, found)
        return form


class ItemForm(NamedTuple):
    position: int
    place: int
    crc: int
    digest: bytes

    def encode(self) -> bytes:
        return encode_item(*self)

    @classmethod
    def decode(cls, head: bytes) -> ItemForm:
        position, place, crc, digest = found = fields(head, 4, "an item")
        if not (
            type(position) is type(place) is type(crc) is int
            and 0 <= position | place | crc < U64_LIMIT
            and type(digest) is bytes
            and len(digest) == DIGEST_BYTES
        ):
            raise cbor.malformed("an item", found)
        return cls(position, place, crc, digest)


class BaseForm(NamedTuple):
    """An image that became the row: what it holds replaces everything up to its position (N5)."""

    position: int
    digest: bytes
    view: bytes  # the installed one there, encoded
    files: tuple[str, ...]  # of the image (images.py)
    heard: tuple[tuple[int, int], ...] = ()  # origin and s of its last bundle in that view

    def encode(self) -> bytes:
        return cbor.dumps([*self[:3], list(self.files), [list(each) for each in self.heard]])

    @classmethod
    def decode(cls, head: bytes) -> BaseForm:
        position, digest, view, files, heard = found = fields(head, 5, "a base")
        try:
            last = tuple([(origin, s) for origin, s in heard])
        except (TypeError, ValueError) as error:
            raise cbor.malformed("a base", found) from error
        if (
            not _are_counts(position, *(number for pair in last for number in pair))
            or not type(digest) is type(view) is bytes
            or len(digest) != DIGEST_BYTES
            or type(files) is not list
            or not all(type(file) is str for file in files)
        ):
            raise cbor.malformed("a base", found)
        decode_view(view)
        return cls(position, digest, view, tuple(files), last)


class SettledForm(NamedTuple):
    """The bundle of that name needs no staging any more (N3)."""

    view: int
    origin: int
    s: int

    def encode(self) -> bytes:
        return cbor.dumps(list(self))

    @classmethod
    def decode(cls, head: bytes) -> SettledForm:
        found = fields(head, 3, "what is settled")
        if not _are_counts(*found):
            raise cbor.malformed("what is settled", found)
        return cls(*found)


class GapForm(NamedTuple):
    """What a scan has to know of the records that a GAP stands for."""

    first: int  # positions whose ITEM records were there, first to last; first = last + 1: none
    last: int
    before: bytes  # the digest of the row before `first`
    digest: bytes  # and that at `last`
    heard: dict[int, int]  # origin -> s of its last bundle among them
    ordered: tuple[int, ...]  # places of bundles outside, which items among them placed

    def encode(self) -> bytes:
        first, last, before, digest, heard, ordered = self
        return cbor.dumps(
            [first, last, before, digest, [[o, s] for o, s in heard.items()], list(ordered)]
        )

    @classmethod
    def decode(cls, head: bytes) -> GapForm:
        first, last, before, digest, heard, ordered = found = fields(head, 6, "a gap")
        try:
            form = cls(first, last, before, digest, dict(heard), tuple(ordered))
        except (TypeError, ValueError) as error:
            raise cbor.malformed("a gap", found) from error
        if (
            not _are_counts(first, last, *form.heard, *form.heard.values(), *form.ordered)
            or not 0 < first <= last + 1
            or not all(type(each) is bytes and len(each) == DIGEST_BYTES for each in form[2:4])
        ):
            raise cbor.malformed("a gap", found)
        return form


def fields(head: Buffer, least: int, what: str) -> list[Any]:
    """Those that this version knows; later versions add theirs at the end."""
    found = cbor.loads_array(head)
    if len(found) < least:
        raise cbor.malformed(what, found)
    return found[:least]


def number_in(head: Buffer, what: str) -> int:
    """All that a CLEAN or a FLOOR says."""
    (number,) = found = fields(head, 1, what)
    if not _are_counts(number):
        raise cbor.malformed(what, found)
    return int(number)


def encode_bundle(
    view: int, origin: int, s: int, lamport: int, stamp: int, commands: int, heads: bytes, crc: int
) -> bytes:
    return _ARRAY_8 + cbor.numbers(view, origin, s, lamport, stamp, commands, len(heads), crc)


def encode_item(position: int, place: int, crc: int, digest: bytes) -> bytes:
    return b"".join((_ARRAY_4, cbor.numbers(position, place, crc), _DIGEST, digest))


def item_crc(
    view: int, origin: int, s: int, lamport: int, stamp: int, commands: int, heads: Buffer
) -> int:
    return crc32c(heads, crc32c(IDENTITY.pack(view, origin, s, lamport, stamp, commands)))


def chain(digest: bytes, position: int, crc: int) -> bytes:
    """The digest of the row up to `position`, from that of the row before it."""
    return blake2b(LINK.pack(digest, position, crc), digest_size=DIGEST_BYTES).digest()


def join_heads(commands: Sequence[Command]) -> bytes:
    if len(commands) == 1:
        head = commands[0].head
        return _U16.pack(len(head)) + head
    pack = _U16.pack
    parts: list[bytes] = []
    for head, _ in commands:
        parts += (pack(len(head)), head)
    return b"".join(parts)


def split_heads(block: bytes, count: int) -> list[bytes]:
    """
    Raises:
        Corrupt: the block does not hold exactly `count` heads.
    """
    heads = []
    at = 0
    for _ in range(count):
        start = at + 2
        at = start + int.from_bytes(block[at:start], "little")
        heads.append(block[start:at])
    if at != len(block):
        raise Corrupt(f"a heads block of {len(block):,} bytes does not hold {count:,} heads")
    return heads


def bodies(heads: Sequence[bytes], offset: int) -> Iterator[tuple[int, int, int]]:
    """(offset, length, crc) of each command's body, where the first begins at `offset`."""
    for head in heads:
        length, crc = _body_of(head)
        yield offset, length, crc
        offset += padded(length)


def _body_of(head: bytes) -> tuple[int, int]:
    found = cbor.loads_array(head)
    if len(found) >= COMMON_FIELDS:
        length, crc = found[_LENGTH], found[_CRC]
        if type(length) is type(crc) is int and length >= 0:
            return length, crc
    raise cbor.malformed("the head of a command", found)


def encode_view(view: View) -> bytes:
    return cbor.dumps(
        [
            view.id,
            [list(member) for member in view.members],
            view.cluster,
            view.lineage,
            view.durability,
            view.min_copies,
            [list(voter) for voter in view.voters],
            [list(part) for part in view.cut],
            list(view.cont),
        ]
    )


def decode_view(raw: bytes) -> View:
    """
    Raises:
        Corrupt: it is not a view.
    """
    found = fields(raw, 9, "a view")
    try:
        view, members, cluster, lineage, durability, min_copies, voters, cut, cont = found
        return View(
            id=view,
            members=tuple(Member(*member) for member in members),
            cluster=cluster,
            lineage=lineage,
            durability=durability,
            min_copies=min_copies,
            voters=tuple((id_, weight, uuid, data) for id_, weight, uuid, data in voters),
            cut=tuple((origin, s) for origin, s in cut),
            cont=tuple(cont),
        )
    except (TypeError, ValueError) as error:
        raise cbor.malformed("a view", found) from error


def _are_counts(*values: object) -> bool:
    return all(type(value) is int and value >= 0 for value in values)
