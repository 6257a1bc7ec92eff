"""The simulated disk: what a process that dies leaves, and what outlives it."""

from __future__ import annotations

import pytest
import trio

from duckrow.node.env import Env
from sim.alone import Machine
from sim.clock import SimDeadlock
from sim.diskkit import write_synced
from sim.park import SimCrashed

# -- crash points -------------------------------------------------------------------------


async def five_operations(env: Env) -> str:
    file = await env.disk.open("log", create=True)  # 1
    file.write(0, [b"x" * 10])  # 2
    await file.sync()  # 3
    await env.disk.sync_names()  # 4
    file.truncate(5)  # 5
    assert await file.read(0, 10) == b"xxxxx"
    return "done"


@pytest.mark.parametrize(
    ("k", "durable"), [(1, []), (2, []), (3, []), (4, []), (5, ["log"]), (6, ["log"])]
)
def test_a_process_dies_just_before_the_operation_it_was_told(k: int, durable: list[str]) -> None:
    machine = Machine()
    machine.media.crash_before(k)

    if k <= 5:
        with pytest.raises(SimCrashed):
            machine.run(five_operations)
        assert machine.media.operations == k
    else:
        assert machine.run(five_operations) == "done"
    assert machine.media.paths(durable=True) == durable
    if k == 5:
        assert machine.media.content("log") == b"x" * 10


def test_a_write_in_flight_can_get_through_in_part() -> None:
    sizes = set()
    for seed in range(40):
        machine = Machine(seed)
        machine.media.crash_before(2, part=True)
        with pytest.raises(SimCrashed):
            machine.run(five_operations)
        sizes.add(len(machine.media.content("log")))

    assert sizes == set(range(11))


def test_the_dead_touch_nothing() -> None:
    machine = Machine()
    late: list[str] = []

    async def main(env: Env) -> None:
        file = await write_synced(env, "log", b"a")
        try:
            machine.media.kill()
            await trio.sleep(1)
        finally:
            with trio.CancelScope(shield=True):
                for call in (
                    lambda: file.write(0, [b"last words"]),
                    lambda: file.truncate(0),
                    file.hold,
                    file.close,
                    lambda: file.size,
                    env.disk.free,
                    lambda: env.disk.lock("lock"),
                ):
                    with pytest.raises(SimCrashed):
                        call()
                for wait in (
                    lambda: file.read(0, 1),
                    file.sync,
                    lambda: env.disk.open("new", create=True),
                    lambda: env.disk.rename("log", "new"),
                    lambda: env.disk.unlink("log"),
                    lambda: env.disk.folder("new"),
                    lambda: env.disk.reserve("new", 10),
                    lambda: env.disk.exists("log"),
                    env.disk.names,
                    env.disk.sync_names,
                ):
                    with pytest.raises(SimCrashed):
                        await wait()
                late.append("looked")

    machine.run(main)

    assert late == ["looked"]
    assert machine.media.paths() == ["log"]
    assert machine.media.content("log") == b"a"


# -- locks, held files, one machine -------------------------------------------------------------


def test_a_lock_dies_with_its_process() -> None:
    machine = Machine()

    async def main(env: Env) -> None:
        env.disk.lock("lock")
        with pytest.raises(BlockingIOError, match="held by process 10"):
            machine.media.disk().lock("lock")

    machine.run(main)
    machine.run(main)


def test_a_file_that_is_held_outlives_the_process_that_held_it_and_does_not_hold_up_the_next() -> (
    None
):
    machine = Machine()
    held = []

    async def first(env: Env) -> None:
        held.append((await write_synced(env, "log", b"abc")).hold())

    async def second(env: Env) -> None:
        file = await env.disk.open("log")
        file.write(3, [b"def"])
        file.truncate(5)

    machine.run(first)
    machine.run(second)

    assert held[0].read(0, 3) == b"abc"
    assert machine.media.content("log") == b"abcde"


def test_a_program_that_can_never_go_on_is_a_deadlock() -> None:
    with pytest.raises(SimDeadlock):
        Machine().run(lambda _env: trio.Event().wait())
