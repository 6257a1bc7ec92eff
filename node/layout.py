"""How columns lie in a body: one CBOR map, whose typed arrays start on multiples of 8.

    A2 | 00  D9 0046  59 0004  ....  | 01  58 64  ...........
    map  key tag 70   length   ends    key length  values
    of 2     (u32 LE)          ^ 8 bytes from the start

CBOR has no padding.  But a key, a tag and a length may each be written longer than they need to
be, and every decoder reads them; so the head before an array is stretched until the array starts
where processors and Arrow want it.  That costs at most 7 bytes, which a table divides.

Only definite lengths, keys in ascending order, and nothing after the map: one body, one meaning.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Final, NamedTuple, NoReturn

from .env import Buffer
from .errors import Corrupt

ALIGNMENT: Final = 8

_UINT, _BYTES, _MAP, _TAG = 0, 2, 5, 6  # major types
_SIZES = (1, 2, 3, 5, 9)  # of a head: 5 bits, u8, u16, u32, u64
_SHORT = 24  # below it a number needs no bytes of its own


class Column(NamedTuple):
    """One pair of the map: a byte string, tagged if it is a typed array."""

    key: int
    tag: int | None
    pieces: Sequence[Buffer]  # one after the other


class Found(NamedTuple):
    tag: int | None
    data: memoryview


def write(columns: Sequence[Column]) -> bytes:
    """The body; `columns` in the order of their keys."""
    assert len(columns) < _SHORT
    body: list[Buffer] = [bytes([_MAP << 5 | len(columns)])]
    at = 1
    for key, tag, pieces in columns:
        length = sum(map(len, pieces))
        head = _head(key, tag, length, at % ALIGNMENT)
        at += len(head) + length
        body.append(head)
        body += pieces
    written = b"".join(body)
    assert len(written) == at, "the items of a piece are larger than a byte"
    return written


def read(body: Buffer, *, keys_below: int) -> dict[int, Found]:
    """Finds the columns without copying or looking into them.

    Raises:
        Corrupt: the bytes are not exactly one such map.
    """
    view = memoryview(body)
    size = len(view)
    major, count, at = _number(view, 0)
    if major != _MAP or count > keys_below:
        _refuse(f"it is no map of at most {keys_below} columns")
    found: dict[int, Found] = {}
    last = -1
    for _ in range(count):
        major, key, at = _number(view, at)
        if major != _UINT or not last < key < keys_below:
            _refuse(f"its columns are not known, or not in order, after {last}")
        last, tag = key, None
        major, number, at = _number(view, at)
        if major == _TAG:
            tag = number
            major, number, at = _number(view, at)
        if major != _BYTES or at + number > size:
            _refuse(f"column {key} is no byte string, or not all there")
        if tag is not None and at % ALIGNMENT:
            _refuse(f"column {key} starts at {at}, no multiple of {ALIGNMENT}")
        found[key] = Found(tag, view[at : at + number])
        at += number
    if at != size:
        _refuse(f"{size - at:,} bytes follow its end")
    return found


def _number(view: memoryview, at: int) -> tuple[int, int, int]:
    """A head at `at`: its major type, its number, and where the next thing starts."""
    if at >= len(view):
        _refuse("it ends early")
    first = view[at]
    low = first & 31
    if low < _SHORT:
        return first >> 5, low, at + 1
    if low > 27:
        _refuse("a length is open or reserved")
    end = at + _SIZES[low - 23]
    if end > len(view):
        _refuse("it ends early")
    return first >> 5, int.from_bytes(view[at + 1 : end], "big"), end


@functools.lru_cache(maxsize=1_024)  # most batches of a producer look alike
def _head(key: int, tag: int | None, length: int, at: int) -> bytes:
    """What comes before the data of a column whose head starts at `at`, modulo 8."""
    if tag is None:
        return _stretched(_UINT, key, 1) + _stretched(_BYTES, length, _least(length))
    sizes = _STRETCHES[_least(length), -at % ALIGNMENT]
    return b"".join(map(_stretched, (_UINT, _TAG, _BYTES), (key, tag, length), sizes))


def _least(number: int) -> int:
    """The bytes that a head with this number needs."""
    for size, end in ((1, _SHORT), (2, 1 << 8), (3, 1 << 16)):
        if number < end:
            return size
    return 5


def _stretched(major: int, number: int, size: int) -> bytes:
    """A head of exactly this size."""
    if size == 1:
        return bytes([major << 5 | number])
    return bytes([major << 5 | _SIZES.index(size) + 23]) + number.to_bytes(size - 1, "big")


def _stretches() -> dict[tuple[int, int], tuple[int, int, int]]:
    """(least length head, bytes to the next multiple of 8, modulo 8) -> sizes of key, tag, length.

    The shortest that fits; of equally short ones the first.
    """
    found = {}
    for least, missing in itertools.product(_SIZES[:-1], range(ALIGNMENT)):
        lengths = [size for size in _SIZES if size >= least]
        fitting = [
            sizes
            for sizes in itertools.product(_SIZES, _SIZES[1:], lengths)
            if sum(sizes) % ALIGNMENT == missing
        ]
        found[least, missing] = min(fitting, key=sum)
    return found


_STRETCHES: Final = _stretches()


def _refuse(why: str) -> NoReturn:
    raise Corrupt(f"a body is not made of columns: {why}")
