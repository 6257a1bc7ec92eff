"""Nodes as a job sees them: what each has, and its entries as a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from .audit import Extents, Stretch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from duckrow import Client

MOST_OF_A_TASK = 500_000  # entries


class Seen(NamedTuple):
    name: str  # among those of the audit, no other one has it
    url: str
    token: str
    extents: Extents


def extents(client: Client, topics: Sequence[str]) -> Extents:
    """Of these topics, or of all; one that the node does not have is left out.

    Raises:
        DuckrowError: the node does not answer.
    """
    there = client.topics()
    return {
        (name, each.partition): (each.first, each.last)
        for name in (topics or there)
        if name in there
        for each in client.topic(name).partitions
    }


def named(found: Sequence[Seen]) -> list[Seen]:
    """Nodes that call themselves alike are known by their addresses, too."""
    names = [each.name for each in found]
    return [
        each._replace(name=f"{each.name} ({each.url})") if names.count(each.name) > 1 else each
        for each in found
    ]


def rows(spark: SparkSession, nodes: Sequence[Seen], stretches: Sequence[Stretch]) -> DataFrame:
    """The entries of these stretches, of every node, with its name."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    tables = [
        _reader(spark, each, stretches).withColumn("node", F.lit(each.name)) for each in nodes
    ]
    return reduce(lambda one, other: one.unionByName(other), tables)


def _reader(spark: SparkSession, node: Seen, stretches: Sequence[Stretch]) -> DataFrame:
    options = {
        "nodes": node.url,
        "assign": json.dumps(_partitions(stretches)),
        "startingOffsets": json.dumps(_offsets({each: each.first for each in stretches})),
        "endingOffsets": json.dumps(_offsets({each: each.last + 1 for each in stretches})),
        "includeHeaders": "true",
        "includeMetadata": "true",
        "maxRecordsPerPartition": str(MOST_OF_A_TASK),
    }
    if node.token:
        options["token"] = node.token
    return spark.read.format("duckrow").options(**options).load()


def _partitions(stretches: Sequence[Stretch]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for each in stretches:
        found.setdefault(each.topic, []).append(each.partition)
    return found


def _offsets(numbers: Mapping[Stretch, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for stretch, number in numbers.items():
        found.setdefault(stretch.topic, {})[str(stretch.partition)] = number
    return found
