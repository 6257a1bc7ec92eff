"""CBOR for heads, strictly: what two parsers could read differently is refused.

Only heads, from complete frames, come here; bodies are opaque.  The options and their reasons were
measured (docs/decisions/0002-strict-cbor.md): indefinite lengths, duplicate keys, keys other than
text or bytes, and every tag are ways to make a decoder slow, large or ambiguous.

cbor2 ignores what follows the first value, and encoding again only to compare costs three times
the decoding.  So the bytes are decoded as the first of two: the second is a mark of our own.

    array of 2 | the bytes to decode | byte string of 8 x FE

If the bytes are exactly one value, the mark comes second.  If a whole value followed the first
one, that would come second; if the bytes end early, the mark is swallowed and nothing comes
second.  The mark cannot be put together from the end of the bytes and the beginning of the real
mark, since FE is not how it begins.  Bytes that hold a whole mark of their own are rare and may be
innocent (two equal key hashes); those are encoded again and compared.
"""

from __future__ import annotations

import reprlib
import struct
from typing import Any, Final, NoReturn

import cbor2

from .env import Buffer
from .errors import Corrupt, LimitExceeded
from .limits import HEAD_BYTES_MAX, HEAD_DEPTH_MAX, HEAD_ITEMS_MAX

_PAIR: Final = b"\x82"
_MARK: Final = b"\xfe" * 8
_MARK_ITEM: Final = b"\x48" + _MARK


def loads(raw: Buffer, bytes_max: int = HEAD_BYTES_MAX) -> Any:
    """The one value that `raw` is.  Only files that we wrote may be longer than a head.

    Raises:
        Corrupt: it is not exactly one value of plain CBOR without tags.
        LimitExceeded: it is longer than it may be; it was not looked at.
    """
    if len(raw) > bytes_max:
        raise LimitExceeded("the length of a head in bytes", len(raw), bytes_max)
    data = _PAIR + raw + _MARK_ITEM
    try:
        value, mark = cbor2.loads(
            data,
            max_depth=_DEPTH_MAX,
            allow_indefinite=False,
            allow_duplicate_keys=False,
            strict_hashable_types=True,  # or number keys can be chosen to make a dict quadratic
            tag_hook=_deny,
            semantic_decoders=_DENIED,
        )
    except cbor2.CBORDecodeError as error:
        raise Corrupt(f"{len(raw):,} bytes are not CBOR as it is written here: {error}") from error
    alone = data.find(_MARK) == len(data) - len(_MARK) or cbor2.dumps(value) == raw
    if mark != _MARK or not alone:
        raise Corrupt(f"{len(raw):,} bytes hold more than the one CBOR value they should be")
    return value


def loads_array(raw: Buffer, bytes_max: int = HEAD_BYTES_MAX) -> list[Any]:
    """As `loads`, and the value is an array, as every head is.

    Raises:
        Corrupt: see `loads`; or it is another value.
        LimitExceeded: see `loads`; or the array has too many items.
    """
    value = loads(raw, bytes_max)
    if type(value) is not list:
        raise malformed("an array", value)
    if len(value) > HEAD_ITEMS_MAX:
        raise LimitExceeded("the number of items in a head", len(value), HEAD_ITEMS_MAX)
    return value


def loads_own(raw: Buffer) -> Any:
    """As `loads`, for bytes under a salted checksum of ours: nobody else can have written them.

    Twice as fast, and without a doubt about who is to blame.

    Raises:
        Corrupt: it does not begin with a value.
    """
    try:
        return cbor2.loads(raw)
    except cbor2.CBORDecodeError as error:
        raise Corrupt(f"{len(raw):,} bytes are not CBOR as it is written here: {error}") from error


def dumps(value: Any) -> bytes:
    return cbor2.dumps(value)


def numbers(*values: int) -> bytes:
    """Numbers, none of them below 0, as `dumps` writes each, one after the other.

    For arrays that are written for every entry: behind the byte that says how many items there are,
    they cost a third of what `dumps` takes.
    """
    items = []
    for value in values:
        if 0 <= value < 24:
            items.append(_SMALL[value])
        elif value < 1 << 8:
            items.append(_ONE(24, value))
        elif value < 1 << 16:
            items.append(_TWO(25, value))
        elif value < 1 << 32:
            items.append(_FOUR(26, value))
        else:
            items.append(_EIGHT(27, value))
    return b"".join(items)


def bytes_head(length: int) -> bytes:
    """What comes before the bytes of a byte string of that length, which fits a head."""
    if length < 24:
        return _STRINGS[length]
    return _ONE(0x58, length) if length < 1 << 8 else _TWO(0x59, length)


def numbers_in(raw: bytes, at: int, count: int) -> tuple[list[int], int] | None:
    """So many numbers as `numbers` writes them, and where they end; None: it is something else.

    What ends too early is no number of `count` either, but may give an end beyond the bytes.
    """
    found = []
    for _ in range(count):
        value = raw[at] if at < len(raw) else 0xFF
        at += 1
        if value >= 24:
            size = _SIZES.get(value)
            if size is None:
                return None
            value = int.from_bytes(raw[at : at + size], "big")
            at += size
        found.append(value)
    return found, at


def malformed(what: str, value: object) -> Corrupt:
    """The exception for a value that was decoded and is not `what` it should be; not the bytes."""
    return Corrupt(f"this is not {what}: {_brief.repr(value)}")


FALSE: Final = b"\xf4"
TRUE: Final = b"\xf5"
_SMALL: Final = tuple(bytes([value]) for value in range(24))
_STRINGS: Final = tuple(bytes([0x40 + length]) for length in range(24))
_ONE: Final = struct.Struct(">BB").pack
_TWO: Final = struct.Struct(">BH").pack
_FOUR: Final = struct.Struct(">BI").pack
_EIGHT: Final = struct.Struct(">BQ").pack

_SIZES: Final = {24: 1, 25: 2, 26: 4, 27: 8}  # of a number, by the byte before it

_DEPTH_MAX: Final = HEAD_DEPTH_MAX + 1  # the pair around it is one level

_brief = reprlib.Repr()
_brief.maxlist = _brief.maxtuple = 24  # a head; what is in it is cut short by itself
_brief.maxother = 60


def _deny(_tag: object, _immutable: bool) -> NoReturn:
    raise ValueError("tags are not used here")


class _Every(dict[int, Any]):
    """Has a denial for every tag, so that one which cbor2 learns to build tomorrow is denied too."""

    def __missing__(self, tag: int) -> Any:
        return _deny


_DENIED: Final = _Every()
