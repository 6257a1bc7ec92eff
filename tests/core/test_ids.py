"""Entries with ids of their own, and entries that want to be the next."""

from core.rowkit import ANN, BOB, EVE, Row, altered
from duckrow.node.effects import Code, Reason
from duckrow.node.limits import IDS_PER_BATCH_MAX


def test_an_id_is_numbered_once_whoever_brings_it() -> None:
    row = Row()
    row.produce()
    first = row.produce(ids=[b"order 7"], pid=ANN)
    again = row.produce(ids=[b"order 7"], pid=BOB)

    assert first.first == 2
    assert again == first._replace(duplicate=True)
    assert row.bounds() == (1, 2)


def test_ids_are_of_their_topic() -> None:
    row = Row()

    assert row.produce("t", ids=[b"x"]).first == row.produce("u", ids=[b"x"]).first == 1


def test_a_batch_whose_ids_are_all_known_as_they_stand_is_a_copy() -> None:
    row = Row()
    row.produce(count=3, ids=[b"a", b"b", b"c"])
    again = row.produce(count=2, ids=[b"b", b"c"], pid=BOB)

    assert (again.code, again.first, again.count, again.duplicate) == (Code.ORDERED, 2, 2, True)


def test_a_batch_of_which_a_part_is_known_is_refused() -> None:
    row = Row()
    row.produce(count=3, ids=[b"a", b"b", b"c"])
    for ids in ([b"c", b"d"], [b"d", b"a"], [b"b", b"a"], [b"a", b"c"]):
        result = row.produce(count=2, ids=ids, pid=BOB)

        assert (result.code, result.reason) == (Code.REFUSED, Reason.IDS_PARTLY_KNOWN)
        assert result.detail in (1, 2, 3), "a number that is there already"
    assert row.bounds() == (1, 3)


def test_a_batch_whose_ids_are_known_from_several_partitions_is_refused() -> None:
    row = Row()
    row.create(partitions=2)
    row.produce(partitions=2, partition=0, ids=[b"a"])
    row.produce(partitions=2, partition=1, count=2, ids=[b"x", b"b"])
    result = row.produce(partitions=2, count=2, ids=[b"a", b"b"], pid=BOB)

    assert (result.code, result.reason) == (Code.REFUSED, Reason.IDS_PARTLY_KNOWN)


def test_an_id_occurs_once_in_a_batch() -> None:
    row = Row()

    assert row.produce(count=2, ids=[b"a", b"a"]).reason == Reason.IDS_REPEATED


def test_a_copy_in_another_partition_says_where_the_entry_is() -> None:
    row = Row()
    row.create(partitions=4)
    row.produce(partitions=4, partition=3, ids=[b"x"])
    again = row.produce(partitions=4, partition=1, ids=[b"x"])

    assert (again.code, again.duplicate, again.first) == (Code.ORDERED, True, 1)
    assert (again.reason, again.detail) == (Reason.ELSEWHERE, 3)


def test_ids_are_forgotten_in_the_order_in_which_they_were_numbered() -> None:
    row = Row(ids_max=3)
    for each in (b"d", b"b", b"a", b"c"):
        row.produce(ids=[each])
    row.rest()
    row.produce(ids=[b"e"])

    assert row.produce(ids=[b"a"], pid=BOB).first == 3
    assert row.produce(ids=[b"b"], pid=BOB).first == 6


def test_topics_share_the_ids_that_are_remembered_in_all() -> None:
    row = Row(ids_total_max=1_000)
    for topic in ("a", "b"):
        for start in range(0, 1_000, 250):
            row.produce(topic, 250, ids=[b"%d" % n for n in range(start, start + 250)])
    windows = row.state.ids_of
    assert len(windows[row.topic("a").id]) == 500
    assert len(windows[row.topic("b").id]) == 500
    for n in range(10):
        row.produce(f"more-{n}", ids=[b"x"])
    row.produce("b", ids=[b"y"])
    assert len(windows[row.topic("b").id]) == IDS_PER_BATCH_MAX, "a batch always fits"


