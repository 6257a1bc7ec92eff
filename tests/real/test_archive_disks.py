"""An archive whose disk is full, away or damaged: nothing is lost, it is told, and it goes on by itself."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import duckrow
from clikit import duckrow as cli
from duckrow.cluster.local import LocalCluster
from duckrow.cluster.plan import Plan
from duckrow.node.archivenames import Named, Span
from duckrow.node.archiveplace import MARK, Place
from duckrow.node.archivereading import footer_of, verified
from duckrow.node.errors import Exists
from duckrow.tools.archivecare import check, compare, copy, holdings
from duckrow.tools.archiver import Archiver
from duckrow.tools.archivewriting import Writer
from real.archivekit import (
    SPAN,
    archived,
    archiver,
    names,
    node_with_archive,
    process,
    produce,
    rows,
    until,
)
from real.daemonkit import daemon
from real.test_full_disk import IN_A_NAMESPACE, can_mount

DISK_BYTES = 12 << 20
FILLER_BYTES = 9 << 20
LARGE = 10_000  # bytes, that nothing makes smaller


def told(row: duckrow.Client) -> dict[str, Any]:
    found: dict[str, Any] = row.status()["archive"]
    return found


def kept_from(row: duckrow.Client) -> int:
    return row.pins().pins[0].kept


def produce_large(row: duckrow.Client, count: int) -> None:
    row.produce_many("t", [os.urandom(LARGE) for _ in range(count)])


@pytest.fixture
def east() -> Iterator[None]:
    """This machine is in Tokyo."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


class Quota(Place):
    """A folder that takes only so much."""

    room = FILLER_BYTES // 4

    def create(self, path: str) -> Any:
        if sum(file.size for file in self.files()) + SPAN * LARGE > self.room:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return super().create(path)


def test_a_full_folder_stops_deleting_and_not_producing_and_it_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    with node_with_archive() as row:
        place = Quota(str(tmp_path))
        full = Archiver(row, place, "m1")
        produce_large(row, 900)
        archived(full)

        assert "is full" in told(row)["trouble"]
        in_files = len(rows(tmp_path))
        assert 0 < in_files < 800
        assert kept_from(row) == in_files + 1
        assert [name for name in names(tmp_path) if name.endswith(".tmp")] == []
        produce_large(row, 100)
        assert told(row)["pinned"] == 900 - in_files
        assert "is full" in cli("why", environ={"DUCKROW_URL": row_url(row)}).text

        place.room *= 100
        archived(full)
        assert (told(row)["pinned"], told(row)["trouble"]) == (0, "")
        assert [each["offset"] for each in rows(tmp_path)] == [*range(1, 901)]


def row_url(row: duckrow.Client) -> str:
    """Where the client found its node."""
    from duckrow.node.addresses import url_of

    return url_of(row._line._addresses[0])


def test_a_small_disk_that_is_full_is_told_and_goes_on_when_it_has_room(tmp_path: Path) -> None:
    """A real one, in memory, mounted in a namespace of the archiver's own; a folder with a file-size
    limit cannot stand for it, so where nobody may mount the test above says what there is to say.
    """
    if not can_mount(tmp_path):
        return
    place = tmp_path / "disk"
    place.mkdir()
    script = (
        f'mount -t tmpfs -o size={DISK_BYTES} duckrow "$0" && '
        f'head -c {FILLER_BYTES} /dev/zero > "$0/.filler" && exec "$@"'
    )
    wrapped = (*IN_A_NAMESPACE, "sh", "-c", script, str(place))
    with daemon(tmp_path) as node, duckrow.connect(node.url) as row:
        row.create_topic("t", archive=SPAN, max_entries=SPAN)
        produce_large(row, 900)
        with process(node.url, "--to", str(place), before=wrapped) as running:
            until(running, "is full")
            assert told(row)["pinned"] > 0
            produce_large(row, 100)
            inside = Path(f"/proc/{running.pid}/root{place}")
            in_files = len(rows(inside))
            assert kept_from(row) == in_files + 1
            assert 0 < in_files < 800

            (inside / ".filler").unlink()
            until(running, "trouble=none")
            while told(row)["pinned"]:
                row.barrier()
            assert [each["offset"] for each in rows(inside)] == [*range(1, 901)]


