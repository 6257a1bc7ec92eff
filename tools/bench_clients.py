"""What a program with a client reaches: latency of one entry, rates of many, and of reading them.

    latency    one acknowledged produce at a time, against an echo by a bare trio program, in turns
    produce    produce_many, one client process
    pull       a backlog, as columns and as objects

The node is a process of its own.  Rates are told twice: of the time that passed, which on a busy machine
says little, and of a second of processor time of the client and of the node, of which the lesser is
what two free cores would reach.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import duckrow
from duckrow.node.asks import TIMEOUT

from .bench_figures import Figure, Rounds, Settings, Target, at_least, at_most, ratios
from .bench_node import Node, running_node

TURNS: Final = 15
ECHOES: Final = 300  # of a turn
ENTRIES: Final = 1_000_000  # of a turn of produce, and of the backlog
LARGE: Final = 64 * 1024
TOPIC: Final = "bench"

ECHO: Final = """
import sys, trio
async def echo(stream):
    async for data in stream:
        await stream.send_all(data)
async def main():
    if sys.argv[1] == "tcp":
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    else:
        sock = trio.socket.socket(trio.socket.AF_UNIX)
        await sock.bind(sys.argv[1])
        sock.listen(5)
        listeners = [trio.SocketListener(sock)]
    print(listeners[0].socket.getsockname()[1], flush=True)
    await trio.serve_listeners(echo, listeners)
trio.run(main)
"""


def latency(settings: Settings) -> Iterator[Figure]:
    turns, count = settings.scaled(TURNS, 2), settings.scaled(ECHOES, 5)
    value = bytes(100)
    for kind in ("Unix socket", "TCP"):
        with (
            running_node(settings, tcp=kind == "TCP") as node,
            _echo(kind) as echo,
            duckrow.connect(node.url, timeout=TIMEOUT) as row,
        ):

            def ours(row: duckrow.Client = row) -> None:
                row.produce(TOPIC, value)

            def theirs(echo: socket.socket = echo) -> None:
                echo.sendall(value)
                echo.recv(4096)

            rounds = [
                (_median_us(ours, count), _median_us(theirs, count)) for _ in range(turns + 1)
            ]
            found, limit = zip(*rounds[1:], strict=True)
            yield Figure.of(
                f"one acknowledged produce of 100 B, {kind}, against an echo",
                ratios(found, limit),
                "of an echo",
                at_most(3),
                f"medians of {count}: {median(found):.0f} us, the echo {median(limit):.0f} us",
            )
        settings.tell(f"latency, {kind}")


def produce(settings: Settings) -> Iterator[Figure]:
    turns = settings.scaled(5, 2)
    for name, size, count, target in (
        ("100 B", 100, settings.scaled(ENTRIES, 1_000), at_least(4e6)),
        ("64 KB", LARGE, settings.scaled(2_000, 10), None),
    ):
        values = [index.to_bytes(8, "little") + bytes(size - 8) for index in range(count)]
        with running_node(settings) as node, duckrow.connect(node.url, timeout=60) as row:

            def put(row: duckrow.Client = row, values: list[bytes] = values) -> int:
                return row.produce_many(TOPIC, values).count

            yield _rate(f"produce_many of {name}", node, put, turns, target, size)
        settings.tell(f"produce, {name}")


def pull(settings: Settings) -> Iterator[Figure]:
    turns = settings.scaled(5, 2)
    count = settings.scaled(ENTRIES, 1_000)
    with running_node(settings) as node, duckrow.connect(node.url, timeout=60) as row:
        row.produce_many(TOPIC, [bytes(100)] * count)

        def as_columns() -> int:
            return sum(map(len, _pages(row)))

        def as_objects() -> int:
            return sum(len([*page]) for page in _pages(row))

        def followed() -> int:
            found = 0
            for _ in row.follow(TOPIC):
                found += 1
                if found == count:
                    break
            return found

        yield _rate(
            "pull of a backlog of 100 B, as columns", node, as_columns, turns, at_least(4e6)
        )
        yield _rate("the same as Entry objects", node, as_objects, turns, at_least(1.5e6))
        yield _rate("the same by a follow, one Entry at a time", node, followed, turns, None)


def _pages(row: duckrow.Client) -> Iterator[duckrow.Entries]:
    after: object = 0
    while page := row.pull(TOPIC, after, limit=65_536, max_bytes=1 << 22):
        yield page
        after = page.after


def _rate(
    name: str, node: Node, act: Callable[[], int], turns: int, target: Target | None, size: int = 0
) -> Figure:
    walls, clients, nodes = [], [], []
    for turn in range(turns + 1):
        began, own, others = time.monotonic(), time.process_time(), node.cpu_seconds()
        done = act()
        if turn:
            walls.append(done / (time.monotonic() - began))
            clients.append(done / (time.process_time() - own))
            nodes.append(done / max(node.cpu_seconds() - others, 0.01))
    megabytes = f", {median(walls) * size / 1e6:,.0f} MB/s" if size else ""
    return Figure.of(
        name,
        Rounds.of(walls),
        "entries/s",
        target,
        f"of a second of processor time: {median(clients) / 1e6:.2f} M/s by the client, "
        f"{median(nodes) / 1e6:.2f} M/s by the node{megabytes}",
    )


def _median_us(act: Callable[[], None], count: int) -> float:
    found = []
    for _ in range(count):
        began = time.perf_counter()
        act()
        found.append(time.perf_counter() - began)
    return median(found) * 1e6


@contextmanager
def _echo(kind: str) -> Iterator[socket.socket]:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "echo.sock"))
        words = [sys.executable, "-c", ECHO, "tcp" if kind == "TCP" else path]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            port = process.stdout.readline()
            try:
                if kind == "TCP":
                    found = socket.create_connection(("127.0.0.1", int(port)))
                    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                else:
                    found = socket.socket(socket.AF_UNIX)
                    found.connect(path)
                with found:
                    yield found
            finally:
                process.kill()
