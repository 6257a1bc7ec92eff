"""The report of latencies: what samples of round trips come to, for each kind of trip.  Pure.

    entries of a topic ──► samples ╮
    files of samples ──────────────┴─► one row for each case: percentiles, and those of bare relays

A case is all that a trip depends on: chain length, topology, bytes, durability, links.  Trips of several
runs of a case are put together.  A sample is known by its run and its number: one that is in a topic and
in a file, too, counts once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..roundtrips import SAMPLE
from ..samplefiles import TEXTS, WHOLE
from ..samples import PERCENTILES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CASE: Final = (
    "nodes",
    "topology",
    "hops",
    "size",
    "durability",
    "delay_ms",
    "jitter_ms",
    "loss_pct",
    "rate_mbit",
)
REPORT: Final = (
    *CASE,
    "runs",
    "count",
    *(f"{name}_ms" for name in PERCENTILES),
    *(f"relay_{name}_ms" for name in PERCENTILES),
    "ratio",
)
ACCURACY: Final = (
    10_000  # a percentile is at most so small a part of all samples off; few are exact
)


def schema() -> str:
    """Of samples, as Spark writes it."""
    kinds = {
        **dict.fromkeys(TEXTS, "string"),
        **dict.fromkeys(WHOLE, "int"),
        "time": "timestamp",
    }
    return ", ".join(f"{name} {kinds.get(name, 'double')}" for name in SAMPLE)


def samples_of(entries: DataFrame) -> DataFrame:
    """Of what `duckrow rtt --record` produced; an entry that is no sample has nulls."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    said = F.from_json(F.col("value").cast("string"), schema())
    return entries.select(said.alias("sample")).select("sample.*")


def is_sample() -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    there = F.lit(True)
    for name in SAMPLE:
        there &= F.col(name).isNotNull()
    return there


def report(samples: DataFrame) -> DataFrame:
    """A row for each case, in their order."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    parts = [*PERCENTILES.values()]
    told = (
        samples.where(is_sample())
        .dropDuplicates(["run", "sample"])
        .groupBy(*CASE)
        .agg(
            F.count_distinct("run").alias("runs"),
            F.count("*").alias("count"),
            F.percentile_approx("ms", parts, ACCURACY).alias("ours"),
            F.percentile_approx("relay_ms", parts, ACCURACY).alias("bare"),
        )
    )
    found = [
        F.round(F.col(column)[at], 4).alias(f"{prefix}{name}_ms")
        for prefix, column in (("", "ours"), ("relay_", "bare"))
        for at, name in enumerate(PERCENTILES)
    ]
    ratio = F.round(F.col("ours")[0] / F.col("bare")[0], 3).alias("ratio")
    return told.select(*CASE, "runs", "count", *found, ratio).orderBy(*CASE)
