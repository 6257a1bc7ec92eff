"""The processes of a cluster: a guard (guard.py), and what it is asked to start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from duckrow.node.errors import NotFound, Refused

from .asking import ask

GUARD_SOCKET: Final = "guard.sock"


class Processes:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def guard(self, *, leash: bool, owned: ExitStack) -> None:
        """
        `leash`: all of them end when this process does, or when `owned` is closed.

        Raises:
            Refused.
        """
        words = [sys.executable, "-m", "duckrow.cluster.guard", GUARD_SOCKET]
        (self.folder / GUARD_SOCKET).unlink(missing_ok=True)
        process = subprocess.Popen(
            [*words, *(["--leash"] if leash else [])],
            cwd=self.folder,
            env=environment(),
            stdin=subprocess.PIPE if leash else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if leash:
            owned.enter_context(process)  # closes its pipe, which ends it, and waits for that
        assert process.stdout is not None
        if not process.stdout.readline():
            raise Refused(f"the guard of the cluster in {self.folder} did not start")
        if not leash:
            process.stdout.close()
            process.returncode = 0  # nobody waits for it: it is to stay

    def run(self, words: Sequence[str], log: Path) -> int:
        """A program of Python, or one with its whole path; its process.

        Raises:
            NotFound: the guard is gone.
            Refused: it cannot be started.
        """
        answer = ask(self.folder, GUARD_SOCKET, {"start": [*words], "log": str(log)})
        if "error" in answer:
            raise Refused(f"{' '.join(words)}: {answer['error']}")
        return int(answer["pid"])

    def end(self) -> None:
        """Nothing of them is left."""
        try:
            ask(self.folder, GUARD_SOCKET, {"end": True})
        except NotFound:
            pass  # it has ended


def python(module: str, *words: str) -> list[str]:
    return [sys.executable, "-m", module, *words]


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def environment() -> dict[str, str]:
    """For a Python that finds duckrow where this one has."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
