"""A row that ends before what its own snapshots and index files speak of has lost its end."""

from __future__ import annotations

from functools import partial

import attrs
import pytest
import trio

from duckrow.node import ended
from duckrow.node.alone import LoneKeeper, Options
from duckrow.node.env import Env
from duckrow.node.errors import Corrupt, DiskFailed
from duckrow.node.producer import Producer
from sim.alone import Machine
from sim.nodekit import SMALL, at_level, run, values
from sim.park import SimCrashed


@attrs.define
class Seen:
    broken: Corrupt | None
    position: int
    lineage: int
    values: list[bytes]
    next: int  # the number that a new entry got; 0: none


async def fill(node: LoneKeeper) -> None:
    """Entries 1 to 100, over five segments; a snapshot at position 40, and at 80."""
    producer = Producer(node)
    for number in range(1, 101):
        await producer.produce("t", [b"%d" % number + bytes(150)])
    await trio.sleep(10)


async def look(node: LoneKeeper) -> Seen:
    row = node.row
    there = [value.rstrip(b"\0") for value in await values(node, "t")]
    number = 0
    if row.broken is None:
        number = (await Producer(node).produce("t", [b"new"])).first
    view = row.store.view
    assert view is not None
    return Seen(row.broken, row.status().position, view.lineage, there, number)


async def unlink(env: Env, *, folder: str, names: list[str]) -> None:
    disk = await env.disk.folder(folder)
    for name in names:
        await disk.unlink(name)
    await disk.sync_names()


def lose(machine: Machine, folder: str, *names: str) -> None:
    machine.run(partial(unlink, folder=folder, names=list(names)))


def in_folder(machine: Machine, folder: str, ending: str = "") -> list[str]:
    paths = machine.media.paths()
    return [p.split("/")[1] for p in paths if p.startswith(folder) and p.endswith(ending)]


def filled(options: Options = SMALL) -> tuple[Machine, int]:
    machine = Machine(1)
    run(machine, fill, options)
    other = Machine(1)
    run(other, fill, options)
    return machine, run(other, look, options).lineage


def lose_last_segment(machine: Machine) -> None:
    """And every index file, so that nothing in the folder says that it was there."""
    lose(machine, "row", in_folder(machine, "row", ".seg")[-1], *in_folder(machine, "row", ".pos"))


@pytest.mark.parametrize("level", ["fsync", "write", "memory"])
def test_a_row_that_ends_before_its_snapshot_takes_nothing_more(level: str) -> None:
    options = at_level(level)
    machine, lineage = filled(options)
    snapshot = in_folder(machine, "state")[-1]
    lose_last_segment(machine)
    for _ in range(3):
        seen = run(machine, look, options)
        assert seen.broken is not None
        assert snapshot in str(seen.broken)
        assert f"ends at position {seen.position}, and had come to {int(snapshot[9:])}" in str(
            seen.broken
        )
        assert seen.values == [b"%d" % n for n in range(1, len(seen.values) + 1)]
        assert 80 < len(seen.values) < 100
        assert seen.lineage == lineage
        assert snapshot in in_folder(machine, "state"), "it is what proves that"


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_last_segments_that_are_gone_are_known_by_their_own_index(gone: int) -> None:
    """Also where the indexes of those before them were never written."""
    machine, _ = filled()
    segments, indexes = in_folder(machine, "row", ".seg"), in_folder(machine, "row", ".pos")
    lose(machine, "row", *segments[-gone:], *indexes[:-gone])
    lose(machine, "state", *in_folder(machine, "state"))
    for _ in range(2):
        why = str(run(machine, look).broken)
        assert f"{segments[-1]}: 0 bytes at 0 are damaged: the whole file" in why


@pytest.mark.parametrize("left", [(".pos",), (".pos", "state"), ("state",), ("numbers",)])
def test_a_row_whose_segments_are_all_gone_does_not_begin_anew(left: tuple[str, ...]) -> None:
    machine, _ = filled()
    lose(machine, "row", *in_folder(machine, "row", ".seg"))
    if ".pos" not in left:
        lose(machine, "row", *in_folder(machine, "row", ".pos"))
    for folder in ("state", "numbers"):
        if folder not in left:
            lose(machine, folder, *in_folder(machine, folder))
    before = machine.media.paths()

    for _ in range(2):
        with pytest.raises(Corrupt, match="speaks of"):
            run(machine, look)
        assert machine.media.paths() == before


