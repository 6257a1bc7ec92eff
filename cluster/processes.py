"""The processes of a cluster: a guard (guard.py), and what it is asked to start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from duckrow.node.errors import Conflict, NotFound, Refused

from .asking import ask
from .guard import SOCKET as GUARD_SOCKET

END_SECONDS: Final = 60.0  # of the guard, which may have to remove much


class Processes:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def guard(self, owned: ExitStack) -> subprocess.Popen[bytes]:
        """All that it starts ends when this process does, or when `owned` is closed, unless it stays.

        Raises:
            Conflict: the folder has one already.
            Refused: the folder cannot be had.
        """
        process = subprocess.Popen(
            python("duckrow.cluster.guard", str(self.folder)),
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        owned.enter_context(process)  # closes its pipe, which ends it, and waits for that
        assert process.stdout is not None
        match process.stdout.readline().decode().strip().partition(" "):
            case "ready", *_:
                return process
            case "taken", *_:
                raise Conflict(
                    f"a cluster runs in {self.folder}: end it with `duckrow cluster down --dir "
                    f"{self.folder}`, or choose another folder with --dir"
                )
            case _, _, why:
                raise Refused(f"no cluster can be in {self.folder}: {why or 'the guard has ended'}")

    def own(self, names: Sequence[str], mounts: Sequence[str] = ()) -> None:
        """These are removed from the folder at the end, and what is mounted there is let go before."""
        self._ask(own=[*names], mounts=[*mounts])

    def stay(self, guard: subprocess.Popen[bytes] | None = None) -> None:
        """They go on when whoever has started them ends, which may be this process, with that guard."""
        self._ask(stay=True)
        if guard is not None:
            self.leave(guard)

    @staticmethod
    def leave(guard: subprocess.Popen[bytes]) -> None:
        """Nobody waits for its end."""
        assert guard.stdin is not None
        assert guard.stdout is not None
        guard.stdin.close()
        guard.stdout.close()
        guard.returncode = 0

    def start(self, words: Sequence[str], log: Path) -> int:
        """A program with its whole path; its process.

        Raises:
            NotFound: the guard is gone.
            Refused: it cannot be started.
        """
        return int(self._ask(start=[*words], log=str(log))["pid"])

    def run(self, words: Sequence[str], log: Path, net: str = "") -> int:
        """`duckrow` with these words, in a network namespace, if there is one; its process.

        Raises:
            NotFound, Refused: as `start`.
        """
        return int(self._ask(run=[*words], log=str(log), net=net)["pid"])

    def end(self, *, keep: bool) -> bool:
        """Nothing of them is left, and of the files none that is to be removed; False: they had ended."""
        try:
            ask(self.folder, GUARD_SOCKET, {"end": True, "keep": keep}, END_SECONDS)
        except NotFound:
            return False
        return True

    def _ask(self, **asked: Any) -> dict[str, Any]:
        try:
            return ask(self.folder, GUARD_SOCKET, asked)
        except NotFound as error:
            raise NotFound(
                f"the guard of the cluster in {self.folder} does not run: `duckrow cluster down --dir "
                f"{self.folder}` clears what is left"
            ) from error


def python(module: str, *words: str) -> list[str]:
    """With `environment`: nothing is imported from the working folder unless this process does so, too."""
    return [sys.executable, "-P", "-m", module, *words]


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def environment() -> dict[str, str]:
    """For a Python that finds duckrow where this one has."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(each or str(Path.cwd()) for each in sys.path),
    }
