"""Full partitions: rejecting, and waiting in the row."""

from typing import Any

import pytest

from core.rowkit import ANN, BOB, EVE, SECOND, Row, answers
from duckrow.node import makers
from duckrow.node.effects import Answer, Appended, Code, Effect, Reason
from duckrow.node.limits import LANE_WAITING_MAX
from duckrow.node.state import oldest_waiting


def full(when_full: str = "block", **policy: int) -> Row:
    """A topic of three entries, full."""
    row = Row()
    limits: dict[str, Any] = policy or {"max_entries": 3}
    row.create(when_full=when_full, **limits)
    row.produce(pid=EVE, count=3)
    return row


def numbered(effects: list[Effect]) -> list[tuple[int, int]]:
    """(first, count) of what was appended."""
    return [(each.first, each.count) for each in effects if isinstance(each, Appended)]


def test_a_full_topic_rejects_and_the_rejection_consumes_the_seq() -> None:
    row = full("reject")
    assert row.produce(seq=1).code == Code.FULL
    row.prune(3)

    assert row.produce(seq=1).code == Code.FULL
    assert row.produce(seq=2).first == 4


def test_a_batch_is_taken_whole_or_not_at_all() -> None:
    row = full("reject")
    row.prune(2)

    assert row.produce(count=3).code == Code.FULL
    assert row.produce(count=2).first == 4


def test_bytes_are_a_capacity_too() -> None:
    row = Row()
    row.create(max_bytes=100, when_full="reject")
    row.produce(size=60)
    assert row.produce(size=41).code == Code.FULL
    assert row.produce(size=40).code == Code.ORDERED


@pytest.mark.parametrize("when_full", ["reject", "block", "slot"])
def test_what_could_never_fit_is_refused(when_full: str) -> None:
    row = full(when_full)
    result = row.produce(count=4)

    assert (result.code, result.reason, result.detail) == (Code.REFUSED, Reason.TOO_LARGE, 3)
    assert len(row.state.waiting) == 0


def test_a_batch_waits_without_numbers_until_there_is_room() -> None:
    row = full()
    at = row.state.position + 1
    waits = row.produce(count=2)
    assert (waits.code, waits.count, row.bounds()) == (Code.WAITING, 2, (1, 3))
    row.prune(1)
    assert row.bounds() == (2, 3)
    effects = row.item(makers.prune(row.turn(pid=BOB), "t", 2))
    answer = next(each for each in effects if isinstance(each, Answer))

    assert (answer.pid, answer.seq) == (ANN, 1)
    assert (answer.result.code, answer.result.first, answer.result.position) == (
        Code.ORDERED,
        4,
        row.state.position,
    )
    appended = next(each for each in effects if isinstance(each, Appended))
    assert (appended.first, appended.position, appended.index) == (4, at, 0), "where its body is"


def test_those_who_wait_are_served_in_the_order_in_which_they_came() -> None:
    row = full()
    for pid in (BOB, ANN, EVE, BOB):
        row.produce(pid=pid)
    effects = row.item(makers.prune(row.turn(), "t", 3))

    assert [each.pid for each in effects if isinstance(each, Answer)][:3] == [BOB, ANN, EVE]
    assert numbered(effects) == [(4, 1), (5, 1), (6, 1)]
    assert len(row.state.waiting) == 1


def test_the_first_in_the_queue_decides() -> None:
    row = full()
    row.produce(count=3, pid=BOB)
    row.produce(count=1, pid=ANN)
    row.prune(1)
    assert row.bounds() == (2, 3)
    row.prune(3)
    assert row.bounds() == (4, 6)


def test_a_later_batch_does_not_overtake_those_who_wait() -> None:
    row = full()
    row.produce(count=3, pid=BOB)
    row.prune(1)

    assert row.produce(count=1, pid=ANN).code == Code.WAITING
    row.rest()
    assert row.produce(count=1, pid=EVE).code == Code.WAITING


