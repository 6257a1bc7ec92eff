"""One end of a simulated connection: what it received, what it may still send, how it ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

import trio

from .park import Pulse

if TYPE_CHECKING:
    from .net import Net
    from .park import Life
    from .world import Host

RECEIVE = 64 * 1024  # what a receive gives at most, unless it is told


class SimStream(trio.abc.Stream):
    """One end of a connection, of one life of one host."""

    def __init__(self, net: Net, host: Host, life: Life) -> None:
        self.host, self.life = host, life
        self.peer: SimStream = self
        self.broken = self.closed = self.ended = False  # ended: the peer's fin is here
        self.dialled = False  # this end did
        self.last_arrival = 0.0  # of what this end sent
        # What this end sent and the peer has not got.  Each arrival takes the oldest, whichever
        # message it was scheduled for: a stream keeps its order through cuts and jitter.
        self.flight: deque[tuple[str, bytes]] = deque()
        self._net = net
        self._received: deque[bytes] = deque()
        self._window = net.window  # what may still be sent
        self._readable = Pulse()
        self._writable = Pulse()
        self._sending = self._receiving = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        life, net = self.life, self._net
        if self._sending:
            raise trio.BusyResourceError("another task is sending on this stream")
        self._sending = True
        try:
            if not life.alive or life.paused:
                await life.gate()
            await trio.lowlevel.checkpoint()
            view = memoryview(data)
            while True:
                if self.closed:
                    raise trio.ClosedResourceError("this stream was closed")
                if self.broken:
                    raise trio.BrokenResourceError("simulated: connection reset")
                if not len(view):
                    break
                if self._window <= 0:
                    await self._writable.wait()
                    await life.gate()
                    continue
                length = min(len(view), self._window)
                if net.split and net.rng.random() < net.split:
                    length = net.rng.randint(1, length)
                self._window -= length
                net.send(self, "data", bytes(view[:length]))
                view = view[length:]
        finally:
            self._sending = False

    def send_now(self, buffers: Iterable[bytes | bytearray | memoryview]) -> int:
        """What the window takes of them, as a socket's buffer would."""
        if self.closed:
            raise trio.ClosedResourceError("this stream was closed")
        if self.broken or not self.life.alive:
            raise trio.BrokenResourceError("simulated: connection reset")
        data = b"".join(buffers)[: max(self._window, 0)]
        if data and self._net.split and self._net.rng.random() < self._net.split:
            data = data[: self._net.rng.randint(1, len(data))]
        if data:
            self._window -= len(data)
            self._net.send(self, "data", data)
        return len(data)

    async def receive_into(self, buffer: memoryview) -> int:
        data = await self.receive_some(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.life.gate()
        await trio.lowlevel.checkpoint()
        while self._window <= 0 and not self.closed and not self.broken:
            await self._writable.wait()
            await self.life.gate()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        life = self.life
        if self._receiving:
            raise trio.BusyResourceError("another task is receiving from this stream")
        self._receiving = True
        try:
            if not life.alive or life.paused:
                await life.gate()
            if self._received or self.closed or self.broken or self.ended:
                await trio.lowlevel.checkpoint()  # else it waits, which is one, too
            while True:
                if not life.alive or life.paused:
                    await life.gate()
                if self.closed:
                    raise trio.ClosedResourceError("this stream was closed")
                if self._received:
                    return self._take(RECEIVE if max_bytes is None else max_bytes)
                if self.broken:
                    raise trio.BrokenResourceError("simulated: connection reset")
                if self.ended:
                    return b""
                await self._readable.wait()
        finally:
            self._receiving = False

    async def aclose(self) -> None:
        self.shut()
        await trio.lowlevel.checkpoint()

    def shut(self) -> None:
        """Close at once.  Unread data makes the kernel answer with a reset, not with a fin."""
        if self.closed:
            return
        self.closed = True
        self._net.forget(self)
        if self.life.alive and not self.broken:
            self._net.send(self, "reset" if self._received else "fin", b"")
        self._readable.fire()
        self._writable.fire()

    def arrive(self, kind: str, data: bytes) -> None:
        if kind == "data":
            self._received.append(data)
            self._readable.fire()
        elif kind == "fin":
            self.ended = True
            self._readable.fire()
        else:
            self.break_off()

    def break_off(self) -> None:
        """A reset.  What had arrived may or may not still be read: systems differ."""
        self.broken = True
        if self._net.rng.random() < 0.5:
            self._received.clear()
        self._net.forget(self)
        self._readable.fire()
        self._writable.fire()

    def credit(self, length: int) -> None:
        self._window += length
        self._writable.fire()

    def _take(self, limit: int) -> bytes:
        received = self._received
        data = received.popleft()
        if received and self._net.rng.random() < 0.5:
            parts, size = [data], len(data)
            while received and size < limit:
                parts.append(received.popleft())
                size += len(parts[-1])
            data = b"".join(parts)
        if len(data) > limit:
            received.appendleft(data[limit:])
            data = data[:limit]
        self.peer.credit(len(data))
        return data
