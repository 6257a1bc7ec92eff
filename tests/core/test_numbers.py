"""The index: what it finds, what it says is missing, and which segments it says are dead."""

from __future__ import annotations

import pytest

from core.indextruth import STORE, Truth, check, check_usage, file_of, install, long_partition, note
from duckrow.node.numberlife import BATCH_BYTES, PLACES_AT_ONCE
from duckrow.node.numbers import INSTALLED_AT_ONCE, Numbers
from duckrow.node.places import place


def test_rows_are_found_across_blocks_and_files() -> None:
    truth, numbers, files = long_partition(9_000, files=3)
    rows = truth.rows[7, 1]

    assert [len(file.keys) for file in files] == [3, 3, 3]
    assert numbers.rows(7, 1, 1, 10_000) == rows
    for at in (0, 1, 2_046, 2_999, 3_000, 5_047, 8_999):
        assert numbers.rows(7, 1, rows[at].last, 3) == rows[at : at + 3]
        same_time = next(row for row in rows if row.time == rows[at].time)
        assert numbers.at_time(7, 1, rows[at].time) == same_time
        assert numbers.at_position(7, 1, rows[at].position) == rows[at]
    assert numbers.at_time(7, 1, truth.time + 1) is None
    assert numbers.at_position(7, 1, len(truth.items) + 1) is None
    assert numbers.rows(7, 0, 1, 10) == numbers.rows(6, 1, 1, 10) == []


def test_a_topic_that_nobody_knows_has_no_rows() -> None:
    numbers = Numbers(STORE)

    assert numbers.rows(1, 0, 1, 10) == []
    assert numbers.hole(1, 0, 1) is None
    assert numbers.at_time(1, 0, 0) is None
    numbers.forget(1)


def test_an_installed_segment_takes_no_memory_but_a_lead_for_each_partition() -> None:
    _, numbers, _ = long_partition(9_000, files=3)

    assert numbers.waiting() is None
    assert (
        sum(len(tail.rows) for growing in numbers._growing for tail in growing.tails.values()) == 0
    )
    assert {key: len(leads) for key, leads in numbers._life.leads.items()} == {
        5 << 10: 6,
        7 << 10 | 1: 6,
        9 << 10: 6,
    }


def test_between_the_steps_of_an_install_everything_can_be_found_noted_and_deleted() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    for topic in range(1, 2_001):
        note(numbers, truth.appended(topic, 0, 2))
    truth.segment = 1
    note(numbers, truth.item())
    file = file_of(numbers)
    note(numbers, truth.deleted(3))  # while the file was being written
    steps = 0
    for _ in numbers.install(file):
        steps += 1
        note(numbers, truth.appended(2_000, 0, 1))
        note(numbers, truth.deleted(steps * 10))
        note(numbers, truth.deleted(2_000 - steps * 10))
        note(numbers, truth.pruned(300 + steps, 0, 3))
        note(numbers, truth.pruned(1_700 - steps, 0, 2))
        check(numbers, truth)
    check(numbers, truth)

    assert steps == 2_000 // INSTALLED_AT_ONCE > 10
    assert numbers.usage.holders(0) == 2_000 - 1 - 2 * steps - steps


def test_a_hole_is_told_with_its_end() -> None:
    truth, _, files = long_partition(3_000, files=3)
    numbers = Numbers(STORE)
    rows = truth.rows[7, 1]

    lost = numbers.load([files[0], files[2]], len(truth.items))

    assert lost == [
        (files[1].cover.after, files[1].cover.upto),
        (len(truth.items) - 1, len(truth.items)),
    ]
    assert numbers.rows(7, 1, rows[998].first, 10) == rows[998:1_000]
    assert numbers.rows(7, 1, rows[1_000].first, 10) == []
    assert (
        numbers.hole(7, 1, rows[1_000].first)
        == numbers.hole(7, 1, rows[1_700].last)
        == rows[1_999].last
    )
    assert numbers.rows(7, 1, rows[2_000].first, 10) == rows[2_000:2_010]
    assert numbers.hole(7, 1, rows[-1].last + 1) is None


def test_after_a_hole_at_the_end_the_index_goes_on_in_a_segment_of_its_own() -> None:
    """Items may be of bundles that lie in older segments than the lost ones."""
    truth, _, files = long_partition(30)
    numbers = Numbers(STORE)
    truth.segment, truth.offset = 0, 1 << 20
    assert numbers.load(files, len(truth.items)) == [(len(truth.items) - 1, len(truth.items))]
    note(numbers, truth.appended(7, 1, 2))

    assert numbers.rows(7, 1, truth.rows[7, 1][-2].first, 5) == truth.rows[7, 1][-2:]
    assert numbers.usage.holders(0) == 4


