"""Frames: how heads and bodies go over a stream.  No I/O here; a shell moves the bytes.

    u32 length | u16 head length | head (CBOR array) | body (raw)        little endian
                 `---------------- length bytes ---------------'

Writing gives buffers for one vectored write; a body is never copied.  Reading takes bytes as they
come, in chunks that know nothing of frames:

    chunk  [frame][frame][fra          small frames are sliced from the chunk
    chunk  me][frame]...               one that does not end in its chunk gets a buffer of its own,
                                       which the shell may receive into; its body is not copied

Nothing is held twice and nothing is searched twice, so bytes that come one by one cost no more
than constant time each.  A length that is not allowed is refused when it is known, before there is
a buffer for it; and the buffer grows with what has come, not with what was promised (at most to
sixteen times as much).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from .env import Buffer
from .errors import Corrupt, Disconnected, LimitExceeded
from .limits import (
    FRAME_BYTES_MAX,
    FRAME_BYTES_PER_SECOND_MIN,
    FRAME_SECONDS_GRACE,
    HEAD_BYTES_MAX,
    HELLO_BYTES_MAX,
    HELLO_SECONDS_MAX,
    KIB,
)

_LENGTHS: Final = struct.Struct("<IH")
_BEFORE_HEAD: Final = _LENGTHS.size
_LENGTH_BYTES: Final = 4
_HEAD_LENGTH_BYTES: Final = 2

RECEIVE_BYTES: Final = 64 * KIB  # what a shell asks the stream for, and the least it lends
_WORTH_LENDING: Final = 16 * KIB  # for less, a chunk that also brings the next frames is better
_GROWTH: Final = 16  # of a buffer that is full: 64 KiB, 1 MiB, then the largest frame there is
_ALIGNMENT: Final = 8  # of bodies, which hold typed arrays (node/layout.py)


class Frame(NamedTuple):
    head: bytes
    body: Buffer

    @property
    def size(self) -> int:
        """On a stream."""
        return _BEFORE_HEAD + len(self.head) + len(self.body)


def encode(head: bytes, *body: Buffer) -> list[Buffer]:
    """The buffers of one frame, for a vectored write.

    Raises:
        LimitExceeded: the head or the frame would be refused by whoever reads it.
    """
    size = len(head)
    if size > HEAD_BYTES_MAX:
        raise LimitExceeded("the length of a head in bytes", size, HEAD_BYTES_MAX)
    length = _HEAD_LENGTH_BYTES + size
    if not body:
        return [_LENGTHS.pack(length, size) + head]
    length += sum(map(len, body))
    _check_length(length, FRAME_BYTES_MAX)
    return [_LENGTHS.pack(length, size) + head, *filter(len, body)]


def hello_deadline(connected: float) -> float:
    """When a connection whose `hello` was not accepted until then is closed."""
    return connected + HELLO_SECONDS_MAX


def frame_deadline(received: int, begun: float) -> float:
    """When a frame is given up that has `received` bytes, unless more come before.

    Each KiB that comes buys a second, so a slow line is served, and one that is held open to hold
    our memory is not.  Times are of any clock that does not jump.
    """
    return begun + FRAME_SECONDS_GRACE + received / FRAME_BYTES_PER_SECOND_MIN


class FrameReader:
    """Bytes in, frames out: `receive_data`, then `next_frame` until there is none.

    After an error the same error comes again: where the next frame begins is not known.
    """

    __slots__ = ("_at", "_begun", "_chunk", "_lent", "_limit", "_tail")

    def __init__(self) -> None:
        self._limit = HELLO_BYTES_MAX  # of a whole frame
        self._chunk = b""  # received, and taken apart up to `_at`
        self._at = 0
        self._tail = b""  # the beginning of a frame, so short that its lengths are not known
        self._begun: _Begun | None = None  # or the beginning of a longer one
        self._lent: memoryview | None = None

    def accept_hello(self) -> None:
        """What comes next may be as large as any frame."""
        self._limit = FRAME_BYTES_MAX

    @property
    def received(self) -> int:
        """Bytes of the frame that has begun and not ended; 0: between frames."""
        return len(self._tail) if self._begun is None else self._begun.received

    @property
    def wanted(self) -> int:
        """How many bytes a shell should ask for: no more than a stranger may make us hold."""
        return min(RECEIVE_BYTES, max(self._limit - self.received, 1))

    def receive_data(self, data: Buffer) -> None:
        """Takes what the stream gave, once `next_frame` has returned None for what it gave before."""
        assert self._at == len(self._chunk), "there are frames left to be taken"
        assert self._lent is None, "a buffer was lent, and not said to be filled"
        self._chunk, self._at = bytes(data), 0

    def lend_buffer(self) -> memoryview | None:
        """Where to receive the rest of a large frame; None: use `receive_data`.

        To be given back with `buffer_filled` before anything else, if need be with 0 bytes.
        """
        assert self._lent is None, "a buffer was lent, and not said to be filled"
        begun = self._begun
        if begun is None or begun.missing < _WORTH_LENDING:
            return None
        begun.make_room(min(begun.missing, RECEIVE_BYTES))
        self._lent = memoryview(begun.buffer)[begun.filled :]
        return self._lent

    def buffer_filled(self, count: int) -> None:
        """`count` bytes were received into the buffer that was lent."""
        assert self._lent is not None and self._begun is not None, "no buffer was lent"
        assert 0 <= count <= len(self._lent)
        # It could not grow while somebody else can write to it.
        self._lent.release()
        self._lent = None
        self._begun.filled += count

    def next_frame(self) -> Frame | None:
        """The next whole frame; None: there is none before more bytes come.

        Raises:
            LimitExceeded: its length is above the limit.
            Corrupt: its lengths contradict each other.
        """
        if self._begun is not None:
            return self._go_on(self._begun)
        if self._tail:
            self._chunk, self._tail = self._tail + self._chunk, b""
        chunk, at = self._chunk, self._at
        came = len(chunk) - at
        if came < _BEFORE_HEAD:
            if not came:
                return None
            if came >= _LENGTH_BYTES:
                _check_length(int.from_bytes(chunk[at : at + _LENGTH_BYTES], "little"), self._limit)
            self._tail = chunk[at:]
            self._chunk, self._at = b"", 0
            return None

        length, head_length = _LENGTHS.unpack_from(chunk, at)
        if length + _LENGTH_BYTES > self._limit or length < _HEAD_LENGTH_BYTES:
            _check_length(length, self._limit)
        if _HEAD_LENGTH_BYTES + head_length > length:
            raise Corrupt(f"a frame of {length:,} bytes cannot hold a head of {head_length:,}")
        head = at + _BEFORE_HEAD
        body = head + head_length
        end = at + _LENGTH_BYTES + length
        if end <= len(chunk):
            self._at = end
            frame: Frame = tuple.__new__(Frame, (chunk[head:body], chunk[body:end]))
            return frame
        self._at = head
        self._begun = _Begun(head_length, length - _HEAD_LENGTH_BYTES)
        return self._go_on(self._begun)

    def end_of_data(self) -> None:
        """The stream has ended.

        Raises:
            Disconnected: in the middle of a frame.
        """
        if self.received:
            raise Disconnected(f"the stream ended after {self.received:,} bytes of a frame")

    def _go_on(self, begun: _Begun) -> Frame | None:
        assert self._lent is None, "a buffer was lent, and not said to be filled"
        self._at += begun.take(self._chunk, self._at)
        if self._at == len(self._chunk):
            self._chunk, self._at = b"", 0
        if begun.missing:
            return None
        self._begun = None
        return begun.frame()


class _Begun:
    """A frame that did not come in one piece: a buffer for its head and its body.

    The body starts on a multiple of 8 of the buffer, so that its typed arrays do as well.
    """

    __slots__ = ("buffer", "filled", "head", "head_length", "size")

    def __init__(self, head_length: int, length: int) -> None:
        self.head = -head_length % _ALIGNMENT
        self.head_length = head_length
        self.size = self.head + length
        self.filled = self.head
        self.buffer = bytearray(min(self.size, RECEIVE_BYTES))

    @property
    def missing(self) -> int:
        return self.size - self.filled

    @property
    def received(self) -> int:
        return _BEFORE_HEAD + self.filled - self.head

    def make_room(self, count: int) -> None:
        """Room for `count` bytes more; if there is none, for much more, so that we seldom copy."""
        needed = self.filled + count
        if needed > len(self.buffer):
            larger = bytearray(min(self.size, max(_GROWTH * len(self.buffer), needed)))
            # Not `+=`: that lets the allocator move pages about, at ten times the cost.
            larger[: self.filled] = memoryview(self.buffer)[: self.filled]
            self.buffer = larger

    def take(self, chunk: bytes, at: int) -> int:
        """Takes what it still misses, and says how much that was."""
        count = min(self.missing, len(chunk) - at)
        self.make_room(count)
        self.buffer[self.filled : self.filled + count] = memoryview(chunk)[at : at + count]
        self.filled += count
        return count

    def frame(self) -> Frame:
        body = self.head + self.head_length
        return Frame(
            bytes(self.buffer[self.head : body]),
            memoryview(self.buffer)[body : self.size].toreadonly(),
        )


def _check_length(length: int, limit: int) -> None:
    if length + _LENGTH_BYTES > limit:
        raise LimitExceeded("the length of a frame in bytes", length + _LENGTH_BYTES, limit)
    if length < _HEAD_LENGTH_BYTES:
        raise Corrupt(f"a frame of {length} bytes has no room for the length of its head")
