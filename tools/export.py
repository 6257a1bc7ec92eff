"""Export: the entries of a topic as they are now, in JSON lines or in one Parquet file.

JSON lines are those of `duckrow pull -o jsonl`.  Parquet has the same columns, with bytes as bytes:

    topic string, partition int32, number int64, time timestamp[us, UTC], producer binary,
    key binary or null, value binary, headers list<struct<name string, value binary>>

What comes while it is exported is left out, so an export ends however fast a topic grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from duckrow.node.errors import Refused

from .rows import json_lines
from .wholefile import whole_file

if TYPE_CHECKING:
    import pyarrow

    from duckrow import Client
    from duckrow.node.entries import Batch

PAGE: Final = 65_536
PAGE_BYTES: Final = 4 << 20
ROWS: Final = 1 << 17  # of a row group, about

Tell = Callable[[int], None]  # so many entries more are done


def quiet(_more: int) -> None:
    """For whoever does not want to know."""


def count(client: Client, topic: str) -> int:
    """
    Raises:
        NotFound: there is no such topic.
    """
    return sum(part.entries for part in client.topic(topic).partitions)


def export_lines(
    client: Client, topic: str, write: Callable[[str], object], *, tell: Tell = quiet
) -> int:
    """How many entries were written.

    Raises:
        NotFound: there is no such topic.
    """
    done = 0
    for batch in batches(client, topic):
        write(json_lines(batch))
        done += len(batch)
        tell(len(batch))
    return done


def export_file(client: Client, topic: str, path: Path, *, tell: Tell = quiet) -> int:
    """As `export_lines`, to a file, which is there when it is whole.

    Raises:
        NotFound: there is no such topic.
    """
    with whole_file(path) as aside, aside.open("w", encoding="utf-8") as file:
        return export_lines(client, topic, file.write, tell=tell)


def export_parquet(client: Client, topic: str, path: Path, *, tell: Tell = quiet) -> int:
    """As `export_file`, in Parquet.

    Raises:
        NotFound: there is no such topic.
        Refused: pyarrow is not installed.
    """
    arrow, parquet = _pyarrow()
    schema = _schema(arrow)
    done = 0
    with (
        whole_file(path) as aside,
        parquet.ParquetWriter(aside, schema, compression="zstd") as writer,
    ):
        rows: list[Batch] = []
        held = 0
        for batch in batches(client, topic):
            rows.append(batch)
            held += len(batch)
            if held >= ROWS:
                writer.write_table(_table(arrow, schema, rows))
                rows, held = [], 0
            done += len(batch)
            tell(len(batch))
        if rows:
            writer.write_table(_table(arrow, schema, rows))
    return done


def batches(client: Client, topic: str) -> Iterator[Batch]:
    """All there are now, partition by partition.

    Raises:
        NotFound: there is no such topic.
    """
    for part in client.topic(topic).partitions:
        after: Any = 0
        last = 0
        while last < part.last:
            entries = client.pull(
                topic, after, partition=part.partition, limit=PAGE, max_bytes=PAGE_BYTES
            )
            if not entries:
                break  # all of it was pruned meanwhile
            for batch in entries.batches:
                if batch.first > part.last:
                    break
                yield batch.part(0, min(len(batch), part.last + 1 - batch.first))
            last, after = entries.batches[-1].last, entries.after


def _table(arrow: Any, schema: Any, rows: list[Batch]) -> pyarrow.Table:
    entries = [entry for batch in rows for entry in batch.entries()]
    columns = (
        [entry.topic for entry in entries],
        [entry.partition for entry in entries],
        [entry.number for entry in entries],
        [entry.time for entry in entries],
        [entry.producer for entry in entries],
        [entry.key for entry in entries],
        [entry.value for entry in entries],
        [[{"name": name, "value": value} for name, value in entry.headers] for entry in entries],
    )
    arrays = [arrow.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
    return arrow.Table.from_arrays(arrays, schema=schema)


def _schema(arrow: Any) -> pyarrow.Schema:
    header = arrow.struct([("name", arrow.string()), ("value", arrow.binary())])
    return arrow.schema(
        [
            arrow.field("topic", arrow.string(), nullable=False),
            arrow.field("partition", arrow.int32(), nullable=False),
            arrow.field("number", arrow.int64(), nullable=False),
            arrow.field("time", arrow.timestamp("us", "UTC"), nullable=False),
            arrow.field("producer", arrow.binary(), nullable=False),
            arrow.field("key", arrow.binary()),
            arrow.field("value", arrow.binary(), nullable=False),
            arrow.field("headers", arrow.list_(header), nullable=False),
        ]
    )


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise Refused("Parquet needs pyarrow: pip install 'duckrow[parquet]'") from error
    return pyarrow, parquet
