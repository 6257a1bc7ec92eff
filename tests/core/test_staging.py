"""Batches that are staged, and commits that number them all or none, and once."""

from typing import Any

import pytest

from core.rowkit import ANN, BOB, SECOND, Row, answers
from duckrow.node import makers
from duckrow.node.aging import next_due
from duckrow.node.commands import Command
from duckrow.node.effects import Appended, Code, Reason, Result
from duckrow.node.limits import PARTITIONS_PER_ITEM
from duckrow.node.makers import Turn
from duckrow.node.state import oldest_waiting

W = b"writer"
HOUR = 3600


def stage(row: Row, topic: str = "t", count: int = 1, **more: Any) -> tuple[int, int]:
    """Stages a batch, and gives its name."""
    result = row.ask(staging(row, topic, count, **more))
    assert result.code == Code.STAGED, result
    return result.position, result.detail


def staging(row: Row, topic: str = "t", count: int = 1, **more: Any) -> Command:
    more = {"writer": W, "batch": 1, "task": 0, "size": 10, "pid": BOB, **more}
    turn = row.turn(more.pop("pid"), topic, more.get("partition", 0))
    return makers.stage(turn, topic, bytes(more.pop("size")), count, **more)


def commit(row: Row, names: list[tuple[int, int]], batch: int = 1, writer: bytes = W) -> Result:
    return row.ask(makers.commit(row.turn(), writer, batch, names))


def test_what_is_staged_has_no_numbers() -> None:
    row = Row()
    stage(row, count=5)
    row.produce()

    assert row.bounds() == (1, 1)


def test_a_stage_is_named_by_its_place_in_the_row() -> None:
    row = Row()
    row.item(row.batch(), staging(row), staging(row))

    assert sorted(row.state.stages.rows) == [row.state.position << 14 | n for n in (1, 2)]


def test_a_commit_numbers_in_the_order_it_lists() -> None:
    row = Row()
    row.create("u", partitions=2)
    a = stage(row, "t", 2)
    b = stage(row, "u", 3, partitions=2, partition=1)
    c = stage(row, "t", 4)
    row.produce("t", 10)
    effects = row.item(makers.commit(row.turn(), W, 1, [c, b, a]))
    appended = [each for each in effects if isinstance(each, Appended)]

    assert [(e.topic, e.partition, e.first, e.count) for e in appended] == [
        ("t", 0, 11, 4),
        ("u", 1, 1, 3),
        ("t", 0, 15, 2),
    ]
    assert [(e.position, e.index) for e in appended] == [c, b, a], "where the bodies are"
    assert effects[-1].result[:3] == (Code.ORDERED, 0, 9)  # type: ignore[union-attr]
    assert len(row.state.stages) == 0


def test_a_batch_is_committed_once() -> None:
    row = Row()
    names = [stage(row)]
    first = commit(row, names)
    again = commit(row, names)

    assert again == first._replace(duplicate=True)
    assert row.bounds() == (1, 1)


def test_a_job_that_runs_its_batch_again_commits_nothing_more() -> None:
    """It staged everything anew, and its driver does not know that the first commit arrived."""
    row = Row()
    commit(row, [stage(row)])
    again = stage(row)

    assert commit(row, [again]).duplicate
    assert row.bounds() == (1, 1)


def test_a_batch_before_the_last_one_is_refused() -> None:
    row = Row()
    commit(row, [], batch=7)
    result = commit(row, [stage(row, batch=6)], batch=6)

    assert (result.code, result.reason, result.detail) == (Code.REFUSED, Reason.BATCH_PASSED, 7)
    assert commit(row, [stage(row, batch=9)], batch=9).code == Code.ORDERED


def test_an_empty_batch_may_be_committed() -> None:
    row = Row()

    assert commit(row, [])[:3] == (Code.ORDERED, 0, 0)


@pytest.mark.parametrize("nowhere", [(1, 0), (10**9, 3), (2, 1 << 14), (1 << 60, 1 << 60)])
def test_if_a_stage_is_missing_nothing_is_numbered(nowhere: tuple[int, int]) -> None:
    row = Row()
    name = stage(row)
    result = commit(row, [name, nowhere])

    assert (result.code, result.reason, result.detail) == (Code.REFUSED, Reason.STAGE_GONE, 2)
    assert row.bounds() == (1, 0)
    assert commit(row, [name]).code == Code.ORDERED, "it may be tried again"


def test_stages_of_others_are_not_committed() -> None:
    row = Row()
    other = stage(row, writer=b"somebody")
    later = stage(row, batch=2)

    assert commit(row, [other])[5:7] == (1, Reason.STAGE_OTHERS)
    assert commit(row, [stage(row), later])[5:7] == (2, Reason.STAGE_OTHERS)


def test_a_stage_is_not_committed_twice_in_a_batch() -> None:
    row = Row()
    name = stage(row)

    assert commit(row, [name, name]).reason == Reason.STAGE_REPEATED
    assert row.bounds() == (1, 0)


def test_if_a_topic_is_full_nothing_is_numbered() -> None:
    row = Row()
    row.create("t", max_entries=3, when_full="reject")
    names = [stage(row, "u"), stage(row, "t", 2), stage(row, "t", 2)]
    assert commit(row, names[:2] + names[2:]).reason == Reason.TOO_LARGE
    row.configure("t", max_entries=4)
    row.produce("t", count=1)
    assert commit(row, names).code == Code.FULL
    assert row.bounds("u") == (1, 0)
    row.prune(1, "t")

    assert commit(row, names).code == Code.ORDERED
    assert (row.bounds("t"), row.bounds("u")) == ((2, 5), (1, 1))


