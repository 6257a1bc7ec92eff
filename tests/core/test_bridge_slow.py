"""A member that is too slow: missed, taken out, let in again later each time (S2, S6, F11)."""

from __future__ import annotations

import itertools
from collections import deque

import pytest

from core import bridgecluster
from core.bridgecluster import Cluster
from core.bridgekit import disk, run
from duckrow.bridge.messages import Follow, Join, Message, Prepare
from duckrow.bridge.timing import Timing
from duckrow.node.limits import ORIGIN_BUNDLES_MAX

TIMING = Timing()


def stalled(cluster: Cluster, slow: int, beats: int = 22) -> None:
    """Its disk hangs, while somebody has something to be ordered."""
    cluster.slow = {slow}
    cluster.submit(1, "a")
    cluster.beats(beats)


def test_a_member_whose_disk_hangs_is_taken_out_although_it_beats() -> None:
    """S2."""
    cluster = Cluster(1, 2, 3)
    stalled(cluster, 3)

    assert cluster.acting() == [1, 2]
    assert cluster.words(1) == ["a"]


def test_one_that_is_slow_and_answers_all_the_same_is_not_kept() -> None:
    """S2, F11: Its promise comes in time, its acks do not: with it the next view would stall like this one."""
    cluster = Cluster(1, 2, 3)
    cluster.slow = {3}
    cluster.submit(1, "a")
    for _ in range(22):
        cluster.beats()
        if any(m.standing.acceptor.promised for m in cluster.members.values()):
            cluster.sync(3)
            cluster.settle()

    assert 3 not in {member.id for member in cluster.view(1).members}
    assert cluster.words(1) == ["a"]


def test_who_stalled_is_not_forgotten_in_a_ballot_that_takes_longer_than_a_beat() -> None:
    """S2, S6: Where every sync is slow, nobody acts for some beats before the view without it is there."""
    cluster = Cluster(1, 2, 3)
    cluster.slow = {3}
    cluster.submit(1, "a")
    cluster.beats()
    cluster.slow = {1, 2, 3}
    while 3 in {member.id for member in cluster.view(1).members}:
        cluster.beats(2)
        cluster.sync(1)
        cluster.sync(2)
        cluster.settle()
        assert cluster.now < 5

    for id_ in (1, 2):
        assert cluster.members[id_].suspicion.holds_off(3, cluster.now)


@pytest.mark.parametrize("late", [9, 12, 20])
def test_one_that_comes_back_with_a_slow_disk_keeps_the_others_from_nothing(late: int) -> None:
    """V11, S6: It is let in and does not begin to act in time, or is not even heard in time, asks again,
    and the others never had a view in which they could order anything.
    """
    cluster = Cluster(1, 2, 3)
    cluster.stop(3)
    cluster.submit(1, "gone on")
    cluster.beats(14)
    cluster.slow = {3}
    cluster.start(3)
    due, stood, views = deque[int](), 0, cluster.view(1).id
    for tick in range(400):
        before = len(cluster.words(1))
        cluster.submit(1, f"{tick}")
        cluster.beats()
        stood += len(cluster.words(1)) == before
        due.extend([tick + late] * (len(cluster._syncs[3]) - len(due)))
        while due and due[0] <= tick:
            due.popleft()
            cluster.sync(3, 1)

    assert stood < 60, "of 400 tenths of a second"
    assert cluster.view(1).id - views <= 10
    cluster.slow = set()
    cluster.beats(350)
    assert cluster.acting() == [1, 2, 3]


@pytest.mark.parametrize("anew", [False, True])
def test_who_was_left_out_is_held_off_only_if_it_is_the_same_run_again(*, anew: bool) -> None:
    """S6: One that lost its power amid two ballots is not slow (seed 910024)."""
    cluster = Cluster(1, 2, 3)
    cluster.stop(3)
    cluster.beats(14)
    calling, suspicion = cluster.members[1].calling, cluster.members[1].suspicion
    join = Join(7, disk(3), cluster.view(1).id, 0)
    for incarnation in (7, 8 if anew else 7):
        calling.hear_join(3, join._replace(incarnation=incarnation))
        suspicion.left_out(calling.want_in(), cluster.now)

    assert suspicion.holds_off(3, cluster.now) == (not anew)


