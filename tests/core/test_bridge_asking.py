"""Of whom damaged items are asked, and when nobody is left."""

from __future__ import annotations

import itertools

from duckrow.bridge.asking import (
    ANSWER_SECONDS,
    AT_ONCE,
    NEVER,
    Asking,
    Keeps,
    Question,
    is_dropped,
)

WHOLE = Keeps(floor=1, position=100)


def test_nothing_is_asked_where_nothing_lacks() -> None:
    asking = Asking()

    assert asking.step(0.0, {2: WHOLE}) is None
    assert not asking.hopeless
    assert asking.due == NEVER


def test_what_comes_back_as_a_whole_is_gone_with_the_first_of_it_that_all_have_dropped() -> None:
    """Seed 800350: an item that others had was waited for, and one beside it nobody had."""
    late, early = Keeps(floor=110, position=500), Keeps(floor=90, position=120)

    assert is_dropped([106, 129], [late])
    assert not is_dropped([129], [late])
    assert not is_dropped([106, 129], [late, early]), "two have it together"
    assert not is_dropped([129], [early]), "it may come to have it"
    assert not is_dropped([106], [])


def test_it_is_asked_of_one_at_a_time_and_then_of_the_next() -> None:
    asking = Asking()
    asking.want([7, 5])

    assert asking.step(0.0, {2: WHOLE, 3: WHOLE}) == Question(2, (5, 7))
    assert asking.due == ANSWER_SECONDS
    assert asking.step(1.0, {2: WHOLE, 3: WHOLE}) is None, "it may still answer"
    assert asking.step(ANSWER_SECONDS, {2: WHOLE, 3: WHOLE}) == Question(3, (5, 7))


def test_some_are_asked_at_once_and_the_rest_when_they_came() -> None:
    asking = Asking()
    asking.want(range(1, AT_ONCE + 3))
    asked = asking.step(0.0, {2: WHOLE})
    assert asked is not None
    for position in asked.positions:
        asking.came(position, 1.0)

    assert asking.step(1.0, {2: WHOLE}) == Question(2, (AT_ONCE + 1, AT_ONCE + 2))


def test_who_gave_a_part_is_asked_for_the_rest() -> None:
    """A question is not answered with more than some bytes."""
    asking = Asking()
    asking.want([5, 6])
    asking.step(0.0, {2: WHOLE})
    asking.came(5, 1.0)

    assert asking.step(2.5, {2: WHOLE}) is None
    assert asking.step(3.0, {2: WHOLE}) == Question(2, (6,))


def test_a_link_that_is_lost_is_not_waited_for() -> None:
    asking = Asking()
    asking.want([5])
    asking.step(0.0, {2: WHOLE, 3: WHOLE})

    assert asking.step(0.1, {3: WHOLE}) == Question(3, (5,))


def test_who_was_asked_before_its_link_was_lost_is_asked_at_once_when_it_comes_back() -> None:
    """It was asked again with all others only, a minute later if they had been asked for long."""
    asking, now = Asking(), 0.0
    asking.want([5])
    while now < 60:
        asking.step(now, {2: WHOLE})
        now = asking.due
    assert asking.step(60.0, {2: WHOLE}) is None

    assert asking.step(60.1, {}) is None
    assert asking.step(60.2, {2: WHOLE}) == Question(2, (5,))


def test_who_keeps_the_row_from_there_on_is_asked_before_who_keeps_a_part() -> None:
    asking = Asking()
    asking.want([5])

    assert asking.step(0.0, {2: Keeps(50, 100), 3: WHOLE}) == Question(3, (5,))
    assert asking.step(2.0, {2: Keeps(50, 100), 3: WHOLE}) == Question(2, (5,))


def test_who_has_not_come_so_far_is_not_asked() -> None:
    asking = Asking()
    asking.want([5])

    assert asking.step(0.0, {2: Keeps(1, 4)}) is None
    assert asking.hopeless
    assert asking.step(0.1, {2: Keeps(1, 5)}) == Question(2, (5,)), "at once, when it has"


def test_where_all_were_asked_they_are_asked_again_later_each_time() -> None:
    asking = Asking()
    asking.want([5])
    times: list[float] = []
    now = 0.0
    while len(times) < 12:
        if asking.step(now, {2: WHOLE}) is not None:
            times.append(now)
        assert asking.due > now
        now = asking.due
    gaps = [round(b - a) for a, b in itertools.pairwise(times)]

    assert gaps[:4] == [3, 4, 6, 10]
    assert max(gaps) == 62
    assert asking.hopeless


def test_nobody_there_is_hopeless_until_somebody_comes() -> None:
    asking = Asking()
    asking.want([5])

    assert asking.step(0.0, {}) is None
    assert asking.hopeless
    assert asking.step(0.5, {3: WHOLE}) == Question(3, (5,))
    asking.came(5, 0.6)
    assert asking.step(0.6, {3: WHOLE}) is None
    assert not asking.hopeless


def test_that_nobody_has_one_item_says_nothing_of_another_that_was_not_asked_for_yet() -> None:
    """Readers were told that nobody has it, and an image was given without it, before anybody could answer."""
    asking = Asking()
    asking.want([5])
    asking.step(0.0, {2: WHOLE})
    asking.step(2.0, {2: WHOLE})
    assert asking.hopeless
    asking.want([5, 7])

    assert asking.step(2.1, {2: WHOLE}) == Question(2, (7,))
    assert not asking.hopeless
    assert asking.step(4.1, {2: WHOLE}) == Question(2, (5, 7)), "all are asked again meanwhile"
    asking.want([5, 7, 9])
    assert not asking.hopeless


def test_who_gave_something_else_is_not_asked_again_before_the_others() -> None:
    asking = Asking()
    asking.want([5])
    asking.step(0.0, {2: WHOLE, 3: WHOLE})
    asking.came(5, 0.1)
    asking.refused([5], 2)
    asking.want([5])

    assert asking.step(0.2, {2: WHOLE, 3: WHOLE}) == Question(3, (5,))
