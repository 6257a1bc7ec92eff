"""The blocking client: plain sockets, no tasks, no threads of its own; the fastest of the three.

    with duckrow.connect() as row:
        print(row.produce("rides", b"one").number)

Several threads may share one: whoever waits first receives for all, and each of the others sends
its own requests and is woken.  After a fork the child is a new producer with a connection of its
own.  What was produced with `wait="none"` goes out with the calls that follow, and all of it before
`close` returns.
"""

from __future__ import annotations

import os
import random
import select
import socket
import threading
import time
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import Any, Final, Self

from . import cursors, makers
from .addresses import Address, Unix
from .backoff import Backoff
from .clientcalls import Call, Receipt, ReceiptName, Receipts
from .clientcore import ClientCore
from .columns import HeadersLike
from .entries import Entries, Entry
from .env import Buffer
from .errors import Disconnected, DuckrowError, LimitExceeded, NoQuorum, Refused, Timeout
from .limits import CLIENT_BYTES_MAX, MIB, PULL_BYTES_MAX
from .requests import Ask, Verb
from .topicinfo import TopicInfo

TIMEOUT: Final = 10.0
PULL_BYTES: Final = 1 * MIB
FOLLOW_SECONDS: Final = 30.0  # then an idle follow asks again
_RECEIVE_BYTES: Final = 256 * 1024
_BUFFERS_MAX: Final = os.sysconf("SC_IOV_MAX")

_LOST: Final = (OSError, Disconnected)