def test_however_many_topics_bring_ids_no_more_are_remembered_in_all() -> None:
    """Each may have a batch of them, and with thousands of topics that would be too much."""
    row = Row(ids_total_max=500)
    batch = [b"%d" % n for n in range(200)]
    for topic in ("a", "b", "c"):
        row.produce(topic, 200, ids=batch)
        row.rest()
    row.produce("b", ids=[b"x"])
    row.rest()
    row.produce("d", 200, ids=batch)

    state = row.state
    assert len(state.ids) == 500
    lengths = {topic: len(state.ids_of.get(row.topic(topic).id, ())) for topic in "abcd"}
    assert lengths == {"a": 0, "b": 201, "c": 99, "d": 200}, "c was given none for longer than b"
    assert row.produce("b", 200, ids=batch, pid=BOB).first == 1
    assert row.produce("a", 200, ids=batch, pid=BOB).first == 201


def test_that_an_entry_was_pruned_does_not_forget_its_id() -> None:
    row = Row()
    row.produce(ids=[b"x"])
    row.prune(1)

    assert row.produce(ids=[b"x"], pid=BOB).duplicate


def test_ids_go_with_their_topic() -> None:
    row = Row()
    row.produce(ids=[b"x"])
    row.delete()
    assert len(row.state.ids) == 0

    again = row.produce(ids=[b"x"], seq=1)
    assert (again.first, again.duplicate) == (1, False)


def test_a_rejected_batch_leaves_no_ids() -> None:
    row = Row()
    row.create(when_full="reject", max_entries=1)
    row.produce()
    assert row.produce(ids=[b"x"]).code == Code.FULL
    row.prune(1)
    assert row.produce(ids=[b"x"]).first == 2


def test_a_known_id_is_answered_though_the_topic_is_full() -> None:
    row = Row()
    row.create(when_full="block", max_entries=1)
    row.produce(ids=[b"x"])
    row.produce(pid=BOB)

    assert row.produce(ids=[b"x"], pid=EVE)[:2] == (Code.ORDERED, 1)


def test_an_id_that_waits_twice_is_numbered_once() -> None:
    row = Row()
    row.create(when_full="block", max_entries=2)
    row.produce(count=2)
    row.produce(pid=BOB, ids=[b"x"])
    row.produce(pid=EVE, ids=[b"x"])
    row.prune(2)
    assert row.bounds() == (3, 3)

    results = [row.produce(pid=pid, seq=1, ids=[b"x"]) for pid in (BOB, EVE)]
    assert [(result.code, result.first) for result in results] == [(Code.ORDERED, 3)] * 2


def test_an_entry_that_wants_to_follow_a_number_does_or_learns_the_last() -> None:
    row = Row()
    assert row.produce(expect_last=0).first == 1
    assert row.produce(expect_last=1).first == 2
    result = row.produce(expect_last=1)

    assert (result.code, result.reason, result.detail) == (Code.CONFLICT, Reason.OTHER_LAST, 2)
    assert row.produce(expect_last=9).detail == 2
    assert row.produce(expect_last=2).first == 3


def test_a_batch_that_expects_entries_does_not_create_the_topic() -> None:
    row = Row()
    result = row.produce(expect_last=5)

    assert (result.code, result.reason, result.detail) == (Code.CONFLICT, Reason.OTHER_LAST, 0)
    assert row.state.topic("t") is None


def test_it_is_decided_when_the_batch_is_numbered() -> None:
    row = Row()
    row.create(when_full="block", max_entries=2)
    row.produce(count=2)
    row.produce(pid=BOB)
    assert row.produce(pid=EVE, expect_last=3).code == Code.WAITING
    assert row.produce(pid=ANN, expect_last=9).code == Code.WAITING
    row.prune(2)
    assert row.bounds() == (3, 4)
    assert row.produce(pid=EVE, seq=1, expect_last=3).first == 4
    row.prune(4)
    result = row.produce(pid=ANN, seq=2, expect_last=9)
    assert (result.code, result.detail) == (Code.CONFLICT, 4)


def test_a_batch_that_waits_for_a_number_that_has_passed_is_told_at_once() -> None:
    row = Row()
    row.create(when_full="block", max_entries=2)
    row.produce(count=2)

    assert row.produce(expect_last=1).code == Code.CONFLICT
    assert len(row.state.waiting) == 0


def test_the_last_number_is_that_of_the_row_not_of_what_is_left() -> None:
    row = Row()
    row.produce(count=5)
    row.prune(5)

    assert row.produce(expect_last=5).first == 6


def test_a_batch_with_a_wrong_number_of_ids_is_refused() -> None:
    row = Row()
    command = row.batch(seq=1)
    result = row.ask(altered(command, extra=(1, 1, 0, None, [b"a", b"b"], None)))

    assert result.reason == Reason.MALFORMED
