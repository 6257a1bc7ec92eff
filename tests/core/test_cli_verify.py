"""`duckrow verify` and `trace` ask all machines at the same time; and rows that go on apart are not the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from clikit import duckrow
from duckrow import Timeout
from duckrow.tools import cli_trace, cli_verify

SECONDS = 5.0  # in which all are asked, if one does not wait for the other
OLD, NEW = 11, 22
AB, CD = "ab" * 16, "cd" * 16


class Node:
    """A node with the position and lineage that it tells, and what its bridge knows of the newest view."""

    def __init__(
        self, name: str, lineage: int = OLD, newest: tuple[int, str] | None = None, *, at: int = 50
    ) -> None:
        self.name, self.lineage, self.newest, self.position = name, lineage, newest, at
        self.all_asked = Barrier(1)

    def status(self) -> dict[str, Any]:
        self.all_asked.wait(SECONDS)
        told = {"node": self.name, "position": self.position, "lineage": self.lineage}
        return told | {"hashed": self.position, "state_hash": f"state at {self.position}"}

    def topic(self, topic: str) -> None:
        self.all_asked.wait(SECONDS)
        raise Timeout(f"{self.name} is down, and {topic} with it")

    def digest(self, position: int) -> bytes:
        return b"all rows begin alike, %d" % position

    def members(self) -> dict[str, Any]:
        if self.newest is None:
            return {"alone": True}
        return {"lineage": self.newest[0], "cluster": self.newest[1]}


class Away(Node):
    """Its bridge is."""

    def members(self) -> dict[str, Any]:
        raise Timeout("no answer")


def told(
    monkeypatch: pytest.MonkeyPatch, words: str, nodes: Sequence[Node]
) -> tuple[int, Any, str]:
    """Of the nodes duck://m1, duck://m2 ..."""
    by_url = {f"duck://{node.name}:1": node for node in nodes}

    @contextmanager
    def client_of(_args: object, _console: object, url: str) -> Iterator[Node]:
        yield by_url[url]

    for command in (cli_verify, cli_trace):
        monkeypatch.setattr(command, "client_of", client_of)
    done = duckrow(words)
    return done.code, json.loads(done.out), done.err


def verified(monkeypatch: pytest.MonkeyPatch, *nodes: Node) -> tuple[int, Any, str]:
    urls = ",".join(f"{node.name}:1" for node in nodes)
    return told(monkeypatch, f"verify -o json --url duck://{urls}", nodes)


def three_that_answer_when_all_are_asked() -> list[Node]:
    nodes, barrier = [Node("m1"), Node("m2"), Node("m3")], Barrier(3)
    for node in nodes:
        node.all_asked = barrier
    return nodes


def test_verify_asks_all_nodes_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = three_that_answer_when_all_are_asked()

    code, found, said = verified(monkeypatch, *nodes)

    assert (code, found["same"], found["apart"], said) == (0, True, [], "")


def test_trace_asks_all_members_of_a_cluster_file_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nodes = three_that_answer_when_all_are_asked()
    file = tmp_path / "cluster.toml"
    file.write_text(
        "".join(
            f'[members.m{n}]\nid = {n}\naddress = "tcp://127.0.0.1:{n}"\nurl = "duck://m{n}:1"\n'
            for n in (1, 2, 3)
        )
    )

    code, found, _ = told(monkeypatch, f"trace t 7 -o json --cluster {file}", nodes)

    assert code == 3
    assert [row["node"] for row in found] == ["m1", "m2", "m3"]
    assert found[1]["said"] == "m2 is down, and t with it"


def test_rows_of_two_clusters_are_not_the_same_where_all_they_have_in_common_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, other = Node("m1", OLD, (OLD, AB)), Node("m3", OLD, (OLD, AB))
    forced = Node("m2", NEW, (NEW, CD), at=60)

    code, found, said = verified(monkeypatch, old, forced, other)

    assert (code, found["same"], found["first_difference"]) == (1, False, None)
    assert found["apart"] == [
        {"lineage": OLD, "cluster": AB, "nodes": ["m1", "m3"]},
        {"lineage": NEW, "cluster": CD, "nodes": ["m2"]},
    ]
    assert f"2 rows, which go on apart: m1, m3 of lineage {OLD} in cluster {AB}; m2 of" in said
    assert "what they have in common is the same, and what comes now is not" in said


def test_a_machine_that_is_behind_the_forced_view_is_of_the_cluster_that_its_bridge_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It copies the row from the beginning, where that was of the old cluster."""
    forced, behind = Node("m1", NEW, (NEW, CD), at=60), Node("m2", OLD, (NEW, CD), at=20)
    blank = Node("m3", 0, (0, ""), at=0)

    code, found, said = verified(monkeypatch, forced, behind, blank)

    assert (code, found["same"], found["apart"], said) == (0, True, [], "")


def test_nodes_alone_and_those_whose_bridge_is_away_are_told_apart_by_what_they_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as a restored copy, and its original that went on."""
    code, found, said = verified(monkeypatch, Node("m1", NEW), Away("m2", OLD))

    assert (code, found["same"]) == (1, False)
    assert [each["nodes"] for each in found["apart"]] == [["m1"], ["m2"]]
    assert f"m1 of lineage {NEW}; m2 of lineage {OLD}; what they" in said
