"""A session: one client's connection, from its hello to its end.

    frames in ──► order ──► keeper ···► told ──┐
              ├─► pull, follow: reads.py ──────┼──► output.py
              └─► what is known at once ───────┘

An idle session costs one task.  Orders cost none: the keeper tells, and after each of its turns the
server sends what came together.  What comes together from one client is ordered together; if the
client is alone, in the turn in which it came.

Nothing that a client sends ends more than its own session, and it holds no more of our memory than
its limits.  A client that has too much under way is not read from until some of it is done.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from . import codec, frames, overview, requests
from .commands import Command, Head, Kind, Produce, Stage, check_body, decode_head
from .effects import WAITING, Result
from .env import Buffer, Peer
from .errors import Corrupt, Disconnected, DuckrowError, Full, NoQuorum, Refused
from .events import INFO
from .frames import FrameReader
from .lanes import remembered
from .limits import HELLO_SECONDS_MAX
from .orders import Orders
from .output import GONE, Output, Sink
from .reads import Reads, known
from .receiving import Source, receive
from .requests import Ask, Hello, Verb
from .reserve import HARD

if TYPE_CHECKING:
    from .server import Server

# What a client may put into the row; the rest is for nodes, and for whoever runs the cluster.
BATCHES: Final[dict[int, type[Produce | Stage]]] = {Kind.PRODUCE: Produce, Kind.STAGE: Stage}
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
# What may go into the last space of a disk.
MAKES_ROOM: Final = frozenset({Kind.CONFIGURE, Kind.DELETE, Kind.PRUNE})
# What a machine without a row has no answer to.
_OF_THE_ROW: Final = frozenset(
    {Verb.PULL, Verb.KEPT, Verb.FOLLOW, Verb.TOPICS, Verb.TOPIC, Verb.RECEIPT}
)
GOODBYE_SECONDS: Final = 1.0
NAME_LENGTH_MAX: Final = 64  # of what a client calls itself; the rest is left out


class Stream(Sink, Source, Protocol):
    """What a session needs of a connection; those of the machine and of the simulation have it."""


class Session:
    __slots__ = (
        "_began_frame",
        "_chunk_bytes",
        "_node",
        "_orders",
        "_output",
        "_owes_turn",
        "_reader",
        "_reads",
        "_server",
        "_stream",
        "began",
        "name",
        "number",
        "peer",
        "requests",
    )

    def __init__(self, server: Server, stream: Stream, peer: Peer, number: int) -> None:
        self.number, self.peer, self.name = number, peer, ""
        self.began = trio.current_time()
        self.requests = 0  # since it began
        self._server, self._node, self._stream = server, server.node, stream
        self._output = Output(stream, server.spawn, server.note, peer.address, server.ready)
        self._reads = Reads(server, self._output)
        self._reader = FrameReader()
        self._chunk_bytes = self._reader.wanted  # between two frames
        self._began_frame = math.inf  # when the one began that is not whole yet
        self._orders = Orders(self._node.calls, self._output.put)
        self._owes_turn = False  # something was submitted for later

    async def run(self) -> None:
        """Until the client leaves, or breaks the rules."""
        try:
            await self._greet()
            while await self._receive():
                if self._take_all():
                    # A reader has all of the way before it, and the producer only the way back.
                    await trio.lowlevel.cancel_shielded_checkpoint()
                    await trio.lowlevel.cancel_shielded_checkpoint()
                self._server.flush()
                if self._orders.is_full:
                    await self._wait_for_room()
        except GONE:
            pass
        except DuckrowError as error:
            self._server.broken += 1
            facts = self.peer.address, self.name, str(error)
            self._server.note(INFO, "session_ended client=%s name=%s error=%s", *facts)
            await self._say_goodbye(error)
        finally:
            self._output.close()
            self._server.ready.pop(self._output, None)
            self._reads.cancel_all()
            self._orders.forget()
            self._node.pins.leave(self)

    @property
    def queued(self) -> int:
        return self._output.bytes

    @property
    def is_busy(self) -> bool:
        """To a node that stops: it is owed answers, or has not taken them."""
        return bool(self._orders.are_open or self._output.bytes or self._reads.are_owed)

    def give_back(self, error: DuckrowError) -> None:
        """This node reaches no majority any more."""
        row, acceptance = self._node.row, self._node.acceptance
        self._orders.give_back(error, lambda *key: row.accepts and acceptance.holds(*key))

    def stop(self) -> None:
        """The node stops: nobody waits any more."""
        self._reads.stop_waiting()

    def hang_up(self) -> None:
        self._output.hang_up()

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
            "waiting": len(self._orders),
            "reading": len(self._reads),
            "queued": self._output.bytes,
        }

    # -- frames ---------------------------------------------------------------------------------

    async def _greet(self) -> None:
        """
        Raises:
            DuckrowError: it is not let in.
        """
        with trio.move_on_at(frames.hello_deadline(trio.current_time())):
            while (frame := self._reader.next_frame()) is None:
                if not await self._receive():
                    raise Disconnected("it left before it said hello")
            reference, verb, fields = requests.opened(frame.head)
            if verb != Verb.HELLO:
                raise Refused("the first request has to be a hello")
            hello = Hello.of(fields)
            self._server.admit(hello, self.peer)
            self.name = hello.name[:NAME_LENGTH_MAX]
            self._reader.accept_hello()
            self._chunk_bytes = self._reader.wanted
            self._answer(reference, *self._server.welcome())
            self._take_all()
            self._server.flush()
            return
        text = f"no hello came within {HELLO_SECONDS_MAX:g} seconds"
        raise Refused(text, seconds=HELLO_SECONDS_MAX)

    async def _receive(self) -> bool:
        """False: the client has left."""
        reader = self._reader
        if self._began_frame == math.inf:
            data = await self._stream.receive_some(self._chunk_bytes)
            if data:
                reader.receive_data(data)
            return bool(data)
        # A frame once begun has to go on: nobody holds our memory by waiting.
        with trio.move_on_at(frames.frame_deadline(reader.received, self._began_frame)):
            return await receive(self._stream, reader)
        text = f"a frame has come too slowly: {reader.received:,} bytes of it"
        raise Refused(text, received=reader.received)

    def _take_all(self) -> bool:
        """True: readers were woken, who come before the answers.

        Raises:
            Corrupt, LimitExceeded: what comes next cannot be told any more.
        """
        reader, woken = self._reader, False
        try:
            while (frame := reader.next_frame()) is not None:
                self._began_frame = math.inf
                self._take(*frame)
        finally:
            if self._owes_turn:
                self._owes_turn = False
                woken = self._server.order(self)
        if self._began_frame == math.inf and reader.received:
            self._began_frame = trio.current_time()
        return woken

    def _take(self, raw: bytes, body: Buffer) -> None:
        order = requests.order_in(raw)
        reference, verb, fields = requests.opened(raw) if order is None else (order[0], 0, [])
        self.requests += 1
        try:
            if order is not None:
                self._order(*order, body)
            elif verb != requests.ORDER:
                self._serve(reference, verb, fields)
            else:
                match fields:
                    case [bytes(head), bool(accepted), *_]:
                        self._order(reference, head, accepted, body)
                    case _:
                        raise Corrupt("an order holds the head of a command")
        except DuckrowError as error:
            self._output.put(frames.encode(requests.failure(reference, error)))

    def _serve(self, reference: int, verb: int, fields: list[Any]) -> None:
        reads, state = self._reads, self._node.state
        if verb in _OF_THE_ROW:
            self._server.refuse_if_witness()
        match verb:
            case Verb.PULL | Verb.KEPT:
                reads.pull(reference, Ask.of(fields), kept=verb == Verb.KEPT)
            case Verb.FOLLOW:
                if len(fields) <= len(Ask._fields) or type(fields[len(Ask._fields)]) is not int:
                    raise Corrupt("a follow names the bytes that may be sent")
                reads.follow(reference, Ask.of(fields), fields[len(Ask._fields)])
            case Verb.CREDIT:
                match fields:
                    case [int(of), int(more), *_]:
                        reads.grant(of, more)
            case Verb.CANCEL:
                match fields:
                    case [int(of), *_]:
                        reads.cancel(of)
            case Verb.RECEIPT:
                self._receipt(reference, fields)
            case Verb.TOPICS:
                reads.serve(
                    reference, partial(overview.topics, state, fields), overview.seen(fields)
                )
            case Verb.TOPIC:
                reads.serve(
                    reference, partial(overview.topic, state, fields), overview.seen(fields)
                )
            case Verb.STATUS:
                reads.ask(reference, self._server.told)
            case Verb.DIGEST:
                match fields:
                    case [int(position), *_] if 0 <= position <= state.position:
                        reads.ask(reference, partial(self._node.row.store.digest_of, position))
                    case _:
                        text = f"this node has come to position {state.position:,}"
                        raise Refused(text, position=state.position)
            case Verb.CLIENTS:
                reads.serve(reference, partial(overview.clients, self._server.sessions, fields))
            case Verb.PINS:
                durable = self._node.row.status().durable
                view = self._node.state.view
                about = durable, view.lineage if view else 0
                reads.serve(reference, partial(overview.pins, self._node.pins, *about, fields))
            case Verb.UNPIN:
                reads.serve(reference, partial(overview.unpin, self._node.pins, self, fields))
            case Verb.MEMBER:
                match fields:
                    case [dict(asked), *_]:
                        reads.ask(reference, partial(self._node.row.administer, asked))
                    case _:
                        raise Corrupt("what is asked about the members is missing")
            case _:
                text = f"this node knows no request {verb}: it may be older than the client"
                raise Refused(text, request=verb)

    # -- orders ---------------------------------------------------------------------------------

    def _order(self, reference: int, raw: bytes, accepted: bool, body: Buffer) -> None:
        node = self._node
        head = decode_head(raw)
        if head.kind not in OPEN:
            raise Refused(f"a command of kind {head.kind} is not for clients")
        check_body(head, body)
        if head.kind in BATCHES:
            batch = BATCHES[head.kind].of(head)
            codec.check(batch.codec, body, batch.entries)
            if accepted:
                # What the row will refuse, for the client to send it anew, has no place to promise.
                topic = node.state.topic(head.topic)
                accepted = topic is None or topic.policy.partitions == batch.partitions
        elif head.length:
            text = (
                f"a command of kind {head.kind} has no body, and this one has {head.length:,} bytes"
            )
            raise Refused(text, bytes=head.length)
        elif head.kind not in MAKES_ROOM and self._node.row.status().disk == HARD:
            if (result := self._remembered(head)) is not None:
                self._answer(reference, *result)
                return
            raise Full(
                "the disk is full, and its reserve is for what makes room: delete or prune "
                "something, or change a policy"
            )
        if self._server.stopping:
            self._server.refuse_if_stopping()
        if missing := node.row.missing:
            if (result := self._remembered(head)) is not None:
                self._answer(reference, *result)
                return
            # What comes before it may be in the row of those who are missing: then it has no place here
            # (N3), and that is no gap either.
            is_next = self._node.acceptance.expected(head) >= head.seq
            if not (accepted and node.row.accepts and is_next):
                raise self._server.no_quorum(missing)
        command: Command = tuple.__new__(Command, (raw, body))
        key = node.submit(command, head=head, accepted=accepted, later=True)
        self._owes_turn = True
        self._orders.add(reference, key, len(body), accepted=accepted)

    def _receipt(self, reference: int, fields: list[Any]) -> None:
        match fields:
            case [str(topic), int(partition), bytes(pid), int(epoch), int(seq), bool(wait), *_]:
                pass
            case _:
                raise Corrupt("this is not a receipt")
        key = pid, epoch, topic, partition, seq
        result = known(self._node, key)
        if wait and (result is None or result.code == WAITING):
            self._reads.receipt(reference, key)
        elif result is None:
            raise NoQuorum(
                "it is not in the row: the machine that accepted it has not reached the others yet; or it "
                "was forgotten, with its topic, or as one of a producer that was silent for longest"
            )
        else:
            self._answer(reference, *result)

    def _remembered(self, head: Head) -> Result | None:
        """What became of a command that was applied before: it needs no place in the row (D6)."""
        lane = self._node.state.lanes.rows.get(head.lane)
        if lane is None or lane.epoch != head.epoch or head.seq > lane.last:
            return None
        result = remembered(lane, head.seq)
        return None if result.code == WAITING else result

    async def _wait_for_room(self) -> None:
        began = trio.current_time()
        await self._orders.wait_for_room()
        self._began_frame += trio.current_time() - began  # it was we who did not go on

    # -- what goes out --------------------------------------------------------------------------

    def _answer(self, reference: int, *fields: Any) -> None:
        self._output.put(frames.encode(requests.answer(reference, *fields)))

    async def _say_goodbye(self, error: DuckrowError) -> None:
        """The reason, if it still can be told."""
        with trio.move_on_after(GOODBYE_SECONDS):
            self._output.put(frames.encode(requests.failure(0, error)))
            self._output.flush()
            await self._output.wait()
            try:
                if isinstance(self._stream, trio.abc.HalfCloseableStream):
                    await self._stream.send_eof()
                # Bytes that nobody reads would make the kernel take the reason back.
                while await self._stream.receive_some(frames.RECEIVE_BYTES):
                    pass
            except GONE:
                pass
