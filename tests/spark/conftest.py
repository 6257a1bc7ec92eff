"""One session of Spark for all its tests, and a node for each."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import duckrow
from duckrow.node.alone import Options
from duckrow.node.storeoptions import MEMORY, StoreOptions

SOURCES = str(Path(duckrow.__file__).parents[1])


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else workers are whatever python3 is
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Spark looks through the path of its workers for packages like ours.
    os.environ["PYTHONPATH"] = os.pathsep.join([SOURCES, os.environ.get("PYTHONPATH", "")])
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "1g")
        # It runs for minutes and not for days: what the better compiler costs never comes back.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        # On a busy machine a worker takes its time to begin.
        .config("spark.python.authenticate.socketTimeout", "100s")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def node() -> Iterator[duckrow.Node]:
    with duckrow.Node(options=Options(store=StoreOptions(level=MEMORY))) as running:
        yield running
