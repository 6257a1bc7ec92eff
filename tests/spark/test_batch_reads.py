"""Batch reads of topics by Spark, from real nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import duckrow
from real.archivekit import archived, archiver

# The session begins in the first of them, and a machine may be busy.
pytestmark = pytest.mark.timeout(600)


def read(spark: SparkSession, node: duckrow.Node, **options: object) -> DataFrame:
    reader = spark.read.format("duckrow").option("nodes", node.url)
    for name, value in {"subscribe": "rides", **options}.items():
        if value is not None:
            reader = reader.option(name, str(value))
    return reader.load()


def offsets(df: DataFrame) -> list[int]:
    return [row.offset for row in df.select("offset").collect()]


def test_a_topic_is_a_table_with_the_columns_of_kafka(
    spark: SparkSession, node: duckrow.Node
) -> None:
    node.client.produce("rides", "one", key="k")
    node.client.produce("rides", "two")
    times = [entry.time for entry in node.client.pull("rides")]

    df = read(spark, node)

    assert df.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    found = df.withColumn("timestamp", F.unix_micros("timestamp")).collect()
    assert [tuple(each) for each in found] == [
        (b"k", b"one", "rides", 0, 1, times[0], 1),
        (None, b"two", "rides", 0, 2, times[1], 1),
    ]


def test_headers_and_metadata_come_when_they_are_asked_for(
    spark: SparkSession, node: duckrow.Node
) -> None:
    node.client.produce("rides", "one", headers={"kind": b"bus"})
    (entry,) = node.client.pull("rides")

    (found,) = read(spark, node, includeHeaders="true", includeMetadata="true").collect()

    assert [tuple(each) for each in found.headers] == [("kind", b"bus")]
    assert found.producer == entry.producer.hex()
    assert found.position > 0


def test_a_schema_with_few_columns_reads_those_alone(
    spark: SparkSession, node: duckrow.Node
) -> None:
    node.client.produce_many("rides", ["x"] * 10)
    reader = spark.read.format("duckrow").option("nodes", node.url).option("subscribe", "rides")

    df = reader.schema("timestamp timestamp, offset bigint").load()

    assert df.columns == ["timestamp", "offset"]
    assert offsets(df) == [*range(1, 11)]
    with pytest.raises(PySparkException, match="says that 'value' is string, and it is binary"):
        reader.schema("value string").load().collect()


def test_partitions_are_cut_into_tasks_and_nothing_is_read_twice(
    spark: SparkSession, node: duckrow.Node
) -> None:
    node.client.create_topic("rides", partitions=2)
    node.client.produce_many("rides", [f"{n}" for n in range(3000)], partition=0)
    node.client.produce_many("rides", [f"{n}" for n in range(500)], partition=1)

    df = read(spark, node, minPartitions=6)
    few = read(spark, node, maxRecordsPerPartition=1000)

    assert df.rdd.getNumPartitions() >= 6
    assert few.rdd.getNumPartitions() == 4
    counted = df.groupBy("partition").agg(
        F.count("*"), F.count_distinct("offset"), F.min("offset"), F.max("offset")
    )
    assert sorted(tuple(each) for each in counted.collect()) == [
        (0, 3000, 3000, 1, 3000),
        (1, 500, 500, 1, 500),
    ]


def test_a_read_begins_and_ends_where_it_is_told(spark: SparkSession, node: duckrow.Node) -> None:
    node.client.produce_many("rides", [f"{n}" for n in range(100)])

    some = read(
        spark, node, startingOffsets='{"rides": {"0": 11}}', endingOffsets='{"rides": {"0": 21}}'
    )
    late = read(
        spark, node, startingOffsets='{"rides": {"0": -2}}', endingOffsets='{"rides": {"0": -1}}'
    )

    assert offsets(some) == [*range(11, 21)]
    assert offsets(late) == [*range(1, 101)]
    with pytest.raises(PySparkException, match="names stops/0: it has to name each partition"):
        read(spark, node, startingOffsets='{"rides": {"0": 1}, "stops": {"0": 1}}').collect()


def test_a_read_begins_and_ends_at_times(spark: SparkSession, node: duckrow.Node) -> None:
    while len({e.time // 1000 for e in node.client.pull("rides")}) < 4:  # milliseconds
        node.client.produce("rides", "x")
    entries = [*node.client.pull("rides")]
    times = [-(-entry.time // 1000) for entry in entries]
    first, last = times[1], times[-1]
    expected = [e.number for e in entries if first * 1000 <= e.time < last * 1000]

    found = offsets(read(spark, node, startingTimestamp=first, endingTimestamp=last))
    by_place = offsets(
        read(
            spark,
            node,
            startingOffsetsByTimestamp=f'{{"rides": {{"0": {first}}}}}',
            endingOffsetsByTimestamp=f'{{"rides": {{"0": {last}}}}}',
        )
    )

    assert found == by_place == expected
    late = last + 1_000_000
    with pytest.raises(PySparkException, match="startingOffsetsByTimestampStrategy to latest"):
        read(spark, node, startingTimestamp=late).collect()
    assert (
        offsets(
            read(
                spark,
                node,
                startingTimestamp=late,
                startingOffsetsByTimestampStrategy="latest",
            )
        )
        == []
    )


def test_topics_are_named_matched_or_assigned(spark: SparkSession, node: duckrow.Node) -> None:
    node.client.create_topic("rides", partitions=2)
    for topic in ("rides", "stops", "risk"):
        node.client.produce(topic, topic, partition=0)
    node.client.produce("rides", "one", partition=1)

    def places(**options: object) -> list[tuple[str, int]]:
        return sorted(
            (each.topic, each.partition) for each in read(spark, node, **options).collect()
        )

    assert places(subscribe="rides,stops") == [("rides", 0), ("rides", 1), ("stops", 0)]
    assert places(subscribe=None, subscribePattern="ri.*") == [
        ("rides", 0),
        ("rides", 1),
        ("risk", 0),
    ]
    assert places(subscribe=None, assign='{"rides": [1]}') == [("rides", 1)]
    with pytest.raises(PySparkException, match="names partition 2 of topic 'rides', which has 2"):
        places(subscribe=None, assign='{"rides": [2]}')


def test_a_topic_that_is_not_there_is_empty(spark: SparkSession, node: duckrow.Node) -> None:
    assert read(spark, node).count() == 0


def test_pruned_entries_are_an_error_or_a_warning(spark: SparkSession, node: duckrow.Node) -> None:
    node.client.produce_many("rides", [f"{n}" for n in range(20)])
    node.client.prune("rides", 5)
    beginning = '{"rides": {"0": 3}}'

    with pytest.raises(PySparkException, match="entries 3 to 5 were pruned"):
        read(spark, node, startingOffsets=beginning).collect()

    assert offsets(read(spark, node)) == [*range(6, 21)]
    assert offsets(read(spark, node, startingOffsets=beginning, failOnDataLoss="false")) == [
        *range(6, 21)
    ]


def test_conditions_are_pushed_down_where_spark_allows_it(
    spark: SparkSession, node: duckrow.Node
) -> None:
    node.client.produce_many("rides", [f"{n}" for n in range(1000)])
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        df = read(spark, node, filterPushdown="true").where(
            "offset > 100 and offset <= 200 and topic = 'rides' and value != '150'"
        )
        found = offsets(df)
        tasks = read(spark, node, filterPushdown="true", maxRecordsPerPartition=10)
        narrowed = tasks.where("offset <= 20").rdd.getNumPartitions()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")

    assert found == [n for n in range(101, 201) if n != 151]  # value n is entry n + 1
    assert narrowed == 2


def test_a_table_with_pushed_conditions_is_loaded_anew_for_each_query(
    spark: SparkSession, node: duckrow.Node
) -> None:
    node.client.produce_many("rides", ["x"] * 100)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        one, other = (read(spark, node, filterPushdown="true") for _ in range(2))
        narrow, whole = offsets(one.where("offset <= 20")), offsets(other)
        again = offsets(one)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")

    assert (narrow, whole) == ([*range(1, 21)], [*range(1, 101)])
    # As the pages say.  A Spark that gives all of it is mended, and the warning and these words may go.
    assert again == narrow


def test_a_table_has_what_it_had_until_it_is_loaded_again(
    spark: SparkSession, node: duckrow.Node
) -> None:
    node.client.produce_many("rides", ["x"] * 3)
    df = read(spark, node)
    before = offsets(df)
    node.client.produce("rides", "more")

    assert (before, offsets(df)) == ([1, 2, 3], [1, 2, 3])
    assert offsets(read(spark, node)) == [1, 2, 3, 4]


def test_small_and_large_batches_are_read_alike(spark: SparkSession, node: duckrow.Node) -> None:
    for n in range(30):
        node.client.produce("rides", f"{n}", key=None if n % 3 else f"{n}")
    node.client.produce_many("rides", [f"{n}" for n in range(30, 5000)])

    found = read(spark, node, fetchRows=512, fetchBytes="64KiB").select("offset", "value", "key")

    assert [tuple(each) for each in found.collect()] == [
        (n + 1, b"%d" % n, b"%d" % n if n < 30 and not n % 3 else None) for n in range(5000)
    ]


def test_options_that_only_kafka_has_are_left_out_and_wrong_ones_told(
    spark: SparkSession, node: duckrow.Node
) -> None:
    node.client.produce("rides", "one")

    assert read(spark, node, **{"kafka.security.protocol": "PLAINTEXT"}).count() == 1
    with pytest.raises(PySparkException, match="did you mean minPartitions"):
        read(spark, node, minPartition=3).count()


def test_what_was_pruned_is_read_from_the_archive(spark: SparkSession, tmp_path: Path) -> None:
    with duckrow.Node() as node:  # an archiver waits until what it reads is durable
        row = node.client
        row.create_topic("rides", archive=100, max_entries=100)
        row.produce_many("rides", [f"{n}" for n in range(450)])
        archived(archiver(row, tmp_path / "archive"))

        df = read(spark, node, archive=tmp_path / "archive", minPartitions=4)

        assert sorted(offsets(df)) == [*range(1, 451)]
        assert len(offsets(read(spark, node))) < 450
