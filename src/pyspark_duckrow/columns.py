"""The columns of the data source: those of Spark's Kafka source, in its order and with its types.

A read has all of them, or those that the user's schema names: no others are made.  Pure, and without
Spark: types are as Spark writes them in text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from duckrow.node.errors import Refused

ALWAYS, WITH_HEADERS, WITH_METADATA = "", "includeHeaders", "includeMetadata"


class Column(NamedTuple):
    name: str
    type: str
    when: str  # the option that brings it
    says: str


COLUMNS: Final = (
    Column("key", "binary", ALWAYS, "null where the entry has none"),
    Column("value", "binary", ALWAYS, "never null"),
    Column("topic", "string", ALWAYS, ""),
    Column("partition", "int", ALWAYS, ""),
    Column("offset", "bigint", ALWAYS, "the number of the entry; the first is 1 (Kafka's is 0)"),
    Column(
        "timestamp", "timestamp", ALWAYS, "the entry's time, by the row: the same on every node"
    ),
    Column("timestampType", "int", ALWAYS, "1: the time is the log's, not the producer's"),
    Column(
        "headers",
        "array<struct<key:string,value:binary>>",
        WITH_HEADERS,
        "null where there are none",
    ),
    Column(
        "producer", "string", WITH_METADATA, "which producer wrote the entry: 32 hexadecimal digits"
    ),
    Column(
        "position", "bigint", WITH_METADATA, "of what numbered the entry, in the row of the cluster"
    ),
)
WRITTEN: Final = (
    Column("value", "binary or string", ALWAYS, "needed, and never null"),
    Column("key", "binary or string", ALWAYS, "chooses the partition; null: none"),
    Column("topic", "string", ALWAYS, "needed if there is no option `topic`, which goes before it"),
    Column("partition", "int", ALWAYS, "chooses the partition; null: the key does"),
    Column("headers", "array<struct<key:string,value:binary>>", ALWAYS, ""),
)


def chosen(*, headers: bool, metadata: bool) -> tuple[Column, ...]:
    wanted = {ALWAYS} | ({WITH_HEADERS} if headers else set())
    return tuple(
        column
        for column in COLUMNS
        if column.when in wanted or (metadata and column.when == WITH_METADATA)
    )


def ddl(columns: Sequence[Column]) -> str:
    """A schema as Spark reads it."""
    return ", ".join(f"`{column.name}` {column.type}" for column in columns)


def check_schema(fields: Sequence[tuple[str, str]]) -> None:
    """Names and types that a user's schema has.

    Raises:
        Refused: a column that there is not, or of another type.
    """
    types = {column.name: column.type for column in COLUMNS}
    for name, kind in fields:
        if name not in types:
            raise Refused(f"the schema has a column {name!r}; there are {', '.join(types)}")
        if kind != types[name]:
            raise Refused(
                f"the schema says that {name!r} is {kind}, and it is {types[name]}: cast it afterwards"
            )


def check_written(fields: Sequence[tuple[str, str]], topic: str) -> None:
    """Names and types of what is to be written.  What only a read has, such as `offset`, is left out: so a topic
    that was read may be written as it is.

    Raises:
        Refused: a column is missing, unknown, or of a type that cannot be written.
    """
    told = dict(fields)
    known = {column.name: column.type for column in WRITTEN}
    of_a_read = {column.name for column in COLUMNS}
    for name, kind in fields:
        if name not in known and name in of_a_read:
            continue
        if name not in known:
            raise Refused(
                f"there is no place for the column {name!r}: select {', '.join(known)}, or some of them"
            )
        if kind not in known[name].split(" or "):
            raise Refused(f"the column {name!r} is {kind}, and has to be {known[name]}: cast it")
    if "value" not in told:
        raise Refused(f"there is no column 'value' among {', '.join(told) or 'none'}")
    if "topic" not in told and not topic:
        raise Refused("say where the rows go: an option topic, or a column 'topic'")
