"""A client without its sockets: what to send, and what came of it.

    shell                              core
    call = core.produce(...)      ─►   gathers in the outbox of its lane
    send core.data_to_send()      ◄─   frames: HELLO first, then what the limits allow
    core.receive_data(bytes)      ─►   calls are done
    core.lost(), core.connected() ─►   what has no answer goes again

The three clients (blocking, trio, asyncio) are thin shells around this.  It has no clock but the
one it is given, and no randomness but the name of its producer.

Exactly once: a core is one producer.  Batches keep their seq over reconnects, and the node knows
which it has applied.  What only reads is asked again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from . import columns, frames, makers, requests
from .clientcalls import Call, Receipt, ReceiptName, Receipts, Run, joined, run_of
from .columns import HeadersLike
from .effects import ORDERED, WAITING, Result
from .entries import Entries, entries_of
from .env import Buffer
from .errors import (
    Conflict,
    Corrupt,
    DuckrowError,
    LimitExceeded,
    Refused,
    rebuilt,
)
from .frames import Frame, FrameReader
from .limits import CLIENT_BYTES_MAX, CLIENT_REQUESTS_MAX, ENTRY_BYTES_MAX
from .names import check_topic_name
from .outbox import BATCH_BYTES, Maker, Outbox, Part, Sent, entries_max, error_of, size_of
from .requests import Ask, Outcome, Verb, Welcome

_MORE: Final = int(Outcome.MORE)
_FAILED: Final = int(Outcome.FAILED)
_REQUEST_BYTES: Final = 64  # what a request counts besides its body


class ClientCore:
    def __init__(
        self, pid: bytes, *, wall_us: Callable[[], int], name: str = "", token: str = ""
    ) -> None:
        self.pid = pid
        self.welcome: Welcome | None = None  # of the node we are connected to
        self.frames = FrameReader()
        self._wall_us, self._name, self._token = wall_us, name, token
        self._reference = 0
        self._greeted = False
        self._hello: list[Buffer] = []
        self._outboxes: dict[tuple[str, int], Outbox] = {}
        self._busy: dict[tuple[str, int], Outbox] = {}  # those that may have something to send
        self._partitions: dict[str, int] = {}  # of topics that have several
        self._turn = 0  # of batches without keys, over the partitions
        # Requests that are not of an outbox wait here, and then for their answer.
        self._queue: deque[_Request] = deque()
        self._pending: dict[int, _Request] = {}
        self._orders: dict[int, tuple[Outbox, Sent]] = {}
        self._parked: set[int] = set()  # orders whose batches wait in the row
        self._bytes = 0  # of what is on its way

    # -- what a user wants ------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: HeadersLike = None,
        partition: int | None = None,
        id_: bytes | None = None,
        expect_last: int | None = None,
        accepted: bool = False,
    ) -> Produce:
        """Its value is a Receipt.

        Raises:
            Refused: it could never be.
        """
        call = Produce(self, topic, partition, one=True)
        self._put(
            call,
            [value],
            None if key is None else [key],
            None if not headers else [headers],
            None if id_ is None else [id_],
            expect_last,
            accepted,
        )
        return call

    def produce_many(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[HeadersLike] | None = None,
        partition: int | None = None,
        accepted: bool = False,
    ) -> Produce:
        """Its value is Receipts.

        Raises:
            Refused: it could never be.
        """
        call = Produce(self, topic, partition, one=False)
        for name, column in (("keys", keys), ("headers", headers)):
            if column is not None and len(column) != len(values):
                raise Refused(f"{len(column):,} {name} were given for {len(values):,} values")
        if not len(values):
            call.finish(Receipts([]))
            return call
        self._put(call, values, keys, headers, None, None, accepted)
        return call

    def pull(self, ask: Ask) -> Call:
        """Its value is Entries."""
        return self._ask(Verb.PULL, _entries(ask.topic), *ask.fields())

    def receipt(self, name: ReceiptName, *, wait: bool) -> Call:
        """Its value is a Receipt, with a number as soon as there is one."""

        def read(fields: list[Any], _body: Buffer) -> Receipt:
            return _receipt(name, requests.result_in(fields))

        return self._ask(Verb.RECEIPT, read, *name[:-1], wait)

    def order(self, make: Maker) -> Call:
        """A command of the lane without a topic; its value is the Result.

        Raises:
            Refused: it could never be.
        """
        make(makers.Turn(self.pid, 1))
        call = Order()
        self._into(call, Part(call, make=make), "", 0, 1)
        return call

    def ask(self, verb: Verb, *fields: Any) -> Call:
        """Its value is the list of fields of the answer."""
        return self._ask(verb, lambda answer, _body: answer, *fields)

    def give_up(self, call: Call, error: DuckrowError) -> None:
        """Whoever waited does not any more; what can still be stopped is stopped."""
        if call.done:
            return
        if isinstance(call, Produce | Order):
            for part, outbox in call.parts.items():
                if not outbox.drop(part):
                    outbox.give_up(part)
                    self._busy[outbox.topic, outbox.partition] = outbox
        else:
            for request in self._queue:
                if request.call is call:
                    self._queue.remove(request)
                    break
            for reference, request in list(self._pending.items()):
                if request.call is call:
                    request.call = Call()  # an answer finds nobody
                    self._queue.append(_Request(Call(), Verb.CANCEL, (reference,), None))
        call.finish(error=error)

    @property
    def idle(self) -> bool:
        """Nothing waits to be sent or answered."""
        return not (self._queue or self._pending or self._orders or self._busy)

    @property
    def unsent_bytes(self) -> int:
        """Of entries that wait, about."""
        return sum(outbox.waiting_bytes for outbox in self._busy.values())

    # -- the connection -----------------------------------------------------------------------------

    @property
    def is_greeted(self) -> bool:
        return self._greeted

    def connected(self) -> None:
        """There is a new connection."""
        self.frames = FrameReader()
        self._greeted = False
        hello = requests.Hello(requests.VERSION, self._name, self._token, {})
        self._hello = frames.encode(requests.request(0, Verb.HELLO, *hello))

    def lost(self) -> None:
        """The connection broke, or never was: what has no answer will go again."""
        self._greeted, self._hello = False, []
        for outbox, _ in self._orders.values():
            self._busy[outbox.topic, outbox.partition] = outbox
        for outbox in self._outboxes.values():
            outbox.lost()
        self._orders.clear()
        self._parked.clear()
        again = [r for r in self._pending.values() if r.read is not None]
        self._queue.extendleft(reversed(again))
        self._pending.clear()
        self._bytes = 0

    def fail(self, error: DuckrowError) -> None:
        """The end: everybody who waits is told so."""
        self.lost()
        requests_, self._queue = self._queue, deque()
        for request in requests_:
            request.call.finish(error=error)
        for outbox in self._outboxes.values():
            outbox.fail(error)
        self._busy.clear()

    def data_to_send(self) -> list[Buffer]:
        """All that may go now; empty: nothing."""
        if not self._greeted:
            hello, self._hello = self._hello, []
            return hello
        out: list[Buffer] = []
        while self._queue and self._has_room():
            request = self._queue.popleft()
            if request.read is not None:
                self._reference += 1
                self._pending[self._reference] = request
            out += frames.encode(requests.request(self._reference, request.verb, *request.fields))
        if self._busy:
            self._send_batches(out)
        return out

    def receive_data(self, data: Buffer) -> None:
        """
        Raises:
            Corrupt, LimitExceeded: the other side does not speak the protocol; hang up.
            Refused, Conflict: it does not want us.
        """
        reader = self.frames
        reader.receive_data(data)
        while (frame := reader.next_frame()) is not None:
            self._take(frame)

    def buffer_filled(self, count: int) -> None:
        """As `receive_data`, for bytes in the buffer that `frames` has lent."""
        self.frames.buffer_filled(count)
        while (frame := self.frames.next_frame()) is not None:
            self._take(frame)

    # -- sending --------------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        # One place is kept for what goes without an answer.
        return (
            len(self._pending) + len(self._orders) - len(self._parked) < CLIENT_REQUESTS_MAX - 1
            and self._bytes < CLIENT_BYTES_MAX // 2
        )

    def _send_batches(self, out: list[Buffer]) -> None:
        now = self._wall_us()
        for key, outbox in list(self._busy.items()):
            while self._has_room():
                sent = outbox.next(now)
                if sent is None:
                    del self._busy[key]
                    break
                self._reference += 1
                self._orders[self._reference] = outbox, sent
                self._bytes += sent.size + _REQUEST_BYTES
                head = requests.request(
                    self._reference, requests.ORDER, sent.command.head, sent.accepted
                )
                out += frames.encode(head, sent.command.body)
            else:
                return

    def _ask(
        self, verb: int, read: Callable[[list[Any], Buffer], Any] | None, *fields: Any
    ) -> Call:
        call = Call()
        self._queue.append(_Request(call, verb, fields, read))
        return call

    # -- answers --------------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        reference, outcome, fields = requests.opened(frame.head)
        if not self._greeted:
            self._take_welcome(outcome, fields)
            return
        order = self._orders.get(reference)
        if order is not None:
            self._take_order(reference, *order, outcome, fields)
            return
        request = self._pending.get(reference)
        if request is None or request.read is None:
            return  # of one that was given up
        if outcome != _MORE:
            del self._pending[reference]
        if outcome == _FAILED:
            request.call.finish(error=_error(fields))
            return
        try:
            request.call.finish(request.read(fields, frame.body))
        except DuckrowError as error:
            request.call.finish(error=error)
            if isinstance(error, Corrupt):
                raise

    def _take_welcome(self, outcome: int, fields: list[Any]) -> None:
        if outcome == _FAILED:
            raise _error(fields)
        welcome = Welcome.of(fields)
        before, self.welcome = self.welcome, welcome
        self._greeted = True
        self.frames.accept_hello()
        if before is not None and (before.cluster, before.lineage) != welcome[2:4][::-1]:
            self._begin_anew(before, welcome)

    def _begin_anew(self, before: Welcome, now: Welcome) -> None:
        """The node has lost a part of its row, or it is another one: nothing of ours holds there."""
        error = Conflict(
            f"{now.node} has another row than {before.node} had: numbers and positions of the old "
            "one mean nothing there; whether the last entries were written is not known"
        )
        for outbox in self._outboxes.values():
            outbox.fail(error)
        self._outboxes.clear()
        self._busy.clear()
        self._partitions.clear()
        for request in self._queue:
            request.call.finish(error=error)
        self._queue.clear()

    def _take_order(
        self, reference: int, outbox: Outbox, sent: Sent, outcome: int, fields: list[Any]
    ) -> None:
        if outcome == _FAILED:
            self._drop_order(reference, sent)
            outbox.refused(sent, _error(fields))
        else:
            result = requests.result_in(fields)
            if outcome == _MORE:
                self._parked.add(reference)
            else:
                self._drop_order(reference, sent)
            outbox.answered(sent, result)
        self._busy[outbox.topic, outbox.partition] = outbox

    def _drop_order(self, reference: int, sent: Sent) -> None:
        del self._orders[reference]
        self._parked.discard(reference)
        self._bytes -= sent.size + _REQUEST_BYTES

    # -- producing ------------------------------------------------------------------------------------

    def _put(
        self,
        call: Produce,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[HeadersLike] | None,
        ids: Sequence[bytes] | None,
        expect_last: int | None,
        accepted: bool,
    ) -> None:
        check_topic_name(call.topic)
        longest = max(map(len, values))
        if keys is not None:
            longest = max(len(v) + len(k or b"") for v, k in zip(values, keys, strict=True))
        if longest > ENTRY_BYTES_MAX:
            raise LimitExceeded("the length of an entry in bytes", longest, ENTRY_BYTES_MAX)
        most = entries_max(keyed=keys is not None, ids=ids is not None)
        for lo, hi, size in _pieces(values, keys, most):
            whole = (lo, hi) == (0, len(values))
            part = Part(
                call,
                values if whole else values[lo:hi],
                keys=keys if whole or keys is None else keys[lo:hi],
                headers=headers if whole or headers is None else headers[lo:hi],
                ids=ids,
                expect_last=expect_last,
                accepted=accepted,
                size=size,
            )
            self.route(call, part)

    def route(self, call: Produce, part: Part) -> None:
        """Into the lane of its partition; into several, if its keys belong there."""
        count = self._partitions.get(call.topic, 1)
        if call.partition is not None or count == 1 or part.keys is None:
            partition = call.partition
            if partition is None:
                self._turn += 1
                partition = self._turn % count
            self._into(call, part, call.topic, partition, count)
            return
        hashes = memoryview(columns.key_hashes(part.keys)).cast("I")
        rows: dict[int, list[int]] = {}
        for index, hash_ in enumerate(hashes):
            rows.setdefault(hash_ % count, []).append(index)
        for partition, chosen in rows.items():
            values = [part.values[i] for i in chosen]
            share = Part(
                call,
                values,
                keys=[part.keys[i] for i in chosen],
                headers=None if part.headers is None else [part.headers[i] for i in chosen],
                ids=None if part.ids is None else [part.ids[i] for i in chosen],
                expect_last=part.expect_last,
                accepted=part.accepted,
                size=size_of(values),
            )
            self._into(call, share, call.topic, partition, count)

    def _into(
        self, call: Produce | Order, part: Part, topic: str, partition: int, count: int
    ) -> None:
        key = topic, partition
        outbox = self._outboxes.get(key)
        if outbox is None:
            outbox = self._outboxes[key] = Outbox(self.pid, *key, partitions=count)
        elif outbox.idle:
            outbox.partitions = count
        call.parts[part] = outbox
        outbox.put(part)
        self._busy[key] = outbox

    def partitions_are(self, topic: str, count: int) -> None:
        self._partitions[topic] = count


class Produce(Call):
    """Entries that are being produced: done when all of them are."""

    __slots__ = ("_core", "_first_error", "_one", "_runs", "partition", "parts", "topic")

    def __init__(self, core: ClientCore, topic: str, partition: int | None, *, one: bool) -> None:
        super().__init__()
        self.topic, self.partition = topic, partition
        self.parts: dict[Part, Outbox] = {}  # that have no answer yet
        self._core, self._one = core, one
        self._runs: list[Run] = []
        self._first_error: DuckrowError | None = None

    def numbered(self, part: Part, result: Result, offset: int, seq: int) -> None:
        outbox = self.parts.pop(part)
        topic, partition = outbox.topic, outbox.partition
        self._runs.append(run_of(topic, partition, result, len(part), offset, seq))
        self._finish_if_all()

    def failed(self, part: Part, error: DuckrowError) -> None:
        self.parts.pop(part, None)
        self._first_error = self._first_error or error
        self._finish_if_all()

    def rerouted(self, part: Part, partitions: int) -> None:
        self.parts.pop(part, None)
        self._core.partitions_are(self.topic, partitions)
        self._core.route(self, part)

    def _finish_if_all(self) -> None:
        if self.parts:
            return
        error = self._first_error
        if error is not None:
            if self._runs:
                done = sum(run.count for run in self._runs)
                error = type(error)(f"{error} ({done:,} of the entries were written)")
            self.finish(error=error)
        elif self._one:
            run = self._runs[0]
            name = ReceiptName(run.topic, run.partition, self._core.pid, 0, run.seq, run.offset)
            self.finish(Receipt(name, run.number or None, run.time or None))
        else:
            self.finish(Receipts(joined(self._runs)))


class Order(Call):
    """One command of another kind."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[Part, Outbox] = {}

    def numbered(self, part: Part, result: Result, offset: int, seq: int) -> None:
        self.finish(result)

    def failed(self, part: Part, error: DuckrowError) -> None:
        self.finish(error=error)

    def rerouted(self, part: Part, partitions: int) -> None:
        self.parts[part].put(part)  # its lane began anew


