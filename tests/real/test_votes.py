"""Votes of machines that run as processes: given, taken, weighed and forced by command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clikit import Done, duckrow

from .machines import Machine, Machines, machines, until

pytestmark = pytest.mark.long  # the simulation has the same in every `make test`

Edit = Callable[[str], str]


@contextmanager
def started(home: Path, *names: str, edit: Edit = str, first: str = "m1") -> Iterator[Machines]:
    """All of them run, and `first` can be asked; `edit` changes the cluster file before."""
    with machines(home, *names) as found:
        file = found[first].file
        file.write_text(edit(file.read_text()))
        for machine in found.values():
            machine.start()
        found[first].ready()
        yield found


def sh(machine: Machine, words: str) -> Done:
    return duckrow(f"{words} --url {machine.url}")


def done(machine: Machine, words: str) -> Done:
    found = sh(machine, words)
    assert found.code == 0, found.err
    return found


def weights(machine: Machine) -> dict[str, int]:
    rows = done(machine, "member ls -o jsonl").rows
    return {row["name"]: row["weight"] for row in rows if row["weight"]}


def states(machine: Machine) -> dict[str, str]:
    return {row["name"]: row["state"] for row in done(machine, "member ls -o jsonl").rows}


def votes(machine: Machine, *names: str) -> None:
    """Waits until it sees that these vote, and no others."""
    until(lambda: {*weights(machine)} == {*names}, machine.said)


def values(machine: Machine, topic: str) -> list[bytes]:
    with machine.client() as client:
        return [entry.value for entry in client.pull(topic, limit=1000)]


def follower(name: str) -> Edit:
    return lambda text: text.replace(f"[members.{name}]\n", f"[members.{name}]\nvotes = 0\n")


def test_votes_that_are_moved_and_weighed_by_command_count_from_then_on(tmp_path: Path) -> None:
    with started(tmp_path, "m1", "m2", "m3", "m4", edit=follower("m4")) as row:
        votes(row["m1"], "m1", "m2", "m3")
        done(row["m1"], "produce T a")
        until(lambda: states(row["m1"]).get("m4") == "follows", row["m4"].said)

        done(row["m1"], "member replace m3 m4")
        assert weights(row["m1"]) == {"m1": 1, "m2": 1, "m4": 1}
        row["m1"].clear()
        row["m3"].clear()
        done(row["m2"], "produce T b --timeout 30")  # two of three voters, without the old ones

        row["m1"].start().ready()
        done(row["m2"], "member weight m1 3 --wait 30")
        row["m2"].clear()
        row["m4"].clear()
        done(row["m1"], "produce T c --timeout 30")  # three of a weight of five
        assert values(row["m1"], "T") == [b"a", b"b", b"c"]


def test_with_fewer_copies_than_are_asked_for_nothing_is_ordered(tmp_path: Path) -> None:
    with started(tmp_path, "m1", "m2") as row:
        votes(row["m1"], "m1", "m2")
        done(row["m1"], "member weight m1 3")
        done(row["m1"], "member set --min-copies 2")
        row["m2"].clear()
        until(lambda: not row["m1"].status()["active"], row["m1"].said)
        refused = sh(row["m1"], "produce T a --timeout 3")
        assert refused.code in (4, 5)
        assert "does not reach m2, and 2 copies are the least that may be" in refused.err

        row["m2"].start().ready()
        done(row["m1"], "produce T b --timeout 30")
        done(row["m1"], "member set --min-copies 1")
        row["m2"].clear()
        done(row["m1"], "produce T c --timeout 30")


def test_a_witness_votes_and_says_that_it_keeps_no_row(tmp_path: Path) -> None:
    def witness(text: str) -> str:
        return text.replace("[members.w]\n", "[members.w]\nwitness = true\n")

    with started(tmp_path, "m1", "m2", "w", edit=witness) as row:
        votes(row["m1"], "m1", "m2", "w")
        done(row["m1"], "produce T a")
        row["w"].ready()
        until(lambda: "witness" in row["w"].status()["why"], row["w"].said)
        read, written = sh(row["w"], "pull T"), sh(row["w"], "produce T x --timeout 2")
        assert read.code == 1
        assert "w is a witness, which keeps no row: ask another machine" in read.err
        assert "w is a witness in view" in written.err

        row["m2"].clear()
        done(row["m1"], "produce T b --timeout 30")
        row["m2"].start().ready()
        until(lambda: row["m2"].status()["position"] == row["m1"].status()["position"], str)
        compared = duckrow(f"verify -o json --cluster {row['m1'].file}").document
        assert [*compared["nodes"]] == ["m1", "m2"]
        assert compared["same"] and compared["position"] > 1


def test_one_that_is_forced_to_go_on_alone_refuses_the_others_until_their_disks_are_wiped(
    tmp_path: Path,
) -> None:
    with started(tmp_path, "m1", "m2", "m3") as row:
        votes(row["m1"], "m1", "m2", "m3")
        done(row["m1"], "produce T a")
        row["m2"].clear()
        row["m3"].clear()
        until(lambda: not row["m1"].status()["active"], row["m1"].said)
        asked = sh(row["m1"], "member force-view m1")
        assert asked.code == 2
        assert "has all that was ordered" in asked.err
        done(row["m1"], "member force-view m1 --yes")
        assert weights(row["m1"]) == {"m1": 1}
        done(row["m1"], "produce T b --timeout 30")

        row["m2"].start().ready()
        until(lambda: trouble(row["m1"], "m2") != "", row["m2"].said)
        compared = duckrow(f"verify -o json --timeout 5 --cluster {row['m1'].file}")
        told = json.loads(compared.out)
        assert (compared.code, told["same"]) == (1, False)
        assert [each["nodes"] for each in told["apart"]] == [["m1"], ["m2"]]
        assert len({each["cluster"] for each in told["apart"]}) == 2
        assert "these are 2 rows, which go on apart: m1 of lineage" in compared.err
        assert "m1 has no link with m2: " in sh(row["m1"], "why").text
        row["m2"].clear()
        shutil.rmtree(row["m2"].data)
        row["m2"].start().ready()
        until(lambda: states(row["m1"]).get("m2") == "follows", row["m2"].said)
        done(row["m1"], "member add m2 --wait 30")
        assert values(row["m2"], "T") == [b"a", b"b"]
        one = duckrow(f"verify -o json --timeout 2 --cluster {row['m1'].file}").document
        assert (one["same"], one["apart"], [*one["nodes"]]) == (True, [], ["m1", "m2"])


def trouble(machine: Machine, peer: str) -> str:
    links: list[dict[str, Any]] = machine.status()["links"]
    return next(str(link["trouble"]) for link in links if link["peer"] == peer)


def test_a_machine_with_another_secret_is_named_by_those_that_dial_it(tmp_path: Path) -> None:
    with machines(tmp_path, "m1", "m2", "m3") as row:
        text = row["m1"].file.read_text()
        for name, secret in (("cluster", "0123456789abcdef"), ("other", "fedcba9876543210")):
            (tmp_path / f"{name}.toml").write_text(
                text.replace("[cluster]\n", f'[cluster]\nsecret = "{secret}"\n')
            )
        row["m3"].file = tmp_path / "other.toml"
        for machine in row.values():
            machine.start()
        row["m1"].ready()
        until(lambda: "another secret" in trouble(row["m1"], "m3"), row["m1"].said)

        why = sh(row["m1"], "why").text
        assert "the cluster is founded when all have met, and m1 has not met m3" in why
        assert "m1 has no link with m3: the other side refuses: node 1 has another secret" in why
