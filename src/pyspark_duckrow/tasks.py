"""What a task of Spark does: it reads one range of one partition, over a connection of its own.

A worker process of Spark does one task after the other and keeps the connection between them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import pyarrow as pa

import duckrow
from duckrow.node.archivenames import Span
from duckrow.node.archiveplace import Place
from duckrow.node.archivereading import Archive
from duckrow.node.blocking import Client

from . import topics
from .arrow import archived_batches, record_batches
from .options import Options
from .ranges import Range


@functools.lru_cache(maxsize=4)
def _client(nodes: str, token: str | None, timeout: float) -> Client:
    return duckrow.connect(nodes, name="spark", token=token, timeout=timeout)


def client_of(options: Options) -> Client:
    """The connection of this process; made when it is first used."""
    return _client(options.nodes, options.token, options.timeout)


@functools.lru_cache(maxsize=4)
def archive_at(place: str) -> Archive:
    """The archive as this process sees it.

    Raises:
        NotFound: there is none.
    """
    archive = Archive(Place(place))
    archive.reach()
    return archive


def archive_of(options: Options) -> Archive | None:
    return archive_at(options.archive) if options.archive else None


def read(range_: Range, options: Options, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """All entries of the range, in their order: from a file of the archive, else from the node, which
    also gives what it keeps until the archive has it.

    Raises:
        Refused: some were pruned meanwhile, and that is not allowed.
        DuckrowError: they could not be read.
    """
    at = range_.first
    while at < range_.next:
        for batch, next_ in _pieces(range_._replace(first=at), options, schema):
            at = next_
            yield from batch


_Piece = tuple[Iterable[pa.RecordBatch], int]  # rows, and the number behind them


def _pieces(range_: Range, options: Options, schema: pa.Schema) -> Iterator[_Piece]:
    """As much as comes from one place; at least one entry, or the number behind what is lost."""
    at, end = range_.first, range_.next
    if options.archive:
        for rows in _archived(range_, options):
            at += rows.num_rows
            yield archived_batches(rows, range_, schema, options.fetch_rows), at
        if at > range_.first:
            return
    pulls = client_of(options).between(
        range_.topic,
        at,
        end - 1,
        partition=range_.partition,
        max_bytes=options.fetch_bytes,
        topic_id=range_.topic_id,
        kept=bool(options.archive),
    )
    try:
        for found in pulls:
            first = found.batches[0].first
            if first > at:
                break
            at = found.batches[-1].last + 1
            yield record_batches(found.batches, schema, options.fetch_rows), at
        else:
            first = end
    finally:
        pulls.close()
    if at == range_.first:  # else it is looked for in the archive again
        there = _first_archived(range_, options)
        lost_before = min(end, first, end if there is None else there)
        if lost_before > at:  # else it has come there meanwhile
            _missing(range_, at, lost_before - 1, options)
        yield (), lost_before


def _archived(range_: Range, options: Options) -> Iterator[pa.Table]:
    topic, topic_id, partition, first, next_ = range_
    archive = archive_at(options.archive)
    return archive.tables(topic, topic_id, partition, Span(first, next_ - 1))


def _first_archived(range_: Range, options: Options) -> int | None:
    archive = archive_of(options)
    if archive is None:
        return None
    return archive.first(range_.topic, range_.topic_id, range_.partition, range_.first)


def _missing(range_: Range, first: int, last: int, options: Options) -> None:
    topics.lost(
        f"topic {range_.topic!r} partition {range_.partition}: entries {first:,} to {last:,} were pruned "
        "while they were to be read"
        + (", and no file of the archive has them" if options.archive else ""),
        options.fail_on_loss,
    )
