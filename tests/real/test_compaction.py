"""Compaction of an archive: fewer files with the same rows, whenever it ran and wherever it died."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import duckrow
from duckrow.node.archivenames import Named, Span
from duckrow.node.archiveplace import MARK, Place
from duckrow.node.archivereading import Archive, verified
from duckrow.node.errors import Conflict, Corrupt
from duckrow.tools.archivecare import check, compare
from duckrow.tools.pipeline.compacting import compact, jobs
from real.archivekit import (
    SPAN,
    archived,
    archiver,
    names,
    node_with_archive,
    produce,
    read_all,
    rows,
)
from real.daemonkit import ROOT

SIZE = 4 * SPAN
FOLDER = "topic=t/partition=0"
LARGE = f"{FOLDER}/{Span(1, SIZE).name}"


def run(where: Path) -> None:
    place = Place(str(where))
    for job in jobs(place, None, SIZE):
        compact(place, job)


@pytest.fixture
def row() -> Iterator[duckrow.Client]:
    with node_with_archive() as found:
        produce(found, 1_050)
        yield found


@pytest.fixture
def place(row: duckrow.Client, tmp_path: Path) -> Path:
    """Nine files of a hundred entries each."""
    archived(archiver(row, tmp_path / "archive"))
    return tmp_path / "archive"


def test_small_files_become_few_with_the_same_rows(row: duckrow.Client, place: Path) -> None:
    before = rows(place)

    run(place)

    spans = [Span(1, 400), Span(401, 800), Span(801, 900)]
    assert names(place) == [MARK, *(f"{FOLDER}/{span.name}" for span in spans)]
    assert rows(place) == before
    assert [each.number for each in read_all(place, row)] == [*range(1, 901)]
    assert [*check(Place(str(place)))] == []
    assert jobs(Place(str(place)), None, SIZE) == []


def test_names_and_digests_are_the_same_whenever_it_ran(
    row: duckrow.Client, place: Path, tmp_path: Path
) -> None:
    early = tmp_path / "early"
    shutil.copytree(place, early)
    for path in early.rglob("*0[789]00.parquet"):
        path.unlink()
    run(early)
    for path in place.rglob("*0[789]00.parquet"):
        shutil.copy(path, early / path.relative_to(place))
    run(early)

    run(place)

    assert names(early) == names(place)
    assert [*compare(Place(str(early)), Place(str(place)))] == []


def test_the_archiver_goes_on_behind_it(row: duckrow.Client, place: Path) -> None:
    run(place)
    produce(row, 400, first=1_051)

    done = archived(archiver(row, place))

    assert done.files == 4
    assert [each["offset"] for each in rows(place)] == [*range(1, 1_301)]


def killed_at(where: Path, thing: int) -> bool:
    done = subprocess.run(
        [sys.executable, "-m", "real.compaction_life", str(where), str(SIZE), str(thing)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) in ((-9, ""), (0, "done\n")), done.stderr
    return done.returncode != 0


def test_a_kill_at_any_moment_loses_nothing_and_the_next_run_ends_it(
    row: duckrow.Client, place: Path, tmp_path: Path
) -> None:
    for path in place.rglob("*0[56789]00.parquet"):
        path.unlink()  # one large file will do
    all_numbers = [each["offset"] for each in rows(place)]
    for thing in count(1):
        where = tmp_path / f"killed-{thing}"
        shutil.copytree(place, where)
        was_killed = killed_at(where, thing)

        assert [each.number for each in read_all(where, row)] == all_numbers
        run(where)
        assert names(where) == [MARK, LARGE]
        assert [each["offset"] for each in rows(where)] == all_numbers
        assert [*check(Place(str(where)))] == []
        if not was_killed:
            break
    assert thing == 1 + 1 + 4 + 1, "begun, named, four files gone, and a run that nobody killed"


def test_a_reader_goes_on_while_files_become_one(row: duckrow.Client, place: Path) -> None:
    """It has listed the small ones, and opened one of them."""
    archive = Archive(Place(str(place)))
    topic_id = row.topic("t").id

    def read(span: Span) -> list[int]:
        found = archive.run("t", topic_id, 0, span, 1000, 1 << 20)
        return [number for each in found.batches for number in range(each.first, each.last + 1)]

    assert read(Span(1, 150)) == [*range(1, 151)]
    run(place)
    assert read(Span(151, 600)) == [*range(151, 601)]
    tables: list[Any] = [*archive.tables("t", topic_id, 0, Span(350, 450))]
    assert [n for each in tables for n in each.column("offset").to_pylist()] == [*range(350, 451)]


def test_a_damaged_file_is_told_and_nothing_goes(place: Path) -> None:
    damaged = place / FOLDER / Span(101, 200).name
    raw = bytearray(damaged.read_bytes())
    for at in range(100, len(raw) // 2, 40):  # there are bytes that mean nothing
        raw[at] ^= 1
    damaged.write_bytes(raw)
    before = names(place)

    with pytest.raises(Corrupt, match=r"101-.*200\.parquet"):
        run(place)

    assert names(place) == before


def test_a_large_file_that_is_damaged_is_made_again_as_long_as_the_small_ones_are_there(
    place: Path, tmp_path: Path
) -> None:
    shutil.copytree(place, tmp_path / "copy")
    run(place)
    (tmp_path / "copy" / LARGE).write_bytes((place / LARGE).read_bytes()[:-100])

    run(tmp_path / "copy")

    assert names(tmp_path / "copy") == names(place)
    assert verified(Place(str(tmp_path / "copy")), Named("t", 0, Span(1, SIZE))).span.last == SIZE


def test_a_large_file_that_is_damaged_is_told_if_some_small_ones_have_gone(
    place: Path, tmp_path: Path
) -> None:
    shutil.copytree(place, tmp_path / "copy")
    run(place)
    (tmp_path / "copy" / LARGE).write_bytes((place / LARGE).read_bytes()[:-100])
    (tmp_path / "copy" / FOLDER / Span(101, 200).name).unlink()
    before = names(tmp_path / "copy")

    with pytest.raises(Corrupt):
        run(tmp_path / "copy")

    assert names(tmp_path / "copy") == before


def test_files_of_two_topics_of_one_name_do_not_become_one(place: Path, tmp_path: Path) -> None:
    with node_with_archive() as row:
        row.delete_topic("t")
        row.create_topic("t", archive=SPAN, max_entries=SPAN)
        produce(row, 400)
        archived(archiver(row, tmp_path / "other"))
    name = f"{FOLDER}/{Span(1, 100).name}"
    shutil.copy(tmp_path / "other" / name, place / name)
    before = names(place)

    with pytest.raises(Conflict, match="are of different topics of that name"):
        run(place)

    assert names(place) == before
