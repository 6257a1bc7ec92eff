"""Measures round trips on a cluster that runs, in turns with bare relays along the same machines."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Final

from duckrow.cluster.local import LocalCluster
from duckrow.cluster.plan import Wires
from duckrow.cluster.trips import AnyCluster, value_of, ways

from .clusters import MB
from .roundtrips import Fields, Samples, turns

TURNS_MOST: Final = 10
WARM: Final = 5  # trips of each kind before the first that counts


def path_of(cluster: AnyCluster, near: str, far: str) -> list[str]:
    """The names of the machines on the shortest way; from the first to the last, if none are given.

    Raises:
        Refused: there is no such machine.
    """
    last = len(cluster.machines) - 1
    return [machine.name for machine in cluster.way(near or 0, far or last)]


def durability_of(cluster: AnyCluster, name: str) -> str:
    """As the view has it that the cluster is in."""
    with cluster.connect(name) as row:
        return str(row.members()["durability"])


def measured(
    cluster: AnyCluster,
    path: Sequence[str],
    size: int,
    count: int,
    tell: Callable[[int], None],
) -> Samples:
    """`tell`: so many more trips are done."""
    about = _about(cluster, path, size)
    began: list[int] = []
    ms: list[float] = []
    relay_ms: list[float] = []
    with ways(cluster, path[0], path[-1], size) as (row, relays):
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


def _about(cluster: AnyCluster, path: Sequence[str], size: int) -> Fields:
    links = [cluster.link_between(one, other) for one, other in pairwise(path)]
    plan = cluster.plan if isinstance(cluster, LocalCluster) else None

    def mean(of: Callable[[Wires], float]) -> float:
        return round(fmean(map(of, links)), 6) if links else 0.0

    return {
        "run": random.SystemRandom().randbytes(8).hex(),
        "nodes": len(cluster.machines),
        "topology": "links" if plan is None or plan.listed else plan.topology,
        "near": path[0],
        "far": path[-1],
        "hops": len(links),
        "size": size,
        "durability": durability_of(cluster, path[0]),
        "delay_ms": mean(lambda link: 1e3 * link.delay),
        "jitter_ms": mean(lambda link: 1e3 * link.jitter),
        "loss_pct": mean(lambda link: 100 * link.loss),
        "rate_mbit": mean(lambda link: link.rate / MB),
    }
