"""Entries that a job hands over and commits, with the blocking client and a real node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import duckrow
from duckrow.node import columns
from real.daemonkit import SECONDS, daemon


@pytest.fixture
def node() -> Iterator[duckrow.Node]:
    with duckrow.Node() as node:
        yield node


def values(row: duckrow.Client, topic: str = "t", partition: int | None = None) -> list[bytes]:
    return [entry.value for entry in row.pull(topic, partition=partition)]


def test_what_is_staged_is_seen_after_the_commit_in_its_order(node: duckrow.Node) -> None:
    row = node.client
    first, second = row.staging(b"w", 1, task=0), row.staging(b"w", 1, task=1)
    second.put("t", columns.encode([b"c"]), 1)
    first.put("t", columns.encode([b"a"]), 1)
    first.put("t", columns.encode([b"b"]), 1)
    names = first.names() + second.names()
    before = values(row)

    assert row.commit(b"w", 1, names) == 3

    assert before == []
    assert values(row) == [b"a", b"b", b"c"]


def test_a_commit_that_is_asked_again_adds_nothing(node: duckrow.Node) -> None:
    row = node.client
    for text in (b"a", b"again"):
        staging = row.staging(b"w", 7)
        staging.put("t", columns.encode([text]), 1)
        assert row.commit(b"w", 7, staging.names()) == 1
    with pytest.raises(duckrow.Exists, match="has committed a later batch, 7"):
        row.commit(b"w", 6, [])

    assert values(row) == [b"a"]


def test_a_commit_of_what_is_not_there_numbers_nothing(node: duckrow.Node) -> None:
    row = node.client
    staging = row.staging(b"w", 1)
    staging.put("t", columns.encode([b"a"]), 1)

    with pytest.raises(duckrow.Refused, match="stage 2 of the list is not there"):
        row.commit(b"w", 1, [*staging.names(), (999, 0)])

    assert values(row) == []


def test_what_is_staged_goes_where_it_was_told_though_the_topic_has_grown(
    node: duckrow.Node,
) -> None:
    row = node.client
    row.create_topic("t", partitions=2)
    staging = row.staging(b"w", 1)
    staging.put("t", columns.encode([b"a"]), 1, partition=1, partitions=2)
    row.set_topic("t", partitions=3)
    staging.put("t", columns.encode([b"b"]), 1, partition=1, partitions=2)
    staging.put("t", columns.encode([b"c"]), 1, partition=2, partitions=3)

    row.commit(b"w", 1, staging.names())

    assert values(row, partition=1) == [b"a", b"b"]
    assert values(row, partition=2) == [b"c"]


def test_many_stages_are_on_their_way_at_once_and_keep_their_order(node: duckrow.Node) -> None:
    row = node.client
    staging = row.staging(b"w", 1)
    for n in range(100):
        staging.put("t", columns.encode([b"%d" % n] * 10), 10)

    assert row.commit(b"w", 1, staging.names()) == 1000

    assert [entry.value for entry in row.pull("t", limit=2000)] == [
        b"%d" % (n // 10) for n in range(1000)
    ]


def test_stages_and_their_commit_outlive_the_death_of_the_node(tmp_path: Path) -> None:
    with daemon(tmp_path) as first:
        row = duckrow.connect(first.url, timeout=SECONDS)
        staging = row.staging(b"w", 1)
        staging.put("t", columns.encode([b"a"]), 1)
        names = staging.names()
        first.process.kill()
    with daemon(tmp_path):
        assert row.commit(b"w", 1, names) == 1
        assert values(row) == [b"a"]
        row.close()
