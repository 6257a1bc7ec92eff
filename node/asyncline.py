"""What the trio and the asyncio client do alike to have a call answered, whatever it asks.

    wish ── _begin ──► call in the core ── _kick ──► sent, by the library's own task
                            │
    result ◄── _result ─────┘     or given up, when the time is over or on a cancel

What a library does in its own way is below, without a body: waiting for a call, and sending.
"""

from __future__ import annotations

import os
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from . import asks
from .addresses import Address
from .archivepull import Pulling, Through
from .asks import Wish
from .clientcalls import Call, Receipt
from .clientcore import ClientCore
from .commands import PID_BYTES
from .entries import Entries
from .errors import Disconnected, NoQuorum, Timeout
from .limits import CLIENT_BYTES_MAX
from .unwatched import Unwatched

RECEIVE_BYTES: Final = 256 * 1024
HELLO_SECONDS: Final = 5.0  # of a node that took the connection
DIAL_SECONDS: Final = 0.9  # of each of several addresses

T = TypeVar("T")


class AsyncLine(ABC):
    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        name: str = "",
        token: str = "",
        timeout: float,
        rng: random.Random | None = None,  # with `wall_us`: of a simulated machine
        wall_us: Callable[[], int] | None = None,
    ) -> None:
        self._addresses, self._timeout = tuple(addresses), timeout
        self._rng = rng or random.Random(os.urandom(32))
        self._core = ClientCore(
            self._rng.randbytes(PID_BYTES),
            wall_us=wall_us or _wall_us,
            name=name,
            token=token,
            others=len(self._addresses) > 1,
        )
        self._closed = True
        self._next_address = 0
        self._trouble: Exception | None = None
        self._unwatched = Unwatched()  # of wait="none"
        self._through: Through | None = None

    async def _do(self, wish: Wish[T]) -> T:
        seconds = self._timeout if wish.timeout is None else wish.timeout
        found: T = await self._result(self._begin(wish.make), seconds + wish.wait)
        return found if wish.read is None else wish.read(found)

    async def _pulled(self, pulling: Pulling) -> Entries:
        """Does what a pull through the archive asks for; files are read in a thread."""
        try:
            step = next(pulling)
            while True:
                found = await (self._do(step) if isinstance(step, Wish) else self._in_thread(step))
                step = pulling.send(found)
        except StopIteration as done:
            entries: Entries = done.value
            return entries

    def _archives(self) -> Through:
        if self._through is None:
            self._through = Through()
        return self._through

    async def _produced(self, wish: Wish[T], wait: str) -> T:
        if wait != "none":
            return await self._do(wish)
        # First, so that what is raised here never leaves behind what may be written all the same.
        deadline = self._now() + (self._timeout if wish.timeout is None else wish.timeout)
        await self._pass()
        while self._core.unsent_bytes > CLIENT_BYTES_MAX:
            if self._now() >= deadline:
                raise NoQuorum(asks.NO_ROOM)
            await self._wait_until_received(deadline - self._now())
        self._unwatched.check()
        self._unwatched.add(self._begin(wish.make))
        return None  # type: ignore[return-value]  # nothing is known of it

    def _begin(self, make: Callable[[ClientCore], Call]) -> Call:
        """
        Raises:
            Refused, TypeError: it could never be.
            Disconnected: the client is not open.
        """
        if self._closed:
            raise Disconnected("this client is not open: use `async with`")
        call = make(self._core)
        self._kick()
        return call

    def _give_up(self, call: Call) -> None:
        if not call.done:
            self._core.give_up(call, self._too_late())
            self._kick()

    def _in_vain(self, call: Call, heard: int, seconds: float) -> None:
        """It was waited for so long.  A node that stands still, or waits for its disk, keeps its connections:
        what is asked next is asked of another one, if nothing came at all.
        """
        if not call.done and seconds >= DIAL_SECONDS and self._core.is_silent(heard):
            self._leave()

    def _too_late(self, more: str = "") -> Timeout:
        """What whoever waited is told."""
        where = " or ".join(map(str, self._addresses))
        why = self._core.trouble(self._trouble)
        return Timeout(f"no answer came in time from {where}{why}{more}", node=where)

    def _receipt_of(self, receipt: Receipt | None) -> Receipt:
        async def ask(asked: Receipt) -> Receipt:
            found = await self._do(asks.receipt(asked, None, wait=True))
            return self._receipt_of(found)

        if receipt is not None:
            receipt.ask = ask
        return receipt  # type: ignore[return-value]  # None: with wait="none"

    def _next(self) -> tuple[Address, float]:
        """The address to try, and for how long."""
        address = self._addresses[self._next_address % len(self._addresses)]
        return address, DIAL_SECONDS if len(self._addresses) > 1 else HELLO_SECONDS

    def _lost(self, error: Exception) -> None:
        self._trouble = error
        self._next_address += 1
        self._core.lost()
        self._has_come()

    # -- to be done by each library in its way --------------------------------------------------------

    @abstractmethod
    async def _end(self) -> None:
        """Its tasks and its connection."""

    @abstractmethod
    def _leave(self) -> None:
        """This connection, for the next node."""

    @abstractmethod
    def _now(self) -> float:
        """Seconds, of a clock that never jumps."""

    @abstractmethod
    async def _result(self, call: Call, seconds: float) -> Any:
        """Waits until the call is done, and gives it up when the time is over or on a cancel.

        Raises:
            DuckrowError: what went wrong with it.
        """

    @abstractmethod
    async def _in_thread(self, job: Callable[[], Any]) -> Any:
        """Does what blocks."""

    @abstractmethod
    async def _pass(self) -> None:
        """Lets others run."""

    @abstractmethod
    async def _wait_until_received(self, seconds: float) -> None:
        """Until something came, or the time is over."""

    @abstractmethod
    def _has_come(self) -> None:
        """Something came, or calls have ended in another way."""

    @abstractmethod
    def _kick(self) -> None:
        """There may be something to send."""


def _wall_us() -> int:
    return time.time_ns() // 1000
