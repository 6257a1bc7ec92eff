"""What may be dropped, what is worth rewriting, and what stands in the way of it."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.library import Library
from duckrow.node.upkeep import Plan, Usage, unknown_segments

MIB = 1 << 20


@attrs.frozen
class Segment:
    number: int
    reach: int
    bytes: int = 64 * MIB
    sealed: bool = True
    rewritten: bool = False

    @property
    def first(self) -> int:
        return self.number * 10

    @property
    def last(self) -> int:
        return self.number * 10 + 9


def segments(count: int, **more: Any) -> list[Segment]:
    """Each with ten items; the last one is open, and short."""
    sealed = [Segment(n, n * 10 + 9, **more) for n in range(count - 1)]
    return [*sealed, Segment(count - 1, count * 10 - 1, MIB, sealed=False)]


def plan(usage: Usage, given: list[Segment], **more: Any) -> Plan:
    settings = {"snapshot": 1 << 30, "oldest_body": None, "in_memory": given[-1].number, **more}
    return usage.plan(given, **settings)


def test_a_segment_of_which_nothing_is_alive_goes() -> None:
    usage = Usage()
    usage.hold(1, 40 * MIB)

    assert plan(usage, segments(5)) == Plan(drop=(0, 2))


def test_a_segment_that_is_alive_in_less_than_half_is_rewritten_the_deadest_first() -> None:
    usage = Usage()
    for segment, alive in enumerate((33, 31, 2, 20, 1, 1)):
        usage.hold(segment, alive * MIB)

    assert plan(usage, segments(7)) == Plan(rewrite=(4, 2, 3, 1))


def test_a_rewritten_segment_waits_until_it_has_lost_as_much_again() -> None:
    usage = Usage()
    usage.hold(0, 30 * MIB)
    assert plan(usage, segments(3)) == Plan((), (0,))
    usage.rewritten(0)
    usage.shrink(0, 14 * MIB)
    assert plan(usage, segments(3)) == Plan()
    usage.shrink(0, 2 * MIB)
    assert plan(usage, segments(3)) == Plan((), (0,))


def test_after_a_restart_a_rewritten_segment_is_taken_as_just_rewritten() -> None:
    usage = Usage()
    usage.hold(0, 10 * MIB)
    given = segments(3, rewritten=True)
    assert plan(usage, given) == Plan()
    usage.shrink(0, 6 * MIB)
    assert plan(usage, given) == Plan((), (0,))


def test_a_segment_with_holders_but_no_bytes_is_rewritten_and_not_dropped() -> None:
    """Batches that it numbered lie elsewhere."""
    usage = Usage()
    usage.hold(0, 0)

    assert plan(usage, segments(3)) == Plan((), (0,))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"snapshot": 20}, (0, 1)),
        ({"snapshot": 19}, (0,)),
        ({"oldest_body": 20}, (0, 1)),
        ({"oldest_body": 19}, (0,)),
        ({"oldest_body": 1, "snapshot": 20}, ()),
        ({"in_memory": 2}, (0, 1)),
        ({"unknown": (0, 2)}, (1, 3)),
        ({}, (0, 1, 2, 3)),
        ({"followable": MIB}, (0, 1, 2, 3, 4)),
        ({"followable": 65 * MIB}, (0, 1, 2, 3)),
        ({"followable": 66 * MIB}, (0, 1, 2)),
        ({"followable": 1 << 40}, ()),
    ],
)
def test_nothing_goes_that_a_snapshot_a_waiting_body_a_follower_or_the_index_needs(
    more: dict[str, Any], expected: tuple[int, ...]
) -> None:
    usage = Usage()
    assert plan(usage, segments(6), **more).drop == expected
    for segment in range(6):
        usage.hold(segment, 1)
    assert sorted(plan(usage, segments(6), **more).rewrite) == list(expected)


def test_the_open_segment_never_goes() -> None:
    assert plan(Usage(), segments(1), in_memory=5, followable=0) == Plan()


@pytest.mark.parametrize(
    ("holes", "expected"),
    [
        ([], set()),
        ([(0, 9)], {0}),
        ([(0, 10)], {0, 1}),
        ([(19, 29)], {0, 1, 2}),
        ([(18, 19), (60, 70)], {0, 1}),
        ([(39, 49)], {0, 1, 2, 3, 4}),
    ],
)
def test_of_what_the_index_lost_and_of_all_before_it_nothing_is_known_dead(
    holes: list[tuple[int, int]], expected: set[int]
) -> None:
    assert unknown_segments(holes, segments(5), range(5)) == expected


@attrs.frozen
class Imaged:
    """One of segments 5 to 7 that came with an image of position 79; no item lies in them."""

    number: int
    reach: int = 79
    bytes: int = 64 * MIB
    sealed: bool = True
    rewritten: bool = True
    first: int = 80
    last: int = 79


@pytest.mark.parametrize(
    ("holes", "installed", "expected"),
    [
        ([], (5, 6, 7), set()),
        ([(0, 29), (49, 59)], (5, 6, 7, 8), set()),  # of what the image did without
        ([(29, 49)], (5, 7), {5, 6}),
        ([(69, 79)], (5, 6), {5, 6, 7}),
        ([(69, 89)], (5, 6), {5, 6, 7, 8}),
        ([(79, 89)], (5, 6, 7), {5, 6, 7, 8}),
    ],
)
def test_of_what_came_with_an_image_nothing_is_known_dead_whose_index_is_lost(
    holes: list[tuple[int, int]], installed: tuple[int, ...], expected: set[int]
) -> None:
    """It has no items, so it was touched by no hole, and went as if nobody wanted anything of it."""
    there: list[Imaged | Segment] = [Imaged(5), Imaged(6), Imaged(7), *segments(10)[8:]]
    assert unknown_segments(holes, there, installed) == expected


def test_an_open_segment_without_items_has_lost_nothing() -> None:
    assert unknown_segments([(0, 59)], [Imaged(8, sealed=False)], ()) == frozenset()


def test_another_plan_is_asked_for_when_a_segment_has_died_or_half_of_one() -> None:
    usage = Usage()
    for segment in range(3):
        usage.hold(segment, 40 * MIB)
        usage.hold(segment, 10 * MIB)
    given = segments(4)
    assert plan(usage, given) == Plan()
    usage.shrink(1, 18 * MIB)
    assert not usage.stale, "it is half alive"
    usage.shrink(1, 1)
    assert usage.stale
    assert plan(usage, given) == Plan(rewrite=(1,))
    usage.shrink(1, 10 * MIB)
    assert not usage.stale, "once is enough"
    usage.rewritten(1)
    usage.shrink(1, 12 * MIB)
    assert usage.stale, "now it has lost as much again"

    assert plan(usage, given) == Plan(rewrite=(1,))
    usage.release(0, 40 * MIB)
    assert usage.stale
    assert plan(usage, given) == Plan(rewrite=(1, 0))
    assert not usage.stale
    usage.release(0, 10 * MIB)
    assert usage.stale
    assert plan(usage, given) == Plan(drop=(0,), rewrite=(1,))


def test_nor_for_a_segment_that_may_not_go_more_than_once() -> None:
    usage = Usage()
    usage.hold(0, 40 * MIB)
    given = segments(3)
    assert plan(usage, given, snapshot=5) == Plan()
    usage.shrink(0, 20 * MIB)
    assert usage.stale
    assert plan(usage, given, snapshot=5) == Plan()
    usage.shrink(0, 10 * MIB)
    assert not usage.stale
    assert plan(usage, given) == Plan(rewrite=(0,))


def test_losing_what_was_never_held_is_our_own_mistake() -> None:
    usage = Usage()
    usage.hold(0, 5)
    usage.release(0, 5)
    with pytest.raises(AssertionError):
        usage.release(0, 0)


def test_a_batch_that_waited_keeps_the_segment_of_its_body_alive() -> None:
    library = Library()
    library.create(max_entries=1, when_full="block")
    library.add()  # fills the topic
    library.seal()
    library.add()  # waits in segment 1
    for _ in range(3):
        library.seal()
        library.tick()
    library.install()
    assert library.numbers.usage.holders(0) == 1
    assert library.numbers.usage.holders(1) == 0  # which is why the oldest body has to be told

    library.prune(1)  # in segment 4: makes room
    library.seal()
    library.tick()
    library.install()
    usage = library.numbers.usage
    (row,) = library.numbers.rows(library.topic().id, 0, 2, 10)
    assert [usage.holders(n) for n in range(5)] == [0, 1, 0, 0, 1]
    assert usage.live(1) == len(library.shelf.bundles[row.place].commands[0].body)
    assert [p for some in library.numbers.live_places(1) for p in some] == [row.place]
    library.prune(2)
    assert [usage.holders(n) for n in range(5)] == [0, 0, 0, 0, 0]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 5), st.booleans(), st.floats(0, 1)), max_size=60
    )
)
def test_what_is_dropped_or_left_out_was_never_to_be_read(
    steps: list[tuple[int, int, bool, float]],
) -> None:
    """Whatever is pruned when: all that is retained lies in live places of kept segments."""
    library = Library()
    library.create(partitions=4)
    numbers = library.numbers
    for partition, count, seal, pruned in steps:
        library.add(count=count, partition=partition)
        if seal:
            library.seal()
            library.tick()
            library.install()
        if pruned > 0.7:
            library.prune(int(library.at(partition=partition).last * pruned), partition=partition)
        dropped = library.drop()
        kept = {
            segment: {place for some in numbers.live_places(segment) for place in some}
            for segment in range(numbers.in_memory)
            if segment not in dropped
        }
        for p in range(4):
            first, last = library.bounds(partition=p)
            if first <= last:
                for row in numbers.rows(library.topic().id, p, first, 1_000):
                    segment = row.place >> 38
                    assert segment >= numbers.in_memory or row.place in kept[segment]
                    assert row.place & ~0x3FFF in library.shelf.bundles
