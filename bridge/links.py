"""Links: one TCP connection with each configured neighbour, for as long as both are up.

    env.net ──► handshake ──► receive ──► messages ──► the mailbox of the bridge
                              send    ◄── queue    ◄── `put`, then `flush` once a round

Of two neighbours the one with the lower id dials, and standby links only while they are wanted; who
is refused or cut off dials again, after 0.1 s, then up to 1 s, with jitter.  So does who gets no answer
in time: a machine that lost its power in the middle of the handshake told nobody.  A link is there when
both handshakes are through, so bytes went both ways; that it stays so is for the protocol to see (F9),
which says when to hang up.  A new connection of the same neighbour takes the place of the older one,
which may be half dead.

What is sent waits in a queue of messages (sending.py), and one vectored write takes all that a round
put there.  If the socket does not take it, a task waits until it does.  A neighbour that takes less
than it is sent is cut off: it asks again for what it lacks, and gets it from the streams or the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

import trio

from duckrow.node.env import Buffer, Env
from duckrow.node.errors import Corrupt, Disconnected, DuckrowError, LimitExceeded
from duckrow.node.events import INFO, WARNING, Note
from duckrow.node.frames import FrameReader
from duckrow.node.limits import HELLO_SECONDS_MAX, OUTPUT_BYTES_MAX
from duckrow.node.receiving import receive

from .handshake import Door, Handshake, Hello, Role, refusal
from .messages import Message
from .sending import Sending
from .timing import Timing
from .wire import Decoder, Encoder

RETRY_SECONDS_MIN: Final = 0.1
RETRY_SECONDS_MAX: Final = (
    1.0  # what is back is found within 1.5 s, or 3 s if it was dialled before
)
STRANGERS_MAX: Final = 128  # connections at a time that are not through their handshake
STRANGERS_SECONDS: Final = 10.0  # between two lines in the log about who was not let in
IN_VAIN_SECONDS: Final = 10.0  # who runs dials again before that
GONE: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)


class Stream(Protocol):
    """What is needed of a connection."""

    def send_now(self, buffers: Iterable[Buffer]) -> int: ...
    async def send_all(self, data: bytes) -> None: ...
    async def wait_send_all_might_not_block(self) -> None: ...
    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray: ...
    async def receive_into(self, buffer: memoryview) -> int: ...
    async def aclose(self) -> None: ...


class Neighbour(NamedTuple):
    id: int
    host: str
    port: int


class Up(NamedTuple):
    peer: int


class Down(NamedTuple):
    peer: int
    by_peer: bool = False  # it hung up, or its process is dead


class Heard(NamedTuple):
    peer: int
    messages: list[Message]  # none: a part of one


Event = Up | Down | Heard


class Mailbox(Protocol):
    """Where links put what happens."""

    def post(self, event: Event) -> None: ...

    async def bring(self, heard: Heard, size: int) -> None:
        """What came is worked off at once, unless a task is at it; waits for room."""
        ...


class Connection:
    """One that is through its handshake."""

    __slots__ = ("begun", "closed", "hello", "sending", "stream", "waits")

    def __init__(self, stream: Stream, hello: Hello, encoder: Encoder) -> None:
        self.stream, self.hello = stream, hello
        self.sending = Sending(encoder)
        self.begun = False  # the protocol knows of it
        self.waits = False  # a task waits until the socket takes more
        self.closed = False


class Links:
    def __init__(
        self,
        env: Env,
        own: Callable[[], Hello],
        secret: bytes,
        door: Door,
        neighbours: Mapping[int, Neighbour],
        standby: Mapping[int, Neighbour],
        mailbox: Mailbox,
        note: Note,
        timing: Timing,
    ) -> None:
        self._env, self._own, self._secret, self._door = env, own, secret, door
        self._neighbours, self._mailbox, self._note = neighbours, mailbox, note
        self._patience = min(timing.dial, HELLO_SECONDS_MAX)  # the other side has no more
        self._standby, self._standby_wanted = standby, trio.Event()
        self.refused: frozenset[int] = frozenset()
        self._admitted = trio.Event()  # somebody is refused no more
        self._connections: dict[int, Connection] = {}
        self._dirty: dict[int, None] = {}
        self._encoder = Encoder()
        self._nursery: trio.Nursery | None = None
        self._told: dict[int, str] = {}  # what goes wrong with a neighbour that is not linked
        self._in_vain: dict[
            int, tuple[float, str]
        ] = {}  # who dialled last when, and why for nothing
        self._strangers, self._strangers_told = 0, -STRANGERS_SECONDS
        self._unproven: dict[trio.abc.Stream, None] = {}  # the oldest first
        self.on_sent: Callable[[int], None] = lambda _peer: None  # it has room again

    @property
    def is_busy(self) -> bool:
        """Something has not gone out yet."""
        return any(not each.sending.is_empty for each in self._connections.values())

    def linked(self) -> dict[int, Hello]:
        return {peer: each.hello for peer, each in self._connections.items()}

    async def run(
        self, port: int, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listens, dials and keeps links, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            listening = await nursery.start(self._env.net.serve, self._accept, port)
            for neighbour in self._neighbours.values():
                if self._door.id < neighbour.id:
                    nursery.start_soon(self._keep_dialling, neighbour)
            for neighbour in self._standby.values():
                if self._door.id < neighbour.id:
                    nursery.start_soon(self._keep_dialling, neighbour, True)
            task_status.started(listening)

    # -- what the bridge says ---------------------------------------------------------------

    def begin(self, peer: int) -> None:
        """Its Up was heard.  What is said before is meant for the connection before, and is lost with that."""
        if (connection := self._connections.get(peer)) is not None:
            connection.begun = True

    def put(self, peer: int, message: Message) -> None:
        """Goes out with the next flush; lost, if the link is not up."""
        connection = self._connections.get(peer)
        if connection is not None and connection.begun:
            connection.sending.put(message)
            self._dirty[peer] = None

    def trouble(self, peer: int) -> str:
        """What went wrong when it was dialled last, or when it dialled; empty: nothing, or it does not.

        Of who dials here anybody may have said that it is this one: it is not let in, after all.
        """
        if told := self._told.get(peer):
            return told
        when, why = self._in_vain.get(peer, (-IN_VAIN_SECONDS, ""))
        is_told = trio.current_time() < when + IN_VAIN_SECONDS
        return f"it dialled in vain: {why}" if why and is_told else ""

    def waiting_bytes(self, peer: int) -> int:
        connection = self._connections.get(peer)
        return 0 if connection is None else connection.sending.bulk_bytes

    def flush(self) -> None:
        """Sends what the sockets take of all that was put since the last time."""
        dirty, self._dirty = self._dirty, {}
        for peer in dirty:
            connection = self._connections.get(peer)
            if connection is None:
                continue
            if connection.sending.most_bytes > OUTPUT_BYTES_MAX:
                queued = connection.sending.bulk_bytes
                self._note(WARNING, "link_too_slow peer=%d queued=%d", peer, queued)
                self._close(peer, connection)
            elif not connection.waits:
                self._flush(peer, connection)

    def hang_up(self, peer: int, why: str) -> None:
        connection = self._connections.get(peer)
        if connection is not None:
            self._note(INFO, "link_lost peer=%d error=%s", peer, why)
            self._close(peer, connection)

    def refuse(self, peers: frozenset[int]) -> None:
        """No link with these, until it is said again for which."""
        for peer in sorted(peers - self.refused):
            self.hang_up(peer, "the link is cut by command")
        if self.refused - peers:
            self._admitted.set()
            self._admitted = trio.Event()
        self.refused = peers

    def dial_standby(self, wanted: bool) -> None:
        """Whether standby links are to be there (F12); who dials them hangs them up again."""
        if wanted:
            self._standby_wanted.set()
        elif self._standby_wanted.is_set():
            self._standby_wanted = trio.Event()
            for peer in self._standby:
                if self._door.id < peer:
                    self.hang_up(peer, "it is not needed any more")

    def _flush(self, peer: int, connection: Connection) -> None:
        sending = connection.sending
        had_no_room, connection.waits = connection.waits or sending.bulk_bytes > 0, False
        try:
            while not connection.closed and (out := sending.fill()):
                count = connection.stream.send_now(out)
                sending.sent(count)
                if not count:
                    connection.waits = True
                    self._spawn(self._send_on, peer, connection)
                    return
            if had_no_room:
                self.on_sent(peer)
        except GONE:
            self._close(peer, connection, by_peer=True)
        except LimitExceeded as error:
            self._note(WARNING, "message_too_large peer=%d error=%s", peer, error)
            self._close(peer, connection)

    async def _send_on(self, peer: int, connection: Connection) -> None:
        try:
            await connection.stream.wait_send_all_might_not_block()
        except GONE:
            self._close(peer, connection, by_peer=True)
            return
        if not connection.closed:
            self._flush(peer, connection)

    # -- connections ------------------------------------------------------------------------

    async def _keep_dialling(self, neighbour: Neighbour, standby: bool = False) -> None:
        delay = RETRY_SECONDS_MIN
        while True:
            if standby:
                await self._standby_wanted.wait()
            while neighbour.id in self.refused:
                await self._admitted.wait()
            was_up = False
            try:
                with trio.fail_after(self._patience):
                    stream = await self._env.net.connect(neighbour.host, neighbour.port)
            except (OSError, trio.TooSlowError) as error:
                self._failed(INFO, "dial_failed peer=%s error=%s", neighbour.id, error)
            else:
                was_up = await self._serve(stream, Role.DIALLER, neighbour.id)
            delay = RETRY_SECONDS_MIN if was_up else min(2 * delay, RETRY_SECONDS_MAX)
            await trio.sleep(delay * (0.5 + self._env.rng.random()))

    async def _accept(self, stream: trio.abc.Stream) -> None:
        """Where strangers crowd the oldest goes: a neighbour is through before it is that."""
        self._unproven[stream] = None
        try:
            if len(self._unproven) > STRANGERS_MAX:
                oldest = next(iter(self._unproven))
                del self._unproven[oldest]
                await trio.aclose_forcefully(oldest)
            await self._serve(stream, Role.LISTENER, None)
        finally:
            self._unproven.pop(stream, None)

    async def _serve(self, given: trio.abc.Stream, role: Role, expected: int | None) -> bool:
        """From the handshake to the end of the connection; False: it did not come to a link."""
        stream: Stream = given  # type: ignore[assignment]  # those of an Env can do more
        reader = FrameReader()
        patience = HELLO_SECONDS_MAX if role is Role.LISTENER else self._patience
        try:
            with trio.fail_after(patience):
                hello = await self._shake(stream, reader, role, expected)
        except DuckrowError as error:
            self._failed(WARNING, "link_refused peer=%s error=%s", expected, error)
            await _aclose(stream)
            return False
        except (*GONE, trio.TooSlowError) as error:
            self._failed(INFO, "handshake_failed peer=%s error=%s", expected, error)
            await _aclose(stream)
            return False
        peer, connection = hello.id, Connection(stream, hello, self._encoder)
        self._unproven.pop(given, None)
        standby = role is Role.DIALLER and peer in self._standby
        if peer in self.refused or (standby and not self._standby_wanted.is_set()):
            await _aclose(stream)
            return False
        self.hang_up(peer, "there is a new connection with it")
        self._connections[peer] = connection
        self._mailbox.post(Up(peer))
        self._told.pop(peer, None)
        self._in_vain.pop(peer, None)
        self._note(INFO, "link_up peer=%d incarnation=%d", peer, hello.incarnation)
        why = "it hung up"
        try:
            try:
                await self._receive(peer, connection, reader)
            except (*GONE, Disconnected) as error:
                why = str(error)
            if not connection.closed:
                self._note(INFO, "link_lost peer=%d error=%s", peer, why)
            self._close(peer, connection, by_peer=True)
        except (Corrupt, LimitExceeded) as error:
            self._note(WARNING, "link_broken peer=%d error=%s", peer, error)
        finally:
            self._close(peer, connection)
        return True

    def _failed(self, level: int, template: str, expected: int | None, error: Exception) -> None:
        """What goes wrong with a neighbour is told once, until something else does, or a link is up.
        Strangers can be anybody, and many: of them one is told now and then.
        """
        if expected is not None:
            if self._told.get(expected) != (text := str(error)):
                self._told[expected] = text
                self._note(level, template, expected, text)
            return
        self._strangers += 1
        now = trio.current_time()
        if now >= self._strangers_told + STRANGERS_SECONDS:
            self._note(WARNING, "stranger_refused count=%d error=%s", self._strangers, error)
            self._strangers, self._strangers_told = 0, now

    async def _shake(
        self, stream: Stream, reader: FrameReader, role: Role, expected: int | None
    ) -> Hello:
        own = self._own()
        handshake = Handshake(role, own, self._secret, self._door)
        try:
            if start := handshake.start():
                await stream.send_all(start)
            while handshake.peer is None:
                frame = reader.next_frame()
                if frame is None:
                    data = await stream.receive_some(reader.wanted)
                    if not data:
                        raise Disconnected("the other side hung up in the middle of the handshake")
                    reader.receive_data(data)
                elif answer := handshake.receive(frame):
                    await stream.send_all(answer)
        except DuckrowError as error:
            if not isinstance(error, Disconnected):
                peer = handshake.claimed
                if role is Role.LISTENER and peer is not None and self._is_to_dial(peer):
                    self._in_vain[peer] = trio.current_time(), str(error)
                await stream.send_all(refusal(error))
            raise
        if expected is not None and handshake.peer.id != expected:
            raise Corrupt(f"node {handshake.peer.id} answers where node {expected} should be")
        reader.accept_hello()
        return handshake.peer

    def _is_to_dial(self, peer: int) -> bool:
        return peer < self._door.id and (peer in self._neighbours or peer in self._standby)

    async def _receive(self, peer: int, connection: Connection, reader: FrameReader) -> None:
        stream, mailbox, decoder = connection.stream, self._mailbox, Decoder()
        came = False
        while not connection.closed:
            messages: list[Message] = []
            size = 0
            while (frame := reader.next_frame()) is not None:
                messages.append(decoder.decode(frame))
                size += len(frame.body)
            if (messages or came) and not connection.closed:
                await mailbox.bring(Heard(peer, messages), size)
            came = await receive(stream, reader)
            if not came:
                return

    def _close(self, peer: int, connection: Connection, *, by_peer: bool = False) -> None:
        """The bridge hears of it once, before it hears of another connection with that peer."""
        if connection.closed:
            return
        connection.closed = True
        if self._connections.get(peer) is connection:
            del self._connections[peer]
            self._mailbox.post(Down(peer, by_peer))
        self._spawn(_aclose, connection.stream)

    def _spawn(self, work: Callable[..., object], *args: object) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(work, *args)  # type: ignore[arg-type]


async def _aclose(stream: Stream) -> None:
    await trio.aclose_forcefully(stream)  # type: ignore[arg-type]
