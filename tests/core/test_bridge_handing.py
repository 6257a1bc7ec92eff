"""What a retired machine has accepted is ordered all the same."""

from __future__ import annotations

import pytest

from core.bridgecluster import Cluster
from duckrow.bridge import handing
from duckrow.bridge.effects import Settled
from duckrow.bridge.electorate import voter_of
from duckrow.bridge.messages import Acks, Follow, Hand, Join
from duckrow.node import makers
from duckrow.node.commands import Command
from duckrow.node.row import Bundle


def retired_with(*words: str) -> Cluster:
    """3 is cut off, takes these commands, and loses its vote meanwhile."""
    cluster = Cluster(1, 2, 3)
    for other in (1, 2):
        cluster.cut(3, other)
    cluster.beats(15)
    assert cluster.acting() == [1, 2]
    for word in words:
        cluster.submit(3, word)
    cluster.settle()
    cluster.change(1, 3)
    cluster.beats(5)
    assert [voter[0] for voter in cluster.view(1).voters] == [1, 2]
    return cluster


def back(cluster: Cluster) -> None:
    for other in (1, 2):
        cluster.link(other, 3)
    cluster.settle()
    cluster.beats(20)


def test_what_a_retired_machine_had_staged_is_ordered_by_others_in_its_order() -> None:
    """R3."""
    cluster = retired_with("a", "b", "c")

    back(cluster)

    assert cluster.words(1) == cluster.words(2) == cluster.words(3) == ["a", "b", "c"]
    assert len(cluster.members[3].pending) == 0
    settled = [r.name for r in cluster.disks[3].records if isinstance(r, Settled)]
    staged = [b[:3] for b in cluster.staged if b.origin == 3]
    assert sorted(settled) == sorted(staged) != []
    assert [b.origin for b in cluster.rows[1] if isinstance(b, Bundle)] == [1]


def test_also_after_its_restart() -> None:
    cluster = retired_with("a", "b")
    cluster.stop(3)
    cluster.start(3)

    cluster.settle()
    cluster.beats(20)

    assert cluster.words(1) == ["a", "b"]
    assert cluster.disks[3].recovered(3, 9).staged == ()


def test_what_was_lost_on_the_way_is_said_again() -> None:
    """R3."""
    cluster = retired_with("a")
    cluster.stops = lambda a, b, message: (
        a == 3 and isinstance(getattr(message, "payload", 0), Hand)
    )
    back(cluster)
    assert cluster.words(1) == []

    cluster.stops = lambda a, b, message: False
    cluster.beats(20)

    assert cluster.words(1) == ["a"]


def test_what_nobody_orders_is_said_again_less_and_less_often() -> None:
    """It is much, and links may take long for it: they would carry nothing else."""
    cluster = retired_with("a")
    cluster.stops = lambda a, b, message: (
        a == 3 and isinstance(getattr(message, "payload", 0), Hand)
    )
    back(cluster)
    cluster.beats(300)

    assert 4 <= len(cluster.said(3, Hand)) <= 8


