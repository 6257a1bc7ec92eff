"""Standby links are wanted while something else is down, and a little longer."""

from __future__ import annotations

from duckrow.bridge.standby import Standby
from duckrow.bridge.timing import Timing

TIMING = Timing()
ALL = (1, 2, 3, 4)


def end(found: Standby) -> Standby:
    """The end of a chain of four."""
    assert not found.beat(0.0, (2,), ALL)
    return found


def standby() -> Standby:
    return end(Standby(frozenset({2}), frozenset(ALL), TIMING))


def after(
    found: Standby, begin: float, seconds: float, linked: tuple[int, ...], reached: tuple[int, ...]
) -> float:
    """When the wish changes, if all stays as it is."""
    before, now = found.wanted, begin
    while now < begin + seconds:
        now += TIMING.beat
        if found.beat(now, linked, reached) != before:
            return now - begin
    return seconds


def test_a_link_that_is_back_at_once_is_not_replaced() -> None:
    found = standby()

    assert not found.beat(1.0, (), (1,))
    assert not found.beat(1.3, (), (1,))
    assert not found.beat(1.4, (2,), ALL)
    assert not found.beat(1.6, (), (1,))


def test_an_own_link_that_is_down_is_replaced() -> None:
    """F12."""
    assert after(standby(), 1.0, 9.0, (), (1,)) < 0.7


def test_so_is_one_that_is_missed_elsewhere() -> None:
    """The link with 2 is up, but 4 is not reached."""
    assert after(standby(), 1.0, 9.0, (2,), (1, 2, 3)) < 0.7


def test_it_stays_a_while_when_all_is_well_and_longer_if_that_was_too_early() -> None:
    """F12."""
    found, now = standby(), 1.0
    stayed = []
    for _ in range(3):
        now += after(found, now, 9.0, (2,), (1, 2, 3))
        took = after(found, now, 99.0, (2,), ALL)
        now += took
        stayed.append(round(took))
    assert stayed == [10, 20, 40]

    now += 1000
    found.beat(now, (2,), ALL)
    now += after(found, now, 9.0, (2,), (1, 2, 3))
    assert round(after(found, now, 99.0, (2,), ALL)) == 10
