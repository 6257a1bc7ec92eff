"""Clusters on this machine: what several machines cost, beside what bare relays do over the same hops.

    ordered      one acknowledged produce at a time on three machines, against a round trip over two relays
    replicated   batches from one client, until all three machines have them
    resting      the CPU of machines that have nothing to do
    deaths       how long the others stand still when a bridge is killed and starts again

All processes are on the cores of one machine.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from duckrow.cluster.local import LocalCluster
from duckrow.cluster.machine import BRIDGE, LOCKS
from duckrow.cluster.plan import Plan
from duckrow.node.errors import DuckrowError

from .bench_figures import Figure, Rounds, Settings, at_least, at_most, median_us, ratios
from .bench_relays import relays

TURNS: Final = 9
TRIPS: Final = 200  # of a turn
ENTRIES: Final = 500_000  # of a turn
rest: Final = threading.Event().wait
IDLE_SECONDS: Final = 10.0
DEATHS: Final = 24
STALL_SECONDS: Final = 3.0  # after a death, in which the longest silence is looked for
TOPIC: Final = "bench"
VALUE: Final = bytes(100)


@contextmanager
def cluster(settings: Settings, plan: Plan) -> Iterator[LocalCluster]:
    folder = settings.folder / f"{plan.topology}-{plan.nodes}"
    with LocalCluster.launch(plan, folder) as found:
        yield found


def ordered(settings: Settings) -> Iterator[Figure]:
    turns, count = settings.scaled(TURNS, 2), settings.scaled(TRIPS, 5)
    with cluster(settings, Plan(nodes=3, durability="write")) as found, relays(2) as far:
        row = found.client(0)

        def ours() -> None:
            row.produce(TOPIC, VALUE)

        def theirs() -> None:
            far.sendall(VALUE)
            far.recv(4096)

        times = [(median_us(ours, count), median_us(theirs, count)) for _ in range(turns + 1)]
    mine, limit = zip(*times[1:], strict=True)
    yield Figure.of(
        "one acknowledged produce of 100 B on three machines",
        ratios(mine, limit),
        "of two relays",
        at_most(6),
        f"medians of {count}: {median(mine):.0f} µs, a round trip over two relays "
        f"{median(limit):.0f} µs",
    )


def replicated(settings: Settings) -> Iterator[Figure]:
    turns, count = settings.scaled(5, 2), settings.scaled(ENTRIES, 1_000)
    values = [index.to_bytes(8, "little") + bytes(92) for index in range(count)]
    rates: list[float] = []
    with cluster(settings, Plan(nodes=3, durability="write")) as found:
        for turn in range(turns + 1):
            began = time.monotonic()
            last = found.client(0).produce_many(TOPIC, values).last
            for machine in found.machines:
                page = found.client(machine.name).pull(TOPIC, last - 1, wait=60)
                assert page.last >= last, f"{machine.name} has not all"
            rates.append(count / (time.monotonic() - began))
            settings.tell(f"replicated: turn {turn} of {turns}")
    yield Figure.of(
        "produce_many of 100 B until three machines have it, level write",
        Rounds.of(rates[1:]),
        "entries/s",
        at_least(2e6),
    )


def resting(settings: Settings) -> Iterator[Figure]:
    seconds = max(1.0, IDLE_SECONDS * settings.size)
    for nodes, most in ((3, 1.0), (10, 3.0)):
        if settings.size < 0.1 and nodes > 3:
            continue  # ten machines start for a minute
        with cluster(settings, Plan(nodes=nodes, durability="write")) as found:
            rest(min(seconds, 3.0))
            parts = dict.fromkeys(LOCKS, 0.0)
            pids = {kind: [each.pid(kind) for each in found.machines] for kind in LOCKS}
            before = {kind: sum(map(cpu_seconds, pids[kind])) for kind in LOCKS}
            rest(seconds)
            for kind in LOCKS:
                used = sum(map(cpu_seconds, pids[kind])) - before[kind]
                parts[kind] = 100 * used / seconds / nodes
        said = ", ".join(f"{kind} {part:.2f} %" for kind, part in parts.items())
        yield Figure(
            name=f"CPU of a machine without work, {nodes} members that all have links",
            measured=sum(parts.values()),
            unit="% of a core",
            target=at_most(most),
            note=said,
        )


def deaths(settings: Settings) -> Iterator[Figure]:
    count = settings.scaled(DEATHS, 1)
    stalls: list[float] = []
    with cluster(settings, Plan(nodes=3, durability="write")) as found:
        for turn in range(count):
            victim = found.machines[turn % 3].name
            stalls.append(_stall(found, victim))
            found.wait(victim)
            settings.tell(f"deaths: {turn + 1} of {count}")
    stalls.sort()
    yield Figure(
        name="the others stand still when a bridge is killed, median",
        measured=median(stalls),
        unit="s",
        target=at_most(0.6),
    )
    yield Figure(
        name="the others stand still when a bridge is killed, 99 of 100",
        measured=stalls[min(len(stalls) - 1, round(0.99 * len(stalls)))],
        unit="s",
        target=at_most(1.5),
        note=f"the longest of {count}, if they are fewer than a hundred",
    )


def _stall(found: LocalCluster, victim: str) -> float:
    """The longest time without an answer at one of the others."""
    other = next(each.name for each in found.machines if each.name != victim)
    row = found.client(other)
    row.produce(TOPIC, VALUE)
    found.machine(victim).kill(BRIDGE, seconds=30)
    longest, last = 0.0, time.monotonic()
    end = last + STALL_SECONDS
    while last < end:
        try:
            row.produce(TOPIC, VALUE, timeout=30)
        except DuckrowError:
            continue  # what it was told does not count: it has no place yet
        now = time.monotonic()
        longest, last = max(longest, now - last), now
    return longest


def cpu_seconds(pid: int) -> float:
    ticks = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
