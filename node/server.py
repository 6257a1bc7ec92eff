"""The server: all sessions of a node, and what they share.

One nursery holds the tasks of all sessions; a session has none of its own, so that ten thousand
idle ones stay small.  After each turn of the keeper everything that it has answered goes out, one
write for each session.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from . import requests
from .capture import state_hash
from .env import Peer
from .errors import NoQuorum, Refused
from .keeper import Keeper
from .limits import CLIENT_BYTES_MAX, CLIENT_REQUESTS_MAX, CONNECTIONS_MAX, ENTRY_BYTES_MAX
from .requests import Hello, Welcome
from .session import Session

Space = Callable[[], tuple[int, int]]  # bytes that are free on the disk, and that it has


@attrs.frozen(kw_only=True)
class ServerOptions:
    name: str = "m1"
    version: str = "0"
    token: str = ""  # of clients that come over TCP; empty: none is asked for
    connections_max: int = CONNECTIONS_MAX


class Server:
    def __init__(self, node: Keeper, options: ServerOptions, space: Space) -> None:
        self.node = node
        self.options = options
        self.sessions: dict[int, Session] = {}
        self._space = space
        self.refused = 0  # connections, since the start
        self._count = 0
        self._nursery: trio.Nursery | None = None
        self._with_output: dict[Session, None] = {}
        self._stopping = False
        node.on_turn = self.flush

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; `handle` works as long as this runs."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    async def handle(self, stream: trio.abc.Stream) -> None:
        """Serves one client."""
        if len(self.sessions) >= self.options.connections_max:
            self.refused += 1
            await trio.aclose_forcefully(stream)
            return
        self._count += 1
        session = Session(self, stream, peer_of(stream), self._count)
        self.sessions[session.number] = session
        try:
            await session.run()
        finally:
            del self.sessions[session.number]
            self._with_output.pop(session, None)
            await trio.aclose_forcefully(stream)

    def stop(self) -> None:
        """New orders are refused from here on; what was taken is answered."""
        self._stopping = True

    async def drain(self) -> None:
        """Until everybody has got all answers."""
        while self.node.calls or any(session.queued for session in self.sessions.values()):
            await trio.sleep(0.01)

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
        if token and not peer.trusted and not hmac.compare_digest(token, hello.token):
            raise Refused("the token is missing or wrong: give it as token=, or in DUCKROW_TOKEN")
        if self._stopping:
            raise NoQuorum("this node is stopping")

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

    def status(self) -> dict[str, Any]:
        """What `duckrow status` shows of this node."""
        node = self.node
        row = node.row.status()
        view = node.state.view
        free, size = self._space()
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
            "state_hash": state_hash(node.state).hex(),
            "ready": True,
            "active": row.active,
            "why": str(node.row.broken) if node.row.broken else "",
            "level": node.row.store.options.level,
            "topics": len(node.state.topics),
            "clients": len(self.sessions),
            "links": [],
            "waiting_for": [],
            "disk": {"state": row.disk, "free": free, "size": size},
        }

    def spawn(self, task: Callable[..., Awaitable[None]], *args: Any) -> None:
        assert self._nursery is not None, "the server does not run"
        self._nursery.start_soon(task, *args)

    def has_output(self, session: Session) -> None:
        self._with_output[session] = None

    def flush(self) -> None:
        """Sends what was answered."""
        while self._with_output:
            session, _ = self._with_output.popitem()
            session.flush()


def peer_of(stream: trio.abc.Stream) -> Peer:
    found = getattr(stream, "peer", None)
    return found if isinstance(found, Peer) else Peer("simulated", trusted=True)
