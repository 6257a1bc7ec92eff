"""Clusters on one machine: nodes with their bridges as processes on loopback, for tests and experiments.

    with LocalCluster.launch(Plan(nodes=3, topology="chain")) as cluster:
        cluster.client("m1").produce("rides", b"one")
        cluster.kill("m2")

Everything lies in one folder: `cluster.toml`, and for each machine its data, its log, and the cluster
file as it has it.  Every process descends from a guard (guard.py), which ends with the launcher.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any, Final, Self

import attrs

from duckrow.node.addresses import read_url
from duckrow.node.blocking import TIMEOUT, Client
from duckrow.node.errors import (
    Conflict,
    Disconnected,
    DuckrowError,
    NoQuorum,
    NotFound,
    Refused,
    Timeout,
)

from .machine import BRIDGE, NODE, Machine
from .plan import HOST, Plan, Ports, Wires, cluster_text, name_of

START_SECONDS: Final = 60.0
END_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.02  # between two looks whether something is so
LOOK_SECONDS_MAX: Final = 5.0  # for one of them
GUARD_SECONDS: Final = 30.0
PORTS: Final = range(15_000, 32_000)  # below those that the kernel gives to whoever dials

GUARD_SOCKET, WIRE_SOCKET = "guard.sock", "wires.sock"
PLAN, CLUSTER_FILE = "plan.json", "cluster.toml"


class LocalCluster:
    """Machines are named m1, m2, ..., or told by their place: 0 is m1."""

    def __init__(self, folder: Path, plan: Plan, ports: Ports) -> None:
        self.folder, self.plan, self._ports = folder, plan, ports
        self.machines = tuple(
            Machine(id_, name_of(id_), f"duck://{HOST}:{port}", folder / name_of(id_))
            for id_, port in ports.nodes.items()
        )
        self._clients: dict[int, Client] = {}
        self._begun: dict[int, int] = {}  # process, by machine: of the nodes that were started here
        self._owned = ExitStack()  # what ends with this object

    # -- its life ---------------------------------------------------------------------------

    @classmethod
    def launch(
        cls, plan: Plan | None = None, folder: Path | None = None, *, leash: bool = True
    ) -> Self:
        """All machines run, and order; without a folder it lives in a temporary one.

        `leash`: it ends when this process does, however that ends.

        Raises:
            Conflict: there is a cluster in that folder.
            Refused: a machine could not start; says why.
            Timeout.
        """
        plan, owned = plan or Plan(), ExitStack()
        with owned:
            if folder is None:
                made = tempfile.TemporaryDirectory(prefix="duckrow-cluster-")
                folder = Path(owned.enter_context(made))
            folder = folder.absolute()
            if (folder / PLAN).exists():
                raise Conflict(f"there is a cluster in {folder} already: `down`, or another folder")
            found = cls(folder, plan, Ports.of(plan, free_ports(plan.ports_wanted)))
            found._write()
            found._guard(leash=leash, owned=owned)
            owned.callback(found._forget)
            owned.callback(found._end_guard)
            found._start_wires()
            for machine in found.machines:
                found._spawn(machine)
            for machine in found.machines:
                found.wait(machine.name)
            found._owned = owned.pop_all()
        return found

    @classmethod
    def at(cls, folder: Path) -> Self:
        """One that somebody has started, and that stays when this object goes.

        Raises:
            NotFound: there is none.
        """
        folder = folder.absolute()
        try:
            told = json.loads((folder / PLAN).read_text("utf-8"))
        except FileNotFoundError:
            raise NotFound(f"there is no cluster in {folder}") from None
        wires = told["plan"].pop("wires")
        plan = Plan(**told["plan"], wires=None if wires is None else Wires(**wires))
        return cls(folder, plan, Ports.of(plan, told["ports"]))

    def down(self) -> None:
        """Ends all of it, in order as far as it runs; nothing of the processes is left.

        Raises:
            Timeout: it had to be killed.
        """
        self._close_clients()
        late: list[str] = []
        running = [each for each in self.machines if each.pids()]
        for machine in running:
            machine.signal(signal.SIGCONT)
            machine.signal(signal.SIGTERM, *([NODE] if machine.pid(NODE) else [BRIDGE]))
        for machine in running:
            try:
                machine.stop(seconds=END_SECONDS)
            except Timeout as error:
                late.append(str(error))
        self._end_guard()
        (self.folder / PLAN).unlink(missing_ok=True)
        self._owned.close()
        if late:
            raise Timeout(f"{'; '.join(late)}: killed")

    def abandon(self) -> None:
        """Ends all of it at once, for whoever does not look at what is left."""
        self._close_clients()
        self._end_guard()
        (self.folder / PLAN).unlink(missing_ok=True)
        self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    # -- its machines -----------------------------------------------------------------------

    def machine(self, which: int | str) -> Machine:
        """
        Raises:
            Refused: there is none.
        """
        for place, machine in enumerate(self.machines):
            if which in (place, machine.name):
                return machine
        last = len(self.machines) - 1
        raise Refused(f"there is no machine {which!r}: there are m1 to m{last + 1}, 0 to {last}")

    def url(self, which: int | str) -> str:
        return self.machine(which).url

    def client(self, which: int | str) -> Client:
        """One for whoever needs no other."""
        machine = self.machine(which)
        if machine.id not in self._clients:
            self._clients[machine.id] = self.connect(which)
        return self._clients[machine.id]

    def connect(self, which: int | str, *, timeout: float = TIMEOUT) -> Client:
        """One more."""
        machine = self.machine(which)
        return Client(read_url(machine.url), name=machine.name, timeout=timeout)

    def wait(
        self, which: int | str, *, active: bool = True, seconds: float = START_SECONDS
    ) -> None:
        """Until its node serves, and, if `active`, orders.

        Raises:
            Refused: it ended; says what it said.
            Timeout.
        """
        machine = self.machine(which)

        def is_so() -> bool:
            try:
                with self.connect(which, timeout=LOOK_SECONDS_MAX) as client:
                    client.barrier() if active else client.status()
                    return True
            except (Disconnected, Timeout, NoQuorum, OSError) as error:
                if not self._runs(machine):
                    raise Refused(f"{machine.name} has ended:\n{machine.last_words()}") from error
                return False

        until(is_so, seconds, f"{machine.name} does not {'order' if active else 'serve'}")

    def kill(self, which: int | str, *processes: str) -> None:
        """SIGKILL to its node and its bridge, or one of them."""
        self.machine(which).kill(*processes, seconds=END_SECONDS)

    def stop(self, which: int | str) -> None:
        """In order."""
        self.machine(which).stop(seconds=END_SECONDS)

    def start(self, which: int | str, *, active: bool = True) -> None:
        """Starts it again; it serves, and orders if `active`, when this returns.

        Raises:
            Conflict: its node runs.
            Refused, Timeout: see `wait`.
        """
        self.begin(which)
        self.wait(which, active=active)

    def begin(self, which: int | str) -> None:
        """Starts it, and waits for nothing.

        Raises:
            Conflict: its node runs.
        """
        machine = self.machine(which)
        if machine.pid(NODE):
            raise Conflict(f"{machine.name} runs")
        self._spawn(machine)

    def pause(self, which: int | str, *processes: str) -> None:
        """SIGSTOP; they do nothing more when this returns."""
        machine = self.machine(which)
        machine.signal(signal.SIGSTOP, *processes)
        stopped = f"{machine.name} does not stand still"
        until(lambda: machine.stands_still(*processes), END_SECONDS, stopped)

    def resume(self, which: int | str) -> None:
        self.machine(which).signal(signal.SIGCONT)

    def wipe(self, which: int | str) -> None:
        """The disk of one that is stopped is gone."""
        self.machine(which).wipe()

    def cut(self, one: int | str, other: int | str, *, one_way: bool = False) -> None:
        """The link between two machines carries nothing more, or nothing from the one to the other.

        Raises:
            Refused: there is no such link, or it has no wire.
        """
        self._tell_wires(cut=self._pair(one, other), one_way=one_way)

    def heal(self, one: int | str | None = None, other: int | str | None = None) -> None:
        """That link, or all of them."""
        whole = one is None or other is None
        self._tell_wires(heal=() if whole else self._pair(one, other))

    def _pair(self, one: int | str | None, other: int | str | None) -> tuple[int, int]:
        assert one is not None
        assert other is not None
        pair = self.machine(one).id, self.machine(other).id
        if tuple(sorted(pair)) not in self.plan.links:
            raise Refused(f"there is no link between {name_of(pair[0])} and {name_of(pair[1])}")
        return pair

    # -- processes --------------------------------------------------------------------------

    def _write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        ports = [*self._ports.nodes.values(), *self._ports.bridges.values()]
        ports += self._ports.wires.values()
        told = {"plan": attrs.asdict(self.plan), "ports": ports}
        (self.folder / PLAN).write_text(json.dumps(told), "utf-8")
        (self.folder / CLUSTER_FILE).write_text(cluster_text(self.plan, self._ports, 0), "utf-8")
        for machine in self.machines:
            machine.home.mkdir(exist_ok=True)
            text = cluster_text(self.plan, self._ports, machine.id)
            machine.cluster_file.write_text(text, "utf-8")

    def _forget(self) -> None:
        (self.folder / PLAN).unlink(missing_ok=True)

    def _guard(self, *, leash: bool, owned: ExitStack) -> None:
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

    def _end_guard(self) -> None:
        try:
            self._ask(GUARD_SOCKET, {"end": True})
        except NotFound:
            pass  # it has ended

    def _spawn(self, machine: Machine) -> None:
        words = ["node", "--cluster", str(machine.cluster_file), "--name", machine.name]
        words += ["--data", str(machine.data), "--listen", machine.url.replace("duck", "tcp", 1)]
        program = [sys.executable, "-m", "duckrow.tools.cli", *words]
        self._begun[machine.id] = self._run(program, machine.log)

    def _start_wires(self) -> None:
        wires = self.plan.wires
        if wires is None:
            return
        links = [
            [one, other, port, self._ports.bridges[other]]
            for (one, other), port in self._ports.wires.items()
        ]
        told = json.dumps({**attrs.asdict(wires), "links": links})
        path = str(self.folder / WIRE_SOCKET)
        log = self.folder / "wires.log"
        self._run([sys.executable, "-m", "duckrow.cluster.wire", path, told], log)
        until((self.folder / WIRE_SOCKET).exists, START_SECONDS, "the wires do not start")

    def _run(self, words: Sequence[str], log: Path) -> int:
        answer = self._ask(GUARD_SOCKET, {"start": [*words], "log": str(log)})
        if "error" in answer:
            raise Refused(f"{' '.join(words)}: {answer['error']}")
        return int(answer["pid"])

    def _runs(self, machine: Machine) -> bool:
        """Its node runs, or is about to: it takes its lock after a moment."""
        begun = self._begun.get(machine.id)
        return bool(machine.pids()) or (begun is not None and Path(f"/proc/{begun}").exists())

    def _tell_wires(self, **asked: Any) -> None:
        if self.plan.wires is None:
            raise Refused("this cluster has no wires: only links over wires can be cut")
        self._ask(WIRE_SOCKET, asked)

    def _ask(self, name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """
        Raises:
            NotFound: nobody is there.
            Timeout.
        """
        folder = os.open(self.folder, os.O_PATH | os.O_CLOEXEC)
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(GUARD_SECONDS)
                # Through the descriptor, since the path of a socket has to be short.
                sock.connect(f"/proc/self/fd/{folder}/{name}")
                sock.sendall(json.dumps(asked).encode() + b"\n")
                with sock.makefile("rb") as lines:
                    answer: dict[str, Any] = json.loads(lines.readline() or b"{}")
                    return answer
        except TimeoutError as error:
            raise Timeout(f"no answer from {self.folder / name}") from error
        except (FileNotFoundError, ConnectionError) as error:
            raise NotFound(
                f"nobody answers at {self.folder / name}: the cluster is down"
            ) from error
        finally:
            os.close(folder)

    def _close_clients(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            try:
                client.close(timeout=0)
            except DuckrowError:
                pass  # its node may be dead


def free_ports(count: int) -> list[int]:
    """Ports of this host where nobody listens now; all of them held until all are found."""
    chance = random.SystemRandom()
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            port = chance.choice(PORTS)
            sock = held.enter_context(socket.socket())
            try:
                sock.bind((HOST, port))
            except OSError:
                continue
            found.append(port)
        return found


def until(is_so: Callable[[], bool], seconds: float, otherwise: str) -> None:
    """
    Raises:
        Timeout: with what is said otherwise.
    """
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise Timeout(f"{otherwise}, for {seconds:g} s now")
        Event().wait(LOOK_SECONDS)


def environment() -> dict[str, str]:
    """For a Python that finds duckrow where this one has."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
