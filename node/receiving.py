"""Bytes from a stream to whoever takes frames out of them: small ones in chunks, large ones in place."""

from __future__ import annotations

from typing import Protocol

from .frames import FrameReader


class Source(Protocol):
    """What is needed of a stream."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray: ...
    async def receive_into(self, buffer: memoryview) -> int: ...


async def receive(stream: Source, reader: FrameReader) -> bool:
    """Waits for more bytes.  False: the stream has ended, between two frames.

    Cancelled, the reader has back what it lent.

    Raises:
        Disconnected: it has ended in the middle of a frame.
    """
    lent = reader.lend_buffer()
    count = 0
    if lent is None:
        data = await stream.receive_some(reader.wanted)
        count = len(data)
        if count:
            reader.receive_data(data)
    else:
        try:
            count = await stream.receive_into(lent)
        finally:
            reader.buffer_filled(count)
    if not count:
        reader.end_of_data()
    return bool(count)
