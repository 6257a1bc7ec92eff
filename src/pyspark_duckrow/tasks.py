"""What a task of Spark does: it reads one range of one partition, over a connection of its own.

A worker process of Spark does one task after the other and keeps the connection between them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pyarrow as pa

import duckrow
from duckrow.node.blocking import Client

from . import topics
from .arrow import record_batches
from .options import Options
from .ranges import Range


@functools.lru_cache(maxsize=4)
def _client(nodes: str, token: str | None, timeout: float) -> Client:
    return duckrow.connect(nodes, name="spark", token=token, timeout=timeout)


def client_of(options: Options) -> Client:
    """The connection of this process; made when it is first used."""
    return _client(options.nodes, options.token, options.timeout)


def read(range_: Range, options: Options, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """All entries of the range, in their order.

    Raises:
        Refused: some were pruned meanwhile, and that is not allowed.
        DuckrowError: they could not be read.
    """
    topic, topic_id, partition, expected, next_ = range_
    pulls = client_of(options).between(
        topic,
        expected,
        next_ - 1,
        partition=partition,
        max_bytes=options.fetch_bytes,
        topic_id=topic_id,
    )
    try:
        for found in pulls:
            first = found.batches[0].first
            if first > expected:
                _missing(range_, expected, first - 1, options)
            expected = found.batches[-1].last + 1
            yield from record_batches(found.batches, schema, options.fetch_rows)
        if expected < next_:
            _missing(range_, expected, next_ - 1, options)
    finally:
        pulls.close()


def _missing(range_: Range, first: int, last: int, options: Options) -> None:
    topics.lost(
        f"topic {range_.topic!r} partition {range_.partition}: entries {first:,} to {last:,} were pruned "
        "while they were to be read",
        options.fail_on_loss,
    )
