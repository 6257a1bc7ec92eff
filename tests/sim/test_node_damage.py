"""A node whose files were damaged: whatever byte it was, nothing wrong is served, nothing is lost in
silence, no number is given twice, and what was not hit is there."""

from __future__ import annotations

import copy
import functools
import itertools
import re
from collections.abc import Callable

import attrs
import pytest
import trio

from duckrow.node.alone import LoneKeeper, Options, open_node
from duckrow.node.entries import entries_of
from duckrow.node.env import Env
from duckrow.node.errors import Damaged, DiskFailed
from duckrow.node.housekeeping import HousekeepingOptions
from duckrow.node.producer import Producer
from duckrow.node.reading import Pull
from sim.alone import Machine
from sim.disk import Media
from sim.nodekit import SMALL, run
from sim.park import SimCrashed

TINY = Options(
    store=attrs.evolve(SMALL.store, segment_bytes=4096, followable_bytes=4096, window_bytes=4096),
    housekeeping=HousekeepingOptions(
        snapshot_items=15, snapshot_bytes=16 * 1024, followable_bytes=4096
    ),
)
COUNT = 36
NEW = b"new"


async def fill(node: LoneKeeper) -> None:
    producer = Producer(node)
    for number in range(1, COUNT + 1):
        result = await producer.produce("t", [b"%d " % number + bytes(60)])
        assert result.first == number
    await trio.sleep(10)


@functools.cache
def _media(orderly: bool) -> Media:
    machine = Machine(1)

    async def main(env: Env) -> None:
        async with open_node(env, TINY) as node:
            await fill(node)
            if not orderly:
                machine.media.crash_before(1)

    if orderly:
        machine.run(main)
    else:
        with pytest.raises(SimCrashed):
            machine.run(main)
    machine.media.kill()
    return machine.media


def filled(*, orderly: bool) -> Machine:
    """Entries 1 to COUNT over three segments, with two snapshots and the index of two segments."""
    machine = Machine(1, media=copy.deepcopy(_media(orderly)))
    machine.now = 100.0
    return machine


@attrs.define
class Seen:
    values: dict[int, bytes]  # by number
    told: bool  # that something is damaged
    broken: bool  # the row takes nothing more
    next: int  # the number of a new entry; 0: none


async def look(node: LoneKeeper) -> Seen:
    store, row = node.row.store, node.row
    told = bool(store.holes or store.recovered.damages or row.broken)
    found: dict[int, bytes] = {}
    after = 0
    while True:
        try:
            entries = entries_of("t", await node.reader.pull(Pull("t", after, partition=0)))
        except Damaged as damaged:
            told, after = True, damaged.last
            continue
        if not entries:
            break
        found |= {entry.number: entry.value for entry in entries}
        after = entries[-1].number
    broken, number = row.broken is not None, 0
    if not broken:
        number = (await Producer(node).produce("t", [NEW])).first
    return Seen(found, told, broken, number)


def check(machine: Machine, what: str) -> list[Seen]:
    """Three lives of the node on that disk, none of them with a scrub."""
    lives: list[Seen] = []
    new: set[int] = set()
    for life in (1, 2, 3):
        try:
            seen = run(machine, look, TINY)
            for number, value in seen.values.items():
                expected = NEW if number in new else b"%d " % number + bytes(60)
                assert value == expected, f"entry {number}"
            missing = {*range(1, COUNT + 1), *new} - set(seen.values)
            assert not missing or seen.told, f"{missing} are lost, and nobody was told"
            if not seen.broken:
                assert seen.next > max(COUNT, *new, 0), "a number was given twice"
                new.add(seen.next)
        except BaseException as error:
            error.add_note(f"{what}, life {life}")
            raise
        lives.append(seen)
    return lives


def paths(*, orderly: bool) -> list[str]:
    """All files that have something in them."""
    media = _media(orderly)
    return [path for path in media.paths() if path not in ("row/lock", "row/reserve")]


def flip_each(step: int, first: int, *, orderly: bool, start: int = 0) -> None:
    """One bit of every `step`-th byte of every file, each in a copy of its own."""
    for path in paths(orderly=orderly):
        size = len(_media(orderly).content(path))
        for offset in range(first % step, size, step):
            machine = filled(orderly=orderly)
            machine.media.flip(path, offset, (offset + start) % 8)
            lives = check(machine, f"byte {offset} of {size} of {path}")
            # A flip hits one item; where its heads are hit, the row may end there.  The rows of a
            # segment in the index of numbers share a checksum.
            first_life = lives[0]
            assert first_life.broken or "numbers" in path or len(first_life.values) >= COUNT - 1


Damage = Callable[[Machine, str, int], None]


def cut(machine: Machine, path: str, at: int) -> None:
    machine.media.pages(path).truncate(at)


def zero(machine: Machine, path: str, at: int) -> None:
    pages = machine.media.pages(path)
    pages.write(at, bytes(pages.cache.size - at))


