"""What Spark reaches with topics: batch reads, and the way from a topic through Spark into a topic.

    batch      a million entries of 100 B, in turns with the same rows as Parquet, and with a reader
               that gives Spark a tuple for each row
    stream     20 entries a second, copied by a query that runs
    idle       what such a query asks of the node while nothing comes

The first queries of a session take seconds; they are not counted.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import duckrow

from .bench_figures import Figure, NoRoomError, Rounds, Settings, at_least, at_most, ratios
from .bench_node import running_node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENTRIES: Final = 1_000_000
TUPLES: Final = 10  # a part in so many, for the slow way
TURNS: Final = 5
RATE: Final = 20.0  # entries a second
COPIED: Final = 200
IDLE_SECONDS: Final = 10.0
TOPIC: Final = "bench"


def batch(settings: Settings) -> Iterator[Figure]:
    count, turns = settings.scaled(ENTRIES, 10_000), settings.scaled(TURNS, 2)
    random = Random(1)
    values = [random.randbytes(100) for _ in range(count)]
    with (
        session() as spark,
        running_node(settings) as node,
        duckrow.connect(node.url, timeout=60) as row,
    ):
        row.create_topic(TOPIC, partitions=2)
        for partition in (0, 1):
            row.produce_many(TOPIC, values[partition::2], partition=partition)
        folder = str(settings.folder / "parquet")
        source = spark.read.format("duckrow").option("nodes", node.url).option("subscribe", TOPIC)
        source.load().write.parquet(folder)
        settings.tell("spark, the same rows as Parquet")
        ours, parquet, tuples = [], [], []
        spark.dataSource.register(tuple_source())
        few = spark.read.format("tuples").option("nodes", node.url)
        few = few.option("rows", count // TUPLES)
        for _ in range(turns + 1):
            ours.append(_seconds(lambda: _looked_at(source.load())))
            parquet.append(_seconds(lambda: _looked_at(spark.read.parquet(folder))))
            tuples.append(_seconds(lambda: _looked_at(few.load())))
            settings.tell("spark, a turn")
    note = f"{count / median(ours[1:]):,.0f} entries/s"
    yield Figure.of(
        "a batch read, against the same rows from Parquet",
        ratios(parquet[1:], ours[1:]),
        "of Parquet's speed",
        at_least(0.7),
        f"{note}; Parquet {count / median(parquet[1:]):,.0f}",
    )
    # What a query costs before its first row is not theirs: it is told by the short ones.
    yield Figure.of(
        "a batch read, against a reader of tuples",
        Rounds.of([TUPLES * slow / own for slow, own in zip(tuples[1:], ours[1:], strict=True)]),
        "times as fast",
        at_least(5),
        f"{note}; tuples {count / TUPLES / median(tuples[1:]):,.0f}",
    )


def stream(settings: Settings) -> Iterator[Figure]:
    copied = settings.scaled(COPIED, 20)
    with (
        session() as spark,
        running_node(settings) as node,
        duckrow.connect(node.url, timeout=60) as row,
        _copy(spark, node.url, settings.folder),
    ):
        row.produce(TOPIC, "first")
        row.pull("copy", wait=60)
        late = [*_trips(row, node.url, 2 * copied)][copied:]  # Java is warm by then
        settings.tell("spark, stream")
        yield Figure.of(
            "topic -> Spark -> topic, 20 entries a second, median",
            Rounds.of(late, 1000),
            "ms",
            at_most(300),
            f"{len(late)} entries, {max(late) * 1000:.0f} ms at most",
        )
        row.pull("copy", 2 * copied + 1, wait=2.0)  # nothing comes: all of it is at rest
        before = _requests(row)
        row.pull("copy", 2 * copied + 1, wait=IDLE_SECONDS)
        asked = (_requests(row) - before) / IDLE_SECONDS
        yield Figure(
            name="what a query that runs asks of the node while nothing comes",
            measured=asked,
            unit="calls/s",
            target=at_most(2),
        )


@contextmanager
def session() -> Iterator[SparkSession]:
    """
    Raises:
        NoRoomError: there is no Spark here, or no Java.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise NoRoomError("pyspark is not installed: pip install 'duckrow[spark]'") from error
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise NoRoomError("Spark needs a Java runtime, 17 or newer")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    sources = str(Path(duckrow.__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([sources, os.environ.get("PYTHONPATH", "")])
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()


def tuple_source() -> type:
    """A data source as it would be without columns: each entry is an object, and then a tuple."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def __init__(self, options: Any) -> None:
            self._url, self._rows = options["nodes"], int(options["rows"])

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(0), InputPartition(1)]

        def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
            import datetime

            import duckrow

            left = self._rows // 2
            utc = datetime.UTC
            with duckrow.connect(self._url) as row:
                for entry in row.follow(TOPIC, 0, partition=partition.value):
                    when = datetime.datetime.fromtimestamp(entry.time / 1e6, utc)
                    where = entry.topic, entry.partition, entry.number
                    yield entry.key, entry.value, *where, when, 1
                    left -= 1
                    if not left:
                        return

    class Tuples(DataSource):
        @classmethod
        def name(cls) -> str:
            return "tuples"

        def schema(self) -> str:
            from pyspark_duckrow import columns

            return columns.ddl(columns.chosen(headers=False, metadata=False))

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader(self.options)

    return Tuples


def _looked_at(df: DataFrame) -> None:
    df.selectExpr("count(*)", "sum(length(value))", "max(offset)").collect()


def _seconds(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


@contextmanager
def _copy(spark: SparkSession, nodes: str, folder: Path) -> Iterator[None]:
    """A query that copies one topic into another."""
    source = spark.readStream.format("duckrow").option("nodes", nodes).option("subscribe", TOPIC)
    writer = source.load().select("value").writeStream.format("duckrow").option("nodes", nodes)
    checkpoint = tempfile.mkdtemp(dir=folder)
    query = writer.option("topic", "copy").option("checkpointLocation", checkpoint).start()
    # It begins with what is new: what comes now has to be new to it.
    query.processAllAvailable()
    try:
        yield
    finally:
        query.stop()


def _trips(row: duckrow.Client, url: str, count: int) -> Iterator[float]:
    """How long each entry took, from its produce until it was read in the other topic."""
    done = threading.Event()

    def feed() -> None:
        with duckrow.connect(url, timeout=60) as other:
            for _ in range(count):
                other.produce(TOPIC, repr(time.monotonic()))
                done.wait(1 / RATE)

    feeder = threading.Thread(target=feed)
    feeder.start()
    after = 1
    while after < count + 1:
        for entry in row.pull("copy", after, wait=60):
            yield time.monotonic() - float(entry.value)
            after = entry.number
    feeder.join()


def _requests(row: duckrow.Client) -> int:
    return sum(each["requests"] for each in row.clients() if each["name"] == "spark")
