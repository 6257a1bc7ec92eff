"""The council: wedge, ballots, and what a voter accepts; message by message."""

from __future__ import annotations

from collections.abc import Collection

import attrs
import pytest

from core.bridgecluster import TIMING, Cluster
from core.bridgekit import bundle, run, view
from duckrow.bridge.messages import (
    Accept,
    Accepted,
    Acks,
    Base,
    Control,
    Decided,
    Fetch,
    Follow,
    Join,
    Message,
    Prepare,
    Promise,
    Refusal,
    Tail,
)
from duckrow.bridge.proposer import ballot_above
from duckrow.bridge.tails import parts
from duckrow.bridge.wire import Encoder
from duckrow.node.commands import Command
from duckrow.node.limits import BUNDLE_BYTES_MAX, NUMBER_LIMIT, ORIGIN_BUNDLES_MAX
from duckrow.node.row import Bundle

# The wedge.


def test_nothing_is_acked_made_or_delivered_after_a_promise() -> None:
    """W1."""
    cluster = Cluster(1, 2, 3)
    cluster.control(3, 1, Prepare(2, (1, 1), cluster.view(1)))
    cluster.sync(3)
    cluster.sent.clear()
    cluster.submit(1, "a")
    cluster.submit(3, "b")
    cluster.settle()

    assert cluster.acks_of(3) == []
    assert cluster.words(1) == cluster.words(3) == []
    assert not cluster.members[3].standing.active


def test_a_sync_that_was_under_way_at_the_promise_acks_nothing() -> None:
    """W2: Its bundle was journaled before, and is reported; but what comes now would not be."""
    cluster = Cluster(1, 2, 3)
    cluster.slow = {3}
    cluster.submit(1, "a")
    cluster.settle()
    cluster.sent.clear()
    cluster.control(3, 1, Prepare(2, (1, 1), cluster.view(1)))
    cluster.sync(3)
    [promise] = [p for p in cluster.said(3, Promise) if isinstance(p, Promise)]

    assert promise.report.journaled == {1: 1, 2: 0, 3: 0}
    assert cluster.acks_of(3) == []


@pytest.mark.parametrize("level", ["fsync", "write", "memory"])
def test_a_promise_is_durable_before_it_is_told_at_every_level(level: str) -> None:
    """L2, V2."""
    cluster = Cluster(1, 2, 3, level=level)
    cluster.slow = {2}
    cluster.control(2, 1, Prepare(2, (1, 1), cluster.view(1)))
    cluster.settle()
    assert cluster.said(2, Promise) == []

    cluster.sync(2)

    assert len(cluster.said(2, Promise)) == 1


@pytest.mark.parametrize("level", ["fsync", "write", "memory"])
def test_an_acceptance_is_durable_before_it_is_told_at_every_level(level: str) -> None:
    """L2, V6."""
    cluster = Cluster(1, 2, 3, level=level)
    cluster.slow = {2}
    value = view(2, {1: run(1), 2: run(2)}, weights={1: 1, 2: 1, 3: 1}, cut={1: 0, 2: 0, 3: 0})
    cluster.control(2, 1, Accept(2, (1, 1), value, cluster.view(1)))
    cluster.settle()
    assert cluster.said(2, Accepted) == []

    cluster.sync(2)

    assert cluster.said(2, Accepted) == [Accepted(2, (1, 1))]


def test_who_accepts_what_it_was_never_asked_to_promise_acts_no_more() -> None:
    """V6: The question had been lost, and the value came."""
    cluster = Cluster(1, 2, 3)
    value = view(2, {1: run(1), 2: run(2)}, weights={1: 1, 2: 1, 3: 1}, cut={1: 0, 2: 0, 3: 0})
    cluster.control(2, 1, Accept(2, (1, 1), value, cluster.view(1)))
    cluster.sync(2)
    cluster.sent.clear()
    cluster.submit(1, "a")
    cluster.settle()

    assert not cluster.members[2].standing.active
    assert cluster.acks_of(2) == []


def test_a_wedged_node_goes_on_relaying() -> None:
    """W3."""
    cluster = Cluster(1, 2, 3, edges=[(1, 2), (2, 3)])
    cluster.control(2, 1, Prepare(2, (1, 1), cluster.view(1)))
    cluster.submit(1, "a")
    cluster.settle()

    assert cluster.members[3].ordering.streams.of[1].have == 1


