"""Bodies of codec 0: the entries of a batch as columns, cut and joined without touching an entry.

    0 value ends     u32[n]  tag 70      4 null keys       bits, lowest first, 1 = no key
    1 values         bytes               5 created times   i64[n]  tag 79, microseconds
    2 key ends       u32[n]  tag 70      6 header ends     u32[n]  tag 70
    3 keys           bytes               7 headers         bytes: CBOR [name, value, name, ...]

`node/strings.py` says what ends are, `node/layout.py` how columns become one CBOR map.  A batch has
at least one entry.  Columns that say nothing (no key at all, no null key, no header) are left out,
so equal batches are equal bytes, however they were cut and joined on the way.

Bodies come from strangers.  `decode` proves that every later access lies inside its column, at
some twenty nanoseconds an entry; what is in an entry's headers is looked at when it is asked for.
"""

from __future__ import annotations

import functools
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, Final, NoReturn

import attrs

from . import cbor, layout
from .checksum import crc32c
from .env import Buffer
from .errors import Corrupt, LimitExceeded, Refused
from .layout import Column, Found
from .limits import (
    BATCH_BYTES_MAX,
    BATCH_ENTRIES_MAX,
    ENTRY_BYTES_MAX,
    HEAD_BYTES_MAX,
    HEADERS_MAX,
)
from .strings import Strings, shifted

assert sys.byteorder == "little", "typed arrays are used as they lie in memory: little endian"

Headers = tuple[tuple[str, bytes], ...]
HeadersLike = Mapping[str, bytes] | Sequence[tuple[str, bytes]] | None

VALUE_ENDS, VALUES, KEY_ENDS, KEYS, NULL_KEYS, CREATED, HEADER_ENDS, HEADERS = range(8)
_COLUMNS: Final = 8
_U32, _I64 = 70, 79  # tags of RFC 8746, little endian
_TAGS: Final = {VALUE_ENDS: _U32, KEY_ENDS: _U32, CREATED: _I64, HEADER_ENDS: _U32}
_ONE_END: Final = 8  # where the end of the only value stands, if there is nothing else
_BEFORE_ONE_MAX: Final = 32
_WORTH_JOINING: Final = 16  # pieces: to copy them once more costs less than to count them again
_ITEM_BYTES: Final = {None: 1, _U32: 4, _I64: 8}


@attrs.define(eq=False, repr=False)
class Columns:
    """The entries of a body; nothing is copied, all are views of it.  Not to be changed."""

    body: Buffer
    entries: int
    values: Strings
    keys: Strings | None = None  # None: no entry has one
    null_keys: memoryview | None = None  # None: no key is missing
    created: memoryview | None = None  # of 'q'
    headers: Strings | None = None  # None: no entry has any

    def __len__(self) -> int:
        return self.entries

    def __repr__(self) -> str:
        return f"<Columns of {self.entries:,} entries, {len(self.body):,} bytes>"

    def value_list(self, lo: int, hi: int) -> list[bytes]:
        """The values of entries lo <= i < hi."""
        return self.values.slices(lo, hi)

    def key_list(self, lo: int, hi: int) -> list[bytes | None]:
        if self.keys is None:
            return [None] * (hi - lo)
        keys = self.keys.slices(lo, hi)
        if self.null_keys is None:
            return [*keys]
        nulls = reversed(_nulls(self, lo, hi))
        return [None if null == "1" else key for key, null in zip(keys, nulls, strict=True)]

    def header_list(self, lo: int, hi: int) -> list[Headers]:
        """
        Raises:
            Corrupt: what an entry has for headers is something else.
        """
        if self.headers is None:
            return [()] * (hi - lo)
        return [*map(_read_headers, self.headers.slices(lo, hi))]


Span = tuple[Columns, int, int]  # entries lo <= i < hi of these columns


