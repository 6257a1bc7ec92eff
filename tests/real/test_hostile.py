"""Strangers at the port where bridges talk to each other: they cost next to nothing, and change nothing."""

from __future__ import annotations

import random
import re
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from duckrow.bridge.handshake import Hello
from duckrow.cluster.local import LocalCluster
from duckrow.cluster.machine import BRIDGE
from duckrow.cluster.plan import Plan
from duckrow.node import cbor, frames

ATTEMPTS = 1_500
GROWTH_KIB_MAX = 16 * 1024
Attack = Callable[[socket.socket, random.Random], None]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster.launch(Plan(nodes=2, durability="write")) as found:
        yield found


def framed(head: bytes, body: bytes = b"") -> bytes:
    return b"".join(bytes(part) for part in frames.encode(head, body))


def noise(stream: socket.socket, chance: random.Random) -> None:
    stream.sendall(chance.randbytes(chance.randint(1, 5_000)))


def a_length_that_cannot_be(stream: socket.socket, chance: random.Random) -> None:
    stream.sendall(struct.pack("<IH", chance.choice((0, 1, 1 << 20, (1 << 32) - 1)), 65_535))
    stream.sendall(bytes(2_000))


def nested(stream: socket.socket, chance: random.Random) -> None:
    stream.sendall(framed(b"\x81" * chance.randint(1, 900)))


def a_hello_that_proves_nothing(stream: socket.socket, chance: random.Random) -> None:
    """With an id that may come in, and all else right."""
    uuid, nonce = chance.randbytes(16), chance.randbytes(32)
    stream.sendall(framed(Hello(1, b"", "write", 2, uuid, 7, 1, nonce).encode()))
    stream.recv(4_096)
    stream.sendall(framed(cbor.dumps([2, chance.randbytes(32)])))


def messages_before_any_hello(stream: socket.socket, chance: random.Random) -> None:
    for kind in range(30):
        stream.sendall(framed(cbor.dumps([kind, chance.getrandbits(60), b"x" * 20])))


def leaves_at_once(_stream: socket.socket, _chance: random.Random) -> None:
    pass


ATTACKS: tuple[Attack, ...] = (
    noise,
    a_length_that_cannot_be,
    nested,
    a_hello_that_proves_nothing,
    messages_before_any_hello,
    leaves_at_once,
)


def resident_kib(pid: int) -> int:
    (found,) = re.findall(r"^VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found)


def attack(address: tuple[str, int], times: int, chance: random.Random) -> None:
    for _ in range(times):
        with suppress(OSError), socket.create_connection(address, timeout=5) as stream:
            chance.choice(ATTACKS)(stream, chance)


def test_strangers_cost_a_bridge_neither_memory_nor_log_nor_its_links(
    cluster: LocalCluster,
) -> None:
    machine = cluster.machine("m1")
    text = machine.cluster_file.read_text()
    port = int(re.findall(r'address = "tcp://127.0.0.1:(\d+)"', text)[0])
    chance, row = random.Random(1), cluster.client("m2")
    assert row.produce("t", "before").number == 1
    attack(("127.0.0.1", port), ATTEMPTS // 3, chance)  # what is used once and kept
    bridge, view = machine.pid(BRIDGE), row.status()["view"]
    before, lines = resident_kib(bridge), len(machine.log.read_text().splitlines())
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]  # and say nothing
    attack(("127.0.0.1", port), ATTEMPTS, chance)

    assert row.produce("t", "amid it").number == 2
    assert machine.pid(BRIDGE) == bridge
    assert row.status()["view"] == view, "no link was lost"
    assert resident_kib(bridge) - before < GROWTH_KIB_MAX
    log = machine.log.read_text()
    assert "Traceback" not in log
    assert len(log.splitlines()) - lines < 50
    for each in held:
        each.close()
