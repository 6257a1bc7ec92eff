"""One machine of a local cluster: its folder, and the two processes that may run for it.

Which processes these are is read from their lock files whenever it is asked, since they come and go
by themselves: a node starts its bridge again.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
from collections.abc import Collection
from pathlib import Path
from threading import Event
from typing import Final, Self

import attrs

from duckrow.bridge.refusals import NOTE, note
from duckrow.node.errors import Conflict, Timeout
from duckrow.node.locks import BRIDGE_LOCK, NODE_LOCK, holder

from .asking import LOOK_SECONDS, until
from .wholetext import write_whole

NODE, BRIDGE = "node", "bridge"
LOCKS: Final = {NODE: NODE_LOCK, BRIDGE: BRIDGE_LOCK}
LOOKS: Final = 50  # until a process has written its number
LOG_LINES: Final = 12  # of its end, where something is wrong


@attrs.frozen
class Machine:
    id: int
    name: str
    url: str
    home: Path

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.home / "log"

    @property
    def cluster_file(self) -> Path:
        return self.home / "cluster.toml"

    @property
    def config_file(self) -> Path:
        """There is none, unless something has to be said in it."""
        return self.home / "duckrow.toml"

    def pid(self, process: str) -> int:
        """Of its node or its bridge; 0: there is none."""
        for _ in range(LOOKS):
            found = holder(self.data / LOCKS[process])
            if found != 0:
                return found or 0
            Event().wait(LOOK_SECONDS)  # it is about to write its number
        return 0

    def pids(self) -> dict[str, int]:
        """The node first: it would start its bridge again."""
        return {each: pid for each in LOCKS if (pid := self.pid(each))}

    def look(self) -> tuple[dict[str, int], bool]:
        """Its processes, and whether one of them stands still."""
        return self.pids(), self.is_paused

    @property
    def is_paused(self) -> bool:
        return any(_state(pid) == "T" for pid in self.pids().values())

    def stands_still(self, *processes: str) -> bool:
        """All of those that run; the signal takes a moment."""
        wanted = processes or tuple(LOCKS)
        return all(_state(pid) in "TXZ" for each, pid in self.pids().items() if each in wanted)

    def signal(self, number: signal.Signals, *processes: str) -> None:
        """To those that run."""
        for process in processes or LOCKS:
            with self.watched(process) as watched:
                watched.signal(number)

    def watched(self, process: str = NODE) -> Watched:
        """The one that has the lock; if there is none, one that has ended."""
        while True:
            pid = self.pid(process)
            found = Watched(pid)
            if self.pid(process) == pid:
                return found
            found.close()  # it ended just now, and its number may be that of another one

    def kill(self, *processes: str, seconds: float) -> None:
        """SIGKILL; they are gone when this returns.

        Raises:
            Timeout: the kernel did not end them.
        """
        for process in processes or LOCKS:
            with self.watched(process) as watched:
                watched.signal(signal.SIGKILL)
                watched.wait(seconds, f"{process} {self.name}")

    def stop(self, *, seconds: float) -> None:
        """In order, by the node, which ends its bridge; one that is alone ends by itself.

        Raises:
            Timeout: it takes longer.
        """
        self.resume()  # the bridge as well, or its node would wait for it
        for process in LOCKS:
            with self.watched(process) as watched:
                watched.signal(signal.SIGTERM)
                watched.wait(seconds, f"{process} {self.name}")

    def pause(self, *processes: str, seconds: float) -> None:
        """SIGSTOP; they do nothing more when this returns.

        Raises:
            Timeout: the kernel did not stop them.
        """
        self.signal(signal.SIGSTOP, *processes)
        until(
            lambda: self.stands_still(*processes),
            seconds,
            lambda: f"{self.name} does not stand still",
        )

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def refuse(self, names: Collection[str]) -> None:
        """Its bridge has no link with these, whenever it starts; one that runs has to be told, too."""
        if not names:
            (self.data / NOTE).unlink(missing_ok=True)
            return
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(self.data / NOTE, note(names))

    def wipe(self) -> None:
        """Its disk is gone.

        Raises:
            Conflict: it runs.
        """
        if self.pids():
            raise Conflict(f"{self.name} runs: stop or kill it before its disk is taken away")
        if self.data.exists():
            shutil.rmtree(self.data)

    def last_words(self, count: int = LOG_LINES) -> str:
        """The end of its log."""
        try:
            lines = self.log.read_text("utf-8", "replace").splitlines()
        except OSError:
            return "it has written no log"
        return "\n".join(lines[-count:])


class Watched:
    """A process, told from any later one with its number."""

    def __init__(self, pid: int) -> None:
        """0: it has ended."""
        self._fd = -1
        if pid:
            try:
                self._fd = os.pidfd_open(pid)
            except ProcessLookupError:
                pass  # as if it were 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def signal(self, number: signal.Signals) -> None:
        """Unless it has ended."""
        if self._fd >= 0:
            try:
                signal.pidfd_send_signal(self._fd, number)
            except ProcessLookupError:
                pass  # just now

    def wait(self, seconds: float, what: str) -> None:
        """Until it has ended.

        Raises:
            Timeout.
        """
        if self._fd >= 0 and not select.select([self._fd], [], [], seconds)[0]:
            raise Timeout(f"{what} did not end within {seconds:g} s")


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""
