"""What jobs on Spark find in an archive before Spark begins: nodes and files are real."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import duckrow
from duckrow.node.archivenames import Span
from duckrow.node.archiveplace import Mark, Place
from duckrow.node.errors import NotFound, Refused
from duckrow.tools.pipeline.nodes import extents
from duckrow.tools.pipeline.replay import Piece
from duckrow.tools.pipeline.replaying import history, target
from real.archivekit import archived, archiver, node_with_archive, produce

FOLDER = "topic=t/partition=0"
ALL = (1, 1 << 62)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Three files of a hundred entries each."""
    with node_with_archive() as row:
        produce(row, 400)
        archived(archiver(row, tmp_path))
    return Place(str(tmp_path))


def test_a_history_has_the_files_of_what_is_wanted_and_tells_what_is_missing(place: Place) -> None:
    place.remove(f"{FOLDER}/{Span(101, 200).name}")

    past = history(place, "t", None, 51, 250)

    assert past.wanted == {0: [Span(51, 100), Span(201, 250)]}
    assert (past.entries, past.missing) == (100, 100)
    assert past.paths(Piece(0, Span(51, 60))) == [f"file://{place}/{FOLDER}/{Span(1, 100).name}"]
    assert len(past.paths(Piece(0, Span(100, 201)))) == 2


def test_a_file_within_another_one_is_not_read_twice(place: Place, tmp_path: Path) -> None:
    """As after a compaction that was killed; the names alone are looked at here."""
    folder = tmp_path / FOLDER
    shutil.copy(folder / Span(1, 100).name, folder / Span(1, 200).name)

    assert history(place, "t", 0, *ALL).files == {0: [Span(1, 200), Span(201, 300)]}


def test_files_that_overlap_are_refused(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    shutil.copy(folder / Span(1, 100).name, folder / Span(51, 150).name)

    with pytest.raises(Refused, match=r"051-.*150.parquet begins before 100, where one ends"):
        history(place, "t", 0, *ALL)


def test_a_history_that_is_not_there_is_told(place: Place) -> None:
    for topic, partition, first in (("u", None, 1), ("t", 1, 1), ("t", 0, 301)):
        with pytest.raises(NotFound, match="has no such entries of"):
            history(place, topic, partition, first, 1 << 62)


def test_a_target_is_another_one_when_it_was_made_anew_or_has_pruned_what_came() -> None:
    """Rounds that were written once are not written again, but where they are gone."""
    with duckrow.Node() as node:
        row = node.client
        found = [target(row, "again", 2), target(row, "again", 2)]
        row.produce_many("again", ["x"] * 3, partition=1)
        found.append(target(row, "again", 1))
        row.prune("again", 2, partition=1)
        found.append(target(row, "again", 2))
        row.delete_topic("again")
        found.append(target(row, "again", 2))

    assert [each == found[0] for each in found] == [True, True, True, False, False]
    assert len({*found}) == 3


def test_with_an_archive_a_node_begins_where_its_history_does(tmp_path: Path) -> None:
    """What is pruned, and in no file yet, is kept for the archive."""
    with node_with_archive() as row:
        produce(row, 350)
        assert extents(row, ["t"]) == {("t", 0): (201, 350)}
        Place(str(tmp_path)).begin(Mark("empty"))
        assert extents(row, [], str(tmp_path)) == {("t", 0): (1, 350)}

        archived(archiver(row, tmp_path))
        produce(row, 100, first=351)

        assert extents(row, ["t"], str(tmp_path)) == {("t", 0): (1, 450)}
        assert extents(row, ["t"]) == {("t", 0): (301, 450)}
        with pytest.raises(NotFound, match="there is no archive at"):
            extents(row, ["t"], str(tmp_path / "elsewhere"))
