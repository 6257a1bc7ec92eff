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

RELAY: Final = """
import sys, trio
async def pump(source, target):
    async for data in source:
        await target.send_all(data)
async def relay(stream):
    if len(sys.argv) == 1:
        return await pump(stream, stream)
    behind = await trio.open_tcp_stream("127.0.0.1", int(sys.argv[1]))
    for each in (stream, behind):
        each.setsockopt(6, 1, 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pump, stream, behind)
        nursery.start_soon(pump, behind, stream)
async def main():
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print(listeners[0].socket.getsockname()[1], flush=True)
    await trio.serve_listeners(relay, listeners)
trio.run(main)
"""

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
        behind = [] if end is None else [str(end)]
        for _ in range(count):
            behind = [str(running.enter_context(program(RELAY, *behind))[1])]
        sock = running.enter_context(socket.create_connection(("127.0.0.1", int(behind[0]))))
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
