"""What goes, when, and what never goes too early: age, entries, bytes, archives, PRUNE."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.rowkit import BOB, NOW, SECOND, Row
from duckrow.node import makers
from duckrow.node.aging import next_due
from duckrow.node.effects import Answer, Code, Pruned, Reason
from duckrow.node.limits import PARTITIONS_PER_ITEM, RUNS_MAX
from duckrow.node.runs import CHUNK_RUNS


def test_max_entries_is_exact_and_may_cut_inside_a_batch() -> None:
    row = Row()
    row.create(max_entries=7)
    row.produce(count=5)
    effects = row.item(row.batch(count=5))

    assert row.bounds() == (4, 10)
    assert Pruned(row.topic().id, "t", 0, 4) in effects


def test_a_batch_longer_than_max_entries_leaves_its_end() -> None:
    row = Row()
    row.create(max_entries=7)

    assert row.produce(count=100).first == 1
    assert row.bounds() == (94, 100)


def test_max_bytes_drops_whole_batches_until_the_rest_fits() -> None:
    row = Row()
    row.create(max_bytes=100)
    for _ in range(4):
        row.produce(count=10, size=30)

    assert row.bounds() == (11, 40)
    assert row.at().size == 90
    row.produce(size=31)
    assert (row.bounds(), row.at().size) == ((21, 41), 91)


def test_a_batch_larger_than_max_bytes_is_refused() -> None:
    row = Row()
    row.create(max_bytes=100)
    row.produce(size=100)
    result = row.produce(size=101)

    assert (result.code, result.reason, result.detail) == (Code.REFUSED, Reason.TOO_LARGE, 100)
    assert row.bounds() == (1, 1)


def test_bytes_of_a_batch_count_until_its_last_entry_has_gone() -> None:
    row = Row()
    row.create(max_entries=10)
    row.produce(count=10, size=50)
    row.produce(count=9, size=30)
    assert (row.bounds(), row.at().size) == ((10, 19), 80)
    row.produce(count=1, size=20)
    assert (row.bounds(), row.at().size) == ((11, 20), 50)


def test_entries_go_at_their_age_and_not_before() -> None:
    row = Row()
    row.create(max_age=10 * SECOND)
    row.produce(count=3)
    row.tick(4)
    row.produce(count=2)
    row.time = NOW + 10 * SECOND - 1
    row.tick()
    assert row.bounds() == (1, 5)
    row.time = NOW + 10 * SECOND
    assert Pruned(row.topic().id, "t", 0, 4) in row.tick()
    row.tick(4)

    assert row.bounds() == (6, 5)
    assert row.produce().first == 6


def test_the_state_says_when_something_falls_due() -> None:
    row = Row()
    assert next_due(row.state) is None
    row.create("slow", max_age=60 * SECOND)
    row.create("fast", max_age=20 * SECOND)
    assert next_due(row.state) is None
    row.produce("slow")
    assert next_due(row.state) == NOW + 60 * SECOND
    row.tick(10)
    row.produce("fast")
    assert next_due(row.state) == NOW + 30 * SECOND
    row.rest()
    assert next_due(row.state) == NOW + 30 * SECOND
    row.configure("slow", max_age=15 * SECOND)
    assert next_due(row.state) == NOW + 15 * SECOND
    row.prune(1, "slow")
    assert next_due(row.state) == NOW + 30 * SECOND
    row.delete("fast")
    assert next_due(row.state) is None


def test_a_row_whose_time_stands_still_prunes_nothing_by_age() -> None:
    """Two of three are gone: nobody knows what time it is."""
    row = Row((1, 1))
    row.create(max_age=SECOND)
    row.produce()
    row.mark((1, 1), (2, 1), (3, 1))
    row.tick(3600)

    assert row.bounds() == (1, 1)


def test_a_new_policy_holds_at_once() -> None:
    row = Row()
    for _ in range(10):
        row.produce(size=10)
        row.tick(1)
    row.configure(max_entries=8)
    assert row.bounds() == (3, 10)
    row.configure(max_bytes=60, max_entries=None)
    assert row.bounds() == (5, 10)
    row.configure(max_bytes=None, max_age=4 * SECOND)
    assert row.bounds() == (5, 10), "age goes by the next item"
    row.tick()
    assert row.bounds() == (8, 10)
    row.configure(max_age=None)
    row.tick(3600)
    assert row.bounds() == (8, 10)


def test_a_new_policy_holds_in_every_partition() -> None:
    row = Row()
    row.create(partitions=3)
    for partition in range(3):
        row.produce(count=partition + 1, partitions=3, partition=partition)
    row.configure(max_entries=1)

    assert [row.bounds("t", partition) for partition in range(3)] == [(1, 1), (2, 2), (3, 3)]


def test_policies_combine() -> None:
    row = Row()
    row.create(max_entries=5, max_bytes=1_000, max_age=10 * SECOND)
    row.produce(count=4, size=400)
    row.tick(5)
    row.produce(count=4, size=400)
    assert row.bounds() == (4, 8)
    row.produce(count=1, size=500)
    assert row.bounds() == (5, 9)
    row.tick(5)
    assert row.bounds() == (5, 9)
    row.tick(5)
    assert row.bounds() == (10, 9)


def test_prune_drops_up_to_a_number() -> None:
    row = Row()
    row.produce(count=10)
    result = row.prune(4)

    assert (result.code, result.detail) == (Code.ORDERED, 5)
    assert row.bounds() == (5, 10)
    assert row.prune(2).detail == 5, "numbers never come back"
    assert row.prune(1_000_000).detail == 11
    assert row.bounds() == (11, 10)
    assert row.at().size == 0


def test_prune_of_what_cannot_be_is_refused() -> None:
    row = Row()
    row.produce()

    assert row.prune(1, partition=1).reason == Reason.BAD_PARTITION
    assert row.prune(0).detail == 1


def test_an_archived_topic_goes_by_whole_spans() -> None:
    row = Row()
    row.create(archive=10, max_entries=5)
    row.produce(count=14)
    assert row.bounds() == (1, 14), "the span of 1 to 10 still holds one of the last five"
    row.produce()
    assert row.bounds() == (11, 15)
    row.prune(14)
    assert row.bounds() == (11, 15)
    row.produce(count=10)
    row.prune(24)
    assert row.bounds() == (21, 25)


def test_an_archived_topic_goes_by_whole_spans_at_their_age_too() -> None:
    row = Row()
    row.create(archive=10, max_age=10 * SECOND)
    row.produce(count=6)
    row.tick(1)
    assert next_due(row.state) is None, "the span is not complete"
    row.produce(count=6)
    assert next_due(row.state) == NOW + 11 * SECOND
    row.tick(9.5)
    assert row.bounds() == (1, 12)
    row.tick(0.5)
    assert row.bounds() == (11, 12)
    assert next_due(row.state) is None
    row.tick(3600)
    assert row.bounds() == (11, 12)
    row.configure(archive=None)
    assert next_due(row.state) == NOW + 11 * SECOND
    row.tick()
    assert row.bounds() == (13, 12)


def test_an_archive_that_is_switched_on_later_begins_where_its_spans_do() -> None:
    row = Row()
    row.produce(count=30)
    row.prune(14)
    row.configure(archive=10)
    row.prune(19)
    assert row.bounds() == (15, 30)
    row.prune(20)
    assert row.bounds() == (21, 30)


def test_and_its_age_is_that_of_the_end_of_a_span() -> None:
    row = Row()
    row.create(max_age=10 * SECOND)
    for _ in range(30):
        row.produce()
        row.tick(0.1)
    row.prune(14)
    row.configure(archive=10)
    assert next_due(row.state) == NOW + 19 * SECOND // 10 + 10 * SECOND, "of entry 20"
    row.time = NOW + 119 * SECOND // 10
    row.tick()

    assert row.bounds() == (21, 30)


def test_a_thousand_topics_are_pruned_with_an_item_and_the_rest_with_the_next() -> None:
    extra = 7
    row = Row()
    names = [f"topic-{n}" for n in range(PARTITIONS_PER_ITEM + extra)]
    row.item(*(makers.create(row.turn(), name, {"max_age": SECOND}) for name in names))
    row.item(*(row.batch(name) for name in reversed(names)))
    row.rest()
    first, second = row.tick(5), row.tick()
    pruned = [effect.topic for effect in first + second if isinstance(effect, Pruned)]

    assert len(first) == PARTITIONS_PER_ITEM
    assert pruned == names, "those that are due at the same time, in the order of their creation"


def test_those_longest_due_go_first() -> None:
    row = Row()
    for age, name in [(3, "c"), (1, "a"), (2, "b")]:
        row.create(name, max_age=age * SECOND)
        row.produce(name)
    effects = row.tick(10)

    assert [effect.topic for effect in effects if isinstance(effect, Pruned)] == ["a", "b", "c"]


BATCH = st.tuples(st.integers(1, 20), st.integers(0, 500), st.integers(0, 3_000))


@settings(max_examples=30)
@given(st.lists(BATCH, min_size=1, max_size=40), st.integers(3, 70), st.integers(0, 5_000))
def test_merged_runs_go_no_earlier_than_age_says_and_hold_the_bytes_exactly(
    batches: list[tuple[int, int, int]], repeat: int, cut: int
) -> None:
    """As many batches as it takes for runs to be merged, with few runs allowed."""
    row = Row()
    row.produce("other")
    batches = (batches * repeat)[:700]
    ends: list[tuple[int, int, int]] = []  # last number, time, bytes of each batch
    last = 0
    for count, size, pause in batches:
        row.time += pause
        last += count
        row.item(row.batch(count=count, size=size, done=1 << 40))
        ends.append((last, row.time, size))
    assert row.at().size == sum(size for _, _, size in ends)

    age = max(1, (row.time - NOW) * cut // 5_000)
    row.configure(max_age=age)
    row.time += 1
    row.tick()
    due = [number for number, time, _ in ends if time + age <= row.time]
    first = row.at().first
    assert first <= max(due, default=0) + 1

    limit = row.at().size * cut // 5_000
    row.configure(max_age=None, max_bytes=max(1, limit))
    kept = [size for number, _, size in ends if number >= row.at().first]
    assert sum(kept) <= max(1, limit)
    assert row.at().size == sum(kept)


def test_runs_stay_few_however_many_batches_there_are() -> None:
    row = Row()
    for n in range(5 * RUNS_MAX):
        row.time += SECOND
        row.item(row.batch(size=100, done=n))
    now = row.at()
    runs = len(now.chunks) * CHUNK_RUNS
    assert runs <= RUNS_MAX + CHUNK_RUNS
    assert now.size == 5 * RUNS_MAX * 100

    # Merging made pruning coarse, but by less than a hundredth of what there is.
    row.configure(max_bytes=now.size // 2)
    assert now.size // 2 - now.size // 100 <= row.at().size <= now.size // 2
    assert row.at().last - row.at().first + 1 == row.at().size // 100
    kept = row.at().last - row.at().first + 1
    row.configure(max_age=(kept // 2) * SECOND)
    row.tick()
    assert 0 <= row.at().last - row.at().first + 1 - kept // 2 <= 5 * RUNS_MAX // 100


@pytest.mark.parametrize("when_full", ["reject", "block", "slot"])
def test_limits_are_capacity_where_the_oldest_are_not_dropped(when_full: str) -> None:
    row = Row()
    row.create(max_entries=3, when_full=when_full)
    row.produce(count=3)
    effects = row.item(row.batch())

    assert not [effect for effect in effects if not isinstance(effect, Answer)]
    assert row.bounds() == (1, 3)


def test_age_goes_whatever_happens_when_full() -> None:
    row = Row()
    row.create(max_entries=3, when_full="reject", max_age=SECOND)
    row.produce(count=3)
    assert row.produce(pid=BOB).code == Code.FULL
    row.tick(1)
    assert row.produce(pid=BOB).first == 4
