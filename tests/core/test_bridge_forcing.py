"""When those who could decide are gone for good, one machine goes on as another cluster."""

from __future__ import annotations

import attrs
import pytest

from core import bridgekit
from core.bridgecluster import Cluster
from duckrow.bridge.messages import Acks, Prepare, Promise
from duckrow.bridge.recovered import Recovered
from duckrow.node.row import View
from sim.protocol_disk import Disk

OTHER = b"o" * 16


def force(cluster: Cluster, id_: int) -> View:
    cluster.members[id_].force(OTHER, 8, cluster.now)
    cluster._end(id_)
    cluster.settle()
    return cluster.view(id_)


def alone() -> Cluster:
    """1 has all, and acked "last", which the others may have delivered; they are gone."""
    cluster = Cluster(1, 2, 3)
    cluster.submit(2, "first")
    cluster.settle()
    cluster.stops = lambda a, b, message: b == 1 and isinstance(message, Acks)
    cluster.submit(3, "last")
    cluster.settle()
    assert cluster.words(1) == ["first"]
    assert cluster.words(2) == ["first", "last"]
    cluster.stops = lambda a, b, message: False
    cluster.stop(2)
    cluster.stop(3)
    cluster.beats(30)
    return cluster


def test_a_machine_goes_on_alone_with_all_that_it_acked() -> None:
    """R4."""
    cluster = alone()

    view = force(cluster, 1)

    assert cluster.acting() == [1]
    assert cluster.words(1) == ["first", "last"]
    assert (view.cluster, view.lineage) == (OTHER, 8)
    assert [voter[:2] for voter in view.voters] == [(1, 1)]
    cluster.submit(1, "more")
    cluster.settle()
    assert cluster.words(1) == ["first", "last", "more"]


def test_a_machine_goes_on_alone_however_many_copies_there_had_to_be() -> None:
    """R4, N8: Its view would be one in which nobody acts."""
    cluster = Cluster(1, 2, 3, min_copies=2)
    cluster.stop(2)
    cluster.stop(3)
    cluster.beats(30)
    force(cluster, 1)
    assert cluster.acting() == [1]


def test_nobody_goes_on_alone_unless_told() -> None:
    cluster = alone()

    cluster.beats(100)

    assert cluster.acting() == []


def test_who_is_of_the_old_cluster_is_hung_up_on_and_never_follows() -> None:
    """R4, U5."""
    cluster = alone()
    force(cluster, 1)
    cluster.submit(1, "more")
    cluster.settle()

    cluster.start(2)
    cluster.settle()
    cluster.beats(20)

    assert cluster.words(2) == ["first", "last"]
    assert any("is in cluster" in alarm for alarm in cluster.alarms)
    assert cluster.view(2).cluster != OTHER


def test_a_wiped_machine_of_the_old_cluster_follows_and_is_added() -> None:
    cluster = alone()
    force(cluster, 1)
    cluster.submit(1, "more")
    cluster.wipe_stopped(2)
    cluster.start(2)
    cluster.settle()
    cluster.beats(5)
    assert cluster.words(2) == ["first", "last", "more"]

    cluster.change(1, 2, 1)
    cluster.beats(3)

    assert cluster.acting() == [1, 2]
    cluster.submit(2, "again")
    cluster.settle()
    assert cluster.words(1) == cluster.words(2) == ["first", "last", "more", "again"]


@pytest.mark.parametrize("kept", range(12))
def test_power_may_be_lost_at_any_record_of_it(kept: int) -> None:
    """R4: Either it was not forced, or it is as it would have been."""
    cluster = alone()
    before, disk = len(cluster.disks[1].records), cluster.disks[1]
    force(cluster, 1)
    cluster.stop(1)
    disk.durable = min(disk.durable, before)
    disk.cut(min(before + kept, len(disk.records)))
    cluster.start(1)
    cluster.settle()
    cluster.beats(30)

    view = cluster.view(1)
    if view.cluster == OTHER:
        assert cluster.words(1) == ["first", "last"]
        assert cluster.acting() == [1]
    else:
        assert kept == 0
        assert cluster.acting() == []


def test_damage_may_hide_what_of_the_view_is_in_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """R4: Nobody is left of whom it could be mended, so it had never gone on."""
    cluster = alone()
    cluster.stop(1)
    found = Disk.recovered

    def recovered(disk: Disk, id_: int, incarnation: int) -> Recovered:
        return attrs.evolve(found(disk, id_, incarnation), delivered=None, bundles=())

    monkeypatch.setattr(Disk, "recovered", recovered)
    cluster.disks[1].uuid = bridgekit.disk(1, 9)  # damage may have hit a promise
    cluster.start(1)
    force(cluster, 1)
    cluster.submit(1, "more")
    cluster.settle()

    assert cluster.acting() == [1]
    assert cluster.words(1) == ["first", "more"]


def test_views_that_it_has_not_had_may_be_skipped() -> None:
    """It knows that the others went on, and has nothing of it; whoever follows it skips them, too."""
    cluster = Cluster(1, 2, 3, 4, others=(5,))
    cluster.submit(2, "first")
    cluster.settle()
    cluster.stops = lambda a, b, message: b == 1
    for _ in range(2):
        cluster.call(2)
        cluster.beats(10)
    cluster.submit(2, "lost")
    cluster.settle()
    newest = cluster.view(2)
    assert newest.id >= 3
    for id_ in (2, 3, 4, 5):
        cluster.stop(id_)
    cluster.members[1].views.learn(newest)
    cluster._end(1)
    cluster.beats(20)
    installed = cluster.members[1].standing.installed
    assert installed < newest.id

    view = force(cluster, 1)

    assert view.id == newest.id + 1
    assert cluster.acting() == [1]
    assert cluster.words(1) == ["first"]
    cluster.stops = lambda a, b, message: False
    cluster.wipe_stopped(5)
    cluster.start(5)
    cluster.settle()
    cluster.beats(5)
    assert cluster.rows[5] == cluster.rows[1]
    marks = [content.id for content in cluster.rows[5] if isinstance(content, View)]
    assert marks == [*range(1, installed + 1), view.id]


def test_a_mark_of_the_same_cluster_is_never_skipped() -> None:
    cluster = alone()
    view = force(cluster, 1)
    standing = cluster.members[1].standing

    assert standing.fits(attrs.evolve(view, id=view.id + 1))
    assert not standing.fits(attrs.evolve(view, id=view.id + 2))
    assert standing.fits(attrs.evolve(view, id=view.id + 2, cluster=b"x" * 16))
    two = (*view.voters, (2, 1, b"u" * 16, True))
    assert not standing.fits(attrs.evolve(view, id=view.id + 2, cluster=b"x" * 16, voters=two))


def test_it_promises_nothing_to_those_of_the_cluster_that_it_left() -> None:
    """R4: What it would report of its own view would cut away what they have ordered in theirs."""
    cluster = Cluster(1, 2, 3)
    cluster.cut(1, 2)
    cluster.cut(1, 3)
    cluster.beats(30)
    assert cluster.acting() == [2, 3]
    theirs = cluster.view(2)
    assert force(cluster, 1).id == theirs.id
    cluster.link(1, 2)
    cluster.sent.clear()

    cluster.control(1, 2, Prepare(theirs.id + 1, (1 << 60, 2), theirs))
    cluster.sync(1)

    assert cluster.said(1, Promise) == []
