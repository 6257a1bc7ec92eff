"""From view to view in whole clusters: whatever dies, restarts or comes late."""

from __future__ import annotations

import attrs

from core.bridgecluster import Cluster
from core.bridgekit import bundle, disk, run
from duckrow.bridge.electorate import incarnation_of, votes
from duckrow.bridge.messages import Acks, Decided, Join, Link
from duckrow.bridge.ordering import CLOCK_MAX
from duckrow.node.limits import ORIGIN_BUNDLES_MAX
from duckrow.node.row import Bundle


def test_after_a_silent_death_the_rest_goes_on() -> None:
    """S1, S5."""
    cluster = Cluster(1, 2, 3)
    cluster.stop(3)
    cluster.submit(1, "a")
    cluster.beats(14)

    assert cluster.acting() == [1, 2]
    assert cluster.words(1) == cluster.words(2) == ["a"]


def test_a_restart_is_announced_and_not_waited_out() -> None:
    """S3: It says itself that the incarnation in the view is dead."""
    cluster = Cluster(1, 2, 3)
    cluster.stop(3)
    cluster.start(3)
    cluster.beats(5)

    assert cluster.acting() == [1, 2, 3]
    assert incarnation_of(cluster.view(1), 3) == run(3, 1)
    assert cluster.now < 1.0


def test_the_word_of_an_earlier_run_that_comes_late_removes_nobody() -> None:
    """S3: It lay in the buffer of one that was paused; meanwhile the later run was let in."""
    cluster = Cluster(1, 2, 3)
    late = Join(run(3, 7), disk(3), 0, 1)
    cluster.control(1, 3, late)
    cluster.beats(8)

    assert cluster.view(1).id == 1
    cluster.control(1, 3, late._replace(view=1))
    cluster.beats(3)
    assert cluster.view(1).id > 1


def test_a_restarted_member_never_acts_in_the_view_that_names_its_former_run() -> None:
    """I2."""
    cluster = Cluster(1, 2, 3)
    cluster.submit(3, "a")
    cluster.settle()
    cluster.stop(3)
    cluster.sent.clear()
    cluster.start(3)
    cluster.submit(3, "b")
    cluster.settle()

    assert cluster.view(3).id == 1
    assert cluster.acks_of(3) == []
    assert [m for a, _, m in cluster.sent if a == 3 and isinstance(m, Bundle)] == []


def test_two_of_three_are_enough_and_one_is_not() -> None:
    """V5."""
    cluster = Cluster(1, 2, 3)
    cluster.stop(2)
    cluster.stop(3)
    cluster.submit(1, "a")
    cluster.beats(40)

    assert cluster.view(1).id == 1
    assert cluster.words(1) == []


def test_members_of_a_small_view_are_no_majority_of_the_voters() -> None:
    """V5."""
    cluster = Cluster(1, 2, 3, 4, 5)
    for id_ in (4, 5):
        cluster.stop(id_)
    cluster.beats(14)
    assert cluster.acting() == [1, 2, 3]
    for id_ in (2, 3):
        cluster.stop(id_)
    cluster.submit(1, "a")
    cluster.beats(40)

    assert cluster.words(1) == []


def test_one_of_weight_two_goes_on_alone_and_the_other_does_not() -> None:
    cluster = Cluster(1, 2, weights={1: 2, 2: 1})
    cluster.cut(1, 2)
    cluster.submit(1, "a")
    cluster.submit(2, "b")
    cluster.beats(14)

    assert cluster.words(1) == ["a"]
    assert cluster.words(2) == []
    cluster.link(1, 2)
    cluster.beats(9)
    assert cluster.words(2) == cluster.words(1) == ["a", "b"]


def test_with_a_witness_one_copy_goes_on_but_not_the_one_that_was_left_behind() -> None:
    """V4, V5."""
    cluster = Cluster(1, 2, 3, witnesses=(3,))
    cluster.stop(2)
    cluster.submit(1, "a")
    cluster.beats(14)
    assert cluster.words(1) == ["a"]
    cluster.stop(1)
    cluster.start(2)
    cluster.beats(30)

    assert cluster.acting() == []  # 1 may have ordered things; it did
    cluster.start(1)
    cluster.beats(25)
    assert cluster.words(2) == ["a"]


