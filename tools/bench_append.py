"""Appending: what the row store and the keeper leave of what the kernel can write.

The limit is `os.writev` of the very bytes that producers want to keep, one call a batch, into a
file of the same folder.  Ours adds a head, checksums, a place in the row, and the item.  What both
left dirty is synced between the turns: the disk is far slower than either, and not what is asked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import trio

from duckrow.node import columns, makers
from duckrow.node.alone import Options, open_node
from duckrow.node.commands import PID_BYTES, Command
from duckrow.node.lonerow import LoneRow
from duckrow.node.producer import Producer
from duckrow.node.realio import real_env
from duckrow.node.storeoptions import WRITE, StoreOptions

from .bench_figures import Figure, Settings, at_least

BATCH = 1_000
VALUE_BYTES = 100
BATCHES_A_TURN = 240
FAIR = 16  # batches between two checkpoints, so that the sync gets its turn
OPTIONS = StoreOptions(level=WRITE)


def append(settings: Settings) -> Iterator[Figure]:
    turns = 7 if settings.quick else 31
    for at_once in (1, 8):
        settings.tell(f"append, {at_once} at a time")
        ours, limit = trio.run(_row_turns, settings.folder / f"row-{at_once}", turns, at_once)
        come = "one at a time" if at_once == 1 else f"{at_once} together"
        yield Figure(
            name=f"row of one, level write, batches of {BATCH:,} that come {come}",
            measured=median(ours),
            unit="entries/s",
            limit=median(limit),
            limit_name="os.writev",
            ratio=median([a / b for a, b in zip(ours, limit, strict=True)]),
            goal=at_least(0.5, of_ratio=True),
        )
    settings.tell("append, the whole node")
    ours, limit = trio.run(_node_turns, settings.folder / "node", turns)
    yield Figure(
        name=f"whole node, 8 producers, batches of {BATCH:,}, encoding included",
        measured=median(ours),
        unit="entries/s",
        limit=median(limit),
        limit_name="os.writev",
        ratio=median([a / b for a, b in zip(ours, limit, strict=True)]),
    )


async def _row_turns(folder: Path, turns: int, at_once: int) -> tuple[list[float], list[float]]:
    env = real_env("bench", folder)
    commands = _commands()
    row = await LoneRow.open(env.disk, env, OPTIONS)
    writev = _Writev(folder, commands)
    ours, limit = [], []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(row.run)
        await row.take()  # the mark of the first view
        for turn in range(turns + 1):
            began = time.perf_counter()
            for start in range(0, BATCHES_A_TURN, at_once):
                row.submit(commands[start : start + at_once])
                await row.take()
                if start % FAIR == 0:
                    await trio.lowlevel.checkpoint()
            spent = time.perf_counter() - began
            await row.store.sync()
            other = writev.turn()
            if turn:
                ours.append(BATCHES_A_TURN * BATCH / spent)
                limit.append(other)
        nursery.cancel_scope.cancel()
    await row.close()
    return ours, limit


async def _node_turns(folder: Path, turns: int) -> tuple[list[float], list[float]]:
    env = real_env("bench", folder)
    writev = _Writev(folder, _commands())
    values = [bytes(VALUE_BYTES)] * BATCH
    producers = 8
    ours, limit = [], []

    async def produce(producer: Producer) -> None:
        for _ in range(BATCHES_A_TURN // producers):
            await producer.produce("topic", values)

    async with open_node(env, Options(store=OPTIONS)) as node:
        for turn in range(turns + 1):
            began = time.perf_counter()
            async with trio.open_nursery() as nursery:
                for _ in range(producers):
                    nursery.start_soon(produce, Producer(node))
            spent = time.perf_counter() - began
            await node.row.store.sync()
            other = writev.turn()
            if turn:
                ours.append(BATCHES_A_TURN // producers * producers * BATCH / spent)
                limit.append(other)
    return ours, limit


class _Writev:
    """The limit: the bodies of the same commands."""

    def __init__(self, folder: Path, commands: list[Command]) -> None:
        self._file = os.open(folder / "writev", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        self._buffers = [[command.body] for command in commands]

    def turn(self) -> float:
        """Entries a second."""
        write: Callable[..., int] = os.writev
        began = time.perf_counter()
        for buffers in self._buffers:
            write(self._file, buffers)
        spent = time.perf_counter() - began
        os.fdatasync(self._file)
        return len(self._buffers) * BATCH / spent


def _commands() -> list[Command]:
    body = columns.encode([bytes(VALUE_BYTES)] * BATCH)
    pid = bytes(PID_BYTES)
    return [
        makers.produce(makers.Turn(pid, seq, done=seq - 1, time=seq), "topic", body, BATCH)
        for seq in range(1, BATCHES_A_TURN + 1)
    ]