def encode(
    values: Sequence[bytes],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[HeadersLike] | None = None,
    created: Sequence[int] | None = None,
    *,
    value_ends: array[int] | None = None,
) -> bytes:
    """The body of a batch; `value_ends`, if whoever calls has counted already.

    Raises:
        Refused: no entries, or columns of different lengths.
        LimitExceeded: an entry, or all of them, are too large.
    """
    count = len(values)
    _check_count(count)
    for name, column in (("keys", keys), ("headers", headers), ("created times", created)):
        if column is not None and len(column) != count:
            text = f"{len(column):,} {name} were given for {count:,} values"
            raise Refused(text, what=name, count=len(column), values=count)
    if keys is not None and all(key is None for key in keys):
        keys = None
    if headers is not None and not any(headers):
        headers = None
    columns = _laid_out(VALUE_ENDS, VALUES, values, value_ends)
    sizes = [map(len, values)]
    if keys is not None:
        # The empty string in the place of a missing key; a bit says which it is.
        there = [key or b"" for key in keys]
        columns += _laid_out(KEY_ENDS, KEYS, there)
        sizes.append(map(len, there))
        if None in keys:
            nulls = "".join(["01"[key is None] for key in reversed(keys)])
            columns.append(Column(NULL_KEYS, None, [_packed(nulls)]))
    if created is not None:
        columns.append(Column(CREATED, _I64, [array("q", created).tobytes()]))
    if headers is not None:
        written = [*map(write_headers, headers)]
        columns += _laid_out(HEADER_ENDS, HEADERS, written)
        sizes.append(map(len, written))
    body = _body(columns)
    _check_entry_sizes(body, sizes)
    return body


def encode_one(value: bytes) -> bytes:
    """As `encode([value])`: most producers have one entry at a time, and few lengths."""
    return _before_one(len(value)) + value


@functools.lru_cache(maxsize=1_024)
def _before_one(length: int) -> bytes:
    """The body of an entry of this length, without its value, which comes last."""
    body = encode([bytes(length)])
    return body[: len(body) - length]


def is_one(body: Buffer) -> bool:
    """Whether the body is just what `encode_one` makes: then nothing of it has to be opened."""
    length = int.from_bytes(body[_ONE_END : _ONE_END + 4], "little")
    before = len(body) - length
    if not 0 <= length <= ENTRY_BYTES_MAX or not 0 < before <= _BEFORE_ONE_MAX:
        return False
    return bytes(body[:before]) == _before_one(length)


def decode(body: Buffer, *, trusted: bool = False) -> Columns:
    """The columns of a body.  `trusted`: its ends were checked before, or written here.

    Raises:
        Corrupt: it is not a body of codec 0.
        LimitExceeded: it is one, but too large, or one of its entries is.
    """
    if len(body) > BATCH_BYTES_MAX:
        raise LimitExceeded("the size of a batch in bytes", len(body), BATCH_BYTES_MAX)
    found = layout.read(body, keys_below=_COLUMNS)
    for key, (tag, data) in found.items():
        if tag != _TAGS.get(key) or len(data) % _ITEM_BYTES[tag]:
            _refuse(f"column {key} has tag {tag} and {len(data):,} bytes")
    values = _strings(found, VALUE_ENDS, VALUES)
    if values is None:
        _refuse("it has no values")
    columns = Columns(
        body,
        len(values.ends),
        values,
        _strings(found, KEY_ENDS, KEYS),
        found[NULL_KEYS].data if NULL_KEYS in found else None,
        found[CREATED].data.cast("q") if CREATED in found else None,
        _strings(found, HEADER_ENDS, HEADERS),
    )
    _check_shape(columns)
    if not trusted:
        for strings in (columns.values, columns.keys, columns.headers):
            if strings is not None and not strings.whole():
                _refuse("the ends of its entries are out of order, or not those of its data")
        present = (columns.values, columns.keys, columns.headers)
        _check_entry_sizes(body, (strings.sizes() for strings in present if strings is not None))
    return columns


