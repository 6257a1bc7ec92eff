"""One flipped bit is found by the checksum, wherever it is; two are not taken for one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckrow.node.checksum import crc32c
from duckrow.node.onebit import mended

BLOCK = random.Random(1).randbytes(64 * 1024)


def flipped(block: bytes, *bits: int) -> bytes:
    found = bytearray(block)
    for bit in bits:
        found[bit // 8] ^= 1 << bit % 8
    return bytes(found)


@given(st.binary(min_size=1, max_size=400), st.data())
def test_one_flipped_bit_is_flipped_back(block: bytes, data: st.DataObject) -> None:
    bit = data.draw(st.integers(0, 8 * len(block) - 1))

    assert mended(flipped(block, bit), crc32c(block)) == block


@pytest.mark.parametrize("bit", [0, 7, 8, 8 * 64 * 1024 - 8, 8 * 64 * 1024 - 1, 200_001])
def test_also_in_a_block_of_rows(bit: int) -> None:
    assert mended(flipped(BLOCK, bit), crc32c(BLOCK)) == BLOCK


@given(st.lists(st.integers(0, 8 * 400 - 1), min_size=2, max_size=3, unique=True))
def test_two_or_three_are_told_apart_from_one(bits: list[int]) -> None:
    found = mended(flipped(BLOCK[:400], *bits), crc32c(BLOCK[:400]))

    # Three may look like one (that with them makes a word of four that no crc of 32 bits can tell).
    assert found is None or len(bits) == 3


def test_what_is_whole_has_no_bit_to_flip() -> None:
    assert mended(BLOCK, crc32c(BLOCK)) is None
    assert mended(b"", 5) is None
