"""What goes out to one client: a queue, and one write for all that is in it.

    put, put, put ──► queue ──► flush: what the socket takes at once
                        └─────► a task, for as long as something is left

Whoever can wait waits for room before it puts more; what cannot wait (answers to what was asked) is
bounded, and a client that asks and never reads is cut off.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol, cast

import trio

from .env import Buffer
from .events import WARNING, Note
from .limits import MIB, OUTPUT_BYTES_MAX

AHEAD_BYTES: Final = 1 * MIB  # queued; then pulls wait: more would not be faster


class Sink(Protocol):
    """What is needed of a stream."""

    def send_now(self, buffers: Iterable[Buffer]) -> int: ...
    async def wait_send_all_might_not_block(self) -> None: ...
    async def aclose(self) -> None: ...


Spawn = Callable[[Callable[[], Awaitable[None]]], None]
GONE: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)


class Output:
    __slots__ = (
        "_client",
        "_emptied",
        "_most",
        "_note",
        "_queue",
        "_ready",
        "_sending",
        "_spawn",
        "_stream",
        "bytes",
        "closed",
    )

    def __init__(
        self,
        stream: Sink,
        spawn: Spawn,
        note: Note,
        client: str,
        ready: dict[Output, None] | None = None,
        at_once: int = 0,
    ) -> None:
        """`at_once`: so many bytes may have to go together, and it is not the client who is too slow."""
        self.bytes = 0  # that the client has not taken yet
        self._most = OUTPUT_BYTES_MAX + at_once
        self.closed = False
        self._stream, self._spawn = stream, spawn
        self._note, self._client = note, client
        self._queue: list[Buffer] = []
        self._ready = {} if ready is None else ready  # of many outputs, those to be flushed
        self._sending = False  # a task does
        self._emptied: trio.Event | None = None

    @property
    def has_room(self) -> bool:
        return self.bytes <= AHEAD_BYTES

    def put(self, buffers: list[Buffer]) -> None:
        """Goes out with the next flush."""
        if not self.closed:
            self._queue += buffers
            self.bytes += sum(map(len, buffers))
            self._ready[self] = None

    def flush(self) -> None:
        """Sends what the socket takes; the rest gets a task."""
        if self.closed or not self._queue:
            return
        if not self._sending:
            try:
                count = self._stream.send_now(self._queue)
            except GONE:
                self.close()  # the task that receives will hear of it
                return
            if count == self.bytes and self._emptied is None:
                self._queue.clear()
                self.bytes = 0
                return
            self._sent(count)
            if self._queue:
                self._sending = True
                self._spawn(self._send)
        if self.bytes > self._most:
            self._note(WARNING, "client_too_slow client=%s queued=%d", self._client, self.bytes)
            self.hang_up()

    async def wait(self, bytes_max: int = 0) -> None:
        """Until no more than that is queued, or the client is gone."""
        while self.bytes > bytes_max and not self.closed:
            if self._emptied is None:
                self._emptied = trio.Event()
            await self._emptied.wait()

    def hang_up(self) -> None:
        """At once; whoever receives hears of it."""
        if not self.closed:
            self.close()
            self._spawn(self._close_stream)

    def close(self) -> None:
        """Nothing goes out any more."""
        self.closed = True
        self._queue.clear()
        self.bytes = 0
        self._wake()

    async def _send(self) -> None:
        try:
            while self._queue:
                await self._stream.wait_send_all_might_not_block()
                self._sent(self._stream.send_now(self._queue))
        except GONE:
            self.close()
        finally:
            self._sending = False

    async def _close_stream(self) -> None:
        await trio.aclose_forcefully(cast(trio.abc.AsyncResource, self._stream))

    def _sent(self, count: int) -> None:
        self.bytes -= count
        queue, whole = self._queue, 0
        for buffer in queue:
            if len(buffer) > count:
                break
            count -= len(buffer)
            whole += 1
        del queue[:whole]
        if count:
            queue[0] = memoryview(queue[0])[count:]
        self._wake()

    def _wake(self) -> None:
        if self._emptied is not None:
            self._emptied.set()
            self._emptied = None
