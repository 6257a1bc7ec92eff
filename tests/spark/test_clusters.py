"""Jobs on a cluster of Spark: a master and two workers, started from the pip package; and what they find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest

import duckrow
from postgreskit import postgres

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
SECONDS = 300
LOCAL = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def environ() -> dict[str, str]:
    return {**os.environ, **LOCAL, "PYTHONPATH": str(ROOT / "src")}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one with two workers."""
    import pyspark

    home = Path(pyspark.__file__).parent
    folder = tmp_path_factory.mktemp("cluster")
    port, page = free_port(), free_port()

    def start(stack: ExitStack, name: str, what: str, *words: str | int) -> None:
        log = stack.enter_context((folder / f"{name}.log").open("w"))
        running = subprocess.Popen(
            [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{what}", *map(str, words)],
            env={**environ(), "SPARK_HOME": str(home)},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        stack.callback(running.wait)
        stack.callback(running.kill)

    with ExitStack() as stack:
        at = ("--host", "127.0.0.1", "--webui-port")
        start(stack, "master", "master.Master", *at, page, "--port", port)
        for number in range(2):
            work = folder / f"work-{number}"
            of = ("--cores", 1, "--memory", "1g", "--work-dir", str(work))
            start(
                stack,
                f"worker-{number}",
                "worker.Worker",
                *at,
                free_port(),
                *of,
                f"spark://127.0.0.1:{port}",
            )
        _until_alive(f"http://127.0.0.1:{page}/json/", 2)
        yield f"spark://127.0.0.1:{port}"


def _until_alive(page: str, workers: int) -> None:
    for _ in range(SECONDS):
        try:
            with urllib.request.urlopen(page, timeout=5) as answer:
                if json.load(answer)["aliveworkers"] == workers:
                    return
        except OSError:
            pass  # it is not up yet
        Event().wait(1)
    raise TimeoutError(f"{workers} workers of Spark did not come up: {page}")


def job(master: str, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "duckrow.tools.cli", "pipeline", *words, "--master", master],
        env=environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_jobs_run_on_the_machines_of_a_cluster(master: str) -> None:
    """One that reads, and one whose tasks write to a database."""
    with duckrow.Node() as node, postgres() as to:
        node.client.create_topic("measured", partitions=2)
        for partition in (0, 1):
            values = [json.dumps({"name": "ms", "value": n}) for n in range(5_000)]
            node.client.produce_many("measured", values, partition=partition)

        (audited,) = job(master, "audit", "measured", "--url", node.url)
        (told,) = job(master, "metrics", "measured", "--url", node.url, "--to", to)
        with psycopg.connect(to) as base:
            rows = base.execute("select count(*), sum(value) from metrics").fetchone()

    assert (audited["same"], audited["entries"]) == (True, 10_000)
    assert (told["entries"], told["others"], told["added"]) == (10_000, 0, 10_000)
    assert rows == (10_000, 2 * sum(range(5_000)))
