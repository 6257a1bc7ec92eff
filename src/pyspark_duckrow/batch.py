"""A batch read of the data source."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from . import tasks, topics
from .filters import Wanted
from .options import Options
from .ranges import Range, split

log: Final = logging.getLogger("duckrow.spark")
_NOTHING = Range("", 0, 0, 1, 1)


class Task(InputPartition):
    """One of a read: a range of one partition."""

    def __init__(self, range_: Range) -> None:
        self.range = range_

    def __repr__(self) -> str:
        topic, _, partition, first, next_ = self.range
        return f"{topic}/{partition} {first} to {next_ - 1}"


def tasks_of(ranges: list[Range], options: Options) -> list[Task]:
    return [Task(each) for each in split(ranges, options.min_tasks, options.max_task_rows)]


def read(task: InputPartition, options: Options, schema: StructType) -> Iterator[pa.RecordBatch]:
    assert isinstance(task, Task), task
    if not task.range.rows:
        return iter(())
    return tasks.read(task.range, options, to_arrow_schema(schema, timezone="UTC"))


class BatchReader(DataSourceReader):
    """What there is between two places, looked up once, when the first query of the table is planned."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> list[Task]:
        found = tasks_of(self._wanted(self._ranges()), self._options)
        return found or [Task(_NOTHING)]  # Spark makes an untyped one of none

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(partition, self._options, self._schema)

    def _ranges(self) -> list[Range]:
        options = self._options
        client, archive = tasks.client_of(options), tasks.archive_of(options)
        extents = topics.look(client, options, archive)
        start = topics.starting(client, options, extents)
        # Where it begins by a time, that entry may have come since.
        extents = topics.caught_up(client, options, archive, extents, start)
        end = topics.ending(client, options, extents)
        extents = topics.caught_up(client, options, archive, extents, end)
        topics.check_order(start, end, extents)
        return topics.ranges(start, end, extents, options)

    def _wanted(self, ranges: list[Range]) -> list[Range]:
        return ranges


class FilteringReader(BatchReader):
    """As that, and conditions of the query decide what is read.

    A class of its own: Spark refuses every read of one that could, where its own setting is off.

    Spark up to 4.3 keeps what the conditions left with the table that was loaded, and gives it to the next query of
    that table which has none that it can push: too little is read then.  Nobody here sees which query reads, so
    all that can be done is to say it.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._conditions = Wanted()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        left = [each for each in filters if not self._conditions.take(each)]
        if len(left) < len(filters):
            log.warning(
                "conditions_pushed: of the table that was loaded only what they meet is read, by other queries, "
                "too: load it anew for each query"
            )
        return left

    def _wanted(self, ranges: list[Range]) -> list[Range]:
        return self._conditions.of(ranges)