def test_stages_committed_together_are_one_stray() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    waiting = []
    for _ in range(10):
        waiting.append(truth.item().position)
        note(numbers, truth.items[-1])
    truth.segment = 1
    for body in waiting:
        note(numbers, truth.appended(7, 0, 100, body=body, size=1_000))

    assert numbers.usage.holders(0) == 1
    assert numbers.usage.live(0) == 10_000
    note(numbers, truth.pruned(7, 0, 950))
    assert numbers.usage.holders(0) == 1
    note(numbers, truth.pruned(7, 0, 1_001))
    assert numbers.usage.holders(0) == numbers.usage.live(0) == 0


def test_a_pruned_part_of_the_oldest_segment_is_counted_as_dead() -> None:
    truth, numbers, _ = long_partition(1_000, count=10)
    before = numbers.usage.live(0)
    for first in (2_501, 5_001, 9_001):
        note(numbers, truth.pruned(7, 1, first))
        assert numbers.usage.live(0) == before - (100 + BATCH_BYTES) * (first - 1) // 10
    note(numbers, truth.pruned(7, 1, 10_001))
    assert numbers.usage.live(0) == before - 1_000 * (100 + BATCH_BYTES)
    assert numbers.usage.holders(0) == 2


def test_a_row_that_does_not_follow_is_our_own_mistake() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    note(numbers, truth.appended(7, 0, 3))
    numbers.begin(2, place(0, 64))
    with pytest.raises(AssertionError):
        numbers.append(7, 0, 5, 1, 2_000, 10, place(0, 64))
    with pytest.raises(AssertionError):
        numbers.begin(4, place(0, 128))
    with pytest.raises(AssertionError):
        numbers.load([], 0)


def test_an_item_whose_bundle_lies_in_an_older_segment_opens_none() -> None:
    """Bundles of several nodes are written as they come, and ordered later."""
    truth, numbers = Truth(), Numbers(STORE)
    note(numbers, truth.appended(7, 0, 2))
    truth.segment = 2
    note(numbers, truth.appended(7, 0, 2))
    truth.segment = 1
    note(numbers, truth.appended(7, 0, 2))
    truth.segment = 2
    note(numbers, truth.appended(7, 0, 2))
    truth.segment = 3
    note(numbers, truth.item())

    files = install(numbers)
    assert [file.cover.segment for file in files] == [0, 2]
    assert [(stray.first, stray.last, stray.segment) for stray in files[1].strays] == [(5, 6, 1)]
    check(numbers, truth)
    check_usage(numbers, truth)


def test_a_stray_ends_with_the_segment_that_numbered_it() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    waiting = [truth.item().position for _ in range(4)]
    for it in truth.items:
        note(numbers, it)
    for segment in (1, 2):
        truth.segment = segment
        for body in (waiting.pop(0), waiting.pop(0)):
            note(numbers, truth.appended(7, 0, 2, body=body))
    truth.segment = 3
    note(numbers, truth.item())

    spans = [[(s.first, s.last) for s in file.strays] for file in install(numbers)]
    assert spans == [[], [(1, 4)], [(5, 8)]]


def test_a_file_that_overlaps_the_one_before_it_is_passed_over() -> None:
    """It speaks of a row that was cut and went on differently."""
    one, other = Truth(), Truth()
    numbers, others = Numbers(STORE), Numbers(STORE)
    for _ in range(4):
        note(numbers, one.appended(7, 0, 2))
        note(others, other.appended(7, 0, 1))
    for truth, index, count in ((one, numbers, 9), (other, others, 3)):
        while len(truth.items) < count:
            note(index, truth.item())
        truth.segment = 1
        note(index, truth.item())
        truth.segment = 2
        note(index, truth.item())
    files = [install(numbers)[0], install(others)[1]]
    assert files[1].cover.after < files[0].cover.upto
    again = Numbers(STORE)

    assert again.load(files, 9) == []
    assert again.installed == [0]
    assert again.covered == 9


def test_nothing_is_remembered_of_a_deleted_topic() -> None:
    truth, numbers, _ = long_partition(10)
    note(numbers, truth.pruned(7, 1, 5))
    for topic in (5, 7, 9):
        note(numbers, truth.deleted(topic))

    life = numbers._life
    tables = (life._firsts, life._shrunk, life.leads, life._strays, numbers._widths)
    assert [len(table) for table in tables] == [0] * 5
    assert numbers.usage.holders(0) == numbers.usage.live(0) == 0


def test_looking_for_the_live_in_a_segment_of_many_dead_partitions_lets_others_go_on() -> None:
    truth, numbers, topics = Truth(), Numbers(STORE), 5 * PLACES_AT_ONCE
    for topic in range(1, topics + 1):
        note(numbers, truth.appended(topic, 0, 1))
    truth.segment = 1
    note(numbers, truth.item())
    install(numbers)
    for topic in range(1, topics + 1):
        note(numbers, truth.deleted(topic))

    assert list(numbers.live_places(0)) == [[]] * 5