class Client:
    """See the module; made by `duckrow.connect`."""

    def __init__(
        self, addresses: Sequence[Address], *, name: str = "", token: str = "", timeout: float
    ) -> None:
        self._addresses, self._name, self._token = tuple(addresses), name, token
        self._timeout = timeout
        self._socket: socket.socket | None = None
        self._closed = False
        self._state = threading.RLock()  # the core, and who waits
        self._begin()

    # -- producing --------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: bytes | str,
        *,
        key: bytes | str | None = None,
        headers: HeadersLike = None,
        partition: int | None = None,
        wait: str = "ordered",
        id: bytes | str | None = None,  # noqa: A002 - the name is a contract
        expect_last: int | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """
        Raises:
            Full, NoQuorum: certainly not written.
            Refused, Conflict, NotFound: it cannot be, and was not written.
            Timeout: it may or may not be there.
        """
        deadline = self._deadline(timeout)
        with self._own():
            call = self._core.produce(
                topic,
                _bytes(value),
                key=None if key is None else _bytes(key),
                headers=headers,
                partition=partition,
                id_=None if id is None else _bytes(id),
                expect_last=expect_last,
                accepted=_is_accepted(wait),
            )
        return self._receipt_of(self._produced(call, wait, deadline))

    def produce_many(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[HeadersLike] | None = None,
        partition: int | None = None,
        wait: str = "ordered",
        timeout: float | None = None,
    ) -> Receipts:
        """As `produce`; the entries of a partition keep their order.

        Raises:
            DuckrowError: see `produce`; says how many were written all the same.
        """
        deadline = self._deadline(timeout)
        with self._own():
            call = self._core.produce_many(
                topic,
                values,
                keys=keys,
                headers=headers,
                partition=partition,
                accepted=_is_accepted(wait),
            )
        receipts: Receipts = self._produced(call, wait, deadline)
        return receipts

    def flush(self, timeout: float | None = None) -> None:
        """Waits until everything that was produced with `wait="none"` has its answer.

        Raises:
            DuckrowError: the first thing that went wrong with it.
        """
        deadline = self._deadline(timeout)
        while self._unwatched:
            call = next(iter(self._unwatched))
            try:
                self._wait(call, deadline)
            except DuckrowError:
                break  # it is among the errors
        self._raise_unwatched()

    def receipt(self, receipt: str | Receipt, *, timeout: float | None = None) -> Receipt:
        """What became of an accepted entry; without a number, it waits for room.

        Raises:
            DuckrowError: it was refused, or nothing is known of it.
        """
        return self._ask_receipt(receipt, timeout, wait=False)

    # -- reading ------------------------------------------------------------------------------------

    def pull(
        self,
        topic: str,
        after: object = 0,
        *,
        partition: int | None = None,
        limit: int = 1000,
        max_bytes: int = PULL_BYTES,
        wait: float = 0,
        topic_id: int = 0,
        timeout: float | None = None,
    ) -> Entries:
        """Entries from the one behind `after` on; none after `wait` seconds is no error.

        Raises:
            NotFound: there is no such partition.
            Conflict: the topic is another one than `topic_id` says.
            Damaged: the next entries cannot be read.
            Timeout: no answer came.
        """
        ask = _ask(topic, after, partition, limit, max_bytes, wait, topic_id)
        deadline = self._deadline(timeout) + wait
        with self._own():
            call = self._core.pull(ask)
        found: Entries = self._wait(call, deadline)
        return found

    def follow(
        self, topic: str, after: object = 0, *, partition: int | None = None
    ) -> Generator[Entry, None, None]:
        """Entries for ever, in the order of the row; the next ones are fetched meanwhile.

        Raises:
            Conflict: the topic is another one now.
        """
        where, topic_id = cursors.read(after), 0
        call: Call | None = None
        try:
            while True:
                if call is None:
                    call = self._ask_next(topic, where, partition, topic_id)
                try:
                    found: Entries = self._wait(call, self._deadline(None) + FOLLOW_SECONDS)
                except Timeout:
                    call = None
                    continue
                where, topic_id = found.after, found.topic_id or topic_id
                call = self._ask_next(topic, where, partition, topic_id)
                for batch in found.batches:
                    yield from batch.entries()
        finally:
            if call is not None:
                with self._own():
                    self._core.give_up(call, Timeout("nobody waits for it any more"))

    # -- topics ---------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        names: list[str] = []
        more = True
        while more:
            rows, more, *_ = self._asked(Verb.TOPICS, *names[-1:])
            names += [name for name, *_ in rows]
        return names

    def topic(self, name: str) -> TopicInfo:
        """
        Raises:
            NotFound: there is no such topic.
        """
        return TopicInfo.of(name, self._asked(Verb.TOPIC, name))

    def create_topic(self, name: str, **policy: Any) -> TopicInfo:
        """
        Raises:
            Exists: there is one of that name.
            Refused: the name, or the policy.
        """
        self._ordered(lambda turn: makers.create(turn, name, policy))
        return self.topic(name)

    def set_topic(self, name: str, **policy: Any) -> TopicInfo:
        """Changes what is named and nothing else; None brings a default back.

        Raises:
            NotFound: there is no such topic.
            Refused: the policy.
        """
        self._ordered(lambda turn: makers.configure(turn, name, policy))
        return self.topic(name)

    def delete_topic(self, name: str) -> None:
        """
        Raises:
            NotFound: there is no such topic.
        """
        self._ordered(lambda turn: makers.delete(turn, name))

    def prune(self, topic: str, upto: int, *, partition: int = 0) -> None:
        """All entries up to this number go.

        Raises:
            NotFound: there is no such topic or partition.
        """
        self._ordered(lambda turn: makers.prune(turn, topic, upto, partition=partition))

    # -- the node ---------------------------------------------------------------------------------------

    def barrier(self, timeout: float | None = None) -> int:
        """Waits until everything that was ordered before is applied here; the position."""
        return int(self._ordered(makers.barrier, timeout).position)

    def status(self) -> dict[str, Any]:
        (found,) = self._asked(Verb.STATUS)
        return dict(found)

    def clients(self) -> list[dict[str, Any]]:
        """All sessions of the node."""
        found: list[dict[str, Any]] = []
        more = True
        while more:
            page, more, *_ = self._asked(Verb.CLIENTS, *[each["id"] for each in found[-1:]])
            found += page
        return found

    def close(self, timeout: float | None = None) -> None:
        """
        Raises:
            DuckrowError: something that was produced with `wait="none"` went wrong.
        """
        if self._closed or self._is_child():
            return
        try:
            if self._unwatched or self._errors:
                self.flush(timeout)
        finally:
            self._closed = True
            self._hung_up.set()
            self._hang_up()
            with self._state:
                self._core.fail(Disconnected("this client was closed"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- calls ------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """In each process once: a producer of its own, with locks that nobody holds."""
        self._process = os.getpid()
        self._closed = False
        self._state = threading.RLock()
        self._changed = threading.Condition(self._state)
        self._receiving = threading.Lock()  # whoever holds it receives for all
        self._sending = threading.Lock()
        self._core = ClientCore(
            os.urandom(16), wall_us=_wall_us, name=self._name, token=self._token
        )
        self._next_address = 0
        self._backoff = Backoff(random.Random())
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._unwatched: dict[Call, None] = {}
        self._errors: list[DuckrowError] = []
        self._hung_up = threading.Event()  # closed by another thread
        self._waiters = 0  # threads that wait while another one receives

    def _is_child(self) -> bool:
        return os.getpid() != self._process

    def _own(self) -> threading.RLock:
        """The core of this process, to be locked."""
        if self._is_child():
            # The parent goes on with its connection and its name; nothing of both is ours.
            self._hang_up()
            self._begin()
        if self._closed:
            raise Disconnected("this client was closed")
        return self._state

    def _deadline(self, timeout: float | None) -> float:
        return time.monotonic() + (self._timeout if timeout is None else timeout)

    def _produced(self, call: Call, wait: str, deadline: float) -> Any:
        if wait != "none":
            return self._wait(call, deadline)
        if not call.done:
            self._unwatched[call] = None
            call.on_done = lambda: self._note_unwatched(call)
        try:
            self._exchange(0.0, deadline)
            while self._core.unsent_bytes > CLIENT_BYTES_MAX:
                self._exchange(0.05, deadline)
                if time.monotonic() > deadline:
                    raise NoQuorum("too much waits to be sent; nothing of this call is lost")
        except _LOST:
            self._lose()
        self._raise_unwatched()
        return call.value if call.done and call.error is None else None

    def _note_unwatched(self, call: Call) -> None:
        self._unwatched.pop(call, None)
        if call.error is not None:
            self._errors.append(call.error)

    def _raise_unwatched(self) -> None:
        errors, self._errors = self._errors, []
        if errors:
            raise errors[0]

    def _receipt_of(self, receipt: Receipt | None) -> Receipt:
        if receipt is not None:
            receipt.ask = lambda asked: self._ask_receipt(asked, None, wait=True)
        return receipt  # type: ignore[return-value]

    def _ask_receipt(self, receipt: str | Receipt, timeout: float | None, *, wait: bool) -> Receipt:
        name = receipt.name if isinstance(receipt, Receipt) else ReceiptName.parse(receipt)
        with self._own():
            call = self._core.receipt(name, wait=wait)
        return self._receipt_of(self._wait(call, self._deadline(timeout)))

    def _ordered(self, make: Callable[[makers.Turn], Any], timeout: float | None = None) -> Any:
        with self._own():
            call = self._core.order(make)
        return self._wait(call, self._deadline(timeout))

    def _asked(self, verb: Verb, *fields: Any) -> Any:
        with self._own():
            call = self._core.ask(verb, *fields)
        return self._wait(call, self._deadline(None))

    def _ask_next(
        self, topic: str, after: cursors.After, partition: int | None, topic_id: int
    ) -> Call:
        ask = _ask(topic, after, partition, 1000, PULL_BYTES, FOLLOW_SECONDS, topic_id)
        with self._own():
            call = self._core.pull(ask)
        try:
            self._flush()
        except _LOST:
            self._lose()
        return call

    def _wait(self, call: Call, deadline: float) -> Any:
        """Sends and receives until the call is done."""
        try:
            while not call.done:
                now = time.monotonic()
                if now >= deadline:
                    raise Timeout(f"no answer came in time from {self._where()}")
                if self._receiving.acquire(blocking=False):
                    try:
                        if not call.done:
                            self._step(deadline)
                    finally:
                        self._receiving.release()
                        if self._waiters:
                            with self._changed:
                                self._changed.notify_all()
                else:
                    self._send_own()
                    with self._changed:
                        self._waiters += 1
                        # The one who receives may have left between our two looks.
                        self._changed.wait_for(
                            lambda: call.done or not self._receiving.locked(), deadline - now
                        )
                        self._waiters -= 1
        except DuckrowError as error:
            with self._state:
                self._core.give_up(call, error)
        except BaseException:
            with self._state:
                self._core.give_up(call, Timeout("it was interrupted"))
            raise
        return call.result()

    # -- the connection -----------------------------------------------------------------------------

    def _step(self, deadline: float) -> None:
        try:
            self._exchange(deadline - time.monotonic(), deadline)
        except _LOST as error:
            self._lose()
            pause = self._backoff.failed(len(self._addresses))
            left = deadline - time.monotonic()
            if pause >= left:
                self._hung_up.wait(max(0.0, left))
                raise Timeout(f"{self._where()} cannot be reached: {error}") from error
            self._hung_up.wait(pause)

    def _exchange(self, wait: float, deadline: float) -> None:
        """Sends what may go, and takes what comes within `wait` seconds."""
        if self._socket is None:
            self._connect(deadline)
        sock = self._socket
        assert sock is not None
        self._flush()
        if wait <= 0 and not select.select([sock], [], [], 0)[0]:
            return
        sock.settimeout(max(wait, 0.001))
        lent = self._core.frames.lend_buffer()
        try:
            count = sock.recv_into(self._buffer if lent is None else lent)
        except TimeoutError:
            count = -1
        if count == 0:
            raise Disconnected("the node hung up")
        with self._state:
            if lent is not None:
                self._core.buffer_filled(max(count, 0))
            elif count > 0:
                self._core.receive_data(self._buffer[:count])
            if self._core.is_greeted:
                self._backoff.worked()
        self._flush()

    def _send_own(self) -> None:
        """While another thread receives."""
        try:
            if self._socket is not None:
                self._flush()
        except _LOST:
            pass  # whoever receives will hear of it

    def _flush(self) -> None:
        with self._sending:
            with self._state:
                buffers = self._core.data_to_send()
            if buffers and self._socket is not None:
                _send(self._socket, buffers)

    def _connect(self, deadline: float) -> None:
        """
        Raises:
            OSError: nobody answers there.
        """
        address = self._addresses[self._next_address % len(self._addresses)]
        left = max(0.01, deadline - time.monotonic())
        sock = _dial(address, left if len(self._addresses) == 1 else min(left, 1.0))
        with self._state:
            self._socket = sock
            self._core.connected()

    def _lose(self) -> None:
        """The connection is gone; the next one goes to the next address."""
        self._hang_up()
        self._next_address += 1
        with self._state:
            self._core.lost()

    def _hang_up(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()

    def _where(self) -> str:
        return " or ".join(str(address) for address in self._addresses)


def _dial(address: Address, timeout: float) -> socket.socket:
    if isinstance(address, Unix):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout)
        try:
            sock.connect(address.path)
        except OSError:
            sock.close()
            raise
        return sock
    sock = socket.create_connection((address.host, address.port), timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return sock


def _send(sock: socket.socket, buffers: list[Buffer]) -> None:
    while buffers:
        sent = sock.sendmsg(buffers[:_BUFFERS_MAX])
        index = 0
        while index < len(buffers) and sent >= len(buffers[index]):
            sent -= len(buffers[index])
            index += 1
        del buffers[:index]
        if sent:
            buffers[0] = memoryview(buffers[0])[sent:]


def _ask(
    topic: str,
    after: object,
    partition: int | None,
    limit: int,
    max_bytes: int,
    wait: float,
    topic_id: int,
) -> Ask:
    if max_bytes > PULL_BYTES_MAX:
        raise LimitExceeded("max_bytes of a pull", max_bytes, PULL_BYTES_MAX)
    if wait < 0:
        raise Refused(f"wait={wait}: seconds are 0 or more")
    return Ask(topic, cursors.read(after), partition, topic_id, limit, max_bytes, int(wait * 1e6))


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _is_accepted(wait: str) -> bool:
    if wait not in ("ordered", "accepted", "none"):
        raise Refused(f"wait={wait!r}: it is 'ordered', 'accepted' or 'none'")
    return wait == "accepted"


def _wall_us() -> int:
    return time.time_ns() // 1000
