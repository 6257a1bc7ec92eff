"""Processes beside a node: a machine that cannot start one ends neither the node nor the tries."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from duckrow.node import supervising
from duckrow.node.companions import Companion
from duckrow.node.locks import BRIDGE_LOCK, holder
from duckrow.node.supervising import Supervisor

BRIDGE = sys.executable, "-c", "import signal; signal.pause()"
LOCKED = """
import fcntl, os, signal, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(fd, fcntl.LOCK_EX)
os.write(fd, str(os.getpid()).encode())
signal.pause()
"""
COMPANION = sys.executable, "-c", "import sys; sys.stdin.read()"


class Starts:
    """Of processes; the first so many of them fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
        self.failing, self._open = failing, trio.lowlevel.open_process
        self.started = trio.Event()
        monkeypatch.setattr(trio.lowlevel, "open_process", self._start)

    async def _start(self, *args: Any, **more: Any) -> trio.Process:
        if self.failing:
            self.failing -= 1
            raise BlockingIOError("no memory for another process")
        process = await self._open(*args, **more)
        self.started.set()
        return process


def test_a_companion_that_cannot_be_started_is_started_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        starts = Starts(monkeypatch, failing=2)
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(Companion(name="archiver", command=COMPANION).run, "unix:", "")
                await starts.started.wait()
                nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_bridge_that_cannot_be_started_again_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        starts = Starts(monkeypatch, failing=2)
        supervisor = Supervisor(BRIDGE, tmp_path)
        supervisor.is_proven = True
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(supervisor.run)
                await starts.started.wait()
                await supervisor.stop()

    trio.run(main)


def test_a_first_bridge_that_cannot_be_started_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        Starts(monkeypatch, failing=1)
        with trio.fail_after(10):
            await Supervisor(BRIDGE, tmp_path).run()

    with pytest.raises(BlockingIOError, match="no memory"):
        trio.run(main)


def test_who_has_the_number_of_the_bridge_before_is_neither_waited_for_nor_told_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a moment the lock of a bridge tells the number of the one before, which was killed, or none."""

    async def main() -> None:
        lock = tmp_path / BRIDGE_LOCK
        other = await trio.lowlevel.open_process(BRIDGE)
        bridge = await trio.lowlevel.open_process((sys.executable, "-c", LOCKED, str(lock)))
        before = [0, other.pid, 0]
        monkeypatch.setattr(
            supervising, "holder", lambda path: before.pop(0) if before else holder(path)
        )
        with trio.fail_after(10):
            while holder(lock) != bridge.pid:
                await trio.sleep(0.01)
            supervisor = Supervisor(BRIDGE, tmp_path)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(supervisor.run)
                while supervisor.pid != bridge.pid:
                    assert supervisor.pid == 0
                    await trio.sleep(0.01)
                await supervisor.stop()
            assert await bridge.wait() == -signal.SIGTERM
        assert other.poll() is None
        assert supervisor.starts == 0
        other.kill()
        await other.wait()

    trio.run(main)


def test_a_node_ends_though_a_bridge_that_it_found_never_says_who_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paused before it had written its number, or that is one of another container."""
    monkeypatch.setattr(supervising, "STOP_SECONDS", 0.2)

    async def main() -> None:
        lock = tmp_path / BRIDGE_LOCK
        code = LOCKED.replace("os.getpid()", "''").replace("pause()", "sigtimedwait([], 5)")
        bridge = await trio.lowlevel.open_process((sys.executable, "-c", code, str(lock)))
        with trio.fail_after(10):
            while holder(lock) != 0:
                await trio.sleep(0.01)
            supervisor = Supervisor(BRIDGE, tmp_path)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(supervisor.run)
                await wait_all_tasks_blocked()
                await supervisor.stop()
            assert bridge.poll() is None
            assert supervisor.starts == 0
            bridge.kill()
            await bridge.wait()

    trio.run(main)
