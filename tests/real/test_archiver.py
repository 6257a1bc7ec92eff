"""The archiver: what is pruned becomes files, the node lets go of them, and nothing is lost on the way."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest

import duckrow
from duckrow.node.archivenames import Named, Span
from duckrow.node.archiveplace import MARK, Place
from duckrow.node.archivereading import verified
from duckrow.node.entries import Batch
from duckrow.node.errors import Conflict
from duckrow.tools.archivewriting import Writer
from real.archivekit import (
    SPAN,
    archived,
    archiver,
    names,
    node_with_archive,
    process,
    produce,
    read_all,
    rows,
    until,
)
from real.daemonkit import Daemon, daemon

FIRST = "topic=t/partition=0/00000000000000000001-00000000000000000100.parquet"


def until_archived(row: duckrow.Client) -> None:
    """Each entry that is written wakes nobody here, so a pull of nothing waits for a moment."""
    while pinned(row):
        row.pull("t", "last", wait=0.05)


def pinned(row: duckrow.Client) -> int:
    return int(row.status()["archive"]["pinned"])


def test_what_is_pruned_becomes_files_of_a_span_each_and_is_not_pinned_any_more(
    tmp_path: Path,
) -> None:
    with node_with_archive() as row:
        produce(row, 1_050)
        assert pinned(row) == 900

        done = archived(archiver(row, tmp_path))

        assert (done.files, done.entries, pinned(row)) == (9, 900, 0)
        assert names(tmp_path) == [MARK] + [
            f"topic=t/partition=0/{Span(at, at + 99).name}" for at in range(1, 900, SPAN)
        ]
        found = rows(tmp_path)
        assert [each["offset"] for each in found] == list(range(1, 901))
        assert [each["value"] for each in found] == [b"%030d" % n for n in range(1, 901)]
        live = row.pull("t", kept=True)
        assert (live.first, live[0].number) == (901, 901)


def test_a_file_holds_every_column_of_an_entry(tmp_path: Path) -> None:
    with node_with_archive(archive=4, max_entries=1) as row:
        row.produce("t", b"\x00\xff", key="k", headers={"a": b"1", "b": b"\xff"})
        row.produce("t", b"")
        row.produce("t", "süß", key=b"", headers=[("a", b"1"), ("a", b"2")])
        row.produce_many("t", ["x", "y", "z"], keys=[None, "y", None])
        told = [*row.pull("t", kept=True)][:4]
        position = [b.position for b in row.pull("t", kept=True).batches for _ in b]
        archived(archiver(row, tmp_path))
        found = rows(tmp_path)

        assert read_all(tmp_path, row) == told
    assert [each["key"] for each in found] == [b"k", None, b"", None]
    assert [each["headers"] for each in found] == [
        [{"key": "a", "value": b"1"}, {"key": "b", "value": b"\xff"}],
        None,
        [{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}],
        None,
    ]
    assert [each["producer"] for each in found] == [entry.producer.hex() for entry in told]
    assert [int(each["timestamp"].timestamp() * 1e6) for each in found] == [e.time for e in told]
    assert [each["position"] for each in found] == position[:4]
    assert {(each["topic"], each["partition"]) for each in found} == {("t", 0)}


def test_it_goes_on_where_another_one_stopped(tmp_path: Path) -> None:
    with node_with_archive() as row:
        for first, more in ((1, 400), (501, 500), (1_001, 500)):
            produce(row, 500, first)
            assert archived(archiver(row, tmp_path)).entries == more
    assert [each["offset"] for each in rows(tmp_path)] == list(range(1, 1_401))


def test_files_that_are_there_are_not_written_again(tmp_path: Path) -> None:
    """Another node of the cluster has written them into the folder that both share."""
    with node_with_archive() as row:
        produce(row, 1_100)
        archived(archiver(row, tmp_path))
        before = {name: (tmp_path / name).stat().st_ino for name in names(tmp_path)}
        pin = row.pins().pins[0]
        row.unpin(pin, 0, place=str(tmp_path))  # as a node that knows nothing of them yet
        done = archived(archiver(row, tmp_path, "m2"))

        assert done.files == 0
        assert row.pins().pins[0].safe == pin.safe
        assert {name: (tmp_path / name).stat().st_ino for name in names(tmp_path)} == before


def test_a_name_that_another_node_was_faster_to_give_has_to_stand_for_the_same_rows(
    tmp_path: Path,
) -> None:
    name, place = Named("t", 0, Span(1, SPAN)), Place(str(tmp_path))
    with node_with_archive() as row:
        produce(row, 500)
        archived(archiver(row, tmp_path))
        produce(row, 500, 7_001, topic="u")
        same, others = (row.pull(topic, limit=SPAN, archive=True).batches for topic in "tu")
        topic_id = row.topic("t").id

        def write(batches: Sequence[Batch]) -> None:
            Writer(place, name, topic_id, "m2").put(batches)

        write(same)
        with pytest.raises(Conflict, match="has other rows than this node"):
            write(others)
        (tmp_path / FIRST).write_bytes(b"PAR1 no more")
        write(same)

    assert verified(place, name).span == name.span
    assert [each for each in names(tmp_path) if each.endswith("tmp")] == []


def test_a_damaged_file_is_written_anew_while_the_node_has_its_entries(tmp_path: Path) -> None:
    with node_with_archive() as row:
        produce(row, 500)
        file = tmp_path / FIRST
        file.parent.mkdir(parents=True)
        file.write_bytes(b"PAR1 no more")
        archived(archiver(row, tmp_path))

        assert verified(Place(str(tmp_path)), Named("t", 0, Span(1, 100))).span == Span(1, 100)


def test_files_of_a_topic_that_was_deleted_are_not_taken_for_those_of_the_next_one(
    tmp_path: Path,
) -> None:
    with node_with_archive() as row:
        produce(row, 500)
        archived(archiver(row, tmp_path))
        row.delete_topic("t")
        row.create_topic("t", archive=SPAN, max_entries=SPAN)
        produce(row, 500, 7_001)
        stuck = archived(archiver(row, tmp_path))

        assert (stuck.entries, pinned(row)) == (0, 400)
        assert "which was deleted" in row.status()["archive"]["trouble"]
        (tmp_path / "topic=t").rename(tmp_path / "old")
        archived(archiver(row, tmp_path))
        assert (pinned(row), row.status()["archive"]["trouble"]) == (0, "")
        assert [each["value"] for each in rows(tmp_path)][:1] == [b"%030d" % 7_001]


def test_an_archiver_that_runs_on_does_not_take_them_for_those_either(tmp_path: Path) -> None:
    """It knows the files of the old topic no more, since all that is there lies behind them."""
    with node_with_archive() as row:
        produce(row, 500)
        running = archived(archiver(row, tmp_path))
        produce(row, 200, 501)
        archived(running)
        row.delete_topic("t")
        row.create_topic("t", archive=SPAN, max_entries=SPAN)
        produce(row, 500, 7_001)

        archived(running)

        assert pinned(row) == 400
        assert "which was deleted" in row.status()["archive"]["trouble"]


def test_what_was_written_where_the_disk_had_been_is_not_in_the_archive(tmp_path: Path) -> None:
    """It goes away in the middle of a round, and leaves the folder where it was mounted."""
    place, away = tmp_path / "archive", tmp_path / "away"

    def unmounted() -> bool:
        if not away.exists():
            place.rename(away)
            place.mkdir()
        return False

    with node_with_archive() as row:
        produce(row, 500)
        found = archiver(row, place)
        found.stopped = unmounted
        found.round()
        assert pinned(row) == 400
        assert "has gone while" in row.status()["archive"]["trouble"]
        shutil.rmtree(place)
        away.rename(place)
        away.touch()
        assert archived(found).entries == 400
    assert [each["offset"] for each in rows(place)] == [*range(1, 401)]


def test_a_node_has_one_archiver(tmp_path: Path) -> None:
    with duckrow.Node() as node, duckrow.connect(node.url) as row, node.client as other:
        archiver(row, tmp_path / "a").round()
        with pytest.raises(Conflict, match="has an archiver already"):
            archiver(other, tmp_path / "b").round()


def test_entries_that_are_not_on_the_disk_for_certain_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss could give their numbers to others, and the file would stay."""
    with node_with_archive() as row:
        produce(row, 500)
        told = row.pins()
        position = row.pull("t", 100, limit=1, kept=True).batches[0].position
        with monkeypatch.context() as early:
            early.setattr(type(row), "pins", lambda _row: told._replace(durable=position - 1))
            assert not archiver(row, tmp_path).round()
            assert names(tmp_path) == [MARK]
        assert archived(archiver(row, tmp_path)).entries == 400