def test_without_the_row_and_all_that_speaks_of_it_a_new_one_begins() -> None:
    machine, lineage = filled()
    for folder in ("row", "state", "numbers"):
        lose(machine, folder, *in_folder(machine, folder))

    seen = run(machine, look)

    assert (seen.broken, seen.next) == (None, 1)
    assert seen.lineage != lineage


def closed_when_full(level: str) -> tuple[Machine, Options]:
    """With the reserve gone, and not one free block."""
    machine, options = Machine(1), at_level(level)

    async def work(node: LoneKeeper) -> None:
        producer, media = Producer(node), machine.media
        for number in range(1, 11):
            await producer.produce("t", [b"%d" % number + bytes(150)])
        await trio.sleep(10)
        while await node.row.store.reserve.give_up(last=True):
            pass
        media.capacity = media.used

    run(machine, work, options)
    assert not in_folder(machine, "row", ".pos") and not in_folder(machine, "state")
    return machine, options


@pytest.mark.parametrize("level", ["fsync", "write", "memory"])
@pytest.mark.parametrize("left", [0.5, 0.9])
def test_a_row_closed_in_order_on_a_full_disk_without_a_reserve_has_its_end_written_down(
    level: str, left: float
) -> None:
    machine, options = closed_when_full(level)
    pages = machine.media.pages("row/00000001.seg")
    pages.truncate(int(pages.cache.size * left))
    for capacity in (machine.media.capacity, 1 << 40, 1 << 40):
        machine.media.capacity = capacity
        seen = run(machine, look, options)
        assert seen.broken is not None
        assert "had come to 11, as ended says" in str(seen.broken)


def test_a_row_that_was_closed_on_a_full_disk_goes_on_when_there_is_space() -> None:
    machine, options = closed_when_full("fsync")
    machine.media.capacity = 1 << 40
    for life in range(3):
        seen = run(machine, look, options)
        assert (seen.broken, seen.next) == (None, 11 + life)


@pytest.mark.parametrize("level", ["fsync", "write"])
@pytest.mark.parametrize("power", [False, True])
def test_killed_anywhere_while_it_is_closed_on_a_full_disk_a_row_is_whole(
    level: str, power: bool
) -> None:
    """Of what a close writes and gives up nothing makes the next start lose, or miss, anything."""
    options, crashed, step = at_level(level), True, 0
    while crashed:
        step += 1
        machine = Machine(step)

        async def work(node: LoneKeeper, machine: Machine = machine, step: int = step) -> None:
            producer = Producer(node)
            for number in range(1, 61):
                await producer.produce("t", [b"%d" % number + bytes(150)])
            await trio.sleep(10)
            machine.media.capacity = machine.media.used
            machine.media.crash_before(step, part=bool(step % 2))

        try:
            run(machine, work, options)
            crashed = False
        except SimCrashed:
            machine.media.power_loss() if power else machine.media.kill()
        machine.media.disarm()
        machine.media.capacity = 1 << 40

        for life in range(2):
            seen = run(machine, look, options)
            assert (seen.broken, seen.next) == (None, 61 + life), f"step {step}"
            assert seen.values[:60] == [b"%d" % number for number in range(1, 61)]
    assert step > 8


def test_a_note_of_where_the_row_ended_that_is_damaged_proves_nothing() -> None:
    """Whatever byte it is; and the whole row goes on."""
    length = len(closed_when_full("fsync")[0].media.content("row/ended").rstrip(b"\0"))
    for offset in range(length):
        machine, options = closed_when_full("fsync")
        machine.media.capacity = 1 << 40
        machine.media.flip("row/ended", offset)
        assert machine.run(noted) is None
        assert run(machine, look, options).next == 11


async def noted(env: Env) -> ended.Ended | None:
    return await ended.read(await env.disk.folder("row"))


def test_what_seems_torn_is_not_cut_off_before_it_is_known_that_the_row_had_come_further() -> None:
    """Not even where nothing in the row says that the end of the file was whole once."""
    machine, _ = filled()
    lose(machine, "row", *in_folder(machine, "row", ".pos"))
    last = "row/" + in_folder(machine, "row", ".seg")[-1]
    pages = machine.media.pages(last)
    content = machine.media.content(last)
    pages.truncate(400)
    pages.write(400, content[400:480])  # one bundle's beginning: it is torn, by all that it says

    seen = run(machine, look)

    assert seen.broken is not None and "and had come to" in str(seen.broken)
    assert machine.media.content(last) == content[:480]
    pages.write(0, content)
    assert len(run(machine, look).values) == 100


