"""Metrics of tests: entries that are measurements become rows of a table of a database.  Pure.

An entry is a JSON object with a `name` and a number `value`; what else it has are its labels:

    {"name": "response_ms", "value": 12.5, "test": "login", "host": "m1"}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, LiteralString

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

COLUMNS: Final[dict[str, LiteralString]] = {
    "topic": "text not null",
    "partition": "int not null",
    "number": "bigint not null",
    "position": "bigint not null",
    "time": "timestamptz not null",
    "name": "text not null",
    "value": "double precision not null",
    "labels": "jsonb not null",
}
# Of one entry: a topic that is deleted and made again has the same numbers, at other positions.
KEY: Final = ("topic", "partition", "number", "position")


def measurements(entries: DataFrame) -> DataFrame:
    """A row for each entry; one that is no measurement has no `name`."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    text = F.col("value").cast("string")
    said = F.from_json(text, "map<string,string>")
    named = entries.withColumn("said", F.when(F.is_valid_utf8(text), said))
    value = F.col("said")["value"].try_cast("double")
    labels = F.map_filter("said", lambda key, _value: ~key.isin("name", "value"))
    told = named.select(
        "topic",
        "partition",
        F.col("offset").alias("number"),
        "position",
        F.col("timestamp").alias("time"),
        F.col("said")["name"].alias("name"),
        value.alias("value"),
        F.to_json(labels).alias("labels"),
    )
    return told.withColumn("name", F.when(_is_measurement(), F.col("name")))


def is_measurement() -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    return F.col("name").isNotNull()


def observed(row: Row) -> dict[str, Any]:
    """What Spark has observed, by name.  Spark Connect tells the values beside their schema."""
    told = row.asDict()
    if {*told} == {"values", "schema"}:
        return dict(
            zip((each["name"] for each in told["schema"]["fields"]), told["values"], strict=True)
        )
    return told


def _is_measurement() -> Column:
    """PostgreSQL has no text with a zero in it."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    has_zero = F.col("name").contains("\0") | F.col("labels").contains("\\u0000")
    return F.col("value").isNotNull() & F.col("labels").isNotNull() & ~has_zero
