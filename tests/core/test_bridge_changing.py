"""Changing: what an operator may have of the next view."""

from __future__ import annotations

import pytest

from core.bridgecluster import Cluster
from core.bridgekit import disk, run, view
from duckrow.bridge.changing import ID_MAX, WEIGHT_MAX, applied, is_done, objection
from duckrow.bridge.electorate import voter_of, votes
from duckrow.bridge.messages import Change, Join
from duckrow.node.row import View

ALL = frozenset({1, 2, 3, 4})


def against(
    change: Change, *, of: View | None = None, come: frozenset[int] = frozenset({1, 2, 3})
) -> str:
    return objection(of or view(), change, come, ALL)


@pytest.mark.parametrize(
    "change",
    [
        Change(1, 4, 1),
        Change(1, 4, 3),
        Change(1, 4, 1, data=False),
        Change(1, 3),
        Change(1, 3, 2),
        Change(1, 4, 1, instead_of=3),
        Change(1, min_copies=3),
        Change(1, durability="write"),
    ],
)
def test_what_may_be_had(change: Change) -> None:
    assert against(change) == ""


def test_who_spoke_of_an_earlier_view_gets_no_vote_in_the_next_one() -> None:
    """R1: It would be no member there, since it may not run any more, and each vote more is one to be missed."""
    change = Change(1, 4, 1)
    for known, added in ((1, True), (0, False)):
        joins = {4: Join(run(4), disk(4), known, 50)}
        wanted, _ = applied(view(), change, joins, {1, 2, 3}, 40)
        assert (voter_of(wanted, 4) is not None) == added


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (Change(1, 9), "node 9 has no vote in view 1"),
        (Change(1, 9, 1), "node 9 is not reached"),
        (Change(1, 4, 1, instead_of=9), "node 9 has no vote in view 1"),
        (Change(1, 2, 1, instead_of=3), "node 2 has a vote in view 1 already"),
        (Change(1, 2, 1, data=False), "node 2 is no witness"),
        (Change(1, 2, WEIGHT_MAX + 1), "a weight is at most"),
        (Change(1, ID_MAX + 1, 1), "an id is at most"),
        (Change(1, min_copies=4), "4 copies are the least that may be, and 3 voters"),
        (Change(1, durability="paper"), "'paper' is none of"),
    ],
)
def test_what_may_not_be_had_is_told_with_its_reason(change: Change, why: str) -> None:
    """R2."""
    assert why in against(change)


def test_the_last_voter_that_keeps_the_row_stays() -> None:
    assert "no voter that keeps the row" in against(Change(1, 1), of=view(members=(1,)))
    both = view(members=(1,), witnesses=(2,))
    assert "no voter that keeps the row" in against(Change(1, 1), of=both)


def test_nothing_is_done_that_leaves_no_majority() -> None:
    """R2: 2 and 3 of five do not run; then 1 cannot go, but a dead one can."""
    of, come = view(members=(1, 2, 3, 4, 5)), frozenset({1, 4, 5})

    assert "a weight of 4 voters with 2" in against(Change(1, 1), of=of, come=come)
    assert against(Change(1, 2), of=of, come=come) == ""
    assert "a weight of 7 voters with 3" in against(Change(1, 2, 3), of=of, come=come)


def test_a_new_witness_does_not_count_before_it_has_promised() -> None:
    of, come = view(members=(1, 2, 3)), frozenset({1, 2})

    assert "no majority" in against(Change(1, 4, 1, data=False), of=of, come=come)
    assert against(Change(1, 4, 1), of=of, come=come) == ""


def test_copies_that_do_not_run_now_are_not_asked_for() -> None:
    assert "only 2" in against(Change(1, min_copies=3), come=frozenset({1, 2}))


def test_a_voter_that_is_one_of_the_least_copies_stays() -> None:
    assert "2 copies are the least" in against(Change(1, 2), of=view(members=(1, 2), min_copies=2))


@pytest.mark.parametrize(
    ("change", "done"),
    [
        (Change(1, 3, 1), True),
        (Change(1, 3, 2), False),
        (Change(1, 3), False),
        (Change(1, 4), True),
        (Change(1, 4, 1), False),
        (Change(1, 2, 1, instead_of=3), False),
        (Change(1, 2, 1, instead_of=4), True),
        (Change(1, min_copies=2), False),
        (Change(1, durability="fsync"), True),
        (Change(1, durability="write"), False),
    ],
)
def test_a_change_is_done_when_the_view_is_as_wanted(change: Change, done: bool) -> None:
    assert is_done(view(), change) is done


