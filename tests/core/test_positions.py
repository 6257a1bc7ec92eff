"""Index files: whole, or known not to be."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckrow.node.chronicle import Chronicle
from duckrow.node.errors import Corrupt
from duckrow.node.places import place
from duckrow.node.positions import (
    Column,
    IndexHead,
    check_places,
    decode_index_head,
    encode_index,
    index_head_length,
)


def encoded(column: Column, *, sealed: bool = True, rewritten: bool = False) -> bytes:
    buffers = encode_index(
        column,
        Chronicle(b"u" * 16, position=column.last),
        uuid=b"u" * 16,
        segment=7,
        covered=4096,
        sealed=sealed,
        rewritten=rewritten,
    )
    return b"".join(buffers)


def decoded(raw: bytes) -> tuple[IndexHead, bytes]:
    head = decode_index_head(raw)
    column = raw[head.places_at :]
    check_places(head, column)
    return head, column


@settings(deadline=None)
@given(
    st.integers(1, 2**40),
    st.lists(st.integers(0, 2**64 - 1), max_size=50),
    st.booleans(),
    st.booleans(),
)
def test_an_index_comes_back_as_it_went(
    first: int, places: list[int], sealed: bool, rewritten: bool
) -> None:
    column = Column(first, array("Q", places), {3: first})

    raw = encoded(column, sealed=sealed, rewritten=rewritten)
    head, found = decoded(raw)

    assert memoryview(found).cast("Q").tolist() == places
    assert (head.first, head.count, head.segment, head.covered) == (first, len(places), 7, 4096)
    assert (head.sealed, head.rewritten, head.reaches) == (sealed, rewritten, {3: first})
    assert head.chronicle == Chronicle(b"u" * 16, position=column.last)
    assert head.size == len(raw)
    assert head.places_at % 8 == 0


@settings(deadline=None)
@given(st.data())
def test_a_flipped_bit_is_found(data: st.DataObject) -> None:
    raw = bytearray(encoded(Column(1, array("Q", range(20)))))
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[bit // 8] ^= 1 << bit % 8

    try:
        head, found = decoded(bytes(raw))
    except Corrupt:
        return
    # All that no checksum covers is the padding between head and places.
    assert bit // 8 < head.places_at
    assert memoryview(found).cast("Q").tolist() == list(range(20))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_anything_else_is_no_index(raw: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_index_head(raw)


def test_a_part_of_an_index_is_none() -> None:
    raw = encoded(Column(1, array("Q", range(20))))
    needed = index_head_length(raw)
    assert 0 < needed < len(raw)
    for length in range(needed):
        with pytest.raises(Corrupt):
            decode_index_head(raw[:length])
    for length in range(needed, len(raw)):
        with pytest.raises(Corrupt, match="segment 7"):
            decoded(raw[:length])


def test_a_column_remembers_how_far_older_segments_reach() -> None:
    column = Column(10)
    for where in (place(4, 64), place(3, 800), place(4, 128), place(3, 64), place(4, 256)):
        column.add(where, 4)

    assert column.last == 14
    assert column.reaches == {3: 13}
