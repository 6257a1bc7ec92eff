"""Round trips: the cases of a sweep, and what the samples of one come to.  Pure.

A sample is a trip through the cluster and one over bare relays along the same machines, which came in
turns; all that it depends on stands beside it, so that samples of many runs can be put together:

    run        string     of one case, in hexadecimal digits
    time       timestamp  when the trip through the cluster began, microseconds, UTC
    nodes      int        machines of the cluster
    topology   string     chain, ring, star, mesh, tree, or "links" where they were listed
    near, far  string     where the trip began, and where it turned
    hops       int        links between these two, one way
    size       int        bytes of the entry
    durability string     fsync, write, memory
    delay_ms   double     of a link, one way: the mean of those that were passed
    jitter_ms, loss_pct, rate_mbit   double   of the links; 0: none, no limit
    sample     int        1, 2, ...
    ms         double     through the cluster and back
    relay_ms   double     over the relays and back
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

from .samples import PERCENTILES, edges, histogram, moving_average, percentile, stretches

BINS: Final = 24
WIDTH_MOST: Final = 25  # of the moving average, in samples
POINTS: Final = 60  # of the moving average that a summary has

# What those whose experiments these are had measured, by the number of machines, in milliseconds.
SEED_MS: Final = {2: (800, 800), 3: (1_000, 1_100)}

SUMMARY: Final = (
    "nodes",
    "topology",
    "hops",
    "count",
    "size",
    "durability",
    "delay_ms",
    *(f"{name}_ms" for name in PERCENTILES),
    *(f"relay_{name}_ms" for name in PERCENTILES),
    "ratio",
    "wire_ms",
    "of_wire",
)
OF_SEEDS: Final = ("seed_ms", "times_faster")
SAMPLE: Final = (
    "run",
    "time",
    "nodes",
    "topology",
    "near",
    "far",
    "hops",
    "size",
    "durability",
    "delay_ms",
    "jitter_ms",
    "loss_pct",
    "rate_mbit",
    "sample",
    "ms",
    "relay_ms",
)
Fields = dict[str, Any]


class Case(NamedTuple):
    nodes: int
    topology: str
    durability: str
    delay_ms: float
    size: int

    @property
    def cluster(self) -> tuple[int, str, str, float]:
        """What cases have alike that can be measured one after the other on one cluster."""
        return self[:4]


def cases(
    nodes: Sequence[int],
    topologies: Sequence[str],
    durabilities: Sequence[str],
    delays_ms: Sequence[float],
    sizes: Sequence[int],
) -> list[Case]:
    """All combinations; those of one cluster stand together."""
    return [Case(*each) for each in product(nodes, topologies, durabilities, delays_ms, sizes)]


def turns(count: int, most: int) -> Iterator[int]:
    """So many samples, in so many turns of about the same length."""
    parts = min(count, most)
    yield from (count * (at + 1) // parts - count * at // parts for at in range(parts))


class Samples(NamedTuple):
    """Of one case; times in milliseconds."""

    about: Fields  # run, nodes, ..., rate_mbit: all that is the same for all
    began: Sequence[int]  # microseconds since 1970
    ms: Sequence[float]
    relay_ms: Sequence[float]

    @property
    def average_ms(self) -> list[float]:
        return moving_average(self.ms, width(len(self.ms)))


def width(count: int) -> int:
    """Of the moving average."""
    return max(1, min(WIDTH_MOST, count // 4))


def rows(samples: Samples) -> Iterator[Fields]:
    for number, (began, ms, relay_ms) in enumerate(
        zip(samples.began, samples.ms, samples.relay_ms, strict=True), 1
    ):
        yield {
            **samples.about,
            "time": began,
            "sample": number,
            "ms": round(ms, 6),
            "relay_ms": round(relay_ms, 6),
        }


def summary(samples: Samples, *, seed: bool = False) -> Fields:
    about = samples.about
    ms, relay_ms = sorted(samples.ms), sorted(samples.relay_ms)
    p50, wire = percentile(ms, 0.5), 2 * about["hops"] * about["delay_ms"]
    found = {
        **{name: about[name] for name in ("nodes", "topology", "hops")},
        "count": len(ms),
        **{name: about[name] for name in ("size", "durability", "delay_ms")},
        **_percentiles("", ms),
        **_percentiles("relay_", relay_ms),
        "ratio": round(p50 / percentile(relay_ms, 0.5), 3),
        "wire_ms": round(wire, 3),
        "of_wire": round(p50 / wire, 4) if wire else None,
        **{name: about[name] for name in ("near", "far", "run")},
        **{name: about[name] for name in ("jitter_ms", "loss_pct", "rate_mbit")},
        "moving_average_ms": [round(each, 4) for each in stretches(samples.average_ms, POINTS)],
        "histogram": [
            {"from_ms": round(low, 4), "to_ms": round(high, 4), "count": times}
            for low, high, times in histogram(ms, edges(ms[0], ms[-1], BINS))
        ],
    }
    if seed:
        low, high = SEED_MS[about["nodes"]]
        shown = f"{high:,}" if low == high else f"{low:,}-{high:,}"
        found |= {"seed_ms": shown, "times_faster": round(high / p50)}
    return found


def legacy(samples: Samples) -> Iterator[str]:
    """As the system printed it whose experiments these are: before, after and total of each trip."""
    for began, ms in zip(samples.began, samples.ms, strict=True):
        yield f"sec before: {began / 1e6:.6f}"
        yield f"sec after: {began / 1e6 + ms / 1e3:.6f}"
        yield f"total time in seconds: {ms / 1e3:.6f}"


def _percentiles(prefix: str, ms: Sequence[float]) -> Fields:
    return {
        f"{prefix}{name}_ms": round(percentile(ms, part), 4) for name, part in PERCENTILES.items()
    }
