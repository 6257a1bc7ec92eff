"""Parts: entries that one call puts in one lane, at most as many as fit a batch.

    produce_many(values)  ──►  part 1 | part 2 | part 3        cut where a batch is full
    several small calls   ──►  part, part, part  ──► one batch   joined while the lane is busy

What a part holds was checked when the call was made, so that making a batch of it cannot fail.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final, Protocol, TypeAlias

from . import columns, makers
from .columns import HeadersLike
from .commands import Command
from .effects import Result
from .errors import DuckrowError, LimitExceeded
from .limits import (
    BATCH_BYTES_MAX,
    BATCH_ENTRIES_MAX,
    ENTRY_BYTES_MAX,
    KEYED_ENTRIES_MAX,
    MIB,
)
from .names import check_topic_name
from .strings import even

BATCH_BYTES: Final = 1 * MIB  # of a batch that is full: more in one would not be faster
_ENTRY_BYTES: Final = 8  # what an entry costs besides its bytes, about

Text = bytes | str | bytearray | memoryview  # text goes as UTF-8
Ends: TypeAlias = "array[int]"  # of "I": where each value of a part ends, counted from the first
Maker = Callable[[makers.Turn], Command]


class Asker(Protocol):
    """Who put entries, and waits for what becomes of them."""

    def numbered(self, part: Part, result: Result, offset: int, seq: int) -> None: ...
    def failed(self, part: Part, error: DuckrowError) -> None: ...
    def rerouted(self, part: Part) -> None: ...


class Part:
    """Entries of one call for one lane.  Or one command of another kind."""

    __slots__ = (
        "accepted",
        "alone",
        "asker",
        "ends",
        "expect_last",
        "headers",
        "ids",
        "keys",
        "make",
        "order",
        "partition",
        "size",
        "values",
    )

    def __init__(
        self,
        asker: Asker,
        values: Sequence[bytes] = (),
        *,
        make: Maker | None = None,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[HeadersLike] | None = None,
        ids: Sequence[bytes] | None = None,
        expect_last: int | None = None,
        accepted: bool = False,
        size: int = 0,
        order: int = 0,
        ends: Ends | None = None,
    ) -> None:
        self.make, self.ends = make, ends
        self.asker, self.values, self.keys, self.headers = asker, values, keys, headers
        self.ids, self.expect_last, self.accepted = ids, expect_last, accepted
        self.size = size  # in bytes, about
        self.order = order  # parts of a client, in the order in which they came
        self.partition: int | None = None  # where it went, if nothing else says where it belongs
        # What is decided about it must not depend on what would share its batch.
        self.alone = make is not None or ids is not None or expect_last is not None

    def __len__(self) -> int:
        return len(self.values)

    def chosen(self, rows: Sequence[int]) -> Part:
        """A part with some of the entries."""
        values = [self.values[i] for i in rows]
        keys = None if self.keys is None else [self.keys[i] for i in rows]
        headers = None if self.headers is None else [self.headers[i] for i in rows]
        return Part(
            self.asker,
            values,
            keys=keys,
            headers=headers,
            ids=None if self.ids is None else [self.ids[i] for i in rows],
            expect_last=self.expect_last,
            accepted=self.accepted,
            size=size_of(values, keys, headers),
            order=self.order,
        )


def cut(
    values: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[HeadersLike] | None,
) -> Iterator[tuple[int, int, int, Ends | None]]:
    """Pieces that fit one batch each: entries lo <= i < hi, their size in bytes, and where the
    values end, if nothing but values counts.

    Raises:
        LimitExceeded: an entry is too large.
        Refused: headers that are none.
    """
    count, lo = len(values), 0
    plain = keys is None and headers is None
    most = KEYED_ENTRIES_MAX if keys is not None else BATCH_ENTRIES_MAX
    while lo < count:
        # As many as there would be if all were like the first, which they often are.
        guess = max(1, BATCH_BYTES // (len(values[lo]) + _ENTRY_BYTES))
        hi = min(lo + min(guess, most), count)
        lengths = [*map(len, values if hi - lo == count else values[lo:hi])]
        if keys is not None:
            there = (len(key) if key else 0 for key in keys[lo:hi])
            lengths = [*map(int.__add__, lengths, there)]
        if headers is not None:
            lengths = [*map(int.__add__, lengths, map(columns.headers_size, headers[lo:hi]))]
        each = lengths[0]
        sums: list[int] | range
        if each and each == lengths[-1] and lengths.count(each) == len(lengths):
            sums = range(each, each * len(lengths) + 1, each)
        else:
            sums = [*accumulate(lengths)]
        if sums[-1] + _ENTRY_BYTES * len(sums) > BATCH_BYTES:
            room = BATCH_BYTES - _ENTRY_BYTES * len(sums)
            sums = sums[: max(1, bisect_right(sums, room))]
        if sums[-1] > ENTRY_BYTES_MAX:  # a single one, since several fit a batch
            raise LimitExceeded("the size of an entry in bytes", sums[-1], ENTRY_BYTES_MAX)
        hi = lo + len(sums)
        size = sums[-1] + _ENTRY_BYTES * len(sums)
        yield lo, hi, size, _ends(sums) if plain else None
        lo = hi


def _ends(sums: list[int] | range) -> Ends:
    return even(sums) if isinstance(sums, range) else array("I", sums)


def gathered(first: Part, others: Sequence[Part]) -> int:
    """How many of the others, from the first of them on, can share a batch with it."""
    if first.alone:
        return 0
    size, count = first.size, len(first)
    keyed = first.keys is not None
    for index, part in enumerate(others):
        size += part.size
        count += len(part)
        keyed |= part.keys is not None
        most = KEYED_ENTRIES_MAX if keyed else BATCH_ENTRIES_MAX
        if part.alone or part.accepted != first.accepted or size > BATCH_BYTES or count > most:
            return index
    return len(others)


def command_of(
    parts: Sequence[Part], turn: makers.Turn, topic: str, partition: int, partitions: int
) -> Command:
    """The batch of these parts."""
    first = parts[0]
    if first.make is not None:
        return first.make(turn)
    if len(parts) == 1:
        values, keys, headers = first.values, first.keys, first.headers
    else:
        values = [value for part in parts for value in part.values]
        keys = _keys(parts)
        headers = _headers(parts)
    if len(values) == 1 and keys is None and headers is None:
        body = columns.encode_one(values[0])
    else:
        ends = first.ends if len(parts) == 1 else None
        body = columns.encode(values, keys=keys, headers=headers, value_ends=ends)
    hashes = None if keys is None else columns.key_hashes(keys)
    return makers.produce_checked(
        turn,
        topic,
        body,
        len(values),
        partition,
        partitions,
        hashes,
        first.ids,
        first.expect_last,
    )


def check(
    topic: str, partition: int | None, ids: Sequence[bytes] | None, expect_last: int | None
) -> None:
    """
    Raises:
        Refused: no batch could be made so.
    """
    if partition is None and ids is None and expect_last is None:
        check_topic_name(topic)
        return
    makers.produce(
        makers.Turn(bytes(16), 1),
        topic,
        b"",
        1 if ids is None else len(ids),
        partition=partition or 0,
        ids=ids,
        expect_last=expect_last,
    )


def size_of_one(value: bytes) -> int:
    """As `size_of`, of an entry that nothing goes with.

    Raises:
        LimitExceeded: it is too large.
    """
    if len(value) > ENTRY_BYTES_MAX:
        raise LimitExceeded("the size of an entry in bytes", len(value), ENTRY_BYTES_MAX)
    return len(value) + _ENTRY_BYTES


def size_of(
    values: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[HeadersLike] | None,
) -> int:
    """In bytes, about."""
    size = sum(map(len, values)) + _ENTRY_BYTES * len(values)
    if keys is not None:
        size += sum([len(key) for key in keys if key])
    if headers is not None:
        size += sum(map(columns.headers_size, headers))
    return size


def as_bytes(what: str, value: object) -> bytes:
    """
    Raises:
        TypeError: it is neither bytes nor text.
    """
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{what} is bytes or text, and not {type(value).__name__}: {value!r:.60}")


def all_bytes(what: str, column: Sequence[object]) -> Sequence[bytes]:
    """
    Raises:
        TypeError: one of them is neither bytes nor text.
    """
    if isinstance(column, str | bytes | bytearray | memoryview):
        raise TypeError(f"{what}s are many, in a list or the like, and not one {column!r:.60}")
    if not isinstance(column, list | tuple):
        column = [*column]
    if [*map(type, column)].count(bytes) == len(column):
        return column  # type: ignore[return-value]  # all of them are
    return [as_bytes(what, value) for value in column]


def all_keys(column: Sequence[object] | None) -> Sequence[bytes | None] | None:
    """
    Raises:
        TypeError: one of them is neither bytes nor text nor None.
    """
    if column is None:
        return None
    return [None if key is None else as_bytes("a key", key) for key in column]


def _keys(parts: Sequence[Part]) -> list[bytes | None] | None:
    if all(part.keys is None for part in parts):
        return None
    joined: list[bytes | None] = []
    for part in parts:
        joined += [None] * len(part) if part.keys is None else part.keys
    return joined


def _headers(parts: Sequence[Part]) -> list[HeadersLike] | None:
    if all(part.headers is None for part in parts):
        return None
    joined: list[HeadersLike] = []
    for part in parts:
        joined += [()] * len(part) if part.headers is None else part.headers
    return joined


assert ENTRY_BYTES_MAX <= BATCH_BYTES <= BATCH_BYTES_MAX // 2  # a full one, with all its ends
