"""A node as a process of its own, and bare connections to it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from duckrow.node import frames, requests
from duckrow.node.env import Buffer
from duckrow.node.frames import FrameReader
from duckrow.node.requests import Verb

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = (sys.executable, "-m", "duckrow.tools.cli")
SECONDS = 60  # nothing here takes so long; a machine under load may


class Daemon:
    """`duckrow node` with its folder and its socket in `home`."""

    def __init__(self, home: Path, *words: str, program: tuple[str, ...] = PROGRAM, **env: str):
        self.home, self.socket = home, home / "node.sock"
        self.url = f"duck+unix://{self.socket}"
        self.said: list[str] = []
        self.process = subprocess.Popen(
            [
                *program,
                "node",
                "--data",
                str(home / "data"),
                "--listen",
                f"unix:{self.socket}",
                *words,
            ],
            cwd=home,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOME": str(home), **env},
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, text: str) -> str:
        """Reads what it says until a line holds `text`.

        Raises:
            EOFError: it ended without having said that.
        """
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if text in line:
                return line
        raise EOFError("".join(self.said))

    def ready(self) -> Daemon:
        self.until("ready addresses")
        return self

    def end(self, *numbers: signal.Signals) -> int:
        for number in numbers:
            self.process.send_signal(number)
        assert self.process.stderr is not None
        with self.process.stderr:
            self.said += self.process.stderr
        return self.process.wait(SECONDS)

    def port(self) -> int:
        """Of its listener for TCP."""
        found = re.search(r"tcp://127\.0\.0\.1:(\d+)", "".join(self.said))
        assert found is not None, self.said
        return int(found[1])


@contextmanager
def daemon(
    home: Path, *words: str, program: tuple[str, ...] = PROGRAM, **env: str
) -> Iterator[Daemon]:
    """One that is ready; killed, if it still runs."""
    running = Daemon(home, *words, program=program, **env)
    with running.process:
        try:
            yield running.ready()
        finally:
            running.process.kill()


class Wire:
    """Frames over a socket."""

    def __init__(self, address: str | tuple[str, int], *, token: str = "", hello: bool = True):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(SECONDS)
        self.socket.connect(address)
        self._reader = FrameReader()
        self._reader.accept_hello()
        self._reference = 0
        if hello:
            self.ask(Verb.HELLO, requests.VERSION, "wire", token, {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, verb: int, *fields: Any, body: Buffer = b"") -> int:
        self._reference += 1
        head = requests.request(self._reference, verb, *fields)
        self.socket.sendall(b"".join(frames.encode(head, body)))
        return self._reference

    def answer(self) -> tuple[int, int, list[Any], Buffer]:
        """
        Raises:
            EOFError: the node has closed the connection.
        """
        while (frame := self._reader.next_frame()) is None:
            try:
                data = self.socket.recv(frames.RECEIVE_BYTES)
            except ConnectionResetError:
                data = b""
            if not data:
                raise EOFError
            self._reader.receive_data(data)
        return *requests.opened(frame.head), frame.body

    def ask(self, verb: int, *fields: Any) -> list[Any]:
        reference = self.send(verb, *fields)
        found, outcome, answer, _ = self.answer()
        assert (found, outcome) == (reference, 0), answer
        return answer


def resident(pid: int) -> int:
    """Bytes of memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def metrics(text: str) -> Mapping[str, float]:
    rows = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in rows}