def test_what_came_again_behind_what_has_to_come_first_is_handed_on_there_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R3: `2` was staged, then `1`, and then `2` was accepted; and all of that goes in several hands."""
    monkeypatch.setattr(handing, "BUNDLE_COMMANDS", 1)
    first, second = (makers.skip(makers.Turn(bytes(16), seq), "t").head for seq in (1, 2))
    cluster = retired_with()
    for head in (second, first, second):
        cluster.members[3].submit([Command(head)])
        cluster.settle()

    back(cluster)

    bundles = [content for content in cluster.rows[1] if isinstance(content, Bundle)]
    assert [c.head for b in bundles for c in b.commands] == [second, first, second]


def test_it_goes_in_parts_behind_which_what_is_urgent_need_not_wait_long() -> None:
    """R3: while a whole bundle was on its way, acks had to wait behind it."""
    words = [letter * 100_000 for letter in "abcdef"]
    cluster = retired_with(*words)

    back(cluster)
    cluster.beats(20)

    assert cluster.words(1) == words
    hands = [each for each in cluster.said(3, Hand) if isinstance(each, Hand)]
    assert max(len(each.commands) for each in hands) == 2


def test_what_was_taken_is_not_taken_again() -> None:
    """The member stood still, and heard the same thing several times at once."""
    cluster = retired_with("a")
    hand = Hand((Command(b"a"),))
    for _ in range(3):
        cluster.control(1, 3, hand)
    cluster.settle()

    assert cluster.words(1) == ["a"]


def test_what_was_taken_is_taken_again_of_who_has_come_past_it_though_the_row_went_on() -> None:
    """R3, C4: Each time that it was said it seemed to be in the row up to where that ended then."""
    cluster = retired_with("a")
    hand = Hand((Command(b"a"),))
    cluster.control(1, 3, hand)
    cluster.settle()
    cluster.control(1, 3, hand)
    past = cluster.members[1].standing.position
    cluster.submit(1, "b")
    cluster.settle()
    cluster.control(1, 3, hand)
    cluster.settle()
    assert cluster.words(1) == ["a", "b"]

    cluster.control(1, 3, Hand(hand.commands, past))
    cluster.settle()
    assert cluster.words(1) == ["a", "b", "a"], "the lane knows it"


def test_what_is_in_the_last_cut_is_not_handed_on() -> None:
    """It was in a bundle of the last view that the machine acted in, and that bundle counts."""
    cluster = Cluster(1, 2, 3)
    cluster.stops = lambda a, b, message: isinstance(message, Acks)
    cluster.submit(3, "a")
    cluster.settle()
    cluster.stops = lambda a, b, message: False
    cluster.change(1, 3)
    cluster.beats(20)

    assert cluster.words(1) == cluster.words(3) == ["a"]
    assert cluster.said(3, Hand) == []


@pytest.mark.parametrize("voter", [1, 3])
def test_who_has_a_vote_hands_nothing_on(voter: int) -> None:
    cluster = Cluster(1, 2, 3)
    for other in (1, 2):
        cluster.cut(3, other)
    cluster.submit(3, "a")
    cluster.beats(20)
    back(cluster)

    assert cluster.words(1) == ["a"]
    assert cluster.said(voter, Hand) == []
    assert cluster.said(3, Join) != []


def test_who_becomes_a_witness_hands_on_first_what_it_has() -> None:
    """R3: a witness keeps no row, and so it never hands anything on."""
    cluster = retired_with("a")
    cluster.stops = lambda a, b, message: (
        a == 3 and isinstance(getattr(message, "payload", 0), Hand)
    )
    back(cluster)
    cluster.change(1, 3, 1, data=False)
    cluster.beats(20)
    assert voter_of(cluster.view(1), 3) is None

    cluster.stops = lambda a, b, message: False
    cluster.beats(100)
    assert cluster.words(1) == ["a"]
    cluster.change(1, 3, 1, data=False)
    cluster.beats(5)
    assert voter_of(cluster.view(1), 3) is not None


def test_what_an_image_has_is_handed_on_once_more_and_the_rest_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R3, C4: the item that had them went by unseen, and whoever had taken them did not take them again."""
    monkeypatch.setattr(handing, "BUNDLE_COMMANDS", 2)
    cluster = retired_with("a", "b", "c")
    cluster.stops = lambda a, b, message: (
        b == 3 and isinstance(message, Follow) and isinstance(message.item.content, Bundle)
    )
    back(cluster)
    assert cluster.words(1) == ["a", "b"]

    image_at_3(cluster)
    cluster.stops = lambda a, b, message: False
    cluster.beats(100)

    assert cluster.words(1)[-1] == "c"
    assert len(cluster.members[3].pending) == 0


def image_at_3(cluster: Cluster) -> None:
    """Of 1, where its row ends."""
    giver = cluster.members[1].standing
    cluster.rows[3] = list(cluster.rows[1])
    cluster.members[3].based(giver.position, giver.newest, giver.delivered, cluster.now)
    cluster.settle()
