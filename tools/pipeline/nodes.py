"""Nodes as a job sees them: what each has, and its entries as a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from ..archivecare import reached
from ..command import UsageError
from .audit import Extents, Place, Stretch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from duckrow import Client

MOST_OF_A_TASK = 500_000  # entries


class Seen(NamedTuple):
    name: str  # among those of the audit, no other one has it
    url: str
    token: str
    extents: Extents
    archive: str = ""  # its place; empty: only what the node has itself


def extents(client: Client, topics: Sequence[str], archive: str = "") -> Extents:
    """Of these topics, or of all; one that the node does not have is left out.

    Raises:
        DuckrowError: the node does not answer; or the archive is not there.
    """
    there = client.topics()
    found = {
        (name, each.partition): (each.first, each.last)
        for name in (topics or there)
        if name in there
        for each in client.topic(name).partitions
    }
    return _with_archive(client, archive, found) if archive else found


def archives(places: Sequence[str], nodes: int) -> list[str]:
    """That of each node: one for all, or one for each in their order.

    Raises:
        UsageError: there are more or fewer.
    """
    if len(places) <= 1:
        return [*(places or [""])] * nodes
    if len(places) != nodes:
        raise UsageError(
            f"--archive is given {len(places)} times, and there are {nodes} nodes: name one archive for "
            "all, or one for each in the order of their addresses"
        )
    return [*places]


def _with_archive(client: Client, place: str, found: Extents) -> Extents:
    """Each begins where the archive does, or what the node keeps for it."""
    from duckrow.node.archivereading import Archive

    archive = Archive(reached(place))
    kept = {(pin.topic, pin.partition): pin.kept for pin in client.pins().pins}
    ids = {topic: client.topic(topic).id for topic in {topic for topic, _ in found}}

    def oldest(at: Place, first: int) -> int:
        topic, partition = at
        archived = archive.first(topic, ids[topic], partition)
        return min(first, kept.get(at, first), first if archived is None else archived)

    return {at: (oldest(at, first), last) for at, (first, last) in found.items()}


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
    if node.archive:  # what it lacks is a gap, and no reason to give up
        options |= {"archive": node.archive, "failOnDataLoss": "false"}
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