def test_an_archive_that_is_away_is_not_begun_anew_in_its_empty_folder(tmp_path: Path) -> None:
    place, away = tmp_path / "disk", tmp_path / "away"
    with node_with_archive() as row:
        found = archiver(row, place)
        produce(row, 500)
        archived(found)
        place.rename(away)
        place.mkdir()  # where the disk was mounted
        produce(row, 500, 501)
        assert not found.round()

        assert "is its disk mounted?" in told(row)["trouble"]
        assert told(row)["pinned"] == 500
        assert names(place) == []
        place.rmdir()
        assert not found.round()
        assert "is its disk mounted?" in told(row)["trouble"]
        away.rename(place)
        archived(found)
        assert (told(row)["pinned"], told(row)["trouble"]) == (0, "")
        assert len(rows(place)) == 900


def test_a_damaged_mark_of_an_archive_is_told_and_it_goes_on_when_there_is_another(
    tmp_path: Path,
) -> None:
    with node_with_archive() as row:
        found = archiver(row, tmp_path)
        produce(row, 500)
        archived(found)
        (tmp_path / MARK).write_bytes(bytes(40))
        produce(row, 500, 501)
        assert not found.round()

        assert f"{MARK} is no mark of an archive" in told(row)["trouble"]
        assert told(row)["pinned"] == 500
        (tmp_path / MARK).unlink()
        assert cli(f"archive init {tmp_path}").code == 0
        archived(found)
        assert (told(row)["pinned"], told(row)["trouble"]) == (0, "")
        assert len(rows(tmp_path)) == 900


def test_a_node_knows_its_archive_after_a_restart_until_another_one_is_begun(
    tmp_path: Path,
) -> None:
    place = tmp_path / "disk"
    with daemon(tmp_path) as node:
        with duckrow.connect(node.url) as row:
            row.create_topic("t", archive=SPAN, max_entries=SPAN)
            produce(row, 500)
            archived(archiver(row, place))
        node.end(signal.SIGTERM)
    mark = Place(str(place)).mark()
    assert mark is not None
    place.rename(tmp_path / "away")
    with daemon(tmp_path) as node, duckrow.connect(node.url) as row:
        assert told(row)["place"] == str(place)
        assert "no archiver has come" in told(row)["trouble"]
        produce(row, 500, 501)
        found = archiver(row, place)
        assert not found.round()
        assert mark.archive in told(row)["trouble"]
        assert not place.exists()

        assert cli(f"archive init {place}").code == 0
        archived(found)
        assert (told(row)["pinned"], told(row)["trouble"]) == (0, "")
        assert [each["offset"] for each in rows(place)] == [*range(401, 901)]


def test_an_archive_of_another_row_takes_nothing_until_somebody_says_that_it_may(
    tmp_path: Path,
) -> None:
    with node_with_archive() as row:
        produce(row, 500)
        archived(archiver(row, tmp_path / "one"))
    with node_with_archive() as row:  # such as a restored one: the same topic, and other entries
        produce(row, 500, 1_001)
        found = archiver(row, tmp_path / "one")
        assert not found.round()
        assert "is of another row than that of m1" in told(row)["trouble"]
        assert told(row)["pinned"] == 400
        archived(archiver(row, tmp_path / "other"))
    assert len(rows(tmp_path / "one")) == len(rows(tmp_path / "other")) == 400
    refused = cli(f"archive sync {tmp_path}/one {tmp_path}/other")
    assert (refused.code, "are of two rows: nothing was copied" in refused.err) == (1, True)

    with duckrow.Node() as node, duckrow.connect(node.url) as row:
        row.create_topic("u", archive=SPAN, max_entries=SPAN)
        produce(row, 500, topic="u")
        assert cli(f"archive init {tmp_path}/one --adopt").code == 0
        archived(archiver(row, tmp_path / "one"))
        assert (told(row)["pinned"], told(row)["trouble"]) == (0, "")
    assert len(rows(tmp_path / "one", "u")) == 400
    assert cli(f"archive init {tmp_path}/nowhere --adopt").code == 3


