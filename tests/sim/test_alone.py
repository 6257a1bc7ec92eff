"""A node alone through its lives: restarts, lost and damaged files, dead segments, crash points."""

import attrs
import pytest
import trio

from duckrow.node import makers
from duckrow.node.alone import LoneKeeper, open_node
from duckrow.node.capture import state_hash
from duckrow.node.effects import Result
from duckrow.node.env import Env
from duckrow.node.errors import Conflict, Corrupt, DiskFailed, DuckrowError
from duckrow.node.producer import Producer

from .alone import Machine
from .nodekit import SMALL, Owner, at_level, run, values
from .park import SimCrashed


async def fill(node: LoneKeeper, count: int = 120, topic: str = "t") -> Result:
    producer = Producer(node)
    for number in range(count):
        result = await producer.produce(topic, [b"%s %d " % (topic.encode(), number) + bytes(150)])
    return result


def numbers_of(found: list[bytes]) -> list[int]:
    return [int(value.split(b" ")[1]) for value in found]


async def look(node: LoneKeeper) -> tuple[bytes, int, list[int]]:
    return state_hash(node.state), node.state.position, numbers_of(await values(node, "t"))


def files(machine: Machine, folder: str) -> list[str]:
    return [path for path in machine.media.paths() if path.startswith(folder)]


@pytest.mark.parametrize("end", ["in order", "by a kill", "by a power loss"])
def test_a_restart_brings_back_the_same_state(end: str) -> None:
    machine = Machine()
    before: list[object] = []

    async def first(env: Env) -> None:
        async with open_node(env, SMALL) as node:
            await fill(node)
            before.append((state_hash(node.state), node.state.position))
            if end != "in order":
                machine.media.crash_before(1)

    if end == "in order":
        machine.run(first)
    else:
        with pytest.raises(SimCrashed):
            machine.run(first)
    if end == "by a power loss":
        machine.media.power_loss()

    async def second(node: LoneKeeper) -> None:
        # One item has come since: the mark of the next view.
        assert node.state.position == before[0][1] + 1  # type: ignore[index]
        assert numbers_of(await values(node, "t")) == list(range(120))

    run(machine, second)


def test_after_an_orderly_end_hardly_anything_is_looked_at_again() -> None:
    machine = Machine()
    run(machine, fill)

    async def second(node: LoneKeeper) -> int:
        return node.row.store.recovered.records

    assert run(machine, second) <= 2


def test_a_damaged_snapshot_is_passed_over_for_the_older_one() -> None:
    machine = Machine()
    run(machine, fill)
    before = run(machine, look)
    newest = files(machine, "state/snapshot")[-1]
    machine.media.flip(newest)

    after = run(machine, look)

    assert after[2] == before[2]


@pytest.mark.parametrize("which", [-1, -2])
def test_a_damaged_snapshot_is_not_one_of_the_two_that_are_kept(which: int) -> None:
    machine = Machine()

    async def first(node: LoneKeeper) -> None:
        await Owner(node).order(makers.create, "t", {"max_entries": 5})
        await fill(node, 100)

    run(machine, first)
    before = files(machine, "state/snapshot")
    damaged = before[which]
    (good,) = set(before) - {damaged}
    machine.media.flip(damaged)

    async def second(node: LoneKeeper) -> None:
        await fill(node, 45)
        await trio.sleep(5)
        kept = files(machine, "state/snapshot")
        assert good in kept
        assert len(kept) == 2, "the damaged one is of no use, and goes"
        machine.media.flip(kept[-1])
        machine.media.crash_before(1)
        await fill(node, 1)

    with pytest.raises(SimCrashed):
        run(machine, second)
    assert run(machine, look)[2] == [40, 41, 42, 43, 44]


def test_without_any_snapshot_the_state_is_made_from_the_whole_row() -> None:
    machine = Machine()
    run(machine, fill)
    for path in files(machine, "state/snapshot"):
        machine.media.flip(path)

    assert run(machine, look)[2] == list(range(120))


def test_without_a_snapshot_and_without_the_old_row_the_node_says_what_is_missing() -> None:
    machine = Machine()

    async def first(node: LoneKeeper) -> None:
        await Owner(node).order(makers.create, "t", {"max_entries": 5})
        await fill(node, 300)
        assert node.row.store.floor > 1

    run(machine, first)
    for path in files(machine, "state/snapshot"):
        machine.media.flip(path)

    with pytest.raises(Corrupt, match="no snapshot of the state reaches that far: snapshot-"):
        run(machine, look)


def test_snapshots_that_the_disk_does_not_give_are_no_damage_another_start_may_read_them() -> None:
    machine = Machine()

    async def first(node: LoneKeeper) -> None:
        await Owner(node).order(makers.create, "t", {"max_entries": 5})
        await fill(node, 300)

    run(machine, first)
    snapshots = files(machine, "state/snapshot")
    for path in snapshots:
        machine.media.spoil(path, 0)

    with pytest.raises(DiskFailed, match="no snapshot of the state reaches that far: snapshot-"):
        run(machine, look)
    assert files(machine, "state/snapshot") == snapshots


def test_a_snapshot_of_another_store_is_not_believed() -> None:
    machine, other = Machine(1), Machine(2)
    run(machine, fill)
    run(other, lambda node: fill(node, 200))
    foreign = files(other, "state/snapshot")[-1]

    async def smuggle(env: Env) -> None:
        folder = await env.disk.folder("state")
        file = await folder.open("snapshot-00000000000000000100", create=True)
        file.write(0, [other.media.content(foreign)])
        await file.sync()
        await folder.sync_names()

    machine.run(smuggle)

    assert run(machine, look)[2] == list(range(120))


