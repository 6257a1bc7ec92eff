"""The audit: what was planted is found, at the node where it is; and the command, with real nodes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import duckrow
from clikit import Done
from clikit import duckrow as command
from duckrow.cluster.local import LocalCluster
from duckrow.cluster.plan import Plan
from duckrow.tools.pipeline.audit import (
    SEGMENT,
    Stretch,
    findings,
    segments_of,
    suspects,
    wanted_table,
)
from duckrow.tools.pipeline.nodes import Seen, rows
from real.archivekit import archived, archiver

# The session begins in the first of them, and a machine may be busy.
pytestmark = pytest.mark.timeout(600)

ENTRIES = 3 * SEGMENT + 100
NAMES = ["m1", "m2", "m3"]
ALL = Stretch("rides", 0, 1, ENTRIES)
ANY = "tcp://127.0.0.1:0"


def both(*nodes: duckrow.Node) -> str:
    return "duck://" + ",".join(each.url.removeprefix("duck://") for each in nodes)


@pytest.fixture(scope="module")
def same(spark: SparkSession) -> Iterator[DataFrame]:
    """What three nodes have that are as they should be; it is read once for all tests."""
    values = [f"{number}" for number in range(1, ENTRIES + 1)]
    with duckrow.Node() as node:
        node.client.produce_many("rides", values, keys=[None, "k"] * (ENTRIES // 2))
        yield rows(spark, [Seen(name, node.url, "", {}) for name in NAMES], [ALL]).cache()


def suspected(spark: SparkSession, table: DataFrame) -> list[Stretch]:
    wanted = wanted_table(spark, [*segments_of([ALL])])
    return sorted(Stretch(*each) for each in suspects(table, wanted, NAMES).collect())


def found(
    spark: SparkSession, table: DataFrame, segments: Sequence[Stretch]
) -> list[tuple[int, str, list[str]]]:
    told = findings(table, wanted_table(spark, segments), NAMES).orderBy("offset", "what")
    return [(each["offset"], each["what"], each["nodes"]) for each in told.collect()]


def test_a_planted_duplicate_gap_and_change_are_found_where_they_are(
    spark: SparkSession, same: DataFrame
) -> None:
    of_m1, of_m2, of_m3 = (same.where(F.col("node") == name) for name in NAMES)
    changed = F.when(F.col("offset") == 4242, F.lit(b"other")).otherwise(F.col("value"))
    planted = (
        of_m1.where("offset != 777")
        .unionByName(of_m2.unionByName(of_m2.where("offset = 55")))
        .unionByName(of_m3.withColumn("value", changed))
    )
    first, second, *_ = segments_of([ALL])

    assert suspected(spark, same) == []
    assert suspected(spark, planted) == [first, second]
    assert found(spark, planted, [first, second]) == [
        (55, "duplicate", ["m2"]),
        (777, "gap", ["m1"]),
        (4242, "changed", ["m3"]),
    ]


def test_what_is_wrong_at_all_nodes_alike_is_found_too(
    spark: SparkSession, same: DataFrame
) -> None:
    planted = same.where("offset != 5 and offset <= 12288").unionByName(same.where("offset = 6"))
    first, *_, last = segments_of([ALL])

    assert suspected(spark, planted) == [first, last]
    assert found(spark, planted, [first]) == [(5, "gap", NAMES), (6, "duplicate", NAMES)]


def test_without_a_majority_an_entry_is_changed_at_all_nodes_that_have_it(
    spark: SparkSession, same: DataFrame
) -> None:
    no_key = F.when(F.col("node") == "m2", None).otherwise(F.col("key"))
    planted = same.where("offset = 2 and node != 'm3'").withColumn("key", no_key)

    assert found(spark, planted, [Stretch("rides", 0, 2, 2)]) == [
        (2, "changed", ["m1", "m2"]),
        (2, "gap", ["m3"]),
    ]


@pytest.mark.usefixtures("spark")
def test_the_command_says_that_a_node_is_as_it_should_be(node: duckrow.Node) -> None:
    node.client.create_topic("rides", partitions=2)
    node.client.produce_many("rides", ["x"] * 5000, partition=0)
    node.client.produce_many("rides", ["y"] * 10, partition=1)
    node.client.prune("rides", 100, partition=0)

    done = command(f"--url {node.url} pipeline audit rides -o json")

    assert done.document == {
        "same": True,
        "nodes": [node.client.status()["node"]],
        "entries": 4910,
        "behind": 0,
        "segments": 3,
        "suspects": 0,
        "gaps": 0,
        "duplicates": 0,
        "changed": 0,
        "differences": [],
    }


@pytest.mark.usefixtures("spark")
def test_with_an_archive_what_was_pruned_is_compared_too(tmp_path: Path) -> None:
    place = tmp_path / "archive"
    with duckrow.Node() as node:  # on a disk: what is not durable is not archived
        node.client.create_topic("rides", archive=10, max_entries=10)
        node.client.produce_many("rides", ["x"] * 45)
        archived(archiver(node.client, place))
        (lost,) = place.rglob("*11-*20.parquet")
        lost.unlink()

        done = command(f"--url {node.url} pipeline audit --archive {place} --limit 1 -o json")

    found = json.loads(done.out)
    assert done.code == 1
    assert {name: found[name] for name in ("entries", "gaps", "duplicates", "changed")} == {
        "entries": 45,
        "gaps": 10,
        "duplicates": 0,
        "changed": 0,
    }
    assert [each["offset"] for each in found["differences"]] == [11]


@pytest.mark.usefixtures("spark")
def test_two_nodes_with_an_archive_each_are_compared_and_so_are_their_files(tmp_path: Path) -> None:
    """What one archive lacks, and what is changed in the other one."""
    places = [tmp_path / "of-m1", tmp_path / "of-m2"]
    with LocalCluster.launch(Plan(nodes=2, durability="write")) as cluster:
        for number, place in enumerate(places):
            with duckrow.connect(cluster.url(number), timeout=100) as row:
                if number == 0:
                    row.create_topic("rides", archive=10, max_entries=10)
                    row.produce_many("rides", ["x"] * 45)
                row.barrier()
                archived(archiver(row, place, f"m{number + 1}"))
        urls = ",".join(cluster.url(number).removeprefix("duck://") for number in (0, 1))

        def audited(*archives: Path) -> Done:
            said = " ".join(f"--archive {each}" for each in archives)
            return command(f"--url duck://{urls} pipeline audit {said} -o json")

        same = audited(*places).document
        of_m1, of_m2 = (shutil.copytree(each, f"{each}-hurt") for each in places)
        (lost,) = Path(of_m2).rglob(f"{11:020}-*.parquet")
        lost.unlink()
        _change(next(Path(of_m1).rglob(f"{1:020}-*.parquet")), 4)
        hurt = audited(Path(of_m1), Path(of_m2))
        too_few = audited(*places, tmp_path)

    assert (same["same"], same["nodes"], same["entries"]) == (True, ["m1", "m2"], 45)
    found = json.loads(hurt.out)
    assert hurt.code == 1
    assert (found["entries"], found["gaps"], found["changed"]) == (45, 10, 1)
    told = [(each["offset"], each["what"], each["nodes"]) for each in found["differences"]]
    assert told == [
        (4, "changed", ["m1", "m2"]),
        *((number, "gap", ["m2"]) for number in range(11, 21)),
    ]
    assert (too_few.code, too_few.out) == (2, b"")
    assert "--archive is given 3 times, and there are 2 nodes" in too_few.err


def _change(file: Path, number: int) -> None:
    """Another value, in a file that is as whole as before."""
    table = parquet.ParquetFile(file).read()
    values = [b"y" if at == number else b"x" for at in table["offset"].to_pylist()]
    at = table.schema.get_field_index("value")
    table = table.set_column(at, table.schema.field(at), pa.array(values, pa.binary()))
    parquet.write_table(table, file, write_page_checksum=True, compression="zstd")


@pytest.mark.usefixtures("spark")
def test_the_command_tells_what_differs_and_exits_with_1() -> None:
    with duckrow.Node(listen=ANY) as one, duckrow.Node(listen=ANY) as other:
        for each, value in ((one, "bus"), (other, "tram")):
            each.client.produce_many("rides", [value] * 9)
        other.client.produce("rides", "more")

        done = command(f"--url {both(one, other)} pipeline audit --limit 2 -o json")

    assert done.code == 1
    assert done.text.count('"what": "changed"') == 2
    assert '"behind": 1' in done.text
    assert '"changed": 9' in done.text


@pytest.mark.usefixtures("spark")
def test_nodes_that_have_nothing_in_common_are_not_called_the_same() -> None:
    with duckrow.Node(listen=ANY) as one, duckrow.Node(listen=ANY) as other:
        one.client.produce("rides", "one")

        done = command(f"--url {both(one, other)} pipeline audit rides")

    assert done.code == 1
    assert "nothing was compared" in done.err
