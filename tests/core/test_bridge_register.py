"""The register of a view number: acceptor and proposer, which agree on one value at most."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.bridgekit import view
from duckrow.bridge.acceptor import Acceptor
from duckrow.bridge.effects import Registered
from duckrow.bridge.messages import Accepted, Ballot, Promise, Report
from duckrow.bridge.proposer import Proposal, ballot_above
from duckrow.node.row import View

REPORT = Report(True, {}, 1, 1)
VALUES = [view(2, members) for members in [(1, 2), (1, 3), (2, 3), (1, 2, 3)]]


def promise(
    ballot: Ballot, accepted_ballot: Ballot | None = None, accepted: View | None = None
) -> Promise:
    return Promise(2, ballot, accepted_ballot, accepted, REPORT)


def proposal(ballot: Ballot = (5, 1)) -> Proposal:
    return Proposal(view(), ballot, 0.0)


def test_a_lower_ballot_is_refused_in_both_phases() -> None:
    """V2."""
    acceptor = Acceptor(2)
    acceptor.promise((5, 2))

    assert acceptor.refuses((5, 1))
    assert not acceptor.refuses((5, 2))
    with pytest.raises(AssertionError):
        acceptor.promise((4, 3))
    with pytest.raises(AssertionError):
        acceptor.accept((5, 1), VALUES[0])


def test_what_is_accepted_is_promised_too() -> None:
    acceptor = Acceptor(2)

    assert acceptor.accept((3, 1), VALUES[0]) == Registered(2, (3, 1), (3, 1), VALUES[0])
    assert acceptor.refuses((2, 3)), "also by the process that has accepted it"
    assert acceptor.promise((4, 1)) == Registered(2, (4, 1), (3, 1), VALUES[0])


def test_the_memory_of_a_register_outlives_its_process() -> None:
    acceptor = Acceptor(2)
    acceptor.accept((3, 1), VALUES[0])
    state = acceptor.promise((4, 2))

    assert Acceptor.recovered(2, state) == acceptor
    assert Acceptor.recovered(3, state) == Acceptor(3)
    assert Acceptor.recovered(2, None) == Acceptor(2)


def test_the_accepted_value_of_the_highest_ballot_is_taken_bit_for_bit() -> None:
    """V4."""
    found = proposal()
    found.hear_promise(1, promise((5, 1), (2, 3), VALUES[0]))
    found.hear_promise(2, promise((5, 1), (3, 2), VALUES[1]))
    found.hear_promise(3, promise((5, 1)))

    assert found.found() is VALUES[1]


def test_promises_of_another_ballot_do_not_count() -> None:
    found = proposal()
    found.hear_promise(1, promise((4, 1)))
    found.hear_promise(2, Promise(3, (5, 1), None, None, REPORT))

    assert found.promises == {}
    assert found.lacks_promises()


def test_a_value_is_decided_by_a_majority_and_not_before_it_is_proposed() -> None:
    """V6b."""
    found = proposal()
    assert found.hear_accepted(1, Accepted(2, (5, 1))) is None
    found.value = VALUES[0]

    assert found.hear_accepted(1, Accepted(2, (5, 1))) is None
    assert found.hear_accepted(1, Accepted(2, (5, 1))) is None
    assert found.hear_accepted(2, Accepted(2, (4, 1))) is None
    assert found.hear_accepted(2, Accepted(2, (5, 1))) is VALUES[0]


def test_a_proposer_waits_for_a_majority_and_for_all_who_seem_alive() -> None:
    """V3."""
    found = proposal()
    found.hear_promise(1, promise((5, 1)))
    assert found.lacks_promises()
    found.hear_promise(2, promise((5, 1)))

    assert not found.lacks_promises()
    assert found.lacks_voices({1, 2, 3})
    assert not found.lacks_voices({1, 2})
    assert not found.all_answered()


def test_no_two_starts_make_the_same_ballot() -> None:
    """V1: What a proposer promised to itself may be lost with the power, when others have answered."""
    assert ballot_above(None, 1, 7) != ballot_above(None, 1, 8)
    assert ballot_above(ballot_above(None, 1, 7), 1, 7) > ballot_above(None, 1, 8)
    assert ballot_above((9, 3), 1, 1) > (9, 3)


STEPS = st.lists(
    st.tuples(st.sampled_from(["prepare", "promise", "accept", "accepted"]), st.integers(0, 11)),
    max_size=60,
)


@given(STEPS)
def test_two_duelling_proposers_never_decide_differently(steps: list[tuple[str, int]]) -> None:
    """V6b: Messages may come late, twice, in any order, or never; each ballot has its own first value."""
    acceptors = {id_: Acceptor(2) for id_ in (1, 2, 3)}
    proposals = [proposal((n, 1 + n % 2)) for n in range(1, 5)]
    promises: list[tuple[int, int, Promise]] = []  # to which proposal, by whom
    accepted: list[tuple[int, int, Accepted]] = []
    decided = set()
    for what, number in steps:
        index, id_ = number % 4, 1 + number % 3
        each, acceptor = proposals[index], acceptors[id_]
        if what == "prepare" and not acceptor.refuses(each.ballot):
            before = acceptor.accepted_ballot, acceptor.accepted
            acceptor.promise(each.ballot)
            promises.append((index, id_, promise(each.ballot, *before)))
        elif what == "promise" and promises:
            index, id_, message = promises[number % len(promises)]
            each = proposals[index]
            if each.value is None:
                each.hear_promise(id_, message)
                if not each.lacks_promises():
                    each.value = each.found() or VALUES[index]
        elif what == "accept" and each.value is not None and not acceptor.refuses(each.ballot):
            acceptor.accept(each.ballot, each.value)
            accepted.append((index, id_, Accepted(2, each.ballot)))
        elif what == "accepted" and accepted:
            index, id_, message_ = accepted[number % len(accepted)]
            value = proposals[index].hear_accepted(id_, message_)
            if value is not None:
                decided.add(value)

    assert len(decided) <= 1
