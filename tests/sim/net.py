"""TCP in memory: reliable, ordered streams of bytes between named hosts, with seeded trouble.

It shows what an application sees of a bad network through TCP, and nothing else:

- delay and jitter of each direction; loss, which is a stall (a retransmission after a timeout);
- any segmentation, on sending, and any joining, on receiving;
- back-pressure: what was sent and not yet read by the peer fills a window;
- resets in the middle; a fin after the data; a reset for data that nobody will read any more;
- silence: a cut link, or a host without power.  Cuts are one-way; two of them are a partition;
- connects that are refused (no listener) or time out (silence);
- keep-alive: whoever dialled notices a silent machine after a while, though he sends nothing.

A link never drops, doubles or reorders within a stream, for TCP does not.  Messages held by a cut
arrive after it is healed, as retransmissions do; a host that lost power answers them with a reset
once it runs again.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs
import trio

from duckrow.node.env import Handler

from .clock import sleep
from .park import Pulse
from .stream import SimStream

if TYPE_CHECKING:
    from .park import Life
    from .world import Host, World

WINDOW = 256 * 1024  # bytes sent and not read by the peer
NOTICE_SECONDS = 11.0  # without a word from the other machine; then whoever dialled hangs up
RTO = 0.2  # seconds, doubled with each loss up to RTO_MAX
RTO_MAX = 3.0
SYN_TRIES = 5
FIRST_EPHEMERAL_PORT = 32768


@attrs.define
class Link:
    """One direction between two hosts."""

    cut: bool = False
    delay: float = 0.0003
    jitter: float = 0.0002  # mean of an exponential draw on top of delay
    loss: float = 0.0  # probability that a segment has to be sent again
    held: list[SimStream] = attrs.field(factory=list)  # one for each arrival while it was cut

    def calm(self) -> None:
        self.delay, self.jitter, self.loss = 0.0003, 0.0002, 0.0


class Net:
    """All links and connections of the world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng("net")
        self.window = WINDOW  # of connections to come
        self.split = 0.02  # probability that a send goes in smaller segments
        # By then what was sent has arrived, and all who dialled have noticed who is dead.
        self.settled_at = 0.0
        self.counts = {"segments": 0, "stalls": 0, "resets": 0, "dials": 0}
        self._links: dict[tuple[str, str], Link] = {}
        self._streams: dict[SimStream, None] = {}

    def link(self, source: str, target: str) -> Link:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link()
        return link

    # -- faults ---------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """One way; nothing arrives until `heal`."""
        self.link(source, target).cut = True

    def partition(self, side: Iterable[str], other: Iterable[str]) -> None:
        """Nobody of one side reaches anybody of the other, both ways."""
        others = list(other)
        for one in side:
            for two in others:
                self.cut(one, two)
                self.cut(two, one)

    def isolate(self, name: str) -> None:
        self.partition([name], [other for other in self.world.hosts if other != name])

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """One direction; or all, without names: what was held arrives, as retransmissions do."""
        if source is None or target is None:
            for pair in list(self._links):
                self.heal(*pair)
            return
        link = self.link(source, target)
        link.cut = False
        held, link.held = link.held, []
        for stream in held:
            self._schedule(link, stream)

    def calm(self) -> None:
        """No cuts, no loss, short delays."""
        for link in self._links.values():
            link.calm()
        self.heal()

    def trouble(self, name: str, *, loss: float = 0.0, delay: float | None = None) -> None:
        """A bad cable: all links of one host, both ways."""
        for other in self.world.hosts:
            for pair in ((name, other), (other, name)):
                link = self.link(*pair)
                link.loss = loss
                if delay is not None:
                    link.delay = link.jitter = delay

    def reset_some(self, probability: float, *ends: str) -> int:
        """Resets in the middle of whatever is going on, as of a router that forgot its table.

        `ends`: only between these two hosts.
        """
        count = 0
        for stream in list(self._streams):
            if ends and {stream.host.name, stream.peer.host.name} != {*ends}:
                continue
            if not stream.closed and not stream.broken and self.rng.random() < probability:
                stream.break_off()
                stream.peer.break_off()
                count += 1
        self.counts["resets"] += count
        return count

    # -- for streams and hosts ------------------------------------------------------------

    def send(self, source: SimStream, kind: str, data: bytes) -> None:
        link = self.link(source.host.name, source.peer.host.name)
        self.counts["segments"] += 1
        source.flight.append((kind, data))
        self._schedule(link, source)

    def forget(self, stream: SimStream) -> None:
        self._streams.pop(stream, None)

    def host_ended(self, host: Host, *, silent: bool) -> None:
        """A kernel that lives on resets the connections of a dead process; a dark one is silent."""
        for stream in list(self._streams):
            if stream.host is host:
                self._streams.pop(stream, None)
                if not silent:
                    self.send(stream, "reset", b"")
                elif stream.peer.dialled:
                    noticed_at = self.world.clock.now + NOTICE_SECONDS
                    self.settled_at = max(self.settled_at, noticed_at)
                    self.world.clock.call_at(noticed_at, self._notice, stream.peer)
                stream.broken = True

    def host_started(self, host: Host) -> None:
        """Retransmissions into the dark reach a kernel that knows nothing of them."""
        unanswered, host.unanswered = host.unanswered, []
        for stream in unanswered:
            self._refuse(stream)

    def _notice(self, stream: SimStream) -> None:
        if not stream.closed and not stream.broken and stream.life.alive:
            stream.break_off()

    async def connect(self, host: Host, life: Life, target: str, port: int) -> SimStream:
        await life.gate()
        self.counts["dials"] += 1
        there, back = self.link(host.name, target), self.link(target, host.name)
        other = self.world.hosts.get(target)
        for attempt in range(SYN_TRIES):
            await sleep(self._delay(there) + self._delay(back))
            await life.gate()
            other = self.world.hosts.get(target)
            if other is not None and other.powered and not there.cut and not back.cut:
                break
            await sleep(min(2**attempt, 8))
        else:
            raise OSError(errno.ETIMEDOUT, f"simulated: connecting to {target}:{port} timed out")
        await life.gate()
        listener = other.listeners.get(port)
        if listener is None:
            text = f"simulated: {target} refused a connection to port {port}"
            raise ConnectionRefusedError(errno.ECONNREFUSED, text)
        near, far = SimStream(self, host, life), SimStream(self, other, other.life)
        near.peer, far.peer = far, near
        near.dialled = True
        self._streams[near] = self._streams[far] = None
        listener.backlog.append(far)
        listener.arrived.fire()
        self.world.note("dial", host.name, target, port)
        return near

    def _delay(self, link: Link) -> float:
        rng = self.rng
        delay = link.delay + rng.expovariate(1.0) * link.jitter
        rto = RTO
        while link.loss and rng.random() < link.loss:
            delay += rto
            rto = min(rto * 2, RTO_MAX)
            self.counts["stalls"] += 1
        return delay

    def _schedule(self, link: Link, source: SimStream) -> None:
        clock = self.world.clock
        when = max(source.last_arrival, clock.now + self._delay(link))
        source.last_arrival = when
        self.settled_at = max(self.settled_at, when)
        clock.call_at(when, self._arrive, link, source)

    def _arrive(self, link: Link, source: SimStream) -> None:
        if link.cut:
            link.held.append(source)
            return
        kind, data = source.flight.popleft()
        target = source.peer
        if target.life.alive and not target.closed and not target.broken:
            self.world.trace.add((kind, source.host.name, target.host.name, len(data)))
            target.arrive(kind, data)
        elif kind != "reset" and not source.broken and not source.closed:
            if target.host.powered:
                self._refuse(source)
            else:
                target.host.unanswered.append(source)

    def _refuse(self, source: SimStream) -> None:
        """The kernel over there knows no such connection."""
        self.counts["resets"] += 1
        self.send(source.peer, "reset", b"")


