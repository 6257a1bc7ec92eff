"""The order inside a view: acks, durability, delivery; and commands that wait for a view."""

from __future__ import annotations

import pytest

from core.bridgecluster import Cluster
from core.bridgekit import bundle, run
from duckrow.bridge.effects import Send
from duckrow.bridge.messages import Acks, Base
from duckrow.bridge.ordering import CLOCK_JUMP_MAX
from duckrow.node.row import Bundle


def names(cluster: Cluster, id_: int) -> list[tuple[int, int, int]]:
    return [content[:3] for content in cluster.rows[id_] if isinstance(content, Bundle)]


def test_what_one_node_submits_is_in_the_row_of_all() -> None:
    """O2."""
    cluster = Cluster(1, 2, 3)
    cluster.submit(2, "a", "b")
    cluster.submit(3, "c")
    cluster.settle()

    assert cluster.words(1) == cluster.words(2) == cluster.words(3) == ["a", "b", "c"]


def test_no_ack_leaves_before_the_sync() -> None:
    """T3: The others' disks may be gone when this one loses power."""
    cluster = Cluster(1, 2, 3)
    cluster.slow = {2}
    cluster.submit(1, "a")
    cluster.settle()

    assert all(not acks.acks.get(1) for acks in cluster.acks_of(2))
    assert cluster.words(1) == []

    cluster.slow = set()
    cluster.settle()
    assert cluster.words(1) == ["a"]


def test_the_origins_own_copy_counts_when_it_is_durable() -> None:
    """B3."""
    cluster = Cluster(1, 2, 3)
    cluster.slow = {1}
    cluster.submit(1, "a")
    cluster.settle()

    assert cluster.members[2].ordering.streams.acked[3] == {1: 1}
    assert cluster.words(2) == cluster.words(3) == []


@pytest.mark.parametrize("level", ["write", "memory"])
def test_at_weak_levels_acks_wait_for_no_sync(level: str) -> None:
    cluster = Cluster(1, 2, 3, level=level)
    cluster.slow = {1, 2, 3}
    cluster.submit(1, "a")
    cluster.settle()

    assert cluster.words(1) == cluster.words(3) == ["a"]


def test_a_majority_of_acks_delivers_nothing() -> None:
    """O1: The third may have a lower bundle of its own on its way."""
    cluster = Cluster(1, 2, 3)
    cluster.stops = lambda a, b, message: a == 3
    cluster.submit(1, "a")
    cluster.settle()

    assert cluster.words(1) == cluster.words(2) == []


def test_what_all_acked_waits_for_a_head_that_they_did_not() -> None:
    """O1."""
    cluster = Cluster(1, 2, 3)
    cluster.stops = lambda a, b, message: b == 3 and isinstance(message, Bundle)
    cluster.submit(1, "low")  # 3 never gets it
    cluster.settle()
    cluster.stops = lambda a, b, message: isinstance(message, Bundle) and message.origin == 1
    cluster.submit(2, "high")
    cluster.settle()

    assert not cluster.members[2].ordering.streams.lacking(bundle(2, 1))
    assert cluster.words(2) == []


def test_taking_a_bundle_raises_the_clock() -> None:
    """B2."""
    cluster = Cluster(1, 2)
    cluster.submit(1, "a")
    for word in "bcd":
        cluster.settle()
        cluster.submit(2, word)
    cluster.settle()
    lamports = [content.lamport for content in cluster.rows[1] if isinstance(content, Bundle)]

    assert lamports == [1, 2, 3, 4]


def test_many_inputs_of_a_round_share_one_bundle_and_one_ack() -> None:
    """B1, T3."""
    cluster = Cluster(1, 2)
    member = cluster.members[1]
    for _ in range(3):
        member.submit(bundle(1, 1).commands)
    effects = member.take_effects(cluster.now, 0)

    assert sum(type(effect).__name__ == "Journal" for effect in effects) == 1
    assert sum(type(effect).__name__ == "Sync" for effect in effects) == 1


def test_a_bounded_number_of_own_bundles_is_under_way() -> None:
    """B1."""
    cluster = Cluster(1, 2, 3)
    cluster.slow = {3}
    for number in range(100):
        cluster.submit(1, str(number))
    cluster.settle()
    assert cluster.members[2].ordering.streams.of[1].have == 64

    cluster.slow = set()
    cluster.settle()

    assert cluster.words(3) == [str(number) for number in range(100)]
    assert len(names(cluster, 3)) < 70  # what waited went together


def test_a_clock_that_jumps_too_far_is_corruption() -> None:
    """B2."""
    cluster = Cluster(1, 2)
    cluster.receive(1, 2, bundle(2, 1, CLOCK_JUMP_MAX + 1))

    assert cluster.alarms
    assert cluster.members[1].ordering.streams.of[2].have == 0
    assert cluster.members[1].neighbours.linked == []


