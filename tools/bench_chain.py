"""Chains of machines: how soon the far end has an entry, beside bare relays over as many hops.

    chain       how much later each further machine has it, against a further relay
    distance    over links of 5 ms, against the time that the bytes are on the wires

A producer at one end produces, rests, and produces again; a reader at the other end, a process of its own, is
blocked in a pull, and notes when it returned.  Both look at one clock.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Final

import duckrow
from duckrow.cluster.local import LocalCluster
from duckrow.cluster.plan import Plan, Wires

from .bench_cluster import VALUE, cluster, rest
from .bench_figures import Figure, Rounds, Settings, at_most
from .bench_relays import LISTENER, program, relays
from .bench_waking import REST_SECONDS, TOPIC, reader

TURNS: Final = 9
ENTRIES: Final = 100  # of a turn
SHORT, LONG = 2, 6  # machines
FAR: Final = 4
DELAY: Final = 0.005


def chain(settings: Settings) -> Iterator[Figure]:
    turns, count = settings.scaled(TURNS, 2), settings.scaled(ENTRIES, 5)
    with ExitStack() as open_:
        ways: dict[int, tuple[_Way, _Bare]] = {}
        for nodes in (SHORT, LONG):
            plan = Plan(nodes=nodes, topology="chain", durability="write")
            found = open_.enter_context(cluster(settings, plan))
            ways[nodes] = (
                open_.enter_context(_way(found, turns * count)),
                open_.enter_context(_bare(nodes, turns * count)),
            )
        for turn in range(turns):
            for way, bare in ways.values():
                way.go(count)
                bare.go(count)
            settings.tell(f"chain: turn {turn + 1} of {turns}")
        late = {
            nodes: (_medians(way.late(), count), _medians(bare.late(), count))
            for nodes, (way, bare) in ways.items()
        }
    hops = LONG - SHORT
    ours, bares = (
        [(far - near) / hops for far, near in zip(late[LONG][i], late[SHORT][i], strict=True)]
        for i in (0, 1)
    )
    yield Figure(
        name="a further machine of a chain, until its reader has the entry",
        measured=median(ours) / median(bares),
        unit="of a relay",
        target=at_most(6),
        note=f"{median(ours):.0f} µs a machine, {median(bares):.0f} µs a relay, from {SHORT} to "
        f"{LONG} of them; the chain of {SHORT} has it after {median(late[SHORT][0]):.0f} µs, "
        f"that of {LONG} after {median(late[LONG][0]):.0f}",
    )


def distance(settings: Settings) -> Iterator[Figure]:
    count, nodes = settings.scaled(400, 5), FAR
    plan = Plan(nodes=nodes, topology="chain", durability="write", wires=Wires(delay=DELAY))
    with cluster(settings, plan) as found, _way(found, count) as way:
        way.go(count)
        late = way.late()
    light = (nodes - 1) * DELAY * 1e6
    yield Figure.of(
        f"an entry from end to end of a chain of {nodes} with links of {DELAY * 1e3:.0f} ms",
        Rounds.of([each / light for each in late]),
        "of the way",
        at_most(1.15),
        f"median {median(late) / 1e3:.2f} ms of {light / 1e3:.0f} ms on the wires",
    )


class _Way:
    """From a producer at one end of a chain to a reader at the other."""

    def __init__(self, row: duckrow.Client, told: Callable[[], list[int]]) -> None:
        self._row, self._told = row, told
        self._sent: list[int] = []

    def go(self, count: int) -> None:
        for _ in range(count):
            rest(REST_SECONDS)
            self._sent.append(time.monotonic_ns())
            self._row.produce(TOPIC, VALUE)

    def late(self) -> list[float]:
        """Microseconds."""
        return [(there - here) / 1e3 for here, there in zip(self._sent, self._told(), strict=True)]


@contextmanager
def _way(found: LocalCluster, count: int) -> Iterator[_Way]:
    far = found.machines[-1]
    row = found.client(0)
    row.produce(TOPIC, b"first")
    found.client(far.name).pull(TOPIC, wait=30)
    with reader(far.url, count) as process:
        yield _Way(row, lambda: json.loads(process.communicate()[0]))


class _Bare:
    """The same over relays, to a program that notes when it has it."""

    def __init__(self, send: Callable[[bytes], None], told: Callable[[], list[int]]) -> None:
        self._send, self._told = send, told

    def go(self, count: int) -> None:
        for _ in range(count):
            rest(REST_SECONDS)
            self._send(struct.pack("<Q", time.monotonic_ns()))

    def late(self) -> list[float]:
        """Microseconds."""
        return [each / 1e3 for each in self._told()]


@contextmanager
def _bare(nodes: int, count: int) -> Iterator[_Bare]:
    with (
        program(LISTENER, str(count)) as (listener, port),
        relays(nodes, end=port) as sock,
    ):
        yield _Bare(sock.sendall, lambda: json.loads(listener.communicate()[0]))


def _medians(late: list[float], count: int) -> list[float]:
    """Of each turn."""
    return [median(late[at : at + count]) for at in range(0, len(late), count)]