@pytest.mark.parametrize("moment", [2, 4])
def test_an_archiver_that_is_killed_loses_nothing(tmp_path: Path, moment: int) -> None:
    """In the middle of a backlog, again and again; what it left half written is written over."""
    with daemon(tmp_path, "--set", "store.durability=write") as node:
        row = duckrow.connect(node.url)
        row.create_topic("t", archive=SPAN, max_entries=SPAN)
        produce(row, 6_000)
        place = tmp_path / "archive"
        while len(names(place)) < 59:
            before = len(names(place)) if place.exists() else 0
            with process(node.url, "--to", str(place)) as running:
                while len(names(place)) < min(59, before + 10 * moment):
                    row.barrier()
                running.send_signal(signal.SIGKILL)
        with process(node.url, "--to", str(place)) as running:
            until(running, "ready")
            until_archived(row)
        found = rows(place)
        assert [each["value"] for each in found] == [b"%030d" % n for n in range(1, 5_901)]
        assert [name for name in names(place) if name.endswith(".tmp")] == []
        for name in names(place)[1:]:
            assert verified(
                Place(str(place)), Named("t", 0, Span(*map(int, Path(name).stem.split("-"))))
            )
        row.close()


def test_an_archiver_that_is_told_to_stop_leaves_nothing_half_written(tmp_path: Path) -> None:
    with (
        daemon(tmp_path, "--set", "store.durability=write") as node,
        duckrow.connect(node.url) as row,
    ):
        row.create_topic("t", archive=SPAN, max_entries=SPAN)
        produce(row, 40_000)
        place = tmp_path / "archive"
        with process(node.url, "--to", str(place)) as running:
            while len(names(place)) < 20:
                row.barrier()
            running.send_signal(signal.SIGTERM)
            assert running.wait() == 0
        assert [name for name in names(place) if name.endswith(".tmp")] == []
        assert pinned(row) == 39_900 - SPAN * (len(names(place)) - 1)


