"""A session: one client's connection, from its hello to its end.

    frames in ──► order ──► keeper ···► told ──┐
              ├─► pull, follow: a task each ──►├──► queue ──► one write for all that is in it
              └─► what is known at once ──────►┘

An idle session costs one task.  Orders cost none: the keeper tells, and after each of its turns the
server sends what came together.  Only what the socket does not take at once gets a task.

Nothing that a client sends ends more than its own session.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import trio

from . import frames, overview, requests
from .commands import Command, Kind, check_body, decode_head
from .effects import WAITING, Result
from .env import Buffer, Peer
from .errors import Conflict, Corrupt, Disconnected, DuckrowError, LimitExceeded, NoQuorum, Refused
from .frames import FrameReader
from .lanes import remembered
from .limits import CLIENT_BYTES_MAX, CLIENT_REQUESTS_MAX, HELLO_SECONDS_MAX, OUTPUT_BYTES_MAX
from .reading import Pull
from .requests import Ask, Hello, Outcome, Verb

if TYPE_CHECKING:
    from .server import Server

# What a client may put into the row; the rest is for nodes, and for whoever runs the cluster.
OPEN: Final = frozenset(
    {
        Kind.PRODUCE,
        Kind.SKIP,
        Kind.CREATE,
        Kind.CONFIGURE,
        Kind.DELETE,
        Kind.PRUNE,
        Kind.STAGE,
        Kind.COMMIT,
        Kind.BARRIER,
    }
)
_REQUEST_BYTES: Final = 64  # what a request counts besides its body
FOLLOW_SECONDS: Final = 3600.0  # then an idle follow looks again; it costs nothing

log = logging.getLogger("duckrow.session")


class Session:
    def __init__(self, server: Server, stream: trio.abc.Stream, peer: Peer, number: int) -> None:
        self.number, self.peer, self.name = number, peer, ""
        self.began = trio.current_time()
        self.requests = 0  # since it began
        self.closed = False
        self._server, self._node, self._stream = server, server.node, stream
        self._send_now = getattr(stream, "send_now", None)
        self._receive_into = getattr(stream, "receive_into", None)
        self._reader = FrameReader()
        self._out: deque[Buffer] = deque()
        self._out_bytes = 0
        self._sending = False  # a task does
        self._open = 0  # orders and pulls that have no answer
        self._open_bytes = 0
        self._room: trio.Event | None = None
        self._reads: dict[int, _Read] = {}  # pulls and follows

    async def run(self) -> None:
        """Until the client leaves, or breaks the rules."""
        try:
            await self._greet()
            while await self._receive():
                self._take_all()
                self._server.flush()
                if self._is_full():
                    await self._wait_for_room()
        except DuckrowError as error:
            log.info("session_ended client=%s error=%s", self.peer.address, error)
            await self._say_goodbye(error)
        finally:
            self.closed = True
            self._out.clear()
            for read in self._reads.values():
                read.scope.cancel()

    @property
    def queued(self) -> int:
        """Bytes that the client has not taken yet."""
        return self._out_bytes

    # -- frames ---------------------------------------------------------------------------------

    async def _greet(self) -> None:
        """
        Raises:
            DuckrowError: it is not let in.
        """
        deadline = frames.hello_deadline(trio.current_time())
        with trio.move_on_at(deadline):
            while (frame := self._reader.next_frame()) is None:
                if not await self._receive():
                    raise Disconnected("it left before it said hello")
            reference, verb, fields = requests.opened(frame.head)
            if verb != Verb.HELLO:
                raise Refused("the first request has to be a hello")
            hello = Hello.of(fields)
            self._server.admit(hello, self.peer)
            self.name = hello.name
            self._reader.accept_hello()
            self._answer(reference, *self._server.welcome())
            self._take_all()
            self._server.flush()
            return
        raise Refused(f"no hello came within {HELLO_SECONDS_MAX:g} seconds")

    async def _receive(self) -> bool:
        """False: the client has left."""
        reader = self._reader
        if not reader.received:
            data = await self._stream.receive_some(reader.wanted)
            if data:
                reader.receive_data(data)
            return bool(data)
        # A frame once begun has to go on: nobody holds our memory by waiting.
        begun = trio.current_time()
        while True:
            with trio.move_on_at(frames.frame_deadline(0, begun)) as scope:
                lent = reader.lend_buffer() if self._receive_into is not None else None
                count = 0
                try:
                    if lent is not None:
                        count = await self._receive_into(lent)  # type: ignore[misc]
                    else:
                        data = await self._stream.receive_some(reader.wanted)
                finally:
                    if lent is not None:
                        reader.buffer_filled(count)
                if lent is None and data:
                    reader.receive_data(data)
                if not (count or (lent is None and data)):
                    reader.end_of_data()
                    return False
                return True
            if scope.cancelled_caught:
                raise Refused("a frame that had begun did not go on")

    def _take_all(self) -> None:
        """
        Raises:
            Corrupt, LimitExceeded: what comes next cannot be told any more.
        """
        while (frame := self._reader.next_frame()) is not None:
            reference, verb, fields = requests.opened(frame.head)
            self.requests += 1
            try:
                if verb == requests.ORDER:
                    self._order(reference, fields, frame.body)
                else:
                    self._serve(reference, verb, fields)
            except DuckrowError as error:
                self._put([*frames.encode(requests.failure(reference, error))])

    def _serve(self, reference: int, verb: int, fields: list[Any]) -> None:
        state = self._node.state
        match verb:
            case Verb.PULL:
                self._read(reference, Ask.of(fields), credit=None)
            case Verb.FOLLOW:
                if len(fields) <= len(Ask._fields) or type(fields[len(Ask._fields)]) is not int:
                    raise Corrupt("a follow names the bytes that may be sent")
                self._read(reference, Ask.of(fields), credit=fields[len(Ask._fields)])
            case Verb.CREDIT:
                match fields:
                    case [int(of), int(more), *_] if of in self._reads:
                        self._reads[of].grant(more)
            case Verb.CANCEL:
                if fields and fields[0] in self._reads:
                    self._reads[fields[0]].scope.cancel()
            case Verb.RECEIPT:
                self._receipt(reference, fields)
            case Verb.TOPICS:
                self._answer(reference, overview.topics(state))
            case Verb.TOPIC:
                self._answer(reference, *overview.topic(state, fields))
            case Verb.STATUS:
                self._answer(reference, self._server.status())
            case Verb.CLIENTS:
                self._answer(reference, [each.told() for each in self._server.sessions.values()])
            case _:
                raise Refused(f"this node knows no request {verb}: it may be older than the client")

    # -- orders ---------------------------------------------------------------------------------

    def _order(self, reference: int, fields: list[Any], body: Buffer) -> None:
        match fields:
            case [bytes(raw), bool(accepted), *_]:
                pass
            case _:
                raise Corrupt("an order holds the head of a command")
        head = decode_head(raw)
        if head.kind not in OPEN:
            raise Refused(f"a command of kind {head.kind} is not for clients")
        check_body(head, body)
        order = _Order(self, reference, accepted, len(body) + _REQUEST_BYTES)
        self._node.calls.tell(self._node.submit(Command(raw, body)), order)
        self._open += 1
        self._open_bytes += order.size

    def _receipt(self, reference: int, fields: list[Any]) -> None:
        match fields:
            case [str(topic), int(partition), bytes(pid), int(epoch), int(seq), bool(wait), *_]:
                pass
            case _:
                raise Corrupt("this is not a receipt")
        lane = self._node.state.lanes.rows.get((pid, topic, partition))
        if lane is None or lane.epoch != epoch:
            raise Conflict(
                "nothing is known of this receipt any more: its topic was deleted, or its producer "
                "is among those that produced nothing for longest"
            )
        if seq <= lane.last:
            result = remembered(lane, seq)
            if not (wait and result.code == WAITING):
                self._answer(reference, *result)
                return
        elif not wait:
            raise NoQuorum("it is not in the row")
        order = _Order(self, reference, False, _REQUEST_BYTES)
        self._node.calls.tell((pid, epoch, topic, partition, seq), order)
        self._open += 1
        self._open_bytes += order.size

    def told(self) -> dict[str, Any]:
        """For `duckrow client ls`."""
        peer = self.peer
        return {
            "id": self.number,
            "name": self.name,
            "address": peer.address,
            "uid": peer.uid,
            "pid": peer.pid,
            "seconds": round(trio.current_time() - self.began, 3),
            "requests": self.requests,
            "waiting": self._open,
            "reading": len(self._reads),
            "queued": self._out_bytes,
        }

    # -- reads ----------------------------------------------------------------------------------

    def _read(self, reference: int, ask: Ask, credit: int | None) -> None:
        if ask.seen > self._node.state.position:
            raise NoQuorum(
                f"this node has come to position {self._node.state.position:,}, and position "
                f"{ask.seen:,} was asked for",
                retry_after=0.1,
            )
        if reference in self._reads or len(self._reads) >= CLIENT_REQUESTS_MAX:
            raise LimitExceeded("the number of pulls", len(self._reads) + 1, CLIENT_REQUESTS_MAX)
        read = self._reads[reference] = _Read(credit)
        self._server.spawn(self._pull, reference, ask, read)

    async def _pull(self, reference: int, ask: Ask, read: _Read) -> None:
        try:
            with read.scope:
                if read.credit is None:
                    await self._pull_once(reference, ask)
                else:
                    await self._follow(reference, ask, read)
        except DuckrowError as error:
            self._put(frames.encode(requests.failure(reference, error)))
        finally:
            self._reads.pop(reference, None)
            self.flush()

    async def _pull_once(self, reference: int, ask: Ask) -> None:
        pulled = await self._node.reader.pull(_pull_of(ask, ask.wait_us / 1e6))
        head, bodies = requests.encode_pulled(reference, pulled)
        self._put(frames.encode(head, *bodies))

    async def _follow(self, reference: int, ask: Ask, read: _Read) -> None:
        assert read.credit is not None
        while True:
            pulled = await self._node.reader.pull(_pull_of(ask, FOLLOW_SECONDS))
            ask = ask._replace(after=pulled.after, topic_id=pulled.topic_id or ask.topic_id)
            if not pulled.batches and not pulled.missing:
                continue
            head, bodies = requests.encode_pulled(reference, pulled, Outcome.MORE)
            self._put(frames.encode(head, *bodies))
            self.flush()
            read.credit -= sum(map(len, bodies))
            while read.credit <= 0:
                read.granted = trio.Event()
                await read.granted.wait()

    # -- what goes out --------------------------------------------------------------------------

    def _answer(self, reference: int, *fields: Any) -> None:
        self._put(frames.encode(requests.answer(reference, *fields)))

    def _put(self, buffers: list[Buffer]) -> None:
        """Goes out with the next flush."""
        if self.closed:
            return
        self._out += buffers
        self._out_bytes += sum(map(len, buffers))
        self._server.has_output(self)

    def flush(self) -> None:
        """Sends what the socket takes; the rest gets a task."""
        if self.closed or self._sending or not self._out:
            return
        if self._send_now is not None:
            try:
                self._sent(self._send_now(self._out))
            except OSError:
                return  # the task that receives will hear of it
        if self._out:
            if self._out_bytes > OUTPUT_BYTES_MAX:
                log.warning(
                    "client_too_slow client=%s name=%s queued=%d",
                    self.peer.address,
                    self.name,
                    self._out_bytes,
                )
                self._out.clear()
                self._server.spawn(self._hang_up)
                return
            self._sending = True
            self._server.spawn(self._send)

    async def _send(self) -> None:
        try:
            while self._out:
                data = bytes(self._out[0]) if len(self._out) == 1 else b"".join(self._take_some())
                await self._stream.send_all(data)
                self._sent(len(data))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the task that receives will hear of it
        finally:
            self._sending = False

    def _take_some(self) -> list[Buffer]:
        """About as much as a socket's buffer holds."""
        found: list[Buffer] = []
        size = 0
        for buffer in self._out:
            found.append(buffer)
            size += len(buffer)
            if size > frames.RECEIVE_BYTES:
                break
        return found

    def _sent(self, count: int) -> None:
        self._out_bytes -= count
        out = self._out
        while count:
            first = len(out[0])
            if first > count:
                out[0] = memoryview(out[0])[count:]
                return
            out.popleft()
            count -= first

    async def _hang_up(self) -> None:
        await trio.aclose_forcefully(self._stream)

    async def _say_goodbye(self, error: DuckrowError) -> None:
        """The reason, if it still can be told."""
        with trio.move_on_after(1.0):
            try:
                await self._stream.send_all(b"".join(frames.encode(requests.failure(0, error))))
            except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
                pass

    # -- limits -----------------------------------------------------------------------------------

    def _is_full(self) -> bool:
        return self._open >= CLIENT_REQUESTS_MAX or self._open_bytes >= CLIENT_BYTES_MAX

    async def _wait_for_room(self) -> None:
        while self._is_full():
            self._room = trio.Event()
            await self._room.wait()

    def settle(self, size: int) -> None:
        """An order has its answer, or waits in the row."""
        self._open -= 1
        self._open_bytes -= size
        if self._room is not None and not self._is_full():
            self._room.set()
            self._room = None


