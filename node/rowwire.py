"""The row on a wire, between bridges and between a bridge and its node: numbers, views, bundles, items.

Every reader here is given what somebody else sent: it raises `Corrupt`, or one of the errors that
Python has for values of the wrong kind (`MALFORMED`), of which whoever takes the frame makes `Corrupt`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from .appending import encoded
from .checksum import crc32c
from .commands import Command
from .env import Buffer
from .errors import Corrupt
from .forms import (
    UUID_BYTES,
    BundleForm,
    bodies,
    decode_view,
    encode_view,
    item_crc,
    split_heads,
)
from .limits import BUNDLE_COMMANDS_MAX
from .records import padded
from .row import Bundle, Item, View

NUMBER_LIMIT: Final = 1 << 64
BUNDLE_FIELDS: Final = len(BundleForm._fields)
_HEADS_LENGTH: Final = BundleForm._fields.index("heads_length")
MALFORMED: Final = (TypeError, ValueError, IndexError)
_HEAD_BYTES_MIN: Final = 2  # of its length alone


class Written(NamedTuple):
    head: list[Any]
    body: Sequence[Buffer] = ()


def pairs(numbers: dict[int, int]) -> list[int]:
    """By node, flat: one array instead of one for each."""
    return [each for pair in numbers.items() for each in pair]


def of_pairs(found: list[int]) -> dict[int, int]:
    check_numbers(*found)
    return dict(zip(found[::2], found[1::2], strict=True))


def check_numbers(*numbers: object) -> None:
    for number in numbers:
        if type(number) is not int or not 0 <= number < NUMBER_LIMIT:
            raise ValueError(number)


def as_bytes(value: object) -> bytes:
    if type(value) is not bytes:
        raise TypeError(value)
    return value


def as_view(value: object) -> View:
    """`decode_view` trusts what it reads from an own disk; here every field is looked at."""
    view = decode_view(as_bytes(value))
    check_numbers(view.id, view.lineage, view.min_copies, *view.cont)
    for member in view.members:
        check_numbers(*member)
    for id_, weight, uuid, data in view.voters:
        check_numbers(id_, weight)
        if len(as_bytes(uuid)) != UUID_BYTES or type(data) is not bool:
            raise TypeError(view)
    for part in view.cut:
        check_numbers(*part)
    if type(view.durability) is not str or len(as_bytes(view.cluster)) != UUID_BYTES:
        raise TypeError(view)
    return view


def encode_bundle(bundle: Bundle) -> Written:
    form = encoded(bundle)
    view, origin, s, lamport, stamp, commands = bundle
    told = [view, origin, s, lamport, stamp, len(commands), form.heads_length, form.crc]
    return Written(told, form.body)


def encode_heads(bundle: Bundle) -> Written:
    """Without the bodies: they can be read where the bundle lies."""
    head, body = encode_bundle(bundle)
    return Written(head, [bytes(body[0])[: head[_HEADS_LENGTH]]])


def decode_bundle(
    fields: list[Any], body: Buffer, at: int = 0, *, heads_only: bool = False
) -> tuple[Bundle, int, int]:
    """The bundle, its item crc, and where in the body it ends; every byte was checked."""
    view, origin, s, lamport, stamp, count, length, crc = fields[:BUNDLE_FIELDS]
    check_numbers(view, origin, s, lamport, stamp, count, length, crc)
    if count > min(length // _HEAD_BYTES_MIN, BUNDLE_COMMANDS_MAX):
        raise Corrupt(f"bundle {(view, origin, s)} cannot have {count:,} commands")
    end = at + length
    block = bytes(body[at:end])
    if len(block) < length or item_crc(view, origin, s, lamport, stamp, count, block) != crc:
        raise Corrupt(f"the heads of bundle {(view, origin, s)} are not what they were")
    window = memoryview(body)
    heads = split_heads(block, count)
    if heads_only:
        empty = tuple([Command(head) for head in heads])
        return Bundle(view, origin, s, lamport, stamp, empty), crc, end
    commands = []
    end = at + padded(length)
    for head, (start, size, body_crc) in zip(heads, bodies(heads, end), strict=True):
        end = start + padded(size)
        content = window[start : start + size]
        if len(content) < size or (crc32c(content) if size else 0) != body_crc:
            raise Corrupt(f"a body of bundle {(view, origin, s)} is not what it was")
        commands.append(Command(head, content if size else b""))
    if end > len(body):
        raise Corrupt(f"bundle {(view, origin, s)} ends behind its frame")
    return Bundle(view, origin, s, lamport, stamp, tuple(commands)), crc, end


def encode_item(item: Item) -> Written:
    position, _, crc, content = item
    if isinstance(content, View):
        return Written([position, crc, encode_view(content)])
    head, body = encode_bundle(content)
    return Written([position, crc, *head], body)


def decode_item(fields: list[Any], body: Buffer) -> Item:
    position, crc, *content = fields
    check_numbers(position, crc)
    if type(content[0]) is bytes:
        if crc32c(content[0]) != crc:
            raise Corrupt(f"the view mark at position {position} is not what it was")
        return Item(position, 0, crc, as_view(content[0]))
    bundle, found, end = decode_bundle(content, body)
    if found != crc or end != len(body):
        raise Corrupt(f"the bundle at position {position} is not what it was")
    return Item(position, 0, crc, bundle)
