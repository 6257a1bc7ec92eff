"""What tasks of Spark read where a topic has an archive; no Spark runs, and nodes and files are real."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duckrow
from duckrow.node.errors import NotFound, Refused
from pyspark_duckrow import options, tasks, topics
from pyspark_duckrow.options import BATCH, Options
from pyspark_duckrow.ranges import Range
from real.archivekit import SPAN, archived, archiver, produce

SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("producer", pa.string()),
        ("position", pa.int64()),
        (
            "headers",
            pa.list_(
                pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
            ),
        ),
        ("key", pa.binary()),
    ]
)


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those of this process are closed; a worker of Spark keeps them until it ends."""
    connect, opened = duckrow.connect, []

    def opening(*args: Any, **options: Any) -> duckrow.Client:
        opened.append(connect(*args, **options))
        return opened[-1]

    monkeypatch.setattr(duckrow, "connect", opening)
    yield
    tasks._client.cache_clear()
    for each in opened:
        each.close()


def told(node: duckrow.Node, place: Path | None, **more: str) -> Options:
    given = {"nodes": node.url, "subscribe": "t", "fetchRows": "64", **more}
    if place is not None:
        given["archive"] = str(place)
    return options.read(given, BATCH)[0]


def planned(how: Options) -> Range:
    client = tasks.client_of(how)
    extents = topics.look(client, how, tasks.archive_of(how))
    start = topics.starting(client, how, extents)
    (found,) = topics.ranges(start, topics.ending(client, how, extents), extents, how)
    return found


def rows(range_: Range, how: Options) -> list[dict[str, object]]:
    return [row for batch in tasks.read(range_, how, SCHEMA) for row in batch.to_pylist()]


def test_files_what_the_node_keeps_and_what_is_live_are_one_table(tmp_path: Path) -> None:
    place = tmp_path / "archive"
    with duckrow.Node() as node:
        row = node.client
        row.create_topic("t", archive=SPAN, max_entries=SPAN)
        produce(row, 400, keys=[f"{n}" for n in range(400)], headers=[{"a": b"b"}] * 400)
        entries = [*row.pull("t", kept=True)]
        archived(archiver(row, place))
        produce(row, 650, 401)
        how = told(node, place)

        found = rows(planned(how), how)

    assert [each["offset"] for each in found] == [*range(1, 1051)]
    assert [each["value"] for each in found] == [b"%030d" % n for n in range(1, 1051)]
    assert found[0] | {"timestamp": None, "position": None} == {
        "offset": 1,
        "value": entries[0].value,
        "topic": "t",
        "partition": 0,
        "timestamp": None,
        "timestampType": 1,
        "producer": entries[0].producer.hex(),
        "position": None,
        "headers": [{"key": "a", "value": b"b"}],
        "key": b"0",
    }
    assert len({each["timestamp"] for each in found}) > 1


def test_what_moves_into_the_archive_meanwhile_is_read_there(tmp_path: Path) -> None:
    place = tmp_path / "archive"
    with duckrow.Node() as node:
        row = node.client
        row.create_topic("t", archive=SPAN, max_entries=SPAN)
        produce(row, 400)
        archived(archiver(row, place))
        produce(row, 650, 401)
        how = told(node, place, fetchBytes="2KiB")
        range_ = planned(how)
        reading = tasks.read(range_, how, SCHEMA)
        found = [n for _ in range(10) for n in next(reading).column("offset").to_pylist()]
        archived(archiver(row, place))  # what the node kept, it keeps no longer
        found += [n for batch in reading for n in batch.column("offset").to_pylist()]

    assert found == [*range(1, 1051)]


def test_without_the_archive_what_was_pruned_is_lost_and_that_is_told(tmp_path: Path) -> None:
    place = tmp_path / "archive"
    with duckrow.Node() as node:
        row = node.client
        row.create_topic("t", archive=SPAN, max_entries=SPAN)
        produce(row, 400)
        archived(archiver(row, place))

        assert planned(told(node, None)).first == 301
        with pytest.raises(Refused, match="entries 1 to 300 were pruned before they were read"):
            planned(told(node, None, startingOffsets='{"t": {"0": 1}}'))
        with pytest.raises(NotFound, match="there is no archive at"):
            planned(told(node, tmp_path / "elsewhere"))


def test_a_file_that_is_gone_is_told_or_left_out(tmp_path: Path) -> None:
    place = tmp_path / "archive"
    with duckrow.Node() as node:
        row = node.client
        row.create_topic("t", archive=SPAN, max_entries=SPAN)
        produce(row, 400)
        archived(archiver(row, place))
        how = told(node, place)
        range_ = planned(how)
        (second,) = place.rglob("*101-*200.parquet")
        second.unlink()
        tasks.archive_at.cache_clear()  # as in a worker that has not seen it

        with pytest.raises(Refused, match=r"entries 101 to 200 were pruned.*no file"):
            rows(range_, how)
        found = rows(range_, told(node, place, failOnDataLoss="false"))

    assert [each["offset"] for each in found] == [*range(1, 101), *range(201, 401)]


def test_a_read_from_a_time_on_begins_in_the_archive_if_it_has_that(tmp_path: Path) -> None:
    place = tmp_path / "archive"
    with duckrow.Node() as node:
        row = node.client
        row.create_topic("t", archive=SPAN, max_entries=SPAN)
        produce(row, 150)
        before = [*row.pull("t", kept=True)][-1].time
        while (row.produce("t", b"later").time or 0) // 1000 <= before // 1000:
            pass  # until the row has another millisecond
        produce(row, 300, row.topic("t").partitions[0].last + 1)
        archived(archiver(row, place))
        all_ = rows(planned(told(node, place)), told(node, place))
        since = before // 1000 + 1
        (first, *_) = (each for each in all_ if _ms(each) >= since)

        early = planned(told(node, place, startingTimestamp="0"))
        middle = planned(told(node, place, startingTimestamp=str(since)))
        ending = planned(told(node, place, endingTimestamp=str(since)))

    assert (early.first, early.next) == (1, len(all_) + 1)
    assert middle.first == first["offset"]
    assert middle.first > 150
    assert ending.next == middle.first


def _ms(row: dict[str, object]) -> int:
    time = row["timestamp"]
    assert isinstance(time, datetime)
    return round(time.timestamp() * 1_000_000) // 1000


def test_entries_are_as_large_to_a_limit_in_bytes_whether_there_is_an_archive_or_not(
    tmp_path: Path,
) -> None:
    """What the node still has tells how large they are; the archive has far more of them."""
    place = tmp_path / "archive"
    with duckrow.Node() as node:
        row = node.client
        row.create_topic("t", archive=SPAN, max_entries=SPAN)
        produce(row, 5_000)
        archived(archiver(row, place))
        sizes = []
        for how in (told(node, None), told(node, place)):
            extents = topics.look(tasks.client_of(how), how, tasks.archive_of(how))
            sizes.append(extents["t", 0].entry_bytes)

    assert sizes[0] > 30
    assert sizes[1] == sizes[0]
