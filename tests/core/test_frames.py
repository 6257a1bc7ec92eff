"""Frames: whole again however the stream cut them, and refused when that is all that is known."""

from __future__ import annotations

import contextlib
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckrow.node.columns import decode
from duckrow.node.columns import encode as encode_columns
from duckrow.node.errors import Corrupt, Disconnected, LimitExceeded
from duckrow.node.frames import (
    RECEIVE_BYTES,
    Frame,
    FrameReader,
    encode,
    frame_deadline,
    hello_deadline,
)
from duckrow.node.limits import FRAME_BYTES_MAX, HEAD_BYTES_MAX, HELLO_BYTES_MAX, KIB, MIB

FRAMES = st.lists(
    st.tuples(
        st.binary(max_size=30),
        st.binary(max_size=60) | st.sampled_from([40 * KIB, 64 * KIB, 200 * KIB]).map(bytes),
    ),
    max_size=5,
)


def stream(frames: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(buffer for head, body in frames for buffer in encode(head, body))


def open_reader() -> FrameReader:
    reader = FrameReader()
    reader.accept_hello()
    return reader


def take_all(reader: FrameReader) -> list[tuple[bytes, bytes]]:
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append((frame.head, bytes(frame.body)))
    return frames


@settings(max_examples=200)
@given(FRAMES, st.data())
def test_frames_are_whole_again_however_the_stream_cut_them(
    frames: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    raw = stream(frames)
    reader = open_reader()
    found: list[tuple[bytes, bytes]] = []
    at = 0
    steps = st.integers(1, 20) | st.integers(1, 100 * KIB)

    while at < len(raw):
        step = data.draw(steps)
        buffer = reader.lend_buffer() if data.draw(st.booleans()) else None
        if buffer is None:
            reader.receive_data(raw[at : at + step])
            at += step
        else:
            count = min(step, len(buffer), len(raw) - at)
            buffer[:count] = raw[at : at + count]
            reader.buffer_filled(count)
            at += count
        found += take_all(reader)

    assert found == frames
    assert reader.received == 0
    reader.end_of_data()


@given(FRAMES)
def test_frames_that_come_byte_by_byte_are_whole_again(frames: list[tuple[bytes, bytes]]) -> None:
    frames = [(head, body[:50]) for head, body in frames]
    reader = open_reader()
    found = []

    for byte in stream(frames):
        reader.receive_data(bytes([byte]))
        found += take_all(reader)

    assert found == frames


def test_many_pieces_of_a_body_are_one_frame() -> None:
    reader = open_reader()

    reader.receive_data(b"".join(encode(b"head", b"a", b"", memoryview(b"bc"))))

    assert reader.next_frame() == Frame(b"head", b"abc")


def test_the_bytes_are_as_documented() -> None:
    assert encode(b"head", b"body") == [b"\x0a\0\0\0\x04\0head", b"body"]
    assert encode(b"head") == [b"\x06\0\0\0\x04\0head"]


def test_a_large_body_is_neither_copied_nor_writable() -> None:
    body = bytes(range(256)) * KIB
    encoded = encode(b"head", body)
    reader = open_reader()

    assert encoded[1] is body
    reader.receive_data(b"".join(encoded)[: 100 * KIB])
    assert reader.next_frame() is None
    reader.receive_data(b"".join(encoded)[100 * KIB :])
    frame = reader.next_frame()

    assert frame is not None
    assert isinstance(frame.body, memoryview)
    assert frame.body.readonly
    assert frame.body == body


@pytest.mark.parametrize("head_length", range(9))
def test_the_typed_arrays_of_a_received_body_are_aligned_in_memory(head_length: int) -> None:
    body = encode_columns([b"v" * 100] * 1_000)
    raw = b"".join(encode(b"h" * head_length, body))
    reader = open_reader()
    reader.receive_data(raw[:1_000])
    assert reader.next_frame() is None
    reader.receive_data(raw[1_000:])
    frame = reader.next_frame()
    assert frame is not None
    assert isinstance(frame.body, memoryview)

    # Where the body starts in its buffer, whose own start is aligned by the allocator.
    whole = memoryview(frame.body.obj)
    assert (len(whole) - len(frame.body)) % 8 == 0
    assert decode(frame.body).entries == 1_000


def test_a_stranger_may_send_a_kibibyte_and_no_more() -> None:
    most = HELLO_BYTES_MAX - 6
    reader = FrameReader()
    reader.receive_data(b"".join(encode(bytes(most))))
    assert reader.next_frame() == Frame(bytes(most), b"")

    reader.receive_data(b"".join(encode(bytes(most + 1)))[:4])
    with pytest.raises(LimitExceeded, match=r"1,025.*1,024"):
        reader.next_frame()


def test_what_follows_an_accepted_hello_in_the_same_chunk_may_be_large() -> None:
    raw = stream([(b"hello", b""), (b"large", bytes(10 * KIB))])
    reader = FrameReader()
    reader.receive_data(raw)
    assert reader.next_frame() == Frame(b"hello", b"")
    reader.accept_hello()

    assert reader.next_frame() == Frame(b"large", bytes(10 * KIB))


def test_what_follows_a_hello_that_was_not_accepted_may_not() -> None:
    reader = FrameReader()
    reader.receive_data(stream([(b"hello", b""), (b"large", bytes(10 * KIB))]))
    assert reader.next_frame() == Frame(b"hello", b"")

    with pytest.raises(LimitExceeded):
        reader.next_frame()


def test_the_largest_frame_passes_and_a_byte_more_is_refused_on_both_sides() -> None:
    most = FRAME_BYTES_MAX - 6 - 4
    reader = open_reader()
    for start in encode(b"head", bytes(most)):
        reader.receive_data(start)
        frame = reader.next_frame()
    assert frame is not None
    assert len(frame.body) == most

    with pytest.raises(LimitExceeded, match=r"8,388,609.*8,388,608"):
        encode(b"head", bytes(most), b"x")
    reader.receive_data((FRAME_BYTES_MAX - 4 + 1).to_bytes(4, "little"))
    with pytest.raises(LimitExceeded, match=r"8,388,609.*8,388,608"):
        reader.next_frame()


def test_the_largest_head_passes_and_a_byte_more_is_refused() -> None:
    reader = open_reader()
    reader.receive_data(b"".join(encode(bytes(HEAD_BYTES_MAX))))

    assert reader.next_frame() == Frame(bytes(HEAD_BYTES_MAX), b"")
    with pytest.raises(LimitExceeded, match=r"65,536.*65,535"):
        encode(bytes(HEAD_BYTES_MAX + 1))


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\0\0\0\0", id="no room for a head length"),
        pytest.param(b"\1\0\0\0", id="half a head length"),
        pytest.param(b"\2\0\0\0\1\0", id="a head longer than the frame"),
        pytest.param(b"\6\0\0\0\xff\xff", id="a head much longer than the frame"),
    ],
)
def test_lengths_that_contradict_each_other_are_corrupt(raw: bytes) -> None:
    reader = open_reader()
    reader.receive_data(raw)

    with pytest.raises(Corrupt):
        reader.next_frame()


