"""A node in a process of its own, for benchmarks: what it costs, and how often it has synced."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .bench_figures import NoRoomError, Settings


class Node:
    def __init__(
        self, process: subprocess.Popen[bytes], path: Path, said: str, watched: str
    ) -> None:
        self._pid, self.path = process.pid, path
        port = re.search(r"tcp://127\.0\.0\.1:(\d+)", said)
        self.url = f"duck://127.0.0.1:{port[1]}" if port else f"duck+unix://{path}"
        self._watched = watched

    def resident(self) -> int:
        pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        ticks = Path(f"/proc/{self._pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    def syncs(self) -> int:
        """How often files were synced."""
        with urllib.request.urlopen(f"http://{self._watched}/metrics") as answer:
            text = answer.read().decode()
        found = re.search(r"^duckrow_sync_seconds_count (\d+)", text, re.MULTILINE)
        assert found, "the node does not count its syncs"
        return int(found[1])


@contextmanager
def running_node(settings: Settings, *, tcp: bool = False, level: str = "write") -> Iterator[Node]:
    """One that is ready; killed at the end.

    Raises:
        NoRoomError: it did not start.
    """
    with (
        tempfile.TemporaryDirectory(dir=settings.folder) as data,
        tempfile.TemporaryDirectory() as d,
    ):
        path = Path(d, "node.sock")
        words = ["--data", data, "--listen", f"unix:{path}"]
        words += ["--set", f"store.durability={level}", "--set", "http.listen=tcp://127.0.0.1:0"]
        if tcp:
            words += ["--listen", "tcp://127.0.0.1:0"]
        with subprocess.Popen(
            [sys.executable, "-m", "duckrow.tools.cli", "node", *words],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=subprocess.PIPE,
        ) as process:
            try:
                assert process.stderr is not None
                said: list[str] = []
                for line in process.stderr:
                    said.append(line.decode())
                    if " ready " in said[-1]:
                        break
                watched = re.search(r"watched address=tcp://(\S+)", "".join(said))
                if watched is None:
                    raise NoRoomError(f"the node did not start: {said[-1:]}")
                yield Node(process, path, said[-1], watched[1])
            finally:
                process.send_signal(signal.SIGKILL)
