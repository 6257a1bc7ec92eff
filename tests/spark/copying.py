"""A program that copies the topic `rides` into `copy` with Spark, until there is no more; or dies at it.

    python -m spark.copying NODES FOLDER TASKS MODE [DEATH]

DEATH is `commit:2`: the driver is killed when the sink has committed batch 2, and before Spark notes
that; or `task:2`: while a task of batch 2 has staged its rows; or `executor:2`: the same, but the
executor is killed.  FOLDER gets the checkpoint, and `alive` when the query runs.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from pyspark_duckrow import DefaultSource
from pyspark_duckrow.sink import Staged, StreamWriter

MASTER = "COPYING_MASTER"
DEATH = "COPYING_DEATH"
DRIVER = "COPYING_DRIVER"  # a file with the process of its Java


class DyingWriter(StreamWriter):
    """As its parent, up to the moment at which it kills."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        staged = super().write(iterator)
        task = TaskContext.get()
        assert task is not None
        batch = task.getLocalProperty("streaming.sql.batchId")
        if task.partitionId() == 0 and task.attemptNumber() == 0:
            if os.environ[DEATH] == f"task:{batch}":
                kill_driver()
            if os.environ[DEATH] == f"executor:{batch}":
                os.kill(java_above(os.getpid()), signal.SIGKILL)
        return staged

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        super().commit(messages, batchId)
        if os.environ[DEATH] == f"commit:{batchId}":
            kill_driver()


class Dying(DefaultSource):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        writer: Any = super().streamWriter(schema, overwrite)
        return DyingWriter(writer._options)


def kill_driver() -> None:
    os.kill(int(Path(os.environ[DRIVER]).read_text()), signal.SIGKILL)


def java_above(pid: int) -> int:
    """The Java process that started this one."""
    while "java" not in Path(f"/proc/{pid}/comm").read_text():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def copying(
    spark: SparkSession, nodes: str, folder: Path, tasks: int, mode: str, sink: str = "duckrow"
) -> DataStreamWriter:
    rows = (
        spark.readStream.format("duckrow")
        .option("nodes", nodes)
        .option("subscribe", "rides")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1000)
        .option("minPartitions", tasks)
        .load()
    )
    return (
        rows.select("value")
        .writeStream.format(sink)
        .option("nodes", nodes)
        .option("topic", "copy")
        .option("idempotent", mode)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )


def main(nodes: str, folder: str, tasks: str, mode: str, death: str = "none") -> None:
    os.environ[DEATH], os.environ[DRIVER] = death, f"{folder}/driver"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (
        SparkSession.builder.master(os.environ.get(MASTER, "local[2]"))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.authenticate.socketTimeout", "100s")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.log.level", "ERROR")
        .config(f"spark.executorEnv.{DEATH}", death)
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
        .getOrCreate()
    )
    process = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    Path(folder, "driver").write_text(str(process))
    sys.modules["spark.copying"] = sys.modules[__name__]
    Dying.__module__ = DyingWriter.__module__ = "spark.copying"  # where tasks find them
    spark.dataSource.register(Dying)
    query = copying(spark, nodes, Path(folder), int(tasks), mode, "dying").start()
    Path(folder, "alive").touch()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
