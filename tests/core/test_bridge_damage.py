"""A member whose row is damaged acts on, and does not speak for what it has lost (X1)."""

from __future__ import annotations

import attrs
import pytest

from core import bridgekit
from core.bridgecluster import Cluster
from duckrow.bridge.recovered import Recovered
from sim.protocol_disk import Disk


def hear_damage(cluster: Cluster, id_: int, position: int) -> None:
    cluster.members[id_].hear_damage(position, cluster.now)
    cluster._end(id_)
    cluster.settle()


def test_damage_in_the_view_of_now_makes_a_member_inexact_until_it_is_mended() -> None:
    """X1."""
    cluster = Cluster(1, 2, 3)
    for word in "abc":
        cluster.submit(1, word)
        cluster.beats(1)
    standing = cluster.members[3].standing
    assert standing.exact
    hear_damage(cluster, 3, standing.position)

    assert not standing.exact
    assert standing.active, "acks speak of what is new"
    hear_damage(cluster, 3, 0)
    assert standing.exact


def test_damage_from_before_the_view_leaves_its_memory_of_the_view_as_it_is() -> None:
    """X1."""
    cluster = Cluster(1, 2, 3)
    cluster.submit(1, "a")
    cluster.beats(1)
    cluster.stop(3)
    cluster.beats(30)
    cluster.submit(1, "b")
    cluster.beats(1)
    standing = cluster.members[1].standing
    mark = standing.position - 1
    hear_damage(cluster, 1, mark)

    assert standing.exact, "members of older views had it"
    hear_damage(cluster, 1, mark + 1)
    assert not standing.exact


def test_who_does_not_know_what_of_the_view_is_in_its_row_follows_when_it_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """C2, V8: Else it would put a bundle into its row twice."""
    cluster = Cluster(1, 2, 3)
    for word in "abc":
        cluster.submit(1, word)
        cluster.beats(1)
    standing = cluster.members[3].standing
    view, delivered = standing.newest, dict(standing.delivered)
    cluster.stop(3)
    cluster.submit(1, "d")
    disk = cluster.disks[3]
    found = Disk.recovered

    def recovered(disk: Disk, id_: int, incarnation: int) -> Recovered:
        return attrs.evolve(found(disk, id_, incarnation), delivered=None)

    monkeypatch.setattr(Disk, "recovered", recovered)
    disk.uuid = bridgekit.disk(3, 9)  # damage may have hit a promise
    member = cluster.start(3)
    cluster.beats(30)
    assert cluster.words(1) == ["a", "b", "c", "d"]
    assert cluster.words(3) == ["a", "b", "c"]
    assert cluster.view(1).id == 2, "it could not act, and each view with it would be left again"
    member.counted(view, delivered, cluster.now)
    cluster.beats(40)

    assert cluster.words(3) == ["a", "b", "c", "d"]
    assert cluster.acting() == [1, 2, 3]


def test_who_does_not_know_its_view_either_goes_on_in_the_right_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """V8: It would put the mark of its view into its row twice."""
    cluster = Cluster(1, 2, 3)
    cluster.submit(1, "a")
    cluster.beats(1)
    first = cluster.members[3].standing.newest
    cluster.stop(2)
    cluster.beats(30)
    cluster.submit(1, "b")
    cluster.beats(1)
    standing = cluster.members[3].standing
    second, delivered, position = standing.newest, dict(standing.delivered), standing.position
    assert (first.id, second.id) == (1, 2)
    cluster.stop(3)
    disk = cluster.disks[3]
    found = Disk.recovered

    def recovered(disk: Disk, id_: int, incarnation: int) -> Recovered:
        known = found(disk, id_, incarnation)
        return attrs.evolve(known, newest=first, installed=first, delivered=None)

    monkeypatch.setattr(Disk, "recovered", recovered)
    disk.uuid = bridgekit.disk(3, 9)
    member = cluster.start(3)
    member.counted(second, delivered, cluster.now)
    assert (member.standing.installed, member.standing.newest.id) == (2, 2)
    assert member.standing.position == position
    assert member.ordering.journaled() == {1: delivered[1], 3: delivered.get(3, 0)}
    monkeypatch.undo()
    cluster.start(2)
    cluster.beats(60)

    assert cluster.words(3) == cluster.words(1) == ["a", "b"]
    assert sorted(cluster.acting()) == [1, 2, 3]