# Ballots.


def test_a_stale_prepare_is_answered_with_the_view_and_wedges_nobody() -> None:
    """V2."""
    cluster = Cluster(1, 2, 3)
    first = cluster.view(1)
    cluster.call(1)
    cluster.beats(5)
    assert cluster.view(2).id == 2
    cluster.sent.clear()
    cluster.control(2, 3, Prepare(2, (9 << 32, 3), first))
    cluster.settle()

    assert cluster.members[2].standing.active
    assert cluster.said(2, Decided) == [Decided(cluster.view(2))]


def test_a_prepare_from_the_future_brings_its_view() -> None:
    """V7."""
    cluster = Cluster(1, 2, 3)
    later = view(2, cut={1: 0, 2: 0, 3: 0}, cont=(1, 2, 3))
    cluster.control(3, 1, Prepare(3, (1, 1), later))
    cluster.sync(3)

    assert cluster.view(3) == later
    assert len(cluster.said(3, Promise)) == 1


def test_a_lower_ballot_is_refused() -> None:
    """V2."""
    cluster = Cluster(1, 2, 3)
    cluster.control(3, 1, Prepare(2, (5, 1), cluster.view(1)))
    cluster.control(3, 2, Prepare(2, (4, 2), cluster.view(1)))

    assert cluster.said(3, Refusal) == [Refusal(2, (5, 1))]


def test_a_refusal_that_comes_late_and_tells_of_no_higher_ballot_ends_none() -> None:
    """V1."""
    cluster = Cluster(1, 2, 3)
    council = cluster.members[1].council
    council.begin()
    ballot = ballot_above(None, 1, 1)
    cluster.control(1, 3, Refusal(2, ballot))
    going = council._current()
    assert going is not None
    assert going.ballot == ballot

    cluster.control(1, 3, Refusal(2, ballot_above(ballot, 3, 1)))
    assert council._current() is None


def test_an_accepted_value_is_found_again_and_decided() -> None:
    """V4: Its proposer died; the next one must not improve on it."""
    cluster = Cluster(1, 2, 3)
    value = view(2, {1: run(1), 3: run(3)}, weights={1: 1, 2: 1, 3: 1}, cut={1: 0, 2: 0, 3: 0})
    cluster.control(3, 1, Accept(2, (1, 1), value, cluster.view(1)))
    cluster.settle()
    cluster.call(2)
    cluster.settle()

    assert cluster.view(1) == cluster.view(2) == cluster.view(3) == value


def test_a_wiped_voter_does_not_vote() -> None:
    """U2: It forgot what it promised: two values for one register would be possible."""
    cluster = Cluster(1, 2, 3)
    first = cluster.view(1)
    cluster.stop(1)
    cluster.wipe(2)
    cluster.start(2)
    cluster.beats()
    cluster.control(2, 3, Prepare(2, (7, 3), first))
    cluster.settle()

    assert cluster.said(2, Promise) == []
    cluster.beats(20)
    assert cluster.view(3).id == 1  # one of three is no majority


def test_a_ballot_is_never_used_for_two_values() -> None:
    """V1, I1: Its maker lost power before its own promise was durable, when the others had answered it."""
    cluster = Cluster(1, 2, 3)
    cluster.slow = {1}
    cluster.stops = lambda a, b, message: (
        b == 3 and isinstance(message, Control) and isinstance(message.payload, Accept)
    )  # so nothing is decided
    cluster.call(1)
    cluster.beats()
    assert len(cluster.said(2, Accepted)) == 1
    [first] = cluster.said(1, Prepare)
    cluster.stop(1, power=True)
    cluster.slow = set()
    cluster.start(1)
    cluster.sent.clear()
    cluster.members[1].council.begin()  # before anybody tells of what was seen
    cluster._end(1)
    [second] = cluster.said(1, Prepare)

    assert isinstance(first, Prepare)
    assert isinstance(second, Prepare)
    assert first.ballot != second.ballot


def test_a_ballot_that_reaches_no_majority_is_called_again_as_soon_where_views_change_often() -> (
    None
):
    """S5: More time is for those who are waited for after a majority; nobody is."""
    cluster = Cluster(1, 2, 3)
    for _ in range(7):
        cluster.call(1)
        cluster.beats()
    assert cluster.view(1).id == 8
    cluster.stops = lambda a, b, message: isinstance(message, Control)
    cluster.sent.clear()
    cluster.call(1)
    cluster.beats(14)  # half a second, as much at most to rest, and its turn

    assert len(cluster.said(1, Prepare)) > 1


