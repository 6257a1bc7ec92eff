"""Import: entries of an export, or of any JSON lines and Parquet files with such columns, produced anew.

They get numbers, times and a producer of their own; value, key, headers and, on request, the
partition are kept.  Within a partition the order is that of the file.

    {"value": "text"}  {"value_base64": "AP8="}  and, if they are there, key, key_base64, headers,
    headers_base64, partition; other fields mean nothing here

What is wrong with a line is told with its number, before anything behind it is produced.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from duckrow.node.errors import Refused

from .export import Tell, _pyarrow, quiet

if TYPE_CHECKING:
    from duckrow import Client

ENTRIES: Final = 10_000  # produced at a time
BYTES: Final = 8 << 20


class Row(NamedTuple):
    partition: int | None
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    value: bytes


def import_lines(
    client: Client,
    topic: str,
    lines: Iterable[str],
    *,
    keep_partitions: bool = False,
    tell: Tell = quiet,
) -> int:
    """How many entries were produced.

    Raises:
        Refused: a line is no entry; says which.  Those before it were produced.
        DuckrowError: see `Client.produce_many`.
    """

    def rows() -> Iterator[Row]:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield row_of(json.loads(line))
                except (ValueError, TypeError, Refused) as error:
                    raise Refused(
                        f"line {number:,} is no entry: {error}: {line.strip():.60}"
                    ) from error

    return _produced(client, topic, rows(), keep_partitions, tell)


def import_parquet(
    client: Client,
    topic: str,
    path: Path,
    *,
    keep_partitions: bool = False,
    tell: Tell = quiet,
) -> int:
    """As `import_lines`.

    Raises:
        Refused: it is no Parquet file with entries, or pyarrow is not installed.
        OSError: it cannot be read.
    """
    pyarrow, parquet = _pyarrow()
    path.stat()  # one that is not there is told as by everybody else
    try:
        opened = parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise Refused(f"{path} is no Parquet file: {error}") from error
    with opened as file:
        columns = [
            name
            for name in ("partition", "key", "headers", "value")
            if name in file.schema_arrow.names
        ]
        if "value" not in columns:
            raise Refused(
                f"{path} has no column value; it has {', '.join(file.schema_arrow.names)}"
            )

        def rows() -> Iterator[Row]:
            number = 0
            for batch in file.iter_batches(ENTRIES, columns=columns):
                for each in batch.to_pylist():
                    number += 1
                    try:
                        yield _row_of_columns(each)
                    except (LookupError, TypeError, Refused) as error:
                        raise Refused(f"row {number:,} is no entry: {error}") from error

        return _produced(client, topic, rows(), keep_partitions, tell)


def _row_of_columns(each: dict[str, Any]) -> Row:
    """
    Raises:
        Refused, LookupError, TypeError: it is not the row of an entry.
    """
    headers = tuple((h["name"], _bytes(h["value"])) for h in each.get("headers") or ())
    key = each.get("key")
    return Row(
        _partition_of(each), None if key is None else _bytes(key), headers, _bytes(each["value"])
    )


def row_of(found: Any) -> Row:
    """
    Raises:
        Refused, ValueError, TypeError: it is not the row of an entry.
    """
    if type(found) is not dict:
        raise Refused("it is not an object")
    value = _text_or_base64(found, "value")
    if value is None:
        raise Refused("it has neither value nor value_base64")
    headers: list[tuple[str, bytes]] = []
    for field, read in (("headers", str.encode), ("headers_base64", _from_base64)):
        named = found.get(field) or {}
        if type(named) is not dict:
            raise Refused(f"{field} are no object: {named!r:.40}")
        for name, shown in named.items():
            for each in shown if type(shown) is list else [shown]:
                if type(each) is not str:
                    raise Refused(f"the header {name} is not text: {each!r:.40}")
                headers.append((name, read(each)))
    return Row(_partition_of(found), _text_or_base64(found, "key"), tuple(headers), value)


def _produced(
    client: Client, topic: str, rows: Iterable[Row], keep_partitions: bool, tell: Tell
) -> int:
    done = 0
    for partition, some in _gathered(rows, keep_partitions):
        keys = [row.key for row in some]
        headers = [row.headers for row in some]
        client.produce_many(
            topic,
            [row.value for row in some],
            keys=keys if any(key is not None for key in keys) else None,
            headers=headers if any(headers) else None,
            partition=partition,
        )
        done += len(some)
        tell(len(some))
    return done


def _gathered(rows: Iterable[Row], by_partition: bool) -> Iterator[tuple[int | None, list[Row]]]:
    """Runs of the same partition; what a line had of an error is not held up by those before it."""
    some: list[Row] = []
    size = 0
    partition: int | None = None
    iterator = iter(rows)
    while True:
        error: Exception | None = None
        try:
            row = next(iterator, None)
        except Exception as caught:  # noqa: BLE001 - told once what came before is produced
            row, error = None, caught
        here = row.partition if row is not None and by_partition else None
        if some and (row is None or here != partition or len(some) >= ENTRIES or size >= BYTES):
            yield partition, some
            some, size = [], 0
        if error is not None:
            raise error
        if row is None:
            return
        partition = here
        some.append(row)
        size += len(row.value)


def _partition_of(found: dict[str, Any]) -> int | None:
    partition: int | None = found.get("partition")
    if partition is not None and (type(partition) is not int or partition < 0):
        raise Refused(f"its partition is {partition!r}")
    return partition


def _text_or_base64(found: dict[str, Any], name: str) -> bytes | None:
    text, coded = found.get(name), found.get(f"{name}_base64")
    if text is not None and coded is not None:
        raise Refused(f"it has both {name} and {name}_base64")
    if coded is not None:
        return _from_base64(coded)
    return None if text is None else _bytes(text)


def _from_base64(text: object) -> bytes:
    if type(text) is not str:
        raise Refused(f"{text!r:.40} is not text")
    return b64decode(text, validate=True)


def _bytes(value: str | bytes) -> bytes:
    if type(value) is bytes:
        return value
    if type(value) is not str:
        raise Refused(f"{value!r:.40} is not text")
    return value.encode()
