"""Writes of the data source: tasks stage what they have, and the driver has all of it numbered at once.

    task 0  stage, stage ──► names ╮
    task 1  stage ─────────► names ├─► commit(writer, batch, names): all, in the order of the tasks, once
    task 2  stage, stage ──► names ╯

The writer is the streaming query (or the job, by its `producerId`), and the batch its batch.  The row
remembers the last one, so a batch that is done again, by whatever tasks at whatever node, adds nothing.
What a task that died has staged is in no commit, and is forgotten.

`idempotent = direct` has each task commit its own rows as it goes, in chunks of a fixed number of rows:
nobody waits for the slowest task, and a chunk that was committed before adds nothing.  That holds only
if the same rows come to the same tasks when a batch is done again.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import attrs
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from duckrow.node.blocking import Client
from duckrow.node.blockingstages import Name
from duckrow.node.errors import Exists, Full, NotFound, Refused
from duckrow.node.limits import COMMIT_STAGES_MAX

from . import tasks
from .bodies import pieces
from .options import Options

CHUNK_ROWS: Final = 65_536  # of a task, that are committed together where it commits itself
CHUNKS_MAX: Final = 1 << 20  # of a task and batch: 68 billion rows
FULL_SECONDS: Final = 0.2  # before a full topic is tried again
QUERY: Final = "sql.streaming.queryId"  # what Spark tells its tasks
BATCH: Final = "streaming.sql.batchId"
JOB_BATCH: Final = 1  # a job that is no stream has one batch

log: Final = logging.getLogger("duckrow.spark")


@attrs.frozen
class Staged(WriterCommitMessage):
    """What a task has staged, for the commit; nothing, if it has committed that itself."""

    writer: bytes
    names: tuple[Name, ...]


class JobWriter(DataSourceArrowWriter):
    """Of `df.write`: one batch."""

    def __init__(self, options: Options) -> None:
        self._options = options
        told = options.producer_id
        name = blake2b(told.encode(), digest_size=16).hexdigest() if told else uuid.uuid4().hex
        self._writer = f"job:{name}".encode()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return written(iterator, self._options, self._writer, JOB_BATCH)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        committed(messages, self._options, JOB_BATCH)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was staged is forgotten by itself."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Of `df.writeStream`: a batch after the other, each with its number."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        task = _task()
        query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
        assert query and batch, "Spark tells which query and batch it is"
        return written(iterator, self._options, f"query:{query}".encode(), int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        committed(messages, self._options, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was staged is forgotten by itself."""


def written(rows: Iterator[pa.RecordBatch], options: Options, writer: bytes, batch: int) -> Staged:
    """In a task: all its rows are with the node when this returns."""
    task, client = _task().partitionId(), tasks.client_of(options)
    if options.idempotent == "atomic":
        return Staged(writer, tuple(_stage(rows, options, client, (writer, batch, task))))
    own = writer + b":%d" % task
    for number, chunk in enumerate(chunks(rows, CHUNK_ROWS)):
        if number >= CHUNKS_MAX:
            raise Refused(f"a task may write {CHUNKS_MAX * CHUNK_ROWS:,} rows: use more tasks")
        place = own, batch * CHUNKS_MAX + number, task
        _commit(client, own, place[1], _stage(iter(chunk), options, client, place), options)
    return Staged(writer, ())


def committed(messages: list[WriterCommitMessage | None], options: Options, batch: int) -> None:
    """In the driver: what all tasks have staged is numbered, in their order."""
    staged = [each for each in messages if isinstance(each, Staged)]
    names = [name for each in staged for name in each.names]
    if len(names) > COMMIT_STAGES_MAX:
        raise Refused(
            f"{len(names):,} pieces are to be numbered at once, and {COMMIT_STAGES_MAX:,} can be: read "
            "less in a batch (maxOffsetsPerTrigger), raise maxStageBytes, or use fewer tasks, or "
            "idempotent=direct"
        )
    if names:
        _commit(tasks.client_of(options), staged[0].writer, batch, names, options)


def chunks(rows: Iterator[pa.RecordBatch], size: int) -> Iterator[list[pa.RecordBatch]]:
    """So many rows each, but for the last, however they came."""
    found: list[pa.RecordBatch] = []
    left = size
    for batch in rows:
        at = 0
        while at < len(batch):
            part = batch.slice(at, left)
            found.append(part)
            at, left = at + len(part), left - len(part)
            if not left:
                yield found
                found, left = [], size
    if found:
        yield found


def _stage(
    rows: Iterator[pa.RecordBatch],
    options: Options,
    client: Client,
    place: tuple[bytes, int, int],
) -> list[Name]:
    writer, batch, task = place
    staging = client.staging(writer, batch, task=task)
    counts: dict[str, int] = {}

    def partitions(topic: str) -> int:
        if topic not in counts:
            try:
                counts[topic] = len(client.topic(topic).partitions)
            except NotFound:  # it comes with its first entries
                counts[topic] = 1
        return counts[topic]

    for piece in pieces(rows, options.topic, partitions, task, options.stage_bytes):
        staging.put(
            piece.topic,
            piece.body,
            piece.count,
            partition=piece.partition,
            partitions=piece.partitions,
            key_hashes=piece.key_hashes,
        )
    return staging.names()


def _commit(client: Client, writer: bytes, batch: int, names: list[Name], options: Options) -> None:
    """Waits for room as long as a call may take."""
    deadline = time.monotonic() + options.timeout
    while True:
        try:
            client.commit(writer, batch, names)
        except Full:
            if time.monotonic() >= deadline:
                raise
            threading.Event().wait(FULL_SECONDS)
        except Exists as error:
            log.warning("batch_was_committed: %s", error)
            return
        else:
            return


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "this runs in a task"
    return task
