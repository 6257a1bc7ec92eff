"""Exactly once: rules D1 to D6 in each lane, and SKIP."""

import pytest

from core.rowkit import ANN, BOB, EVE, Row, altered, answers
from duckrow.node import makers
from duckrow.node.effects import Appended, Code, Reason
from duckrow.node.limits import LANE_RESULTS_MAX, RESULTS_TOTAL
from duckrow.node.makers import Turn


def test_numbers_count_from_one_in_each_partition() -> None:
    row = Row()
    row.create("t", partitions=2)

    assert [row.produce(partitions=2, partition=0).first for _ in range(3)] == [1, 2, 3]
    assert row.produce(count=10, partitions=2, partition=1).first == 1
    assert row.produce("u").first == 1


def test_a_result_says_what_was_numbered_and_where_in_the_row() -> None:
    row = Row()
    row.produce(count=4)
    result = row.produce(count=3)

    assert (result.code, result.first, result.count, result.last) == (Code.ORDERED, 5, 3, 7)
    assert (result.position, result.time) == (row.state.position, row.time)


def test_a_copy_of_a_command_gets_the_first_answer_and_numbers_nothing() -> None:
    row = Row()
    first = row.produce(count=2)
    row.produce()
    again = row.item(row.batch(count=2, seq=1))

    assert again[-1].result == first._replace(duplicate=True)  # type: ignore[union-attr]
    assert not [effect for effect in again if isinstance(effect, Appended)]
    assert row.bounds() == (1, 3)


def test_a_copy_in_the_same_bundle_is_a_copy_too() -> None:
    row = Row()
    command = row.batch()

    assert answers(row.item(command, command)) == [(1, Code.ORDERED)] * 2
    assert row.bounds() == (1, 1)


def test_a_command_that_overtook_another_is_not_applied() -> None:
    row = Row()
    row.produce()
    result = row.produce(seq=3)

    assert (result.code, result.detail) == (Code.GAP, 2)
    assert row.bounds() == (1, 1)
    assert row.produce(seq=2).first == 2


def test_a_lane_that_is_not_known_begins_at_one() -> None:
    row = Row()

    assert row.produce(seq=7).code == Code.UNKNOWN_PRODUCER
    assert row.state.topic("t") is None, "what is not applied creates nothing"
    assert row.produce(seq=1).code == Code.ORDERED


def test_seq_zero_is_refused_and_consumes_nothing() -> None:
    row = Row()
    assert row.produce(seq=0).reason == Reason.BAD_SEQ
    row.produce(seq=1)

    assert row.produce(seq=0).reason == Reason.BAD_SEQ
    assert row.produce(seq=2).code == Code.ORDERED


def test_lanes_of_topics_partitions_and_producers_count_for_themselves() -> None:
    row = Row()
    row.create("t", partitions=2)

    for pid in (ANN, BOB):
        for topic, partition, partitions in [("t", 0, 2), ("t", 1, 2), ("u", 0, 1)]:
            result = row.produce(topic, pid=pid, seq=1, partition=partition, partitions=partitions)
            assert result.code == Code.ORDERED


def test_a_higher_epoch_starts_every_lane_of_the_producer_again_and_fences_the_older() -> None:
    row = Row()
    for topic in ("t", "u"):
        row.produce(topic)
        row.produce(topic)
    assert row.produce("t", epoch=5, seq=1).first == 3

    fenced = row.produce("u", epoch=0, seq=3)
    assert (fenced.code, fenced.detail) == (Code.FENCED, 5)
    assert row.produce("u", epoch=0, seq=1).code == Code.FENCED, "not even a copy is answered"
    assert row.produce("u", epoch=5, seq=3)[:1] == (Code.GAP,)
    assert row.produce("u", epoch=5, seq=1).first == 3
    assert row.produce("t", epoch=5, seq=1).duplicate


def test_a_higher_epoch_that_is_not_applied_fences_nobody() -> None:
    row = Row()
    row.produce()

    assert row.produce(epoch=1, seq=2)[:1] == (Code.GAP,)
    assert row.produce(epoch=0, seq=2).code == Code.ORDERED


