"""What an audit compares, and what a job says where it cannot run: without Spark."""

from __future__ import annotations

import sys

import pytest

from clikit import duckrow
from duckrow.tools.command import UsageError
from duckrow.tools.pipeline.audit import SEGMENT, Stretch, behind, common, runs_of, segments_of
from duckrow.tools.pipeline.nodes import Seen, archives, named


def test_what_all_nodes_have_is_compared_and_the_rest_is_behind() -> None:
    nodes = [
        {("rides", 0): (1, 100), ("rides", 1): (1, 7), ("stops", 0): (1, 5)},
        {("rides", 0): (11, 90), ("rides", 1): (8, 12)},
    ]

    assert common(nodes) == [Stretch("rides", 0, 11, 90)]
    assert behind(nodes) == 10 + 5 + 5
    assert common([{}, {}]) == []
    assert behind([{}, {}]) == 0


def test_segments_end_at_the_same_numbers_whatever_was_pruned() -> None:
    stretch = Stretch("rides", 2, 100, 2 * SEGMENT + 1)

    segments = [*segments_of([stretch])]

    assert segments == [
        Stretch("rides", 2, 100, SEGMENT),
        Stretch("rides", 2, SEGMENT + 1, 2 * SEGMENT),
        Stretch("rides", 2, 2 * SEGMENT + 1, 2 * SEGMENT + 1),
    ]
    assert sum(map(len, segments)) == len(stretch)
    assert runs_of(segments[::-1]) == [stretch]


def test_a_run_is_of_one_partition() -> None:
    few = [Stretch("rides", 0, 1, 9), Stretch("rides", 1, 1, 9), Stretch("rides", 0, 20, 30)]

    assert runs_of(few) == [Stretch("rides", 0, 1, 30), Stretch("rides", 1, 1, 9)]


def test_nodes_of_the_same_name_are_told_apart_by_their_addresses() -> None:
    nodes = [Seen("m1", "duck://a:1", "", {}), Seen("m1", "duck://b:1", "", {})]

    assert [each.name for each in named(nodes)] == ["m1 (duck://a:1)", "m1 (duck://b:1)"]
    assert [each.name for each in named(nodes[:1])] == ["m1"]


def test_an_archive_is_that_of_all_nodes_or_there_is_one_for_each() -> None:
    assert archives([], 2) == ["", ""]
    assert archives(["a"], 2) == ["a", "a"]
    assert archives(["a", "b"], 2) == ["a", "b"]
    with pytest.raises(UsageError, match="--archive is given 2 times, and there are 3 nodes"):
        archives(["a", "b"], 3)


@pytest.mark.parametrize("missing", ["pyspark", "java", "grpc"])
def test_a_job_says_what_is_missing_here(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import duckrow as library

    if missing != "java":
        monkeypatch.setitem(sys.modules, missing, None)
    else:
        monkeypatch.setenv("PATH", "/nowhere")
        monkeypatch.delenv("JAVA_HOME", raising=False)
    with library.Node() as node:
        where = "--remote sc://127.0.0.1:1" if missing == "grpc" else ""
        done = duckrow(f"--url {node.url} pipeline audit {where}")

    assert done.code == 1
    assert done.out == b""
    said = {
        "pyspark": "duckrow: pyspark is not installed: pip install 'duckrow[spark]'\n",
        "java": "duckrow: Spark needs a Java runtime, 17 or newer: none is on the PATH, nor in JAVA_HOME "
        "(not set)\n",
        "grpc": "duckrow: Spark Connect needs more packages: pip install 'duckrow[connect]' (",
    }
    assert done.err.startswith(said[missing])
    assert done.err.count("\n") == 1


def test_every_node_of_an_audit_has_to_answer() -> None:
    done = duckrow("--url duck://127.0.0.1:1 --timeout 0.2 pipeline audit")

    assert done.code in (1, 4)
    assert "127.0.0.1:1" in done.err


def test_a_job_that_there_is_not_is_a_usage_error() -> None:
    done = duckrow("pipeline adit")

    assert done.code == 2
    assert "did you mean audit?" in done.err


def test_a_topic_that_no_node_has_cannot_be_audited() -> None:
    import duckrow as library

    with library.Node() as node:
        done = duckrow(f"--url {node.url} pipeline audit rides")

    assert done.code == 3
    assert done.err == "duckrow: there is no topic 'rides' at any of these nodes\n"


@pytest.mark.parametrize(
    "master", ["spork://x:1", "local[2", "spark://", "localhost", "sc://m9:15002"]
)
def test_a_master_that_spark_does_not_know_is_a_wrong_use(master: str) -> None:
    done = duckrow(f"pipeline audit --master '{master}'")

    assert done.code == 2
    assert f"argument --master: '{master}' is no master of Spark: local[N]," in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (
            "--remote m9:15002",
            2,
            "argument --remote: 'm9:15002' is no server of Spark Connect: sc://",
        ),
        (
            "--remote sc://m9 --master 'local[2]'",
            2,
            "--master local[2] and --remote sc://m9: give one",
        ),
        ("--remote sc://127.0.0.1:1", 1, "no server of Spark Connect is there: [Errno 111]"),
        ("--remote sc://127.0.0.1:many", 1, "no server of Spark Connect is there: Port could not"),
    ],
)
def test_a_server_that_is_not_there_is_told_before_anything_begins(
    line: str, code: int, said: str
) -> None:
    import duckrow as library

    with library.Node() as node:
        done = duckrow(f"--url {node.url} pipeline audit {line}")

    assert (done.code, done.out) == (code, b"")
    assert said in done.err
    assert done.err.count("\n") == 1