def test_a_witness_begins_no_row() -> None:
    """C2: It could install a view from what it relays; then others would follow it, and never go on."""
    cluster = Cluster(1, 2, 3, witnesses=(3,))
    cluster.submit(1, "a")
    cluster.call(1)
    cluster.beats(3)

    assert cluster.view(3).id == 2
    assert cluster.rows[3] == []
    assert cluster.members[3].standing.position == 0


def test_a_joiner_acts_only_when_it_has_the_row_and_durably() -> None:
    """V9, V10, V11."""
    cluster = Cluster(1, 2, 3)
    cluster.stop(3)
    cluster.submit(1, "a")
    cluster.beats(14)
    cluster.start(3)
    cluster.slow = {3}
    cluster.beats(2)
    assert 3 not in cluster.acting()

    cluster.slow = set()
    cluster.beats(6)

    assert cluster.acting() == [1, 2, 3]
    assert cluster.words(3) == ["a"]


def test_what_is_in_the_cut_is_not_sent_again() -> None:
    """P2, P3: The end of a view is no reason to repeat anything: part of it is ordered by all."""
    cluster = Cluster(1, 2, 3)
    cluster.slow = {3}  # so nothing is delivered, though all have it
    cluster.submit(1, "a")
    cluster.submit(2, "b")
    cluster.settle()
    cluster.slow = set()
    cluster.call(1)
    cluster.beats(5)

    assert sorted(cluster.words(1)) == ["a", "b"]
    assert cluster.words(1) == cluster.words(2) == cluster.words(3)
    assert cluster.view(1).id == 2


def test_what_is_beyond_the_cut_is_dropped_by_all_and_sent_again_by_its_origin() -> None:
    """P3, V8."""
    cluster = Cluster(1, 2, 3)
    cluster.stops = lambda a, b, message: b == 3 and isinstance(message, Bundle)
    cluster.submit(1, "a")
    cluster.submit(1, "b")
    cluster.settle()
    cluster.stops = lambda a, b, message: False
    cluster.call(2)
    cluster.beats(5)
    [first] = [c for c in cluster.rows[3] if isinstance(c, Bundle)]

    assert cluster.words(3) == cluster.words(1) == ["a", "b"]
    assert first.view == 2


def test_as_many_as_may_be_under_way_may_be_dropped_and_all_of_them_go_again() -> None:
    """B1, P3: They counted as under way for ever, so that this machine made no bundle any more."""
    cluster = Cluster(1, 2, 3)
    cluster.stops = lambda a, _b, _message: a == 1
    words = [f"{number}" for number in range(ORIGIN_BUNDLES_MAX)]
    for word in words:
        cluster.submit(1, word)
    assert cluster.members[1].ordering.streams.of[1].have == ORIGIN_BUNDLES_MAX
    cluster.beats(30)
    assert cluster.acting() == [2, 3]
    for other in (2, 3):
        cluster.cut(1, other)
    cluster.stops = lambda _a, _b, _message: False
    for other in (2, 3):
        cluster.link(1, other)
    cluster.beats(40)

    assert cluster.words(2) == words


def test_a_lost_member_that_forgot_its_acks_reports_nothing() -> None:
    """X1: Level write: it acked, lost power, and would report less than others have delivered."""
    cluster = Cluster(1, 2, 3, level="write")
    cluster.submit(1, "a")
    cluster.settle()
    cluster.stop(3, power=True)
    member = cluster.start(3)

    assert cluster.words(3) == []
    assert not member.standing.exact
    cluster.beats(6)
    assert cluster.words(3) == cluster.words(1) == ["a"]


def test_what_one_has_delivered_is_in_the_cut_of_the_others_after_their_restart() -> None:
    """X1, V8: All have acked it; they report what their journals have, and not what their rows have."""
    cluster = Cluster(1, 2, 3)
    cluster.stops = lambda _a, b, message: b != 1 and isinstance(message, Acks)
    cluster.submit(1, "a")
    cluster.settle()
    assert [cluster.words(id_) for id_ in (1, 2, 3)] == [["a"], [], []]
    cluster.stops = lambda _a, _b, _message: False
    for id_ in (1, 2, 3):
        cluster.stop(id_)
    for id_ in (2, 3):
        cluster.start(id_)
    cluster.beats(40)

    assert cluster.acting() == [2, 3]
    assert cluster.words(2) == cluster.words(3) == ["a"]