def cut(columns: Columns, lo: int, hi: int) -> bytes:
    """A body of entries lo <= i < hi: just what `encode` makes of them."""
    if hi - lo == columns.entries:
        return bytes(columns.body)
    return gather([(columns, lo, hi)])


def join(parts: Sequence[Columns]) -> bytes:
    """One body of all entries, in this order: just what `encode` makes of them.

    Raises:
        Refused, LimitExceeded: see `gather`.
    """
    return gather([(part, 0, part.entries) for part in parts])


def gather(spans: Sequence[Span]) -> bytes:
    """One body of parts of batches, in this order.

    Raises:
        Refused: some have created times and some have none.
        LimitExceeded: together they are too large for a batch.
    """
    assert all(0 <= lo < hi <= columns.entries for columns, lo, hi in spans), "an empty span"
    count = sum(hi - lo for _, lo, hi in spans)
    _check_count(count)

    columns = _gather_strings(VALUE_ENDS, VALUES, [(c.values, lo, hi) for c, lo, hi in spans])
    nulls = "".join([_nulls(*span) for span in reversed(spans)])
    if "0" in nulls:
        columns += _gather_strings(KEY_ENDS, KEYS, [(c.keys, lo, hi) for c, lo, hi in spans])
        if "1" in nulls:
            columns.append(Column(NULL_KEYS, None, [_packed(nulls)]))
    created = [c.created[lo:hi].cast("B") for c, lo, hi in spans if c.created is not None]
    if created:
        if len(created) < len(spans):
            raise Refused("batches with created times and without them cannot be joined")
        columns.append(Column(CREATED, _I64, created))
    headers = _gather_strings(HEADER_ENDS, HEADERS, [(c.headers, lo, hi) for c, lo, hi in spans])
    if any(map(len, headers[1].pieces)):
        columns += headers

    return _body(columns)


def key_hashes(keys: Iterable[bytes | None]) -> bytes:
    """What the head of a keyed batch says of its keys: crc32c as u32 each, 0 for none."""
    return array("I", [crc32c(key) if key else 0 for key in keys]).tobytes()


def headers_size(headers: HeadersLike) -> int:
    """In bytes, as they will be in a body.

    Raises:
        Refused: these are no headers.
        LimitExceeded: too many of them, or too large.
    """
    return len(write_headers(headers))


def _body(columns: list[Column]) -> bytes:
    body = layout.write(columns)
    if len(body) > BATCH_BYTES_MAX:
        raise LimitExceeded("the size of a batch in bytes", len(body), BATCH_BYTES_MAX)
    return body


def _laid_out(
    ends_key: int, data_key: int, pieces: Sequence[Buffer], ends: array[int] | None = None
) -> list[Column]:
    if ends is None:
        found = [*accumulate(map(len, pieces))]
        if found[-1] > BATCH_BYTES_MAX:
            raise LimitExceeded("the size of a batch in bytes", found[-1], BATCH_BYTES_MAX)
        ends = array("I", found)
    assert len(ends) == len(pieces), "an end each"
    if len(pieces) > _WORTH_JOINING:
        pieces = [b"".join(pieces)]
    return [Column(ends_key, _U32, [ends.tobytes()]), Column(data_key, None, pieces)]


def _gather_strings(
    ends_key: int, data_key: int, spans: Sequence[tuple[Strings | None, int, int]]
) -> list[Column]:
    """Where a batch lacks the column, its entries have the empty string."""
    ends: list[Buffer] = []
    data: list[Buffer] = []
    end = 0
    for strings, lo, hi in spans:
        if strings is None:
            ends.append(end.to_bytes(4, "little") * (hi - lo))
        else:
            start, stop = strings.span(lo, hi)
            ends.append(shifted(strings.ends[lo:hi], end - start))
            data.append(strings.data[start:stop])
            end += stop - start
    return [Column(ends_key, _U32, ends), Column(data_key, None, data)]


