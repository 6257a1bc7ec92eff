"""A crowd at the door of one node: thousands who do nothing, and some who mean no good.

Meanwhile one client produces and pulls, and notices nothing of them.
"""

from __future__ import annotations

import random
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

import duckrow
from duckrow.node import frames, requests
from duckrow.node.limits import CONNECTIONS_SPARE_FILES, MIB
from duckrow.node.requests import Ask, Verb

from .daemonkit import SECONDS, Daemon, Wire, daemon, resident

CROWD_BYTES_MAX = 100 * MIB  # ten thousand who said hello, the node itself included
ROUGH_BYTES_MAX = 64 * MIB  # those who mean no good, together
ROUGH = 20  # of each kind
HELLO = b"".join(frames.encode(requests.request(1, Verb.HELLO, requests.VERSION, "x", "", {})))
Rough = Callable[[socket.socket, random.Random], None]


def noise(stream: socket.socket, chance: random.Random) -> None:
    stream.sendall(chance.randbytes(chance.randint(1, 5_000)))


def noise_after_a_hello(stream: socket.socket, chance: random.Random) -> None:
    stream.sendall(HELLO + chance.randbytes(chance.randint(1, 50_000)))


def silence(_stream: socket.socket, _chance: random.Random) -> None:
    """No hello: the node closes after five seconds."""


def half_a_frame(stream: socket.socket, _chance: random.Random) -> None:
    """And then nothing: it has to come at a kilobyte a second."""
    stream.sendall(HELLO + (6 << 20).to_bytes(4, "little") + b"\x10\x00" + bytes(1_000))


def a_frame_byte_by_byte(stream: socket.socket, _chance: random.Random) -> None:
    for each in HELLO:
        stream.sendall(bytes([each]))
    stream.sendall(b"\x40")


def asks_and_leaves(stream: socket.socket, chance: random.Random) -> None:
    pull = requests.request(2, Verb.PULL, *Ask("t", max_bytes=1 << 22).fields())
    stream.sendall(HELLO + b"".join(frames.encode(pull)) * chance.randint(1, 20))


CLOSED_BY_THE_NODE = (noise, silence, half_a_frame)
GONE_BY_THEMSELVES = (noise_after_a_hello, a_frame_byte_by_byte, asks_and_leaves)


@contextmanager
def files_for(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + 2 * CONNECTIONS_SPARE_FILES
    assert hard == resource.RLIM_INFINITY or hard >= needed, f"ulimit -Hn is {hard}"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def at_work(row: duckrow.Client, ended: threading.Event, done: list[int]) -> None:
    """Produces and pulls, one after the other; every answer is the right one."""
    row.produce("t", bytes(100_000))
    number = 1
    while not ended.is_set():
        value = b"%d" % number
        following = row.produce("t", value, timeout=SECONDS).number
        (entry,) = row.pull("t", number)
        number += 1
        assert (entry.number, entry.value, following) == (number, value, number)
    done.append(number)


def rough_ones(running: Daemon, chance: random.Random) -> None:
    with ExitStack() as stack:
        closed = []
        for kind in (*CLOSED_BY_THE_NODE, *GONE_BY_THEMSELVES):
            for _ in range(ROUGH):
                stream = stack.enter_context(socket.socket(socket.AF_UNIX))
                stream.settimeout(SECONDS)
                stream.connect(str(running.socket))
                with suppress(BrokenPipeError, ConnectionResetError):  # it had heard enough
                    kind(stream, chance)
                if kind in CLOSED_BY_THE_NODE:
                    closed.append(stream)
                else:
                    stream.close()
        for stream in closed:
            with suppress(ConnectionResetError):
                while stream.recv(1 << 16):
                    pass


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_crowd_that_idles_and_some_that_are_rough_cost_little_and_stop_nobody(
    tmp_path: Path, count: int
) -> None:
    with (
        files_for(count),
        daemon(tmp_path, "--set", "store.durability=write") as running,
        duckrow.connect(running.url) as row,
        ExitStack() as stack,
    ):
        pid, ended, done = running.process.pid, threading.Event(), list[int]()
        worker = threading.Thread(target=at_work, args=(row, ended, done))
        worker.start()
        before = resident(pid)
        for _ in range(count):
            stack.enter_context(Wire(str(running.socket)))
        crowded = resident(pid)
        rough_ones(running, random.Random(count))
        after = resident(pid)
        with Wire(str(running.socket)) as wire:
            clients = wire.ask(Verb.STATUS)[0]["clients"]
        ended.set()
        worker.join()
        print(f"{count}: {before / MIB:.0f} MiB, {crowded / MIB:.0f}, {after / MIB:.0f}; {done}")

    assert done, "whoever worked was disturbed"
    assert clients == count + 2, "of the rough ones nobody is left"
    assert crowded - before < CROWD_BYTES_MAX * count / 10_000 + 8 * MIB
    assert after - crowded < ROUGH_BYTES_MAX