def test_a_view_that_comes_soon_after_others_is_known_for_that() -> None:
    """V3: Else nobody waits longer, and who is far away is left out each time."""
    cluster = Cluster(1, 2, 3)
    standing = cluster.members[2].standing
    before = standing.churn()
    for _ in range(2):
        cluster.call(1)
        cluster.beats(5)
    assert standing.churn() == before + 2


def test_all_may_lose_power_at_once_at_level_fsync() -> None:
    """S4, X1."""
    cluster = Cluster(1, 2, 3)
    cluster.submit(1, "a")
    cluster.submit(2, "b")
    cluster.settle()
    for id_ in (1, 2, 3):
        cluster.stop(id_, power=True)
    for id_ in (1, 2, 3):
        cluster.start(id_)
    cluster.beats(16)

    assert cluster.acting() == [1, 2, 3]
    assert cluster.words(3) == ["a", "b"]


def test_a_wiped_node_is_admitted_with_its_new_disk() -> None:
    """U3."""
    cluster = Cluster(1, 2, 3)
    cluster.submit(1, "a")
    cluster.settle()
    cluster.wipe(3)
    cluster.start(3)
    cluster.beats(8)

    assert cluster.acting() == [1, 2, 3]
    assert votes(cluster.view(1), 3, cluster.disks[3].uuid)
    assert cluster.words(3) == ["a"]


def test_a_wiped_witness_asks_to_vote_again() -> None:
    """U3."""
    cluster = Cluster(1, 2, 3, witnesses=(3,))
    cluster.wipe(3)
    cluster.start(3)
    cluster.beats(8)

    assert votes(cluster.view(1), 3, cluster.disks[3].uuid)
    cluster.stop(2)
    cluster.submit(1, "a")
    cluster.beats(14)
    assert cluster.words(1) == ["a"]


def test_an_observer_follows_and_becomes_a_voter_when_an_operator_wants_it() -> None:
    """R1, C1, C5."""
    cluster = Cluster(1, 2, 3, others=(4,))
    cluster.submit(1, "a")
    cluster.beats(2)
    assert cluster.words(4) == ["a"]
    assert cluster.acting() == [1, 2, 3]
    cluster.change(2, 4, 1)
    cluster.beats(8)

    assert cluster.acting() == [1, 2, 3, 4]


def test_a_voter_gets_another_weight() -> None:
    """R1."""
    cluster = Cluster(1, 2, 3)
    cluster.change(3, 2, 3)
    cluster.beats(8)

    assert [voter[1] for voter in cluster.view(1).voters] == [1, 3, 1]
    assert [member.weight for member in cluster.view(1).members] == [1, 3, 1]
    assert cluster.acting() == [1, 2, 3]
    assert cluster.view(1).id == 2


def test_two_clusters_never_mix() -> None:
    """G1, U5: Founded twice, by one that was wiped in between and heard old words: loud before anything counts."""
    one, other = Cluster(1, 2), Cluster(1, 3)
    theirs = attrs.evolve(other.view(1), cluster=b"d" * 16)
    link = Link(1, 1, (0, b""), 1, "ok", {2: (2,)}, {1: 0}, None, theirs.cluster)
    one.control(1, 2, Decided(attrs.evolve(theirs, id=5)))
    assert one.view(1).id == 1
    one.receive(1, 2, link)

    assert one.members[1].neighbours.linked == []
    assert "is in cluster 6464" in one.alarms[0]


def test_one_node_is_a_cluster() -> None:
    """O1."""
    cluster = Cluster(1)
    cluster.submit(1, "a")
    cluster.settle()
    cluster.stop(1, power=True)
    cluster.start(1)
    cluster.beats(14)
    cluster.submit(1, "b")
    cluster.settle()

    assert cluster.words(1) == ["a", "b"]


def test_a_clock_that_runs_out_starts_again_with_a_view() -> None:
    """B2."""
    cluster = Cluster(1, 2)
    cluster.members[1].ordering.clock = CLOCK_MAX
    cluster.beats(8)
    cluster.submit(1, "a")
    cluster.settle()
    last = cluster.rows[2][-1]

    assert isinstance(last, Bundle)
    assert last.lamport == 1
    assert cluster.view(2).id == 2


def test_a_voter_is_retired() -> None:
    """R1."""
    cluster = Cluster(1, 2, 3)
    cluster.change(1, 3)
    cluster.beats(8)

    assert cluster.acting() == [1, 2]
    assert [voter[0] for voter in cluster.view(3).voters] == [1, 2]


