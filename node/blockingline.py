"""The connection of a blocking client: sockets and threads around a core.

    thread A   sends ─► receives for all ─► its call is done ─╮ wakes the others
    thread B   sends ─► waits to be woken ····················╰► receives for all ─► ...

Whoever waits first receives, and everybody sends his own.  Sending never blocks: what the socket
does not take stays in one queue, so that frames are never torn.

Ctrl-C may come between any two steps.  If it comes between the socket and the core, the connection
is cut, and the next one asks again; if it comes inside the core, the core is given up with its name:
its calls end in doubt, and a new producer begins.
"""

from __future__ import annotations

import logging
import os
import random
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from .addresses import Address
from .asks import WAIT_SECONDS_MAX
from .backoff import Backoff
from .clientcalls import Call
from .clientcore import ClientCore
from .dialling import BLOCK_SECONDS, dial, wait_writable
from .env import Buffer
from .errors import Corrupt, Disconnected, LimitExceeded, NoQuorum, Refused, Timeout

RECEIVE_BYTES: Final = 256 * 1024
HELLO_SECONDS: Final = 5.0  # of a node that took the connection
DIAL_SECONDS: Final = 0.9  # if there are other addresses
_BUFFERS_MAX: Final = os.sysconf("SC_IOV_MAX")

log = logging.getLogger("duckrow.client")

T = TypeVar("T")
P = ParamSpec("P")


class Doing(Protocol):
    """What somebody waits for."""

    @property
    def done(self) -> bool: ...


