"""Index files on a disk that loses power at every step, fills up, fails and flips bits."""

from __future__ import annotations

import pytest

from core.library import Library
from duckrow.node.env import Env
from duckrow.node.errors import DiskFailed
from duckrow.node.numberfile import NumberFile, Row
from duckrow.node.numberfolder import NumberFolder
from duckrow.node.numbergrowing import restored
from duckrow.node.numbers import Numbers
from sim.alone import Machine
from sim.park import SimCrashed

STORE = b"u" * 16


def filled(segments: int = 3) -> Library:
    library = Library()
    library.create(partitions=2)
    for _ in range(segments):
        for n in range(20):
            library.add(count=2, partition=n % 2)
        library.seal()
    library.add(partition=0)
    return library


def rows(numbers: Numbers, library: Library) -> list[list[Row]]:
    topic = library.topic().id
    return [numbers.rows(topic, partition, 1, 1_000) for partition in range(2)]


async def write_all(env: Env, library: Library) -> None:
    folder = NumberFolder(await env.disk.folder("numbers"))
    while library.numbers.waiting() is not None:
        assert await folder.write(library.numbers)


async def load(env: Env, end: int = 1 << 40) -> tuple[list[NumberFile], list[str]]:
    folder = NumberFolder(await env.disk.folder("numbers"))
    return await folder.load(STORE, end), folder.refused


def restarted(
    machine: Machine, library: Library, chunks: list[tuple[str, bytes]], at: int
) -> Numbers:
    """The index after a restart with a snapshot, and a replay of what came after it."""
    files, _ = machine.run(load)
    numbers = Numbers(STORE)
    assert numbers.load([*files, *restored(chunks)], at) == []
    return numbers


def test_written_files_answer_as_the_memory_did() -> None:
    machine, library = Machine(), filled()
    before = rows(library.numbers, library)
    machine.run(lambda env: write_all(env, library))

    assert library.numbers.installed == [0, 1, 2]
    assert rows(library.numbers, library) == before
    assert machine.media.paths() == [f"numbers/{n:08d}.numbers" for n in range(3)]
    numbers = restarted(machine, library, list(library.numbers.capture()), library.state.position)
    assert rows(numbers, library) == before


@pytest.mark.parametrize("all_", [True, False], ids=["all", "one"])
def test_what_is_forgotten_does_not_come_back_after_a_loss_of_power(all_: bool) -> None:
    """It speaks of another row, and would be believed."""
    machine, library = Machine(), filled()

    async def forget(env: Env) -> None:
        await write_all(env, library)
        await env.disk.sync_names()
        folder = NumberFolder(await env.disk.folder("numbers"))
        await folder.clear() if all_ else await folder.forget(1)
        assert machine.media.paths(durable=True) == machine.media.paths()

    machine.run(forget)
    assert f"numbers/{1:08d}.numbers" not in machine.media.paths()


@pytest.mark.parametrize("power", [True, False])
def test_killed_anywhere_while_files_are_written_nothing_is_lost(power: bool) -> None:
    """The snapshot from before has what the files have not."""
    crashes = 0
    for step in range(1, 100):
        machine, library = Machine(step), filled()
        before = rows(library.numbers, library)
        chunks, at = list(library.numbers.capture()), library.state.position
        machine.media.crash_before(step, part=bool(step % 2))
        try:
            machine.run(lambda env, library=library: write_all(env, library))  # type: ignore[misc]
        except SimCrashed:
            crashes += 1
        else:
            break
        if power:
            machine.media.power_loss()
        numbers = restarted(machine, library, chunks, at)
        assert rows(numbers, library) == before
    assert crashes > 20


def test_a_full_disk_changes_nothing_and_is_tried_again() -> None:
    machine, library = Machine(), filled(1)
    before = rows(library.numbers, library)

    async def write(env: Env) -> bool:
        return await NumberFolder(await env.disk.folder("numbers")).write(library.numbers)

    machine.media.capacity = 0
    assert not machine.run(write)
    assert machine.media.paths() == []
    assert rows(library.numbers, library) == before
    machine.media.capacity = 1 << 30
    assert machine.run(write)
    assert rows(library.numbers, library) == before


