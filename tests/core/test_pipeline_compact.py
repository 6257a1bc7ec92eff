"""Which files of an archive a compaction makes one of; and what it refuses: without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clikit import duckrow
from duckrow.node.archivenames import Span, tidy
from duckrow.tools.pipeline.compact import Merge, merges


def tens(*lasts: int) -> list[Span]:
    return [Span(last - 9, last) for last in lasts]


def test_small_files_become_one_when_all_of_its_entries_are_there() -> None:
    assert merges(tens(10, 20, 30, 40, 50, 60), 40) == [
        Merge(Span(1, 40), tuple(tens(10, 20, 30, 40)), False)
    ]
    assert merges(tens(10, 20, 30), 40) == []
    assert merges([], 40) == []


def test_what_is_missing_may_still_come_so_its_neighbours_wait() -> None:
    assert merges(tens(10, 20, 40, 50, 60, 70, 80), 40) == [
        Merge(Span(41, 80), tuple(tens(50, 60, 70, 80)), False)
    ]
    assert merges(tens(10, 60, 70, 80), 40) == []


def test_the_first_file_may_begin_anywhere() -> None:
    files = [Span(18, 20), *tens(30, 40)]

    assert merges(files, 40) == [Merge(Span(18, 40), tuple(files), False)]


def test_a_file_that_ends_beyond_a_large_one_stays_as_it_is() -> None:
    assert merges([Span(1, 30), Span(31, 60), Span(61, 80)], 40) == []
    assert merges([Span(1, 40), Span(41, 80)], 40) == []


def test_what_a_kill_left_over_goes_whatever_the_size_is_now() -> None:
    for size in (40, 1000):
        assert merges([Span(1, 40), *tens(20, 30, 40)], size) == [
            Merge(Span(1, 40), tuple(tens(20, 30, 40)), True)
        ]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(2, 60), st.data())
def test_no_number_is_lost_and_the_names_do_not_depend_on_when_it_ran(
    lengths: list[int], size: int, data: st.DataObject
) -> None:
    files, at = [], 1
    for length in lengths:
        files.append(Span(at, at + length - 1))
        at += length

    def after(spans: list[Span]) -> list[Span]:
        there = {*spans}
        for merge in merges(spans, size):
            assert sum(map(len, merge.of)) == len(merge.into)
            there = there - {*merge.of} | {merge.into}
        return sorted(there)

    early = data.draw(st.integers(0, len(files)))
    twice = after(sorted([*after(files[:early]), *files[early:]]))

    assert twice == after(files)
    assert tidy(twice) == twice
    assert sum(map(len, twice)) == at - 1


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("--archive {place} --entries 1", 2, "'1' is no whole number from 2 on"),
        ("--archive {place}", 3, "there is no archive at"),
    ],
)
def test_a_compaction_that_cannot_be_is_refused_before_java_starts(
    line: str, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    done = duckrow(f"pipeline compact {line.format(place=tmp_path)}")

    assert (done.code, done.out) == (code, b"")
    assert said in done.err