def test_nor_when_the_topic_has_begun_to_reject() -> None:
    row = full()
    row.produce(count=3, pid=BOB)
    row.configure(when_full="reject")
    row.prune(1)

    assert row.produce(count=1, pid=ANN).code == Code.FULL
    row.prune(3)
    assert row.bounds() == (4, 6)
    row.prune(4)
    assert row.produce(count=1, pid=ANN).code == Code.ORDERED


def test_partitions_wait_for_themselves() -> None:
    row = Row()
    row.create(max_entries=1, when_full="block", partitions=2)
    row.produce(partitions=2, partition=0)
    row.produce(partitions=2, partition=0)

    assert row.produce(partitions=2, partition=1).code == Code.ORDERED


def test_what_waits_is_not_numbered_twice_by_a_copy() -> None:
    row = full()
    row.produce(seq=1)
    again = row.produce(seq=1)
    assert (again.code, again.duplicate) == (Code.WAITING, True)
    assert len(row.state.waiting) == 1
    row.prune(3)
    again = row.produce(seq=1)
    assert (again.code, again.first, again.duplicate) == (Code.ORDERED, 4, True)


def test_age_makes_room() -> None:
    row = full(max_entries=3, max_age=5 * SECOND)
    row.produce(time=row.time + 5 * SECOND)
    effects = row.tick(5)

    assert numbered(effects) == [(4, 1)]
    assert row.bounds() == (4, 4)


def test_a_new_policy_makes_room() -> None:
    row = full()
    for _ in range(4):
        row.produce()
    effects = row.item(makers.configure(row.turn(pid=BOB), "t", {"max_entries": 5}))
    assert numbered(effects) == [(4, 1), (5, 1)]
    effects = row.item(makers.configure(row.turn(pid=BOB), "t", {"max_entries": None}))
    assert numbered(effects) == [(6, 1), (7, 1)]


def test_dropping_the_oldest_makes_room_for_all() -> None:
    row = full()
    for _ in range(4):
        row.produce(count=2)
    row.configure(when_full="drop-oldest")

    assert row.bounds() == (9, 11)
    assert len(row.state.waiting) == 0


def test_a_new_policy_may_refuse_those_who_wait() -> None:
    row = full()
    row.produce(count=3)
    row.produce(count=1, pid=BOB)
    effects = row.item(makers.configure(row.turn(pid=BOB), "t", {"max_entries": 2}))
    assert answers(effects)[0] == (1, Code.REFUSED)
    assert row.produce(count=3, seq=1).reason == Reason.TOO_LARGE
    row.prune(3)
    assert row.bounds() == (4, 4)


def test_a_skip_withdraws_what_waits_and_lets_the_next_one_pass() -> None:
    row = full()
    row.produce(count=3, pid=BOB)
    row.produce(count=1, pid=ANN)
    row.prune(1)
    effects = row.item(makers.skip(makers.Turn(BOB, 1), "t"))

    assert answers(effects) == [(1, Code.WITHDRAWN), (1, Code.ORDERED)]
    assert row.bounds() == (2, 4)
    assert row.skip(1, pid=BOB).code == Code.WITHDRAWN
    assert row.produce(pid=BOB, seq=1).code == Code.WITHDRAWN


def test_a_skip_from_the_middle_leaves_the_others_in_order() -> None:
    row = full()
    for pid in (ANN, BOB, EVE):
        row.produce(pid=pid)
    row.skip(1, pid=BOB)
    row.rest()
    effects = row.item(makers.prune(row.turn(), "t", 3))

    assert [each.pid for each in effects if isinstance(each, Answer)][:2] == [ANN, EVE]
    assert numbered(effects) == [(4, 1), (5, 1)]


def test_so_many_of_a_lane_may_wait_and_more_are_told_that_it_is_full() -> None:
    row = full()
    codes = [row.produce().code for _ in range(LANE_WAITING_MAX + 1)]
    assert codes == [Code.WAITING] * LANE_WAITING_MAX + [Code.FULL]
    assert row.produce(pid=BOB).code == Code.WAITING
    row.prune(1)
    assert row.produce().code == Code.WAITING
    assert row.produce().reason == Reason.TOO_MANY_WAITING


