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

from .bench_figures import Figure, Rounds, Settings, Target, at_least, at_most, median_us, ratios
from .bench_node import Node, running_node
from .bench_sockets import SINK, bare

TURNS: Final = 15
ECHOES: Final = 300  # of a turn
ENTRIES: Final = 1_000_000  # of a turn of produce, and of the backlog
LARGE: Final = 64 * 1024
LARGE_ENTRIES: Final = 2_000  # of a turn
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

            rounds = [(median_us(ours, count), median_us(theirs, count)) for _ in range(turns + 1)]
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
    turns, count = settings.scaled(5, 2), settings.scaled(ENTRIES, 1_000)
    values = [index.to_bytes(8, "little") + bytes(92) for index in range(count)]
    for level, target in (("write", at_least(4e6)), ("fsync", at_least(2e6))):
        with (
            running_node(settings, level=level) as node,
            duckrow.connect(node.url, timeout=60) as row,
        ):

            def put(row: duckrow.Client = row) -> int:
                return row.produce_many(TOPIC, values).count

            yield _rate(f"produce_many of 100 B, level {level}", node, put, turns, target)
        settings.tell(f"produce, level {level}")
    yield _large(settings, turns)


def _large(settings: Settings, turns: int) -> Figure:
    """In turns with the same bytes over a bare socket, to a process that forgets them."""
    count = settings.scaled(LARGE_ENTRIES, 10)
    values = [index.to_bytes(8, "little") + bytes(LARGE - 8) for index in range(count)]
    ours, bares = [], []
    _use_memory(settings.folder, (turns + 2) * LARGE * count)
    with (
        running_node(settings) as node,
        duckrow.connect(node.url, timeout=60) as row,
        bare(SINK) as sink,
    ):
        for _ in range(turns + 1):
            ours.append(_seconds(lambda: row.produce_many(TOPIC, values)))
            bares.append(_seconds(lambda: sink.pour(values)))
    settings.tell("produce, 64 KB")
    megabytes = LARGE * count / 1e6
    return Figure.of(
        "produce_many of 64 KB, level write",
        ratios(bares[1:], ours[1:]),
        "of a socket",
        at_least(1 / 3),
        f"{megabytes / median(ours[1:]):,.0f} MB/s, and {megabytes / median(bares[1:]):,.0f} over "
        "a bare Unix socket to a process that does nothing with them",
    )


def _use_memory(folder: Path, size: int) -> None:
    """As much of it as the page cache will need: where a virtual machine has not used it before, the
    host has to find each page first, which takes ten times as long as to write to it.
    """
    block = bytes(1 << 20)
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(size >> 20):
            file.write(block)


def pull(settings: Settings) -> Iterator[Figure]:
    turns = settings.scaled(5, 2)
    count = settings.scaled(ENTRIES, 1_000)
    with running_node(settings) as node, duckrow.connect(node.url, timeout=60) as row:
        row.produce_many(TOPIC, [bytes(100)] * count)

        def as_columns() -> int:
            return sum(map(len, _pages(row)))

        def as_objects() -> int:
            found = 0
            for page in _pages(row):
                for entry in page:
                    found += entry.number > 0
            return found

        def as_lists() -> int:
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
        yield _rate("the same as lists of all Entry objects", node, as_lists, turns, None)
        yield _rate("the same by a follow, one Entry at a time", node, followed, turns, None)


def _pages(row: duckrow.Client) -> Iterator[duckrow.Entries]:
    after: object = 0
    while page := row.pull(TOPIC, after, limit=65_536, max_bytes=1 << 22):
        yield page
        after = page.after


def _rate(
    name: str, node: Node, act: Callable[[], int], turns: int, target: Target | None
) -> Figure:
    walls, clients, nodes = [], [], []
    for turn in range(turns + 1):
        began, own, others = time.monotonic(), time.process_time(), node.cpu_seconds()
        done = act()
        if turn:
            walls.append(done / (time.monotonic() - began))
            clients.append(done / (time.process_time() - own))
            nodes.append(done / max(node.cpu_seconds() - others, 0.01))
    return Figure.of(
        name,
        Rounds.of(walls),
        "entries/s",
        target,
        f"of a second of processor time: {median(clients) / 1e6:.2f} M/s by the client, "
        f"{median(nodes) / 1e6:.2f} M/s by the node",
    )


def _seconds(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


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
