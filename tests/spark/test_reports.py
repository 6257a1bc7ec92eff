"""Reports on topics: percentiles of round trips, and what came in, window by window."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import duckrow
from clikit import duckrow as command
from duckrow.tools import samplefiles
from duckrow.tools.pipeline.latency import REPORT
from duckrow.tools.pipeline.topics import STATISTICS, statistics
from duckrow.tools.roundtrips import Samples, rows, summary

# The session begins in the first of them, and a machine may be busy.
pytestmark = pytest.mark.timeout(600)


def trips(run: str, nodes: int, topology: str, size: int, count: int = 200) -> Samples:
    """Some that no two cases have alike."""
    about = {
        "run": run,
        "nodes": nodes,
        "topology": topology,
        "near": "m1",
        "far": f"m{nodes}",
        "hops": nodes - 1,
        "size": size,
        "durability": "write",
        "delay_ms": 5.0,
        "jitter_ms": 0.0,
        "loss_pct": 0.0,
        "rate_mbit": 0.0,
    }
    began = [1_700_000_000_000_000 + number for number in range(count)]
    ms = [nodes + size / 1000 + number * 37 % count for number in range(count)]
    return Samples(about, began, ms, [each / 2 for each in ms])


@pytest.mark.usefixtures("spark")
def test_the_latencies_of_topic_and_files_are_those_that_each_run_had(
    node: duckrow.Node, tmp_path: Path
) -> None:
    """Two runs of a case are put together; what is in two places counts once; an entry that is none is told."""
    two, three = trips("a1", 2, "chain", 10), trips("b2", 3, "ring", 1000)
    again = three._replace(about={**three.about, "run": "c3"})
    samplefiles.record(node.client, "trips", [*rows(two)])
    node.client.produce("trips", '{"no": "sample"}')
    for name, samples in (("two.csv", two), ("three.parquet", three), ("again.jsonl", again)):
        samplefiles.write(str(tmp_path / name), [*rows(samples)])
    files = " ".join(f"--samples {each}" for each in sorted(tmp_path.iterdir()))
    plots = f"--plot {tmp_path / 'trips.png'} --plot {tmp_path / 'trips.svg'}"

    done = command(f"--url {node.url} pipeline latency trips {files} {plots} -o jsonl")

    assert done.code == 0, done.err
    assert "1 entries or lines are no samples" in done.err
    first, second = map(json.loads, done.lines)
    assert tuple(first) == REPORT
    for found, samples, runs in ((first, two, 1), (second, three, 2)):
        said = {**summary(samples), "runs": runs, "count": 200 * runs}
        assert found == {name: said[name] for name in REPORT}
    assert (tmp_path / "trips.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "trips.svg").read_text()


def test_what_came_into_a_topic_is_counted_window_by_window(spark: SparkSession) -> None:
    def at(second: float) -> datetime:
        return datetime.fromtimestamp(1_700_000_000 + second, UTC)

    entries = spark.createDataFrame(
        [
            ("rides", 0, at(0), b"bus", b"7 km", "p1"),
            ("rides", 1, at(9.999999), None, b"2 km", "p1"),
            ("rides", 1, at(5), b"bus", b"11 km", "p2"),
            ("rides", 0, at(10), b"tram", b"1 km", "p1"),
            ("stops", 0, at(95), None, b"", "p3"),
        ],
        "topic string, partition int, timestamp timestamp, key binary, value binary, producer string",
    ).coalesce(1)

    found = statistics(entries, 10_000_000).collect()

    began = 1_700_000_000_000_000
    second = 1_000_000
    assert [tuple(each) for each in found] == [
        ("rides", began, began + 10 * second, 3, 19, 5, 2, 1, 2),
        ("rides", began + 10 * second, began + 20 * second, 1, 8, 4, 1, 1, 1),
        ("stops", began + 90 * second, began + 100 * second, 1, 0, 0, 1, 0, 1),
    ]
    assert tuple(found[0].asDict()) == STATISTICS


@pytest.mark.usefixtures("spark")
def test_a_report_without_a_sample_fails(node: duckrow.Node) -> None:
    node.client.produce("rides", "no sample")

    done = command(f"--url {node.url} pipeline latency rides")

    assert done.code == 1
    assert "there are no samples" in done.err
