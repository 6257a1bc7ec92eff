"""Appending: what the row store, and the whole node, leave of what the kernel can write.

The limit is `os.writev` of the very bytes that producers want to keep, one call a batch, into a
file of the same folder.  Ours adds a head, checksums, a place in the row, and the item; the node
also applies it, finds a place in its index, and answers.  What both left dirty is synced between
the turns: the disk is far slower than either, and not what is asked.  Both are CPU time of the
thread that writes, which on an idle machine is the time that passes; that is told in the note.

    row         store and order, as the node uses them; batches one by one, or 8 that came together
    node        8 tasks, each of which waits for its answer; the batches were made before
    producers   the same with `Producer.produce(values)`, so with making the batch of its values
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import trio

from duckrow.node import columns, makers
from duckrow.node.alone import Options, open_node
from duckrow.node.commands import PID_BYTES, Command
from duckrow.node.lonerow import LoneRow
from duckrow.node.producer import Producer
from duckrow.node.realio import real_env
from duckrow.node.rowstore import RowStore
from duckrow.node.storeoptions import WRITE, StoreOptions

from .bench_figures import Figure, Rounds, Settings, at_least, number, ratios

BATCH: Final = 1_000
VALUES: Final = [bytes(100)] * BATCH
BATCHES: Final = 240  # of a turn
TOGETHER: Final = 8
FAIR: Final = 16  # batches between two checkpoints, so that the sync gets its turn
TURNS: Final = 31
TURNS_MAX: Final = TURNS + 1  # the first one does not count
OPTIONS: Final = StoreOptions(level=WRITE)

Turn = Callable[[], Awaitable[None]]  # writes BATCHES batches


class Spent(NamedTuple):
    """Seconds of a turn."""

    cpu: float
    passed: float


def append(settings: Settings) -> Iterator[Figure]:
    turns = settings.scaled(TURNS, 3)
    for name, work, target in (
        ("row store alone, one batch at a time", _row(1), at_least(0.5)),
        (f"row store alone, {TOGETHER} batches that came together", _row(TOGETHER), at_least(0.5)),
        (f"whole node (keeper), {TOGETHER} batches in flight", _node, at_least(0.5)),
        (f"whole node, {TOGETHER} Producers, making batches of values", _producers, None),
    ):
        settings.tell(f"append: {name}")
        folder = settings.folder / "turns"
        ours, limit = trio.run(_in_turns, work, folder, turns)
        shutil.rmtree(folder)
        cpu, most = _rate([each.cpu for each in ours]), _rate([each.cpu for each in limit])
        passed = ratios([each.passed for each in limit], [each.passed for each in ours])
        yield Figure.of(
            name,
            ratios([each.cpu for each in limit], [each.cpu for each in ours]),
            "of os.writev",
            target,
            f"{number(cpu)} entries/CPU s, and {number(most)} by os.writev; "
            f"by the clock {passed.median:.2f} of it; {turns} turns",
        )


async def _in_turns(
    work: Callable[[Path], AsyncIterator[tuple[Turn, RowStore]]], folder: Path, turns: int
) -> tuple[list[Spent], list[Spent]]:
    """Ours and the limit's.  The first turn of each does not count."""
    ours, limit = [], []
    async with asynccontextmanager(work)(folder) as (turn, store):
        writev = _Writev(folder)
        for _ in range(turns + 1):
            cpu, passed = time.thread_time(), time.perf_counter()
            await turn()
            ours.append(Spent(time.thread_time() - cpu, time.perf_counter() - passed))
            await store.sync()
            limit.append(writev.turn())
        writev.close()
    return ours[1:], limit[1:]


def _rate(seconds: Sequence[float]) -> float:
    return BATCH * BATCHES / Rounds.of(seconds).median


def _row(together: int) -> Callable[[Path], AsyncIterator[tuple[Turn, RowStore]]]:
    async def work(folder: Path) -> AsyncIterator[tuple[Turn, RowStore]]:
        env = real_env("bench", folder)
        commands = _commands(bytes(PID_BYTES), 1, BATCHES)
        row = await LoneRow.open(env.disk, env, OPTIONS)

        async def turn() -> None:
            for start in range(0, BATCHES, together):
                row.submit(commands[start : start + together])
                await row.take()
                if start % FAIR == 0:
                    await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(row.run)
            await row.take()  # the mark of the first view
            yield turn, row.store
            nursery.cancel_scope.cancel()
        await row.close()

    return work


async def _node(folder: Path) -> AsyncIterator[tuple[Turn, RowStore]]:
    each = BATCHES // TOGETHER
    async with open_node(real_env("bench", folder), Options(store=OPTIONS)) as node:
        # All commands that there will be, so that a turn does not make any.
        lanes = [iter(_commands(node.fresh_pid(), 1, each * TURNS_MAX)) for _ in range(TOGETHER)]

        async def produce(commands: Iterator[Command]) -> None:
            for command in islice(commands, each):
                await node.order(command)

        async def turn() -> None:
            async with trio.open_nursery() as nursery:
                for commands in lanes:
                    nursery.start_soon(produce, commands)

        yield turn, node.row.store


async def _producers(folder: Path) -> AsyncIterator[tuple[Turn, RowStore]]:
    async with open_node(real_env("bench", folder), Options(store=OPTIONS)) as node:
        producers = [Producer(node) for _ in range(TOGETHER)]

        async def produce(producer: Producer) -> None:
            for _ in range(BATCHES // TOGETHER):
                await producer.produce("topic", VALUES)

        async def turn() -> None:
            async with trio.open_nursery() as nursery:
                for producer in producers:
                    nursery.start_soon(produce, producer)

        yield turn, node.row.store


class _Writev:
    """The limit: the bodies of the same commands."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "writev", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        body = columns.encode(VALUES)
        self._buffers = [[body] for _ in range(BATCHES)]

    def turn(self) -> Spent:
        write: Callable[..., int] = os.writev
        cpu, passed = time.thread_time(), time.perf_counter()
        for buffers in self._buffers:
            write(self._file, buffers)
        spent = Spent(time.thread_time() - cpu, time.perf_counter() - passed)
        os.fdatasync(self._file)
        return spent

    def close(self) -> None:
        os.close(self._file)


def _commands(pid: bytes, seq: int, count: int) -> list[Command]:
    body = columns.encode(VALUES)
    return [
        makers.produce(makers.Turn(pid, each, done=each - 1, time=each), "topic", body, BATCH)
        for each in range(seq, seq + count)
    ]
