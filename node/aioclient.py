"""The client for asyncio: a protocol that feeds the core, and a task that connects.

asyncio's transport keeps what the socket does not take; the core never gives it more than is allowed
to be on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

from .addresses import Unix
from .asyncclient import AsyncClient
from .backoff import Backoff
from .clientcalls import Call
from .dialling import notice_death
from .errors import Corrupt, Disconnected, DuckrowError, LimitExceeded, NoQuorum, Refused

_LOST = (OSError, TimeoutError, Disconnected, Corrupt, LimitExceeded, NoQuorum)


class Client(AsyncClient):
    """Made by `duckrow.aio.connect`; to be used in `async with`."""

    async def __aenter__(self) -> Self:
        self._transport: asyncio.Transport | None = None
        self._wanted, self._came = asyncio.Event(), asyncio.Event()
        self._pause: asyncio.TimerHandle | None = None
        self._closed = False
        self._task = asyncio.create_task(self._run())
        return self

    async def _end(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        self._task.cancel()
        await asyncio.wait([self._task])

    def _leave(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _result(self, call: Call, seconds: float) -> Any:
        loop = asyncio.get_running_loop()
        heard = self._core.heard

        def too_late() -> None:
            self._in_vain(call, heard, seconds)
            self._give_up(call)

        timer = loop.call_later(max(0.0, seconds), too_late)
        try:
            if call.done:
                await asyncio.sleep(0)
            else:
                await _done(call, loop)
        finally:
            timer.cancel()
            self._give_up(call)
        return call.result()

    async def _in_thread(self, job: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(job)

    async def _pass(self) -> None:
        await asyncio.sleep(0)

    async def _wait_until_received(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._came.wait()
        except TimeoutError:
            pass  # the caller looks at the time

    def _has_come(self) -> None:
        self._came.set()
        self._came = asyncio.Event()

    def _kick(self) -> None:
        if self._transport is None:
            self._wanted.set()
            return
        buffers = self._core.data_to_send()
        if buffers:
            self._transport.writelines(buffers)
        pause = self._core.pause_seconds()
        if pause and self._pause is None:
            self._pause = asyncio.get_running_loop().call_later(pause, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        self._kick()

    def received(self, data: bytes) -> bool:
        """Whether the node has let us in.

        Raises:
            DuckrowError: the other side does not speak the protocol, or does not want us.
        """
        self._core.receive_data(data)
        self._has_come()
        self._kick()
        self._core.check_turned_away()
        return self._core.is_greeted

    async def _run(self) -> None:
        backoff = Backoff(self._rng)
        while True:
            if self._core.idle:
                self._wanted.clear()
                await self._wanted.wait()
            try:
                await self._connect(backoff)
            except _LOST as error:
                self._lost(error)
            except Refused as error:  # it will not let us in
                self._lost(error)
                self._core.fail(error)
                self._has_come()
            await asyncio.sleep(backoff.failed(len(self._addresses)))

    async def _connect(self, backoff: Backoff) -> None:
        """
        Raises:
            DuckrowError, OSError: why it ended.
        """
        loop = asyncio.get_running_loop()
        address, seconds = self._next()
        wire = _Wire(self, loop)
        try:
            async with asyncio.timeout(seconds):
                if isinstance(address, Unix):
                    await loop.create_unix_connection(lambda: wire, address.path)
                else:
                    transport, _ = await loop.create_connection(
                        lambda: wire, address.host, address.port
                    )
                    notice_death(transport.get_extra_info("socket"))
                self._core.connected()
                self._transport = wire.transport
                self._kick()
                await wire.greeted
            self._trouble = None
            try:
                await wire.end
            finally:
                if self._core.is_served:
                    backoff.worked()
        finally:
            self._transport = None
            if wire.transport is not None:
                wire.transport.abort()


class _Wire(asyncio.Protocol):
    """One connection: when it was greeted, and how it ended."""

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        self.transport: asyncio.Transport | None = None
        self.greeted: asyncio.Future[None] = loop.create_future()
        self.end: asyncio.Future[None] = loop.create_future()
        self._client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.end.done():
            return
        try:
            is_greeted = self._client.received(data)
        except DuckrowError as error:
            self._end(error)
            return
        if is_greeted and not self.greeted.done():
            self.greeted.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc if isinstance(exc, OSError) else Disconnected("the node hung up"))

    def _end(self, error: Exception) -> None:
        for future in (self.greeted, self.end):
            if not future.done():
                future.set_exception(error)
                future.exception()  # told to whoever asks; if nobody does, it does not matter


async def _done(call: Call, loop: asyncio.AbstractEventLoop) -> None:
    future: asyncio.Future[None] = loop.create_future()
    before = call.on_done

    def done() -> None:
        if before is not None:
            before()
        if not future.done():
            future.set_result(None)

    call.on_done = done
    try:
        await future
    finally:
        call.on_done = before