def test_one_of_a_lane_may_wait_for_a_slot() -> None:
    row = full("slot")

    assert [row.produce().code for _ in range(2)] == [Code.WAITING, Code.FULL]
    assert row.produce(pid=BOB).code == Code.WAITING


def test_so_many_of_all_lanes_may_wait() -> None:
    row = full()
    row.set(waiting_max=2)
    results = [row.produce(pid=pid) for pid in (ANN, BOB, EVE)]

    assert [result.code for result in results] == [Code.WAITING, Code.WAITING, Code.FULL]
    assert (results[2].reason, results[2].detail) == (Reason.TOO_MANY_WAITING, 2)


def test_the_answer_of_one_that_waited_long_is_given_though_it_is_no_longer_kept() -> None:
    row = full()
    row.produce(seq=1)
    for seq in range(2, 80):
        row.produce(seq=seq, count=4)
    assert row.produce(seq=1).code == Code.WAITING
    kept = [row.produce(seq=seq) for seq in range(16, 80)]
    effects = row.item(makers.prune(row.turn(pid=BOB), "t", 3))

    assert answers(effects)[0] == (1, Code.ORDERED)
    assert row.produce(seq=1).code == Code.FORGOTTEN
    assert [row.produce(seq=seq) for seq in range(16, 80)] == kept


def test_those_who_wait_for_a_topic_that_is_deleted_find_none() -> None:
    row = full()
    row.produce()
    row.produce(pid=BOB)
    effects = row.item(makers.delete(row.turn(), "t"))

    assert answers(effects)[:2] == [(1, Code.NOT_FOUND)] * 2
    assert len(row.state.waiting) == 0
    assert row.state.queues == {}
    row.create(when_full="block", max_entries=1)
    assert row.produce(seq=1, pid=BOB).first == 1


def test_a_batch_outlives_its_lane() -> None:
    """It was ordered; that its producer was forgotten, or began again, does not undo it."""
    row = full()
    row.produce(seq=1)
    row.produce(seq=1, pid=BOB)
    row.produce(seq=1, pid=BOB, epoch=1)
    row.set(lanes_max=2)
    row.produce(pid=EVE)
    effects = row.item(makers.prune(makers.Turn(EVE, 1), "t", 3))

    assert [(a.pid, a.epoch) for a in effects if isinstance(a, Answer)][:3] == [
        (ANN, 0),
        (BOB, 0),
        (BOB, 1),
    ]
    assert row.bounds() == (4, 6)


def test_a_lane_that_began_again_knows_nothing_of_what_waited_before() -> None:
    row = full()
    row.produce(seq=1)
    row.produce(seq=1, epoch=1, count=2)
    row.item(makers.prune(row.turn(pid=BOB), "t", 1))
    assert row.bounds() == (2, 4)

    again = row.produce(seq=1, epoch=1, count=2)
    assert (again.code, again.duplicate) == (Code.WAITING, True)


def test_nor_are_its_own_results_touched_by_it() -> None:
    row = full()
    row.produce(seq=1)
    own = row.produce(seq=1, epoch=1, count=4)
    row.item(makers.prune(row.turn(pid=BOB), "t", 1))
    assert row.bounds() == (2, 4)

    assert row.produce(seq=1, epoch=1, count=4) == own._replace(duplicate=True)


def test_the_oldest_body_that_waits_is_known() -> None:
    row = full()
    assert oldest_waiting(row.state) is None
    row.produce(count=3)
    at = row.state.position
    row.produce(count=3)
    row.produce("u")
    assert oldest_waiting(row.state) == at
    row.rest()
    row.prune(3)
    assert oldest_waiting(row.state) == at + 1, "the first has its numbers"
    row.skip(2)
    assert oldest_waiting(row.state) is None


def test_entries_that_waited_have_the_time_of_their_batch_but_never_an_older_one() -> None:
    row = full()
    came = row.time
    row.produce(pid=BOB)
    row.tick(3)
    row.produce(pid=ANN)
    effects = row.item(makers.prune(row.turn(), "t", 3))

    assert [each.time for each in effects if isinstance(each, Appended)] == [
        came,
        came + 3 * SECOND,
    ]
