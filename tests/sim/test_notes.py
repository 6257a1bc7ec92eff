"""Notes for the next start: that this row is a copy, and that a sync failed; also where a crash comes
between, or the disk does not take them."""

from __future__ import annotations

import errno

import attrs
import pytest

from duckrow.node import doubt, restored
from duckrow.node.env import Env
from duckrow.node.errors import DiskFailed
from duckrow.node.lonerow import LoneRow
from duckrow.node.storeoptions import FSYNC, LEVELS, MEMORY, WRITE, StoreOptions
from sim.alone import Machine
from sim.disk import SimDisk, SimFile
from sim.park import SimCrashed
from sim.storekit import small

from .test_rowstore_faults import answered, evict, lineage_of, run


@attrs.frozen
class Name:
    """Under which others know a row."""

    uuid: bytes
    formers: tuple[bytes, ...]
    lineage: int


def name_of(machine: Machine, options: StoreOptions) -> Name:
    found: list[Name] = []

    async def look(row: LoneRow) -> None:
        view = row.store.view
        assert view is not None
        assert row.store.position > 2, "what was in it stays"
        found.append(Name(row.store.uuid, row.store.formers, view.lineage))

    run(machine, options, look)
    return found[0]


async def leave_restored(env: Env) -> None:
    folder = await env.disk.folder("row")
    file = await folder.open(restored.NAME, create=True)
    await file.sync()
    await folder.sync_names()


def copied(seed: int, options: StoreOptions) -> tuple[Machine, Name]:
    """A row as a restore leaves it, and the name of the original."""
    machine = Machine(seed)
    run(machine, options, answered)
    before = name_of(machine, options)
    machine.run(leave_restored)
    return machine, before


@pytest.mark.parametrize("level", LEVELS)
def test_a_row_that_is_a_copy_takes_a_new_name_and_lineage_once(level: str) -> None:
    options = small(level=level)
    machine, before = copied(1, options)

    after = name_of(machine, options)

    assert after.lineage != before.lineage
    assert after.uuid != before.uuid
    assert after.formers == (before.uuid, *before.formers)
    assert "row/restored" not in machine.media.paths()
    assert name_of(machine, options) == after


@pytest.mark.parametrize("power", [False, True])
def test_no_crash_makes_a_copy_pass_for_the_original(power: bool) -> None:
    options, k, crashed = small(), 0, True
    while crashed:
        k += 1
        machine, before = copied(k, options)
        machine.media.crash_before(k)
        try:
            name_of(machine, options)
            crashed = False
        except SimCrashed:
            machine.media.power_loss() if power else machine.media.kill()
        machine.media.disarm()

        after = name_of(machine, options)

        assert after.lineage != before.lineage, f"crash {k}"
        assert after.uuid != before.uuid
        assert "row/restored" not in machine.media.paths()
    assert k > 5


def failed(machine: Machine, options: StoreOptions, *, syncs: int, names: int = 0) -> None:
    """A life that ends with a sync that fails, and with it what would tell of it."""

    async def work(row: LoneRow) -> None:
        machine.media.sync_eio, machine.media.names_eio = syncs, names
        await answered(row)

    with pytest.raises(DiskFailed, match="sync"):
        run(machine, options, work)
    machine.media.sync_eio = machine.media.names_eio = 0


@pytest.mark.parametrize("level", [WRITE, MEMORY])
@pytest.mark.parametrize(("syncs", "names"), [(2, 0), (1, 1)])
def test_a_note_that_cannot_be_synced_is_enough_while_the_machine_runs_on(
    level: str, syncs: int, names: int
) -> None:
    """A name needs no block of its own, and the kernel has it in its memory."""
    machine, options = Machine(1), small(level=level)
    before = lineage_of(machine, options)

    failed(machine, options, syncs=syncs, names=names)
    evict(machine)

    assert lineage_of(machine, options) != before
    assert "row/doubt" not in machine.media.paths()


@pytest.mark.parametrize("level", LEVELS)
def test_where_the_disk_does_not_take_the_note_the_failed_sync_is_told_all_the_same(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the kernel has made it read-only.  After a loss of power the boot tells, as ever."""
    machine, options = Machine(1), small(level=level)
    before = lineage_of(machine, options)
    take = SimDisk.open

    async def read_only(self: SimDisk, name: str, *, create: bool = False) -> SimFile:
        if name == doubt.NAME:
            raise OSError(errno.EROFS, "read-only")
        return await take(self, name, create=create)

    with monkeypatch.context() as patch:
        patch.setattr(SimDisk, "open", read_only)
        failed(machine, options, syncs=1)

    assert "row/doubt" not in machine.media.paths()
    machine.media.power_loss()
    assert (lineage_of(machine, options) == before) == (level == FSYNC)


async def nothing(_row: LoneRow) -> None:
    pass


@pytest.mark.parametrize("level", [WRITE, MEMORY])
def test_a_note_is_forgotten_only_when_the_new_lineage_is_durable(level: str) -> None:
    options, k, crashed = small(level=level), 0, True
    while crashed:
        k += 1
        machine = Machine(k)
        before = lineage_of(machine, options)
        failed(machine, options, syncs=1)
        evict(machine)
        machine.media.crash_before(k)
        try:
            run(machine, options, nothing)
            crashed = False
        except SimCrashed:
            machine.media.kill()
        machine.media.disarm()

        assert lineage_of(machine, options) != before, f"crash {k}"
        assert "row/doubt" not in machine.media.paths()
    assert k > 5
