"""Jobs that bring entries from one place to another: history into a topic, measurements into a database."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

import duckrow
from clikit import duckrow as command
from postgreskit import postgres
from real.archivekit import archived, archiver

# The session begins in the first of them, and a machine may be busy.
pytestmark = pytest.mark.timeout(600)


def texts(first: int, last: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, last + 1)]


@pytest.mark.usefixtures("spark")
def test_archived_history_comes_into_a_topic_in_its_order_once_and_its_numbers_are_mapped(
    tmp_path: Path,
) -> None:
    place = tmp_path / "archive of [2026]"
    with duckrow.Node() as node:  # on a disk: what is not durable is not archived
        row = node.client
        row.create_topic("rides", partitions=2, archive=10, max_entries=10)
        row.produce_many("rides", texts(1, 45), keys=["bus"] * 45, partition=0)
        row.produce("rides", "tram", headers={"kind": b"old"}, partition=1)
        row.produce_many("rides", texts(2, 30), partition=1)
        archived(archiver(row, place))
        row.create_topic("again", partitions=2)
        row.produce_many("again", ["before"] * 5, partition=1)
        line = f"--url {node.url} pipeline replay rides --to again --archive '{place}' --round 25 -o json"

        first = command(line).document
        row.produce_many("again", ["between"] * 3, partition=0)
        row.produce_many("rides", texts(46, 60), partition=0)
        archived(archiver(row, place))
        second = command(line).document
        of_0, of_1 = ([*row.pull("again", partition=n)] for n in (0, 1))

    told = {"topic": "rides", "to": "again", "name": "rides", "missing": 0}
    one = {"partition": 0, "first": 1, "last": 30, "to_first": 1, "to_last": 30}
    other = {"partition": 1, "first": 1, "last": 20, "to_first": 6, "to_last": 25}
    more = {"partition": 0, "first": 31, "last": 50, "to_first": 34, "to_last": 53}
    assert first == {**told, "entries": 50, "there": 0, "runs": [one, other]}
    assert second == {**told, "entries": 20, "there": 50, "runs": [one, more, other]}
    assert [each.value for each in of_0] == [*texts(1, 30), *[b"between"] * 3, *texts(31, 50)]
    assert [each.key for each in of_0[:45]] == [b"bus"] * 30 + [None] * 3 + [b"bus"] * 12
    assert [each.value for each in of_1] == [*[b"before"] * 5, b"tram", *texts(2, 20)]
    assert of_1[5].headers == (("kind", b"old"), ("duckrow.replay", b"rides:rides/1/1"))


@pytest.mark.usefixtures("spark")
def test_history_comes_again_into_a_topic_that_was_made_anew_or_has_forgotten_it(
    tmp_path: Path,
) -> None:
    place = tmp_path / "archive"
    with duckrow.Node() as node:
        row = node.client
        row.create_topic("rides", archive=10, max_entries=10)
        row.produce_many("rides", texts(1, 45))
        archived(archiver(row, place))
        line = f"--url {node.url} pipeline replay rides --to again --archive {place} -o json"

        command(line)
        row.delete_topic("again")
        anew = command(line).document["entries"], [each.value for each in row.pull("again")]
        row.prune("again", 30)
        command(line)
        forgotten = [each.number for each in row.pull("again")]

    assert anew == (30, texts(1, 30))
    assert forgotten == [*range(31, 61)]


@pytest.mark.usefixtures("spark")
def test_measurements_are_in_the_database_once_however_often_they_are_read(
    node: duckrow.Node, tmp_path: Path
) -> None:
    """Without a checkpoint everything is read again; with one only what is new."""
    said = [{"name": "ms", "value": n / 2, "test": "login", "try": n} for n in range(100)]
    odd: list[bytes | str] = [
        "no JSON",
        '{"name": "ms"}',
        '{"name": "a\\u0000", "value": 1}',
        b"\xff",
        "[1]",
        "{}",
    ]
    node.client.produce_many("loads", [json.dumps(each) for each in said])
    node.client.produce_many("loads", odd)

    with postgres() as to:
        line = f"--url {node.url} pipeline metrics loads --to '{to}' -o json"
        first = command(line)
        second = command(f"{line} --checkpoint {tmp_path}/at").document
        node.client.produce("loads", '{"name": "cpu", "value": "0.25"}')
        last = command(f"{line} --checkpoint {tmp_path}/at").document
        with psycopg.connect(to) as connection:
            found = connection.execute("select * from metrics order by number").fetchall()

    told = {"topic": "loads", "table": "metrics", "entries": 106, "others": 6}
    assert first.document == {**told, "added": 100}
    assert "6 entries are no measurements" in first.err
    assert second == {**told, "added": 0}
    assert last == {**told, "entries": 1, "others": 0, "added": 1}
    assert [row[2] for row in found] == [*range(1, 101), 107]
    assert [row[5:7] for row in found[1:3]] == [("ms", 0.5), ("ms", 1.0)]
    assert found[3][7] == {"test": "login", "try": "3"}
    assert found[100][5:] == ("cpu", 0.25, {})


@pytest.mark.usefixtures("spark")
def test_files_of_an_archive_become_few_and_what_is_damaged_is_told(tmp_path: Path) -> None:
    place = tmp_path / "archive"
    with duckrow.Node() as node:
        row = node.client
        row.create_topic("rides", partitions=2, archive=10, max_entries=10)
        for partition in (0, 1):
            row.produce_many("rides", texts(1, 60), partition=partition)
        archived(archiver(row, place))
    (damaged,) = place.glob("*/partition=1/*-*20.parquet")
    damaged.write_bytes(damaged.read_bytes()[:-8])

    done = command(f"pipeline compact --archive {place} --entries 20 -o json")

    assert (done.code, done.err) == (1, "")
    found = json.loads(done.out)
    (failed,) = found.pop("failed")
    assert found == {"archive": str(place), "made": 3, "before": 10, "after": 7}
    assert failed["file"] == f"topic=rides/partition=1/{1:020}-{20:020}.parquet"
    assert f"{11:020}-{20:020}.parquet cannot be read" in failed["why"]
