"""Bare programs on the machines of a cluster: what its figures are compared with.

    client ──► relay at m1 ──wire──► relay at m2 ──wire──► relay at m3 ──► echo
           ◄──             ◄──────                ◄──────              ◄──

Each relay passes on what it receives, in both directions, and knows nothing else; the echo has to have all
of a message before it sends it back, as a client has.  The wires are as those of the cluster are now; in
namespaces the relays are where the machines are, and their packets go the same way.

The programs belong to a guard of their own (guard.py), so none outlives whoever measures.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Self

import attrs

from duckrow.node.clusterfile import Pair
from duckrow.node.errors import Refused

from .asking import ask, until
from .local import LocalCluster
from .machine import Machine
from .plan import HOST, PEERS, Wires, address_of
from .ports import free_ports
from .processes import Processes, is_there, python

START_SECONDS: Final = 60.0
PATIENCE: Final = 30.0  # for one message
ANY: Final = "0.0.0.0"
READY: Final = "ready"

RELAY: Final = """
import sys, trio
host, behind = sys.argv[1], sys.argv[2:]
async def pump(source, target):
    async for data in source:
        await target.send_all(data)
async def relay(stream):
    if not behind:
        return await pump(stream, stream)
    target = await trio.open_tcp_stream(behind[0], int(behind[1]))
    for each in (stream, target):
        each.setsockopt(6, 1, 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pump, stream, target)
        nursery.start_soon(pump, target, stream)
async def main():
    listeners = await trio.open_tcp_listeners(0, host=host)
    print(listeners[0].socket.getsockname()[1], flush=True)
    await trio.serve_listeners(relay, listeners)
trio.run(main)
"""

ECHO: Final = """
import socket, sys
size = int(sys.argv[2])
with socket.create_server((sys.argv[1], 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    sock = listener.accept()[0]
sock.setsockopt(6, 1, 1)
while len(got := sock.recv(size, socket.MSG_WAITALL)) == size:
    sock.sendall(got)
"""


class Wire(NamedTuple):
    at: int  # a port
    behind: int  # the port that it leads to
    how: Wires


class Programs:
    """Those that were started here, and end with this."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._names = folder, list[str]()
        self._processes = Processes(folder)

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[Self]:
        random_name = f"duckrow-measure-{random.SystemRandom().randbytes(8).hex()}"
        found = cls(Path(tempfile.gettempdir(), random_name))
        with ExitStack() as owned:
            found._processes.guard(owned)
            yield found

    def start(self, words: Sequence[str]) -> str:
        """The first line that it says: that it is ready, or its port.

        Raises:
            Refused: it says something else, or nothing, and ends.
            Timeout.
        """
        log = self._named("log")
        pid = self._processes.start(words, log)
        until(
            lambda: "\n" in _read(log) or not is_there(pid),
            START_SECONDS,
            lambda: f"a program of the measurement says nothing: {' '.join(words[:4])}",
        )
        said = _read(log)
        first = said.partition("\n")[0]
        if first != READY and not first.isdecimal():
            why = said.strip() or f"it said nothing; is there room in {self._folder}?"
            raise Refused(f"a program of the measurement has ended: {why}")
        return first

    def wires(self, links: Mapping[Pair, Wire]) -> None:
        path = self._named("wires.sock")
        listed = [[*pair, wire.at, wire.behind] for pair, wire in links.items()]
        told = json.dumps({**attrs.asdict(Wires()), "links": listed})
        self.start(python("duckrow.cluster.wire", path.name, told))
        for pair, wire in links.items():
            ask(self._folder, path.name, {"links": attrs.asdict(wire.how), "between": pair})

    def _named(self, name: str) -> Path:
        """A file of which nothing is left."""
        self._names.append(f"{len(self._names)}-{name}")
        self._processes.own(self._names)
        return self._folder / self._names[-1]


@contextmanager
def relayed(
    programs: Programs, cluster: LocalCluster, path: Sequence[Machine], size: int
) -> Iterator[socket.socket]:
    """A connection along these machines to an echo of messages of that size."""
    block, wires = cluster.told.block, dict[Pair, Wire]()
    free = iter(free_ports(len(path) - 1))
    inside = ANY if block else HOST  # where a relay listens; a namespace is reached by two networks
    host = address_of(block, path[-1].id, host=True) if block else HOST
    behind = [host, programs.start(text(ECHO, host, str(size)))]
    for machine, before in zip(reversed(path), [*reversed(path[:-1]), None], strict=True):
        port = programs.start([*cluster.inside(machine), *text(RELAY, inside, *behind)])
        behind = [f"{PEERS}.{machine.id}" if block else HOST, port]
        if before is not None and cluster.plan.has_wires and not block:
            how = cluster.link_between(before.name, machine.name)
            wire = Wire(next(free), int(port), how)
            wires[before.id, machine.id] = wire
            behind = [HOST, str(wire.at)]
    if wires:
        programs.wires(wires)
    first = address_of(block, path[0].id) if block else HOST
    with socket.create_connection((first, int(port)), PATIENCE) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sock


def text(program: str, *words: str) -> list[str]:
    return [sys.executable, "-c", program, *words]


def _read(log: Path) -> str:
    return log.read_text("utf-8", "replace") if log.exists() else ""
