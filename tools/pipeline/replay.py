"""Replay: entries of an archive come into a topic again, in their order, and each says what it was.

    archive  rides/0   1 ..... 500,000 | 500,001 ..... 1,000,000          a round: a piece of each partition
             rides/1   1 ... 300,000 |                                    a commit: numbered at once, and once

A replayed entry has one header more, `duckrow.replay`, with the name of the replay and its old place.  So
the topic itself knows what is in it: a replay that is run again leaves that out, and the map of old to new
numbers is read from there.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from duckrow.node.archivenames import Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HEADER: Final = "duckrow.replay"  # NAME:TOPIC/PARTITION/NUMBER
HEADERS: Final = "array<struct<key:string,value:binary>>"
ARCHIVED: Final = f"offset bigint, key binary, value binary, headers {HEADERS}"  # of its columns
REPLAYED: Final = f"partition int, offset bigint, headers {HEADERS}"  # of those of the topic


class Piece(NamedTuple):
    partition: int
    span: Span


def left(wanted: Iterable[Span], done: Iterable[Span]) -> list[Span]:
    """Those numbers that are wanted and not done yet; sorted."""
    found = sorted(wanted)
    for each in done:
        found = [
            part
            for span in found
            for part in (
                Span(span.first, min(span.last, each.first - 1)),
                Span(max(span.first, each.last + 1), span.last),
            )
            if part.first <= part.last
        ]
    return found


def within(spans: Iterable[Span], first: int, last: int) -> list[Span]:
    """The parts of them that lie between these two numbers."""
    cut = [Span(max(span.first, first), min(span.last, last)) for span in spans]
    return [span for span in cut if span.first <= span.last]


def rounds(wanted: Mapping[int, Sequence[Span]], size: int) -> Iterator[list[Piece]]:
    """The next piece of each partition, until there are none; a piece has so many entries at most."""
    pieces = {
        partition: [
            Piece(partition, Span(at, min(span.last, at + size - 1)))
            for span in spans
            for at in range(span.first, span.last + 1, size)
        ]
        for partition, spans in wanted.items()
    }
    for turn in range(max(map(len, pieces.values()), default=0)):
        yield [each[turn] for each in pieces.values() if turn < len(each)]


def marked(entries: DataFrame, name: str, topic: str) -> DataFrame:
    """Archived entries, with their `partition`, as they are written: each partition by one task, in order."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    place = F.concat_ws("/", F.lit(f"{name}:{topic}"), F.col("partition"), F.col("offset"))
    mark = F.struct(F.lit(HEADER).alias("key"), F.encode(place, "utf-8").alias("value"))
    there = F.coalesce("headers", F.array().cast(HEADERS))
    return (
        entries.repartition("partition")
        .sortWithinPartitions("partition", "offset")
        .select("partition", "key", "value", F.concat(there, F.array(mark)).alias("headers"))
    )


def mapped(replayed: DataFrame, name: str, topic: str) -> DataFrame:
    """Runs of entries that have old and new numbers without a gap: partition, first, last, to_first, to_last.

    `replayed` are entries of the topic into which they came.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    marks = F.filter("headers", lambda each: each["key"] == HEADER)
    said = F.element_at(marks, -1)["value"].cast("string")  # the last: a replay may be replayed
    start = f"{name}:{topic}/"
    places = F.split(F.substring(said, len(start) + 1, 100), "/")
    is_ours = (F.size("headers") > 0) & F.exists("headers", lambda each: each["key"] == HEADER)
    ours = replayed.where(is_ours).where(said.startswith(start))
    origins = ours.select(
        "partition", F.col("offset").alias("now"), places[1].cast("bigint").alias("number")
    )
    turn = F.row_number().over(Window.partitionBy("partition").orderBy("now"))
    return (
        origins.withColumn("turn", turn)
        .groupBy(
            "partition",
            (F.col("number") - F.col("turn")).alias("old"),
            (F.col("now") - F.col("turn")).alias("new"),
        )
        .agg(
            F.min("number").alias("first"),
            F.max("number").alias("last"),
            F.min("now").alias("to_first"),
            F.max("now").alias("to_last"),
        )
        .select("partition", "first", "last", "to_first", "to_last")
        .orderBy("partition", "to_first")
    )
