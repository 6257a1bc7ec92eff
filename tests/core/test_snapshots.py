"""Snapshots: a file that was whole once, told from every other file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckrow.node.errors import Corrupt
from duckrow.node.snapshots import Identity, decode, encode

IDENTITY = Identity(b"u" * 16, 7, 1234, b"d" * 16)
CHUNKS = [("state", b"one"), ("state", b"x" * 70_000), ("index", b"")]


def file(chunks: list[tuple[str, bytes]] = CHUNKS) -> bytes:
    return b"".join(encode(IDENTITY, chunks))


def test_what_was_written_is_read() -> None:
    snapshot = decode(file())

    assert snapshot.identity == IDENTITY
    assert list(snapshot.chunks) == CHUNKS
    assert snapshot.of("state") == [b"one", b"x" * 70_000]


@given(
    st.integers(0, len(file([("state", b"some bytes"), ("index", b"more")])) - 1), st.integers(0, 7)
)
def test_a_bit_that_turned_anywhere_is_noticed(offset: int, bit: int) -> None:
    raw = bytearray(file([("state", b"some bytes"), ("index", b"more")]))
    raw[offset] ^= 1 << bit

    with pytest.raises(Corrupt):
        decode(bytes(raw))


@given(st.integers(0, len(file()) - 1))
def test_one_that_was_cut_short_is_noticed(length: int) -> None:
    with pytest.raises(Corrupt):
        decode(file()[:length])


def test_chunks_cannot_change_places() -> None:
    pieces = list(encode(IDENTITY, CHUNKS))
    pieces[1], pieces[2] = pieces[2], pieces[1]

    with pytest.raises(Corrupt, match="damaged"):
        decode(b"".join(pieces))


def test_a_chunk_cannot_vanish() -> None:
    pieces = list(encode(IDENTITY, CHUNKS))

    with pytest.raises(Corrupt):
        decode(b"".join(pieces[:2] + pieces[3:]))


def test_nothing_may_follow_the_end() -> None:
    with pytest.raises(Corrupt):
        decode(file() + b"\0")