@pytest.mark.parametrize("fault", ["write_eio", "sync_eio", "names_eio"])
def test_a_failing_disk_ends_the_process(fault: str) -> None:
    machine, library = Machine(), filled(1)
    setattr(machine.media, fault, 1)
    with pytest.raises(DiskFailed):
        machine.run(lambda env: write_all(env, library))


def test_a_damaged_directory_is_told_and_the_file_waits_for_being_written_again() -> None:
    machine, library = Machine(), filled()
    machine.run(lambda env: write_all(env, library))
    machine.media.flip(
        "numbers/00000001.numbers", len(machine.media.content("numbers/00000001.numbers")) - 30
    )

    files, refused = machine.run(load)
    assert [file.cover.segment for file in files] == [0, 2]
    assert len(refused) == 1
    assert refused[0].startswith("00000001.numbers: ")
    assert len(machine.media.paths()) == 3
    numbers = Numbers(STORE)
    lost = numbers.load([*files, *restored(library.numbers.capture())], library.state.position)
    assert lost == [(files[0].cover.upto, files[1].cover.after)]
    topic = library.topic()
    assert [numbers.hole(topic.id, partition, 21) for partition in range(2)] == [40, 40]


def test_a_directory_that_was_read_whole_stays_so_whatever_the_disk_gives_later() -> None:
    machine, library = Machine(), filled()
    machine.run(lambda env: write_all(env, library))
    name = "numbers/00000001.numbers"

    async def read_and_damage(env: Env) -> None:
        files, _ = await load(env)
        before = [list(column) for file in files for column in (file.lasts, file.sizes)]
        size = len(machine.media.content(name))
        for offset in range(size // 2, size):
            machine.media.flip(name, offset)
        assert before == [list(column) for file in files for column in (file.lasts, file.sizes)]

    machine.run(read_and_damage)


@pytest.mark.parametrize("name", ["00000001.numbers", "00000002.numbers"])
def test_files_of_another_store_or_of_a_row_that_ended_earlier_go(name: str) -> None:
    machine, library = Machine(), filled()
    machine.run(lambda env: write_all(env, library))
    files, _ = machine.run(load)
    end = files[int(name[:8])].cover.upto - 1

    kept, refused = machine.run(lambda env: load(env, end))
    assert len(kept) == int(name[:8])
    assert f"the row ends at {end}" in refused[0]
    assert machine.media.paths() == [f"numbers/{n:08d}.numbers" for n in range(len(kept))]

    async def stranger(env: Env) -> list[NumberFile]:
        folder = NumberFolder(await env.disk.folder("numbers"))
        assert len(await folder.load(b"v" * 16, 1 << 40, [b"w" * 16, STORE])) == len(kept)
        return await folder.load(b"v" * 16, 1 << 40, [b"w" * 16])

    assert machine.run(stranger) == []
    assert machine.media.paths() == []


def test_a_sealed_segment_that_only_a_snapshot_had_gets_its_file() -> None:
    machine, library = Machine(), filled()
    before = rows(library.numbers, library)
    chunks = list(library.numbers.capture())
    library.numbers = restarted(machine, library, chunks, library.state.position)
    machine.run(lambda env: write_all(env, library))

    assert machine.media.paths() == [f"numbers/{n:08d}.numbers" for n in range(3)]
    machine.media.power_loss()
    files, refused = machine.run(load)
    assert [file.cover for file in files] == [chunk.cover for chunk in restored(chunks)[:3]]
    assert refused == []
    assert rows(library.numbers, library) == before


def test_a_dropped_segment_has_no_file() -> None:
    machine, library = Machine(), filled()
    machine.run(lambda env: write_all(env, library))
    for partition in range(2):
        library.prune(20, partition=partition)

    async def drop(env: Env) -> None:
        folder = NumberFolder(await env.disk.folder("numbers"))
        await folder.drop(library.numbers, 0)

    machine.run(drop)
    assert machine.media.paths() == [f"numbers/{n:08d}.numbers" for n in (1, 2)]
    assert library.numbers.installed == [1, 2]