# Holding what is accepted.


def value_with_tail(cluster: Cluster) -> Accept:
    value = view(
        2, {1: run(1), 3: run(3)}, weights={1: 1, 2: 1, 3: 1}, cut={1: 1, 2: 0, 3: 0}, cont=(1,)
    )
    return Accept(2, (1, 1), value, cluster.view(1))


def test_a_value_is_accepted_only_when_it_could_be_installed() -> None:
    """V6: Or the death of the one that holds the rest leaves a majority that can never go on."""
    cluster = Cluster(1, 2, 3)
    accept = value_with_tail(cluster)
    cluster.stops = lambda a, b, message: True
    cluster.submit(1, "a")  # reaches nobody
    cluster.settle()
    cluster.control(3, 1, accept)
    cluster.settle()
    assert cluster.said(3, Accepted) == []
    cluster.control(3, 2, Prepare(2, (1, 0), cluster.view(3)))  # not wedged by it, either
    made = cluster.members[1].ordering.streams.of[1].bundles[1]
    cluster.control(3, 2, Tail(1, (made,)))
    cluster.settle()

    assert cluster.said(3, Accepted) == [Accepted(2, (1, 1))]
    assert cluster.disks[3].holds_durably(made)
    assert cluster.members[3].ordering.streams.of[1].have == 0  # the feed goes on where it was


def test_who_has_not_installed_the_view_accepts_no_value_after_it_however_little_that_needs() -> (
    None
):
    """V6: What it lacks is of the view before, and of that it has received nothing in this one."""
    cluster = Cluster(1, 2, 3)
    cluster.stops = lambda _a, b, message: b == 3 and isinstance(message, Bundle)
    cluster.submit(1, "a")
    cluster.settle()
    weights, nothing = {1: 1, 2: 1, 3: 1}, {1: 0, 2: 0}
    second = view(2, (1, 2), weights=weights, cut={1: 1, 2: 0, 3: 0}, cont=(1, 2))
    third = view(3, (1, 2), weights=weights, cut=nothing, cont=(1, 2))
    cluster.control(3, 1, Accept(3, (1, 1), third, second))
    cluster.settle()

    standing = cluster.members[3].standing
    assert (standing.installed, standing.newest.id) == (1, 2)
    assert cluster.said(3, Accepted) == []


@pytest.mark.parametrize("jumps", [False, True])
def test_what_was_accepted_is_held_until_it_is_installed(*, jumps: bool) -> None:
    """V6: It was forgotten when what was late of the feed came, or a feed that began further on.  Then
    only the next start of that machine could have installed it, if the only member died.
    """
    cluster = Cluster(1, 2, 3, witnesses=(2,))
    cluster.stop(3)
    cluster.beats(14)
    cluster.stops = lambda _a, _b, message: isinstance(getattr(message, "payload", None), Join)
    cluster.start(3)
    cluster.beats(2)  # its row ends with the mark of a view of 1 alone, and then falls behind
    cluster.stops = lambda _a, b, message: b == 3 and isinstance(message, Follow)
    many = ORIGIN_BUNDLES_MAX - 4
    for number in range(many):
        cluster.submit(1, f"{number}")
        cluster.settle()
    made = [
        Bundle(2, 1, s, 1000 + s, 0, (Command(f"{s - 1}".encode()),))
        for s in range(many + 1, many + 11)
    ]
    for made_before in cluster.rows[1]:
        if isinstance(made_before, Bundle) and made_before.view == 2:
            cluster.receive(3, 1, made_before)  # as one that relays gets them
    before = cluster.view(3)
    after = attrs.evolve(before, id=3, cut=((1, many + 10),), cont=(1,))
    cluster.stop(1)
    cluster.control(3, 2, Prepare(3, (1 << 60, 2), before))
    cluster.control(3, 2, Tail(2, tuple(made)))
    cluster.control(3, 2, Accept(3, (1 << 60, 2), after, before))
    cluster.settle()
    assert len(cluster.said(3, Accepted)) == 1
    if jumps:
        cluster.receive(3, 2, Base(2, 1, many + 5))
        made = made[5:]
    for late in made:
        cluster.receive(3, 2, late)
    cluster.receive(3, 2, Acks(2, 1, many + 10, {1: many + 6}, 1 << 30))
    cluster.control(3, 2, Decided(after))
    cluster.settle()

    assert cluster.words(3) == [f"{number}" for number in range(many + 10)]


