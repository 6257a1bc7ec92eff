"""Reading through the archive: files, what the node keeps, and what is live, without a seam."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio

import duckrow
import duckrow.aio
import duckrow.trio
from clikit import duckrow as cli
from duckrow.node.archivenames import Span
from duckrow.node.archiveplace import Place
from duckrow.node.archivereading import Archive
from duckrow.node.errors import Corrupt, NotFound, Refused
from real.archivekit import SPAN, archived, archiver, names, node_with_archive, produce

Reads = Callable[[str, dict[str, Any]], list[int]]


def blocking(url: str, how: dict[str, Any]) -> list[int]:
    with duckrow.connect(url) as row:
        found: list[int] = []
        after: Any = 0
        while entries := row.pull("t", after, **how):
            found += [entry.number for entry in entries]
            after = entries.after
        return found


def with_trio(url: str, how: dict[str, Any]) -> list[int]:
    async def main() -> list[int]:
        async with duckrow.trio.connect(url) as row:
            found: list[int] = []
            after: Any = 0
            while entries := await row.pull("t", after, **how):
                found += [entry.number for entry in entries]
                after = entries.after
            return found

    return trio.run(main)


def with_asyncio(url: str, how: dict[str, Any]) -> list[int]:
    async def main() -> list[int]:
        async with duckrow.aio.connect(url) as row:
            found: list[int] = []
            after: Any = 0
            while entries := await row.pull("t", after, **how):
                found += [entry.number for entry in entries]
                after = entries.after
            return found

    return asyncio.run(main())


CLIENTS = pytest.mark.parametrize("reads", [blocking, with_trio, with_asyncio])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def url(place: Path) -> Iterator[str]:
    """300 entries in files, 600 that the node keeps for the archive, 150 live ones."""
    with duckrow.Node() as node, duckrow.connect(node.url) as row:
        row.create_topic("t", archive=SPAN, max_entries=SPAN)
        produce(row, 400)
        archived(archiver(row, place))
        produce(row, 650, 401)
        yield node.url


@CLIENTS
@pytest.mark.parametrize("limit", [7, 1_000])
def test_files_then_pins_then_live_entries_come_without_a_seam(
    reads: Reads, limit: int, url: str
) -> None:
    assert reads(url, {"archive": True, "limit": limit}) == [*range(1, 1_051)]
    assert reads(url, {"kept": True, "limit": limit}) == [*range(301, 1_051)]
    assert reads(url, {"limit": limit}) == [*range(901, 1_051)]


def test_entries_are_the_same_wherever_they_come_from(place: Path) -> None:
    with node_with_archive(archive=4, max_entries=4) as row:
        row.produce("t", b"\x00\xff", key="k", headers={"a": b"1", "b": b"\xff"})
        row.produce_many("t", ["x", "y", "z"], keys=[None, "y", None])
        row.produce_many("t", [b"%d" % n for n in range(8)])
        before = [*row.pull("t", kept=True)]
        archived(archiver(row, place))

        assert [*row.pull("t", archive=True)] == before
        assert [*row.pull("t", archive=str(place))] == before
        assert len(row.pull("t", kept=True)) == 4


def test_who_has_read_a_topic_reads_the_one_that_has_its_name_and_its_files_names_later(
    place: Path, tmp_path: Path
) -> None:
    def values(row: duckrow.Client) -> list[int]:
        found: list[int] = []
        after: Any = 0
        while entries := row.pull("t", after, archive=True):
            found += [int(entry.value) for entry in entries]
            after = entries.after
        return found

    with node_with_archive() as row:
        produce(row, 400)
        archived(archiver(row, place))
        assert values(row)[:2] == [1, 2]
        row.delete_topic("t")
        (place / "topic=t").rename(tmp_path / "away")
        row.create_topic("t", archive=SPAN, max_entries=SPAN)
        produce(row, 400, 10_001)
        archived(archiver(row, place))
        assert values(row) == [*range(10_001, 10_401)]


@pytest.mark.parametrize(
    ("after", "first"),
    [(0, 1), ("first", 1), (250, 251), (-1_000, 51), (-20, 1_031), ("last", None)],
    ids=str,
)
def test_a_reader_may_begin_anywhere(url: str, after: object, first: int | None) -> None:
    with duckrow.connect(url) as row:
        found = row.pull("t", after, archive=True, limit=5)
        wanted = [] if first is None else [*range(first, first + 5)]
        assert [entry.number for entry in found] == wanted


def test_a_reader_may_begin_at_a_time(place: Path) -> None:
    with node_with_archive() as row:
        times = []
        for number in range(1, 1_001, 50):
            produce(row, 50, number)
            times.append(row.pull("t", -1)[0].time)
        archived(archiver(row, place))
        at = datetime.fromtimestamp(times[3] / 1e6, UTC)
        wanted = next(e.number for e in row.pull("t", archive=True) if e.time >= times[3])

        found = row.pull("t", at, archive=True, limit=3)
        assert [entry.number for entry in found] == [*range(wanted, wanted + 3)]
        assert wanted < 900
        later = datetime.fromtimestamp(times[-1] / 1e6 + 60, UTC)
        assert not row.pull("t", later, archive=True)


def test_partitions_are_merged_in_row_order_through_the_archive(place: Path) -> None:
    with node_with_archive(partitions=3, archive=10, max_entries=10) as row:
        for number in range(1, 301):
            row.produce("t", b"%d" % number, partition=number * number % 3)
        archived(archiver(row, place))
        found: list[bytes] = []
        after: object = 0
        while entries := row.pull("t", after, archive=True, limit=37):
            found += [entry.value for entry in entries]
            after = entries.after

        kept = [entry.value for entry in row.pull("t", kept=True)]
        assert found == [b"%d" % number for number in range(1, 301)]
        assert len(kept) < 60
        last = [entry.value for entry in row.pull("t", -100, archive=True)]
        assert last == found[-100:]


def test_what_no_file_has_either_is_missing(place: Path, url: str) -> None:
    (place / "topic=t/partition=0" / Span(101, 200).name).unlink()
    with duckrow.connect(url) as row:
        first = row.pull("t", 0, archive=True)
        rest = row.pull("t", first.after, archive=True)
        then = row.pull("t", rest.after, archive=True)
    assert [(first[0].number, first[-1].number, first.missing)] == [(1, 100, 0)]
    assert (rest[0].number, rest.missing) == (201, 100)
    assert (then[0].number, then[-1].number, then.missing) == (rest[-1].number + 1, 1_050, 0)


def test_what_was_pruned_before_there_was_an_archive_is_missing(place: Path) -> None:
    with node_with_archive(archive=0, max_entries=23) as row:
        produce(row, 100)
        row.set_topic("t", archive=10)
        produce(row, 50, 101)
        archived(archiver(row, place))
        found = row.pull("t", 0, archive=True)
    assert (found.missing, found[0].number, found[-1].number) == (77, 78, 150)
    assert names(place)[1].endswith(Span(78, 80).name)


def test_a_pull_below_first_names_the_archive(place: Path, url: str) -> None:
    with duckrow.connect(url) as row:
        found = row.pull("t", 10)
        assert (found.missing, found.archive) == (890, str(place))
        assert row.pull("t", 900).archive == ""


def test_a_place_that_is_not_there_is_told(place: Path, url: str) -> None:
    place.rename(place.with_name("moved"))
    with duckrow.connect(url) as row:
        with pytest.raises(NotFound, match="no archive at"):
            row.pull("t", archive=True)
        moved = str(place.with_name("moved"))
        assert row.pull("t", archive=moved)[0].number == 1


def test_a_disk_that_goes_away_while_it_is_read_is_no_archive_without_entries(
    place: Path, url: str
) -> None:
    """Where it was mounted there is an empty folder."""
    with duckrow.connect(url) as row:
        first = row.pull("t", archive=True, limit=50)
        place.rename(place.with_name("away"))
        place.mkdir()
        with pytest.raises(NotFound, match="no archive at"):
            while first := row.pull("t", first.after, archive=True, limit=50):
                assert not first.missing
        place.rmdir()
        place.with_name("away").rename(place)
        assert row.pull("t", first.after, archive=True)[0].number == first[-1].number + 1


def test_a_damaged_file_is_read_by_the_same_client_once_a_whole_one_is_in_its_place(
    place: Path, url: str
) -> None:
    """As an archiver puts it there, or an operator who has a copy."""
    file = place / "topic=t/partition=0" / Span(101, 200).name
    whole = file.with_name("whole")
    whole.write_bytes(file.read_bytes())
    damaged = bytearray(whole.read_bytes())
    damaged[200:400] = bytes(200)
    file.write_bytes(damaged)
    with duckrow.connect(url) as row:
        for _ in range(2):
            with pytest.raises(Corrupt):
                row.pull("t", 100, archive=True)
        whole.rename(file)
        assert row.pull("t", 100, archive=True)[0].number == 101


def test_a_damaged_file_is_told_and_no_wrong_entry_is_given(place: Path) -> None:
    """A bit of every seventh byte; what is not told was of no consequence to the entries."""
    with node_with_archive() as row:
        row.produce_many(
            "t",
            [b"%d" % n for n in range(250)],
            keys=[b"%d" % (n % 7) for n in range(250)],
            headers=[[("h", b"v")]] * 250,
        )
        archived(archiver(row, place))
        topic_id = row.topic("t").id
    file = place / "topic=t/partition=0" / Span(1, 100).name
    raw = file.read_bytes()

    def read() -> list[duckrow.Entry]:
        found = Archive(Place(str(place))).run("t", topic_id, 0, Span(1, 100), 1_000, 1 << 20)
        return [entry for batch in found.batches for entry in batch]

    right, told = read(), 0
    for at in range(0, len(raw), 7):
        wrong = bytearray(raw)
        wrong[at] ^= 1 << at % 8
        file.write_bytes(wrong)
        try:
            assert read() in (right, []), f"byte {at}"
        except (Corrupt, Refused):
            told += 1
    assert len(right) == 100
    assert told > len(raw) / 7 / 3


@pytest.mark.parametrize("kind", ["blocking", "trio", "asyncio"])
def test_a_follow_goes_through_the_archive_and_on_with_what_is_new(kind: str, url: str) -> None:
    wanted = [*range(1, 1_061)]

    def more() -> None:
        with duckrow.connect(url) as row:
            produce(row, 10, 1_051)

    def one_by_one() -> list[int]:
        with duckrow.connect(url) as row:
            found = []
            for entry in row.follow("t", archive=True):
                found.append(entry.number)
                if entry.number == 1_050:
                    more()
                if entry.number == 1_060:
                    break
            return found

    async def asked(row: Any) -> list[int]:
        found = []
        async for entry in row.follow("t", archive=True):
            found.append(entry.number)
            if entry.number == 1_050:
                more()
            if entry.number == 1_060:
                break
        return found

    async def in_trio() -> list[int]:
        async with duckrow.trio.connect(url) as row:
            return await asked(row)

    async def in_asyncio() -> list[int]:
        async with duckrow.aio.connect(url) as row:
            return await asked(row)

    if kind == "blocking":
        assert one_by_one() == wanted
    elif kind == "trio":
        assert trio.run(in_trio) == wanted
    else:
        assert asyncio.run(in_asyncio()) == wanted


def test_a_follow_that_falls_behind_what_the_node_keeps_comes_back_through_the_archive(
    place: Path,
) -> None:
    with node_with_archive() as row:
        produce(row, 150)
        archived(archiver(row, place))
        with row:
            reader = row.follow("t", archive=True)
            found = [next(reader).number for _ in range(150)]
            produce(row, 2_000, 151)
            archived(archiver(row, place))
            found += [next(reader).number for _ in range(2_000)]
    assert found == [*range(1, 2_151)]


def test_the_command_line_reads_through_the_archive(place: Path, url: str) -> None:
    where = {"DUCKROW_URL": url}
    plain = cli("pull t --after 10 --max 1", environ=where)
    assert f"the archive is at {place}" in plain.err
    for words in ("--archive", f"--archive-at {place}"):
        done = cli(f"pull t --after 10 {words}", environ=where)
        assert [row["number"] for row in done.rows] == [*range(11, 1_051)]
        assert done.err == ""
    assert len(cli("follow t --after first --max 950 --archive", environ=where).rows) == 950