def test_other_producers_are_not_fenced() -> None:
    row = Row()
    row.produce(pid=BOB)
    row.produce(pid=ANN, epoch=9)

    assert row.produce(pid=BOB).code == Code.ORDERED


def test_a_rejected_command_consumes_its_seq_and_is_remembered() -> None:
    row = Row(create="explicit")
    assert row.produce(seq=1).code == Code.NOT_FOUND
    row.create("t")

    assert row.produce(seq=1)[:1] == (Code.NOT_FOUND,), "the retry does not succeed meanwhile"
    assert row.produce(seq=2).first == 1


def test_answers_up_to_done_are_forgotten() -> None:
    row = Row()
    for _ in range(5):
        row.produce()
    row.produce(seq=6, done=4)

    assert row.produce(seq=4).code == Code.FORGOTTEN
    assert (row.produce(seq=5).first, row.produce(seq=6).first) == (5, 6)


def test_no_more_than_64_answers_are_kept() -> None:
    row = Row()
    for _ in range(LANE_RESULTS_MAX + 10):
        row.produce()

    assert [row.produce(seq=seq).code for seq in (10, 11)] == [Code.FORGOTTEN, Code.ORDERED]
    assert row.produce(seq=11).first == 11


def test_a_done_past_the_command_itself_still_keeps_its_own_answer() -> None:
    row = Row()
    row.produce(seq=1, done=1_000)

    assert row.produce(seq=1).first == 1


def test_the_lane_that_applied_nothing_for_longest_is_forgotten_first() -> None:
    row = Row(lanes_max=3)  # one of them is for settings
    row.produce(pid=BOB)
    row.produce(pid=EVE)
    row.produce(pid=BOB)
    row.produce(pid=EVE, seq=1)  # a copy is not applied
    row.produce(pid=ANN)  # the lane of settings was the oldest
    row.produce("u", pid=ANN)

    assert row.produce(pid=EVE, seq=2).code == Code.UNKNOWN_PRODUCER
    assert row.produce(pid=BOB, seq=3).code == Code.ORDERED
    assert len(row.state.lanes) == 3


def test_fewer_lanes_are_kept_from_the_moment_the_setting_says_so() -> None:
    row = Row()
    for n in range(20):
        row.produce(f"topic-{n}")
    row.set(lanes_max=5)

    assert len(row.state.lanes) == 5
    assert row.produce("topic-15", seq=2).code == Code.UNKNOWN_PRODUCER
    assert row.produce("topic-16", seq=2).code == Code.ORDERED


def test_a_producer_is_forgotten_with_its_last_lane() -> None:
    row = Row(lanes_max=2)
    row.produce(pid=BOB, epoch=4)
    row.produce("u", pid=ANN)
    row.produce("v", pid=ANN)

    assert BOB not in row.state.producers.rows
    assert set(row.state.producers.rows) == {ANN}
    assert row.state.producers.rows[ANN].lanes == 2


def test_what_no_lane_can_be_is_refused_and_leaves_nothing_behind() -> None:
    """Or names of 64 KiB would fill the table of lanes."""
    row = Row()
    good = row.batch("good", seq=1)
    lanes = len(row.state.lanes)
    for topic, partition in [("no good", 0), ("x" * 129, 0), ("..", 0), ("t", 1_024), ("", 1)]:
        head = altered(good, topic=topic, partition=partition)
        result = row.ask(head)

        assert (result.code, result.reason) == (Code.REFUSED, Reason.BAD_LANE)
    assert len(row.state.lanes) == lanes


def test_a_command_for_another_topic_of_the_name_is_a_conflict_and_consumes_nothing() -> None:
    """Its lane went with the topic that it means; the one there is now begins at 1."""
    row = Row()
    row.produce()
    old = row.topic().id
    row.delete()
    assert row.produce(seq=2, topic_id=old)[:1] == (Code.CONFLICT,)
    assert row.state.topic("t") is None
    row.create("t")
    result = row.produce(seq=2, topic_id=old)

    assert (result.code, result.reason, result.detail) == (
        Code.CONFLICT,
        Reason.OTHER_TOPIC,
        row.topic().id,
    )
    assert row.produce(seq=1, topic_id=old).code == Code.CONFLICT
    assert row.produce(seq=1, topic_id=row.topic().id).first == 1