def test_a_feed_with_a_gap_is_begun_again() -> None:
    """T1, F4."""
    cluster = Cluster(1, 2)
    cluster.receive(1, 2, bundle(2, 3))
    assert "of its stream only 0 are here" in cluster.alarms[0]
    assert cluster.members[1].neighbours.linked == []
    cluster.link(1, 2)
    cluster.submit(2, "a")
    cluster.settle()

    assert cluster.words(1) == ["a"]


def test_an_acting_member_is_never_told_to_jump() -> None:
    """F5."""
    cluster = Cluster(1, 2)

    with pytest.raises(AssertionError, match="this one does not"):
        cluster.receive(1, 2, Base(1, 2, 5))


def test_a_jump_is_passed_on_to_whom_this_node_feeds() -> None:
    """F5: A relay that jumped without telling would make its children see a gap."""
    edges = [(1, 2), (1, 3), (3, 4), (4, 5)]
    cluster = Cluster(1, 2, 5, edges=edges, others=(3, 4))
    cluster.submit(2, "a")
    cluster.settle()
    cluster.sent.clear()
    cluster.stops = lambda _a, b, _message: b == 5  # a member, which has all that it says
    cluster.receive(3, 1, Base(1, 2, 9))
    cluster.settle()

    assert (3, 4, Base(1, 2, 9)) in cluster.sent
    assert cluster.members[4].ordering.streams.of[2].have == 9


def test_who_is_no_member_gets_each_record_once_with_the_row() -> None:
    """F2: It came as a bundle, too, and over a slow link who followed never came near (seed 1040272)."""
    edges = [(1, 2), (2, 3), (3, 4)]
    cluster = Cluster(1, 2, edges=edges, others=(3, 4))
    cluster.submit(1, "a")
    cluster.beats(3)
    ways = [(a, b) for a, b, message in cluster.sent if isinstance(message, Bundle)]

    assert ways == [(1, 2)]
    assert cluster.words(4) == ["a"]
    heard = cluster.members[4].ordering.streams.newest
    assert {1, 2} == heard.keys(), "it hears that the members live (S4)"


def test_who_is_no_member_wants_the_bundles_when_somebody_wants_them_of_it() -> None:
    """F3: There is no other way from then on; and no more when there is one again."""
    cluster = Cluster(1, 2, edges=[(1, 2), (1, 3), (2, 3)], others=(3,))
    cluster.cut(1, 2)
    cluster.beats()
    cluster.submit(1, "a")
    cluster.submit(2, "b")
    cluster.beats(2)
    assert cluster.words(1) == cluster.words(2) == cluster.words(3) == ["a", "b"]
    assert cluster.view(1).id == 1

    cluster.link(1, 2)
    cluster.beats(2)
    cluster.sent.clear()
    cluster.submit(1, "c")
    cluster.settle()
    assert [b for _, b, message in cluster.sent if isinstance(message, Bundle)] == [2]
    cluster.cut(1, 2)
    cluster.submit(1, "d")
    cluster.beats(2)
    assert cluster.words(1) == cluster.words(2) == cluster.words(3) == ["a", "b", "c", "d"]
    assert cluster.view(1).id == 1
    assert not cluster.alarms


def test_a_chain_passes_each_record_along_once() -> None:
    """F3."""
    cluster = Cluster(1, 2, 3, 4, edges=[(1, 2), (2, 3), (3, 4)])
    cluster.submit(1, "a")
    cluster.settle()
    ways = [(a, b) for a, b, message in cluster.sent if isinstance(message, Bundle)]

    assert ways == [(1, 2), (2, 3), (3, 4)]
    assert cluster.words(4) == ["a"]


def test_a_ring_gives_each_record_to_each_node_once() -> None:
    """F2, F3."""
    cluster = Cluster(1, 2, 3, 4, edges=[(1, 2), (2, 3), (3, 4), (1, 4)])
    cluster.submit(1, "a")
    cluster.settle()
    receivers = [b for _, b, message in cluster.sent if isinstance(message, Bundle)]

    assert sorted(receivers) == [2, 3, 4]


def test_a_link_that_comes_and_goes_doubles_and_drops_nothing() -> None:
    """F2, F4."""
    cluster = Cluster(1, 2, 3, edges=[(1, 2), (2, 3), (1, 3)])
    for number in range(30):
        cluster.submit(1 + number % 3, str(number))
        if number % 2:
            cluster.cut(1, 3)
        else:
            cluster.link(1, 3)
        if number % 3 == 0:
            cluster.beats()
    cluster.beats(3)

    assert sorted(cluster.words(1), key=int) == [str(number) for number in range(30)]
    assert cluster.words(1) == cluster.words(2) == cluster.words(3)
    assert cluster.view(1).id == 1


