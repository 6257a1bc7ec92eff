"""Jobs on a cluster of Spark: a master and two workers, started from the pip package; and what they find."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest

import duckrow
from postgreskit import postgres
from spark import servers

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

# On a busy machine a worker of Python takes its time to begin.
PATIENT = {
    "PYSPARK_SUBMIT_ARGS": "--conf spark.python.authenticate.socketTimeout=300s pyspark-shell"
}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.master(tmp_path_factory.mktemp("cluster")) as address:
        yield address


def test_jobs_run_on_the_machines_of_a_cluster(master: str) -> None:
    """One that reads, and one whose tasks write to a database."""
    with duckrow.Node() as node, postgres() as to:
        node.client.create_topic("measured", partitions=2)
        for partition in (0, 1):
            values = [json.dumps({"name": "ms", "value": n}) for n in range(5_000)]
            node.client.produce_many("measured", values, partition=partition)
        at = ("measured", "--url", node.url, "--master", master)

        (audited,) = servers.job("audit", *at, more=PATIENT)
        (told,) = servers.job("metrics", *at, "--to", to, more=PATIENT)
        with psycopg.connect(to) as base:
            rows = base.execute("select count(*), sum(value) from metrics").fetchone()

    assert (audited["same"], audited["entries"]) == (True, 10_000)
    assert (told["entries"], told["others"], told["added"]) == (10_000, 0, 10_000)
    assert rows == (10_000, 2 * sum(range(5_000)))
