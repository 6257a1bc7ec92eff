"""The agent: what a launcher elsewhere has done on this machine, over ssh (remote.py).

    launcher ── ssh ──► agent ──pipe──► guard ──► node, bridge

It is asked by one line of JSON on its stdin, and answers with one:

    {"do": "up", "name": ..., "url": ..., "cluster": text, "token": ..., "keep": false}
    {"do": "look"}  {"do": "start"}  {"do": "kill", "processes": []}  {"do": "down", "keep": false} ...
    {"do": "measure", "program": "relay", "words": [host, port]}

Who has brought a machine up holds the connection: when that ends, however it does, the agent's stdin
ends, and with the agent its guard and all that this has started; unless it was told to `stay`.  So does who
has started a program to measure with.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Self

from duckrow.node.addresses import is_loopback, read_url
from duckrow.node.configkinds import quoted
from duckrow.node.errors import Conflict, Corrupt, DuckrowError, NotFound

from .guard import SOCKET
from .home import check_room, clear, with_asides
from .machine import Machine
from .plan import HOST
from .processes import Processes, python
from .relays import ANY, ECHO, RELAY, Programs, text
from .starting import Starter
from .wholetext import read_told, write_whole

TOLD, CONFIG = "machine.json", "duckrow.toml"
OWNED: Final = ("data", "log", *with_asides(("cluster.toml", CONFIG, TOLD)))


class Told(NamedTuple):
    """What is written down of a machine, beside its disk."""

    name: str
    url: str
    keep: bool

    @classmethod
    def read(cls, home: Path) -> Self:
        """
        Raises:
            NotFound: there is none.
        """
        try:
            return read_told(home / TOLD, lambda told: cls(**told))
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"there is no machine of a cluster in {home}") from None

    def write(self, home: Path) -> None:
        write_whole(home / TOLD, json.dumps(self._asdict()))


class Agent:
    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self.guard: subprocess.Popen[bytes] | None = None  # if this process has started it
        self.measures = False  # until the connection ends
        self._processes = Processes(self.home)

    def answer(self, asked: Mapping[str, Any], owned: ExitStack) -> dict[str, Any]:
        """`owned`: what ends when that is closed.

        Raises:
            DuckrowError: it cannot be done; says why.
            Corrupt: it is no question.
        """
        do = asked.get("do")
        if do == "up":
            return self._up(asked, owned)
        told = Told.read(self.home)
        machine = Machine(0, told.name, told.url, self.home)
        processes, seconds = asked.get("processes", ()), float(asked.get("seconds", 30))
        match do:
            case "look":
                pids, is_paused = machine.look()
                return {"pids": pids, "paused": is_paused}
            case "start":
                self._start(machine)
            case "kill":
                machine.kill(*processes, seconds=seconds)
            case "stop":
                machine.stop(seconds=seconds)
            case "pause":
                machine.pause(*processes, seconds=seconds)
            case "resume":
                machine.resume()
            case "wipe":
                machine.wipe()
            case "refuse":
                machine.refuse([str(name) for name in asked["names"]])
            case "measure":
                return self._measure(machine, asked, owned)
            case "stay":
                self._processes.stay()
            case "log":
                return {"text": machine.last_words(int(asked["count"]))}
            case "down":
                self._down(machine, told, keep=asked["keep"] is True or told.keep)
            case _:
                raise Corrupt(f"an agent cannot do {do!r}")
        return {}

    def _up(self, asked: Mapping[str, Any], owned: ExitStack) -> dict[str, Any]:
        try:
            self.guard = self._processes.guard(owned)
        except Conflict:
            raise Conflict(
                f"a machine of a cluster runs in {self.home}: end that cluster where it was launched, "
                "or choose another --remote"
            ) from None
        kept = self._check_free()
        check_room(self.home, 0 if kept else 1, "--remote")
        keep = kept or asked["keep"] is True
        if not keep:
            self._processes.own(OWNED)
        told = Told(str(asked["name"]), str(asked["url"]), keep)
        machine = Machine(0, told.name, told.url, self.home)
        told.write(self.home)
        machine.refuse(())  # nothing is cut when a cluster starts
        for path, said in (
            (machine.cluster_file, str(asked["cluster"])),
            (machine.config_file, f"[node]\ntoken = {quoted(str(asked['token']))}\n"),
        ):
            write_whole(path, said)
        self._start(machine)
        return {"pids": machine.pids()}

    def _measure(
        self, machine: Machine, asked: Mapping[str, Any], owned: ExitStack
    ) -> dict[str, Any]:
        """One of three programs, and what it says first."""
        here = HOST if all(map(is_loopback, read_url(machine.url))) else ANY
        words = [str(word) for word in asked["words"]]
        match asked["program"]:
            case "relay":
                words = text(RELAY, here, *words)
            case "mirror":
                words = text(ECHO, here, *words)
            case "echo":
                token, *topics = words
                os.environ["DUCKROW_TOKEN"] = token
                words = python("duckrow.cluster.echo", machine.url, *topics)
            case other:
                raise Corrupt(f"an agent does not know how to measure with {other!r}")
        self.measures = True
        return {"said": owned.enter_context(Programs.running()).start(words)}

    def _start(self, machine: Machine) -> None:
        Starter(self._processes, lambda _id: "").start(machine)

    def _check_free(self) -> bool:
        """Whether a disk was kept there.

        Raises:
            Conflict: something else is there.
        """
        there = sorted(path.name for path in self.home.iterdir() if path.name != SOCKET)
        if not there:
            return False
        if TOLD not in there:
            raise Conflict(f"{self.home} is not empty, it has {there[0]}: choose another --remote")
        if not Told.read(self.home).keep:
            raise Conflict(
                f"in {self.home} is what a cluster left whose guard was killed: `duckrow cluster "
                "down` removes it"
            )
        return True

    def _down(self, machine: Machine, told: Told, *, keep: bool) -> None:
        if keep:
            machine.stop(seconds=30)
            told._replace(keep=True).write(self.home)
        if not self._processes.end(keep=keep):
            machine.kill(seconds=30)
            if not keep:
                clear(self.home, OWNED)


def serve(home: Path, stdin: BinaryIO, say: Callable[[str], None]) -> None:
    """One question; after some, until stdin ends."""
    agent = Agent(home)
    with ExitStack() as owned:
        try:
            asked = json.loads(stdin.readline())
            if not isinstance(asked, dict):
                raise Corrupt("an agent is asked by one line of JSON, an object with `do`")
            answer = agent.answer(asked, owned)
        except (DuckrowError, OSError, KeyError, TypeError, ValueError) as error:
            say(json.dumps({"error": str(error), "kind": type(error).__name__}))
            return
        say(json.dumps(answer))
        if agent.guard is not None:
            stdin.read()
            owned.pop_all()
            agent._processes.leave(agent.guard)
        elif agent.measures:
            stdin.read()
