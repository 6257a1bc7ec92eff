"""The server: all sessions of a node, and what they share.

One nursery holds the tasks of all sessions; a session has none of its own, so that ten thousand
idle ones stay small.  After each turn of the keeper everything that it has answered goes out, one
write for each session.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

import attrs
import trio

from . import frames, requests
from .env import Peer
from .errors import DiskFailed, NoQuorum, Refused, Timeout, UnknownVersion
from .events import ERROR, INFO, WARNING, Note, unheard
from .keeper import Keeper
from .limits import (
    CLIENT_BYTES_MAX,
    CLIENT_REQUESTS_MAX,
    CONNECTIONS_MAX,
    ENTRY_BYTES_MAX,
    HOST_CONNECTIONS_MAX,
)
from .looks import Looks
from .output import GONE, Output
from .requests import Hello, Welcome
from .session import Session, Stream

HASH_SHARE: Final = 0.1  # of the time may go into hashes of the state, however often they are asked
DRAIN_LOOK_SECONDS: Final = 0.01

Space = Callable[[], tuple[int, int]]  # bytes that are free on the disk, and that it has


@attrs.frozen(kw_only=True)
class ServerOptions:
    name: str = "m1"
    version: str = "0"
    token: str = ""  # of clients that come over TCP; empty: none is asked for
    connections_max: int = CONNECTIONS_MAX
    host_connections_max: int = HOST_CONNECTIONS_MAX  # of each other machine


class Server:
    def __init__(
        self, node: Keeper, options: ServerOptions, space: Space, note: Note = unheard
    ) -> None:
        self.node = node
        self.looks = Looks(node.reader)
        self.options = options
        self.sessions: dict[int, Session] = {}
        self.stopping = False
        self.count = 0  # of sessions since the start
        self.refused = 0  # for there were too many
        self.broken = 0  # ended by us, since they broke the rules
        self._requests = 0  # of sessions that have ended
        self.note = note
        self.space = space
        self._of_host: Counter[str] = Counter()  # sessions
        self._nursery: trio.Nursery | None = None
        self._ended = False
        self.ready: dict[Output, None] = {}  # those that have something to send
        self._ordering: Session | None = None  # who ordered last
        self._hash = _Hash()
        node.on_turn = self.flush
        node.on_missing = self._give_back
        node.pins.on_trouble = self._archive

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; `handle` works as long as this runs.

        Raises:
            DiskFailed, UnknownVersion: in a group; the process has to end.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._ended = True  # the keeper may answer once more before the sessions are gone

    async def handle(self, stream: trio.abc.Stream) -> None:
        """Serves one client."""
        connection = cast(Stream, stream)
        peer = peer_of(stream)
        if (refusal := self._too_many(peer)) is not None:
            self.refused += 1
            facts = len(self.sessions), peer.address
            self.note(WARNING, "too_many_clients connections=%d client=%s", *facts)
            self._refuse(connection, refusal)
            await trio.aclose_forcefully(stream)
            return
        self.count += 1
        session = Session(self, connection, peer, self.count)
        self.sessions[session.number] = session
        self._of_host[peer.host] += 1
        try:
            await session.run()
        finally:
            del self.sessions[session.number]
            self._of_host[peer.host] -= 1
            if not self._of_host[peer.host]:
                del self._of_host[peer.host]
            self._requests += session.requests
            if self._ordering is session:
                self._ordering = None
            await trio.aclose_forcefully(stream)

    @property
    def requests(self) -> int:
        """Of all sessions since the start."""
        return self._requests + sum(each.requests for each in self.sessions.values())

    @property
    def queued(self) -> int:
        """Bytes that clients have not taken yet."""
        return sum(each.queued for each in self.sessions.values())

    @property
    def durability(self) -> str:
        """As the view has it: an operator may have changed it since the start (N8)."""
        view = self.node.state.view
        return self.node.row.store.options.level if view is None else view.durability

    def stop(self) -> None:
        """New orders are refused from here on, and nobody waits for entries; what was taken is
        answered.
        """
        self.stopping = True
        for session in self.sessions.values():
            session.stop()

    async def drain(self) -> None:
        """Until everybody has got all answers."""
        while any(session.is_busy for session in self.sessions.values()):
            await trio.sleep(DRAIN_LOOK_SECONDS)

    def _too_many(self, peer: Peer) -> NoQuorum | None:
        options = self.options
        if len(self.sessions) >= options.connections_max:
            return NoQuorum(
                f"this node serves {options.connections_max:,} clients already: end some, or raise "
                "node.connections and the limit of open files"
            )
        if peer.host and self._of_host[peer.host] >= options.host_connections_max:
            count = options.host_connections_max
            return NoQuorum(
                f"this node serves {count:,} clients of {peer.host} already: end some, or raise "
                "node.host_connections"
            )
        return None

    def _refuse(self, stream: Stream, error: NoQuorum) -> None:
        try:
            stream.send_now(frames.encode(requests.failure(0, error)))
        except GONE:
            pass

    # -- for sessions -----------------------------------------------------------------------------

    def admit(self, hello: Hello, peer: Peer) -> None:
        """
        Raises:
            Refused, NoQuorum: it is not let in; says why.
        """
        if hello.version != requests.VERSION:
            raise Refused(
                f"this node speaks version {requests.VERSION} of the protocol, and the client "
                f"version {hello.version}"
            )
        token = self.options.token
        if (
            token
            and not peer.trusted
            and not hmac.compare_digest(token.encode(), hello.token.encode())
        ):
            raise Refused("the token is missing or wrong: give it as token=, or in DUCKROW_TOKEN")
        self.refuse_if_stopping()

    def refuse_if_stopping(self) -> None:
        """
        Raises:
            NoQuorum: nothing new is taken any more.
        """
        if self.stopping:
            raise NoQuorum("this node is stopping")

    def refuse_if_witness(self) -> None:
        """
        Raises:
            Refused: there is nothing to be read here, ever.
        """
        if self.node.row.is_witness:
            text = f"{self.options.name} is a witness, which keeps no row: ask another machine"
            raise Refused(text, witness=self.options.name)

    def _why(self, missing: Sequence[str]) -> str:
        if self.node.row.broken:
            return str(self.node.row.broken)
        if self.node.row.is_witness:
            return "it is a witness: it votes, and keeps no row"
        return self._unreached(missing) if missing else ""

    def no_quorum(self, missing: Sequence[str]) -> NoQuorum:
        return NoQuorum(f"{self.options.name} can order nothing: {self._unreached(missing)}")

    def _unreached(self, missing: Sequence[str]) -> str:
        view = self.node.state.view
        least = 1 if view is None else view.min_copies
        copies = f", and {least} copies are the least that may be" if least > 1 else ""
        return f"it does not reach {and_(missing)}{copies}"

    def _give_back(self) -> None:
        """Who waits for the order should look for it elsewhere: it is not known when it goes on here."""
        why = self.no_quorum(self.node.row.missing)
        error = Timeout(f"whether it is ordered is not known: {why}")
        for session in self.sessions.values():
            session.give_back(error)

    def _archive(self, trouble: str) -> None:
        level = WARNING if trouble else INFO
        self.note(level, "archive place=%s trouble=%s", self.node.pins.place, trouble or "none")

    def welcome(self) -> Welcome:
        view = self.node.state.view
        return Welcome(
            requests.VERSION,
            self.options.name,
            view.lineage if view else 0,
            view.cluster if view else b"",
            self.node.state.position,
            {
                "requests": CLIENT_REQUESTS_MAX,
                "bytes": CLIENT_BYTES_MAX,
                "entry": ENTRY_BYTES_MAX,
            },
        )

    async def told(self) -> dict[str, Any]:
        """What `duckrow status` shows, of other machines, too."""
        peers = await self.node.row.told()
        status = self._status(*await self._hash.of(self.node))
        for name in ("links", "waiting_for", "backlog", "staged", "damaged"):
            if name in peers:
                status[name] = peers[name]
        if nodes := peers.get("nodes"):
            status["peers"] = nodes
            names = {node["id"]: node["name"] for node in nodes}
            for member in status["members"]:
                member["name"] = names.get(member["id"], str(member["id"]))
        return status

    def _status(self, hashed: int, hash_: bytes) -> dict[str, Any]:
        """What this node knows of itself."""
        node = self.node
        row = node.row.status()
        view = node.state.view
        free, size = self.space()
        return {
            "node": self.options.name,
            "version": self.options.version,
            "view": row.view,
            "members": [{"id": member.id, "weight": member.weight} for member in view.members]
            if view
            else [],
            "lineage": view.lineage if view else 0,
            "position": node.state.position,
            "durable": row.durable,
            "state_hash": hash_.hex(),
            "hashed": hashed,
            "ready": True,
            "active": row.active,
            "why": self._why(row.missing),
            "level": self.durability,
            "topics": len(node.state.topics),
            "clients": len(self.sessions),
            "links": [],
            "waiting_for": [],
            "disk": {"state": row.disk, "free": free, "size": size},
            "archive": node.pins.told(),
        }

    def spawn(self, task: Callable[..., Awaitable[None]], *args: Any) -> None:
        assert self._nursery is not None, "the server does not run"
        if not self._ended:
            self._nursery.start_soon(self._guarded, task, *args)

    async def _guarded(self, task: Callable[..., Awaitable[None]], *args: Any) -> None:
        try:
            await task(*args)
        except (DiskFailed, UnknownVersion):
            raise
        except Exception as error:  # noqa: BLE001 - a defect in one request; others go on
            self.note(ERROR, "request_failed error=%r", error, exc_info=error)

    def order(self, session: Session) -> bool:
        """What the session has submitted for later goes on.  Whoever ordered last, too, is alone, and
        need not wait for others to share his bundle: see `Keeper.go_on`.
        """
        alone, self._ordering = session is self._ordering, session
        return self.node.go_on(alone=alone)

    def flush(self) -> None:
        """Sends what was answered."""
        ready = self.ready
        while ready:
            ready.popitem()[0].flush()


class _Hash:
    """The hash of the state, which costs as much as reading all of it, as of a recent position."""

    def __init__(self) -> None:
        self._position, self._value = -1, b""
        self._not_before = 0.0
        self._making = trio.Lock()

    async def of(self, node: Keeper) -> tuple[int, bytes]:
        """A position, and the hash of the state there."""
        async with self._making:
            began = trio.current_time()
            if self._position != node.state.position and began >= self._not_before:
                self._position, self._value, took = await node.hashed()
                self._not_before = trio.current_time() + took / HASH_SHARE
            return self._position, self._value


def and_(names: Sequence[str]) -> str:
    """As one says it."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def peer_of(stream: trio.abc.Stream) -> Peer:
    found = getattr(stream, "peer", None)
    return found if isinstance(found, Peer) else Peer("simulated", trusted=True)