def spoil_each(how: Damage, step: int, first: int, *, orderly: bool) -> None:
    """Every file from every `step`-th byte on.

    But the newest segment after a kill: of what is not yet indexed, no file proves that it was there.
    """
    last = max(path for path in paths(orderly=orderly) if path.endswith(".seg"))
    for path in paths(orderly=orderly):
        if orderly or path != last:
            size = len(_media(orderly).content(path))
            for at in range(first % step, size, step):
                machine = filled(orderly=orderly)
                how(machine, path, at)
                check(machine, f"{how.__name__} {path}, of {size} bytes, at {at}")


ENDS = pytest.mark.parametrize("orderly", [True, False], ids=["closed", "killed"])


@ENDS
def test_a_flip_anywhere_spoils_one_entry_or_ends_the_row_and_is_told(orderly: bool) -> None:
    flip_each(149, 3, orderly=orderly)


@ENDS
@pytest.mark.parametrize("how", [cut, zero])
def test_a_file_that_ends_anywhere_is_no_torn_tail(how: Damage, orderly: bool) -> None:
    spoil_each(how, 311, 5, orderly=orderly)


@ENDS
def test_files_that_are_longer_or_shorter_by_some_bytes_are_read(orderly: bool) -> None:
    """Whatever the length: records begin at multiples of 8, files end anywhere."""
    for path in paths(orderly=orderly):
        for by in (1, 7, 24, 39):
            for filler in (b"\0", b"\6\1"):
                machine = filled(orderly=orderly)
                pages = machine.media.pages(path)
                pages.write(pages.cache.size, (filler * by)[:by])
                (first, *_) = check(machine, f"{path} with {by} bytes of {filler!r} behind it")
                assert len(first.values) == COUNT
            if orderly:
                machine = filled(orderly=orderly)
                pages = machine.media.pages(path)
                pages.truncate(pages.cache.size - by)
                check(machine, f"{path} without its last {by} bytes")


@pytest.mark.parametrize("by", range(1, 41))
def test_damage_in_a_file_of_any_length_is_told(by: int) -> None:
    for orderly in (True, False):
        last = max(path for path in paths(orderly=orderly) if path.endswith(".seg"))
        machine = filled(orderly=orderly)
        pages = machine.media.pages(last)
        machine.media.flip(last, pages.cache.size - 150, 3)
        pages.truncate(pages.cache.size - by if by % 2 else pages.cache.size + by)
        if orderly:
            check(machine, f"{last} of {pages.cache.size} bytes")
        else:
            run(machine, look, TINY)


def test_a_damaged_lock_file_is_only_a_lock() -> None:
    for content in (b"", b"\0" * 13, b"not a pid"):
        machine = filled(orderly=True)
        pages = machine.media.pages("row/lock")
        pages.truncate(0)
        pages.write(0, content)
        assert len(check(machine, "the lock")[0].values) == COUNT


@ENDS
def test_a_flipped_start_is_outlived_and_the_index_of_its_segment_too(orderly: bool) -> None:
    """The store takes a fresh uuid; the index of the old segment keeps that of its segment."""
    machine = filled(orderly=orderly)

    async def begin(env: Env) -> None:
        async with open_node(env, TINY):
            machine.media.crash_before(1)

    with pytest.raises(SimCrashed):
        machine.run(begin)
    machine.media.kill()
    last = max(path for path in machine.media.paths() if path.endswith(".seg"))
    machine.media.flip(last, machine.media.content(last).rindex(b"boot-"), 1)

    lives = check(machine, "START")

    assert [len(seen.values) for seen in lives] == [COUNT, COUNT + 1, COUNT + 2]
    assert [seen.broken for seen in lives] == [False] * 3


def test_a_node_whose_row_ended_closes_and_keeps_its_snapshots() -> None:
    machine = filled(orderly=True)
    last = max(path for path in paths(orderly=True) if path.endswith(".seg"))
    machine.media.pages(last).truncate(100)
    before = [path for path in machine.media.paths() if path.startswith("state/")]

    assert [seen.broken for seen in check(machine, last)] == [True] * 3
    assert [path for path in machine.media.paths() if path.startswith("state/")] == before


def test_a_lost_index_does_not_make_a_row_end_earlier_than_its_snapshots() -> None:
    """The replay would know all numbers again, and stop at damage that the snapshot has passed."""
    machine = filled(orderly=True)
    numbers = [path for path in machine.media.paths() if path.startswith("numbers/")]
    first = min(path for path in machine.media.paths() if path.endswith(".seg"))
    machine.media.flip(numbers[-1], len(machine.media.content(numbers[-1])) - 60)
    place = machine.media.content(first).index(b"t\x00", 600)  # a topic's name, in a head
    machine.media.flip(first, place)

    lives = check(machine, "index and heads")

    assert [seen.broken for seen in lives] == [False] * 3


