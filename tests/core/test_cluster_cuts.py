"""Links are cut by several commands at once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from threading import Event, Thread
from typing import Any

import attrs
import pytest

from duckrow.bridge.refusals import NOTE, note, refused
from duckrow.cluster.cluster import Cluster
from duckrow.cluster.home import CLUSTER_FILE
from duckrow.node.clusterfile import read_cluster

LOOK_SECONDS = 0.3
WAIT_SECONDS = 20.0


@attrs.define
class Machine:
    """One that does not run: what it refuses is noted, and nobody is told."""

    id: int
    refuses: list[str] = attrs.field(factory=list)
    on_refuse: Callable[[], object] = lambda: None
    url: str = ""

    @property
    def name(self) -> str:
        return f"m{self.id}"

    def refuse(self, names: Collection[str]) -> None:
        self.on_refuse()
        self.refuses = [*names]

    def look(self) -> tuple[dict[str, int], bool]:
        return {}, False


class Idle(Cluster[Any]):
    def _begin(self, machine: Any) -> None:
        pass

    def _runs(self, machine: Any) -> bool:
        return False


@pytest.fixture
def machines(tmp_path: Path) -> list[Machine]:
    (tmp_path / CLUSTER_FILE).write_text("")
    return [Machine(id_) for id_ in (1, 2, 3)]


def idle(folder: Path, machines: list[Machine]) -> Idle:
    return Idle(folder, machines, [(1, 2), (2, 3)])


def test_two_commands_that_cut_links_of_one_machine_cut_both(
    tmp_path: Path, machines: list[Machine]
) -> None:
    """The one that had looked first wrote last: its machine had a link again that was told to be cut."""
    began, done = Event(), Event()

    def other() -> None:
        idle(tmp_path, machines).cut("m2", "m3")
        done.set()

    def on_refuse() -> None:
        if not began.is_set():
            began.set()
            Thread(target=other, daemon=True).start()
            done.wait(LOOK_SECONDS)

    machines[1].on_refuse = on_refuse

    first = idle(tmp_path, machines)
    first.cut("m1", "m2")

    assert done.wait(WAIT_SECONDS)
    assert first.cuts.pairs == {(1, 2), (2, 3)}
    assert [machine.refuses for machine in machines] == [["m2"], ["m1", "m3"], ["m2"]]


def test_a_cut_holds_for_a_machine_whose_name_is_two_words(tmp_path: Path) -> None:
    """Its bridge had the link again, as soon as it was started anew."""
    there = '[members."shop floor"]\nid = 1\naddress = "127.0.0.1:1"\n'
    there += '[members.m2]\nid = 2\naddress = "127.0.0.1:2"\n'
    (tmp_path / NOTE).write_text(note(["shop floor"]))

    assert refused(tmp_path, read_cluster(there, "cluster.toml")) == {1}


def test_what_was_cut_is_refused_by_who_starts_and_healed_by_one_command(
    tmp_path: Path, machines: list[Machine]
) -> None:
    cluster = idle(tmp_path, machines)
    cluster.cut("m1", "m2")
    cluster.cut("m2", "m3")
    machines[1].refuses = []

    cluster.begin("m2")
    assert machines[1].refuses == ["m1", "m3"]
    cluster.heal()
    assert [machine.refuses for machine in machines] == [[], [], []]