def test_a_snapshot_beyond_the_end_that_the_disk_does_not_give_proves_nothing_yet() -> None:
    machine, _ = filled()
    snapshots = in_folder(machine, "state")
    lose_last_segment(machine)
    machine.media.spoil(f"state/{snapshots[-1]}", 0)

    with pytest.raises(DiskFailed, match=f"the disk gives no {snapshots[-1]}"):
        run(machine, look)

    machine.media.pages(f"state/{snapshots[-1]}").bad.clear()
    assert run(machine, look).broken


def test_a_row_that_ends_before_its_index_of_numbers_takes_nothing_more() -> None:
    machine, _ = filled()
    lose(machine, "state", *in_folder(machine, "state"))
    last = in_folder(machine, "row", ".seg")[-2:]
    lose(machine, "row", *last, *in_folder(machine, "row", ".pos"))
    for _ in range(3):
        seen = run(machine, look)
        assert "numbers says" in str(seen.broken)
        assert 60 < len(seen.values) < 80


def test_an_index_of_numbers_is_written_about_durable_items_only() -> None:
    """Or what a loss of power took would be proven to be damage, or counted as there."""
    options = at_level("write")
    options = attrs.evolve(options, store=attrs.evolve(options.store, sync_seconds=1000.0))
    for seed in range(10):
        machine, made = Machine(seed), 0

        async def until_indexed(node: LoneKeeper, machine: Machine = machine) -> None:
            nonlocal made
            producer = Producer(node)
            while not node.numbers.installed:
                made += 1
                await producer.produce("t", [b"%d" % made + bytes(150)])
                await trio.sleep(0.01)
            machine.media.power_loss()
            await trio.sleep(1)

        with pytest.raises(SimCrashed):
            run(machine, until_indexed, options)

        seen = run(machine, look, options)
        assert seen.values == [b"%d" % n for n in range(1, made + 1)]


@pytest.mark.parametrize("level", ["write", "memory"])
def test_where_acknowledged_entries_may_be_lost_anyway_a_new_lineage_tells(level: str) -> None:
    options = at_level(level)
    machine, lineage = filled(options)
    proofs = in_folder(machine, "state")
    lose_last_segment(machine)
    machine.media.power_loss()

    seen = run(machine, look, options)

    assert seen.broken is None
    assert seen.lineage != lineage
    assert seen.next == len(seen.values) + 1
    assert proofs[-1] not in in_folder(machine, "state"), "it is of a row that is no more"
    for _ in range(3):
        run(machine, fill, options)
        again = run(machine, look, options)
        assert again.broken is None
        assert again.lineage == seen.lineage


def test_a_snapshot_of_another_lineage_proves_nothing() -> None:
    options = at_level("write")
    machine, _ = filled(options)
    paths = in_folder(machine, "state")
    stale = machine.media.content(f"state/{paths[-1]}")
    lose_last_segment(machine)
    machine.media.power_loss()
    seen = run(machine, look, options)

    async def put(env: Env) -> None:
        file = await (await env.disk.folder("state")).open(paths[-1], create=True)
        file.write(0, [stale])
        await file.sync()

    machine.run(put)
    assert run(machine, look, options).lineage == seen.lineage
    assert paths[-1] not in in_folder(machine, "state")


@pytest.mark.parametrize("how", ["zeros", "short"])
def test_a_snapshot_whose_place_in_the_row_is_damaged_is_not_used_and_the_rest_is_served(
    how: str,
) -> None:
    machine, _ = filled()
    last = "row/" + in_folder(machine, "row", ".seg")[-1]
    pages = machine.media.pages(last)
    if how == "zeros":
        pages.write(400, bytes(pages.cache.size - 400))
    else:
        pages.truncate(400)

    for _ in range(2):
        seen = run(machine, look)
        assert seen.broken is not None
        assert seen.values == [b"%d" % n for n in range(1, len(seen.values) + 1)]
        assert len(seen.values) > 80
