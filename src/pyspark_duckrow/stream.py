"""A streaming read of the data source: how far the next batch goes, and which tasks read it.

    latestOffset ─► a pull stands at each topic: nothing new, nobody is asked ─► how far, within the limits
    partitions   ─► from where to where, cut into tasks
    read         ─► in the tasks, as a batch read

All positions are in Spark's checkpoint, so a batch that is done again reads the same entries.  One
object lives in a process beside the driver as long as the query; tasks get copies of what it was made of.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from duckrow.node.blocking import Client
from duckrow.node.blockingreads import Watch, Where

from . import batch, offsets, tasks, topics
from .batch import Task
from .offsets import Offsets
from .options import Options
from .ranges import admitted, rows_of
from .topics import Extents

LOOK_SECONDS: Final = 30.0  # then topics are looked at anew: some may have come, or been replaced


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._known: Extents = {}
        self._look_at = 0.0  # when all is looked at anew
        self._watch: Watch | None = None
        self._initial: Offsets | None = None
        self._available: Offsets | None = None  # how far a query goes that ends
        self._grew_at = 0.0  # when the last batch was given

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - the names of Spark
        if self._initial is None:  # Spark asks twice, and latest is another place by then
            if self._available is None:  # else it would begin behind where it is to end
                self._look()
            self._initial = topics.starting(self._client, self._options, self._known)
        return offsets.written(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._look()
        self._available = self._ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin, before = offsets.read(start), {**self._known}
        if self._available is None:
            self._refresh(begin)
        self._catch_up(begin)
        fail = self._options.fail_on_loss
        topics.check_there(begin, self._known, fail=fail)
        anew = topics.made_anew(begin, before, self._known, fail=fail)
        if anew:
            return offsets.written(begin | anew)  # a batch of nothing, behind which it begins
        ends = self._available or self._ends()
        if self._available is None and self._is_too_little(begin, ends):
            return start
        taken = self._taken(begin, ends, limit)
        if taken != begin:
            self._grew_at = time.monotonic()
        return offsets.written(taken)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return offsets.written(self._ends()) if self._known else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Task]:
        begin, ends = offsets.read(start), offsets.read(end)
        if not self._known:
            self._look()  # of a batch that an earlier life of the query had begun
        self._catch_up(begin | ends)
        ranges = topics.ranges(begin, ends, self._known, self._options)
        return batch.tasks_of(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batch.read(partition, self._options, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept anywhere but in the checkpoint."""

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    @property
    def _client(self) -> Client:
        return tasks.client_of(self._options)

    def _ends(self) -> Offsets:
        return {place: extent.next for place, extent in self._known.items()}

    def _look(self) -> None:
        archive = tasks.archive_of(self._options)
        self._known = topics.look(self._client, self._options, archive)
        self._look_at = time.monotonic() + LOOK_SECONDS

    def _catch_up(self, wanted: Offsets) -> None:
        """To what was told of these places before, perhaps by another node than the one that answers now."""
        archive = tasks.archive_of(self._options)
        known = topics.caught_up(self._client, self._options, archive, self._known, wanted)
        if known is not self._known:
            self._known = known
            if self._available is not None:
                self._available = self._ends()

    def _refresh(self, begin: Offsets) -> None:
        """Learns what is new; waits for it, if all that is known was read."""
        if time.monotonic() >= self._look_at:
            self._look()
        if self._watch is None:
            self._watch = self._client.watch()
        ends = self._ends()
        has_more = any(self._begun(begin, place) < number for place, number in ends.items())
        idle = not has_more or self._is_too_little(begin, ends)
        news = self._watch.wait(self._done(), self._options.wait if idle else 0.0)
        if news:
            named = sorted({topic for topic, _ in news})
            for place, extent in topics.look_at(self._client, named, self._options).items():
                before = self._known.get(place)
                if (
                    before is not None
                    and before.topic_id == extent.topic_id
                    and self._options.archive
                ):
                    extent = extent._replace(first=min(before.first, extent.first))
                self._known[place] = extent

    def _done(self) -> dict[Where, dict[int, int]]:
        """What is known, as a watch has it; a partition that was not assigned tells nothing."""
        found: dict[Where, dict[int, int]] = {}
        for (topic, partition), extent in self._known.items():
            where = (topic, partition if self._options.assign else None)
            found.setdefault(where, {})[partition] = extent.last
        return found

    def _is_too_little(self, begin: Offsets, ends: Offsets) -> bool:
        least = self._options.min_rows
        if least is None or time.monotonic() - self._grew_at >= self._options.max_delay:
            return False
        return sum(max(0, ends[place] - self._begun(begin, place)) for place in ends) < least

    def _taken(self, begin: Offsets, ends: Offsets, limit: ReadLimit) -> Offsets:
        """How far a batch goes that begins there."""
        from_ = {place: self._begun(begin, place) for place in ends}
        if isinstance(limit, ReadMaxRows):
            return admitted(from_, ends, limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            sizes = {place: extent.entry_bytes for place, extent in self._known.items()}
            return admitted(from_, ends, rows_of(from_, ends, limit.max_bytes, sizes))
        return ends

    def _begun(self, begin: Offsets, place: offsets.Place) -> int:
        """The next number to read: of a partition that is new its first entry."""
        extent = self._known.get(place)
        return begin.get(place, 1 if extent is None else extent.first)
