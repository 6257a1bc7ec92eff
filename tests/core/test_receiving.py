"""Bytes from a stream to frames, however they come, and whoever stops waiting."""

from __future__ import annotations

import pytest
import trio

from duckrow.node import frames
from duckrow.node.errors import Disconnected
from duckrow.node.frames import Frame, FrameReader
from duckrow.node.limits import MIB
from duckrow.node.receiving import receive

SMALL, LARGE = b"".join(frames.encode(b"head", b"body")), b"".join(frames.encode(b"", bytes(MIB)))


class Source:
    """Gives so many bytes at a time; at the end it ends, or waits for ever."""

    def __init__(self, data: bytes, at_once: int, *, ends: bool = True) -> None:
        self.data, self.at_once, self.ends = data, at_once, ends
        self.in_place = 0  # bytes that were received where they stay

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self.data and not self.ends:
            await trio.sleep_forever()
        size = min(self.at_once, max_bytes or self.at_once)
        given, self.data = self.data[:size], self.data[size:]
        return given

    async def receive_into(self, buffer: memoryview) -> int:
        given = await self.receive_some(len(buffer))
        buffer[: len(given)] = given
        self.in_place += len(given)
        return len(given)


def reader() -> FrameReader:
    made = FrameReader()
    made.accept_hello()
    return made


async def taken(source: Source, into: FrameReader) -> list[Frame]:
    found: list[Frame] = []
    while await receive(source, into):
        while (frame := into.next_frame()) is not None:
            found.append(frame)
    return found


@pytest.mark.parametrize("at_once", [1000, 70_000, 3 * MIB])
def test_frames_are_what_was_sent_and_large_ones_come_in_place(at_once: int) -> None:
    source = Source(SMALL + LARGE + SMALL, at_once)

    found = trio.run(taken, source, reader())

    assert [(f.head, len(f.body)) for f in found] == [(b"head", 4), (b"", MIB), (b"head", 4)]
    assert source.in_place > MIB // 2


@pytest.mark.parametrize("data", [SMALL[:-1], LARGE[:-1], SMALL + LARGE[:3]])
def test_a_stream_that_ends_inside_a_frame_has_broken(data: bytes) -> None:
    with pytest.raises(Disconnected):
        trio.run(taken, Source(data, 70_000), reader())


def test_who_was_cancelled_may_receive_again() -> None:
    async def main() -> None:
        into, source = reader(), Source(LARGE[:500_000], 70_000, ends=False)
        with trio.move_on_after(0.05):
            await taken(source, into)
        assert source.in_place

        source.data, source.ends = LARGE[500_000:], True

        assert [len(frame.body) for frame in await taken(source, into)] == [MIB]

    trio.run(main)
