"""Backups of a node, running and not, and nodes that were made of them."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

import duckrow
from duckrow.node.alone import Options
from duckrow.node.housekeeping import HousekeepingOptions
from duckrow.node.storeoptions import WRITE, StoreOptions
from duckrow.tools import backups

SMALL = Options(
    store=StoreOptions(level=WRITE, segment_bytes=256 * 1024, followable_bytes=256 * 1024),
    housekeeping=HousekeepingOptions(
        snapshot_items=200, snapshot_bytes=256 * 1024, followable_bytes=256 * 1024
    ),
)


def values(row: duckrow.Client, topic: str = "t") -> list[bytes]:
    found: list[bytes] = []
    after: object = 0
    while entries := row.pull(topic, after, limit=65_536, max_bytes=1 << 22):
        found += [entry.value for entry in entries]
        after = entries.after
    return found


def filled(folder: Path, count: int = 2000) -> list[bytes]:
    """A node that has ended, and what is in it."""
    expected = [b"%d" % number for number in range(count)]
    with duckrow.Node(folder, options=SMALL) as node:
        for at in range(0, count, 50):
            node.client.produce_many("t", expected[at : at + 50])
    return expected


def test_what_was_backed_up_is_there_when_it_is_restored(tmp_path: Path) -> None:
    expected = filled(tmp_path / "data")
    made = backups.backup(tmp_path / "data", tmp_path / "backup", version="1.2")
    assert backups.check(tmp_path / "backup") == made
    assert backups.restore(tmp_path / "backup", tmp_path / "new") == made
    with duckrow.Node(tmp_path / "new", options=SMALL) as node:
        assert values(node.client) == expected
        assert node.client.produce("t", b"more").number == len(expected) + 1


def test_a_backup_of_a_running_node_is_what_a_moment_of_it_left(tmp_path: Path) -> None:
    """Segments are sealed, forgotten and rewritten meanwhile, and snapshots come and go."""
    ended, produced = threading.Event(), threading.Event()
    counts = [0]

    def produce() -> None:
        with duckrow.connect(node.url) as row:
            while not ended.is_set():
                row.produce_many("t", [b"%d" % (counts[0] + each) for each in range(100)])
                counts[0] += 100
                row.produce_many("old", [bytes(2000)] * 20)
                produced.set()

    taken = []
    with duckrow.Node(tmp_path / "data", options=SMALL) as node:
        node.client.create_topic("old", max_entries=50)
        thread = threading.Thread(target=produce)
        thread.start()
        for each in range(4):
            for _ in range(5):
                produced.clear()
                produced.wait()
            before = counts[0]
            backups.backup(tmp_path / "data", tmp_path / f"backup-{each}")
            taken.append(before)
        ended.set()
        thread.join()
        assert list((tmp_path / "data").glob("backup-*")) == []
    for each, before in enumerate(taken):
        backups.restore(tmp_path / f"backup-{each}", tmp_path / f"new-{each}")
        with duckrow.Node(tmp_path / f"new-{each}", options=SMALL) as node:
            found = values(node.client)
            assert len(found) >= before
            assert found == [b"%d" % number for number in range(len(found))]
            assert len(values(node.client, "old")) == 50


def test_what_is_restored_is_another_row_and_clients_are_told(tmp_path: Path) -> None:
    filled(tmp_path / "data", 100)
    backups.backup(tmp_path / "data", tmp_path / "backup")
    backups.restore(tmp_path / "backup", tmp_path / "new")
    found = []
    for folder in ("data", "new", "new"):
        with duckrow.Node(tmp_path / folder, options=SMALL) as node:
            found.append(node.client.status()["lineage"])

    assert found[0] != found[1] == found[2]


def test_a_snapshot_of_the_original_does_not_fit_what_is_restored(tmp_path: Path) -> None:
    filled(tmp_path / "data", 100)
    backups.backup(tmp_path / "data", tmp_path / "backup")
    with duckrow.Node(tmp_path / "data", options=SMALL) as node:
        node.client.produce("t", b"only in the original")
    backups.restore(tmp_path / "backup", tmp_path / "new")
    with duckrow.Node(tmp_path / "new", options=SMALL) as node:
        node.client.produce("t", b"only in the copy")
    for stranger in (tmp_path / "data" / "state").iterdir():
        shutil.copy(stranger, tmp_path / "new" / "state")
    with duckrow.Node(tmp_path / "new", options=SMALL) as node:
        assert values(node.client)[-1] == b"only in the copy"


def test_any_changed_or_missing_file_of_a_backup_is_told_and_nothing_is_made(
    tmp_path: Path,
) -> None:
    filled(tmp_path / "data", 1000)
    made = backups.backup(tmp_path / "data", tmp_path / "backup")
    for name, (size, _) in made.files.items():
        path = tmp_path / "backup" / name
        whole = path.read_bytes()
        damaged = bytearray(whole)
        damaged[size // 2] ^= 1
        for wrong in (bytes(damaged), whole[:-1], whole + b"x"):
            path.write_bytes(wrong)
            with pytest.raises(duckrow.Corrupt, match=path.name):
                backups.check(tmp_path / "backup")
            with pytest.raises(duckrow.Corrupt, match=path.name):
                backups.restore(tmp_path / "backup", tmp_path / "new")
        path.unlink()
        with pytest.raises(duckrow.Corrupt, match=path.name):
            backups.restore(tmp_path / "backup", tmp_path / "new")
        path.write_bytes(whole)
    assert not (tmp_path / "new").exists()
    backups.restore(tmp_path / "backup", tmp_path / "new")


def test_a_manifest_that_was_changed_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "data", 100)
    backups.backup(tmp_path / "data", tmp_path / "backup")
    path = tmp_path / "backup" / backups.MANIFEST
    path.write_text(path.read_text().replace("row/", "row/../", 1))

    with pytest.raises(duckrow.Corrupt, match="hash"):
        backups.check(tmp_path / "backup")


@pytest.mark.parametrize("name", ["/etc/x", "row/../../x", "..", "row/..", "home/x", "row//x"])
def test_a_manifest_cannot_name_files_elsewhere(tmp_path: Path, name: str) -> None:
    filled(tmp_path / "data", 100)
    made = backups.backup(tmp_path / "data", tmp_path / "backup")
    forged = backups.Manifest(made.made, made.version, {name: (0, "")})
    (tmp_path / "backup" / backups.MANIFEST).write_bytes(backups._encoded(forged))

    with pytest.raises(duckrow.Corrupt, match="names a file that no node has"):
        backups.restore(tmp_path / "backup", tmp_path / "new")


def test_a_backup_that_was_not_finished_is_none(tmp_path: Path) -> None:
    filled(tmp_path / "data", 100)
    backups.backup(tmp_path / "data", tmp_path / "backup")
    (tmp_path / "backup" / backups.MANIFEST).unlink()

    with pytest.raises(duckrow.NotFound, match="not finished"):
        backups.restore(tmp_path / "backup", tmp_path / "new")


def test_nothing_that_is_there_is_overwritten(tmp_path: Path) -> None:
    filled(tmp_path / "data", 100)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    backups.backup(tmp_path / "data", tmp_path / "backup")

    with pytest.raises(duckrow.Exists):
        backups.backup(tmp_path / "data", tmp_path / "backup")
    with pytest.raises(duckrow.Exists):
        backups.backup(tmp_path / "data", tmp_path / "full")
    with pytest.raises(duckrow.Exists):
        backups.restore(tmp_path / "backup", tmp_path / "data")
    with pytest.raises(duckrow.NotFound, match="no node"):
        backups.backup(tmp_path / "full", tmp_path / "other")


def test_what_a_killed_backup_left_goes_with_the_next(tmp_path: Path) -> None:
    filled(tmp_path / "data", 100)
    left = tmp_path / "data" / "backup-999999999"
    left.mkdir()
    backups.backup(tmp_path / "data", tmp_path / "backup")

    assert not left.exists()


def test_a_backup_is_for_its_owner_alone_and_says_what_is_in_it(tmp_path: Path) -> None:
    filled(tmp_path / "data", 100)
    made = backups.backup(tmp_path / "data", tmp_path / "backup")
    paths = [*(tmp_path / "backup").rglob("*")]
    told = json.loads((tmp_path / "backup" / backups.MANIFEST).read_text().partition("\n")[2])

    assert {path.stat().st_mode & 0o777 for path in paths if path.is_file()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_dir()} == {0o700}
    assert set(told["files"]) == set(made.files)
