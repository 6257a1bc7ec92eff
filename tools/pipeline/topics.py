"""Statistics of topics: what came into them, window by window of the time of the row.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATISTICS: Final = (
    "topic",
    "from",
    "to",
    "entries",
    "bytes",
    "value_bytes_max",
    "producers",
    "keys",
    "partitions",
)


def statistics(entries: DataFrame, window_us: int) -> DataFrame:
    """A row for each topic and window in which there is an entry; `producers` and `keys` are how many
    different ones there are, about.

    Windows begin at multiples of their length since 1970, so that those of several runs fit together.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    window = F.window("timestamp", f"{window_us} microseconds").alias("window")
    size = F.length("value") + F.coalesce(F.length("key"), F.lit(0))
    return (
        entries.select("topic", "partition", "timestamp", "key", "value", "producer")
        .groupBy("topic", window)
        .agg(
            F.count("*").alias("entries"),
            F.sum(size).alias("bytes"),
            F.max(F.length("value")).alias("value_bytes_max"),
            F.approx_count_distinct("producer").alias("producers"),
            F.approx_count_distinct("key").alias("keys"),
            F.count_distinct("partition").alias("partitions"),
        )
        .select(
            "topic",
            F.unix_micros("window.start").alias("from"),
            F.unix_micros("window.end").alias("to"),
            *STATISTICS[3:],
        )
        .orderBy("topic", "from")
    )
