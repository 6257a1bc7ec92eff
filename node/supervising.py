"""The supervisor of a bridge: there is one beside this node, as long as the node runs.

    nobody has the lock     start it; when it ends, start it again, with a back-off
    somebody has it         a bridge lives on from a node that died: take it over, and wait for its end

A bridge has a session of its own, so that a Ctrl-C, or the end of a terminal, reaches the node alone,
which ends both in order.  It writes its log where the node writes its own.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import trio

from .errors import DiskFailed
from .locks import BRIDGE_LOCK, holder

log = logging.getLogger("duckrow.supervisor")

RETRY_SECONDS_MIN = 0.1
RETRY_SECONDS_MAX = 5.0
STEADY_SECONDS = 10.0  # one that lived so long is started again at once
LOOK_SECONDS = 0.1
STOP_SECONDS = 15.0  # then it is killed


class Supervisor:
    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self.pid = 0  # of the bridge; 0: there is none now
        self.starts = 0
        self.is_proven = False  # it has served its node: what ends it now may pass
        self._command, self._lock = [*command], folder / BRIDGE_LOCK
        self._send: Callable[[signal.Signals], object] | None = None  # to it, and to no later one
        self._told_to_end = 0  # the process; told twice, a bridge ends at once
        self._stop = trio.Event()
        self._is_late = False  # it was told to end long ago
        self._ended = trio.Event()

    async def run(self) -> None:
        """Until `stop`, also if it is cancelled: a bridge is never left alone by a node that lives.

        Raises:
            DiskFailed: the first bridge could not do its work at all; it said why in the log.
            OSError: it could not be started.
        """
        try:
            with trio.CancelScope(shield=True):
                await self._supervise()
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """Ends the bridge in order, which tells the other machines."""
        self._stop.set()
        self._end_in_order()
        with trio.move_on_after(STOP_SECONDS):
            await self._ended.wait()
        if not self._ended.is_set():
            self._is_late = True
            log.warning("bridge_killed pid=%d", self.pid)
            self._signal(signal.SIGKILL)
            await self._ended.wait()

    async def _supervise(self) -> None:
        delay = 0.0
        while not self._stop.is_set():
            began = trio.current_time()
            try:
                if holder(self._lock) is not None:
                    await self._adopt()
                else:
                    await self._start()
            except OSError as error:
                if not self.is_proven:
                    raise
                # This machine has no memory left, say: what the node has can be read all the same.
                log.warning("bridge_not_started error=%s", error)
            if not self._stop.is_set():
                steady = trio.current_time() - began >= STEADY_SECONDS
                delay = 0.0 if steady else min(max(2 * delay, RETRY_SECONDS_MIN), RETRY_SECONDS_MAX)
                with trio.move_on_after(delay):
                    await self._stop.wait()

    async def _start(self) -> None:
        self.starts += 1
        # Not trio's context manager: whoever cancels does not kill a bridge.
        process = await trio.lowlevel.open_process(
            self._command, stdin=subprocess.DEVNULL, start_new_session=True
        )
        self.pid, self._send = process.pid, process.send_signal
        log.info("bridge_started pid=%d", process.pid)
        try:
            if self._stop.is_set():
                self._end_in_order()
            code = await process.wait()
        finally:
            self.pid, self._send = 0, None
        if self._stop.is_set():
            return
        log.warning("bridge_ended code=%d", code)
        if code > 0 and not self.is_proven:
            raise DiskFailed(f"the bridge ended with exit code {code}; it says why above")

    async def _adopt(self) -> None:
        while True:
            pid = holder(self._lock)
            if pid is None:
                return
            fd = _watched(pid)
            if fd is not None and holder(self._lock) == pid:
                break
            if fd is not None:
                os.close(fd)
            if self._is_late:
                return  # it stands still, say, or is of another container: nobody here can end it
            # It has yet to say who it is: until then the number of the one before is there, or none.
            await trio.sleep(LOOK_SECONDS)
        self.pid, self._send = pid, partial(signal.pidfd_send_signal, fd)
        log.info("bridge_adopted pid=%d", pid)
        try:
            if self._stop.is_set():
                self._end_in_order()
            await trio.lowlevel.wait_readable(fd)
        finally:
            self.pid, self._send = 0, None
            os.close(fd)
        if not self._stop.is_set():
            log.warning("bridge_lost pid=%d", pid)

    def _end_in_order(self) -> None:
        if self.pid != self._told_to_end:
            self._told_to_end = self.pid
            self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        if self._send is not None:
            try:
                self._send(number)
            except ProcessLookupError:
                pass  # it has just ended


def _watched(pid: int) -> int | None:
    """What is readable when it has ended, of a process that is not a child of this one."""
    try:
        return os.pidfd_open(pid) if pid else None
    except ProcessLookupError:
        return None
