"""The audit: whether nodes have the same entries under the same numbers, each once, and none missing.

    sums of segments ──► those that differ, or are not whole ──► their entries, one by one

A node sends its entries once, and again only the segments in which something was found.  A sum is
over hashes of 64 bits of all that is replicated: it finds mistakes, and not a forger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SEGMENT: Final = 4096  # entries
GAP, DUPLICATE, CHANGED = "gap", "duplicate", "changed"

Place = tuple[str, int]  # topic and partition
Extents = Mapping[Place, tuple[int, int]]  # the first and the last entry that a node has


class Stretch(NamedTuple):
    """Entries of a partition that all nodes have to have."""

    topic: str
    partition: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last + 1 - self.first


def common(nodes: Sequence[Extents]) -> list[Stretch]:
    """What no node has pruned, and all have come to."""
    found = []
    for topic, partition in sorted(set().union(*nodes)):
        held = [each.get((topic, partition), (1, 0)) for each in nodes]
        first, last = max(first for first, _ in held), min(last for _, last in held)
        if first <= last:
            found.append(Stretch(topic, partition, first, last))
    return found


def behind(nodes: Sequence[Extents]) -> int:
    """Entries that some node has, and another one is still to get."""
    places = set().union(*nodes)
    lasts = [[each.get(place, (1, 0))[1] for each in nodes] for place in places]
    return sum(max(each) - min(each) for each in lasts)


def segments_of(stretches: Sequence[Stretch]) -> Iterator[Stretch]:
    """At multiples of their size, whatever was pruned: so sums of other days stay comparable."""
    for topic, partition, first, last in stretches:
        for number in range((first - 1) // SEGMENT, (last - 1) // SEGMENT + 1):
            yield Stretch(
                topic,
                partition,
                max(first, number * SEGMENT + 1),
                min(last, (number + 1) * SEGMENT),
            )


def runs_of(segments: Sequence[Stretch]) -> list[Stretch]:
    """Segments of a partition as one stretch, from the first of them to the last."""
    found: dict[Place, Stretch] = {}
    for each in segments:
        place = each.topic, each.partition
        run = found.get(place, each)
        found[place] = Stretch(*place, min(run.first, each.first), max(run.last, each.last))
    return [*found.values()]


def suspects(rows: DataFrame, wanted: DataFrame, names: Sequence[str]) -> DataFrame:
    """The segments that are not the same and whole everywhere.

    `rows` are entries with the column `node`, `wanted` segments (`wanted_table`).
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    first, last = F.col("first"), F.col("last")
    inside = [
        F.col("of.topic") == F.col("wanted.topic"),
        F.col("of.partition") == F.col("wanted.partition"),
        F.col("of.offset").between(first, last),
        F.col("of.segment") == F.col("wanted.segment"),
    ]
    joined = (
        _hashed(rows).alias("of").join(F.broadcast(wanted.alias("wanted")), inside, how="inner")
    )
    sums = joined.groupBy("node", "wanted.topic", "wanted.partition", "first", "last").agg(
        F.count("*").alias("rows"),
        F.min("offset").alias("least"),
        F.max("offset").alias("most"),
        F.sum("offset").alias("sum"),
        F.bit_xor("hash").alias("check"),
    )
    count = last - first + 1
    is_whole = (
        (F.col("rows") == count)
        & (F.col("least") == first)
        & (F.col("most") == last)
        & (2 * F.col("sum") == (first + last) * count)
    )
    same = sums.groupBy("topic", "partition", "first", "last").agg(
        F.count("*").alias("nodes"),
        F.min(is_whole).alias("whole"),
        F.count_distinct("check").alias("checks"),
    )
    is_good = (F.col("nodes") == len(names)) & F.col("whole") & (F.col("checks") == 1)
    good = same.where(is_good).select("topic", "partition", "first", "last")
    places = ["topic", "partition", "first", "last"]
    return wanted.select(*places).join(good, places, how="left_anti")


def findings(rows: DataFrame, wanted: DataFrame, names: Sequence[str]) -> DataFrame:
    """What is wrong in these segments: topic, partition, offset, what, and at which nodes.

    Where more than half of the nodes agree about an entry, it is changed at the others; else at all.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    places = ["topic", "partition", "offset"]
    numbers = wanted.select(
        "topic", "partition", F.explode(F.sequence("first", "last")).alias("offset")
    )
    nodes = F.explode(F.array(*map(F.lit, names))).alias("node")
    held = _hashed(rows).groupBy("node", *places)
    copies = held.agg(F.count("*").alias("copies"), F.max("hash").alias("hash"))
    looked = numbers.select(*places, nodes).join(copies, ["node", *places], how="left")
    one = F.struct("node", "hash")
    of_entry = looked.groupBy(*places).agg(
        F.sort_array(F.collect_list(F.when(F.col("copies").isNull(), F.col("node")))).alias(GAP),
        F.sort_array(F.collect_list(F.when(F.col("copies") > 1, F.col("node")))).alias(DUPLICATE),
        F.sort_array(F.collect_list(F.when(F.col("hash").isNotNull(), one))).alias("there"),
        F.mode("hash").alias("usual"),
        F.count_distinct("hash").alias("kinds"),
    )
    usual = F.filter("there", lambda each: each["hash"] == F.col("usual"))
    is_clear = 2 * F.size(usual) > F.size("there")
    others = F.filter("there", lambda each: ~is_clear | (each["hash"] != F.col("usual")))
    nobody = F.array().cast("array<string>")
    changed = F.when(F.col("kinds") > 1, others["node"]).otherwise(nobody)

    def finding(what: str, at: Column) -> Column:
        return F.struct(F.lit(what).alias("what"), at.alias("nodes"))

    each = F.array(
        finding(GAP, F.col(GAP)), finding(DUPLICATE, F.col(DUPLICATE)), finding(CHANGED, changed)
    )
    told = of_entry.select(*places, F.explode(each).alias("found")).select(*places, "found.*")
    return told.where(F.size("nodes") > 0)


def wanted_table(spark: SparkSession, segments: Sequence[Stretch]) -> DataFrame:
    rows = [(*each, (each.first - 1) // SEGMENT) for each in segments]
    return spark.createDataFrame(
        rows, "topic string, partition int, first bigint, last bigint, segment bigint"
    )


def _hashed(rows: DataFrame) -> DataFrame:
    """A null is no value to the hash: whether there is one is told to it beside."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    replicated = [
        F.col("topic"),
        F.col("partition"),
        F.col("offset"),
        F.unix_micros("timestamp"),
        F.col("key").isNull(),
        F.col("key"),
        F.col("value"),
        F.col("headers").isNull(),
        F.col("headers"),
        F.col("producer"),
        F.col("position"),
    ]
    segment = F.floor((F.col("offset") - 1) / SEGMENT).cast("bigint")
    return rows.select(
        "node",
        "topic",
        "partition",
        "offset",
        segment.alias("segment"),
        F.xxhash64(*replicated).alias("hash"),
    )
