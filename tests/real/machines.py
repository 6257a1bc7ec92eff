"""Machines of one cluster on loopback: each a `duckrow node` with its bridge, as users run them.

Each has a folder, a socket for its clients, a file with what it said, and TCP for its neighbours.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckrow
from duckrow import Client
from duckrow.cluster.ports import free_ports
from duckrow.node.locks import BRIDGE_LOCK, holder

from .daemonkit import PROGRAM, ROOT, SECONDS

LOOK_SECONDS = 0.02


class Machine:
    def __init__(self, home: Path, name: str, file: Path, **env: str) -> None:
        self.home, self.name, self.file = home, name, file
        self.data, self.log = home / "data", home / "log"
        self.url = f"duck+unix://{home}/node.sock"
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None
        home.mkdir(exist_ok=True)

    def start(self, *words: str, alone: bool = False) -> Machine:
        given = () if alone else ("--cluster", str(self.file))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *PROGRAM,
                    "node",
                    "--name",
                    self.name,
                    "--data",
                    str(self.data),
                    "--listen",
                    f"unix:{self.home}/node.sock",
                    *given,
                    *words,
                ],
                cwd=self.home,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **self._env},
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        return self

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def until(self, text: str, times: int = 1) -> None:
        """It has said so: so often since the beginning."""
        until(lambda: self.said().count(text) >= times, lambda: f"{text!r} in\n{self.said()}")

    def ready(self) -> Machine:
        """Its last start has come so far."""
        assert self._process is not None
        until(self._answers, self.said)
        return self

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self.said()
        try:
            with self.client(timeout=1.0) as client:
                return bool(client.status()["ready"])
        except duckrow.DuckrowError:
            return False

    def client(self, timeout: float = SECONDS) -> Client:
        return duckrow.connect(self.url, timeout=timeout)

    def status(self) -> dict[str, Any]:
        with self.client() as client:
            return client.status()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def bridge(self) -> int:
        """The process that is its bridge, or 0."""
        return holder(self.data / BRIDGE_LOCK) or 0

    def signal(self, number: signal.Signals) -> None:
        """To the node alone."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill_bridge(self) -> int:
        pid = self.bridge
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(SECONDS)

    def kill(self) -> None:
        """The node alone, with no word."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def clear(self) -> None:
        """Whatever is left of it."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        with suppress(ProcessLookupError):
            while pid := self.bridge:
                os.kill(pid, signal.SIGKILL)
                _pause()


class Machines(dict[str, Machine]):
    """By name."""

    def clients(self) -> dict[str, Client]:
        return {name: machine.client() for name, machine in self.items()}

    def agree(self) -> dict[str, Any]:
        """Waits until all that run stand at the same position with the same state; that one."""
        found: list[dict[str, Any]] = []

        def same() -> bool:
            found[:] = [machine.status() for machine in self.values()]
            return len({(s["position"], s["hashed"], s["state_hash"]) for s in found}) == 1

        until(same, lambda: f"{found}")
        return found[0]


def until(true: Callable[[], bool], why: Callable[[], str]) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, why()
        _pause()


def _pause() -> None:
    """Between two looks at processes, which cannot be waited for."""
    select.select([], [], [], LOOK_SECONDS)


def cluster_text(
    ports: Mapping[str, int], home: Path, *, links: str = "mesh", first: int = 1
) -> str:
    members = "".join(
        f'[members.{name}]\nid = {id_}\naddress = "tcp://127.0.0.1:{port}"\n'
        f'url = "duck+unix://{home}/{name}/node.sock"\n'
        for id_, (name, port) in enumerate(ports.items(), first)
    )
    return f'[cluster]\ndurability = "write"\nlinks = "{links}"\n{members}'


@contextmanager
def machines(home: Path, *names: str, **env: str) -> Iterator[Machines]:
    """Not started yet; nothing is left of them."""
    file = home / "cluster.toml"
    file.write_text(cluster_text(dict(zip(names, free_ports(len(names)), strict=True)), home))
    found = Machines({name: Machine(home / name, name, file, **env) for name in names})
    try:
        yield found
    finally:
        for machine in found.values():
            machine.clear()
