"""Bare relays: programs of trio without duckrow, one behind the other, the yardstick of chains.

    here ──► relay ──► relay ──► echo        a round trip
    here ──► relay ──► relay ──► listener    one way; the listener notes how long each took

Each passes on what it receives, in both directions, and knows nothing else.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from duckrow.cluster.plan import HOST
from duckrow.cluster.relays import RELAY

LISTENER: Final = """
import json, socket, struct, sys, time
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    sock = listener.accept()[0]
found = []
for _ in range(int(sys.argv[1])):
    told = sock.recv(8, socket.MSG_WAITALL)
    found.append(time.monotonic_ns() - struct.unpack("<Q", told)[0])
print(json.dumps(found), flush=True)
"""


@contextmanager
def relays(count: int, end: int | None = None) -> Iterator[socket.socket]:
    """A connection through so many of them; the last one sends back what it gets, or passes it on to the
    port `end`.
    """
    with ExitStack() as running:
        behind = [] if end is None else [HOST, str(end)]
        for _ in range(count):
            behind = [HOST, str(running.enter_context(program(RELAY, HOST, *behind))[1])]
        sock = running.enter_context(socket.create_connection((HOST, int(behind[1]))))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sock


@contextmanager
def program(text: str, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """One that says its port first."""
    with subprocess.Popen(
        [sys.executable, "-c", text, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()
