"""What a copy of a topic by Spark has after drivers, executors and nodes were killed: all, once, in order."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import duckrow
from duckrow.cluster.local import LocalCluster
from duckrow.cluster.plan import Plan, Wires
from duckrow.node.storeoptions import MEMORY
from spark.copying import MASTER, copying

# The session begins in the first of them, and a machine may be busy.
pytestmark = pytest.mark.timeout(600)

SECONDS = 300
ROOT = Path(__file__).parents[2]


def run_program(node: str, folder: Path, tasks: int, mode: str, death: str, **env: str) -> int:
    """Its exit code; 0: it came to the end."""
    path = os.pathsep.join(map(str, (ROOT / "src", ROOT / "tests")))
    done = subprocess.run(
        [sys.executable, "-m", "spark.copying", node, str(folder), str(tasks), mode, death],
        env={**os.environ, "PYTHONPATH": path, **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (folder / "alive").exists(), done.stderr
    return done.returncode


def run_here(spark: SparkSession, nodes: str, folder: Path, tasks: int, mode: str) -> None:
    query = copying(spark, nodes, folder, tasks, mode).start()
    assert query.awaitTermination(SECONDS)


def texts(first: int, count: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, first + count)]


def everything(row: duckrow.Client, topic: str) -> list[bytes]:
    found: list[bytes] = []
    after: object = 0
    while entries := row.pull(topic, after, limit=60_000, max_bytes=1 << 22):
        found += [entry.value for entry in entries]
        after = entries.after
    return found


def committed(folder: Path) -> int:
    """Batches that Spark has noted."""
    return sum(each.name.isdecimal() for each in (folder / "checkpoint" / "commits").iterdir())


def test_a_driver_that_is_killed_between_the_two_commits_and_other_tasks_afterwards_add_nothing(
    spark: SparkSession, node: duckrow.Node, tmp_path: Path
) -> None:
    node.client.produce_many("rides", texts(0, 3500))

    code = run_program(node.url, tmp_path, 2, "atomic", "commit:1")
    noted, there = committed(tmp_path), len(everything(node.client, "copy"))
    run_here(spark, node.url, tmp_path, 5, "atomic")

    assert code != 0
    assert (noted, there) == (1, 2000), "batch 1 is in the topic, and Spark does not know"
    assert everything(node.client, "copy") == texts(0, 3500)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["atomic", "direct"])
@pytest.mark.parametrize("death", ["commit:1", "task:1"])
def test_drivers_that_die_anywhere_leave_nothing_twice(
    spark: SparkSession, node: duckrow.Node, tmp_path: Path, mode: str, death: str
) -> None:
    """Another number of tasks afterwards, where that is allowed: `direct` needs the same."""
    node.client.produce_many("rides", texts(0, 3500))

    first = run_program(node.url, tmp_path, 2, mode, death)
    again = run_program(node.url, tmp_path, 5 if mode == "atomic" else 2, mode, "task:2")
    run_here(spark, node.url, tmp_path, 3 if mode == "atomic" else 2, mode)

    assert first != 0
    assert again != 0
    found = everything(node.client, "copy")
    assert sorted(found, key=int) == texts(0, 3500)
    assert mode == "direct" or found == texts(0, 3500)


@pytest.mark.long
def test_an_executor_that_is_killed_is_replaced_and_nothing_is_there_twice(
    node: duckrow.Node, tmp_path: Path
) -> None:
    import pyspark

    node.client.produce_many("rides", texts(0, 3500))

    code = run_program(
        node.url,
        tmp_path,
        4,
        "atomic",
        "executor:1",
        **{MASTER: "local-cluster[2,1,1024]", "SPARK_HOME": str(Path(pyspark.__file__).parent)},
    )

    assert code == 0
    assert everything(node.client, "copy") == texts(0, 3500)


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster.launch(Plan(nodes=3, durability=MEMORY, wires=Wires())) as running:
        yield running


def test_nodes_that_are_killed_while_a_copy_runs_lose_and_double_nothing(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    """The first in the list dies while the copy runs, and comes back; then its bridges are cut."""
    with duckrow.connect(cluster.url(1), timeout=SECONDS) as row:
        row.produce_many("rides", texts(0, 3500))
        nodes = ",".join(cluster.url(n).removeprefix("duck://") for n in (0, 1, 2))
        query = copying(spark, nodes, tmp_path, 2, "atomic").start()
        row.pull("copy", wait=SECONDS)
        cluster.kill(0)
        assert query.awaitTermination(SECONDS)
        first = everything(row, "copy")
        cluster.start(0)
        row.produce_many("rides", texts(3500, 3500))
        query = copying(spark, nodes, tmp_path, 3, "atomic").start()
        row.pull("copy", 3500, wait=SECONDS)
        cluster.cut(0, 1)
        cluster.cut(0, 2)
        assert query.awaitTermination(SECONDS)
        cluster.heal()
        both = everything(row, "copy")

    assert first == texts(0, 3500)
    assert both == texts(0, 7000)