def _nulls(columns: Columns, lo: int, hi: int) -> str:
    """A character for each of the entries, the last one first; "1" has no key."""
    if columns.keys is None:
        return "1" * (hi - lo)
    if columns.null_keys is None:
        return "0" * (hi - lo)
    bits = int.from_bytes(columns.null_keys, "little") >> lo & (1 << hi - lo) - 1
    return f"{bits:0{hi - lo}b}"


def _packed(nulls: str) -> bytes:
    return int(nulls, 2).to_bytes(_bit_bytes(len(nulls)), "little")


def _bit_bytes(bits: int) -> int:
    return (bits + 7) // 8


def write_headers(headers: HeadersLike) -> bytes:
    if not headers:
        return b""
    flat = [*chain.from_iterable(headers.items() if isinstance(headers, Mapping) else headers)]
    if len(flat) > 2 * HEADERS_MAX:
        raise LimitExceeded("the number of headers of an entry", len(flat) // 2, HEADERS_MAX)
    if not _are_headers(flat):
        raise Refused("an entry's headers are pairs of a name, which is text, and a value, bytes")
    try:
        raw = cbor.dumps(flat)
    except (
        UnicodeEncodeError
    ) as error:  # half of a pair, or a byte of a command line that is no text
        raise Refused(f"the name of a header is no text: {error.object!r:.60}") from error
    if len(raw) > HEAD_BYTES_MAX:
        raise LimitExceeded("the size of an entry's headers in bytes", len(raw), HEAD_BYTES_MAX)
    return raw


def _read_headers(raw: bytes) -> Headers:
    if not raw:
        return ()
    flat = cbor.loads_array(raw)
    if not _are_headers(flat):
        raise cbor.malformed("the headers of an entry", flat)
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def _are_headers(flat: Sequence[object]) -> bool:
    return (
        len(flat) % 2 == 0
        and all(type(name) is str for name in flat[::2])
        and all(type(value) is bytes for value in flat[1::2])
    )


def _strings(found: Mapping[int, Found], ends_key: int, data_key: int) -> Strings | None:
    if ends_key not in found and data_key not in found:
        return None
    if ends_key not in found or data_key not in found:
        _refuse(f"of columns {ends_key} and {data_key} there is only one")
    return Strings(found[ends_key].data.cast("I"), found[data_key].data)


def _check_shape(columns: Columns) -> None:
    """Every column that is there speaks of the same number of entries."""
    count = columns.entries
    if count == 0:
        _refuse("it has no entries")
    _check_count(count)
    others: list[memoryview[Any]] = [
        *(strings.ends for strings in (columns.keys, columns.headers) if strings is not None),
        *([] if columns.created is None else [columns.created]),
    ]
    if any(len(other) != count for other in others):
        _refuse(f"it has {count:,} values, and {[*map(len, others)]} of something else")
    nulls = columns.null_keys
    if nulls is None:
        return
    if columns.keys is None or len(nulls) != _bit_bytes(count):
        _refuse(f"{len(nulls):,} bytes of null keys are not those of {count:,} keys")
    if count % 8 and nulls[-1] >> count % 8:
        _refuse("there are more null keys than keys")


def _check_count(count: int) -> None:
    if count > BATCH_ENTRIES_MAX:
        raise LimitExceeded("the number of entries in a batch", count, BATCH_ENTRIES_MAX)
    if count == 0:
        raise Refused("a batch needs at least one entry")


def _check_entry_sizes(body: Buffer, sizes: Iterable[Iterable[int]]) -> None:
    """Value, key and headers of an entry count together."""
    # Nearly every batch is smaller than one entry may be, so nearly none is looked at.
    if len(body) <= ENTRY_BYTES_MAX:
        return
    largest = max(map(sum, zip(*sizes, strict=True)))
    if largest > ENTRY_BYTES_MAX:
        raise LimitExceeded("the size of an entry in bytes", largest, ENTRY_BYTES_MAX)


def _refuse(why: str) -> NoReturn:
    raise Corrupt(f"a body does not hold the entries of a batch: {why}")
