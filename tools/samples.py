"""Samples: what many measured times come to.  Pure.

A mean hides what users feel, so there are percentiles, a histogram, and how it went along the run.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import NamedTuple

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
BLOCKS = "▁▂▃▄▅▆▇█"


def percentile(values: Sequence[float], part: float) -> float:
    """The smallest of the sorted values that so large a part of all is not above."""
    return values[max(0, math.ceil(round(part * len(values), 9)) - 1)]


def percentiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """As fields of a row."""
    values = sorted(seconds) or [0.0]
    return {
        f"{name}_ms": round(1e3 * percentile(values, part), 4) for name, part in PERCENTILES.items()
    }


def moving_average(values: Sequence[float], width: int) -> list[float]:
    """The mean of each value and those before it, `width` of them as soon as there are so many."""
    return [fmean(values[max(0, end - width) : end]) for end in range(1, len(values) + 1)]


class Bin(NamedTuple):
    """Values from `low` on and below `high`; the last bin of a histogram also has its `high`."""

    low: float
    high: float
    times: int


def edges(least: float, most: float, bins: int) -> list[float]:
    """Of so many bins, each as many times wider than the one before: latencies have a long tail.

    Where there is nothing between the least and the most there is one bin.
    """
    assert least > 0, "a time is above zero"
    if least == most:
        return [least, most]
    ratio = math.log(most / least)
    return [least, *(least * math.exp(ratio * at / bins) for at in range(1, bins)), most]


def histogram(values: Sequence[float], at: Sequence[float]) -> list[Bin]:
    """At these edges; no value is outside of them."""
    times = [0] * (len(at) - 1)
    for value in values:
        assert at[0] <= value <= at[-1], "an edge is missing"
        times[min(len(times), bisect_right(at, value)) - 1] += 1
    return [Bin(*each) for each in zip(at, at[1:], times, strict=False)]


def stretches(values: Sequence[float], most: int) -> list[float]:
    """The medians of so many stretches of equal length, or the values if they are no more."""
    return [median(part) for part in _parts(values, min(most, len(values)))]


def sparkline(values: Sequence[float], top: float) -> str:
    """A character for each value, from 0 to `top`: twice as high is twice as much."""
    steps = len(BLOCKS)
    return "".join(BLOCKS[min(steps - 1, int(steps * value / top))] for value in values)


def _parts(values: Sequence[float], count: int) -> Iterator[Sequence[float]]:
    for at in range(count):
        yield values[at * len(values) // count : (at + 1) * len(values) // count]
