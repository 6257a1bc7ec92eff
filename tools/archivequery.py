"""Queries over an archive, by DuckDB: a view for each topic, and `archive` of all of them.  To DuckDB names in
capitals and small letters are the same: topics that differ by that alone have no view, and are read from `archive`.

A folder DuckDB reads itself; other file systems are read by pyarrow, which takes only the columns and
the row groups that a query wants.  Of files that have the same entries, since a compaction was killed, only
the one that holds the others is read.  Results come as Arrow, a piece at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from duckrow.node.archivenames import Named, Span, tidy
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
    names = _names(place)
    topics = sorted({name.topic for name in names})
    if not topics:
        raise NotFound(f"the archive at {place} has no files yet")
    database = duckdb.connect()
    try:
        database.execute("set timezone = 'UTC'")
        if place.local:
            files = ", ".join(_text(place.path(name.path)) for name in names)
            kinds = "{'topic': varchar, 'partition': integer}"
            source = f"read_parquet([{files}], hive_partitioning = true, hive_types = {kinds})"
            database.execute(f"create view {ALL} as select * from {source}")
        else:
            database.register(ALL, _dataset(place, names))
        called = Counter([ALL, *(topic.lower() for topic in topics)])
        for topic in topics:
            if called[topic.lower()] == 1:
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


def _names(place: Place) -> list[Named]:
    """Of the files that have each entry once."""
    spans: dict[tuple[str, int], list[Span]] = {}
    for name, _ in place.files():
        spans.setdefault((name.topic, name.partition), []).append(name.span)
    return [Named(*each, span) for each, found in spans.items() for span in tidy(found)]


def _dataset(place: Place, names: list[Named]) -> Any:
    import pyarrow
    from pyarrow import dataset

    folders = pyarrow.schema([("topic", pyarrow.string()), ("partition", pyarrow.int32())])
    return dataset.dataset(
        [place.path(name.path) for name in names],
        format="parquet",
        filesystem=place.filesystem,
        partitioning=dataset.partitioning(folders, flavor="hive"),
    )


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
