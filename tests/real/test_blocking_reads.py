"""What the blocking client reads piece by piece: stretches of entries, and news of many topics."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import duckrow
from duckrow.node.blockingreads import Between
from real.daemonkit import SECONDS, daemon

A, B = ("a", None), ("b", None)


@pytest.fixture
def node() -> Iterator[duckrow.Node]:
    with duckrow.Node() as node:
        yield node


def numbers(pulls: Between) -> list[int]:
    return [entry.number for found in pulls for entry in found]


def test_a_stretch_of_entries_comes_whole_and_not_more(node: duckrow.Node) -> None:
    row = node.client
    for _ in range(5):
        row.produce_many("t", [b"x" * 100] * 1000)

    assert numbers(row.between("t", 501, 4321)) == [*range(501, 4322)]
    assert numbers(row.between("t", 7, 7)) == [7]
    assert numbers(row.between("t", 7, 6)) == []
    pieces = [*row.between("t", 1, 5000, max_bytes=50_000)]
    assert len(pieces) > 5
    assert [entry.number for piece in pieces for entry in piece] == [*range(1, 5001)]


def test_a_stretch_waits_for_what_is_not_there_yet(node: duckrow.Node) -> None:
    row = node.client
    row.produce("t", "one")
    pulls = row.between("t", 1, 2)
    first = next(pulls)
    with duckrow.connect(node.url) as other:
        other.produce("t", "two")

    assert [entry.value for entry in first] == [b"one"]
    assert [entry.value for entry in next(pulls)] == [b"two"]
    assert [*pulls] == []
    with pytest.raises(duckrow.Timeout, match=r"entry 3 was waited for 0.1 s, and it ends with 2"):
        next(row.between("t", 3, 3, timeout=0.1))


def test_a_stretch_leaves_out_what_was_pruned(node: duckrow.Node) -> None:
    row = node.client
    row.produce_many("t", ["x"] * 20)
    row.prune("t", 10)

    assert numbers(row.between("t", 5, 15)) == [11, 12, 13, 14, 15]
    assert numbers(row.between("t", 5, 8)) == []


def test_a_stretch_goes_on_at_another_node_of_its_addresses(tmp_path: Path) -> None:
    """The first one dies between two pulls; the second comes back with the same row."""
    with daemon(tmp_path, "--listen", "tcp://127.0.0.1:0") as first:
        port = first.port()
        row = duckrow.connect(f"duck://127.0.0.1:{port},127.0.0.1:{port}", timeout=SECONDS)
        for _ in range(10):
            row.produce_many("t", [b"x" * 1000] * 100)
        pulls = row.between("t", 1, 1000, max_bytes=100_000)
        found = [entry.number for entry in next(pulls)]
        first.process.kill()
    with daemon(tmp_path, "--listen", f"tcp://127.0.0.1:{port}"):
        found += numbers(pulls)
        row.close()

    assert found == [*range(1, 1001)]


def test_who_follows_is_not_given_what_is_in_another_topic_of_that_name(tmp_path: Path) -> None:
    """Nor if the node was away meanwhile, and what it was asked has to be asked again."""
    listen = f"unix:{tmp_path}/node.sock"
    with duckrow.connect(f"duck+{listen.replace(':', '://')}") as row:
        with duckrow.Node(tmp_path / "data", listen=listen):
            row.produce_many("t", ["1", "2"])
            follow = row.follow("t")
            assert [next(follow).number for _ in range(2)] == [1, 2]
        with duckrow.Node(tmp_path / "data", listen=listen) as node:
            node.client.delete_topic("t")
            node.client.produce_many("t", ["another"] * 3)
            with pytest.raises(duckrow.Conflict, match="was deleted"):
                next(follow)


def test_a_watch_tells_which_topics_have_something_new(node: duckrow.Node) -> None:
    row = node.client
    row.produce("a", "one")
    watch = row.watch()

    assert watch.wait({A: {0: 0}, B: {}}, SECONDS) == [A]
    assert watch.wait({A: {0: 1}, B: {}}, 0.01) == []
    with duckrow.connect(node.url) as other:
        waiting = threading.Timer(0.0, other.produce, ("b", "two"))
        waiting.start()
        assert watch.wait({A: {0: 1}, B: {}}, SECONDS) == [B]
        waiting.join()
    assert watch.wait({A: {0: 1}, B: {0: 1}}, 0.01) == []
    row.produce("a", "three")
    assert watch.wait({B: {0: 1}}, 0.01) == [], "nobody asks for it any more"
    watch.close()


def test_a_watch_that_waits_asks_nothing(node: duckrow.Node) -> None:
    row = node.client
    row.produce("a", "one")
    watch = row.watch()
    watch.wait({A: {0: 1}}, 0.01)
    (before,) = row.clients()

    for _ in range(20):
        assert watch.wait({A: {0: 1}}, 0.01) == []

    (after,) = row.clients()
    assert after["requests"] == before["requests"] + 1, "the question for what clients there are"


def test_a_watch_of_very_many_topics_hears_of_each_and_keeps_nobody_from_asking(
    node: duckrow.Node,
) -> None:
    row = node.client
    done: dict[tuple[str, int | None], dict[int, int]] = {(f"t{i:02}", None): {} for i in range(90)}
    watch = row.watch()

    assert watch.wait(done, 0.01) == []
    assert row.topics() == []
    row.produce("t89", "one")
    assert watch.wait(done, SECONDS) == [("t89", None)]
    watch.close()


def test_a_watch_sees_a_partition_that_comes_later(node: duckrow.Node) -> None:
    row = node.client
    row.produce("a", "one")
    watch = row.watch()
    assert watch.wait({A: {0: 1}}, 0.01) == []

    row.set_topic("a", partitions=2)
    row.produce("a", "two", partition=1)

    assert watch.wait({A: {0: 1}}, SECONDS) == [A]
    watch.close()


def test_a_watch_of_one_partition_is_not_told_of_another(node: duckrow.Node) -> None:
    row = node.client
    row.create_topic("a", partitions=2)
    watch = row.watch()
    row.produce("a", "one", partition=0)

    assert watch.wait({("a", 1): {1: 0}}, 0.01) == []
    row.produce("a", "two", partition=1)
    assert watch.wait({("a", 1): {1: 0}}, SECONDS) == [("a", 1)]
    watch.close()
