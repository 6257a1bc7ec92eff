"""The main part of a compaction: a task of Spark for each file that is made.

    small files ──► checked, row by row ──► one file, under its name when it is synced ──► read again ──► they go

A kill at any moment leaves either the small files, or those and the large one: readers know each number from
one file alone, and the next compaction ends what was begun.  The tasks import this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from duckrow.node.archivenames import Named, Span
from duckrow.node.archiveplace import Place
from duckrow.node.archivereading import entries_in, footer_of, verified
from duckrow.node.archivetables import groups
from duckrow.node.errors import Conflict, Corrupt, DuckrowError

from ..archivewriting import Writer
from .compact import Merge, merges

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

HAND: Final = "compaction"  # in the names of files on their way
ROW: Final = (
    "place string, topic string, partition int, first bigint, last bigint, "
    "of array<struct<first:bigint,last:bigint>>, there boolean"
)


class Job(NamedTuple):
    """A file that is made, or was made by somebody who did not come to the end."""

    topic: str
    partition: int
    merge: Merge

    @property
    def name(self) -> Named:
        return Named(self.topic, self.partition, self.merge.into)

    @property
    def sources(self) -> list[Named]:
        return [Named(self.topic, self.partition, span) for span in self.merge.of]


def jobs(place: Place, topic: str | None, size: int) -> list[Job]:
    """
    Raises:
        OSError: the archive cannot be read.
    """
    found: dict[tuple[str, int], list[Span]] = {}
    for file in place.files(topic):
        found.setdefault((file.named.topic, file.named.partition), []).append(file.named.span)
    return [Job(*key, merge) for key, spans in found.items() for merge in merges(spans, size)]


def compact(place: Place, job: Job) -> None:
    """
    Raises:
        Corrupt: a file is not as it was written; those that hold its entries stay.
        Conflict: the files are of different topics, which had this name one after the other.
        OSError: the archive cannot be read, or written.
    """
    ids = {footer_of(place, each).topic_id for each in job.sources}
    if len(ids) > 1:
        raise Conflict(f"the files of {place}/{job.name.path} are of different topics of that name")
    if not job.merge.there:
        _write(place, job, min(ids), replace=False)
    try:
        made = verified(place, job.name)
    except Corrupt:
        if sum(map(len, job.merge.of)) != len(job.merge.into):
            raise
        _write(place, job, min(ids), replace=True)
        made = verified(place, job.name)
    if made.topic_id not in ids:
        raise Conflict(f"{place}/{job.name.path} is of another topic than the files within it")
    for each in job.sources:
        place.remove(each.path)


def compacted(spark: SparkSession, place: Place, found: Sequence[Job]) -> list[tuple[str, str]]:
    """The files, and why one could not be made."""
    rows = [
        (
            str(place),
            each.topic,
            each.partition,
            *each.merge.into,
            [tuple(span) for span in each.merge.of],
            each.merge.there,
        )
        for each in found
    ]
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    table = spark.createDataFrame(rows, ROW)
    task = F.udf(_task, "string", useArrow=False).asNondeterministic()  # without Arrow: no pandas
    told = table.repartition(len(rows)).select(task(F.struct(*table.columns)).alias("why"), "*")
    return sorted(
        (Named(row["topic"], row["partition"], Span(row["first"], row["last"])).path, row["why"])
        for row in told.collect()
    )


def _write(place: Place, job: Job, topic_id: int, *, replace: bool) -> None:
    entries = chain.from_iterable(entries_in(place, each) for each in job.sources)
    writer = Writer(place, job.name, topic_id, HAND, replace=replace)
    try:
        for group in groups(entries):
            writer.put(group)
    finally:
        writer.abandon()  # unless it is finished


def _task(row: Row) -> str:
    """Why the file could not be made; empty: it is."""
    of = tuple(Span(each["first"], each["last"]) for each in row["of"])
    merge = Merge(Span(row["first"], row["last"]), of, row["there"])
    try:
        compact(Place(row["place"]), Job(row["topic"], row["partition"], merge))
    except (DuckrowError, OSError) as error:
        return str(error)
    return ""
