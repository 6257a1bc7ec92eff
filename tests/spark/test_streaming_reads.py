"""Streaming reads of topics by Spark, from real nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import duckrow

# The session begins in the first of them, and a machine may be busy.
pytestmark = pytest.mark.timeout(600)

SECONDS = 100


def read(spark: SparkSession, node: duckrow.Node, **options: object) -> DataFrame:
    reader = spark.readStream.format("duckrow").option("nodes", node.url)
    for name, value in {
        "subscribe": "rides",
        "startingOffsets": "earliest",
        "waitSeconds": "0.2",
        **options,
    }.items():
        if value is not None:
            reader = reader.option(name, str(value))
    return reader.load().selectExpr("topic", "partition", "offset", "cast(value as string) value")


Seen = list[tuple[int, str, int, int]]  # batch, topic, partition and number of each row


def started(df: DataFrame, folder: Path, seen: Seen) -> DataStreamWriter:
    """What it writes is `seen`, in this process."""

    def keep(batch: DataFrame, batch_id: int) -> None:
        rows = [(batch_id, each.topic, each.partition, each.offset) for each in batch.collect()]
        seen.extend(sorted(rows))

    return df.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder))


@contextmanager
def running(df: DataFrame, folder: Path, seen: Seen) -> Iterator[StreamingQuery]:
    query = started(df, folder, seen).start()
    try:
        yield query
    finally:
        query.stop()


def run(df: DataFrame, folder: Path, seen: Seen) -> None:
    """All that there is now."""
    query = started(df, folder, seen).trigger(availableNow=True).start()
    assert query.awaitTermination(SECONDS)


def numbers(seen: Seen) -> list[tuple[int, int]]:
    return [(batch, number) for batch, _, _, number in seen]


def test_what_is_available_now_is_read_in_batches_and_the_next_run_goes_on(
    spark: SparkSession, node: duckrow.Node, tmp_path: Path
) -> None:
    seen: Seen = []
    node.client.produce_many("rides", [f"{n}" for n in range(25)])
    df = read(spark, node, maxOffsetsPerTrigger=10)

    run(df, tmp_path, seen)
    node.client.produce_many("rides", [f"{n}" for n in range(25, 31)])
    run(df, tmp_path, seen)

    assert numbers(seen) == [
        *((0, n) for n in range(1, 11)),
        *((1, n) for n in range(11, 21)),
        *((2, n) for n in range(21, 26)),
        *((3, n) for n in range(26, 32)),
    ]


def test_a_batch_is_shared_by_the_partitions_as_they_are_behind(
    spark: SparkSession, node: duckrow.Node, tmp_path: Path
) -> None:
    seen: Seen = []
    node.client.create_topic("rides", partitions=2)
    node.client.produce_many("rides", ["x"] * 90, partition=0)
    node.client.produce_many("rides", ["x"] * 10, partition=1)

    run(read(spark, node, maxOffsetsPerTrigger=50), tmp_path, seen)

    assert seen == [
        *((0, "rides", 0, n) for n in range(1, 46)),
        *((0, "rides", 1, n) for n in range(1, 6)),
        *((1, "rides", 0, n) for n in range(46, 91)),
        *((1, "rides", 1, n) for n in range(6, 11)),
    ]


def test_a_batch_of_so_many_bytes_has_about_as_many(
    spark: SparkSession, node: duckrow.Node, tmp_path: Path
) -> None:
    seen: Seen = []
    node.client.produce_many("rides", ["x" * 1000] * 100)

    run(read(spark, node, maxBytesPerTrigger="40kB"), tmp_path, seen)

    batches = [batch for batch, _ in numbers(seen)]
    assert len(batches) == 100
    assert 35 <= batches.count(0) <= 40


def test_a_query_that_runs_sees_what_comes_and_says_how_far_it_is(
    spark: SparkSession, node: duckrow.Node, tmp_path: Path
) -> None:
    seen: Seen = []
    node.client.produce("rides", "before")
    with running(read(spark, node, startingOffsets="latest"), tmp_path, seen) as query:
        query.processAllAvailable()
        node.client.produce_many("rides", ["one", "two"])
        query.processAllAvailable()
        node.client.produce("rides", "three")
        query.processAllAvailable()
        progress = next(each for each in reversed(query.recentProgress) if each.numInputRows)

    assert [number for _, number in numbers(seen)] == [2, 3, 4]
    assert json.loads(progress.sources[0].endOffset) == {"rides": {"0": 5}}
    assert json.loads(progress.sources[0].latestOffset) == {"rides": {"0": 5}}


def test_a_partition_and_a_topic_that_come_later_are_read_from_their_first_entry(
    spark: SparkSession, node: duckrow.Node, tmp_path: Path
) -> None:
    seen: Seen = []
    node.client.produce("rides", "one")
    df = read(spark, node, subscribe="rides,stops")
    with running(df, tmp_path, seen) as query:
        query.processAllAvailable()
        node.client.set_topic("rides", partitions=2)
        node.client.produce("rides", "two", partition=1)
        query.processAllAvailable()
        node.client.produce("stops", "three")
        query.processAllAvailable()

    assert sorted(each[1:] for each in seen) == [
        ("rides", 0, 1),
        ("rides", 1, 1),
        ("stops", 0, 1),
    ]


def test_a_query_of_assigned_partitions_is_not_woken_by_others(
    spark: SparkSession, node: duckrow.Node, tmp_path: Path
) -> None:
    seen: Seen = []
    node.client.create_topic("rides", partitions=2)
    node.client.produce_many("rides", ["x"] * 5, partition=0)
    df = read(spark, node, subscribe=None, assign='{"rides": [1]}')
    with running(df, tmp_path, seen) as query:
        query.processAllAvailable()
        node.client.produce("rides", "one", partition=1)
        query.processAllAvailable()

    assert [each[1:] for each in seen] == [("rides", 1, 1)]


def test_a_batch_waits_until_there_are_enough(
    spark: SparkSession, node: duckrow.Node, tmp_path: Path
) -> None:
    seen: Seen = []
    node.client.produce_many("rides", ["x"] * 5)
    df = read(spark, node, minOffsetsPerTrigger=8, maxTriggerDelay="1h")
    with running(df, tmp_path, seen) as query:
        query.processAllAvailable()  # the first batch waits for nothing
        node.client.produce_many("rides", ["x"] * 5)
        query.processAllAvailable()
        few = [*seen]
        node.client.produce_many("rides", ["x"] * 5)
        query.processAllAvailable()

    assert numbers(few) == [(0, n) for n in range(1, 6)]
    assert numbers(seen[5:]) == [(1, n) for n in range(6, 16)]


def test_entries_that_were_pruned_before_they_were_read_end_a_query_or_are_left_out(
    spark: SparkSession, node: duckrow.Node, tmp_path: Path
) -> None:
    seen: Seen = []
    node.client.produce_many("rides", ["x"] * 5)
    run(read(spark, node), tmp_path, seen)
    node.client.produce_many("rides", ["x"] * 10)
    node.client.prune("rides", 8)

    with pytest.raises(PySparkException, match="entries 6 to 8 were pruned before they were read"):
        run(read(spark, node), tmp_path, seen)
    run(read(spark, node, failOnDataLoss="false"), tmp_path, seen)

    assert [number for _, number in numbers(seen)] == [*range(1, 6), *range(9, 16)]


def test_another_topic_of_the_same_name_is_noticed(
    spark: SparkSession, node: duckrow.Node, tmp_path: Path
) -> None:
    seen: Seen = []
    node.client.produce_many("rides", ["x"] * 5)
    run(read(spark, node), tmp_path, seen)
    node.client.delete_topic("rides")
    node.client.produce_many("rides", ["new"] * 2)

    with pytest.raises(PySparkException, match="is it another topic of that name"):
        run(read(spark, node), tmp_path, seen)
    run(read(spark, node, failOnDataLoss="false"), tmp_path, seen)

    assert numbers(seen[5:]) == [(1, 1), (1, 2)]
