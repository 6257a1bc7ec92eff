"""How a node is left: whatever ends it, its files are closed and its lock is free."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from duckrow.node import makers
from duckrow.node.alone import open_node
from duckrow.node.env import Env
from duckrow.node.errors import Corrupt, DiskFailed
from duckrow.node.keeper import Keeper
from duckrow.node.producer import Producer
from duckrow.node.rowstore import RowStore

from .alone import Machine
from .nodekit import SMALL, Owner, run, values
from .park import leaves

Work = Callable[[Keeper], Awaitable[None]]


async def fill(node: Keeper) -> None:
    producer = Producer(node)
    for number in range(100):
        await producer.produce("t", [b"%d " % number + bytes(150)])


def left(machine: Machine, work: Work, *, at_open: Callable[[], None] = lambda: None) -> list[str]:
    """Names of the errors that came out of a node; it must not have kept anything."""
    names: list[str] = []

    async def main(env: Env) -> None:
        at_open()
        try:
            async with open_node(env, SMALL) as node:
                await work(node)
        except (DiskFailed, Corrupt, BaseExceptionGroup) as error:
            names.extend(type(leaf).__name__ for leaf in leaves(error))
        assert machine.media.open_files == 0
        assert machine.media.locked == []

    machine.run(main)
    return names


def is_clean(machine: Machine) -> bool:
    """Whether the last life has ended in order: nothing was applied again in the next one."""
    seen: list[bool] = []

    async def look(env: Env) -> None:
        before = [path for path in machine.media.paths() if path.startswith("state/snapshot")]
        newest = int(before[-1].rsplit("-")[-1]) if before else 0
        async with open_node(env, SMALL) as node:
            # One item has come since: the mark of the next view.
            seen.append(node.state.position == newest + 1 and node.row.store.recovered.records <= 2)
            assert (await values(node, "t"))[:100] == [
                b"%d " % number + bytes(150) for number in range(100)
            ]

    machine.run(look)
    return seen[0]


async def nothing(_node: Keeper) -> None:
    pass


def test_a_block_that_comes_to_its_end_ends_in_order() -> None:
    machine = Machine()
    assert left(machine, fill) == []
    assert is_clean(machine)


def test_names_that_a_dead_process_gave_are_durable_once_the_next_one_relies_on_them() -> None:
    machine = Machine()
    names = [f"{folder}/left" for folder in ("row", "state", "numbers")]

    async def name_and_die(env: Env) -> None:
        for path in names:
            folder, name = path.split("/")
            (await (await env.disk.folder(folder)).open(name, create=True)).close()

    assert left(machine, fill) == []
    machine.run(name_and_die)
    assert {*names}.isdisjoint(machine.media.paths(durable=True))

    async def look(_node: Keeper) -> None:
        assert {*names} <= {*machine.media.paths(durable=True)}

    assert left(machine, look) == []


def test_where_the_digest_of_the_row_cannot_be_read_the_next_snapshot_is_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, asked = Machine(), list[int]()
    digest_of = RowStore.digest_of

    async def unreadable_first(store: RowStore, position: int) -> bytes:
        asked.append(position)
        if len(asked) == 1:
            raise Corrupt("no record says the digest of the row there")
        return await digest_of(store, position)

    monkeypatch.setattr(RowStore, "digest_of", unreadable_first)
    assert left(machine, fill) == []
    assert len(asked) > 1
    assert is_clean(machine)


def test_a_block_that_raises_leaves_it_as_a_kill_would() -> None:
    machine = Machine()

    async def work(node: Keeper) -> None:
        await fill(node)
        raise ValueError("the user's")

    assert left(machine, work) == ["ValueError"]
    assert not is_clean(machine)


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_cancelled_node_ends_in_order(seconds: int) -> None:
    machine = Machine()

    async def main(env: Env) -> None:
        with trio.CancelScope() as scope:
            async with open_node(env, SMALL) as node:
                await fill(node)
                scope.cancel()
                await trio.sleep(seconds)
        assert machine.media.open_files == 0
        assert machine.media.locked == []

    machine.run(main)
    assert is_clean(machine)


def test_a_cancellation_in_the_middle_of_anything_loses_nothing() -> None:
    for waits in range(1, 60, 3):
        machine = Machine(waits)

        async def main(env: Env, machine: Machine = machine, waits: int = waits) -> int:
            acknowledged = 0
            with trio.CancelScope() as scope:
                async with open_node(env, SMALL) as node:
                    producer = Producer(node)
                    cancel_after(machine, waits, scope)
                    while True:
                        await producer.produce("t", [b"%d" % acknowledged + bytes(500)])
                        acknowledged += 1
            assert machine.media.open_files == 0
            assert machine.media.locked == []
            return acknowledged

        acknowledged = machine.run(main)
        found = run(machine, lambda node: values(node, "t"))
        assert len(found) in (acknowledged, acknowledged + 1)


def test_a_failed_disk_ends_it_and_frees_everything() -> None:
    """L1."""
    machine = Machine()

    async def work(node: Keeper) -> None:
        await fill(node)
        machine.media.sync_eio = 1
        await fill(node)

    assert "DiskFailed" in left(machine, work)
    assert not is_clean(machine)


def test_what_fails_at_the_orderly_end_frees_everything_too() -> None:
    machine = Machine()

    async def work(node: Keeper) -> None:
        await fill(node)
        await trio.sleep(1)
        machine.media.sync_eio = 1

    assert left(machine, work) == [DiskFailed.__name__]


def cancel_after(machine: Machine, waits: int, scope: trio.CancelScope) -> None:
    """Cancels when the disk is waited for the n-th time from now."""
    before = machine.media.wait
    left = [waits]

    async def wait(*args: object, **named: bool) -> None:
        left[0] -= 1
        if left[0] == 0:
            scope.cancel()
        await before(*args, **named)  # type: ignore[arg-type]

    machine.media.wait = wait  # type: ignore[method-assign, assignment]


def test_wherever_an_opening_is_cancelled_nothing_stays_open() -> None:
    machine = Machine()
    run(machine, fill)
    original = machine.media.wait
    waits, opened = 0, [False]
    while not opened[0]:
        waits += 1

        async def main(env: Env, waits: int = waits) -> None:
            with trio.CancelScope() as scope:
                cancel_after(machine, waits, scope)
                async with open_node(env, SMALL):
                    opened[0] = not scope.cancel_called
            assert machine.media.open_files == 0
            assert machine.media.locked == []

        machine.run(main)
        machine.media.wait = original  # type: ignore[method-assign]

    assert waits > 20
    assert len(run(machine, lambda node: values(node, "t"))) == 100


@pytest.mark.parametrize("fault", ["sync_eio", "write_eio", "names_eio"])
def test_an_opening_that_fails_frees_everything(fault: str) -> None:
    machine = Machine()
    run(machine, fill)
    assert "DiskFailed" in left(machine, nothing, at_open=lambda: setattr(machine.media, fault, 1))


def test_an_opening_that_cannot_make_the_state_frees_everything() -> None:
    machine = Machine()

    async def limited(node: Keeper) -> None:
        await Owner(node).order(makers.create, "t", {"max_entries": 5})
        for _ in range(3):
            await fill(node)

    run(machine, limited)
    for path in machine.media.paths():
        if path.startswith("state/"):
            machine.media.flip(path)
    assert left(machine, nothing) == ["StatelessError"]
