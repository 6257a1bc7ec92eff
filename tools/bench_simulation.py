"""The simulation: how fast it goes, and what group commit makes of 32 producers in it.

It lives with the tests, so these cases need a checkout, and run in processes of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import trio

from duckrow.node.alone import Options, open_node
from duckrow.node.keeper import Keeper
from duckrow.node.producer import Producer
from duckrow.node.realio import RealFile, real_env
from duckrow.node.storeoptions import FSYNC, StoreOptions

from .bench_figures import Figure, Rounds, Settings, at_least

ROOT = Path(__file__).resolve().parents[1]
PRODUCERS = 32
SYNC_SECONDS = 0.005

_GROUPED = f"""
import json
from sim.grouping import grouped
print(json.dumps([grouped(seed, producers={PRODUCERS}, sync_seconds={SYNC_SECONDS}).produces_per_sync
    for seed in range(5)]))
"""
_TOY = """
import json, time
from sim.toy import run
found = []
for seed in range(7):
    began = time.process_time()
    steps = run(seed, rounds=%d).steps
    found.append(steps / (time.process_time() - began))
print(json.dumps(found))
"""
_SCENARIO = """
import json
from sim.scenario import run_seed
found = [run_seed(seed) for seed in range(%d)]
print(json.dumps([(each.steps, each.cpu, each.simulated) for each in found]))
"""


def grouping(settings: Settings) -> Iterator[Figure]:
    settings.tell("fsync: simulated")
    yield Figure.of(
        f"level fsync, {PRODUCERS} producers, 5 ms a sync, simulated",
        Rounds.of(_simulated(_GROUPED)),
        "produces/sync",
        at_least(15),
    )
    settings.tell("fsync: this disk")
    each = settings.scaled(300, 10)
    produced, syncs, seconds = trio.run(_grouped_here, settings.folder, each)
    yield Figure(
        name=f"level fsync, {PRODUCERS} producers, this disk",
        measured=produced / syncs,
        unit="produces/sync",
        note=f"{syncs:,} syncs of {seconds / syncs * 1e3:.2g} ms, {produced / seconds:,.0f} produces/s",
    )


def speed(settings: Settings) -> Iterator[Figure]:
    settings.tell("simulation: the rig")
    yield Figure.of(
        "the rig alone: four hosts that talk, write and die",
        Rounds.of(_simulated(_TOY % settings.scaled(10, 1))),
        "steps/CPU s",
        at_least(60_000),
    )
    settings.tell("simulation: a node")
    found = _simulated(_SCENARIO % settings.scaled(12, 1))
    rates = [steps / cpu for steps, cpu, _ in found]
    simulated, cpu = sum(each[2] for each in found), sum(each[1] for each in found)
    yield Figure.of(
        "a node, its clients, faults, checks and history",
        Rounds.of(rates),
        "steps/CPU s",
        at_least(60_000),
        f"{simulated / cpu:.1f} simulated seconds a CPU second, {len(rates)} seeds",
    )


def _simulated(program: str) -> Any:
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the simulation ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout)


async def _grouped_here(folder: Path, each: int) -> tuple[int, int, float]:
    """Produces, syncs of the row, seconds."""
    syncs = 0
    sync = RealFile.sync

    async def counted(file: RealFile) -> None:
        nonlocal syncs
        syncs += 1
        await sync(file)

    async def produce(node: Keeper) -> None:
        producer = Producer(node)
        for _ in range(each):
            await producer.produce("topic", [bytes(100)])

    with tempfile.TemporaryDirectory(dir=folder) as name:
        options = Options(store=StoreOptions(level=FSYNC))
        async with open_node(real_env("bench", name), options) as node:
            with patch.object(RealFile, "sync", counted):
                began = trio.current_time()
                async with trio.open_nursery() as nursery:
                    for _ in range(PRODUCERS):
                        nursery.start_soon(produce, node)
                seconds = trio.current_time() - began
    return PRODUCERS * each, syncs, seconds