def test_who_leaves_is_not_waited_for() -> None:
    """S3."""
    cluster = Cluster(1, 2, 3)
    cluster.members[3].leave(cluster.now)
    cluster._end(3)
    cluster.submit(1, "a")
    cluster.beats(5)

    assert cluster.acting()[:2] == [1, 2]
    assert "a" in cluster.words(2)


def test_in_a_chain_a_node_that_is_no_member_relays_for_the_others() -> None:
    """F6, W3: Its neighbours have no other way, and it could never come back."""
    cluster = Cluster(1, 2, 3, edges=[(1, 2), (2, 3)])
    cluster.change(1, 2)
    cluster.beats(8)
    assert cluster.acting() == [1, 3]
    cluster.submit(1, "a")
    cluster.submit(3, "b")
    cluster.beats(2)

    assert sorted(cluster.words(3)) == sorted(cluster.words(2)) == ["a", "b"]
    assert cluster.words(1) == cluster.words(3)


def test_a_relay_that_is_no_member_drops_what_all_members_acked() -> None:
    """F6."""
    cluster = Cluster(1, 2, others=(3,), edges=[(1, 3), (2, 3)])
    for number in range(10):
        cluster.submit(1, str(number))
        cluster.settle()
    cluster.beats()
    stream = cluster.members[3].ordering.streams.of[1]

    assert stream.have == 10
    assert not stream.bundles


def test_a_cut_between_two_who_both_see_a_third_removes_nobody() -> None:
    """S1."""
    cluster = Cluster(1, 2, 3)
    cluster.cut(1, 2)
    cluster.beats(30)
    cluster.submit(1, "a")
    cluster.beats()

    assert cluster.view(3).id == 1
    assert cluster.words(2) == ["a"]


def test_a_link_that_hears_nothing_is_closed() -> None:
    """F9: A hole in one direction must look like a cut at both ends."""
    cluster = Cluster(1, 2, 3)
    cluster.stops = lambda a, b, message: (a, b) == (1, 2)
    cluster.beats(6)

    assert cluster.members[2].neighbours.linked == [3]
    assert cluster.members[1].neighbours.linked == [3]


def test_a_hung_disk_is_as_bad_as_death() -> None:
    """S2, F11."""
    cluster = Cluster(1, 2, 3)
    cluster.slow = {3}
    cluster.submit(1, "a")
    cluster.beats(26)

    assert cluster.acting()[:2] == [1, 2]
    assert cluster.words(1) == ["a"]
    assert incarnation_of(cluster.view(1), 3) is None


def test_one_that_was_paused_does_no_harm_with_what_it_finds_in_its_buffers() -> None:
    """F8."""
    cluster = Cluster(1, 2, 3)
    held = list(cluster.members[3].ordering.streams.newest.values())
    cluster.stop(3)
    cluster.beats(14)
    cluster.start(3)
    cluster.beats(6)
    for acks in held:
        cluster.receive(3, 1, acks)
    cluster.receive(3, 1, bundle(1, 1, 5))
    cluster.submit(3, "a")
    cluster.settle()

    assert cluster.words(1) == cluster.words(3) == ["a"]


def test_a_cluster_may_want_a_least_number_of_copies() -> None:
    """N8, V10."""
    cluster = Cluster(1, 2, 3, min_copies=3)
    cluster.stop(3)
    cluster.beats(20)
    cluster.submit(1, "a")
    cluster.beats(20)
    assert cluster.words(1) == []
    assert cluster.acting() == []

    cluster.start(3)
    cluster.beats(20)

    assert cluster.words(1) == cluster.words(3) == ["a"]


def test_a_node_that_knows_a_view_founds_nothing() -> None:
    """G1: The first node was wiped just after the founding: the others are not blank."""
    cluster = Cluster(1, 2, 3)
    cluster.wipe(1)
    cluster.start(1)
    cluster.beats(8)

    assert cluster.view(1).cluster == cluster.view(2).cluster
    assert cluster.view(1) == cluster.view(2)
    assert cluster.rows[1] == cluster.rows[2]


def test_rows_that_differ_stop_their_node() -> None:
    """U5."""
    cluster = Cluster(1, 2, 3)
    for id_, digest in ((1, b"x"), (2, b"x"), (3, b"y")):
        cluster.members[id_].digested(1024, digest)
    cluster.beats(2)

    assert any("digests at 1024 differ" in text for text in cluster.alarms)
    assert not cluster.members[3].standing.active
