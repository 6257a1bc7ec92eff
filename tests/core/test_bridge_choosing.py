"""Choosing: what the next view should be, given what a majority of the voters reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.bridgekit import disk, run, view
from duckrow.bridge.choosing import choose
from duckrow.bridge.electorate import incarnation_of, is_majority, voter_of, votes
from duckrow.bridge.messages import Change, Join, Report
from duckrow.node.row import View

LAG = 10


def exact(id_: int, journaled: dict[int, int] | None = None, position: int = 5) -> Report:
    return Report(True, journaled or {}, run(id_), position)


def inexact(id_: int, start: int = 1, position: int = 5) -> Report:
    return Report(False, None, run(id_, start), position)


def join(id_: int, *, generation: int = 0, of: int = 1, position: int = 5) -> Join:
    return Join(run(id_, 1), disk(id_, generation), of, position)


def chosen(
    reports: dict[int, Report],
    joins: dict[int, Join] | None = None,
    *,
    of: View | None = None,
    change: Change | None = None,
    leaving: frozenset[tuple[int, int]] = frozenset(),
) -> View | None:
    return choose(of or view(), reports, joins or {}, lag_items=LAG, change=change, leaving=leaving)


def ids(found: View | None) -> tuple[int, ...]:
    assert found is not None
    return tuple(member.id for member in found.members)


def test_the_cut_is_the_least_that_the_exact_ones_hold_of_every_member() -> None:
    """V4."""
    found = chosen({1: exact(1, {1: 9, 2: 4, 3: 7}), 2: exact(2, {1: 6, 2: 8, 3: 7})})

    assert found is not None
    assert dict(found.cut) == {1: 6, 2: 4, 3: 7}
    assert found.cont == (1, 2)
    assert found.id == 2


def test_the_dead_have_a_cut_too() -> None:
    """V4."""
    found = chosen({1: exact(1, {3: 2}), 2: exact(2, {3: 2})})

    assert found is not None
    assert dict(found.cut)[3] == 2
    assert ids(found) == (1, 2)


def test_without_an_exact_report_nothing_is_proposed() -> None:
    """V4: The cluster waits rather than forgets."""
    assert chosen({1: inexact(1), 2: inexact(2), 3: inexact(3)}) is None


def test_a_view_with_too_few_copies_is_not_even_proposed() -> None:
    """N8: Nobody would act in it, and its mark would be followed by another one, for ever."""
    of = view(min_copies=3)

    assert chosen({1: exact(1), 2: exact(2)}, of=of) is None
    assert ids(chosen({1: exact(1), 2: exact(2), 3: inexact(3)}, of=of)) == (1, 2, 3)
    assert ids(chosen({1: exact(1), 2: exact(2)}, of=of, change=Change(1, min_copies=2))) == (1, 2)


def test_an_inexact_voter_is_a_newcomer_that_does_not_touch_the_cut() -> None:
    found = chosen({1: exact(1, {1: 3}), 2: inexact(2)})

    assert found is not None
    assert ids(found) == (1, 2)
    assert dict(found.cut)[1] == 3
    assert found.cont == (1,)
    assert incarnation_of(found, 2) == run(2, 1)


def test_who_is_far_behind_is_left_out() -> None:
    assert ids(chosen({1: exact(1, position=50), 2: inexact(2, position=40), 3: exact(3)})) == (
        1,
        2,
        3,
    )
    assert chosen({1: exact(1, position=50), 2: inexact(2, position=39)}) is None


@pytest.mark.parametrize(
    ("weights", "members", "enough"),
    [
        ({1: 1, 2: 1, 3: 1, 4: 1, 5: 1}, (1, 2), False),
        ({1: 1, 2: 1, 3: 1, 4: 1, 5: 1}, (1, 2, 3), True),
        ({1: 2, 2: 1}, (1,), True),
        ({1: 2, 2: 1}, (2,), False),
        ({1: 1, 2: 1}, (1,), False),
    ],
)
def test_members_are_a_majority_of_all_weights(
    weights: dict[int, int], members: tuple[int, ...], enough: bool
) -> None:
    """V5: Not of the heads, and not of those in the view: two of a view of two are no majority of five."""
    of = view(members=members, weights=weights)
    found = chosen({id_: exact(id_) for id_ in members}, of=of)

    assert (found is not None) is enough
    assert is_majority(of, members) is enough


def test_a_witness_votes_and_is_no_member() -> None:
    of = view(members=(1, 2), witnesses=(3,))
    found = chosen({1: exact(1), 3: inexact(3)}, of=of)

    assert ids(found) == (1,)
    assert chosen({1: exact(1)}, of=of) is None


def test_a_fresh_disk_is_admitted_under_the_known_id() -> None:
    """U3."""
    found = chosen({1: exact(1), 2: exact(2)}, {3: join(3, generation=1)})

    assert found is not None
    assert ids(found) == (1, 2, 3)
    assert votes(found, 3, disk(3, 1))
    assert not votes(found, 3, disk(3))


def test_a_fresh_disk_is_admitted_when_it_has_caught_up() -> None:
    reports = {1: exact(1, position=50), 2: exact(2, position=50)}

    assert ids(chosen(reports, {3: join(3, generation=1, position=39)})) == (1, 2)
    assert ids(chosen(reports, {3: join(3, generation=1, position=40)})) == (1, 2, 3)
    assert ids(chosen(reports, {3: join(3, generation=1, position=50, of=0)})) == (1, 2)


def test_a_wiped_witness_is_admitted_although_it_has_no_row() -> None:
    """Nobody would miss it, until the next single failure stops the group."""
    of = view(members=(1, 2), witnesses=(3,))
    reports = {1: exact(1, position=500), 2: exact(2, position=500)}
    found = chosen(reports, {3: join(3, generation=1, position=0)}, of=of)

    assert found is not None
    assert votes(found, 3, disk(3, 1))
    assert ids(found) == (1, 2)


def test_a_new_voter_is_one_that_an_operator_wants() -> None:
    joins = {4: join(4), 5: join(5)}
    found = chosen({1: exact(1), 2: exact(2), 3: exact(3)}, joins, change=Change(1, 5, 2))

    assert found is not None
    assert ids(found) == (1, 2, 3, 5)
    assert voter_of(found, 4) is None
    assert voter_of(found, 5) == (5, 2, disk(5), True)


def test_who_is_not_wanted_stays_an_observer() -> None:
    assert ids(chosen({1: exact(1), 2: exact(2)}, {4: join(4)})) == (1, 2)


def test_a_new_voter_has_to_be_heard_and_to_have_caught_up() -> None:
    """R1."""
    reports = {1: exact(1, position=50), 2: exact(2, position=50)}
    for joins in ({}, {4: join(4, position=39)}, {4: join(4, position=50, of=0)}):
        found = chosen(reports, joins, change=Change(1, 4, 1))
        assert ids(found) == (1, 2)
        assert found is not None
        assert voter_of(found, 4) is None
    assert ids(chosen(reports, {4: join(4, position=40)}, change=Change(1, 4, 1))) == (1, 2, 4)


def test_a_new_witness_has_nothing_to_catch_up_and_is_no_member() -> None:
    reports = {id_: exact(id_, position=50) for id_ in (1, 2, 3)}
    found = chosen(reports, {4: join(4, position=0)}, change=Change(1, 4, 1, data=False))

    assert ids(found) == (1, 2, 3)
    assert found is not None
    assert voter_of(found, 4) == (4, 1, disk(4), False)


def test_one_comes_in_the_place_of_another_in_one_step() -> None:
    """R1: So nothing is left half done, and the dead one need not say anything."""
    reports = {1: exact(1), 2: exact(2)}
    found = chosen(reports, {4: join(4)}, change=Change(1, 4, 1, instead_of=3))
    nobody = chosen(reports, {}, change=Change(1, 4, 1, instead_of=3))

    assert found is not None
    assert nobody is not None
    assert ids(found) == (1, 2, 4)
    assert [voter[0] for voter in found.voters] == [1, 2, 4]
    assert [voter[0] for voter in nobody.voters] == [1, 2, 3]


def test_a_weight_is_changed_also_of_one_that_is_dead() -> None:
    found = chosen({id_: exact(id_) for id_ in (1, 2)}, change=Change(1, 1, 3))
    dead = chosen({id_: exact(id_) for id_ in (1, 2)}, change=Change(1, 3, 2))

    assert found is not None
    assert dead is not None
    assert [voter[1] for voter in found.voters] == [3, 1, 1]
    assert [member.weight for member in found.members] == [3, 1]
    assert [voter[1] for voter in dead.voters] == [1, 1, 1]  # then 2 of 4 would be no majority


def test_a_change_of_an_earlier_view_is_over() -> None:
    found = chosen({id_: exact(id_) for id_ in (1, 2, 3)}, of=view(2), change=Change(1, 3))

    assert ids(found) == (1, 2, 3)


def test_a_change_that_would_leave_no_majority_is_not_granted() -> None:
    of = view(weights={1: 3, 2: 1, 3: 1})
    found = chosen({1: exact(1)}, change=Change(1, 1, 1), of=of)

    assert ids(found) == (1,)
    assert found is not None
    assert [voter[1] for voter in found.voters] == [3, 1, 1]


def test_more_copies_are_asked_for_only_if_they_can_be_had_now() -> None:
    """Else nobody would act in the next view."""
    reports = {1: exact(1), 2: exact(2)}
    two, three = (chosen(reports, change=Change(1, min_copies=n)) for n in (2, 3))

    assert two is not None
    assert three is not None
    assert (two.min_copies, three.min_copies) == (2, 1)


def test_nobody_is_retired_who_is_one_of_the_least_copies() -> None:
    of = view(members=(1, 2), min_copies=2)
    found = chosen({1: exact(1), 2: exact(2)}, of=of, change=Change(1, 2))

    assert ids(found) == (1, 2)


def test_the_level_is_changed_for_all_at_once() -> None:
    """N8."""
    found = chosen({1: exact(1), 2: exact(2)}, change=Change(1, durability="write"))

    assert found is not None
    assert found.durability == "write"


def test_nobody_leaves_whom_the_rest_needs() -> None:
    of = view(members=(1, 2))
    reports = {1: exact(1), 2: exact(2)}

    assert ids(chosen(reports, of=of, leaving=frozenset({(2, run(2))}))) == (1, 2)
    assert ids(chosen(reports, of=of, change=Change(1, 2))) == (1,)  # then one is all there is


def test_a_retired_voter_goes_if_somebody_exact_stays() -> None:
    """R1."""
    found = chosen({1: exact(1), 2: exact(2), 3: exact(3)}, change=Change(1, 2))
    alone = chosen({2: exact(2), 3: inexact(3)}, change=Change(1, 2))

    assert ids(found) == (1, 3)
    assert found is not None
    assert voter_of(found, 2) is None
    assert ids(alone) == (2, 3)


def test_nobody_is_retired_who_is_the_last_that_needs_no_image() -> None:
    """R1: Who is left would have to act alone, and so would never get one."""
    two, needs = view(members=(1, 2)), exact(2)._replace(comes=False)
    change = Change(1, 1)

    assert ids(chosen({1: exact(1), 2: needs}, of=two, change=change)) == (1, 2)
    assert ids(chosen({1: exact(1), 2: exact(2)}, of=two, change=change)) == (2,)


def test_who_leaves_is_no_member_of_the_next_view() -> None:
    reports = {1: exact(1), 2: exact(2), 3: exact(3)}

    assert ids(chosen(reports, leaving=frozenset({(3, run(3))}))) == (1, 2)
    assert ids(chosen(reports, leaving=frozenset({(3, run(3, 1))}))) == (1, 2, 3)


def test_of_several_who_would_leave_as_many_do_as_the_rest_can_do_without() -> None:
    """N8: All stayed where not all could go, and of three machines two that needed an image never got one."""
    needs = {1: exact(1)._replace(comes=False), 2: exact(2)._replace(comes=False), 3: exact(3)}

    assert ids(chosen(needs)) == (2, 3)
    assert ids(chosen(needs, leaving=frozenset({(2, run(2))}))) == (2, 3)
    assert ids(chosen(needs, leaving=frozenset({(3, run(3))}))) == (1, 2), "it may be about to end"


def test_who_is_held_off_is_let_in_before_there_is_no_majority_or_somebody_cannot_leave() -> None:
    """It has had room for a short time only."""
    of = view(members=(1, 2), weights={1: 1, 2: 1, 3: 1})
    late = inexact(3)._replace(held_off=True)
    leaves = frozenset({(2, run(2))})

    assert ids(chosen({1: exact(1), 2: exact(2), 3: late}, of=of)) == (1, 2)
    assert ids(chosen({1: exact(1), 3: late}, of=of)) == (1, 3)
    assert ids(chosen({1: exact(1), 2: exact(2), 3: late}, of=of, leaving=leaves)) == (1, 3)


COUNTS = st.integers(0, 5)


@given(
    st.dictionaries(st.integers(1, 5), st.lists(COUNTS, min_size=5, max_size=5), min_size=1),
    st.sets(st.integers(1, 5)),
)
def test_whatever_was_delivered_is_in_the_cut_of_every_view_that_can_be_chosen(
    journals: dict[int, list[int]], speaking: set[int]
) -> None:
    """V4: What was delivered was journaled by all five; whoever reports, and whatever they hold beyond."""
    delivered = {i: min(journal[i - 1] for journal in journals.values()) for i in range(1, 6)}
    reports = {
        id_: exact(id_, dict(zip(range(1, 6), journal, strict=True)))
        for id_, journal in journals.items()
        if id_ in speaking
    }
    found = chosen(reports, of=view(members=(1, 2, 3, 4, 5)))

    assert (found is not None) == (len(reports) >= 3)
    if found is not None:
        cut = dict(found.cut)
        assert all(cut[i] >= delivered[i] for i in cut)
        for id_ in found.cont:
            assert all(journals[id_][i - 1] >= cut[i] for i in cut)