def test_who_follows_slowly_keeps_the_others_from_little() -> None:
    """V11: As close as it is, the rest of the row takes too long for a view to wait for it."""
    cluster = Cluster(1, 2, 3)
    cluster.stop(3)
    cluster.beats(14)
    for number in range(200):
        cluster.submit(1, f"{number}")
        cluster.settle()
    held = deque[tuple[int, Message]]()

    def late(a: int, b: int, message: Message) -> bool:
        follows = b == 3 and isinstance(message, Follow)
        if follows:
            held.append((a, message))
        return follows

    cluster.stops = late
    cluster.start(3)
    stood = 0
    for tick in range(400):
        before = len(cluster.words(1))
        cluster.submit(1, f"more {tick}")
        cluster.beats()
        stood += len(cluster.words(1)) == before
        for _ in range(min(2, len(held))):
            cluster.receive(3, *held.popleft())

    assert stood < 60, "of 400 tenths of a second"


def test_it_follows_meanwhile_and_comes_back_after_its_time() -> None:
    """S6."""
    cluster = Cluster(1, 2, 3)
    stalled(cluster, 3)
    assert cluster.acting() == [1, 2]
    cluster.slow = set()
    cluster.submit(2, "b")
    cluster.beats(5)

    assert cluster.words(3) == ["a", "b"]
    assert cluster.acting() == [1, 2]
    cluster.beats(20)
    assert cluster.acting() == [1, 2, 3]


def test_one_that_follows_too_slowly_holds_a_bounded_number_of_bundles() -> None:
    """F6, F10: Those that their origin cannot be waiting for any more come with the row."""
    cluster = Cluster(1, 2, 3, 4, edges=[(1, 2), (1, 3), (2, 3), (3, 4)])  # it relays
    stalled(cluster, 3)
    cluster.slow = set()
    cluster.beats()
    assert cluster.members[3].standing.installed == cluster.view(1).id
    cluster.stops = lambda a, b, message: b == 3 and isinstance(message, Follow)
    for number in range(2 * ORIGIN_BUNDLES_MAX):
        cluster.submit(1, str(number))
        cluster.settle()
    held = cluster.members[3].ordering.streams.of[1]
    assert held.have > 2 * ORIGIN_BUNDLES_MAX - 2
    assert 0 < len(held.bundles) <= ORIGIN_BUNDLES_MAX

    cluster.stops = lambda a, b, message: False
    cluster.cut(1, 3)
    cluster.cut(2, 3)
    cluster.link(1, 3)
    cluster.link(2, 3)
    cluster.beats(30)
    assert cluster.acting() == [1, 2, 3, 4]
    assert cluster.words(3) == cluster.words(1)


def test_another_change_of_the_view_does_not_let_it_in_before_its_time() -> None:
    cluster = Cluster(1, 2, 3, 4)
    stalled(cluster, 3)
    cluster.slow = set()
    cluster.beats(2)
    assert cluster.acting() == [1, 2, 4]
    before = cluster.view(1).id
    cluster.call(1)

    assert cluster.view(1).id > before
    assert 3 not in {member.id for member in cluster.view(1).members}


def test_who_is_needed_for_a_majority_is_never_held_off() -> None:
    cluster = Cluster(1, 2, 3)
    stalled(cluster, 3)
    assert cluster.acting() == [1, 2]
    cluster.slow = set()
    cluster.stop(2)
    cluster.beats(16)

    assert cluster.acting() == [1, 3]


def test_each_time_it_waits_twice_as_long_up_to_a_bound() -> None:
    """S6."""
    cluster = Cluster(1, 2, 3)
    away: list[int] = []
    for _ in range(4):
        stalled(cluster, 3)
        assert cluster.acting() == [1, 2]
        cluster.slow = set()
        count = 0
        while 3 not in cluster.acting():
            cluster.beats()
            count += 1
            assert count < 200
        away.append(count)

    assert all(later > sooner for sooner, later in itertools.pairwise(away))
    suspicion = cluster.members[1].suspicion
    assert suspicion._held_off[3].delay == 8 * TIMING.readmit_min