class Listener:
    def __init__(self) -> None:
        self.backlog: deque[SimStream] = deque()
        self.arrived = Pulse()


class SimNet:
    """`Env.net` of one process."""

    def __init__(self, host: Host, life: Life) -> None:
        self._host, self._life = host, life

    async def connect(self, host: str, port: int) -> SimStream:
        return await self._host.world.net.connect(self._host, self._life, host, port)

    async def serve(
        self,
        handler: Handler,
        port: int,
        *,
        task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        host, life = self._host, self._life
        await life.gate()
        await trio.lowlevel.checkpoint()
        if port == 0:
            port = FIRST_EPHEMERAL_PORT
            while port in host.listeners:
                port += 1
        if port in host.listeners:
            raise OSError(errno.EADDRINUSE, f"simulated: port {port} of {host.name} is in use")
        listener = host.listeners[port] = Listener()

        async def serve_one(stream: SimStream) -> None:
            try:
                await handler(stream)
            except Exception as error:  # noqa: BLE001 - a handler ends, never the server
                host.world.handler_failed(host, error)
            finally:
                stream.shut()

        try:
            async with trio.open_nursery() as nursery:
                task_status.started(port)
                while True:
                    while listener.backlog:
                        nursery.start_soon(serve_one, listener.backlog.popleft())
                    await listener.arrived.wait()
                    await life.gate()
        finally:
            if host.listeners.get(port) is listener:
                del host.listeners[port]
            for stream in listener.backlog:
                stream.shut()
