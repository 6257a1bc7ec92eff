"""A node in a process of its own, for benchmarks: level write, and what it costs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .bench_figures import NoRoomError, Settings


class Node:
    def __init__(self, process: subprocess.Popen[bytes], path: Path, said: str) -> None:
        self._pid, self.path = process.pid, path
        port = re.search(r"tcp://127\.0\.0\.1:(\d+)", said)
        self.url = f"duck://127.0.0.1:{port[1]}" if port else f"duck+unix://{path}"

    def resident(self) -> int:
        pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        ticks = Path(f"/proc/{self._pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running_node(settings: Settings, *, tcp: bool = False) -> Iterator[Node]:
    """One that is ready; killed at the end.

    Raises:
        NoRoomError: it did not start.
    """
    with (
        tempfile.TemporaryDirectory(dir=settings.folder) as data,
        tempfile.TemporaryDirectory() as d,
    ):
        path = Path(d, "node.sock")
        words = ["--data", data, "--listen", f"unix:{path}", "--set", "store.durability=write"]
        if tcp:
            words += ["--listen", "tcp://127.0.0.1:0"]
        with subprocess.Popen(
            [sys.executable, "-m", "duckrow.tools.cli", "node", *words],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=subprocess.PIPE,
        ) as process:
            try:
                assert process.stderr is not None
                ready = next((line for line in process.stderr if b"ready" in line), None)
                if ready is None:
                    raise NoRoomError("the node did not start")
                yield Node(process, path, ready.decode())
            finally:
                process.send_signal(signal.SIGKILL)