def lacks_a_tail(dead: Collection[int] = (), cont: tuple[int, ...] = (1,)) -> Cluster:
    """Machine 4 is asked to accept what it cannot install, and no answer reaches it."""
    cluster = Cluster(1, 2, 3, 4)
    cluster.beats(6)  # that all have joined is long ago
    for id_ in dead:
        cluster.members[4].suspicion.is_dead(id_, run(id_))
    value = view(2, (1, 2, 3, 4), cut={1: 1, 2: 0, 3: 0, 4: 0}, cont=cont)
    cluster.stops = lambda a, b, message: True
    cluster.control(4, 1, Prepare(2, (1, 1), cluster.view(1)))
    cluster.control(4, 1, Accept(2, (1, 1), value, cluster.view(1)))
    return cluster


def asked(cluster: Cluster) -> list[int]:
    """Of whom machine 4 wanted a tail, in turn."""
    found = {
        message.n: message.to or 0
        for _, _, message in cluster.sent
        if isinstance(message, Control) and isinstance(message.payload, Fetch)
    }
    return [to for _, to in sorted(found.items())]


def wait(cluster: Cluster, seconds: float) -> None:
    """Machine 4 looks again and again in that time, and calls no ballot of its own."""
    member = cluster.members[4]
    for _ in range(round(seconds / TIMING.beat)):
        cluster.now += TIMING.beat
        member.standing.now = cluster.now
        member.council.retry_accept()
    cluster._end(4)


def test_a_tail_is_asked_of_every_data_voter_in_turn() -> None:
    """V6: Those that carry the view over may be dead, and another hold it."""
    cluster = lacks_a_tail()
    wait(cluster, 2)

    assert sorted(asked(cluster)[:3]) == [1, 2, 3]


def test_a_tail_is_asked_first_of_those_that_hold_it_and_seem_to_live() -> None:
    assert asked(lacks_a_tail(cont=(3,)))[0] == 3
    assert asked(lacks_a_tail({1, 3}, cont=(3,)))[0] == 2


def test_a_tail_is_asked_for_again_when_the_answer_had_time_to_come() -> None:
    """V6, F10: Over a slow link each answer more would come behind the one that is on its way."""
    cluster = lacks_a_tail()
    wait(cluster, 1.4)
    assert len(asked(cluster)) == 3  # at once, after 0.5 s and after 1.0 s
    wait(cluster, 3.2)
    assert len(asked(cluster)) == 6  # after 1.5, 2.5 and 3.5 s
    wait(cluster, 6)
    assert len(asked(cluster)) == 9  # after 4.5, 6.5 and 8.5 s


def test_nobody_is_asked_again_before_all_others_were() -> None:
    """V6: The one that was asked first may die then, and is asked last from there on."""
    cluster = lacks_a_tail()
    [first] = asked(cluster)
    cluster.members[4].suspicion.is_dead(first, run(first))
    wait(cluster, 1.1)

    assert sorted(asked(cluster)) == [1, 2, 3]


