"""Spark Connect: a real server from the pip package; the source, the sink and the jobs through it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import duckrow
from duckrow.tools import samplefiles
from duckrow.tools.roundtrips import Samples, rows, summary
from postgreskit import postgres
from real.archivekit import archived, archiver
from spark import servers

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

ABOUT = {
    "run": "a1",
    "nodes": 2,
    "topology": "chain",
    "near": "m1",
    "far": "m2",
    "hops": 1,
    "size": 10,
    "durability": "write",
    "delay_ms": 5.0,
    "jitter_ms": 0.0,
    "loss_pct": 0.0,
    "rate_mbit": 0.0,
}
NO_JAVA = {"PATH": "/usr/bin/nowhere", "JAVA_HOME": ""}  # a client needs none


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.connect(tmp_path_factory.mktemp("connect")) as address:
        yield address


def test_an_audit_and_reports_run_at_a_server_of_spark_connect(server: str, tmp_path: Path) -> None:
    samples = Samples(
        ABOUT,
        [1_700_000_000_000_000 + n for n in range(200)],
        [2.0 + n * 37 % 200 for n in range(200)],
        [1.0] * 200,
    )
    said = summary(samples)
    samplefiles.write(str(tmp_path / "trips.csv"), [*rows(samples)])
    with duckrow.Node() as node:
        node.client.create_topic("rides", partitions=2)
        for partition in (0, 1):
            node.client.produce_many("rides", ["x"] * 5_000, partition=partition)
        samplefiles.record(node.client, "trips", [*rows(samples)])
        node.client.produce("trips", '{"no": "sample"}')
        at = ("--url", node.url, "--remote", server)

        (audited,) = servers.job("audit", "rides", *at, more=NO_JAVA)
        (one,) = servers.job("latency", "trips", *at, more=NO_JAVA)
        of_file = ("--samples", str(tmp_path / "trips.csv"))
        (both,) = servers.job("latency", "trips", *of_file, *at, more=NO_JAVA)
        counted = servers.job("topics", "rides", *at, "--window", "1d", more=NO_JAVA)

    assert (audited["same"], audited["entries"], audited["segments"]) == (True, 10_000, 4)
    assert (one["count"], one["p50_ms"], one["ratio"]) == (200, said["p50_ms"], said["ratio"])
    assert both == one, "what is in two places counts once"
    assert sum(each["entries"] for each in counted) == 10_000


def test_jobs_that_write_run_at_a_server_of_spark_connect(server: str, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    with duckrow.Node() as node, postgres() as to:
        row = node.client
        row.create_topic("rides", archive=10, max_entries=10)
        row.produce_many("rides", [b"%d" % n for n in range(1, 66)])
        archived(archiver(row, place))
        row.produce_many("loads", [json.dumps({"name": "ms", "value": n}) for n in range(500)])
        row.produce("loads", "no measurement")
        at = ("--url", node.url, "--remote", server)

        again = ("rides", "--to", "again", "--archive", str(place), *at)
        (replayed,) = servers.job("replay", *again, more=NO_JAVA)
        (compacted,) = servers.job(
            "compact", "--archive", str(place), "--entries", "20", *at, more=NO_JAVA
        )
        metrics = ("metrics", "loads", "--to", to, *at)
        first, second = (servers.job(*metrics, more=NO_JAVA)[0] for _ in range(2))
        values = [entry.value for entry in row.pull("again")]
        with psycopg.connect(to) as base:
            found = base.execute("select count(*), sum(value) from metrics").fetchone()

    assert (replayed["entries"], replayed["missing"]) == (50, 0)
    assert values == [b"%d" % n for n in range(1, 51)]
    assert (compacted["made"], compacted["before"], compacted["after"]) == (2, 5, 3)
    assert (first["entries"], first["others"], first["added"]) == (501, 1, 500)
    assert (second["entries"], second["added"]) == (501, 0)
    assert found == (500, sum(range(500)))


def test_a_server_whose_python_has_no_duckrow_is_told_so(tmp_path: Path) -> None:
    bare = str(servers.bare_python(tmp_path))
    with (
        duckrow.Node() as node,
        servers.connect(tmp_path, PYSPARK_PYTHON=bare, PYTHONPATH="") as server,
    ):
        node.client.produce("rides", "one")
        done = servers.ended("audit", "--url", node.url, "--remote", server)

    assert done.returncode == 1
    assert "[DATA_SOURCE_NOT_FOUND]" in done.stderr
    assert done.stderr.endswith(
        "The Python of Spark's driver and workers needs it: pip install 'duckrow[spark]' there.\n"
    )
