"""What a replay still has to do, and in which pieces; and what it refuses: without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

import duckrow as library
from clikit import duckrow
from duckrow.node.archivenames import Named, Span
from duckrow.node.archiveplace import Place
from duckrow.tools.pipeline.replay import Piece, left, rounds, within
from duckrow.tools.pipeline.replaying import History


def test_what_is_done_is_left_out_of_what_is_wanted() -> None:
    wanted = [Span(1, 100), Span(201, 300)]

    assert left(wanted, []) == wanted
    assert left(wanted, [Span(1, 100), Span(201, 300)]) == []
    assert left(wanted, [Span(1, 40), Span(90, 210), Span(300, 400)]) == [
        Span(41, 89),
        Span(211, 299),
    ]


def test_only_what_lies_between_two_numbers_is_wanted() -> None:
    assert within([Span(1, 10), Span(11, 20), Span(31, 40)], 10, 31) == [
        Span(10, 10),
        Span(11, 20),
        Span(31, 31),
    ]


def test_a_round_has_a_piece_of_each_partition_and_pieces_keep_the_order() -> None:
    wanted = {0: [Span(1, 10), Span(21, 22)], 3: [Span(5, 6)]}

    assert [*rounds(wanted, 4)] == [
        [Piece(0, Span(1, 4)), Piece(3, Span(5, 6))],
        [Piece(0, Span(5, 8))],
        [Piece(0, Span(9, 10))],
        [Piece(0, Span(21, 22))],
    ]
    assert [*rounds({0: []}, 4)] == [*rounds({}, 4)] == []


def test_spark_is_told_that_a_folder_is_one_of_the_machine_and_no_pattern() -> None:
    """Where it has another file system by default, a path alone is one of that."""
    files = {0: [Span(1, 10), Span(11, 20)]}
    of_folder = History(Place("/mnt/a[1]"), "rides", files, files).paths(Piece(0, Span(4, 6)))
    of_other = History(Place("memory://a"), "rides", files, files).paths(Piece(0, Span(4, 6)))

    name = Named("rides", 0, Span(1, 10)).path
    assert of_folder == ["file:///mnt/a\\[1\\]/" + name]
    assert of_other == ["memory://a/" + name]


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("rides", 2, "say into which other topic, with --to TOPIC"),
        ("rides --to rides", 2, "say into which other topic, with --to TOPIC"),
        ("rides --to again --name a/b", 2, "--name 'a/b': it has 1 to 128 of"),
        ("rides --to again", 3, "the node knows no archive: say where it is with --archive PLACE"),
        ("rides --to again --archive {place}", 3, "there is no archive at"),
    ],
)
def test_a_replay_that_cannot_be_is_refused_before_java_starts(
    line: str, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with library.Node() as node:
        done = duckrow(f"--url {node.url} pipeline replay {line.format(place=tmp_path)}")

    assert (done.code, done.out) == (code, b"")
    assert said in done.err
