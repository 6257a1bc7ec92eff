"""Codecs: what is packed is unpacked, within bounds, or refused."""

from __future__ import annotations

import contextlib
import resource
import sys

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from duckrow.node import codec
from duckrow.node.columns import encode
from duckrow.node.errors import Corrupt, LimitExceeded, Refused
from duckrow.node.limits import BATCH_BYTES_MAX, MIB

BODY = encode([b"value %d" % i for i in range(1_000)])
PACKED = codec.pack(codec.ZSTD, BODY)


@given(st.lists(st.binary(max_size=50), min_size=1), st.sampled_from([codec.PLAIN, codec.ZSTD]))
def test_what_was_packed_is_unpacked(values: list[bytes], number: int) -> None:
    body = encode(values)
    packed = codec.pack(number, body)

    for form in (packed, bytearray(packed), memoryview(packed)):
        assert codec.unpack(number, form) == body
        assert codec.decode(number, form).value_list(0, len(values)) == values


def test_packing_makes_smaller() -> None:
    assert len(PACKED) < len(BODY) / 3


@pytest.mark.parametrize("number", [16, 17, 255])
def test_a_foreign_body_is_kept_as_it_came(number: int) -> None:
    body = b"record batch"

    assert codec.unpack(number, body) is body
    with pytest.raises(Refused, match="foreign"):
        codec.decode(number, body)
    with pytest.raises(Refused):
        codec.pack(number, body)


@pytest.mark.parametrize("number", [2, 15])
def test_an_unknown_codec_is_refused(number: int) -> None:
    for act in (codec.pack, codec.unpack, codec.decode):
        with pytest.raises(Refused, match=f"codec {number}"):
            act(number, b"")
    with pytest.raises(Refused, match=f"codec {number}"):
        codec.check(number, BODY, 1_000)  # or nobody could read on behind it


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    fuse = zstandard.ZstdCompressor().compressobj(size=512 * MIB)
    bomb = b"".join([*(fuse.compress(bytes(MIB)) for _ in range(512)), fuse.flush()])
    before = most_resident()

    with pytest.raises(LimitExceeded, match=r"536,870,912.*4,194,304"):
        codec.unpack(codec.ZSTD, bomb)

    assert most_resident() - before < 2 * MIB


def test_a_frame_that_does_not_say_its_size_is_refused() -> None:
    """It could be a bomb, or ask for a window of 128 MiB; neither is begun."""
    silent = zstandard.ZstdCompressionParameters.from_level(
        3, window_log=27, enable_ldm=True, write_content_size=False
    )
    frame = zstandard.ZstdCompressor(compression_params=silent).compress(BODY)

    with pytest.raises(Corrupt, match="how large"):
        codec.unpack(codec.ZSTD, frame)


def test_a_frame_that_lies_about_its_size_is_corrupt() -> None:
    frame = bytearray(zstandard.ZstdCompressor().compress(bytes(300)))
    assert frame[5:7] == (300 - 256).to_bytes(2, "little")
    for claimed in (299, 301, 60_000):
        frame[5:7] = (claimed - 256).to_bytes(2, "little")

        with pytest.raises(Corrupt):
            codec.unpack(codec.ZSTD, frame)


def test_the_largest_batch_is_unpacked_and_one_byte_more_is_not() -> None:
    pack = zstandard.ZstdCompressor().compress

    assert len(codec.unpack(codec.ZSTD, pack(bytes(BATCH_BYTES_MAX)))) == BATCH_BYTES_MAX
    with pytest.raises(LimitExceeded):
        codec.unpack(codec.ZSTD, pack(bytes(BATCH_BYTES_MAX + 1)))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(BODY, id="a plain body"),
        pytest.param(PACKED[:-1], id="the last byte is missing"),
        pytest.param(PACKED + b"\0", id="something behind it"),
        pytest.param(PACKED + PACKED, id="two frames"),
        pytest.param(b"\x50\x2a\x4d\x18\x04\0\0\0four" + PACKED, id="a frame to be skipped"),
    ],
)
def test_what_is_not_one_whole_frame_is_corrupt(body: bytes) -> None:
    with pytest.raises(Corrupt):
        codec.unpack(codec.ZSTD, body)


@given(st.lists(st.tuples(st.integers(0, len(PACKED) - 1), st.integers(0, 255)), max_size=4))
def test_a_packed_body_with_changed_bytes_is_a_batch_or_refused(
    changes: list[tuple[int, int]],
) -> None:
    body = bytearray(PACKED)
    for at, byte in changes:
        body[at] = byte

    with contextlib.suppress(Corrupt, Refused):
        assert codec.decode(codec.ZSTD, body).entries >= 1


def test_without_the_package_the_refusal_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)

    for act in (codec.pack, codec.unpack):
        with pytest.raises(Refused, match=r"pip install 'duckrow\[zstd\]'"):
            act(codec.ZSTD, PACKED)
    assert codec.unpack(codec.PLAIN, BODY) is BODY


def most_resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024


def test_at_the_door_a_body_has_as_many_entries_as_its_head_says() -> None:
    body = encode([b"one", b"two"])
    codec.check(codec.PLAIN, body, 2)
    with pytest.raises(Corrupt, match="holds 2 entries, and its head says 3"):
        codec.check(codec.PLAIN, body, 3)


@pytest.mark.parametrize("number", [codec.PLAIN, codec.ZSTD])
def test_at_the_door_what_no_reader_could_open_is_refused(number: int) -> None:
    with pytest.raises(Corrupt):
        codec.check(number, b"no body at all", 1)


def test_at_the_door_a_packed_body_and_a_foreign_one_are_not_opened() -> None:
    codec.check(codec.ZSTD, codec.pack(codec.ZSTD, encode([b"one"])), 1)
    codec.check(codec.FOREIGN, b"anything", 7)


@pytest.mark.parametrize("number", [codec.PLAIN, codec.ZSTD, codec.FOREIGN])
def test_at_the_door_no_body_is_larger_than_a_batch_may_be(number: int) -> None:
    """Nor one that nobody opens here: it would fit the frame it came in, and none on its way out."""
    start = codec.pack(codec.ZSTD, BODY)[:4] if number == codec.ZSTD else b""
    with pytest.raises(LimitExceeded, match=r"4,194,305, and the limit is 4,194,304"):
        codec.check(number, start + bytes(BATCH_BYTES_MAX + 1 - len(start)), 1)
    if number == codec.FOREIGN:
        codec.check(number, bytes(BATCH_BYTES_MAX), 1)
