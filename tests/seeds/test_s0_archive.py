"""S0, a ring-buffer topic store: what is pruned is archived first."""

from __future__ import annotations

from errno import ENOSPC
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from duckrow.node import archivetables
from duckrow.node.archivenames import Span
from duckrow.node.archiveplace import Place
from duckrow.tools import archiver as archiver_module
from duckrow.tools.archiver import Archiver, StoppedError
from duckrow.tools.archivewriting import Writer
from real.archivekit import archived, archiver, names, node_with_archive, produce, rows


def test_s0_28_what_is_pruned_is_archived_and_not_deleted(tmp_path: Path) -> None:
    """The complete history: what the archive has and what is live, each entry once."""
    with node_with_archive(archive=10, max_entries=25) as row:
        produce(row, 200)
        archived(archiver(row, tmp_path))
        live = [entry.number for entry in row.pull("t")]

        assert [each["offset"] for each in rows(tmp_path)] + live == [*range(1, 201)]
        assert [entry.number for entry in row.pull("t", archive=True)] == [*range(1, 201)]


def test_s0_29_one_buffer_fills_while_the_other_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write waits here until the next buffer is being filled, so one after the other would never end."""
    filling = [Event() for _ in range(9)]
    put, groups = Writer.put, archivetables.groups
    written = iter(range(9))

    def filled(batches: Any) -> Any:
        for group in groups(batches):
            filling[next(begun)].set()
            yield group

    def wait_and_put(writer: Writer, group: Any) -> Any:
        number = next(written)
        assert number == 8 or filling[number + 1].wait(60), "nobody fills a buffer meanwhile"
        return put(writer, group)

    begun = iter(range(9))
    monkeypatch.setattr(archiver_module, "groups", filled)
    monkeypatch.setattr(Writer, "put", wait_and_put)
    with node_with_archive(archive=1_000, max_entries=1_000) as row:
        produce(row, 10_000)
        assert archived(archiver(row, tmp_path)).files == 9
    assert len(rows(tmp_path)) == 9_000


def test_s0_30_who_fills_waits_for_who_writes_and_there_are_never_more_than_two_buffers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archivetables, "GROUP_ROWS", 50)
    put, groups = Writer.put, archivetables.groups
    there, most = set[int](), 0

    def filled(batches: Any) -> Any:
        nonlocal most
        for group in groups(batches):
            there.add(group[0].first)
            most = max(most, len(there))
            yield group

    def written(writer: Writer, group: Any) -> Any:
        found = put(writer, group)
        there.discard(group[0].first)
        return found

    monkeypatch.setattr(archiver_module, "groups", filled)
    monkeypatch.setattr(Writer, "put", written)
    with node_with_archive(archive=1_000, max_entries=1_000) as row:
        produce(row, 5_000)
        archived(archiver(row, tmp_path))
    assert (len(rows(tmp_path)), most, there) == (4_000, 2, set())


def test_s0_31_each_topic_has_files_of_its_own(tmp_path: Path) -> None:
    with node_with_archive() as row:
        for topic in ("a", "b"):
            row.create_topic(topic, archive=10, max_entries=10)
            produce(row, 30, topic=topic)
        archived(archiver(row, tmp_path))
    assert names(tmp_path)[1:] == [
        f"topic={topic}/partition=0/{Span(first, first + 9).name}"
        for topic in ("a", "b")
        for first in (1, 11)
    ]
    assert [each["value"] for each in rows(tmp_path, "b")] == [b"%030d" % n for n in range(1, 21)]


def test_s0_32_a_buffer_that_is_part_filled_at_shutdown_is_filled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it held is still pinned at the node: nothing goes before its file is synced."""
    monkeypatch.setattr(archivetables, "GROUP_ROWS", 50)
    with node_with_archive(archive=1_000, max_entries=1_000) as row:
        produce(row, 3_000)
        told = iter([False] * 30 + [True])
        stopped = Archiver(row, Place(str(tmp_path)), "m1", lambda: next(told))
        with pytest.raises(StoppedError):
            archived(stopped)

        assert names(tmp_path)[1:] == [f"topic=t/partition=0/{Span(1, 1_000).name}"]
        assert row.pins().pins[0].safe == 1_000
        archived(archiver(row, tmp_path))
        assert [each["offset"] for each in rows(tmp_path)] == [*range(1, 2_001)]


def test_s0_32_while_both_buffers_are_full_nothing_is_deleted_and_producers_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_writer: Writer, _group: Any) -> Any:
        raise OSError(ENOSPC, "No space left on device")

    with node_with_archive(archive=10, max_entries=10) as row:
        with monkeypatch.context() as disk:
            disk.setattr(Writer, "put", full)
            for first in (1, 101, 201):
                produce(row, 100, first)
                archived(archiver(row, tmp_path))
        assert row.status()["archive"]["pinned"] == 290
        assert [entry.number for entry in row.pull("t", kept=True)] == [*range(1, 301)]
        archived(archiver(row, tmp_path))
        assert row.status()["archive"]["pinned"] == 0
        assert len(rows(tmp_path)) == 290
