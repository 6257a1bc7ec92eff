"""Where batch reads of Spark begin and end; no Spark runs, and nodes are real."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql.types import StructType

import duckrow
from duckrow.node.errors import Refused
from pyspark_duckrow import options, tasks, topics
from pyspark_duckrow.batch import BatchReader


@pytest.fixture
def node() -> Iterator[duckrow.Node]:
    with duckrow.Node() as running:
        yield running
        tasks.client_of(told(running)).close()
        tasks._client.cache_clear()


def told(node: duckrow.Node, **more: str) -> options.Options:
    return options.read({"nodes": node.url, "subscribe": "t", **more}, options.BATCH)[0]


def ranges(node: duckrow.Node, **more: str) -> list[range]:
    found = BatchReader(told(node, **more), StructType()).partitions()
    return [range(each.range.first, each.range.next) for each in found]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_an_entry_that_comes_while_a_read_is_planned_is_not_taken_for_one_of_another_topic(
    node: duckrow.Node, monkeypatch: pytest.MonkeyPatch, fail: str
) -> None:
    """It is the first one that is late enough; there were five when it was asked how many there are."""
    node.client.produce_many("t", ["x"] * 5)

    def at_a_time(*_: object) -> dict[tuple[str, int], int]:
        node.client.produce_many("t", ["too early", "late enough"])
        return {("t", 0): 7}

    monkeypatch.setattr(topics, "starting", at_a_time)

    assert ranges(node, startingTimestamp="1", failOnDataLoss=fail) == [range(7, 8)]


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("start", [3, -1])
def test_a_read_that_begins_behind_its_end_is_told_so(
    node: duckrow.Node, start: int, fail: str
) -> None:
    node.client.produce_many("t", ["x"] * 5)

    with pytest.raises(Refused, match=r"begin with entry . and to end before entry 2:"):
        ranges(
            node,
            startingOffsets=f'{{"t": {{"0": {start}}}}}',
            endingOffsets='{"t": {"0": 2}}',
            failOnDataLoss=fail,
        )
