"""The session of Spark in which a job runs: of a master, or of a server of Spark Connect.

A place is the address of either, as given.py takes it.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import duckrow
from duckrow.node.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT: Final = "sc://"  # how addresses of Spark Connect begin
OF_CONNECT: Final = ("pandas", "pyarrow", "grpc", "grpc_status", "google.rpc", "zstandard")
CONNECT_PORT: Final = 15002
CONNECT_SECONDS: Final = (
    10  # until nobody is at that address; Spark itself would try it for ten minutes
)

OF_SESSION: Final = {"spark.sql.session.timeZone": "UTC"}
OF_DRIVER: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
OF_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
}


@contextmanager
def session(place: str) -> Iterator[SparkSession]:
    """The one that runs in this process, which goes on, or a new one.

    Raises:
        Refused: there is no Spark here, no Java, or nothing at that place; or Spark refuses what is asked.
    """
    ready(place)
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    spark = running or _started(place)
    ours = running is None
    try:
        yield spark
    except PySparkException as error:
        raise Refused(f"Spark says: {_told(error)}") from error
    except KeyboardInterrupt:
        # The driver ends with this process, and a call to it that was cut off may have no end.
        ours = ours and place.startswith(CONNECT)
        raise
    finally:
        if ours:
            spark.stop()


@contextmanager
def signals() -> Iterator[list[int]]:
    """Those that came (SIGINT, SIGTERM), which then cut off no call to Spark; a second one does."""
    came: list[int] = []

    def take(number: int, _frame: object) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield came  # they are told to the main thread
        return
    before = {each: signal.signal(each, take) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ready(place: str) -> None:
    """Before anything begins.

    Raises:
        Refused: see `session`.
    """
    try:
        import pyspark  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise Refused("pyspark is not installed: pip install 'duckrow[spark]'") from error
    if place.startswith(CONNECT):
        _check_connect(place)  # Java is there
    else:
        _check_java()


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if not (shutil.which("java") or (home and Path(home, "bin/java").exists())):
        raise Refused(
            "Spark needs a Java runtime, 17 or newer: none is on the PATH, nor in JAVA_HOME "
            f"({home or 'not set'})"
        )


def _check_connect(place: str) -> None:
    try:
        # Not by PySpark's own check: where Python has no script, as with `-c`, that ends the process.
        for name in OF_CONNECT:
            import_module(name)
    except ImportError as error:
        raise Refused(
            f"Spark Connect needs more packages: pip install 'duckrow[connect]' ({_told(error)})"
        ) from error
    try:
        parts = urlsplit(place)
        address = parts.hostname or "", parts.port or CONNECT_PORT
        socket.create_connection(address, CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise Refused(f"--remote {place}: no server of Spark Connect is there: {error}") from error


def _started(place: str) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("duckrow")
    if place.startswith(CONNECT):
        builder = builder.remote(place)
        config = OF_SESSION  # a server has a driver, and workers, of its own
    else:
        # Spark's workers are whatever python3 is, and look along the path for packages like ours.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        sources = str(Path(duckrow.__file__).parents[1])
        os.environ["PYTHONPATH"] = os.pathsep.join([sources, os.environ.get("PYTHONPATH", "")])
        builder = builder.master(place)
        config = OF_SESSION | OF_DRIVER | (OF_LOCAL if place.startswith("local") else {})
    for name, value in config.items():
        builder = builder.config(name, value)
    # Of a call that Ctrl-C cut off it would tell a page of stacks.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    before = signal.getsignal(signal.SIGINT)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        raise Refused(f"no session of Spark at {place}: {_told(error)}") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)  # Spark's own calls its Java, in the middle of a call
    return spark


def _told(error: Exception) -> str:
    """What a person wants of an error that carries stacks of two languages: the last sentence of Python's,
    where a task of ours failed, else the first line.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("duckrow.")]
    said = (ours or lines or [type(error).__name__])[0]
    if "DATA_SOURCE_NOT_FOUND" in said and "duckrow" in said:
        said += " The Python of Spark's driver and workers needs it: pip install 'duckrow[spark]' there."
    return said
