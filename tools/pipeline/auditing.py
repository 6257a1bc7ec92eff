"""The main part of the audit: segments, and then the entries of those that are suspect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..console import Console
from .audit import (
    CHANGED,
    DUPLICATE,
    GAP,
    Stretch,
    findings,
    runs_of,
    segments_of,
    suspects,
    wanted_table,
)
from .nodes import Seen, rows
from .watching import watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def audited(
    spark: SparkSession,
    console: Console,
    nodes: Sequence[Seen],
    stretches: Sequence[Stretch],
    limit: int,
) -> dict[str, Any]:
    """What was found, with the first differences."""
    names = [each.name for each in nodes]
    counts = dict.fromkeys((GAP, DUPLICATE, CHANGED), 0)
    found: list[Stretch] = []
    differences: list[dict[str, Any]] = []
    with watched(spark, console):
        if stretches:
            wanted = wanted_table(spark, [*segments_of(stretches)])
            of_all = suspects(rows(spark, nodes, stretches), wanted, names)
            found = [Stretch(*each) for each in of_all.collect()]
        if found:
            wanted = wanted_table(spark, found)
            table = findings(rows(spark, nodes, runs_of(found)), wanted, names).cache()
            counts |= {
                each["what"]: each["count"] for each in table.groupBy("what").count().collect()
            }
            first = table.orderBy("topic", "partition", "offset", "what").limit(limit)
            differences = [each.asDict() for each in first.collect()]
            table.unpersist()
    return {
        "same": not found,
        "suspects": len(found),
        "gaps": counts[GAP],
        "duplicates": counts[DUPLICATE],
        "changed": counts[CHANGED],
        "differences": differences,
    }
