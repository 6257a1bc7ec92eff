"""The session of Spark in which a job runs, and how far it is."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

import duckrow
from duckrow.node.errors import Refused

from ..console import Console

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
CONNECT: Final = "sc://"  # how addresses of Spark Connect begin
MASTERS: Final = re.compile(r"local(\[.+\])?|yarn|(spark|k8s|sc)://.+")
LOOK_EVERY: Final = 0.2  # seconds

CONFIG: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}
OF_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
}


@contextmanager
def session(master: str) -> Iterator[SparkSession]:
    """The one that runs in this process, which goes on, or a new one.

    Raises:
        Refused: there is no Spark here, no Java, or no such master; or Spark refuses what is asked.
    """
    ready(master)
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    spark = running or _started(master)
    try:
        yield spark
    except PySparkException as error:
        raise Refused(f"Spark says: {_told(error)}") from error
    finally:
        if running is None:
            spark.stop()


def ready(master: str) -> None:
    """Before anything begins.

    Raises:
        Refused: see `session`.
    """
    if not MASTERS.fullmatch(master):
        raise Refused(
            f"--master {master}: there is no such master of Spark; write local[N], spark://host:port, "
            "sc://host, k8s://host:port or yarn"
        )
    try:
        import pyspark  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise Refused("pyspark is not installed: pip install 'duckrow[spark]'") from error
    if master.startswith(CONNECT):
        return  # Java is there
    home = os.environ.get("JAVA_HOME")
    if not (shutil.which("java") or (home and Path(home, "bin/java").exists())):
        raise Refused(
            "Spark needs a Java runtime, 17 or newer: none is on the PATH, nor in JAVA_HOME "
            f"({home or 'not set'})"
        )


def _started(master: str) -> SparkSession:
    from pyspark.sql import SparkSession

    # Spark's workers are whatever python3 is, and look along the path for packages like ours.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    sources = str(Path(duckrow.__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([sources, os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.appName("duckrow")
    if master.startswith(CONNECT):
        builder = builder.remote(master)
    else:
        builder = builder.master(master)
        local = OF_LOCAL if master.startswith("local") else {}
        for name, value in {**CONFIG, **local}.items():
            builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise Refused(f"no session of Spark at {master}: {_told(error)}") from error


def _told(error: Exception) -> str:
    """What a person wants of an error that carries stacks of two languages: the last sentence of Python's,
    where a task of ours failed, else the first line.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("duckrow.")]
    return (ours or lines or [type(error).__name__])[0]


@contextmanager
def watched(spark: SparkSession, console: Console) -> Iterator[None]:
    """A bar of the tasks that are done, of those that Spark has planned so far."""
    try:
        context: SparkContext | None = spark.sparkContext
    except Exception:  # noqa: BLE001 - Spark Connect tells nothing of tasks, by an error of its own
        context = None
    if context is None:
        yield
        return
    ended = Event()
    watcher = Thread(target=_watch, args=(context, console, ended), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _watch(context: SparkContext, console: Console, ended: Event) -> None:
    tracker = context.statusTracker()
    stages: dict[int, tuple[int, int]] = {}  # tasks that are done, and all
    with console.progress("tasks", 0) as progress:
        while not ended.wait(LOOK_EVERY):
            for stage in {*stages, *tracker.getActiveStageIds()}:
                info = tracker.getStageInfo(stage)
                if info is not None:
                    stages[stage] = info.numCompletedTasks, info.numTasks
            progress.total = sum(total for _, total in stages.values())
            progress.add(sum(done for done, _ in stages.values()) - progress.done)
