"""Queries over an archive, by DuckDB: a view for each topic, and `archive` of all of them.

A folder DuckDB reads itself; other file systems are read by pyarrow, which takes only the columns and
the row groups that a query wants.  Results come as Arrow, a piece at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from duckrow.node.archiveplace import Place
from duckrow.node.errors import NotFound, Refused

ALL: Final = "archive"
PIECE: Final = 10_000  # rows

Rows = Iterator[list[dict[str, Any]]]


def query(place: Place, sql: str) -> tuple[list[str], Rows]:
    """The names of the columns, and the rows.

    Raises:
        Refused: duckdb is missing, or does not understand it.
        NotFound: there are no files.
    """
    try:
        import duckdb
    except ImportError as error:
        raise Refused("queries need duckdb: pip install 'duckrow[query]'") from error
    topics = sorted({file.named.topic for file in place.files()})
    if not topics:
        raise NotFound(f"the archive at {place} has no files yet")
    database = duckdb.connect()
    try:
        database.execute("set timezone = 'UTC'")
        if place.local:
            files = _text(f"{place.where}/topic=*/partition=*/*.parquet")
            kinds = "{'topic': varchar, 'partition': integer}"
            source = f"read_parquet({files}, hive_partitioning = true, hive_types = {kinds})"
            database.execute(f"create view {ALL} as select * from {source}")
        else:
            database.register(ALL, _dataset(place))
        for topic in topics:
            if topic != ALL:
                database.execute(
                    f"create view {_name(topic)} as select * from {ALL} where topic = {_text(topic)}"
                )
        result = database.sql(sql)
        if result is None:
            raise Refused("that is no query: it has no rows")
        found = result.to_arrow_reader(PIECE)
    except duckdb.Error as error:
        raise Refused(f"duckdb: {error}") from error
    return found.schema.names, (piece.to_pylist() for piece in found)


def _dataset(place: Place) -> Any:
    import pyarrow
    from pyarrow import dataset

    folders = pyarrow.schema([("topic", pyarrow.string()), ("partition", pyarrow.int32())])
    return dataset.dataset(
        place.path(),
        format="parquet",
        filesystem=place.filesystem,
        partitioning=dataset.partitioning(folders, flavor="hive"),
    )


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
