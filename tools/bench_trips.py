"""Round trips between the ends of a chain, level write, in turns with bare relays along the same machines.

trips      two machines, and three, beside what was measured for the system whose experiments these are
far        three machines with links of 20 ms, beside the time that the bytes are on the wires
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Final

from duckrow.cluster.plan import Plan, Wires

from .bench_cluster import cluster
from .bench_figures import Figure, Rounds, Settings, at_least, at_most
from .roundtrips import SEED_MS, Samples
from .rtt import TURNS_MOST, measured, path_of

TRIPS: Final = 2_000
FAR_TRIPS: Final = 200
SIZE: Final = 100
DELAY: Final = 0.020
TIMES_FASTER: Final = {2: 500, 3: 440}


def trips(settings: Settings) -> Iterator[Figure]:
    for nodes, (_, seed_ms) in SEED_MS.items():
        plan = Plan(nodes=nodes, topology="chain", durability="write")
        samples = _measured(settings, plan, settings.scaled(TRIPS, TURNS_MOST))
        ms, relay_ms = median(samples.ms), median(samples.relay_ms)
        yield Figure.of(
            f"a round trip of {nodes} machines in a chain, against {seed_ms:,} ms",
            Rounds.of([seed_ms / each for each in _by_turn(samples)]),
            "times as fast",
            at_least(TIMES_FASTER[nodes]),
            f"median {ms:.2f} ms, {ms / relay_ms:.1f} times that of bare relays ({relay_ms:.3f} ms)",
        )


def far(settings: Settings) -> Iterator[Figure]:
    plan = Plan(nodes=3, topology="chain", durability="write", wires=Wires(delay=DELAY))
    samples = _measured(settings, plan, settings.scaled(FAR_TRIPS, TURNS_MOST))
    light = 1e3 * DELAY * 2 * len(plan.links)
    ms, relay_ms = median(samples.ms), median(samples.relay_ms)
    yield Figure.of(
        f"a round trip between the ends of a chain of 3 with links of {1e3 * DELAY:.0f} ms",
        Rounds.of([each / light for each in _by_turn(samples)]),
        "of the way",
        at_most(1.1),
        f"median {ms:.1f} ms of {light:.0f} ms on the wires; bare relays {relay_ms:.1f} ms",
    )


def _measured(settings: Settings, plan: Plan, count: int) -> Samples:
    with cluster(settings, plan) as found:
        return measured(found, path_of(found, "", ""), SIZE, count, lambda _more: None)


def _by_turn(samples: Samples) -> list[float]:
    """Medians, in milliseconds."""
    each = len(samples.ms) // TURNS_MOST
    return [median(samples.ms[at : at + each]) for at in range(0, each * TURNS_MOST, each)]
