"""`duckrow member force-view` warns, and asks a person before anything is lost."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest

from clikit import Done, duckrow
from duckrow import Refused
from duckrow.tools import cli_member

OTHER = {"weight": 1, "witness": False, "state": "waits", "listed": 1, "listed_witness": False}
LEFT = {
    "view": 7,
    "active": False,
    "exact": False,
    "waits": "of a weight of 3 voters with 1 seem to run: m1, m3 are missing",
    "position": 1000,
    "furthest": 1003,
    "durability": "fsync",
    "min_copies": 1,
    "cluster": "ab" * 16,
    "name": "m2",
    "nodes": [{"id": 1, "name": "m1"} | OTHER, {"id": 2, "name": "m2"} | OTHER],
}


class Node:
    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.refuses = False

    def members(self, what: str = "members", **asked: Any) -> dict[str, Any]:
        if what == "members":
            return LEFT
        if self.refuses:
            raise Refused("the view is against it")
        self.asked.append({"what": what, **asked})
        return LEFT | {"waits": "", "cluster": "cd" * 16}


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node()

    @contextmanager
    def client_of(*_: object) -> Any:
        yield node

    monkeypatch.setattr(cli_member, "client_of", client_of)
    return node


def force(words: str, typed: bytes = b"", *, person: bool = True) -> Done:
    return duckrow(f"member force-view {words}", typed, terminal=person)


def test_it_says_what_may_be_lost_and_goes_on_when_the_name_is_typed(node: Node) -> None:
    done = force("m2", b"m2\n")

    assert done.code == 0
    assert "m2 goes on alone from position 1,000" in done.err
    assert "this machine has not is lost; it knows of 3 items behind its row." in done.err
    assert f"a new id: {'cd' * 16}" in done.err
    assert node.asked == [{"what": "force-view", "node": "m2", "view": 7, "seconds": 15.0}]


@pytest.mark.parametrize("typed", [b"", b"y\n", b"m1\n"])
def test_anything_else_changes_nothing(node: Node, typed: bytes) -> None:
    done = force("m2", typed)

    assert done.code != 0
    assert "nothing was changed" in done.err
    assert node.asked == []


@pytest.mark.parametrize("name", ["m1", "1"])
def test_another_machine_than_the_one_that_is_asked_is_not_said_to_go_on(
    node: Node, name: str
) -> None:
    """What may be lost is told of the one that is asked: with another name it was of the wrong one."""
    done = force(f"{name} --yes")

    assert done.code == 1
    assert "goes on alone" not in done.err
    assert "this is m2: ask m1, if that shall go on" in done.err
    assert node.asked == []


@pytest.mark.parametrize(
    "words", ["force-view m9 --yes", "retire m9", "add 9", "weight m9 2", "replace m9 m1"]
)
def test_a_machine_that_is_none_of_the_cluster_is_told_as_what_was_named_and_is_not_there(
    node: Node, words: str
) -> None:
    node.refuses = True
    done = duckrow(f"member {words}")

    assert done.code == 3
    assert (
        f"m2 knows of no machine '{'9' if '9' in words.split() else 'm9'}': there are m1, m2;"
        in (done.err)
    )
    assert node.asked == []


@pytest.mark.parametrize("words", ["retire m1", "add 2", "replace m1 m2"])
def test_what_is_refused_of_a_machine_that_is_known_stays_exit_code_1(
    node: Node, words: str
) -> None:
    node.refuses = True
    done = duckrow(f"member {words}")

    assert (done.code, done.err) == (1, "duckrow: the view is against it\n")


def test_a_machine_may_be_confirmed_by_its_id(node: Node) -> None:
    assert force("2 --yes").code == 0
    assert [asked["node"] for asked in node.asked] == ["2"]


def test_a_machine_called_by_the_id_of_another_is_not_taken_for_it(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LEFT, "name", "1")
    monkeypatch.setitem(
        LEFT, "nodes", [{"id": 1, "name": "2"} | OTHER, {"id": 2, "name": "1"} | OTHER]
    )

    assert "this is 1: ask 2, if that shall go on" in force("2 --yes").err
    assert force("1 --yes").code == 0


def test_where_nothing_has_to_be_forced_nobody_is_asked(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LEFT, "active", True)
    done = force("m2", b"m2\n")

    assert done.code == 1
    assert "goes on alone" not in done.err
    assert "acts in view 7: nothing has to be forced" in done.err
    assert node.asked == []


def test_where_others_act_nobody_is_asked_either(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told what m2 may lose, and with a yes m2 went on beside a cluster that was well."""
    follows, acts = {"id": 2, "name": "m2"} | OTHER, {"id": 1, "name": "m1"} | OTHER
    monkeypatch.setitem(LEFT, "nodes", [acts | {"state": "acts"}, follows | {"state": "follows"}])
    done = force("m2 --yes")

    assert done.code == 1
    assert "goes on alone" not in done.err
    assert "m1 acts in view 7, so nothing has to be forced: m2 follows" in done.err
    assert node.asked == []


def test_a_script_has_to_say_yes(node: Node) -> None:
    assert force("m2", person=False).code != 0
    assert node.asked == []
    assert force("m2 --yes", person=False).code == 0
    assert len(node.asked) == 1


def test_who_acted_to_the_end_has_all_and_that_is_told() -> None:
    told = cli_member.warning(LEFT | {"exact": True, "furthest": 1000}, "m2")

    assert "It acted in the newest view that it knows, and has all that was ordered in it." in told


def test_a_witness_that_is_none_in_the_cluster_file_is_told_as_any_other_difference() -> None:
    one = {"name": "m1", "weight": 1, "witness": False, "listed": 1, "listed_witness": False}
    nodes = [
        one,
        one | {"name": "m2", "witness": True},
        one | {"name": "m3", "listed_witness": True},
    ]

    assert cli_member.differences(nodes) == [
        "m2 is a witness, and the cluster file says otherwise",
        "m3 is no witness, and the cluster file says otherwise",
    ]
