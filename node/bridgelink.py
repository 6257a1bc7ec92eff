"""The connection of a node with its bridge: made again when it is lost, and asked over.

A bridge that is gone is waited for: it is on this machine, and comes back or is started again.  What was
asked meanwhile is asked when it is there.  One that says nothing stands still, or its disk does: it is away, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Final, Protocol

import trio

from . import bridgewire as wire
from .bridgewire import Told, Welcome, What
from .env import Buffer, Env
from .errors import Corrupt, Disconnected
from .events import WARNING, Note
from .frames import Frame, FrameReader
from .limits import PENDING_BYTES_MAX
from .output import GONE, Output
from .questions import Questions
from .receiving import receive

RETRY_SECONDS: Final = 0.1
AWAY_SECONDS: Final = 0.5  # it is started again sooner; clients need not wait for longer than that
SILENT_SECONDS: Final = 3.0  # it says more often that it runs
LOOKS: Final = 6  # in that time: who was stopped itself has not looked, and may have heard


class Stream(Protocol):
    """What is needed of the connection."""

    def send_now(self, buffers: Iterable[Buffer]) -> int: ...
    async def wait_send_all_might_not_block(self) -> None: ...
    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray: ...
    async def receive_into(self, buffer: memoryview) -> int: ...
    async def aclose(self) -> None: ...


class BridgeLink:
    """`last` is the last item that came.  `on_welcome` begins each connection, and puts what the bridge has to
    hear first; `on_frame` has all that follows but answers; `on_away` says that nobody came back for a while.
    """

    def __init__(
        self,
        env: Env,
        host: str,
        port: int,
        note: Note,
        *,
        last: Callable[[], tuple[int, int]],
        on_welcome: Callable[[Welcome], None],
        on_frame: Callable[[int, list[Any], Frame], None],
        on_away: Callable[[], None],
    ) -> None:
        self._env, self._host, self._port, self._note = env, host, port, note
        self._last = last
        self._on_welcome, self._on_frame, self._on_away = on_welcome, on_frame, on_away
        self._output: Output | None = None
        self._lost_at = inf  # while there is no bridge: since when
        self._unheard = 0  # looks since it said something
        self._questions = Questions()
        self._leaving = False
        self._nursery: trio.Nursery | None = None

    @property
    def is_up(self) -> bool:
        return self._output is not None

    @property
    def is_away(self) -> bool:
        """For longer than a bridge takes to be started again."""
        return not self.is_up and trio.current_time() >= self._lost_at + AWAY_SECONDS

    async def run(self) -> None:
        """Keeps the connection, until cancelled, or the node ends without one.

        Raises:
            What `on_welcome` raises.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._hang_up_on_silence)
            while not self._leaving:
                try:
                    stream = await self._env.net.connect(self._host, self._port)
                except OSError:
                    await trio.sleep(RETRY_SECONDS)
                    continue
                try:
                    await self._attached(stream)  # type: ignore[arg-type]  # it can do more
                except (*GONE, Corrupt, Disconnected) as error:
                    self._note(WARNING, "bridge_lost error=%s", error)
                finally:
                    self._detach()
                    await trio.aclose_forcefully(stream)
                await trio.sleep(RETRY_SECONDS)
            nursery.cancel_scope.cancel()

    async def _hang_up_on_silence(self) -> None:
        while True:
            await trio.sleep(SILENT_SECONDS / LOOKS)
            self._unheard += 1
            if self._unheard > LOOKS and self._output is not None:
                self._note(WARNING, "bridge_silent seconds=%s", SILENT_SECONDS)
                self._output.hang_up()

    def leave(self) -> None:
        """The node ends, and waits for no bridge any more."""
        self._leaving = True
        if not self.is_up:
            self._questions.fail_all(_left())

    def check_left(self) -> None:
        """
        Raises:
            Disconnected: the bridge is away, and the node ends.
        """
        if self._leaving and not self.is_up:
            raise _left()

    # -- what is said -------------------------------------------------------------------------

    def put(self, buffers: list[Buffer]) -> None:
        """It goes out with what is sent next; while there is no bridge, not at all."""
        if self._output is not None:
            self._output.put(buffers)

    def send(self, buffers: list[Buffer]) -> None:
        """What was put, and this; while there is no bridge, not at all."""
        if (output := self._output) is not None:
            output.put(buffers)
            output.flush()

    def flush(self) -> None:
        if self._output is not None:
            self._output.flush()

    async def wait(self, size: int) -> None:
        """Until less than that is on its way."""
        if self._output is not None:
            await self._output.wait(size)

    async def ask(
        self, what: What, *arguments: object, places: Sequence[int] = ()
    ) -> tuple[Any, Buffer]:
        """What the bridge answers; if it is away, when it is back.

        Raises:
            DuckrowError: what the store raised there.
            Disconnected: it is away, and the node ends.
        """
        self.check_left()
        question = self._questions.ask(what, arguments, places)
        self.send(question.frame)
        try:
            return await question.wait()
        finally:
            self._questions.drop(question)

    # -- the connection -----------------------------------------------------------------------

    async def _attached(self, stream: Stream) -> None:
        assert self._nursery is not None
        spawn = self._nursery.start_soon
        output = Output(
            stream, lambda work: spawn(work), self._note, "bridge", at_once=PENDING_BYTES_MAX
        )
        output.put(wire.attach(self._last()))
        output.flush()
        reader = FrameReader()
        reader.accept_hello()
        while True:
            while (frame := reader.next_frame()) is not None:
                kind, fields = wire.opened(frame)
                if kind == Told.WELCOME:
                    self._begin(wire.welcome_of(fields), output)
                elif kind == Told.ANSWER:
                    reference, value = wire.answer_of(fields)
                    self._questions.answer(reference, value, frame.body)
                elif kind != Told.RUNS:
                    self._on_frame(kind, fields, frame)
            if not await receive(stream, reader):
                return
            self._unheard = 0

    def _begin(self, welcome: Welcome, output: Output) -> None:
        self._output = output
        self._on_welcome(welcome)
        for question in self._questions.frames():
            output.put(question)
        output.flush()

    def _detach(self) -> None:
        if self._output is not None:
            self._output.close()
            self._output, self._lost_at = None, trio.current_time()
            if self._leaving:
                self._questions.fail_all(_left())
            assert self._nursery is not None
            self._nursery.start_soon(self._tell_away)

    async def _tell_away(self) -> None:
        await trio.sleep(AWAY_SECONDS)
        if not self.is_up:
            self._on_away()


def _left() -> Disconnected:
    return Disconnected("the node ends, and its bridge is away")
