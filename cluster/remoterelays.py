"""The relays of relays.py on machines elsewhere: their agents start them, and each ends with its connection.

    client here ──► relay at m1 ──► relay at m2 ──► relay at m3 ──► echo

They listen at ports that are free, so machines that are measured have to reach each other at any port.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from duckrow.node.addresses import Tcp, read_url
from duckrow.node.errors import Disconnected

from .relays import PATIENCE
from .remote import RemoteMachine


@contextmanager
def relayed_elsewhere(path: Sequence[RemoteMachine], size: int) -> Iterator[socket.socket]:
    """A connection along these machines to an echo of messages of that size.

    Raises:
        Disconnected: a relay is not reached, there or from here.
        DuckrowError: it cannot be started; says why, and at which machine.
    """
    with ExitStack() as owned:
        port = started(owned, path[-1], "mirror", str(size))
        behind = path[-1].host
        for machine in reversed(path):
            port = started(owned, machine, "relay", behind, port)
            behind = machine.host
        near = read_url(path[0].url)[0]
        assert isinstance(near, Tcp)
        try:
            sock = owned.enter_context(socket.create_connection((near.host, int(port)), PATIENCE))
        except OSError as error:
            raise Disconnected(
                f"the relay at {path[0].name} is not reached at {near.host}:{port}: {error}; relays "
                "listen at free ports, which must not be filtered while they are measured"
            ) from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sock


def started(owned: ExitStack, machine: RemoteMachine, program: str, *words: str) -> str:
    """What it says first: see agent.py."""
    asked = {"do": "measure", "program": program, "words": words}
    return str(machine.connection(owned).ask(asked)["said"])