class Line:
    def __init__(self, addresses: Sequence[Address], *, name: str = "", token: str = "") -> None:
        self._addresses, self._name, self._token = tuple(addresses), name, token
        self._socket: socket.socket | None = None
        self._is_cut = False
        self._begin()

    # -- calls ------------------------------------------------------------------------------------

    def begin(self, make: Callable[[ClientCore], Call]) -> Call:
        """
        Raises:
            Refused, TypeError: it could never be.
            Disconnected: this client was closed.
        """
        if self.process != os.getpid():
            self.own_process()
        if self.is_closed:
            raise Disconnected("this client was closed")
        with self._state:
            if self._is_torn:
                self._mend()
            return self._inside(make, self._core)

    def wait(self, call: Call, deadline: float) -> Any:
        """Sends and receives until the call is done.

        Raises:
            DuckrowError: what went wrong with it.
        """
        if self.process != os.getpid():
            raise Disconnected("this was begun before the process was forked")
        heard, began = self._core.heard, time.monotonic()
        try:
            while not call.done:
                self._go_on(call, deadline)
                if not call.done and self.is_closed:
                    self._core.fail(Disconnected("this client was closed"))
                if not call.done and time.monotonic() >= deadline:
                    # One that stands still, or waits for its disk, keeps its connections.
                    if deadline - began >= DIAL_SECONDS and self._core.is_silent(heard):
                        self._cut()  # another one is asked next
                    self.give_up(call)
        except BaseException:
            self._interrupted()
            self.give_up(call)
            raise
        return call.result()

    def _go_on(self, doing: Doing, deadline: float) -> None:
        """Receives for all, or lets another thread do so for a while."""
        if not self._receiving.acquire(blocking=False):
            self._attend(doing, deadline)
            return
        try:
            self._has_leader = True
            self._lead(doing, deadline)
        finally:
            self._has_leader = False
            self._receiving.release()
            if self._waiters:
                self._wake()

    def give_up(self, call: Call) -> None:
        if not call.done and not self.is_closed and self.process == os.getpid():
            error = self.too_late()
            self._inside(lambda: self._core.give_up(call, error))

    def too_late(self, more: str = "") -> Timeout:
        """What whoever waited is told."""
        where = self._where()
        return Timeout(f"no answer came in time from {where}{self._why()}{more}", node=where)

    def advance(self) -> None:
        """Sends what can go now, and takes what has come; never waits."""
        if not self._receiving.acquire(blocking=False):
            self._send_own()
            return
        try:
            self._has_leader = True
            if self._socket is not None or time.monotonic() >= self._retry_at:
                self._step(0.0, DIAL_SECONDS)
        except BaseException:
            self._interrupted()
            raise
        else:
            self._has_leader = False
            self._receiving.release()
            self._wake()

    def wait_for_room(self, limit: int, deadline: float) -> bool:
        """Until no more than so many bytes wait to be sent."""
        return self.wait_until(_Room(self, limit), deadline)

    def wait_until(self, doing: Doing, deadline: float) -> bool:
        """Sends and receives until it is done, which this tells, or there is no more time."""
        try:
            while not doing.done and not self.is_closed and time.monotonic() < deadline:
                self._go_on(doing, deadline)
        except BaseException:
            self._interrupted()
            raise
        return doing.done

    @property
    def unsent_bytes(self) -> int:
        with self._state:
            return self._core.unsent_bytes

    def deadline(self, seconds: float) -> float:
        return time.monotonic() + min(seconds, WAIT_SECONDS_MAX)  # a lock takes no more

    def close(self) -> None:
        if self.process != os.getpid():
            self._hang_up()  # our copy of it
            self.is_closed = True
            return
        self.is_closed = True
        self._hung_up.set()
        self._cut()
        with self._state:
            self._core.fail(Disconnected("this client was closed"))
        self._wake()
        if self._receiving.acquire(blocking=False):  # else whoever receives will do it
            self._hang_up()
            self._receiving.release()

    def own_process(self) -> int:
        """The process, which has a producer and a connection of its own, and locks that nobody holds."""
        if self.process != os.getpid():
            self._hang_up()  # the parent goes on with it
            self._begin()
        return self.process

    # -- threads ----------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.process = os.getpid()
        self.is_closed = False
        self._state = threading.RLock()  # the core, what is to be sent, who waits
        self._changed = threading.Condition(self._state)
        self._receiving = threading.RLock()  # whoever holds it receives for all
        self._has_leader = False
        self._hung_up: threading.Event = threading.Event()
        self._waiters: int = 0
        self._rng = random.Random(os.urandom(16))
        self._backoff = Backoff(self._rng)
        self._next_address = 0
        self._retry_at = 0.0
        self._trouble: Exception | None = None
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._renew()

    def _renew(self) -> None:
        self._is_torn = False  # somebody left the core in the middle of something
        self._out: deque[Buffer] = deque()
        self._core = ClientCore(
            os.urandom(16),
            wall_us=_wall_us,
            name=self._name,
            token=self._token,
            others=len(self._addresses) > 1,
        )

    def _inside(self, act: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Does something with the core, of which nobody sees a half."""
        with self._state:
            if self._is_torn:
                self._mend()
            self._is_torn = True
            try:
                found = act(*args, **named)
            except Exception:
                self._is_torn = False
                raise
            self._is_torn = False
            return found

    def _mend(self) -> None:
        torn = self._core
        self._renew()
        self._cut()
        try:
            torn.fail(Timeout("it was interrupted; whether it was written is not known"))
        except Exception:  # half of a change can be anything
            log.warning("interrupted", exc_info=True)

    def _interrupted(self) -> None:
        """Bytes may be lost between the socket and the core: nothing more comes over this one."""
        self._cut()
        try:
            self._receiving.release()  # if it came just after this thread took it
        except RuntimeError:
            pass  # it did not
        else:
            self._has_leader = False
        self._wake()

    def _attend(self, call: Doing, deadline: float) -> None:
        """While another thread receives."""
        self._send_own()
        while self._out and not call.done and time.monotonic() < deadline:
            sock = self._socket
            if sock is None or not self._has_leader:
                return
            wait_writable(sock)
            self._send_own()
        with self._changed:
            self._waiters += 1
            try:
                # The one who receives may have left between our two looks.
                self._changed.wait_for(
                    lambda: call.done or not self._has_leader,
                    max(0.0, deadline - time.monotonic()),
                )
            finally:
                self._waiters -= 1

    def _wake(self) -> None:
        if self._waiters:
            with self._changed:
                self._changed.notify_all()

    def _lead(self, call: Doing, deadline: float) -> None:
        while not call.done:
            left = deadline - time.monotonic()
            if left <= 0 or self.is_closed:
                return
            self._step(left)
            if self._waiters:
                self._wake()

    # -- the connection -----------------------------------------------------------------------------

    def _step(self, wait: float, dial: float | None = None) -> None:
        """Connects if need be, sends, and takes what comes within so many seconds."""
        try:
            if self._is_cut:
                raise Disconnected("it was cut here")
            if self._socket is None:
                self._connect(wait if dial is None else dial)
            self._flush()
            self._receive(wait)
        except (OSError, Disconnected, Corrupt, LimitExceeded, NoQuorum) as error:
            self._lose(error)
            pause = self._backoff.failed(len(self._addresses))
            self._retry_at = time.monotonic() + pause
        except Refused as error:  # it will not let us in
            self._lose(error)
            self._inside(partial(self._core.fail, error))
            return
        else:
            return
        # Not in the handler: who presses Ctrl-C meanwhile is not told of that error, too.
        self._hung_up.wait(min(pause, wait))

    def _connect(self, wait: float) -> None:
        """
        Raises:
            OSError: nobody answers there.
        """
        several = len(self._addresses) > 1
        address = self._addresses[self._next_address % len(self._addresses)]
        longest = DIAL_SECONDS if several else HELLO_SECONDS
        sock = dial(address, max(min(wait, longest), 0.01))
        self._greet_until = time.monotonic() + longest
        with self._state:
            self._socket, self._is_cut = sock, False
            self._poll = select.poll()
            self._poll.register(sock, select.POLLIN)
            self._out.clear()
            self._core.connected()

    def _receive(self, wait: float) -> None:
        """
        Raises:
            OSError, Disconnected: the connection is gone.
            DuckrowError: the other side does not speak the protocol, or does not want us.
        """
        sock, core = self._socket, self._core
        assert sock is not None
        flags = 0
        if not core.is_greeted:
            left = self._greet_until - time.monotonic()
            if left <= 0:
                raise Disconnected(f"no hello came from {self._where()}", address=self._where())
            wait = min(wait, left)
        if pause := core.pause_seconds():
            wait = min(wait, pause)
        if wait < BLOCK_SECONDS or self._out:
            self._poll.modify(sock, select.POLLIN | (select.POLLOUT if self._out else 0))
            if not self._poll.poll(wait * 1000):
                return
            flags = socket.MSG_DONTWAIT
        lent = core.frames.lend_buffer()
        count = -1
        try:
            count = sock.recv_into(self._buffer if lent is None else lent, 0, flags)
        except BlockingIOError:
            pass
        finally:
            if lent is not None and count <= 0:
                core.frames.buffer_filled(0)
        if count == 0:
            raise Disconnected(f"{self._where()} hung up", address=self._where())
        if count > 0:
            if lent is not None:
                self._inside(core.buffer_filled, count)
            else:
                self._inside(core.receive_data, self._buffer[:count])
            if core.is_greeted:
                self._trouble = None
            if core.is_served:
                self._backoff.worked()
            core.check_turned_away()
        self._flush()

    def _flush(self) -> None:
        """Sends what the socket takes.

        Raises:
            OSError: the connection is gone.
        """
        with self._state:
            sock, out = self._socket, self._out
            if sock is None:
                return
            if self._core.is_busy or self._is_torn:
                out += self._inside(self._core.data_to_send)
            while out:
                try:
                    sent = sock.sendmsg([*islice(out, _BUFFERS_MAX)], (), socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return
                while out and sent >= len(out[0]):
                    sent -= len(out.popleft())
                if sent:
                    out[0] = memoryview(out[0])[sent:]

    def _send_own(self) -> None:
        """While another thread receives, which will hear of a connection that is gone."""
        try:
            self._flush()
        except OSError:
            self._cut()

    def _lose(self, error: Exception) -> None:
        """The connection is gone; the next one goes to the next address."""
        self._trouble = error
        self._next_address += 1
        with self._state:
            self._hang_up()
            self._out.clear()
            self._inside(self._core.lost)

    def _cut(self) -> None:
        """Whoever receives, now or next, will leave it."""
        sock = self._socket
        if sock is not None:
            self._is_cut = True
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is gone already

    def _hang_up(self) -> None:
        sock, self._socket = self._socket, None
        self._is_cut = False
        if sock is not None:
            sock.close()

    def _where(self) -> str:
        return " or ".join(str(address) for address in self._addresses)

    def _why(self) -> str:
        return self._core.trouble(self._trouble)


class _Room:
    """No more than so many bytes wait to be sent."""

    def __init__(self, line: Line, limit: int) -> None:
        self._line, self._limit = line, limit

    @property
    def done(self) -> bool:
        return self._line.unsent_bytes <= self._limit


def _wall_us() -> int:
    return time.time_ns() // 1000
