"""Companions: processes beside a node that are its clients, such as its archiver.

    node ready ──► started ──► it ends ──► started again, with a back-off
                      └── node stops, or dies: its stdin is closed, and it ends by itself

A companion has a session of its own, so that a Ctrl-C reaches the node alone, and writes its log where
the node writes its own.  It finds the node, and the token, in its environment.
"""

from __future__ import annotations

import logging
import os
import subprocess

import attrs
import trio

log = logging.getLogger("duckrow.companions")

RETRY_SECONDS_MIN = 0.2
RETRY_SECONDS_MAX = 30.0
STEADY_SECONDS = 60.0  # one that lived so long is started again at once
STOP_SECONDS = 10.0  # then it is killed


@attrs.frozen(kw_only=True)
class Companion:
    name: str
    command: tuple[str, ...]

    async def run(self, url: str, token: str) -> None:
        """Until cancelled; it has ended then."""
        environ = {**os.environ, "DUCKROW_URL": url, "DUCKROW_TOKEN": token}
        delay = 0.0
        while True:
            began = trio.current_time()
            try:
                await self._live(environ)
            except OSError as error:
                log.warning("companion_not_started name=%s error=%s", self.name, error)
            steady = trio.current_time() - began >= STEADY_SECONDS
            delay = 0.0 if steady else min(max(2 * delay, RETRY_SECONDS_MIN), RETRY_SECONDS_MAX)
            await trio.sleep(delay)

    async def _live(self, environ: dict[str, str]) -> None:
        """
        Raises:
            OSError: it could not be started: this machine has no memory left, say.
        """
        # Not trio's context manager: that would kill it.
        process = await trio.lowlevel.open_process(
            self.command, stdin=subprocess.PIPE, env=environ, start_new_session=True
        )
        log.info("companion_started name=%s pid=%d", self.name, process.pid)
        try:
            code = await process.wait()
        finally:
            with trio.CancelScope(shield=True):
                await self._end(process)
        log.warning("companion_ended name=%s code=%d", self.name, code)

    async def _end(self, process: trio.Process) -> None:
        assert process.stdin is not None
        await process.stdin.aclose()
        with trio.move_on_after(STOP_SECONDS):
            await process.wait()
        if process.returncode is None:
            log.warning("companion_killed name=%s pid=%d", self.name, process.pid)
            process.kill()
            await process.wait()