def test_a_commit_does_not_pass_those_who_wait() -> None:
    row = Row()
    row.create(max_entries=3, when_full="block")
    row.produce(count=2)
    row.produce(count=2)

    assert commit(row, [stage(row)]).code == Code.FULL


def test_a_topic_that_drops_its_oldest_takes_any_commit() -> None:
    row = Row()
    row.create(max_entries=3, max_bytes=100)
    names = [stage(row, count=2, size=60), stage(row, count=4, size=70)]

    assert commit(row, names).code == Code.ORDERED
    assert row.bounds() == (4, 6)
    row.create("u", max_bytes=10)
    too_large = staging(row, "u", size=11)
    assert row.ask(too_large).reason == Reason.TOO_LARGE


def test_if_its_topic_was_deleted_a_stage_is_gone() -> None:
    row = Row()
    name = stage(row)
    row.delete()
    assert commit(row, [name]).reason == Reason.STAGE_GONE
    row.create()
    assert commit(row, [name]).reason == Reason.STAGE_GONE


def test_a_commit_drops_what_the_writer_staged_before_and_did_not_use() -> None:
    row = Row()
    stage(row, batch=1)
    twice = [stage(row, batch=2, task=5) for _ in range(2)]
    later = stage(row, batch=3)
    other = stage(row, writer=b"somebody", batch=1)
    commit(row, twice[:1], batch=2)

    assert sorted(row.state.stages.rows) == sorted(at << 14 | n for at, n in (later, other))


def test_forgotten_stages_expire_with_the_time_of_the_row() -> None:
    row = Row(stage_expiry=HOUR * SECOND)
    row.tick()
    first, second = stage(row), stage(row, batch=2)
    assert next_due(row.state) == row.time + HOUR * SECOND
    row.tick(HOUR - 1)
    third = stage(row, batch=3)
    assert len(row.state.stages) == 3
    row.tick(1)
    assert len(row.state.stages) == 1
    row.rest()
    assert next_due(row.state) == row.time + (HOUR - 1) * SECOND

    assert commit(row, [first]).reason == Reason.STAGE_GONE
    assert commit(row, [second], batch=2).reason == Reason.STAGE_GONE
    assert commit(row, [third], batch=3).code == Code.ORDERED
    assert next_due(row.state) is None


def test_a_shorter_expiry_holds_at_once() -> None:
    row = Row()
    name = stage(row)
    row.tick(10)
    row.set(stage_expiry=5 * SECOND)

    assert commit(row, [name]).reason == Reason.STAGE_GONE


def test_very_many_stages_expire_item_by_item_but_none_is_committed_late() -> None:
    row = Row(stage_expiry=SECOND)
    count = 3 * PARTITIONS_PER_ITEM - 50
    row.item(*(staging(row, task=n) for n in range(count)))
    at = row.state.position
    row.tick(5)
    assert len(row.state.stages) == 2 * PARTITIONS_PER_ITEM - 50
    result = commit(row, [(at, count - 10)])
    assert result.reason == Reason.STAGE_GONE
    row.tick()
    assert len(row.state.stages) == 0


def test_there_are_only_so_many_stages() -> None:
    row = Row(stages_max=2)
    stage(row), stage(row)
    result = row.ask(staging(row))
    assert (result.code, result.reason) == (Code.FULL, Reason.TOO_MANY_STAGES)
    commit(row, [])
    stage(row)


def test_the_writer_that_committed_nothing_for_longest_is_forgotten_first() -> None:
    row = Row(writers_max=2)
    for writer in (b"a", b"b", b"a", b"c"):
        commit(row, [], batch=len(row.items), writer=writer)

    assert list(row.state.writers.rows) == [b"a", b"c"]
    row.set(writers_max=1)
    assert list(row.state.writers.rows) == [b"c"]


def test_a_stage_is_exactly_once_like_any_command() -> None:
    row = Row()
    command = staging(row)
    first = row.ask(command)

    assert row.ask(command) == first._replace(duplicate=True)
    assert len(row.state.stages) == 1


def test_a_stage_needs_a_topic_and_the_right_partitions_like_a_batch() -> None:
    row = Row(create="explicit")
    assert row.ask(staging(row)).code == Code.NOT_FOUND
    row.create(partitions=2)
    assert row.ask(staging(row)).reason == Reason.ROUTING_CHANGED
    assert row.ask(staging(row, partitions=2, partition=1)).code == Code.STAGED


def test_the_oldest_body_that_is_staged_is_known_until_its_commit() -> None:
    row = Row()
    name, other = stage(row), stage(row)
    row.produce()
    assert oldest_waiting(row.state) == name[0]
    row.rest()
    commit(row, [other])
    assert oldest_waiting(row.state) is None, "what a commit leaves out is gone"


def test_a_commit_in_the_item_of_its_stages_works() -> None:
    row = Row()
    at = row.state.position + 1
    effects = row.item(staging(row), makers.commit(Turn(ANN, 1), W, 1, [(at, 0)]))

    assert answers(effects) == [(1, Code.STAGED), (1, Code.ORDERED)]
    assert row.bounds() == (1, 1)
