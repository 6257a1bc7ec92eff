"""Round trips through a cluster, and over bare relays along the same machines.

    client at m1   produce ──► topic "there" ──► pull    client at m3, a process of its own
                   pull    ◄── topic "back"  ◄── produce

A trip is over when the client at the near end has pulled what the far one produced, whole.  It waits for
no answer in between: that an entry can be pulled at another machine says more than the answer of the one
that took it.  Before the first trip both topics get an entry that is waited for, so that what keeps a machine
from taking entries, a full disk say, is told at once.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, Protocol

from duckrow.node.blocking import Client
from duckrow.node.errors import Corrupt, Disconnected, DuckrowError, Timeout

from .echo import FIRST
from .local import LocalCluster
from .processes import python
from .relays import Programs, relayed
from .remote import RemoteCluster
from .remoterelays import relayed_elsewhere, started

AnyCluster = LocalCluster | RemoteCluster
PATIENCE: Final = 30.0  # for one trip
_NUMBER_BYTES: Final = 8


class Way(Protocol):
    def trip(self, value: bytes) -> float:
        """There and back; seconds.

        Raises:
            Timeout: it did not come back.
            Corrupt: something else came back.
        """
        ...


def value_of(number: int, size: int) -> bytes:
    """The number at its end, as far as it has room."""
    return number.to_bytes(_NUMBER_BYTES, "big").rjust(size, b".")[-size:]


class Row:
    """Over topics."""

    def __init__(self, row: Client, there: str, back: str) -> None:
        self._row, self._there, self._back = row, there, back
        self._after: object = FIRST

    def trip(self, value: bytes) -> float:
        began = time.perf_counter()
        self._row.produce(self._there, value, wait="none")
        found = self._row.pull(self._back, self._after, wait=PATIENCE)
        took = time.perf_counter() - began
        self._after = found.after
        if not found:
            raise Timeout(f"an entry of {len(value)} bytes did not come back in {PATIENCE:g} s")
        if [entry.value for entry in found] != [value]:
            raise Corrupt("another entry came back than was sent")
        return took


class Relays:
    """Over bare relays."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def trip(self, value: bytes) -> float:
        found, size = bytearray(len(value)), 0
        began = time.perf_counter()
        self._sock.sendall(value)
        while size < len(found):
            some = self._sock.recv_into(memoryview(found)[size:])
            if not some:
                raise Disconnected("a relay hung up")
            size += some
        took = time.perf_counter() - began
        if found != value:
            raise Corrupt("something else came back over the relays than was sent")
        return took


@contextmanager
def ways(cluster: AnyCluster, near: str, far: str, size: int) -> Iterator[tuple[Row, Relays]]:
    """From one of these machines to the other; what is started for it ends with it, and its topics are gone."""
    there, back = (f"rtt-{time.time_ns()}-{name}" for name in ("there", "back"))
    with ExitStack() as owned:
        row = owned.enter_context(cluster.connect(near, timeout=PATIENCE))
        owned.callback(_forget, row, there, back)
        row.produce(there, b"")
        if isinstance(cluster, RemoteCluster):
            path = cluster.way(near, far)
            sock = owned.enter_context(relayed_elsewhere(path, size))
            started(owned, path[-1], "echo", cluster.token, there, back)
        else:
            programs = owned.enter_context(Programs.running())
            sock = owned.enter_context(relayed(programs, cluster, cluster.way(near, far), size))
            programs.start(python("duckrow.cluster.echo", cluster.url(far), there, back))
        yield Row(row, there, back), Relays(sock)


def _forget(row: Client, *topics: str) -> None:
    try:
        for topic in topics:
            if topic in row.topics():
                row.delete_topic(topic)
    except DuckrowError:
        pass  # what went wrong before that is told
