"""Streams: what is held of every member's bundles, and who has acked what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.bridgekit import acks, bundle, view
from duckrow.bridge.effects import Effect, Journal
from duckrow.bridge.streams import Gap, Streams
from duckrow.node.commands import Command
from duckrow.node.limits import MIB, ORIGIN_BUNDLES_MAX


def streams(*members: int) -> Streams:
    return Streams.start(view(members=members or (1, 2, 3)))


def taken(*made: tuple[int, int, int]) -> Streams:
    """With these bundles: (origin, s, lamport)."""
    found = streams()
    for origin, s, lamport in made:
        assert found.take(bundle(origin, s, lamport))
    return found


def test_a_bundle_that_comes_twice_is_taken_once() -> None:
    """T1."""
    found = streams()
    took: list[Effect] = [Journal(b) for b in [bundle(1, 1)] * 2 if found.take(b)]

    assert took == [Journal(bundle(1, 1))]
    assert found.of[1].have == 1


def test_a_feed_that_skips_a_bundle_is_reported_loudly() -> None:
    """T1."""
    with pytest.raises(Gap, match="only 0 are here"):
        streams().take(bundle(1, 2))


def test_bundles_and_acks_of_another_view_are_ignored() -> None:
    """F8: Their s and lamport start again in every view, so a mix would look plausible."""
    found = streams()

    assert not found.take(bundle(1, 1, view=2))
    assert not found.hear(acks(2, 0, {1: 1}, view=2))
    assert not found.take(bundle(9, 1))
    assert not found.hear(acks(9, 0, {}))


def test_acks_that_overtook_their_members_bundles_do_not_count_yet() -> None:
    """T2."""
    found = taken((1, 1, 5))
    assert found.hear(acks(2, 1, {1: 1}))
    assert found.hear(acks(3, 0, {1: 1}))
    assert found.lacking(bundle(1, 1)) == [1, 2]

    found.take(bundle(2, 1, 3))  # made before the ack, and sorts before what is acked

    assert found.lacking(bundle(1, 1)) == [1]
    assert found.head({}) == bundle(2, 1, 3)


def test_older_acks_change_nothing() -> None:
    found = streams()
    assert found.hear(acks(2, 0, {1: 4}, beat=2))

    assert not found.hear(acks(2, 0, {1: 3}, beat=1))
    assert not found.hear(acks(2, 0, {1: 5}, beat=2))
    assert found.acked[2] == {1: 4}


def test_the_head_is_the_lowest_lamport_and_then_the_lowest_origin() -> None:
    """O1."""
    found = taken((3, 1, 2), (2, 1, 2), (1, 1, 7))

    assert found.head({}) == bundle(2, 1, 2)
    assert found.head({2: 1}) == bundle(3, 1, 2)
    assert found.head({2: 1, 3: 1, 1: 1}) is None


def test_counters_are_not_possession() -> None:
    """F6: A relay counts on past what it dropped; it must not install from thin air."""
    found = taken((1, 1, 1), (1, 2, 2))
    for member in (1, 2, 3):
        found.hear(acks(member, 0, {1: 2}))
    found.take(bundle(1, 3, 3))
    found.drop_acked_by_all()

    assert found.of[1].have == 3
    assert found.of[1].base == 2
    assert found.lacks({}, {1: 3})
    assert not found.lacks({1: 2}, {1: 3})


def test_a_voter_that_is_no_member_holds_no_more_of_each_than_that_may_have_under_way() -> None:
    """F6, F10: 64 bundles may be 256 MiB.  Who was fed from there was sent all of it at once, and hung up on as
    one that is too slow, again and again.
    """
    found = streams()
    large = Command(b"head", bytes(3 * MIB))
    for s in range(1, 11):
        found.take(bundle(1, s)._replace(commands=(large,)))
        found.drop_older()
    for s in range(1, 2 * ORIGIN_BUNDLES_MAX):
        found.take(bundle(2, s))
        found.drop_older()

    assert [each.s for each in found.after(1, 0)] == [8, 9, 10], "7 was delivered when 10 was made"
    assert len(list(found.after(2, 0))) == ORIGIN_BUNDLES_MAX


def test_a_tail_does_not_move_the_feed() -> None:
    found = taken((1, 1, 1))
    found.keep(bundle(1, 3, 3), 0)
    found.keep(bundle(1, 2, 2), 0)

    assert found.of[1].have == 1
    assert not found.lacks({}, {1: 3})
    assert found.take(bundle(1, 2, 2))
    assert found.take(bundle(1, 3, 3))


def test_a_tail_brings_nothing_back_that_is_in_the_row() -> None:
    found = streams()
    found.keep(bundle(1, 2), 2)
    found.keep(bundle(1, 3, view=2), 2)

    assert found.of[1].bundles == {}


def test_a_base_jumps_over_what_all_members_hold() -> None:
    """F5, O3."""
    found = taken((1, 1, 1))

    assert found.jump(1, 5)
    assert not found.jump(1, 5)
    assert not found.jump(9, 5)
    assert found.take(bundle(1, 6, 9))
    assert [*found.after(1, 0)] == [bundle(1, 6, 9)]


def test_what_is_left_of_a_cut_comes_in_the_order_of_the_row() -> None:
    """V8."""
    found = taken((1, 1, 4), (1, 2, 6), (2, 1, 5), (3, 1, 1), (3, 2, 9))

    assert found.rest({3: 1}, {1: 2, 2: 1, 3: 1}) == [
        bundle(1, 1, 4),
        bundle(2, 1, 5),
        bundle(1, 2, 6),
    ]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=30))
def test_a_stream_holds_what_lies_between_its_base_and_what_it_has(
    steps: list[tuple[int, int]],
) -> None:
    found = streams()
    for origin, what in steps:
        stream = found.of[origin]
        if what == 1:
            found.take(bundle(origin, stream.have + 1))
        elif what == 2:
            found.drop(origin, stream.base + 1)
        elif what == 3:
            found.jump(origin, stream.have + 2)
        else:
            found.hear(acks(origin, stream.have, dict.fromkeys(found.of, 2), beat=len(steps)))
            found.drop_acked_by_all()

        assert [*stream.bundles] == [*range(stream.base + 1, stream.have + 1)]