def test_what_a_user_has_put_beside_the_files_of_a_node_is_left_alone() -> None:
    machine = Machine()
    run(machine, fill)
    copies = ("snapshot-old", "snapshot-00000000000000000100.bak", "old.numbers", "1.numbers~")

    async def copy(env: Env) -> None:
        for name in ("row", "state", "numbers"):
            folder = await env.disk.folder(name)
            for each in copies:
                (await folder.open(each, create=True)).write(0, [b"mine"])
            await folder.sync_names()

    machine.run(copy)

    assert run(machine, look)[2] == list(range(120))
    for name in ("row", "state", "numbers"):
        assert {f"{name}/{each}" for each in copies} <= {*files(machine, f"{name}/")}


def test_a_damaged_index_file_is_made_again_from_the_row() -> None:
    machine = Machine()
    run(machine, fill)
    for path in files(machine, "numbers/"):
        size = len(machine.media.content(path))
        machine.media.flip(path, size - 1)

    assert run(machine, look)[2] == list(range(120))


def test_a_lost_index_is_made_again_from_the_row() -> None:
    machine = Machine()
    run(machine, fill)

    async def lose(env: Env) -> None:
        folder = await env.disk.folder("numbers")
        for name in await folder.names():
            await folder.unlink(name)
        await folder.sync_names()

    machine.run(lose)

    assert run(machine, look)[2] == list(range(120))


def test_two_nodes_do_not_share_a_folder() -> None:
    async def main(env: Env) -> None:
        async with open_node(env, SMALL):
            with pytest.raises(Conflict, match="process"):
                async with open_node(env, SMALL):
                    pass

    Machine().run(main)


def test_what_was_pruned_gives_its_disk_back() -> None:
    machine = Machine()

    async def work(node: LoneKeeper) -> None:
        await Owner(node).order(makers.create, "t", {"max_entries": 10})
        await fill(node, 1000)
        await trio.sleep(1)
        assert len(files(machine, "row/")) < 16
        assert numbers_of(await values(node, "t")) == list(range(990, 1000))

    run(machine, work)
    assert run(machine, look)[2] == list(range(990, 1000))


def test_a_topic_that_is_kept_does_not_keep_the_others_garbage() -> None:
    machine = Machine()
    options = attrs.evolve(
        SMALL,
        store=attrs.evolve(SMALL.store, segment_bytes=64 * 1024, followable_bytes=64 * 1024),
        housekeeping=attrs.evolve(SMALL.housekeeping, followable_bytes=64 * 1024),
    )

    async def work(node: LoneKeeper) -> None:
        await Owner(node).order(makers.create, "t", {"max_entries": 10})
        kept, passing = Producer(node), Producer(node)
        for number in range(20):
            await kept.produce("kept", [b"kept %d" % number])
            for _ in range(50):
                await passing.produce("t", [bytes(1000)])
        await trio.sleep(5)
        assert machine.media.used < 600_000, "of more than a million bytes that were written"
        assert numbers_of(await values(node, "kept")) == list(range(20))

    run(machine, work, options)
    assert len(run(machine, lambda node: values(node, "kept"), options)) == 20


def test_a_damaged_body_is_told_and_everything_else_is_served() -> None:
    machine = Machine()
    run(machine, fill)
    segment = files(machine, "row/00000001.seg")[0]
    at = machine.media.content(segment).index(b"t 7 ")
    machine.media.flip(segment, at)

    async def second(node: LoneKeeper) -> None:
        with pytest.raises(DuckrowError, match="8"):
            await values(node, "t")
        assert (await fill(node, 1)).first == 121

    run(machine, second)


async def crash_life(node: LoneKeeper, acknowledged: list[int], first: int) -> None:
    """Everything that touches the disk: produces, seals, index files, snapshots, dropping."""
    if node.state.topic("t") is None:
        await Owner(node).order(makers.create, "t", {"max_entries": 30})
    producer = Producer(node)
    for number in range(first, first + 60):
        await producer.produce("t", [b"t %d " % number + bytes(300)])
        acknowledged.append(number)
        await producer.produce("kept", [b"kept %d" % number])


def crash_and_look(level: str, k: int, power: bool) -> bool:
    """True: the process died; otherwise its life was too short for operation `k`."""
    machine = Machine(seed=k)
    options = at_level(level)
    acknowledged: list[int] = []
    run(machine, lambda node: crash_life(node, acknowledged, 0), options)
    machine.media.crash_before(k, part=k % 2 == 0)
    died = False
    try:
        run(machine, lambda node: crash_life(node, acknowledged, 60), options)
    except SimCrashed:
        died = True
    machine.media.disarm()
    if power:
        machine.media.power_loss()

    async def check(node: LoneKeeper) -> None:
        kept = numbers_of(await values(node, "kept"))
        found = numbers_of(await values(node, "t"))
        last = acknowledged[-1]
        assert kept in (list(range(last)), list(range(last + 1)), list(range(last + 2)))
        assert found[-1] in (last, last + 1)
        assert found == list(range(found[-1] - 29, found[-1] + 1))
        assert (await fill(node, 1)).count == 1

    run(machine, check, options)
    run(machine, lambda node: values(node, "t"), options)
    return died


@pytest.mark.parametrize(("level", "power"), [("fsync", True), ("fsync", False), ("write", False)])
def test_whatever_operation_the_process_dies_before_nothing_acknowledged_is_lost(
    level: str, power: bool
) -> None:
    k, step = 1, 7
    while crash_and_look(level, k, power):
        k += step


@pytest.mark.long
@pytest.mark.parametrize(("level", "power"), [("fsync", True), ("fsync", False), ("write", False)])
def test_every_single_crash_point_of_a_life(level: str, power: bool) -> None:
    k = 1
    while crash_and_look(level, k, power):
        k += 1