def test_a_damaged_snapshot_is_none_of_the_two_that_are_kept() -> None:
    """It would push the only whole one out, and the row behind that may go with it."""
    machine = filled(orderly=True)
    older, newer = (path for path in machine.media.paths() if path.startswith("state/snapshot"))
    machine.media.flip(newer)

    assert run(machine, look, TINY).next == COUNT + 1

    kept = [path for path in machine.media.paths() if path.startswith("state/snapshot")]
    assert kept[0] == older and kept[1] > newer and len(kept) == 2
    machine.media.flip(kept[1])
    assert run(machine, look, TINY).next == COUNT + 2


@ENDS
def test_where_damage_ends_the_row_what_lies_behind_stays_and_may_be_read_again(
    orderly: bool,
) -> None:
    """For one life the newest segment is zeros, as on the wrong disk."""
    machine = filled(orderly=orderly)
    last = max(path for path in paths(orderly=orderly) if path.endswith(".seg"))
    content = machine.media.content(last)
    machine.media.pages(last).write(0, bytes(len(content)))
    assert run(machine, look, TINY).broken

    machine.media.pages(last).write(0, content)

    assert len(run(machine, look, TINY).values) == COUNT


def contents(machine: Machine) -> dict[str, bytes]:
    return {p: machine.media.content(p) for p in machine.media.paths() if p != "row/lock"}


@ENDS
@pytest.mark.parametrize("skipped", range(12))
def test_a_disk_that_gives_nothing_for_one_start_loses_nothing(
    orderly: bool, skipped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives the first so many reads, and the start fails, or did not need the others."""
    machine, reads = filled(orderly=orderly), itertools.count()
    before = contents(machine)

    def fails(fault: str) -> bool:
        return fault == "read_eio" and next(reads) >= skipped

    with monkeypatch.context() as patch:
        patch.setattr(machine.media, "fails", fails)
        try:
            run(machine, look, TINY)
        except DiskFailed as error:
            assert re.search("the disk does not give|gives no|reaches that far", str(error))
            assert contents(machine) == before
        else:
            assert skipped > 5, "a start needs more than that"

    seen = run(machine, look, TINY)
    assert list(seen.values) == [*range(1, seen.next)]
    assert (seen.next > COUNT, seen.told) == (True, False)


def test_a_last_segment_that_cannot_be_read_for_one_start_is_not_written_down_as_lost() -> None:
    machine = filled(orderly=False)
    last = max(path for path in paths(orderly=False) if path.endswith(".seg"))
    before, name = contents(machine), last.split("/")[1]
    machine.media.pages(last).sync(machine.media.pages(last).count)
    for offset in range(0, len(before[last]), 512):
        machine.media.spoil(last, offset)

    with pytest.raises(DiskFailed, match=f"does not give bytes 0 to 512 of {name}"):
        run(machine, look, TINY)
    assert contents(machine) == before

    machine.media.pages(last).bad.clear()
    seen = run(machine, look, TINY)
    assert (len(seen.values), seen.told, seen.next) == (COUNT, False, COUNT + 1)


def test_a_tail_that_cannot_be_read_is_not_cut() -> None:
    """The end of what was answered, for all that can be known; a copy with zeros there is damage."""
    machine = filled(orderly=False)
    last = max(path for path in paths(orderly=False) if path.endswith(".seg"))
    pages = machine.media.pages(last)
    pages.sync(pages.count)
    before, sector = contents(machine), (pages.cache.size - 1) // 512
    machine.media.spoil(last, sector * 512)

    with pytest.raises(DiskFailed, match=f"bytes {sector * 512:,} to {pages.cache.size:,} of"):
        run(machine, look, TINY)

    assert contents(machine) == before
    pages.bad.clear()
    assert len(run(machine, look, TINY).values) == COUNT


def test_a_segment_without_an_index_that_is_not_read_to_its_end_gets_none_by_this_life() -> None:
    """Or what was lost for one start would be lost for ever."""
    machine = filled(orderly=False)
    middle, index = "row/00000002.seg", "row/00000002.pos"
    assert index in contents(machine)

    async def unlink(env: Env) -> None:
        folder = await env.disk.folder("row")
        await folder.unlink("00000002.pos")
        await folder.sync_names()

    machine.run(unlink)
    for offset in range(1024, 2048, 512):
        machine.media.spoil(middle, offset)

    assert run(machine, look, TINY).told
    assert index not in contents(machine)

    machine.media.pages(middle).bad.clear()
    for _ in range(2):
        seen = run(machine, look, TINY)
        assert len(seen.values) >= COUNT and not seen.broken
    assert not seen.told
    assert index in contents(machine)


@pytest.mark.long
@pytest.mark.timeout(3600)
@ENDS
def test_a_flip_of_every_byte_is_told(orderly: bool) -> None:
    for start in range(2):
        flip_each(5, 11 + start, orderly=orderly, start=start)


@pytest.mark.long
@pytest.mark.timeout(3600)
@ENDS
@pytest.mark.parametrize("how", [cut, zero])
def test_no_length_of_a_file_is_taken_for_a_torn_tail(how: Damage, orderly: bool) -> None:
    spoil_each(how, 7, 2, orderly=orderly)
