"""Which commands have a place in the order as soon as they are on this disk (N3)."""

from __future__ import annotations

from duckrow.node import columns, makers
from duckrow.node.acceptance import Acceptance
from duckrow.node.commands import Head, decode_head
from duckrow.node.effects import Answer, Code, Result
from duckrow.node.values import Lane, LaneKey

PID = b"p" * 16
BODY = columns.encode([b"one"])


def head(seq: int, topic: str = "t", epoch: int = 0) -> Head:
    turn = makers.Turn(PID, seq=seq, epoch=epoch)
    return decode_head(makers.produce(turn, topic, BODY, 1).head)


def holds(found: Acceptance, seq: int, topic: str = "t", epoch: int = 0) -> bool:
    return found.holds(PID, epoch, topic, 0, seq)


def decided(seq: int, code: Code = Code.ORDERED) -> Answer:
    return Answer(PID, "t", 0, seq, Result(code), 0)


def lanes(last: int, epoch: int = 0) -> dict[LaneKey, Lane]:
    return {(PID, "t", 0): Lane(epoch, last, b"", ())}


def test_what_came_one_after_the_other_has_a_place() -> None:
    found = Acceptance({})
    assert all(found.came(head(seq)) for seq in (1, 2, 3))
    assert [holds(found, seq) for seq in (1, 2, 3, 4)] == [True, True, True, False]
    assert not holds(found, 1, "another")
    assert not holds(found, 1, epoch=1)


def test_what_has_a_gap_before_it_has_none_also_when_the_gap_is_filled_behind_it() -> None:
    found = Acceptance({})
    assert found.came(head(1))
    assert not found.came(head(3))
    assert found.expected(head(3)) == 2
    assert found.came(head(2))
    assert not holds(found, 3), "it goes to the order before 2 does"
    assert found.came(head(3)), "once more, behind it"


def test_what_is_in_the_row_already_need_not_have_come_here() -> None:
    found = Acceptance(lanes(last=7))
    assert found.came(head(8))
    assert found.expected(head(10)) == 9
    assert not found.came(head(10))


def test_a_lane_of_another_epoch_says_nothing() -> None:
    found = Acceptance(lanes(last=7, epoch=1))
    assert not found.came(head(8, epoch=2))
    assert found.came(head(1, epoch=2))


def test_behind_what_was_refused_nothing_has_a_place() -> None:
    found = Acceptance({})
    for seq in (1, 2, 3):
        found.came(head(seq))
    found.refused(head(2))
    assert [holds(found, seq) for seq in (1, 2, 3)] == [True, False, False]


def test_when_the_last_that_came_is_decided_the_lane_of_the_state_says_what_has_a_place() -> None:
    row = lanes(last=7)
    found = Acceptance(row)
    found.came(head(8))
    found.came(head(9))
    found.answered(decided(8))
    assert found.expected(head(10)) == 10, "9 is still on its way"
    row[PID, "t", 0] = Lane(0, 9, b"", ())
    found.answered(decided(9))
    assert holds(found, 9)
    assert found.expected(head(10)) == 10

    row.clear()  # it went with its topic
    assert found.expected(head(10)) == 1
    assert not found.came(head(10))
    assert not holds(found, 9)


def test_what_is_refused_in_the_row_leaves_nothing_behind() -> None:
    found = Acceptance({})
    found.came(head(1))
    found.answered(decided(1, Code.UNKNOWN_PRODUCER))
    assert found.expected(head(2)) == 1


def test_what_is_decided_already_when_it_comes_once_more_does_not_outlive_its_lane() -> None:
    row = lanes(last=2)
    found = Acceptance(row)
    assert found.came(head(1))
    found.came(head(3))
    found.refused(head(3))
    row.clear()
    assert found.expected(head(2)) == 1
