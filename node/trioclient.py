"""The client for trio.

_run      connects when something is wanted ─► receives ─► the core wakes who waits
_write    what the socket did not take at once, and what the node wants to be asked later
callers   put into the core, and send what the socket takes, without a task between
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

import trio

from .addresses import Address, Tcp
from .asyncclient import AsyncClient
from .asyncline import RECEIVE_BYTES
from .backoff import Backoff
from .clientcalls import Call
from .env import Buffer, Env
from .errors import Corrupt, Disconnected, LimitExceeded, NoQuorum, Refused
from .realnet import connect_to

if TYPE_CHECKING:
    from .session import Stream

_GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
_LOST = (*_GONE, Disconnected, Corrupt, LimitExceeded, NoQuorum)


class Client(AsyncClient):
    """Made by `duckrow.trio.connect`; to be used in `async with`.

    With an `env` it lives on that machine, which may be a simulated one.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        name: str = "",
        token: str = "",
        timeout: float,
        env: Env | None = None,
    ) -> None:
        rng, wall_us = (None, None) if env is None else (env.rng, env.wall_us)
        super().__init__(
            addresses, name=name, token=token, timeout=timeout, rng=rng, wall_us=wall_us
        )
        self._env = env

    async def __aenter__(self) -> Self:
        self._stream: Stream | None = None
        self._out: deque[Buffer] = deque()
        self._sending = False
        self._wanted, self._work, self._came = trio.Event(), trio.Event(), trio.Event()
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._manager = trio.open_nursery()
        nursery = await self._manager.__aenter__()
        self._scope = nursery.cancel_scope
        self._closed = False
        nursery.start_soon(self._run)
        nursery.start_soon(self._write)
        return self

    async def _end(self) -> None:
        self._scope.cancel()
        # What the caller raised is raised by itself, and not in a group.
        await self._manager.__aexit__(None, None, None)

    def _leave(self) -> None:
        self._connection.cancel()

    def _now(self) -> float:
        return trio.current_time()

    async def _result(self, call: Call, seconds: float) -> Any:
        heard = self._core.heard
        try:
            if call.done:
                await trio.lowlevel.checkpoint()
            else:
                with trio.move_on_after(max(0.0, seconds)):
                    await _done(call)
                self._in_vain(call, heard, seconds)
        finally:
            self._give_up(call)
        return call.result()

    async def _in_thread(self, job: Callable[[], Any]) -> Any:
        thread = trio.to_thread  # sim-ok: for files of an archive, which no simulation has
        return await thread.run_sync(job)

    async def _pass(self) -> None:
        await trio.lowlevel.checkpoint()

    async def _wait_until_received(self, seconds: float) -> None:
        with trio.move_on_after(max(0.0, seconds)):
            await self._came.wait()

    def _has_come(self) -> None:
        self._came.set()
        self._came = trio.Event()

    def _kick(self) -> None:
        stream = self._stream
        if stream is None:
            self._wanted.set()
            return
        if self._sending:
            return
        self._out += self._core.data_to_send()
        self._send(stream)
        if self._out or self._core.pause_seconds():
            self._work.set()

    def _send(self, stream: Stream) -> None:
        out = self._out
        while out:
            try:
                sent = stream.send_now(out)
            except _GONE:
                return  # the task that receives hears of it
            if not sent:
                return
            while out and sent >= len(out[0]):
                sent -= len(out.popleft())
            if sent:
                out[0] = memoryview(out[0])[sent:]

    async def _write(self) -> None:
        while True:
            await self._work.wait()
            self._work = trio.Event()
            stream = self._stream
            if stream is None:
                continue
            try:
                if self._out:
                    self._sending = True
                    await stream.wait_send_all_might_not_block()
                else:
                    await trio.sleep(self._core.pause_seconds() or 0)
            except _GONE:
                continue  # the task that receives hears of it
            finally:
                self._sending = False
            if self._stream is stream:
                self._kick()

    async def _run(self) -> None:
        backoff = Backoff(self._rng)
        while True:
            if self._core.idle:
                self._wanted = trio.Event()
                await self._wanted.wait()
            try:
                await self._connect(backoff)
            except _LOST as error:
                self._lost(error)
            except Refused as error:  # it will not let us in
                self._lost(error)
                self._core.fail(error)
                self._has_come()
            await trio.sleep(backoff.failed(len(self._addresses)))

    async def _connect(self, backoff: Backoff) -> None:
        """
        Raises:
            DuckrowError, OSError, trio.BrokenResourceError: why it ended.
        """
        address, seconds = self._next()
        what = "hello"
        with trio.move_on_after(seconds) as scope:
            self._connection = scope
            stream = await self._dial(address)
            try:
                self._out.clear()
                self._core.connected()
                self._stream = stream
                self._kick()
                while True:
                    await self._receive(stream)
                    if self._core.is_greeted and scope.deadline != math.inf:
                        scope.deadline, what = math.inf, "answer"
                        self._trouble = None
                    if self._core.is_served:
                        backoff.worked()
                    self._core.check_turned_away()
            finally:
                self._stream = None
                await trio.aclose_forcefully(cast(trio.abc.AsyncResource, stream))
        raise Disconnected(f"no {what} came from {address}")

    async def _dial(self, address: Address) -> Stream:
        """
        Raises:
            OSError: nobody answers there.
        """
        if self._env is None:
            return await connect_to(address)
        assert isinstance(address, Tcp), "an Env knows hosts and ports"
        return cast("Stream", await self._env.net.connect(address.host, address.port))

    async def _receive(self, stream: Stream) -> None:
        core = self._core
        lent = core.frames.lend_buffer()
        count = 0
        try:
            count = await stream.receive_into(self._buffer if lent is None else lent)
        finally:
            if lent is not None and not count:
                core.frames.buffer_filled(0)
        if not count:
            raise Disconnected("the node hung up")
        if lent is None:
            core.receive_data(self._buffer[:count])
        else:
            core.buffer_filled(count)
        self._has_come()
        self._kick()


async def _done(call: Call) -> None:
    """Parks until it is: one pass of the scheduler."""
    task = trio.lowlevel.current_task()
    before = call.on_done

    def done() -> None:
        if before is not None:
            before()
        trio.lowlevel.reschedule(task)

    def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
        call.on_done = before
        return trio.lowlevel.Abort.SUCCEEDED

    call.on_done = done
    await trio.lowlevel.wait_task_rescheduled(abort)
