"""How far batches of a streaming read of Spark go; no Spark runs, and nodes are real."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

import duckrow
from duckrow.node.errors import Refused
from pyspark_duckrow import options, tasks
from pyspark_duckrow.stream import StreamReader

ALL = ReadAllAvailable()


@pytest.fixture
def node() -> Iterator[duckrow.Node]:
    with duckrow.Node() as running:
        yield running
        reader(running)._client.close()
        tasks._client.cache_clear()


def reader(node: duckrow.Node, **more: str) -> StreamReader:
    given = {"nodes": node.url, "subscribe": "t", "waitSeconds": "5", **more}
    return StreamReader(options.read(given, options.STREAM)[0], StructType())


def at(number: int) -> dict[str, dict[str, int]]:
    return {"t": {"0": number}}


def ranges(found: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[range]:
    return [range(each.range.first, each.range.next) for each in found.partitions(start, end)]


@pytest.mark.parametrize("limit", [ALL, ReadMaxRows(10)])
def test_a_query_of_what_is_available_does_not_go_back_before_the_latest_with_which_it_begins(
    node: duckrow.Node, limit: ReadLimit
) -> None:
    """Entries come between the two moments at which Spark asks."""
    node.client.produce_many("t", ["x"] * 5)
    found = reader(node)
    found.prepareForTriggerAvailableNow()
    node.client.produce_many("t", ["x"] * 5)

    start = found.initialOffset()

    assert found.latestOffset(start, limit) == start


@pytest.mark.parametrize("limit", [ALL, ReadMaxRows(10)])
@pytest.mark.parametrize("available", [False, True])
def test_a_node_that_is_behind_the_one_that_was_read_before_is_not_taken_for_another_topic(
    node: duckrow.Node, monkeypatch: pytest.MonkeyPatch, limit: ReadLimit, available: bool
) -> None:
    """The node has applied the last entries once it has answered a barrier."""
    row = node.client
    row.produce_many("t", ["x"] * 5)
    early = row.topic("t")
    row.produce_many("t", ["x"] * 5)
    late, barrier = duckrow.Client.topic, duckrow.Client.barrier

    def catch_up(client: duckrow.Client) -> int:
        monkeypatch.setattr(duckrow.Client, "topic", late)
        return barrier(client)

    monkeypatch.setattr(duckrow.Client, "topic", lambda _client, _name: early)
    monkeypatch.setattr(duckrow.Client, "barrier", catch_up)
    found = reader(node, failOnDataLoss="false")
    if available:
        found.prepareForTriggerAvailableNow()

    assert found.latestOffset(at(8), limit) == at(11)
    assert ranges(found, at(8), at(11)) == [range(8, 11)]


def test_a_topic_that_is_made_anew_while_a_stream_reads_it_is_told_however_much_it_has(
    node: duckrow.Node,
) -> None:
    row = node.client
    row.produce_many("t", ["x"] * 5)
    strict, loose = reader(node), reader(node, failOnDataLoss="false")
    for each in (strict, loose):
        assert each.latestOffset(at(1), ALL) == at(6)
    row.delete_topic("t")
    row.produce_many("t", ["new"] * 20)

    with pytest.raises(Refused, match="was read up to 5 was deleted"):
        strict.latestOffset(at(6), ALL)
    assert loose.latestOffset(at(6), ALL) == at(1)
    assert ranges(loose, at(6), at(1)) == []
    assert loose.latestOffset(at(1), ALL) == at(21)
    assert ranges(loose, at(1), at(21)) == [range(1, 21)]
