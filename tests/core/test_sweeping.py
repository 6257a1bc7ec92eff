"""What one command changes for many partitions, or many batches, comes bit by bit, the same everywhere."""

from typing import Any

import pytest

from core.rowkit import ANN, BOB, SECOND, Row
from duckrow.node import makers
from duckrow.node.aging import next_due
from duckrow.node.effects import Answer, Appended, Code, Configured, Effect, Pruned
from duckrow.node.limits import PARTITIONS_MAX, PARTITIONS_PER_ITEM
from duckrow.node.makers import Turn

MANY = 2 * PARTITIONS_PER_ITEM + 100


def written(partitions: int = MANY, entries: int = 3, **policy: Any) -> Row:
    """A topic with something in each partition."""
    row = Row()
    row.create(partitions=partitions, **policy)
    row.item(
        *(row.batch(count=entries, partition=p, partitions=partitions) for p in range(partitions))
    )
    return row


def pruned(effects: list[Effect]) -> list[int]:
    return [each.partition for each in effects if isinstance(each, Pruned)]


def settle(row: Row) -> list[Effect]:
    """The clock commands that the node would submit."""
    effects: list[Effect] = []
    while (due := next_due(row.state)) is not None and due <= row.state.row_time:
        effects += row.tick()
    return effects


def test_a_new_policy_comes_to_so_many_partitions_with_an_item() -> None:
    row = written()
    command = makers.configure(row.turn(), "t", {"max_entries": 1})

    assert pruned(row.item(command)) == list(range(PARTITIONS_PER_ITEM))
    assert next_due(row.state) == row.state.row_time, "the rest wants an item"
    assert pruned(row.tick()) == list(range(PARTITIONS_PER_ITEM, 2 * PARTITIONS_PER_ITEM))
    assert pruned(settle(row)) == list(range(2 * PARTITIONS_PER_ITEM, MANY))
    assert next_due(row.state) is None


def test_a_batch_that_comes_before_it_is_held_to_the_new_policy() -> None:
    row = written()
    row.configure(max_entries=1)

    row.produce(partition=MANY - 1, partitions=MANY)

    assert row.bounds(partition=MANY - 1) == (4, 4)
    assert row.bounds(partition=MANY - 2) == (1, 3), "it has not come to that one"


def test_many_policies_in_one_item_cost_no_more_than_one() -> None:
    row = written()
    commands = [
        makers.configure(row.turn(), "t", {"max_entries": 2 - index % 2}) for index in range(500)
    ]

    effects = row.item(*commands)

    assert len([each for each in effects if isinstance(each, Configured)]) == 500
    assert len(pruned(effects)) <= PARTITIONS_PER_ITEM
    settle(row)
    assert {row.bounds(partition=p) for p in range(MANY)} == {(3, 3)}


def test_a_policy_that_changes_nothing_looks_at_nothing() -> None:
    row = written()
    row.configure(max_entries=5)
    settle(row)

    row.configure(max_entries=5)

    assert not row.state.sweeps


@pytest.mark.parametrize("restarts", [False, True])
def test_an_age_that_came_near_is_noticed_also_after_a_restart(restarts: bool) -> None:
    row = written(max_age=1000 * SECOND)
    row.configure(max_age=10 * SECOND)
    gone: list[int] = []
    row.time += 60 * SECOND
    for _ in range(20):
        if restarts:
            row.rest()
        gone += pruned(row.tick())

    assert sorted(gone) == list(range(MANY))
    assert next_due(row.state) is None


def test_a_restart_in_the_middle_changes_nothing_of_what_follows() -> None:
    effects = []
    for restarts in (False, True):
        row = written(max_age=50 * SECOND)
        row.configure(max_age=10 * SECOND, max_entries=2)
        seen = []
        for index in range(12):
            if restarts:
                row.rest()
            seen += row.tick(3)
            seen += row.item(row.batch(partition=MANY - 1 - MANY // 12 * index, partitions=MANY))
        effects.append(seen)

    assert effects[0] == effects[1]


def test_of_those_who_wait_for_room_so_many_are_numbered_with_an_item() -> None:
    row = Row()
    row.create(max_entries=1, when_full="block")
    row.produce()
    waiting = PARTITIONS_PER_ITEM + 20
    pids = [index.to_bytes(16, "big") for index in range(100, 100 + waiting)]
    for pid in pids:
        assert row.produce(pid=pid).code == Code.WAITING
    more = makers.configure(row.turn(), "t", {"max_entries": 10_000})
    row.item(more, row.batch(pid=BOB))

    numbered = row.at().last - 1
    assert numbered == PARTITIONS_PER_ITEM - 1, "one was for the partition"
    order = [each.pid for each in settle(row) if isinstance(each, Answer)]
    assert order == [*pids[numbered:], BOB], "nobody overtakes those who wait"
    assert not row.state.waiting
    assert not row.state.sweeps


def test_a_topic_that_is_deleted_meanwhile_is_not_swept_any_more() -> None:
    row = written()
    row.configure(max_entries=1)
    row.delete()

    assert settle(row) == []
    assert not row.state.sweeps
    assert not row.state.partitions
    row.create()
    assert pruned(row.tick()) == []


def test_partitions_that_nobody_wrote_to_are_not_looked_at() -> None:
    row = Row()
    row.create(partitions=PARTITIONS_MAX)
    row.produce(partition=3, partitions=PARTITIONS_MAX)
    row.configure(max_entries=1)

    assert not row.state.sweeps, "done with the item"


def test_fewer_lanes_than_there_are_come_bit_by_bit() -> None:
    row = Row()
    row.item(*(row.batch(pid=index.to_bytes(16, "big")) for index in range(1, 200)))
    row.set(lanes_max=10)
    most = len(row.state.lanes)
    sizes = []
    for _ in range(20):
        row.produce(pid=ANN)
        sizes.append(len(row.state.lanes))

    assert most > 150
    assert all(before - after <= 16 for before, after in zip([most, *sizes], sizes, strict=False))
    assert sizes[-1] == 10


def test_of_what_a_writer_left_behind_a_commit_drops_so_much() -> None:
    row = Row()
    left = PARTITIONS_PER_ITEM + 30
    stages = [
        makers.stage(
            Turn(BOB, seq, 0, seq - 1, row.time), "t", b"x", 1, writer=b"w", batch=1, task=0
        )
        for seq in range(1, left + 2)
    ]
    answers = [each for each in row.item(*stages) if isinstance(each, Answer)]
    last = answers[-1].result

    done = row.ask(makers.commit(row.turn(), b"w", 1, [(last.position, last.detail)]))

    assert done.count == 1
    assert len(row.state.stages) == left - PARTITIONS_PER_ITEM
    row.rest()
    row.ask(makers.commit(row.turn(), b"w", 2, []))
    assert not row.state.stages
    assert not row.state.stages_of


def test_a_commit_of_nothing_does_not_look_at_later_stages() -> None:
    row = Row()
    for batch in (5, 6, 7):
        turn = Turn(BOB, batch - 4, 0, 0, row.time)
        row.ask(makers.stage(turn, "t", b"x", 1, writer=b"w", batch=batch, task=0))

    assert row.ask(makers.commit(row.turn(), b"w", 5, [])).code == Code.ORDERED
    assert [staged.batch for staged in row.state.stages.rows.values()] == [6, 7]
    assert not [each for each in row.tick() if isinstance(each, Appended)]
    row.rest()
    assert row.ask(makers.commit(row.turn(), b"w", 7, [])).code == Code.ORDERED
    assert not row.state.stages
    assert not row.state.stages_of
