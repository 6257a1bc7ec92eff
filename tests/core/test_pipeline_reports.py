"""What the reports on Spark refuse before Java starts, and what they draw: without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import duckrow as library
from clikit import duckrow
from duckrow.tools import plots
from duckrow.tools.pipeline.latency import CASE, REPORT, schema
from duckrow.tools.roundtrips import SAMPLE

CASES = [
    {
        **dict.fromkeys(REPORT, 1.0),
        "nodes": nodes,
        "topology": topology,
        "durability": "write",
        "size": 100,
        "p50_ms": 10.0 * nodes,
    }
    for nodes in (2, 3, 5)
    for topology in ("chain", "ring")
]


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("pipeline latency", 2, "say where the samples are: a TOPIC, or --samples FILE"),
        ("pipeline latency trips", 3, "there is no topic 'trips'"),
        ("pipeline latency --samples trips.xls", 1, "samples are in a file that ends in .csv"),
        ("pipeline latency --samples trips.csv", 3, "trips.csv: there is no such file"),
        ("pipeline latency rides --plot trips.xls", 1, "a plot ends in .png, .svg, .pdf"),
        ("pipeline topics", 3, "there are no topics"),
        ("pipeline topics trips", 3, "there is no topic 'trips'"),
        ("pipeline topics --window 0s", 2, "--window: it is longer than nothing"),
    ],
)
def test_a_report_that_cannot_be_is_refused_before_java_starts(
    line: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with library.Node() as node:
        if "rides" in line:
            node.client.produce("rides", "7 km")
        done = duckrow(f"--url {node.url} {line}")

    assert (done.code, done.out) == (code, b"")
    assert said in done.err


def test_a_sample_has_in_spark_all_that_round_trips_record() -> None:
    names = [each.split()[0] for each in schema().split(", ")]

    assert names == [*SAMPLE]
    assert {*CASE} < {*SAMPLE}
    assert "time timestamp" in schema()


def test_a_report_of_several_chains_has_a_line_for_each_topology(tmp_path: Path) -> None:
    (axes,) = plots.figure_of_cases(CASES).axes
    lines: dict[object, Any] = {line.get_label(): line for line in axes.get_lines()}

    assert list(lines["chain: p50"].get_xdata()) == [2, 3, 5]
    assert list(lines["ring: p50"].get_ydata()) == [20.0, 30.0, 50.0]
    for ending in (".png", ".svg"):
        plots.draw_cases(str(tmp_path / f"trips{ending}"), CASES)
        assert (tmp_path / f"trips{ending}").stat().st_size > 10_000
    assert len(plots.figure_of_cases(CASES[:1]).axes) == 1
