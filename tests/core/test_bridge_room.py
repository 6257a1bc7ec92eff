"""A machine whose disk is full: the others go on without it, and it comes back when there is room."""

from __future__ import annotations

import pytest

from core.bridgecluster import Cluster
from duckrow.bridge.room import Room
from duckrow.bridge.timing import Timing
from duckrow.node.reserve import HARD, OK, SOFT


def hear_disk(cluster: Cluster, id_: int, disk: str) -> None:
    cluster.members[id_].hear_disk(disk, cluster.now)
    cluster._end(id_)
    cluster.settle()


def test_it_leaves_and_the_others_go_on() -> None:
    cluster = Cluster(1, 2, 3)
    hear_disk(cluster, 3, HARD)
    cluster.submit(1, "a")
    cluster.beats(5)

    assert cluster.acting() == [1, 2]
    assert cluster.words(1) == ["a"]
    assert cluster.words(3) == [], "and it writes nothing that it need not"
    cluster.beats(30)
    assert cluster.acting() == [1, 2]


def test_when_there_is_room_again_it_follows_and_after_its_time_acts() -> None:
    cluster = Cluster(1, 2, 3)
    hear_disk(cluster, 3, HARD)
    cluster.submit(1, "a")
    cluster.beats(5)
    hear_disk(cluster, 3, SOFT)
    cluster.beats(3)
    assert cluster.words(3) == ["a"]
    assert cluster.acting() == [1, 2]
    cluster.beats(15)

    assert cluster.acting() == [1, 2, 3]


def test_who_follows_writes_no_more_either() -> None:
    """It would use up the reserve, and its process would end."""
    cluster = Cluster(1, 2, 3)
    cluster.stop(3)
    cluster.beats(14)
    cluster.start(3).standing.room.until = 60.0  # it does not act before
    cluster.submit(1, "a")
    cluster.beats(2)
    assert cluster.words(3) == ["a"]
    hear_disk(cluster, 3, HARD)
    cluster.submit(1, "b")
    cluster.beats(5)
    assert cluster.words(1) == ["a", "b"]
    assert cluster.words(3) == ["a"]
    hear_disk(cluster, 3, OK)
    cluster.beats(3)

    assert cluster.words(3) == ["a", "b"]


def test_who_was_full_while_it_was_no_member_is_let_in_at_once() -> None:
    """It had left a view that went on without it: the one that it asked for was without it, too."""
    cluster = Cluster(1, 2, 3)
    cluster.stop(3)
    cluster.beats(14)
    cluster.start(3).standing.room.until = 60.0  # it does not act before
    cluster.beats(2)
    assert cluster.acting() == [1, 2]
    before = cluster.view(1).id
    hear_disk(cluster, 3, HARD)
    hear_disk(cluster, 3, OK)
    cluster.beats(20)

    assert cluster.acting() == [1, 2, 3]
    assert cluster.view(1).id == before + 1


def test_if_the_others_are_no_majority_all_wait_for_room() -> None:
    cluster = Cluster(1, 2)
    hear_disk(cluster, 2, HARD)
    cluster.submit(1, "a")
    cluster.beats(30)
    assert cluster.acting() in ([], [1])
    assert cluster.words(1) == []
    hear_disk(cluster, 2, OK)
    cluster.beats(40)

    assert cluster.acting() == [1, 2]
    assert cluster.words(1) == cluster.words(2) == ["a"]


@pytest.mark.parametrize("ids", [(1,), (1, 2, 3)])
def test_where_all_left_and_there_is_room_at_once_they_act_in_another_view(ids: tuple[int]) -> None:
    """W1: In this one none of them acts again, so nobody may wait for that."""
    cluster = Cluster(*ids)
    cluster.beats(10)
    for disk in (HARD, OK):
        for id_ in ids:
            cluster.members[id_].hear_disk(disk, cluster.now)
    cluster.submit(1, "a")
    cluster.beats(40)

    assert cluster.acting() == list(ids)
    assert cluster.words(1) == ["a"]


@pytest.mark.parametrize(
    ("ids", "full"), [((1,), (1,)), ((1, 2, 3), (1, 2, 3)), ((1, 2, 3), (1, 2)), ((1, 2), (2,))]
)
def test_where_too_many_disks_are_full_no_ballot_uses_up_the_reserve(
    ids: tuple[int, ...], full: tuple[int, ...]
) -> None:
    """Each wrote down more than one a second, for as long as there was no room: ten megabytes a day."""
    cluster = Cluster(*ids)
    for id_ in full:
        cluster.members[id_].hear_disk(HARD, cluster.now)
    cluster.beats(30)
    before = {id_: len(cluster.disks[id_].records) for id_ in ids}
    cluster.beats(200)
    assert {id_: len(cluster.disks[id_].records) for id_ in ids} == before

    for id_ in full[:2]:
        hear_disk(cluster, id_, OK)
    cluster.submit(1, "a")
    cluster.beats(40)

    assert cluster.words(1) == ["a"]


def test_who_is_needed_for_a_majority_acts_as_soon_as_there_is_room() -> None:
    """It had waited for its time, which may be five minutes, and nobody could order anything."""
    cluster = Cluster(1, 2, 3)
    for _ in range(8):
        hear_disk(cluster, 3, HARD)
        hear_disk(cluster, 3, OK)
    cluster.beats(20)
    assert cluster.acting() == [1, 2]
    cluster.stop(2)
    cluster.submit(1, "a")
    cluster.beats(16)

    assert cluster.acting() == [1, 3]
    assert cluster.words(1) == cluster.words(3) == ["a"]


def test_who_had_to_stay_although_it_left_is_not_taken_for_gone_in_the_next_view() -> None:
    """S3: else each view that has to name it would be followed by another one, for ever."""
    cluster = Cluster(1, 2)
    hear_disk(cluster, 2, HARD)
    cluster.beats(10)
    hear_disk(cluster, 2, OK)
    cluster.beats(40)
    assert cluster.acting() == [1, 2]
    calm = cluster.view(1).id
    cluster.beats(20)

    assert cluster.view(1).id == calm


def test_who_is_full_again_and_again_comes_back_later_each_time() -> None:
    room, now, waits = Room(Timing()), 0.0, []
    for _ in range(4):
        assert room.hear(HARD, now)
        assert not room.hear(HARD, now + 1)
        room.hear(OK, now + 2)
        waits.append(room.until - now - 2)
        now = room.until

    assert waits == [1.0, 2.0, 4.0, 8.0]
    for _ in range(2):
        now += Timing().conduct + 1  # it hears of it when it is otherwise, and then alone
        room.hear(HARD, now)
        room.hear(OK, now)
        assert room.until == now + 1.0


def test_who_was_full_for_long_has_not_behaved_for_long() -> None:
    room, now = Room(Timing()), Timing().conduct
    for full in (0.0, now + 1):
        room.hear(HARD, full)
        room.hear(OK, max(full, now))
        room.hear(SOFT, max(full, now) + 0.5)

    assert room.until == now + 1 + 2.0
