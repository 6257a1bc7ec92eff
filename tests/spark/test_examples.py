"""Every example of the help of `duckrow pipeline` runs, in the session of the other tests."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import duckrow
from clikit import duckrow as command
from duckrow.tools import samplefiles
from duckrow.tools.cli import commands
from duckrow.tools.roundtrips import rows
from postgreskit import postgres
from real.archivekit import archived, archiver
from spark.test_reports import trips

# The session begins in the first of them, and a machine may be busy.
pytestmark = pytest.mark.timeout(600)

EXAMPLES = [example for each in commands("pipeline") for example in each.examples]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_help_runs(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with duckrow.Node() as node, ExitStack() as stack:
        row = node.client
        row.create_topic("rides", archive=2, max_entries=1)
        row.produce_many("rides", ["7 km", "2 km", "11 km"] * 2, keys=["bus", "tram", "bus"] * 2)
        archived(archiver(row, tmp_path / "archive"))
        samplefiles.record(row, "trips", [*rows(trips("a1", 2, "chain", 10, count=5))])
        row.produce("measured", '{"name": "ms", "value": 2.5}')
        environ = {"DUCKROW_URL": node.url}
        if " metrics " in example:
            environ["DUCKROW_POSTGRES"] = stack.enter_context(postgres())
        done = command(example.removeprefix("duckrow "), environ=environ)

    assert (done.code, done.err) == (0, "")


def test_the_examples_ran_in_the_session_of_the_tests(spark: SparkSession) -> None:
    assert SparkSession.getActiveSession() is spark