def test_a_lane_goes_with_its_topic() -> None:
    row = Row()
    row.produce()
    row.produce(pid=BOB)
    row.delete()

    assert [key for key in row.state.lanes.rows if key[1] == "t"] == []
    assert row.produce(seq=2).code == Code.UNKNOWN_PRODUCER
    assert row.produce(seq=1).first == 1


def test_the_answer_to_a_delete_outlives_the_topic() -> None:
    row = Row()
    row.produce()
    command = makers.delete(row.turn(), "t")
    first = row.ask(command)

    assert first.code == Code.ORDERED
    assert row.ask(command) == first._replace(duplicate=True)


def test_a_skip_that_comes_first_takes_the_seq() -> None:
    row = Row()
    row.produce()

    assert row.skip(2).code == Code.WITHDRAWN
    late = row.produce(seq=2)
    assert (late.code, late.duplicate) == (Code.WITHDRAWN, True)
    assert row.produce(seq=3).first == 2


def test_a_skip_that_comes_late_tells_what_was_done() -> None:
    row = Row()
    first = row.produce(count=5)

    assert row.skip(1) == first._replace(duplicate=True)


def test_a_skip_of_a_later_seq_is_a_gap() -> None:
    row = Row()
    row.produce()

    assert row.skip(3)[:1] == (Code.GAP,)
    assert row.produce(seq=2).code == Code.ORDERED


def test_a_skip_may_open_a_lane_without_a_topic() -> None:
    row = Row()

    assert row.skip(1).code == Code.WITHDRAWN
    assert row.state.topic("t") is None
    assert row.produce(seq=2).first == 1
    assert row.skip(5, "u").code == Code.UNKNOWN_PRODUCER


@pytest.mark.parametrize("kind", ["barrier", "clock"])
def test_commands_without_a_topic_have_a_lane_of_their_own(kind: str) -> None:
    row = Row()
    make = getattr(makers, kind)

    assert row.ask(make(Turn(BOB, 1))).code == Code.ORDERED
    assert row.ask(make(Turn(BOB, 3)))[:1] == (Code.GAP,)
    assert row.ask(make(Turn(BOB, 1))).duplicate
    assert row.ask(make(Turn(BOB, 2))).position == row.state.position


def test_what_belongs_in_the_lane_without_a_topic_is_refused_elsewhere() -> None:
    """A topic that is deleted in a lane of its own would take the answer with it."""
    row = Row()
    row.produce()
    command = makers.delete(Turn(ANN, 2), "t")
    result = row.ask(altered(command, topic="t"))

    assert (result.code, result.reason) == (Code.REFUSED, Reason.TOPIC_LANE)
    assert row.produce(seq=3).first == 2


def test_where_there_are_very_many_lanes_each_keeps_fewer_answers() -> None:
    row = Row()
    lanes = RESULTS_TOTAL // 20
    row.item(*(row.batch() for _ in range(64)))
    assert row.produce(seq=1).first == 1, "one lane keeps 64"
    for start in range(1, lanes, 10_000):
        pids = [
            n.to_bytes(16, "little")
            for n in range(start << 32, min(lanes, start + 10_000) << 32, 1 << 32)
        ]
        row.item(*(makers.produce(Turn(pid, 1), "t", b"", 1) for pid in pids))

    row.item(*(row.batch(pid=BOB) for _ in range(64)))

    codes = [row.produce(seq=seq, pid=BOB).code for seq in range(1, 65)]
    assert codes.count(Code.ORDERED) in (19, 20)
    assert codes[0] == Code.FORGOTTEN
    assert row.produce(seq=1).code == Code.ORDERED, "until it brings the next"
