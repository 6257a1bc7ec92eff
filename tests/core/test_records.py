"""Records: valid where they were written, and nowhere else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from core.segmentkit import drive
from duckrow.node.records import (
    PREFIX_BYTES,
    REACH_MAX,
    Record,
    RecordKind,
    candidates,
    decode,
    encode,
    first_after,
    last_in,
    padded,
    padding,
    seed_of,
    size_of,
)
from duckrow.node.search import find_uuid, last_record, next_record

UUID = b"u" * 16
SEED = seed_of(UUID, 7)
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)


def made(
    head: bytes = b"head",
    body: bytes = b"",
    *,
    kind: int = RecordKind.START,
    seed: int = SEED,
    offset: int = 0,
    start_count: int = 1,
    durable: int = 0,
) -> bytes:
    record = encode(
        kind,
        head,
        seed=seed,
        offset=offset,
        start_count=start_count,
        durable=durable,
        body_length=len(body),
    )
    return record + body + padding(len(body))


@settings(deadline=None)
@given(
    kind=st.sampled_from(RecordKind),
    head=st.binary(max_size=100),
    body=st.binary(max_size=100),
    offset=st.integers(0, 2**23).map(lambda n: 8 * n),
    start_count=U32,
    durable=U64,
    flags=st.integers(0, 1),
)
def test_a_record_comes_back_as_it_went(
    kind: int, head: bytes, body: bytes, offset: int, start_count: int, durable: int, flags: int
) -> None:
    raw = encode(
        kind,
        head,
        seed=SEED,
        offset=offset,
        start_count=start_count,
        durable=durable,
        body_length=len(body),
        flags=flags,
    )
    window = b"before.." + raw + body + padding(len(body))

    record = decode(window, offset - 8, offset, SEED)

    body_offset = offset + PREFIX_BYTES + padded(len(head))
    assert record == Record(
        offset,
        kind,
        flags,
        start_count,
        durable,
        head,
        body_offset,
        len(body),
        body_offset + padded(len(body)),
    )
    assert record.end == offset + size_of(len(head), len(body)) == offset - 8 + len(window)
    assert record.end % 8 == 0


@settings(deadline=None)
@given(st.binary(max_size=50), st.integers(0))
def test_no_flipped_bit_gets_through(head: bytes, which: int) -> None:
    raw = bytearray(made(head))
    bit = which % (8 * len(raw))
    raw[bit // 8] ^= 1 << bit % 8

    assert decode(bytes(raw), 0, 0, SEED) is None


def test_a_record_is_valid_only_where_it_was_written() -> None:
    raw = made(offset=64)
    assert decode(raw, 64, 64, SEED) is not None

    for offset in range(0, 1 << 16, 8):
        assert (decode(raw, offset, offset, SEED) is None) == (offset != 64)
    for segment in range(100):
        assert (decode(raw, 64, 64, seed_of(UUID, segment)) is None) == (segment != 7)
    assert decode(raw, 64, 64, seed_of(b"v" * 16, 7)) is None


@settings(deadline=None)
@given(st.sampled_from([b"\x00", b"\xff"]), U32, st.integers(0, 2**23))
def test_blocks_of_zeros_or_ones_never_pass(filler: bytes, seed: int, offset: int) -> None:
    assert decode(filler * 4096, 8 * offset, 8 * offset, seed) is None


@settings(deadline=None)
@given(st.binary(max_size=300), U32)
def test_no_bytes_make_it_fail(data: bytes, seed: int) -> None:
    for offset in range(0, len(data), 8):
        assert decode(data, 0, offset, seed) is None
    assert last_in(data, 0, seed) is None


def test_a_window_that_ends_too_early_shows_nothing() -> None:
    raw = made(b"h" * 65_535)
    assert len(raw) <= REACH_MAX
    for length in (0, 10, PREFIX_BYTES - 1, PREFIX_BYTES, len(raw) - 1):
        assert decode(raw[:length], 0, 0, SEED) is None
    assert decode(raw, 0, 0, SEED) is not None


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=40)), max_size=8), st.data())
def test_the_next_record_is_found_whatever_lies_before_it(
    parts: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    window = b""
    starts = []
    for head, junk in parts:
        window += junk + padding(len(junk))
        starts.append(len(window))
        window += made(head, offset=len(window))
    base = 4096
    assert base % 8 == 0
    start = data.draw(st.integers(0, len(window)))

    found = first_after(window, 0, start, SEED, 0)
    last = last_in(window, 0, SEED)

    assert (None if found is None else found.offset) == next(
        (s for s in starts if s >= start), None
    )
    assert (None if last is None else last.offset) == (starts[-1] if starts else None)
    assert set(starts) <= set(candidates(window, 0))


def test_records_of_an_older_start_are_passed_over() -> None:
    old = made(start_count=3)
    window = old + made(offset=len(old), start_count=4)

    found = first_after(window, 0, 0, SEED, 4)

    assert found is not None
    assert found.offset == len(old)


@settings(deadline=None)
@given(st.integers(0, 400_000), st.integers(0, 400_000))
def test_records_are_found_across_windows(before: int, after: int) -> None:
    before -= before % 8
    data = bytes(before) + made(b"h" * 300, offset=before) + bytes(after)

    found, window, base = drive(next_record(SEED, len(data), 0, 1000, 0), data)
    last = drive(last_record(SEED, len(data), 70_000), data)

    assert found is not None
    assert last is not None
    assert found.offset == last.offset == before
    assert decode(window, base, before, SEED) == found


def test_nothing_is_found_where_nothing_is() -> None:
    data = bytes(200_000)
    assert drive(next_record(SEED, len(data), 8, 1000, 0), data)[0] is None
    assert drive(last_record(SEED, len(data), 1000), data) is None
    assert find_uuid(data, 1) is None