def test_what_was_to_go_over_a_link_that_is_down_does_not_go_over_the_next_one() -> None:
    """F4: All in one round: the new link begins with a feed of its own, where the other end is."""
    cluster = Cluster(1, 2, 3)
    member = cluster.members[1]
    member.receive(2, bundle(2, 1), cluster.now)
    member.submit(bundle(1, 1).commands)
    member.ordering.advance(0)
    member.link_down(3, cluster.now)
    member.link_up(3, cluster.now)
    effects = member.take_effects(cluster.now, 0)
    sent = [e.message for e in effects if isinstance(e, Send) and e.peer == 3]

    assert not any(isinstance(message, Bundle) for message in sent)
    assert any(
        isinstance(e, Send) and e.peer == 2 and isinstance(e.message, Bundle) for e in effects
    )


def test_acks_may_overtake_bundles() -> None:
    """F7, T2."""
    cluster = Cluster(1, 2, 3)
    late: list[Bundle] = []

    def hold(a: int, b: int, message: object) -> bool:
        if a == 3 and b == 1 and isinstance(message, Bundle):
            late.append(message)
            return True
        return False

    cluster.stops = hold
    cluster.submit(3, "low")  # 1 does not have it yet
    cluster.submit(1, "high")
    cluster.settle()
    assert cluster.words(1) == []
    cluster.stops = lambda a, b, message: False
    for message in late:
        cluster.receive(1, 3, message)
    cluster.settle()

    assert cluster.words(1) == cluster.words(2) == cluster.words(3)
    assert sorted(cluster.words(1)) == ["high", "low"]


def test_a_sign_of_life_is_sent_every_beat() -> None:
    """T4."""
    cluster = Cluster(1, 2)
    cluster.beats(4)
    beats = [acks.beat for acks in cluster.acks_of(1)]

    assert beats == sorted(set(beats))
    assert len(beats) >= 4
    assert all(isinstance(acks, Acks) for acks in cluster.acks_of(1))


def test_what_is_submitted_without_a_view_is_staged_and_ordered_later() -> None:
    """P1."""
    cluster = Cluster(1, 2, 3)
    cluster.cut(1, 2)
    cluster.cut(1, 3)
    cluster.beats(12)
    assert cluster.acting() == [2, 3]  # 1 cannot know, but is wedged by its own call
    cluster.submit(1, "a")
    cluster.settle()
    stage = cluster.staged[-1]

    assert stage.view == 0
    assert cluster.words(2) == []

    cluster.link(1, 2)
    cluster.link(1, 3)
    cluster.beats(6)

    assert cluster.words(2) == cluster.words(1) == ["a"]
    assert cluster.disks[1].recovered(1, 0).staged[1:] == ()


def test_a_staged_command_outlives_a_loss_of_power() -> None:
    """P1, P4."""
    cluster = Cluster(1, 2, 3)
    cluster.cut(1, 2)
    cluster.cut(1, 3)
    cluster.beats(12)
    cluster.submit(1, "a")
    cluster.settle()
    cluster.stop(1, power=True)
    cluster.start(1)
    cluster.beats(6)

    assert cluster.words(3) == cluster.words(1) == ["a"]


def test_stages_of_two_runs_have_different_names() -> None:
    """I3: A name that came again would let an old end of a stage end the new one."""
    cluster = Cluster(1, 2)
    names_ = []
    for _ in range(2):
        cluster.stop(2)
        cluster.beats(12)
        cluster.submit(1, "a")
        cluster.settle()
        names_.append(cluster.staged[-1][:3])
        cluster.stop(1)
        cluster.start(1)
        cluster.start(2)
        cluster.beats(9)

    assert len(set(names_)) == 2
    assert run(1) != run(1, 1)


def test_along_a_chain_acks_come_back_in_one_wave() -> None:
    """T3: what some have acked helps nobody who hears of the others by the same way."""
    cluster = Cluster(1, 2, 3, 4, edges=[(1, 2), (2, 3), (3, 4)], level="write")
    cluster.submit(1, "one")
    cluster.settle()

    told = {(a, b): [m.member for m in sent] for (a, b), sent in acks_by_link(cluster).items()}
    assert sorted(told[4, 3]) == [4]
    assert sorted(told[3, 2]) == [3, 4]
    assert sorted(told[2, 1]) == [2, 3, 4]
    assert all(cluster.words(id_) == ["one"] for id_ in cluster.members)


def test_what_waits_for_the_acks_of_others_is_told_with_the_next_beat() -> None:
    """T3, S2: else the one that is near would be held for the one that stalls."""
    cluster = Cluster(1, 2, 3, edges=[(1, 2), (2, 3)], level="write")
    cluster.stops = lambda a, b, message: b == 3 and isinstance(message, Bundle)
    cluster.submit(1, "one")
    cluster.settle()
    assert cluster.members[1].ordering.streams.acked[2].get(1, 0) == 0

    cluster.beats()
    assert cluster.members[1].ordering.streams.acked[2][1] == 1
    assert cluster.members[1].ordering.streams.acked[3].get(1, 0) == 0


def acks_by_link(cluster: Cluster) -> dict[tuple[int, int], list[Acks]]:
    found: dict[tuple[int, int], list[Acks]] = {}
    for a, b, message in cluster.sent:
        if isinstance(message, Acks):
            found.setdefault((a, b), []).append(message)
    return found
