"""What Spark writes into topics of real nodes, in batches and as a stream."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import duckrow

# The session begins in the first of them, and a machine may be busy.
pytestmark = pytest.mark.timeout(600)

SECONDS = 100


def write(df: DataFrame, node: duckrow.Node, **options: object) -> None:
    writer = df.write.format("duckrow").mode("append").option("nodes", node.url)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    writer.save()


def stream(
    spark: SparkSession, node: duckrow.Node, folder: Path, **options: object
) -> DataStreamWriter:
    """From the topic `rides` into the topic `copy`."""
    source = spark.readStream.format("duckrow").option("nodes", node.url)
    reader = source.option("subscribe", "rides").option("startingOffsets", "earliest")
    for name in ("maxOffsetsPerTrigger", "minPartitions"):
        if name in options:
            reader = reader.option(name, str(options.pop(name)))
    writer = reader.load().select("key", "value").writeStream.format("duckrow")
    writer = writer.option("nodes", node.url).option("topic", "copy")
    for name, value in options.items():
        writer = writer.option(name, str(value))
    return writer.option("checkpointLocation", str(folder))


def run(writer: DataStreamWriter) -> None:
    assert writer.trigger(availableNow=True).start().awaitTermination(SECONDS)


def values(node: duckrow.Node, topic: str = "copy", partition: int | None = None) -> list[bytes]:
    found = node.client.pull(topic, partition=partition, limit=60_000, max_bytes=1 << 22)
    return [entry.value for entry in found]


def texts(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


@pytest.mark.parametrize("mode", ["atomic", "direct"])
def test_a_table_is_written_with_its_keys_and_headers_in_its_order(
    spark: SparkSession, node: duckrow.Node, mode: str
) -> None:
    df = (
        spark.range(5000)
        .coalesce(1)
        .selectExpr(
            "cast(id as string) value",
            "if(id % 2 = 0, cast(id as string), null) key",
            "if(id < 3, array(struct('kind' as key, cast('bus' as binary) as value)), null) headers",
        )
    )

    write(df, node, topic="rides", idempotent=mode)

    found = [*node.client.pull("rides", limit=60_000)]
    assert [entry.value for entry in found] == texts(5000)
    assert [e.key for e in found] == [t if n % 2 == 0 else None for n, t in enumerate(texts(5000))]
    assert [entry.headers for entry in found[:4]] == [(("kind", b"bus"),)] * 3 + [()]


def test_rows_go_to_the_topics_and_partitions_that_they_name(
    spark: SparkSession, node: duckrow.Node
) -> None:
    node.client.create_topic("a", partitions=2)
    df = spark.createDataFrame(
        [("a", 0, "one"), ("a", 1, "two"), ("b", None, "three"), ("a", 1, "four")],
        "topic string, partition int, value string",
    ).coalesce(1)

    write(df, node)

    assert values(node, "a", partition=0) == [b"one"]
    assert values(node, "a", partition=1) == [b"two", b"four"]
    assert values(node, "b") == [b"three"]


def test_equal_keys_go_where_clients_put_them(spark: SparkSession, node: duckrow.Node) -> None:
    node.client.create_topic("rides", partitions=3)
    for n in range(20):
        node.client.produce("rides", "client", key=f"k{n % 5}")

    write(
        spark.range(20).selectExpr("concat('k', id % 5) key", "'spark' value"), node, topic="rides"
    )

    where: dict[bytes | None, set[int]] = {}
    for entry in node.client.pull("rides"):
        where.setdefault(entry.key, set()).add(entry.partition)
    assert len(where) == 5
    assert all(len(partitions) == 1 for partitions in where.values())


@pytest.mark.parametrize("mode", ["atomic", "direct"])
def test_a_job_that_is_run_again_under_its_name_adds_nothing(
    spark: SparkSession, node: duckrow.Node, mode: str
) -> None:
    df = spark.range(200, numPartitions=2).selectExpr("cast(id as string) value")

    for _ in range(2):
        write(df, node, topic="rides", producerId="nightly", idempotent=mode)
    write(df, node, topic="rides", producerId="weekly", idempotent=mode)

    assert sorted(values(node, "rides")) == sorted(2 * texts(200))


def test_nothing_of_a_job_that_fails_is_seen(spark: SparkSession, node: duckrow.Node) -> None:
    df = spark.range(1000, numPartitions=2).selectExpr(
        "if(id = 999, raise_error('the last row'), cast(id as string)) value"
    )

    with pytest.raises(PySparkException, match="the last row"):
        write(df, node, topic="rides")

    assert node.client.topics() == [] or values(node, "rides") == []


def test_what_cannot_be_written_is_told(spark: SparkSession, node: duckrow.Node) -> None:
    with pytest.raises(PySparkException, match="no place for the column 'id'"):
        write(spark.range(1), node, topic="rides")
    with pytest.raises(PySparkException, match="1 of 1 rows have no value"):
        write(spark.range(1).selectExpr("cast(null as string) value"), node, topic="rides")
    with pytest.raises(PySparkException, match="a topic is appended to"):
        writer = spark.range(1).selectExpr("'a' value").write.format("duckrow").mode("overwrite")
        writer.option("nodes", node.url).option("topic", "rides").save()


@pytest.mark.parametrize("mode", ["atomic", "direct"])
def test_a_stream_copies_a_topic_and_goes_on_where_it_ended(
    spark: SparkSession, node: duckrow.Node, tmp_path: Path, mode: str
) -> None:
    node.client.produce_many("rides", texts(300))
    run(stream(spark, node, tmp_path, maxOffsetsPerTrigger=200, idempotent=mode))
    node.client.produce_many("rides", [b"more"] * 10)

    run(stream(spark, node, tmp_path, idempotent=mode))

    assert values(node) == [*texts(300), *[b"more"] * 10]


def test_a_topic_that_is_read_may_be_written_as_it_is(
    spark: SparkSession, node: duckrow.Node
) -> None:
    node.client.produce("rides", "one", key="k", headers={"kind": b"bus"})
    reader = spark.read.format("duckrow").option("nodes", node.url).option("subscribe", "rides")

    write(
        reader.option("includeHeaders", "true").option("includeMetadata", "true").load(),
        node,
        topic="copy",
    )

    (entry,) = node.client.pull("copy")
    assert (entry.key, entry.value, entry.headers) == (b"k", b"one", (("kind", b"bus"),))


def counted(spark: SparkSession, node: duckrow.Node) -> DataFrame:
    """How often each value is in the topic `rides`, as a stream that takes two entries at a time."""
    source = spark.readStream.format("duckrow").option("nodes", node.url)
    source = source.option("subscribe", "rides").option("startingOffsets", "earliest")
    counts = source.option("maxOffsetsPerTrigger", "2").load().groupBy("value").count()
    return counts.selectExpr("concat(cast(value as string), ' ', count) AS value")


def test_a_stream_of_whole_results_appends_each_of_them(
    spark: SparkSession, node: duckrow.Node, tmp_path: Path
) -> None:
    node.client.produce_many("rides", ["a", "a", "b", "a"])
    writer = counted(spark, node).writeStream.outputMode("complete").format("duckrow")
    writer = writer.option("nodes", node.url).option("topic", "copy")

    run(writer.option("checkpointLocation", str(tmp_path)))

    found = values(node)
    assert (found[:1], sorted(found[1:])) == ([b"a 2"], [b"a 3", b"b 1"])


def test_a_stream_of_what_has_changed_is_written_batch_by_batch_and_once(
    spark: SparkSession, node: duckrow.Node, tmp_path: Path
) -> None:
    def put(df: DataFrame, batch: int) -> None:
        for _ in range(2):  # as a batch that is done again
            write(df, node, topic="copy", producerId=f"counts {batch}")

    node.client.produce_many("rides", ["a", "a", "b", "b"])
    writer = counted(spark, node).writeStream.outputMode("update").foreachBatch(put)

    run(writer.option("checkpointLocation", str(tmp_path)))

    assert values(node) == [b"a 2", b"b 2"]


def test_a_batch_of_a_stream_that_is_done_again_adds_nothing_whatever_its_tasks(
    spark: SparkSession, node: duckrow.Node, tmp_path: Path
) -> None:
    """As after a death between the commit of the sink and that of Spark."""
    node.client.produce_many("rides", texts(300))
    run(stream(spark, node, tmp_path, maxOffsetsPerTrigger=100))
    for name in ("2", ".2.crc"):
        (tmp_path / "commits" / name).unlink()
    node.client.produce_many("rides", [b"more"] * 10)

    run(stream(spark, node, tmp_path, minPartitions=5))

    assert values(node) == [*texts(300), *[b"more"] * 10]


def test_a_stream_goes_on_when_its_topic_grows(
    spark: SparkSession, node: duckrow.Node, tmp_path: Path
) -> None:
    node.client.produce_many("rides", texts(10))
    run(stream(spark, node, tmp_path))
    node.client.set_topic("copy", partitions=2)
    node.client.produce_many("rides", texts(10))

    run(stream(spark, node, tmp_path))

    assert sorted(values(node)) == sorted(2 * texts(10))