def test_a_tail_comes_part_by_part_of_one_who_has_it() -> None:
    """V6, F10: All parts at once would keep a slow link from everything else."""
    third = bytes(BUNDLE_BYTES_MAX // 3)
    cluster = Cluster(1, 2, 3)
    cluster.beats(6)
    made = [bundle(1, s)._replace(commands=(Command(b"head", third),)) for s in range(1, 6)]
    for each in made:
        cluster.members[2].ordering.streams.keep(each, 0)
    cluster.control(2, 3, Fetch(1, {1: 0}))
    [tail] = cluster.said(2, Tail)
    assert isinstance(tail, Tail)
    assert len(tail.bundles) == 2

    value = view(2, (1, 2, 3), cut={1: 5, 2: 0, 3: 0}, cont=(2,))
    cluster.control(3, 1, Prepare(2, (1, 1), cluster.view(1)))
    cluster.control(3, 1, Accept(2, (1, 1), value, cluster.view(1)))
    cluster.settle()
    found = cluster.said(3, Fetch)

    assert found == [Fetch(1, {1: 0}), Fetch(1, {1: 2}), Fetch(1, {1: 4})]
    assert cluster.said(3, Accepted) == [Accepted(2, (1, 1))]


def test_only_what_is_missing_of_a_cut_is_asked_for() -> None:
    """V6."""
    cluster = Cluster(1, 2, 3)
    cluster.slow = {2, 3}  # nothing is ordered
    cluster.submit(1, "a")
    cluster.submit(2, "b")
    cluster.settle()
    cluster.stops = lambda a, b, message: True
    value = view(2, (1, 2, 3), cut={1: 3, 2: 1, 3: 0}, cont=(1,))
    cluster.control(3, 1, Accept(2, (1, 1), value, cluster.view(1)))

    assert cluster.said(3, Fetch) == [Fetch(1, {1: 1})]


def test_a_tail_goes_the_way_by_which_its_question_came() -> None:
    """V6: It may be as large as all that is under way, and a flood takes every link there is."""
    cluster = Cluster(1, 2, 3, 4, edges=[(1, 2), (2, 3), (3, 4), (4, 1)])
    cluster.slow = {4}
    cluster.submit(2, "a")
    cluster.settle()
    cluster.members[4].neighbours.flood(Fetch(1, {2: 0}), 2)
    cluster._end(4)
    cluster.settle()
    links = [
        (a, b)
        for a, b, message in cluster.sent
        if isinstance(message, Control) and isinstance(message.payload, Tail)
    ]

    assert links in ([(2, 1), (1, 4)], [(2, 3), (3, 4)])


def test_whoever_holds_a_tail_gives_it() -> None:
    """V6."""
    cluster = Cluster(1, 2, 3)
    cluster.slow = {3}
    cluster.submit(1, "a")
    cluster.settle()
    cluster.control(2, 3, Fetch(1, {1: 0}))

    [tail] = cluster.said(2, Tail)
    assert isinstance(tail, Tail)
    assert [each.commands[0].head for each in tail.bundles] == [b"a"]


def test_a_large_tail_comes_in_parts_that_fit_a_frame() -> None:
    bundles = [
        bundle(1, s)._replace(commands=(Command(b"head", bytes(BUNDLE_BYTES_MAX // 3)),))
        for s in range(1, 6)
    ]

    assert [len(part) for part in parts(bundles)] == [2, 2, 1]
    assert [each for part in parts(bundles) for each in part] == bundles


def test_a_tail_of_many_members_comes_in_parts_that_fit_a_frame() -> None:
    """V6: What some 35 have under way had not: the link was hung up on, and the next view never accepted."""
    last = NUMBER_LIMIT - 1
    bundles = [
        bundle(origin, last - s, view=last)._replace(lamport=last, stamp=last)
        for origin in range(1, 31)
        for s in range(ORIGIN_BUNDLES_MAX)
    ]

    for part in parts(bundles):
        assert Encoder().encode(Control(last, last, last, last, Tail(last, part)))
    assert [each for part in parts(bundles) for each in part] == bundles


def test_a_tail_may_come_when_the_view_is_over() -> None:
    """V7."""
    cluster = Cluster(1, 2, 3)
    cluster.receive(1, 2, bundle(2, 1, view=7))
    cluster.control(1, 2, Tail(7, (bundle(2, 1, view=7),)))

    assert cluster.members[1].standing.active


# Proposing.


def test_a_proposer_without_an_exact_report_keeps_listening() -> None:
    """V3, V4: Two forgot; the one that did not is heard a little later.  To give up costs a second."""
    cluster = Cluster(1, 2, 3, level="write")
    for id_ in (2, 3):
        cluster.stop(id_, power=True)
    late: list[Control] = []

    def hold(a: int, b: int, message: Message) -> bool:
        if a == 1 and isinstance(message, Control) and isinstance(message.payload, Promise):
            late.append(message)
            return True
        return False

    cluster.stops = hold
    for id_ in (2, 3):
        cluster.start(id_)
    cluster.beats(1)
    cluster.call(2)
    cluster.beats()  # longer than anybody is waited for who only seems alive
    assert cluster.said(2, Accept) == []
    cluster.stops = lambda a, b, message: False
    for message in late:
        cluster.receive(2, 1, message)
    cluster.settle()

    assert cluster.view(2).id == 2
    assert cluster.view(2).cont == (1,)