def test_a_node_starts_its_archiver_again_and_does_not_leave_it_behind(tmp_path: Path) -> None:
    place = tmp_path / "archive"
    with daemon(tmp_path, "--set", f"archive.to={place}") as node:
        with duckrow.connect(node.url) as row:
            row.create_topic("t", archive=SPAN, max_entries=SPAN)
            produce(row, 500)
            first = pid_of_the_archiver(node)
            until_archived(row)
            os.kill(first, signal.SIGKILL)
            second = pid_of_the_archiver(node)
            produce(row, 500, 501)
            until_archived(row)
        assert len(rows(place)) == 900
        assert node.end(signal.SIGTERM) == 0
    assert second != first
    assert is_gone(second)


def test_an_archiver_whose_node_is_killed_ends(tmp_path: Path) -> None:
    with daemon(tmp_path, "--set", f"archive.to={tmp_path / 'archive'}") as node:
        pid = pid_of_the_archiver(node)
        watched = os.pidfd_open(pid)
        node.end(signal.SIGKILL)
        assert select.select([watched], [], [], 60)[0], "it lives on"
        os.close(watched)


def pid_of_the_archiver(node: Daemon) -> int:
    return int(node.until("companion_started").rpartition("pid=")[2])


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_status_and_metrics_tell_that_the_archiver_is_away(tmp_path: Path) -> None:
    with (
        daemon(tmp_path, "--set", "http.listen=tcp://127.0.0.1:0") as node,
        duckrow.connect(node.url) as row,
    ):
        row.create_topic("t", archive=SPAN, max_entries=SPAN)
        produce(row, 500)
        with process(node.url, "--to", str(tmp_path / "archive")) as running:
            until(running, "ready")
            assert row.status()["archive"] == {
                "place": str(tmp_path / "archive"),
                "pinned": 0,
                "trouble": "",
            }
            running.kill()
            running.wait()
        node.until("archive place=")
        produce(row, 100, 501)
        told = row.status()["archive"]
        assert (told["pinned"], told["trouble"]) == (
            100,
            "the archiver has gone, and none has come since",
        )
        metrics = metrics_of(node)
        assert "duckrow_pinned_entries 100" in metrics
        assert "duckrow_archive_trouble 1" in metrics


def metrics_of(node: Daemon) -> list[str]:
    port = re.search(r"watched address=tcp://127\.0\.0\.1:(\d+)", "".join(node.said))
    assert port is not None, node.said
    with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/metrics") as answer:
        return [str(line) for line in answer.read().decode().splitlines()]


@pytest.mark.long
def test_a_node_and_its_archiver_that_are_killed_again_and_again_lose_nothing(
    tmp_path: Path,
) -> None:
    """What was acknowledged is in a file or at the node, each number once, whoever died when."""
    place, last = tmp_path / "archive", 0
    for _ in range(2):
        with daemon(tmp_path, "--set", f"archive.to={place}") as node:
            with duckrow.connect(node.url) as row:
                if not last:
                    row.create_topic("t", archive=SPAN, max_entries=SPAN)
                for _ in range(20):
                    produce(row, 150, last + 1)
                    last += 150
            node.end(signal.SIGKILL)
    with daemon(tmp_path, "--set", f"archive.to={place}") as node:
        with duckrow.connect(node.url) as row:
            until_archived(row)
            found = [entry.value for entry in row.pull("t", archive=True, limit=20_000)]
            live = row.topic("t").partitions[0].first
        node.end(signal.SIGTERM)
    assert found == [b"%030d" % number for number in range(1, last + 1)]
    assert [each["offset"] for each in rows(place)] == [*range(1, live)]
