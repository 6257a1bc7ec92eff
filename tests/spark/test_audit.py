"""The audit: what was planted is found, at the node where it is; and the command, with real nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import duckrow
from clikit import duckrow as command
from duckrow.tools.pipeline.audit import (
    SEGMENT,
    Stretch,
    findings,
    segments_of,
    suspects,
    wanted_table,
)
from duckrow.tools.pipeline.nodes import Seen, rows
from real.archivekit import archived, archiver

# The session begins in the first of them, and a machine may be busy.
pytestmark = pytest.mark.timeout(600)

ENTRIES = 3 * SEGMENT + 100
NAMES = ["m1", "m2", "m3"]
ALL = Stretch("rides", 0, 1, ENTRIES)
ANY = "tcp://127.0.0.1:0"


def both(*nodes: duckrow.Node) -> str:
    return "duck://" + ",".join(each.url.removeprefix("duck://") for each in nodes)


@pytest.fixture(scope="module")
def same(spark: SparkSession) -> Iterator[DataFrame]:
    """What three nodes have that are as they should be; it is read once for all tests."""
    values = [f"{number}" for number in range(1, ENTRIES + 1)]
    with duckrow.Node() as node:
        node.client.produce_many("rides", values, keys=[None, "k"] * (ENTRIES // 2))
        yield rows(spark, [Seen(name, node.url, "", {}) for name in NAMES], [ALL]).cache()


def suspected(spark: SparkSession, table: DataFrame) -> list[Stretch]:
    wanted = wanted_table(spark, [*segments_of([ALL])])
    return sorted(Stretch(*each) for each in suspects(table, wanted, NAMES).collect())


def found(
    spark: SparkSession, table: DataFrame, segments: Sequence[Stretch]
) -> list[tuple[int, str, list[str]]]:
    told = findings(table, wanted_table(spark, segments), NAMES).orderBy("offset", "what")
    return [(each["offset"], each["what"], each["nodes"]) for each in told.collect()]


def test_a_planted_duplicate_gap_and_change_are_found_where_they_are(
    spark: SparkSession, same: DataFrame
) -> None:
    of_m1, of_m2, of_m3 = (same.where(F.col("node") == name) for name in NAMES)
    changed = F.when(F.col("offset") == 4242, F.lit(b"other")).otherwise(F.col("value"))
    planted = (
        of_m1.where("offset != 777")
        .unionByName(of_m2.unionByName(of_m2.where("offset = 55")))
        .unionByName(of_m3.withColumn("value", changed))
    )
    first, second, *_ = segments_of([ALL])

    assert suspected(spark, same) == []
    assert suspected(spark, planted) == [first, second]
    assert found(spark, planted, [first, second]) == [
        (55, "duplicate", ["m2"]),
        (777, "gap", ["m1"]),
        (4242, "changed", ["m3"]),
    ]


def test_what_is_wrong_at_all_nodes_alike_is_found_too(
    spark: SparkSession, same: DataFrame
) -> None:
    planted = same.where("offset != 5 and offset <= 12288").unionByName(same.where("offset = 6"))
    first, *_, last = segments_of([ALL])

    assert suspected(spark, planted) == [first, last]
    assert found(spark, planted, [first]) == [(5, "gap", NAMES), (6, "duplicate", NAMES)]


def test_without_a_majority_an_entry_is_changed_at_all_nodes_that_have_it(
    spark: SparkSession, same: DataFrame
) -> None:
    no_key = F.when(F.col("node") == "m2", None).otherwise(F.col("key"))
    planted = same.where("offset = 2 and node != 'm3'").withColumn("key", no_key)

    assert found(spark, planted, [Stretch("rides", 0, 2, 2)]) == [
        (2, "changed", ["m1", "m2"]),
        (2, "gap", ["m3"]),
    ]


@pytest.mark.usefixtures("spark")
def test_the_command_says_that_a_node_is_as_it_should_be(node: duckrow.Node) -> None:
    node.client.create_topic("rides", partitions=2)
    node.client.produce_many("rides", ["x"] * 5000, partition=0)
    node.client.produce_many("rides", ["y"] * 10, partition=1)
    node.client.prune("rides", 100, partition=0)

    done = command(f"--url {node.url} pipeline audit rides -o json")

    assert done.document == {
        "same": True,
        "nodes": [node.client.status()["node"]],
        "entries": 4910,
        "behind": 0,
        "segments": 3,
        "suspects": 0,
        "gaps": 0,
        "duplicates": 0,
        "changed": 0,
        "differences": [],
    }


@pytest.mark.usefixtures("spark")
def test_with_an_archive_what_was_pruned_is_compared_too(tmp_path: Path) -> None:
    place = tmp_path / "archive"
    with duckrow.Node() as node:  # on a disk: what is not durable is not archived
        node.client.create_topic("rides", archive=10, max_entries=10)
        node.client.produce_many("rides", ["x"] * 45)
        archived(archiver(node.client, place))
        (lost,) = place.rglob("*11-*20.parquet")
        lost.unlink()

        done = command(f"--url {node.url} pipeline audit --archive {place} --limit 1 -o json")

    found = json.loads(done.out)
    assert done.code == 1
    assert {name: found[name] for name in ("entries", "gaps", "duplicates", "changed")} == {
        "entries": 45,
        "gaps": 10,
        "duplicates": 0,
        "changed": 0,
    }
    assert [each["offset"] for each in found["differences"]] == [11]


@pytest.mark.usefixtures("spark")
def test_the_command_tells_what_differs_and_exits_with_1() -> None:
    with duckrow.Node(listen=ANY) as one, duckrow.Node(listen=ANY) as other:
        for each, value in ((one, "bus"), (other, "tram")):
            each.client.produce_many("rides", [value] * 9)
        other.client.produce("rides", "more")

        done = command(f"--url {both(one, other)} pipeline audit --limit 2 -o json")

    assert done.code == 1
    assert done.text.count('"what": "changed"') == 2
    assert '"behind": 1' in done.text
    assert '"changed": 9' in done.text


@pytest.mark.usefixtures("spark")
def test_nodes_that_have_nothing_in_common_are_not_called_the_same() -> None:
    with duckrow.Node(listen=ANY) as one, duckrow.Node(listen=ANY) as other:
        one.client.produce("rides", "one")

        done = command(f"--url {both(one, other)} pipeline audit rides")

    assert done.code == 1
    assert "nothing was compared" in done.err
