"""Measures round trips on a cluster that runs, in turns with bare relays along the same machines."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Final

from duckrow.cluster.local import LocalCluster
from duckrow.cluster.machine import Machine
from duckrow.cluster.plan import Wires
from duckrow.cluster.trips import value_of, ways

from .clusters import MB
from .roundtrips import Fields, Samples, turns

TURNS_MOST: Final = 10
WARM: Final = 5  # trips of each kind before the first that counts


def path_of(cluster: LocalCluster, near: str, far: str) -> list[Machine]:
    """The machines on the shortest way; without names from the first to the last.

    Raises:
        Refused: there is no such machine.
    """
    ends = [cluster.machine(near or 0), cluster.machine(far or len(cluster.machines) - 1)]
    by_id = {machine.id: machine for machine in cluster.machines}
    return [by_id[id_] for id_ in cluster.plan.way(ends[0].id, ends[1].id)]


def durability_of(cluster: LocalCluster, machine: Machine) -> str:
    """As the view has it that the cluster is in."""
    with cluster.connect(machine.name) as row:
        return str(row.members()["durability"])


def measured(
    cluster: LocalCluster,
    path: Sequence[Machine],
    size: int,
    count: int,
    tell: Callable[[int], None],
) -> Samples:
    """`tell`: so many more trips are done."""
    about = _about(cluster, path, size)
    began: list[int] = []
    ms: list[float] = []
    relay_ms: list[float] = []
    with ways(cluster, path, size) as (row, relays):
        for number in range(WARM):
            row.trip(value_of(number, size))
            relays.trip(value_of(number, size))
        for some in turns(count, TURNS_MOST):
            numbers = range(len(ms), len(ms) + some)
            for number in numbers:
                began.append(time.time_ns() // 1_000)
                ms.append(1e3 * row.trip(value_of(number, size)))
                tell(1)
            for number in numbers:
                relay_ms.append(1e3 * relays.trip(value_of(number, size)))
                tell(1)
    return Samples(about, began, ms, relay_ms)


def _about(cluster: LocalCluster, path: Sequence[Machine], size: int) -> Fields:
    plan = cluster.plan
    links = [cluster.link_between(one.name, other.name) for one, other in pairwise(path)]

    def mean(of: Callable[[Wires], float]) -> float:
        return round(fmean(map(of, links)), 6) if links else 0.0

    return {
        "run": random.SystemRandom().randbytes(8).hex(),
        "nodes": plan.nodes,
        "topology": "links" if plan.listed else plan.topology,
        "near": path[0].name,
        "far": path[-1].name,
        "hops": len(links),
        "size": size,
        "durability": durability_of(cluster, path[0]),
        "delay_ms": mean(lambda link: 1e3 * link.delay),
        "jitter_ms": mean(lambda link: 1e3 * link.jitter),
        "loss_pct": mean(lambda link: 100 * link.loss),
        "rate_mbit": mean(lambda link: link.rate / MB),
    }
