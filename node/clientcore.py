"""A client without its sockets: what to send, and what came of it.

    shell                              core
    call = core.produce(...)      ─►   gathers in the outbox of its lane
    send core.data_to_send()      ◄─   frames: HELLO first, then what the limits allow
    core.receive_data(bytes)      ─►   calls are done
    core.lost(), core.connected() ─►   what has no answer goes again
    sleep core.pause_seconds()    ◄─   the node is busy, and is to be asked again

The three clients (blocking, trio, asyncio) are thin shells around this.  It has no clock but the
one it is given, and no randomness but the name of its producer.

Exactly once: a core is one producer.  Batches keep their seq over reconnects, and the node knows
which it has applied.  What only reads is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from . import frames, makers, parts, requests
from .asking import Asking, Request
from .clientcalls import Call, Receipt, ReceiptName, Receipts
from .columns import HeadersLike
from .effects import ORDERED, WAITING, Result
from .entries import Entries, entries_of
from .env import Buffer
from .errors import (
    Conflict,
    Corrupt,
    Disconnected,
    DuckrowError,
    NoQuorum,
    Refused,
    Timeout,
    rebuilt,
)
from .frames import Frame, FrameReader
from .outbox import HOLD_SECONDS_MAX, Outbox
from .outboxes import Order, Outboxes, PartitionedMaker, Produce, Stage
from .outcomes import error_of
from .parts import Maker, Text
from .requests import Ask, Outcome, Verb, Welcome
from .slots import Sent
from .underway import UnderWay

_MORE: Final = int(Outcome.MORE)
_FAILED: Final = int(Outcome.FAILED)
_NOBODY_THERE: Final = FileNotFoundError, ConnectionRefusedError
_OF_A_ROW: Final = (
    Verb.PULL,
    Verb.KEPT,
    Verb.UNPIN,
    Verb.RECEIPT,
)  # they name numbers that another row does not have
_TOLD: Final = Verb.TOPICS, Verb.TOPIC  # the answer has to know what we were told elsewhere
_READS: Final = Verb.PULL, Verb.KEPT, *_TOLD


class ClientCore:
    def __init__(
        self,
        pid: bytes,
        *,
        wall_us: Callable[[], int],
        name: str = "",
        token: str = "",
        others: bool = False,
    ) -> None:
        self.welcome: Welcome | None = None  # of the node we are connected to
        self._row: Welcome | None = None  # of the last node that told which row it has
        self.frames = FrameReader()
        self._boxes = Outboxes(pid)
        self._wall_us, self._name, self._token = wall_us, name, token
        self._reference = 0
        self._greeted = False
        self._hello: list[Buffer] = []
        self._asking = Asking()
        self._orders = UnderWay()
        self._held_until = 0  # the node would not take orders; by the wall clock
        self._seen = 0  # position of the newest answer: a node that is behind it makes us wait
        self._refusal: DuckrowError | None = None  # the last order was not taken, for this reason
        self._behind: DuckrowError | None = None  # nor was the last read served
        self._others = others  # other nodes can be asked
        self._is_turned_away = False  # over this connection: another node may take it
        self.heard = 0  # how often something came

    # -- what a user wants ------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: Text,
        *,
        key: Text | None = None,
        headers: HeadersLike = None,
        partition: int | None = None,
        id_: Text | None = None,
        expect_last: int | None = None,
        accepted: bool = False,
    ) -> Produce:
        """Its value is a Receipt.

        Raises:
            Refused, TypeError: it could never be.
        """
        ids = None if id_ is None else [parts.as_bytes("an id", id_)]
        parts.check(topic, partition, ids, expect_last)
        call = Produce(self._boxes, topic, partition, one=True)
        self._boxes.put(
            call,
            [value if type(value) is bytes else parts.as_bytes("a value", value)],
            None if key is None else [parts.as_bytes("a key", key)],
            [headers] if headers else None,
            ids=ids,
            expect_last=expect_last,
            accepted=accepted,
        )
        return call

    def produce_many(
        self,
        topic: str,
        values: Sequence[Text],
        *,
        keys: Sequence[Text | None] | None = None,
        headers: Sequence[HeadersLike] | None = None,
        partition: int | None = None,
        accepted: bool = False,
    ) -> Produce:
        """Its value is Receipts.

        Raises:
            Refused, TypeError: it could never be.
        """
        parts.check(topic, partition, None, None)
        raw, raw_keys = parts.all_bytes("value", values), parts.all_keys(keys)
        for name, column in (("keys", raw_keys), ("headers", headers)):
            if column is not None and len(column) != len(raw):
                text = f"{len(column):,} {name} were given for {len(raw):,} values"
                raise Refused(text, what=name, count=len(column), values=len(raw))
        call = Produce(self._boxes, topic, partition, one=False)
        self._boxes.put(call, raw, raw_keys, headers, accepted=accepted)
        if not raw:
            call.finish(Receipts([]))
        return call

    def pull(self, ask: Ask, *, kept: bool = False) -> Call:
        """Its value is Entries."""
        verb = Verb.KEPT if kept else Verb.PULL
        request = Request(Call(), verb, (), _entries(ask.topic), waits=ask.wait_us > 0)
        request.ask, request.until = ask, self._wall_us() + ask.wait_us
        self._asking.put(request)
        return request.call

    def receipt(self, name: ReceiptName, *, wait: bool) -> Call:
        """Its value is a Receipt, with a number as soon as there is one."""

        def read(fields: list[Any], _body: Buffer) -> Receipt:
            result = requests.result_in(fields)
            self._seen = max(self._seen, result.position)
            return _receipt(name, result)

        request = Request(Call(), Verb.RECEIPT, (*name[:-1], wait), read, waits=wait)
        self._asking.put(request)
        return request.call

    def order(self, make: Maker) -> Call:
        """A command of the lane without a topic; its value is the Result.

        Raises:
            Refused: it could never be.
        """
        make(makers.Turn(bytes(16), 1))
        call = Order(self._boxes)
        self._boxes.put_order(call, make)
        return call

    def stage(self, make: PartitionedMaker, topic: str, partition: int, partitions: int) -> Call:
        """A command of a partition's lane that numbers nothing; its value is the Result.

        Raises:
            Refused: it could never be.
        """
        make(makers.Turn(bytes(16), 1), partitions)
        call = Stage(self._boxes, topic, partition, make)
        self._boxes.put_stage(call, partitions)
        return call

    def ask(self, verb: Verb, *fields: Any) -> Call:
        """Its value is the list of fields of the answer."""
        request = Request(Call(), verb, fields, lambda answer, _body: answer)
        self._asking.put(request)
        return request.call

    def give_up(self, call: Call, error: DuckrowError) -> None:
        """Whoever waited does not any more; what can still be stopped is stopped.

        The call fails with the error, or with `NoQuorum` if it certainly did not happen.
        """
        if call.done:
            return
        self._asking.give_up(call)
        self._behind = None  # that may have been this one
        call.give_up(error)

    @property
    def idle(self) -> bool:
        """Nobody waits for anything to be sent or answered."""
        return not (self._asking or self._orders) and self._boxes.is_idle

    @property
    def unsent_bytes(self) -> int:
        """Of entries that wait, about."""
        return self._boxes.waiting_bytes

    def pause_seconds(self) -> float | None:
        """In so many seconds there may be something to send; None: not before something comes."""
        if not self._held_until:
            return None
        left = (self._held_until - self._wall_us()) / 1e6
        # A clock that was set back does not stop us.
        return left if 0 < left <= HOLD_SECONDS_MAX else None

    # -- the connection -----------------------------------------------------------------------------

    def trouble(self, met: Exception | None) -> str:
        """Why no answer came, as the end of a sentence; `met` was met by the last connection."""
        if why := self._refusal or self._behind:
            return f": {why}"
        if met is None:
            return ""
        nobody = any(isinstance(error, _NOBODY_THERE) for error in (met, met.__cause__))
        todo = " (does `duckrow node` run there?)" if nobody else ""
        return f", which cannot be reached: {str(met) or 'it takes too long'}{todo}"

    @property
    def is_greeted(self) -> bool:
        return self._greeted

    @property
    def is_served(self) -> bool:
        """Nothing of what we want was turned away since it was done last."""
        return self._greeted and not (self._refusal or self._behind)

    def is_silent(self, heard: int) -> bool:
        """Nothing came since then of a node that has let us in, and others can be asked."""
        return self._others and self._greeted and self.heard == heard

    def check_turned_away(self) -> None:
        """
        Raises:
            Disconnected: the node cannot do what we want of it, and there are others.
        """
        if self._is_turned_away and self._others:
            raise Disconnected(str(self._refusal or self._behind))

    def connected(self) -> None:
        """There is a new connection."""
        self.frames = FrameReader()
        self._greeted = self._is_turned_away = False
        hello = requests.Hello(requests.VERSION, self._name, self._token, {})
        self._hello = frames.encode(requests.request(0, Verb.HELLO, *hello))

    def lost(self) -> None:
        """The connection broke, or never was: what has no answer will go again."""
        self._greeted, self._hello = False, []
        self._orders.clear()
        self._held_until = 0
        self._boxes.lost()
        self._asking.lost()

    def fail(self, error: DuckrowError) -> None:
        """The end: everybody who waits is told so."""
        self.lost()
        for request in self._asking.take_unsent():
            request.call.finish(error=error)
        self._boxes.fail(error)

    @property
    def is_busy(self) -> bool:
        """There may be something to send."""
        return bool(self._hello or self._asking.has_unsent or self._boxes.is_busy)

    def data_to_send(self) -> list[Buffer]:
        """All that may go now; empty: nothing."""
        if not self._greeted:
            hello, self._hello = self._hello, []
            return hello
        out: list[Buffer] = []
        if not self.is_busy:
            return out
        while (request := self._asking.next(self._reference + 1)) is not None:
            self._reference += 1
            fields = self._fields_of(request)
            out += frames.encode(requests.request(self._reference, request.verb, *fields))
        if not self.pause_seconds():
            self._send_batches(out)
        return out

    def receive_data(self, data: Buffer) -> None:
        """
        Raises:
            Corrupt, LimitExceeded: the other side does not speak the protocol; hang up.
            Refused, NoQuorum: it does not want us.
        """
        self.frames.receive_data(data)
        self._take_all()

    def buffer_filled(self, count: int) -> None:
        """As `receive_data`, for bytes in the buffer that `frames` has lent."""
        self.frames.buffer_filled(count)
        self._take_all()

    # -- sending --------------------------------------------------------------------------------------

    def _send_batches(self, out: list[Buffer]) -> None:
        now = self._wall_us()
        while self._orders.has_room:
            found = self._boxes.next(now)
            if found is None:
                return
            sent = found[1]
            self._reference += 1
            self._orders.add(self._reference, found)
            head, body = sent.command
            out += frames.encode(requests.order(self._reference, head, sent.accepted), body)
            if not self._boxes.is_busy:
                return

    def _fields_of(self, request: Request) -> Sequence[Any]:
        """As they go out now, perhaps once more."""
        if request.ask is not None:
            return request.asks(self._seen, self._wall_us())
        return (*request.fields, self._seen) if request.verb in _TOLD else request.fields

    # -- answers --------------------------------------------------------------------------------------

    def _take_all(self) -> None:
        self.heard += 1
        while (frame := self.frames.next_frame()) is not None:
            told = requests.result_in_answer(frame.head) if self._greeted else None
            order = None if told is None else self._orders.get(told[0])
            if told is None or order is None:
                self._take(frame)
            else:
                reference, outcome, result = told
                self._take_result(*order, reference, outcome, result)

    def _take(self, frame: Frame) -> None:
        reference, outcome, fields = requests.opened(frame.head)
        if not self._greeted:
            self._take_welcome(outcome, fields)
            return
        order = self._orders.get(reference)
        if order is not None:
            if outcome == _FAILED:
                self._take_refusal(*order, reference, _error(fields))
            else:
                self._take_result(*order, reference, outcome, requests.result_in(fields))
            return
        request = self._asking.answered(reference, more=outcome == _MORE)
        if request is None or request.read is None:
            return  # of one that was given up
        self._behind = None
        if outcome == _FAILED:
            self._take_failure(request, _error(fields))
            return
        try:
            found = request.read(fields, frame.body)
        except DuckrowError as error:
            # Of this answer alone: frames go on where they should.
            request.call.finish(error=error)
            return
        if request.goes_on(found, self._wall_us()):
            self._asking.put(request)
        else:
            request.call.finish(found)

    def _take_failure(self, request: Request, error: DuckrowError) -> None:
        # It is behind what we were told elsewhere, or stops; or it never has a row.
        is_behind = request.verb in _READS and isinstance(error, NoQuorum)
        if self._others and (is_behind or "witness" in error.values()):
            self._behind, self._is_turned_away = error, True
            self._asking.put(request)
        else:
            request.call.finish(error=error)

    def _take_welcome(self, outcome: int, fields: list[Any]) -> None:
        if outcome == _FAILED:
            raise _error(fields)
        self.welcome = welcome = Welcome.of(fields)
        self._greeted = True
        self.frames.accept_hello()
        if not welcome.cluster:
            return  # its disk is new: it has no row yet, and so no other one than we know
        before, self._row = self._row, welcome
        if before is not None and (before.cluster, before.lineage) != (
            welcome.cluster,
            welcome.lineage,
        ):
            self._begin_anew(before, welcome)

    def _begin_anew(self, before: Welcome, now: Welcome) -> None:
        """The node has lost a part of its row, or it is another one: nothing of ours holds there."""
        error = Conflict(
            f"{now.node} has another row than {before.node} had: numbers and positions of the old "
            "one mean nothing there; look again at what is there, and decide anew",
            node=now.node,
            lineage=now.lineage,
        )
        self._boxes.begin_anew()
        self._seen = 0
        for request in self._asking.take_unsent():
            if request.verb in _OF_A_ROW:
                request.call.finish(error=error)
            else:
                self._asking.put(request)

    def _take_refusal(
        self, outbox: Outbox, sent: Sent, reference: int, error: DuckrowError
    ) -> None:
        self._orders.settle(reference)
        if isinstance(error, NoQuorum | Timeout):
            self._refusal, self._is_turned_away = error, True
        pause = self._boxes.refused(outbox, sent, error)
        if pause:
            self._held_until = self._wall_us() + int(pause * 1e6)

    def _take_result(
        self, outbox: Outbox, sent: Sent, reference: int, outcome: int, result: Result
    ) -> None:
        self._refusal = None
        self._seen = max(self._seen, result.position)
        if outcome == _MORE:
            self._orders.wait(reference)
        else:
            self._orders.settle(reference)
        self._boxes.answered(outbox, sent, result)


def _receipt(name: ReceiptName, result: Result) -> Receipt:
    """
    Raises:
        DuckrowError: it was not written.
    """
    if result.code == WAITING:
        return Receipt(name, None, None)
    if result.code != ORDERED:
        raise error_of(result, name.topic)
    return Receipt(name, result.first + name.offset, result.time)


def _error(fields: Sequence[Any]) -> DuckrowError:
    match fields:
        case [str(code), str(text), dict(values), *_]:
            return rebuilt(code, text, values)
    return Corrupt("the node told of an error in a form that is not known here")


def _entries(topic: str) -> Callable[[list[Any], Buffer], Entries]:
    def read(fields: list[Any], body: Buffer) -> Entries:
        return entries_of(topic, requests.decode_pulled(fields, body))

    return read