class _Request:
    """A request that is not of an outbox; without `read`, nobody answers it."""

    __slots__ = ("call", "fields", "read", "verb")

    def __init__(
        self,
        call: Call,
        verb: int,
        fields: Sequence[Any],
        read: Callable[[list[Any], Buffer], Any] | None,
    ) -> None:
        self.call, self.verb, self.fields, self.read = call, verb, fields, read


def _receipt(name: ReceiptName, result: Result) -> Receipt:
    """
    Raises:
        DuckrowError: it was not written.
    """
    if result.code == WAITING:
        return Receipt(name, None, None)
    if result.code != ORDERED:
        raise error_of(result, f"topic {name.topic!r}")
    return Receipt(name, result.first + name.offset, result.time)


def _error(fields: Sequence[Any]) -> DuckrowError:
    match fields:
        case [str(code), str(text), dict(values), *_]:
            return rebuilt(code, text, values)
    return Corrupt("the node told of an error in a form that is not known here")


def _pieces(
    values: Sequence[bytes], keys: Sequence[bytes | None] | None, most: int
) -> Iterator[tuple[int, int, int]]:
    """Entries lo <= i < hi that fit one batch, and their size."""
    total = size_of(values)
    if keys is not None:
        total += sum(len(key or b"") for key in keys)
    if len(values) <= most and total <= BATCH_BYTES:
        yield 0, len(values), total
        return
    lo = size = 0
    for index, value in enumerate(values):
        more = len(value) + 8 + (0 if keys is None else len(keys[index] or b""))
        if index > lo and (index - lo >= most or size + more > BATCH_BYTES):
            yield lo, index, size
            lo, size = index, 0
        size += more
    yield lo, len(values), size


def _entries(topic: str) -> Callable[[list[Any], Buffer], Entries]:
    def read(fields: list[Any], body: Buffer) -> Entries:
        return entries_of(topic, requests.decode_pulled(fields, body))

    return read