class _Order:
    """An order that somebody waits for."""

    __slots__ = ("accepted", "done", "reference", "session", "size")

    def __init__(self, session: Session, reference: int, accepted: bool, size: int) -> None:
        self.session, self.reference, self.accepted, self.size = session, reference, accepted, size
        self.done = False  # it counts no more

    def __call__(self, outcome: Result | Exception) -> None:
        session = self.session
        if not self.done:
            self.done = True
            session.settle(self.size)
        elif self.accepted:
            return
        if isinstance(outcome, Result):
            if outcome.code == WAITING and not self.accepted:
                head = requests.more(self.reference, *outcome)
            else:
                head = requests.answer(self.reference, *outcome)
        elif isinstance(outcome, DuckrowError):
            head = requests.failure(self.reference, outcome)
        else:
            raise outcome
        session._put(frames.encode(head))


class _Read:
    """A pull or a follow that is going on."""

    __slots__ = ("credit", "granted", "scope")

    def __init__(self, credit: int | None) -> None:
        self.scope = trio.CancelScope()
        self.credit = credit  # bytes that a follow may send; None: a pull
        self.granted = trio.Event()

    def grant(self, more: int) -> None:
        if self.credit is not None and more > 0:
            self.credit += more
            self.granted.set()


def _pull_of(ask: Ask, wait: float) -> Pull:
    return Pull(
        ask.topic,
        ask.after,
        partition=ask.partition,
        topic_id=ask.topic_id,
        limit=ask.limit,
        max_bytes=ask.max_bytes,
        wait=min(wait, 1e9),
    )
