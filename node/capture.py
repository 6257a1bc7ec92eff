"""Captures: the state as bytes, taken in slices while it goes on changing; back again; and its hash.

A capture is a sequence of chunks of some KiB, at most 64.  A chunk is a CBOR array of rows, and a
row an array that begins with the number of its table (rowforms.py):

    [0, "duckrow state", format, version, position, row time, turn, settings, view, stamps]
    [1, "topic-a", 81920, [max_age, max_entries, ...]]
    [2, topic id, partition, first, last, time, size, tail]
    [9, topic id, partition, 64 runs]            as many as it has, each after its partition
    ...
    [255, rows before this one]

It shows the moment at which it was begun (tables.py says how).  Indexes are not in it.

The hash goes over the same rows, those of tables without an order sorted by key.  So it does not
depend on how a state came to be, and it covers all that can decide what becomes of the next item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final

from . import cbor, ids, lanes, rowforms, staging, topics, waiting
from .errors import Corrupt
from .forms import decode_view, encode_view
from .rowforms import Form, Row
from .settings import Settings
from .state import State

MAGIC: Final = "duckrow state"
FORMAT: Final = 1
CHUNK_BYTES_MAX: Final = 64 * 1024
CHUNK_BYTES: Final = 8 * 1024  # takes a millisecond or so: a slice must not hold the node up
HASH_BYTES: Final = 16
HASHED_AT_ONCE: Final = 200  # rows, in a slice: a millisecond or so
_HEADER: Final = 0
_RUNS: Final = 9
_END: Final = 255


class Capture:
    """What is made of a state as it was when this was made, in slices.  Take all of them, or close it.

    One at a time: the tables keep what changes meanwhile for one reader only.
    """

    def __init__(
        self, state: State, made: Callable[[Iterator[Row]], Iterator[bytes]], *, in_order: bool
    ) -> None:
        assert not state.capturing, "the state is being captured already"
        state.capturing = True
        self._state: State | None = state
        tables = [(form, form.begin(state, in_order=in_order)) for form in rowforms.FORMS]
        self._chunks = made(_rows(_header(state), tables))

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        chunk = next(self._chunks, None)
        if chunk is None:
            self.close()
            raise StopIteration
        return chunk

    def close(self) -> None:
        self._chunks = iter(())
        state, self._state = self._state, None
        if state is not None:
            for form in rowforms.FORMS:
                form.table(state).end()
            state.capturing = False


def capture(state: State, chunk_bytes: int = CHUNK_BYTES) -> Capture:
    """Chunks of at most so many bytes, but of a row at least."""
    return Capture(state, lambda rows: _chunked(rows, chunk_bytes), in_order=False)


def hashing(state: State) -> Capture:
    """As `state_hash`, while the state goes on changing: the last that this gives is the hash."""
    return Capture(state, _hashed, in_order=True)


def restore(chunks: Iterable[bytes]) -> State:
    """
    Raises:
        Corrupt: these are not the chunks of one whole capture, in their order.
        LimitExceeded: a chunk is longer than any.
    """
    state = State()
    taken = 0
    ended = False
    for chunk in chunks:
        rows = cbor.loads(chunk, CHUNK_BYTES_MAX)
        if type(rows) is not list:
            raise cbor.malformed("a chunk of a captured state", rows)
        for row in rows:
            try:
                if ended or type(row) is not list:
                    raise ValueError
                ended = _restore_row(state, row, taken)
            except (TypeError, ValueError, KeyError) as error:
                raise cbor.malformed(f"row {taken:,} of a captured state", row) from error
            taken += 1
    if not ended:
        raise Corrupt(f"a captured state ends in the middle, after {taken:,} rows")
    try:
        for rules in (topics, lanes, waiting, staging, ids):
            rules.derive(state)
    except KeyError as error:
        raise Corrupt(f"a captured state speaks of {error}, which is not in it") from error
    return state


def state_hash(state: State) -> bytes:
    """It reads everything, so it takes as long as a capture."""
    tables = [(form, form.in_order(state)) for form in rowforms.FORMS]
    *_, hashed = _hashed(_rows(_header(state), tables))
    return hashed


def _hashed(rows: Iterator[Row]) -> Iterator[bytes]:
    digest = blake2b(digest_size=HASH_BYTES)
    for count, row in enumerate(rows, 1):
        digest.update(cbor.dumps(row))
        if not count % HASHED_AT_ONCE:
            yield b""
    yield digest.digest()


def _header(state: State) -> Row:
    return [
        _HEADER,
        MAGIC,
        FORMAT,
        state.version,
        state.position,
        state.row_time,
        state.turn,
        list(state.settings),
        encode_view(state.view) if state.view else None,
        [[member, state.stamps[member]] for member in sorted(state.stamps)],
    ]


def _rows(header: Row, tables: list[tuple[Form, Iterator[tuple[Any, Any]]]]) -> Iterator[Row]:
    rows = 1
    yield header
    for form, pairs in tables:
        for key, value in pairs:
            rows += 1
            yield [form.number, *form.encode(key, value)]
            if form.number == rowforms.PARTITIONS:
                for row in rowforms.encode_chunks(key, value):
                    rows += 1
                    yield [_RUNS, *row]
    yield [_END, rows]


def _chunked(rows: Iterator[Row], chunk_bytes: int) -> Iterator[bytes]:
    encoded: list[bytes] = []
    size = 0
    for row in rows:
        raw = cbor.dumps(row)
        if encoded and size + len(raw) > chunk_bytes - _ARRAY_HEAD_MAX:
            yield _array(encoded)
            encoded, size = [], 0
        encoded.append(raw)
        size += len(raw)
    yield _array(encoded)


def _array(encoded: list[bytes]) -> bytes:
    """What encoding the values together would give; a row is encoded once, to know its size."""
    count = len(encoded)
    if count < 24:
        head = bytes([0x80 | count])
    elif count < 256:
        head = bytes([0x98, count])
    else:
        head = b"\x99" + count.to_bytes(2, "big")
    return head + b"".join(encoded)


def _restore_row(state: State, row: Row, taken: int) -> bool:
    """True: it was the last."""
    number, *fields = row
    if (taken == 0) != (number == _HEADER):
        raise ValueError
    if number == _HEADER:
        _restore_header(state, fields)
    elif number == _RUNS:
        rowforms.decode_chunk(state, fields)
    elif number == _END:
        if fields != [taken]:
            raise ValueError
        return True
    else:
        form = _FORMS[number]
        if tuple(map(type, fields)) != form.types:
            raise ValueError
        form.decode(state, fields)
    return False


def _restore_header(state: State, fields: Row) -> None:
    magic, format_, version, position, row_time, turn, settings, view, stamps = fields
    if (magic, format_) != (MAGIC, FORMAT) or len(settings) != len(Settings._fields):
        raise ValueError
    if not all(type(each) is int for each in (version, position, row_time, turn, *settings)):
        raise ValueError
    state.version, state.position, state.row_time, state.turn = version, position, row_time, turn
    state.settings = Settings(*settings)
    state.view = None if view is None else decode_view(view)
    state.stamps = dict(stamps)


_ARRAY_HEAD_MAX: Final = 3
_FORMS: Final = {form.number: form for form in rowforms.FORMS}
