"""Entries of one call, cut into parts that fit a batch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckrow.node import parts
from duckrow.node.columns import HeadersLike
from duckrow.node.errors import LimitExceeded
from duckrow.node.limits import BATCH_ENTRIES_MAX, ENTRY_BYTES_MAX, KEYED_ENTRIES_MAX, MIB

LENGTHS = st.sampled_from([0, 1, 7, 100, 3_000])


@settings(max_examples=25)  # each goes over thousands of entries
@given(
    st.sampled_from([1, 2, 300, 9_000]), LENGTHS, st.none() | LENGTHS, st.none() | LENGTHS, LENGTHS
)
def test_what_is_cut_is_all_that_was_given_and_each_piece_fits_a_batch(
    count: int, value: int, key: int | None, header: int | None, last: int
) -> None:
    """Entries that are all alike, or all but the last."""
    values = [*[bytes(value)] * (count - 1), bytes(last)]
    keys = None if key is None else [bytes(key)] * count
    headers: list[HeadersLike] | None = None if header is None else [{"h": bytes(header)}] * count
    most = BATCH_ENTRIES_MAX if keys is None else KEYED_ENTRIES_MAX
    at = 0
    for lo, hi, size, _ in parts.cut(values, keys, headers):
        assert lo == at
        assert 0 < hi - lo <= most
        assert size <= parts.BATCH_BYTES or hi - lo == 1
        at = hi

    assert at == count


def test_entries_that_are_all_alike_are_no_single_entry_however_large_their_keys_are() -> None:
    count = 20_000
    pieces = [*parts.cut([b"v"] * count, [bytes(100)] * count, None)]

    assert pieces[-1][1] == count
    assert len(pieces) == 3
    assert all(size <= parts.BATCH_BYTES for _, _, size, _ in pieces)


def test_an_entry_counts_with_its_key_and_may_have_a_mebibyte() -> None:
    key = bytes(24)

    assert [(lo, hi) for lo, hi, *_ in parts.cut([bytes(MIB - 24)] * 2, [key] * 2, None)] == [
        (0, 1),
        (1, 2),
    ]
    with pytest.raises(LimitExceeded, match=f"is {ENTRY_BYTES_MAX + 1:,}"):
        [*parts.cut([b"v", bytes(MIB - 23)], [key] * 2, None)]