def test_one_comes_in_the_place_of_a_dead_one() -> None:
    cluster = Cluster(1, 2, 3, others=(4,))
    cluster.submit(1, "a")
    cluster.stop(3)
    cluster.beats(14)
    cluster.change(2, 4, 1, instead_of=3)
    cluster.beats(8)

    assert cluster.acting() == [1, 2, 4]
    assert [voter[0] for voter in cluster.view(1).voters] == [1, 2, 4]
    assert cluster.words(4) == ["a"]


def test_who_comes_back_after_it_was_retired_only_follows() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.stop(3)
    cluster.beats(14)
    cluster.change(1, 3)
    cluster.beats(8)
    cluster.start(3)
    cluster.submit(1, "a")
    cluster.beats(14)

    assert cluster.acting() == [1, 2]
    assert voter_of(cluster.view(1), 3) is None
    assert cluster.words(3) == ["a"]


def test_what_cannot_be_had_changes_no_view() -> None:
    """Or every wish of that kind would cost all of them a pause."""
    cluster = Cluster(1, 2, 3)
    cluster.change(1, 9, 1)  # nobody hears of it
    cluster.change(1, 3, 1)  # as it is
    cluster.beats(14)

    assert cluster.view(1).id == 1


def test_a_wish_for_an_earlier_view_that_comes_late_is_not_heard() -> None:
    """R1."""
    cluster = Cluster(1, 2, 3)
    cluster.call(1)
    cluster.beats(3)
    cluster.control(1, 2, Change(1, 3))
    cluster.beats(14)

    assert cluster.view(1).id == 2
    assert cluster.acting() == [1, 2, 3]


def test_more_copies_hold_from_the_next_mark_on() -> None:
    """N8: Two of three go on alone while one copy is enough, and wait when three are asked for."""
    cluster = Cluster(1, 2, 3)
    cluster.change(1, min_copies=3)
    cluster.beats(4)
    assert cluster.view(2).min_copies == 3
    assert cluster.acting() == [1, 2, 3]
    cluster.stop(3)
    cluster.submit(1, "a")
    cluster.beats(20)
    assert cluster.acting() == []
    cluster.start(3)
    cluster.beats(20)

    assert cluster.acting() == [1, 2, 3]
    assert cluster.words(3) == ["a"]


def test_at_another_durability_acks_come_as_the_view_says() -> None:
    """N8."""
    cluster = Cluster(1, 2, 3)
    cluster.change(2, durability="write")
    cluster.beats(4)
    cluster.slow = {1, 2, 3}
    cluster.submit(1, "a")
    cluster.beats(2)

    assert cluster.words(3) == ["a"]


def test_a_wiped_witness_that_an_operator_takes_out_stays_out() -> None:
    cluster = Cluster(1, 2, 3, witnesses=(3,))
    cluster.wipe(3)
    cluster.change(1, 3)
    cluster.beats(4)
    cluster.start(3)
    cluster.beats(14)

    assert voter_of(cluster.view(1), 3) is None
    cluster.change(1, 3, 1, data=False)
    cluster.beats(8)
    assert votes(cluster.view(1), 3, disk(3, 1))
    assert cluster.acting() == [1, 2]


@pytest.mark.parametrize(
    ("started", "raised", "power"), [("memory", "write", False), ("write", "fsync", True)]
)
def test_a_durability_that_was_raised_survives_what_it_is_to_survive(
    started: str, raised: str, *, power: bool
) -> None:
    """N8: Their starts still say what the cluster file says; acks went by the view, and it stood for ever."""
    cluster = Cluster(1, 2, 3, level=started)
    cluster.change(2, durability=raised)
    cluster.beats(4)
    cluster.submit(1, "a")
    cluster.settle()
    for id_ in (1, 2, 3):
        cluster.stop(id_, power=power)
    for id_ in (1, 2, 3):
        cluster.start(id_)
    cluster.beats(60)

    assert cluster.acting() == [1, 2, 3]
    assert cluster.words(3) == ["a"]


def test_a_wish_is_granted_also_where_somebody_has_to_stay_who_would_leave() -> None:
    """Or each ballot for it would end in a view without it: 2 has to take an image, and 1 is no majority."""
    cluster = Cluster(1, 2, 3)
    cluster.stop(3)
    cluster.beats(14)
    cluster.members[2].need_image(cluster.now)
    cluster.beats(14)
    before = cluster.view(1).id
    cluster.change(1, 3)
    cluster.beats(4)

    assert [voter[0] for voter in cluster.view(1).voters] == [1, 2]
    assert cluster.view(1).id == before + 1
