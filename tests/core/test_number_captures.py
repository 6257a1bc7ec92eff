"""What a snapshot keeps of the index, and the index that comes of it and of the files."""

from __future__ import annotations

import pytest

from core.indextruth import STORE, Truth, bytes_of, check, file_of, install, long_partition, note
from duckrow.node.errors import Corrupt
from duckrow.node.numberfile import (
    NumberFile,
)
from duckrow.node.numbergrowing import restored
from duckrow.node.numbers import Numbers


def test_what_only_a_snapshot_had_waits_for_its_file_and_so_does_all_after_it() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    for segment in range(4):
        truth.segment = segment
        for _ in range(3):
            note(numbers, truth.appended(7, 1, 2))
    chunks = list(numbers.capture())
    files = install(numbers)
    again = Numbers(STORE)

    assert again.load([files[0], files[2], *restored(chunks)], numbers.covered) == []
    assert again.installed == [0]
    assert again.in_memory == 1
    check(again, truth)
    assert [file.cover.segment for file in install(again)] == [1, 2]
    check(again, truth)
    it = truth.appended(7, 1, 2)
    note(again, it)
    check(again, truth)


def test_a_capture_does_not_see_what_comes_after_it() -> None:
    truth, numbers, _ = long_partition(100)
    waited = truth.item().position
    note(numbers, truth.items[-1])
    truth.segment += 1
    for _ in range(10):
        note(numbers, truth.appended(7, 1, 2))
    note(numbers, truth.appended(7, 1, 2, body=waited))
    chunks = numbers.capture()
    position = numbers.covered
    seen = {key: list(rows) for key, rows in truth.rows.items()}
    for _ in range(10):
        note(numbers, truth.appended(7, 1, 2))
        note(numbers, truth.appended(11, 0, 2))
    note(numbers, truth.deleted(9))

    files = restored(chunks)

    assert [file.cover.upto for file in files] == [waited, position]
    assert [file.cover.sealed for file in files] == [True, False]
    (run,) = [files[1].decode(*files[1].span(i)) for i in range(len(files[1].keys))]
    assert run == seen[7, 1][-11:]
    assert list(files[1].sizes) == [10 * 100]
    assert [(stray.first, stray.last) for stray in files[1].strays] == [
        (run[-1].first, run[-1].last)
    ]


def test_of_two_captures_each_shows_its_own_moment_and_the_older_may_be_given_up() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    note(numbers, truth.appended(7, 0, 2))
    given_up = numbers.capture()
    next(given_up)
    note(numbers, truth.appended(7, 0, 2))
    chunks = numbers.capture()
    first = next(chunks)
    note(numbers, truth.appended(7, 0, 2))
    del given_up  # it had begun
    note(numbers, truth.appended(8, 0, 2))
    note(numbers, truth.appended(7, 0, 2))

    (file,) = restored([first, *chunks])

    assert (file.rows, list(file.sizes)) == (2, [200])
    (file,) = restored(numbers.capture())
    assert (file.rows, list(file.sizes)) == (5, [400, 100])


def test_a_segment_that_is_half_installed_is_left_to_its_file() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    for topic in range(1, 2_001):
        note(numbers, truth.appended(topic, 0, 2))
    truth.segment = 1
    note(numbers, truth.appended(5, 0, 2))
    file = file_of(numbers)
    steps = numbers.install(file)
    next(steps)

    assert numbers.waiting() is None
    files = restored(numbers.capture())
    assert [each.cover.segment for each in files] == [1]
    again = Numbers(STORE)
    assert again.load([*files, file], numbers.covered) == []
    check(again, truth)


def test_of_a_capture_and_a_file_the_one_that_knows_more_counts() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    for _ in range(5):
        note(numbers, truth.appended(7, 0, 2))
    early = restored(numbers.capture())
    for _ in range(5):
        note(numbers, truth.appended(7, 0, 2))
    truth.segment = 1
    note(numbers, truth.item())
    late = restored(numbers.capture())
    files = install(numbers)
    again = Numbers(STORE)
    assert again.load([*early, *late, *files], 5) == []
    assert again.installed == [0]
    check(again, truth)


def test_a_damaged_file_behind_a_capture_is_as_if_it_were_not_there() -> None:
    """Its rows would come back into memory, where nobody checks them again."""
    truth, numbers = Truth(), Numbers(STORE)
    for _ in range(5):
        note(numbers, truth.appended(7, 0, 2))
    captured = restored(numbers.capture())
    end = numbers.covered
    truth.segment = 1
    for _ in range(5):
        note(numbers, truth.appended(7, 0, 2))
    truth.segment = 2
    note(numbers, truth.item())
    _, file = install(numbers)
    data = bytearray(bytes_of(file))
    data[2 * 32 + 9] ^= 4

    again = Numbers(STORE)
    assert again.load([*captured, NumberFile(data)], end) == []
    assert again.covered == end
    assert again.rows(7, 0, 1, 100) == truth.rows[7, 0][:5]


def test_a_deleted_topic_leaves_no_stray_in_a_capture() -> None:
    """It would keep the segment of its body for ever, and nobody would know of the topic."""
    truth, numbers = Truth(), Numbers(STORE)
    waited = truth.item().position
    note(numbers, truth.items[-1])
    truth.segment = 1
    note(numbers, truth.appended(7, 0, 2, body=waited))
    note(numbers, truth.deleted(7))
    again = Numbers(STORE)
    again.load(restored(numbers.capture()), numbers.covered)
    again.settle(truth.first_of)

    assert again.usage.holders(0) == 0


def test_a_capture_that_is_not_whole_is_refused() -> None:
    _, numbers, _ = long_partition(100)
    chunks = list(numbers.capture())

    with pytest.raises(Corrupt):
        restored([*chunks[:-2], chunks[-1]])
    with pytest.raises(Corrupt, match="no end"):
        restored(chunks[:-1])


def test_a_segment_that_goes_on_after_a_restart_ends_as_if_there_had_been_none() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    waited = truth.item().position
    note(numbers, truth.items[-1])
    truth.segment = 1
    for _ in range(5):
        note(numbers, truth.appended(7, 1, 2))
    note(numbers, truth.appended(7, 1, 2, body=waited))
    again = Numbers(STORE)
    again.load(restored(numbers.capture()), numbers.covered)
    for _ in range(5):
        it = truth.appended(7, 1, 2)
        note(numbers, it)
        note(again, it)
    truth.segment = 2
    it = truth.item()
    note(numbers, it)
    note(again, it)

    assert [numbers.in_memory, again.in_memory] == [0, 0]
    assert [*map(bytes_of, install(numbers))] == [*map(bytes_of, install(again))]
    assert [numbers.usage.live(n) for n in (0, 1)] == [again.usage.live(n) for n in (0, 1)]
    check(again, truth)


def test_a_sealed_segment_stays_sealed_when_it_comes_from_a_snapshot() -> None:
    truth, numbers = Truth(), Numbers(STORE)
    note(numbers, truth.appended(7, 0, 2))
    truth.segment = 1
    note(numbers, truth.appended(8, 0, 2))
    again = Numbers(STORE)
    assert again.load(restored(numbers.capture())[:1], 2) == [(1, 2)]
    truth.segment = 0
    note(again, truth.appended(7, 0, 2))

    cover = again.waiting()
    assert cover is not None
    assert (cover.segment, cover.upto) == (0, 1)
    covers = [file.cover for file in restored(again.capture())]
    assert [(each.segment, each.after, each.upto) for each in covers] == [(0, 0, 1), (1, 2, 3)]
    assert again.rows(7, 0, 1, 5) == truth.rows[7, 0]