def test_verify_finds_a_file_that_is_damaged_and_one_that_is_missing(tmp_path: Path) -> None:
    with node_with_archive() as row:
        produce(row, 900)
        archived(archiver(row, tmp_path))
    place = Place(str(tmp_path))
    assert list(check(place)) == []
    file = tmp_path / Named("t", 0, Span(101, 200)).path
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 4] ^= 1
    file.write_bytes(raw)
    (tmp_path / Named("t", 0, Span(301, 400)).path).unlink()

    found = cli(f"archive verify --at {tmp_path}")
    assert found.code == 1
    assert [(Path(each.file).name, each.what) for each in check(place)] == [
        (Span(101, 200).name, "damaged"),
        (Span(301, 400).name, "missing"),
    ]
    assert [line.split('"')[7] for line in found.lines] == ["damaged", "missing"]
    assert [(each.entries, each.missing) for each in holdings(place)] == [(700, 100)]


def test_a_file_of_other_rows_is_found_by_its_digest(tmp_path: Path) -> None:
    """Its pages are whole, and its footer is that of another file of as many rows."""
    for name in ("a", "b"):
        with node_with_archive() as row:
            produce(row, 200, 1 if name == "a" else 1_001)
            archived(archiver(row, tmp_path / name))
    a, b = (Place(str(tmp_path / name)) for name in ("a", "b"))
    found = Named("t", 0, Span(1, 100))

    assert footer_of(a, found).digest != footer_of(b, found).digest
    assert [each.what for each in compare(a, b)] == ["differs"]
    old, new = (str(verified(each, found).digest).encode() for each in (a, b))
    file = tmp_path / "a" / found.path
    file.write_bytes(file.read_bytes().replace(old, new))
    assert [each.what for each in compare(a, b)] == []
    assert [each.what for each in check(a)] == ["damaged"]


