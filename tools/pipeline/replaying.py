"""The main part of a replay: which files have what is wanted, a write for each round, and the map."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from duckrow.node.archivenames import Named, Span, gaps, tidy
from duckrow.node.archiveplace import Place
from duckrow.node.errors import NotFound, Refused

from ..console import Console
from .replay import ARCHIVED, REPLAYED, Piece, left, mapped, marked, rounds, within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from duckrow import Client

PATTERN: Final = re.compile(r"[][{}*?\\]")  # what makes one of a path, to Spark
CHECKED: Final = "parquet.page.verify-checksum.enabled"


class Into(NamedTuple):
    """Where history comes in."""

    node: Mapping[str, str]  # options of the data source
    topic: str
    which: str  # of that name: see `target`
    name: str  # of the replay


class History(NamedTuple):
    """What the archive has of a topic, and is wanted."""

    place: Place
    topic: str
    files: dict[int, list[Span]]  # by partition
    wanted: dict[int, list[Span]]

    @property
    def entries(self) -> int:
        return sum(len(span) for spans in self.wanted.values() for span in spans)

    @property
    def missing(self) -> int:
        """Numbers between the first and the last that no file has."""
        return sum(len(gap) for spans in self.wanted.values() for gap in gaps(spans))

    def paths(self, piece: Piece) -> list[str]:
        """Of the files that have some of it, as Spark finds them: to it a path alone may be one of HDFS, and
        brackets stand for other characters.
        """
        names = [
            Named(self.topic, piece.partition, span).path
            for span in self.files[piece.partition]
            if within([span], *piece.span)
        ]
        where = f"file://{self.place}" if self.place.local else str(self.place)
        return [PATTERN.sub(r"\\\g<0>", f"{where}/{name}") for name in names]


def history(place: Place, topic: str, partition: int | None, first: int, last: int) -> History:
    """
    Raises:
        NotFound: there is nothing of it.
        Refused: two files have the same numbers, and neither holds the other.
    """
    files: dict[int, list[Span]] = {}
    for file in place.files(topic, partition):
        files.setdefault(file.named.partition, []).append(file.named.span)
    files = {each: tidy(spans) for each, spans in files.items()}
    for each, spans in files.items():
        for before, after in pairwise(spans):
            if after.first <= before.last:
                name = Named(topic, each, after).path
                raise Refused(f"{place}/{name} begins before {before.last:,}, where one ends")
    wanted = {each: within(spans, first, last) for each, spans in files.items()}
    found = History(place, topic, files, {each: spans for each, spans in wanted.items() if spans})
    if not found.wanted:
        raise NotFound(f"the archive at {place} has no such entries of {topic!r}")
    return found


def target(client: Client, name: str, partitions: int) -> str:
    """A topic that has at least so many partitions; it is made if there is none.  Which one it is, and
    where it begins: what came into an older one, or was pruned since, may come in again.

    Raises:
        Refused: it has fewer.
    """
    if name not in client.topics():
        client.create_topic(name, partitions=partitions)
    info = client.topic(name)
    there = len(info.partitions)
    if there < partitions:
        raise Refused(
            f"{name!r} has {there} partitions, and the history {partitions}: "
            f"duckrow topic set {name} --partitions {partitions}"
        )
    return f"{info.id} {','.join(str(each.first) for each in info.partitions)}"


def replayed(
    spark: SparkSession, console: Console, past: History, into: Into, size: int
) -> dict[str, Any]:
    """What this run did, and the map of all that came in under this name."""
    before = _map(spark, past, into)
    done: dict[int, list[Span]] = {}
    for run in before:
        done.setdefault(run["partition"], []).append(Span(run["first"], run["last"]))
    wanted = {each: left(spans, done.get(each, ())) for each, spans in past.wanted.items()}
    entries = sum(len(span) for spans in wanted.values() for span in spans)
    with console.progress("replayed", entries) as progress:
        for pieces in rounds(wanted, size):
            _write(spark, past, pieces, into)
            progress.add(sum(len(each.span) for each in pieces))
    return {
        "entries": entries,
        "there": past.entries - entries,
        "missing": past.missing,
        "runs": _map(spark, past, into) if entries else before,
    }


def _write(spark: SparkSession, past: History, pieces: Sequence[Piece], into: Into) -> None:
    rows = reduce(
        lambda one, other: one.unionByName(other), [_read(spark, past, p) for p in pieces]
    )
    # Spark may try it again, and somebody may run the same replay: it is numbered once.
    what = ",".join(f"{each.partition}:{each.span.first}-{each.span.last}" for each in pieces)
    producer = f"replay {into.name} {past.topic} {into.topic} {into.which} {what}"
    writer = marked(rows, into.name, past.topic).write.format("duckrow").mode("append")
    writer.options(**into.node, topic=into.topic, producerId=producer).save()


def _read(spark: SparkSession, past: History, piece: Piece) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    reader = spark.read.schema(ARCHIVED).option(CHECKED, "true")
    inside = F.col("offset").between(piece.span.first, piece.span.last)
    rows = reader.parquet(*past.paths(piece)).where(inside)
    return rows.withColumn("partition", F.lit(piece.partition))


def _map(spark: SparkSession, past: History, into: Into) -> list[dict[str, Any]]:
    reader = spark.read.format("duckrow").schema(REPLAYED)
    options = {**into.node, "subscribe": into.topic, "includeHeaders": "true"}
    there = mapped(reader.options(**options).load(), into.name, past.topic)
    return [run.asDict() for run in there.collect()]
