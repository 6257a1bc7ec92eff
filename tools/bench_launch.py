"""Launching: ten machines in a chain, from the command until all of them order, and their end.

The seconds depend on what else the machine does; the CPU time that it takes hardly does, and two cores
cannot be quicker than half of that.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from duckrow.cluster.guard import children_of
from duckrow.cluster.processes import environment

from .bench_cluster import cpu_seconds
from .bench_figures import Figure, Settings, at_most

NODES = 10
TURNS = 3


def launch(settings: Settings) -> Iterator[Figure]:
    nodes = settings.scaled(NODES, 2)
    began, cpu, ended = list[float](), list[float](), list[float]()
    for turn in range(settings.scaled(TURNS, 1)):
        home = settings.folder / f"launch-{turn}"
        for found, value in zip((began, cpu, ended), _launched(home, nodes), strict=True):
            found.append(value)
        settings.tell(f"launch: {turn + 1}")
    yield Figure(
        name=f"{nodes} machines in a chain order, from the command on",
        measured=median(began),
        unit="s",
        target=at_most(10),
    )
    yield Figure(
        name="CPU time of all that",
        measured=median(cpu),
        unit="s",
        note=f"{2 * nodes} processes, the guard and the command",
    )
    yield Figure(
        name="all of it has ended and nothing is left, from Ctrl-C on",
        measured=median(ended),
        unit="s",
    )


def _launched(home: Path, nodes: int) -> tuple[float, float, float]:
    words = [sys.executable, "-m", "duckrow.tools.cli", "cluster", "up", "--nodes", str(nodes)]
    start = time.monotonic()
    with subprocess.Popen(
        [*words, "--dir", str(home), "-o", "jsonl"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as launcher:
        assert launcher.stdout is not None
        for _ in range(nodes):
            assert launcher.stdout.readline(), "it did not start"
        took = time.monotonic() - start
        pids = [launcher.pid]
        for pid in pids:
            pids += children_of(pid)
        cpu, stop = sum(map(cpu_seconds, pids)), time.monotonic()
        os.kill(launcher.pid, signal.SIGINT)
    assert launcher.returncode == 0, "it did not end in order"
    assert not home.exists(), "something is left"
    return took, cpu, time.monotonic() - stop