def test_a_copy_gets_what_it_lacks_and_nothing_that_is_damaged(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with node_with_archive() as row:
        found = archiver(row, source)
        produce(row, 500)
        archived(found)
        first = copy(Place(str(source)), Place(str(target)))
        produce(row, 300, 501)
        archived(found)
        done = cli(f"archive sync {source} {target}").rows[0]

        assert (first.files, done["files"], done["there"]) == (4, 3, 4)
        assert names(target) == names(source)
        assert rows(target) == rows(source)
        entries = [*row.pull("t", archive=str(target))]
        assert [entry.number for entry in entries] == [*range(1, 801)]
    (target / Named("t", 0, Span(1, 100)).path).unlink()
    file = source / Named("t", 0, Span(1, 100)).path
    file.write_bytes(file.read_bytes()[:-40])
    failed = cli(f"archive sync {source} {target}")
    assert (failed.code, len(names(target))) == (1, 7)
    assert "cannot be read" in failed.err


def test_a_copy_over_files_that_were_cut_elsewhere_is_refused(tmp_path: Path) -> None:
    for name, span in (("a", 100), ("b", 150)):
        with node_with_archive(archive=span) as row:
            produce(row, 500)
            archived(archiver(row, tmp_path / name))
    assert cli(f"archive init {tmp_path}/a --adopt").code == 0  # as if both were of one row
    with pytest.raises(Exists, match="has some of its entries"):
        copy(Place(str(tmp_path / "a")), Place(str(tmp_path / "b")))


def test_a_place_without_an_archive_is_told(tmp_path: Path) -> None:
    assert "there is no archive at" in cli(f"archive ls --at {tmp_path}").err
    with node_with_archive() as row:
        done = cli("archive ls", environ={"DUCKROW_URL": row_url(row)})
    assert (done.code, "--at PLACE" in done.err) == (3, True)
    assert cli(f"archive init {tmp_path}").code == 0
    assert cli(f"archive init {tmp_path}").code == 1
    assert cli(f"archive ls --at {tmp_path}").lines == []
    assert names(tmp_path) == [MARK]


@pytest.mark.parametrize("shared", [False, True], ids=["of its own each", "one for all"])
def test_three_nodes_write_the_same_files_with_the_same_rows(tmp_path: Path, shared: bool) -> None:
    with LocalCluster.launch(Plan(nodes=3, durability="write"), tmp_path / "cluster") as cluster:
        clients = [duckrow.connect(machine.url) for machine in cluster.machines]
        clients[0].create_topic("t", archive=SPAN, max_entries=SPAN, partitions=2)
        for turn in range(20):
            for at, row in enumerate(clients):
                produce(row, 20, 20 * turn, partition=at % 2)
        position = clients[0].barrier()
        places = []
        for at, row in enumerate(clients):
            assert row.barrier() >= position
            place = tmp_path / ("archive" if shared else f"archive{at}")
            found = archived(archiver(row, place, f"m{at + 1}"))
            assert told(row)["pinned"] == 0
            assert found.entries == 1_000
            assert found.files == (0 if shared and at else 10)
            places.append(Place(str(place)))
        for row in clients:
            row.close()
    assert [(each.partition, each.last) for each in holdings(places[0])] == [(0, 700), (1, 300)]
    for each in places:
        assert list(check(each)) == []
        assert list(compare(places[0], each)) == []
    if not shared:
        raw = [
            {name: (tmp_path / f"archive{at}" / name).read_bytes() for name in names_of(each)}
            for at, each in enumerate(places)
        ]
        assert raw[0] == raw[1] == raw[2]


def names_of(place: Place) -> list[str]:
    return [file.named.path for file in place.files()]


def test_an_archive_lies_wherever_fsspec_finds_it(tmp_path: Path) -> None:
    where = f"local://{tmp_path}/archive"
    (tmp_path / "archive").mkdir()
    with node_with_archive() as row:
        produce(row, 500)
        archived(archiver(row, where))
        assert len(row.pull("t", archive=where)) == 500
        assert [each.entries for each in holdings(Place(where))] == [400]
        asked = cli(f"archive query 'select count(*) n from t' --at {where}")
    assert asked.rows == [{"n": 400}]
    assert names(tmp_path / "archive")[0] == MARK


def test_a_file_of_another_topic_is_told_once(tmp_path: Path) -> None:
    """What an operator put together of the folders of two topics that had one name."""
    with node_with_archive() as row:
        produce(row, 500)
        found = archived(archiver(row, tmp_path))
        (tmp_path / "topic=t").rename(tmp_path / "old")
        row.delete_topic("t")
        row.create_topic("t", archive=SPAN, max_entries=SPAN)
        produce(row, 500)
        archived(found)
    first = f"partition=0/{Span(1, SPAN).name}"
    (tmp_path / "old" / first).replace(tmp_path / "topic=t" / first)

    wrong = [*check(Place(str(tmp_path)))]

    assert [(each.what, each.file) for each in wrong] == [
        ("another topic", f"topic=t/partition=0/{Span(101, 200).name}")
    ]


def test_a_query_sees_whole_files_while_others_are_written(tmp_path: Path) -> None:
    with node_with_archive(partitions=2) as row:
        found = archiver(row, tmp_path)
        produce(row, 500, partition=1)
        archived(found)
        aside = tmp_path / f"topic=t/partition=1/.{Span(401, 500).name}.m1.tmp"
        aside.write_bytes(b"PAR1 half of it")
        asked = cli(
            f'archive query \'select count(*) n, max("offset") last, "partition" from t '
            f"group by all' --at {tmp_path}"
        )
        one = cli(f"archive query 'select * from archive limit 1' --at {tmp_path}").rows[0]
    assert asked.rows == [{"n": 400, "last": 400, "partition": 1}]
    assert (one["offset"], one["value"], one["headers"], one["topic"]) == (
        1,
        f"{1:030}",
        None,
        "t",
    )


@pytest.mark.parametrize("scheme", ["", "local://"])
def test_a_query_sees_each_entry_once_after_a_compaction_that_was_killed(
    tmp_path: Path, scheme: str
) -> None:
    """The large file is there, and the small ones are not gone yet."""
    with node_with_archive() as row:
        produce(row, 500)
        archived(archiver(row, tmp_path))
        batches = row.pull("t", limit=2 * SPAN, archive=True).batches
        name = Named("t", 0, Span(1, 2 * SPAN))
        Writer(Place(str(tmp_path)), name, row.topic("t").id, "compaction").put(batches)
    asked = cli(f"archive query 'select count(*) n from t' --at {scheme}{tmp_path}")
    assert asked.rows == [{"n": 400}]


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("sum(n)", 3),
        ("cast(12.50 as decimal(4, 2))", "12.50"),
        ("cast('nan' as double)", "nan"),
        ("list(value order by n)", ["a", {"bytes_base64": "/w=="}]),
        ("list(struct_pack(v := value) order by n)", [{"v": "a"}, {"v_base64": "/w=="}]),
        ("map {1: [cast(1.5 as decimal(3, 1))]}", [[1, ["1.5"]]]),
        ("[cast('-inf' as double)]", ["-inf"]),
        ("[timestamp '2026-01-02 03:04:05']", ["2026-01-02T03:04:05Z"]),
        ("timestamp '2026-01-02 03:04:05'", "2026-01-02T03:04:05Z"),
        ("uuid '00000000-0000-0000-0000-000000000001'", "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_whatever_a_query_gives_has_its_form_in_json_wherever_the_machine_is(
    tmp_path: Path, east: None, sql: str, value: object
) -> None:
    with node_with_archive(archive=2, max_entries=1) as row:
        row.produce_many("t", [b"a", b"\xff", b"b"])
        archived(archiver(row, tmp_path))
    asked = f'select {sql} it from (select "offset" n, value from t)'
    assert cli(f"archive query {shlex.quote(asked)} --at {tmp_path}").rows[0] == {"it": value}


@pytest.mark.parametrize("sql", ["selec", "select x from t"])
def test_a_query_that_is_none_is_told_in_a_sentence(tmp_path: Path, sql: str) -> None:
    with node_with_archive() as row:
        produce(row, 200)
        archived(archiver(row, tmp_path))
    done = cli(f"archive query '{sql}' --at {tmp_path}")
    assert done.code == 1
    assert done.err.startswith("duckrow: duckdb: ")


@pytest.mark.parametrize("other", ["T", "Archive"])
def test_topics_that_differ_by_capitals_alone_keep_nobody_from_querying_the_archive(
    tmp_path: Path, other: str
) -> None:
    """They would be views of the same name, to DuckDB."""
    with node_with_archive() as row:
        row.create_topic(other, archive=SPAN, max_entries=SPAN)
        produce(row, 500)
        produce(row, 200, topic=other)
        archived(archiver(row, tmp_path))
    asked = cli(
        f"archive query 'select topic, count(*) n from archive group by all order by n' --at {tmp_path}"
    )
    assert asked.rows == [{"topic": other, "n": 100}, {"topic": "t", "n": 400}]


def test_once_tells_what_is_in_the_way(tmp_path: Path) -> None:
    with node_with_archive() as row:
        produce(row, 500)
        (tmp_path / "file").write_bytes(b"")
        place = tmp_path / "file" / "archive"
        done = cli(f"archive run --once --to {place}", environ={"DUCKROW_URL": row_url(row)})
        assert done.code == 3
        assert "cannot be used" in done.err
        assert told(row)["pinned"] == 400
