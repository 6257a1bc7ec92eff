"""A table of PostgreSQL, as a sink of Spark: rows that it has already are left as they are.

    task  rows ──► COPY into a table of the session ──► INSERT ... ON CONFLICT DO NOTHING ──► commit

Each task is a transaction, and the key is the entry itself.  So a batch that is done again, by whatever
tasks, adds nothing, and there is nothing that a commit of all tasks together could add to that.

The tasks import this module: where Spark is a cluster, its machines have the package, with psycopg.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, LiteralString

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from duckrow.node.errors import Refused

from .metrics import COLUMNS, KEY

if TYPE_CHECKING:
    import psycopg
    import pyarrow
    from psycopg.sql import Composed, Identifier

FORMAT: Final = "duckrow_postgres"
STAGED: Final = "duckrow_staged"


class PostgresSink(DataSource):
    """`df.writeStream.format("duckrow_postgres")`, with the options `to` and `table`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        assert schema.names == [*COLUMNS], "rows are those of metrics.py"
        return Writer(self.options)


class Writer(DataSourceStreamArrowWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._to, self._table = options["to"], options["table"]

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        put(self._to, self._table, iterator)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Each task has committed what is its own."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What some tasks have committed is there when the batch is done again."""


def put(to: str, table: str, batches: Iterator[pyarrow.RecordBatch]) -> None:
    """All rows, in a transaction; those that are there already stay as they are.

    Raises:
        Refused: the database does not take them.
    """
    rows = chain.from_iterable(_rows(batch) for batch in batches)
    first = next(rows, None)
    if first is None:
        return
    with connected(to) as connection, connection.cursor() as cursor:
        cursor.execute(_sql("create temp table {staged} (like {table}) on commit drop", table))
        with cursor.copy(_sql("copy {staged} ({columns}) from stdin", table)) as copy:
            for row in chain((first,), rows):
                copy.write_row(row)
        cursor.execute(_insert(table))


def prepare(to: str, table: str) -> None:
    """The table is there, and can be inserted into.

    Raises:
        Refused: it is not, and cannot be made; or it has other columns or another key.
    """
    with connected(to) as connection:
        connection.execute(
            _sql("create table if not exists {table} ({kinds}, primary key ({key}))", table)
        )
        connection.execute(_sql("create temp table {staged} (like {table}) on commit drop", table))
        connection.execute(
            _insert(table)
        )  # of nothing: whether columns and key are as they should be


def count(to: str, table: str, topic: str) -> int:
    """Rows of that topic."""
    with connected(to) as connection:
        found = connection.execute(
            _sql("select count(*) from {table} where topic = %s", table), [topic]
        )
        (rows,) = found.fetchone() or (0,)
    return int(rows)


@contextmanager
def connected(to: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """Committed at the end, or rolled back.

    Raises:
        Refused: psycopg is missing, or what the database says.
    """
    try:
        import psycopg
    except ImportError as error:
        raise Refused(
            "psycopg is not installed, or has no libpq: pip install 'duckrow[postgres]'"
        ) from error
    try:
        with psycopg.connect(to) as connection:
            yield connection
    except psycopg.Error as error:
        raise Refused(f"PostgreSQL says: {' '.join(str(error).split())}") from error


def _insert(table: str) -> Composed:
    return _sql(
        "insert into {table} ({columns}) select {columns} from {staged} on conflict ({key}) do nothing",
        table,
    )


def _sql(text: LiteralString, table: str) -> Composed:
    from psycopg import sql

    def names(of: Any) -> Composed:
        return sql.SQL(", ").join(map(sql.Identifier, of))

    kinds = [
        sql.SQL(" ").join([sql.Identifier(name), sql.SQL(kind)]) for name, kind in COLUMNS.items()
    ]
    return sql.SQL(text).format(
        table=_table(table),
        staged=sql.Identifier(STAGED),
        kinds=sql.SQL(", ").join(kinds),
        columns=names(COLUMNS),
        key=names(KEY),
    )


def _table(name: str) -> Identifier:
    """With its schema, if that is told."""
    from psycopg import sql

    return sql.Identifier(*name.split(".", 1))


def _rows(batch: pyarrow.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)