def test_the_bound_holds() -> None:
    suspicion = Cluster(1, 2, 3).members[1].suspicion
    now = 0.0
    for _ in range(20):
        suspicion.waits((1, 1, 1), (3,), now)
        now += 30
        suspicion.waits((1, 1, 1), (3,), now)
        suspicion.ejected({3}, now)
        suspicion.waits(None, (), now)
        assert not suspicion.holds_off(3, now + TIMING.readmit_max)
        now = suspicion._held_off[3].until

    assert suspicion._held_off[3].delay == TIMING.readmit_max


def test_good_conduct_is_remembered() -> None:
    suspicion = Cluster(1, 2, 3).members[1].suspicion
    for now in (0.0, 10.0, 10.0 + 2 * TIMING.conduct):
        suspicion.waits((1, 1, 1), (3,), now)
        suspicion.waits((1, 1, 1), (3,), now + 30)
        suspicion.ejected({3}, now + 30)
        suspicion.waits(None, (), now + 30)

    assert suspicion._held_off[3].delay == TIMING.readmit_min


@pytest.mark.parametrize("late", [1, 4, 8, 15])
def test_where_each_sync_takes_long_there_is_a_view_all_the_same(late: int) -> None:
    """S5: A ballot takes two of them, so the next one has more time where one came to nothing; and V3: who
    seems alive is waited for from the first majority on, or one is left out, and wants in, again and again.
    """
    cluster = Cluster(1, 2, 3, 4, 5)
    cluster.stop(1)
    cluster.slow_beats(140, late)
    assert cluster.acting() == [2, 3, 4, 5]
    newest = cluster.view(2).id
    cluster.slow_beats(100, late)

    assert (newest, cluster.view(2).id) == (2, 2)


@pytest.mark.parametrize("lives", [True, False])
def test_a_ballot_that_may_take_longer_has_that_time_only_while_its_proposer_lives(
    lives: bool,
) -> None:
    """S5."""
    cluster = Cluster(1, 2, 3)
    member = cluster.members[2]
    cluster.beats(6)  # that all have joined is long ago
    cluster.stops = lambda a, b, message: True
    for turn in range(5, 10):
        cluster.control(2, 3, Prepare(2, (turn << 32, 3), cluster.view(2)))
    if not lives:
        member.suspicion.is_dead(3, run(3))
    began = cluster.now
    while not member.calling.is_due():
        cluster.now += TIMING.beat
        member.standing.now = cluster.now
        member.suspicion.beat(3, cluster.now)

    assert (cluster.now - began > 3 * TIMING.retry) == lives


@pytest.mark.parametrize("late", [1, 4, 8, 15])
def test_one_that_hangs_among_slow_ones_keeps_nobody_from_a_view(late: int) -> None:
    """V3, S5: It seems to live, as it asks to get in, and never answers; who waits for it leaves time enough
    for the rest of the ballot.
    """
    cluster = Cluster(1, 2, 3)
    cluster.hangs = {3}
    cluster.submit(1, "a")
    cluster.slow_beats(200, late)

    assert (cluster.words(1), cluster.words(2)) == (["a"], ["a"])


@pytest.mark.parametrize("late", [4, 8])
def test_a_view_of_one_data_voter_stays_while_its_mark_is_synced(late: int) -> None:
    """S4, V9: It is all alone, but it is on its way."""
    cluster = Cluster(1, 2, 3, witnesses=(3,))
    cluster.stop(1)
    cluster.slow_beats(200, late)
    assert cluster.acting() == [2]
    newest = cluster.view(2).id
    cluster.slow_beats(100, late)

    assert cluster.view(2).id == newest


@pytest.mark.parametrize("wiped", [False, True])
def test_one_that_keeps_pace_is_let_in_however_fast_the_others_are(
    monkeypatch: pytest.MonkeyPatch, *, wiped: bool
) -> None:
    """V4: From its word until there is a ballot more is ordered than it may lack, each time."""
    monkeypatch.setattr(bridgecluster, "TIMING", Timing(lag_items=10))
    cluster = Cluster(1, 2, 3)
    (cluster.wipe if wiped else cluster.stop)(3)
    cluster.beats(14)
    cluster.start(3)
    for _ in range(10):
        for _ in range(15):
            cluster.submit(1, "a")
            cluster.settle()
        cluster.beats()

    assert cluster.acting() == [1, 2, 3]