def test_after_an_error_the_same_error_comes_again() -> None:
    reader = open_reader()
    reader.receive_data(b"\0\0\0\0" + stream([(b"head", b"")]))

    for _ in range(2):
        with pytest.raises(Corrupt):
            reader.next_frame()


def test_a_length_costs_no_memory_before_the_bytes_come() -> None:
    promise = (FRAME_BYTES_MAX - 4).to_bytes(4, "little") + b"\4\0"
    tracemalloc.start()
    readers = [open_reader() for _ in range(20)]

    for reader in readers:
        reader.receive_data(promise)
        assert reader.next_frame() is None
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert held < len(readers) * (RECEIVE_BYTES + 2 * KIB)


def test_a_slow_large_frame_is_copied_twice_at_most() -> None:
    """Copying what is there for each piece would copy 18 GiB."""
    raw = b"".join(encode(b"head", bytes(6 * MIB)))
    reader, buffers = open_reader(), dict[int, object]()

    for at in range(0, len(raw), KIB):
        reader.receive_data(raw[at : at + KIB])
        if reader._begun is not None:
            buffers[id(reader._begun.buffer)] = reader._begun.buffer  # held: its id stays its own
        frame = reader.next_frame()

    assert frame is not None
    assert len(buffers) == 3  # 64 KiB, 1 MiB, and all of it


def test_a_reader_says_how_much_has_come_and_how_much_to_ask_for() -> None:
    reader = FrameReader()
    assert (reader.received, reader.wanted) == (0, HELLO_BYTES_MAX)

    reader.receive_data(b"\x40\0")
    assert reader.next_frame() is None
    assert (reader.received, reader.wanted) == (2, HELLO_BYTES_MAX - 2)

    reader.receive_data(b"\0\0\4\0head")
    assert reader.next_frame() is None
    assert (reader.received, reader.wanted) == (10, HELLO_BYTES_MAX - 10)

    reader.accept_hello()
    assert reader.wanted == RECEIVE_BYTES


def test_a_buffer_is_lent_only_for_the_rest_of_a_large_frame() -> None:
    small, large = stream([(b"h", bytes(KIB))]), stream([(b"h", bytes(MIB))])
    reader = open_reader()
    assert reader.lend_buffer() is None

    reader.receive_data(small[:-1])
    assert reader.next_frame() is None
    assert reader.lend_buffer() is None
    reader.receive_data(small[-1:] + large[:100])
    assert reader.next_frame() is not None
    assert reader.next_frame() is None
    buffer = reader.lend_buffer()

    assert buffer is not None
    assert RECEIVE_BYTES - 100 <= len(buffer) <= MIB


def test_a_stream_that_ends_inside_a_frame_is_told() -> None:
    for cut in range(1, 9):
        reader = open_reader()
        reader.end_of_data()
        reader.receive_data(stream([(b"head", b"")])[:cut])
        assert reader.next_frame() is None

        with pytest.raises(Disconnected, match=f"{cut} bytes"):
            reader.end_of_data()


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_any_bytes_are_frames_or_an_error(chunks: list[bytes]) -> None:
    reader = open_reader()

    with contextlib.suppress(Corrupt, LimitExceeded):
        for chunk in chunks:
            reader.receive_data(chunk)
            take_all(reader)


def test_a_frame_has_to_come_at_a_kibibyte_a_second() -> None:
    begun = 1_000.0

    assert hello_deadline(begun) == begun + 5
    assert frame_deadline(0, begun) == begun + 5
    assert frame_deadline(10 * KIB, begun) == begun + 15
    assert frame_deadline(FRAME_BYTES_MAX, begun) == begun + 5 + 8_192


@given(st.floats(0.01, 100), st.integers(1, 64 * KIB))
def test_a_line_at_the_least_rate_is_never_given_up(seconds: float, step: int) -> None:
    """A chunk every `seconds`, as large as the rate asks for: each comes before the deadline."""
    step = max(step, round(seconds * KIB) + 1)
    received = 0

    for chunks in range(1, 20):
        received += step
        assert chunks * seconds < frame_deadline(received, 0.0)
