"""Clusters on one machine: nodes with their bridges as processes on loopback, for tests and experiments.

    with LocalCluster.launch(Plan(nodes=3, topology="chain")) as cluster:
        cluster.client("m1").produce("rides", b"one")
        cluster.kill("m2")

Everything lies in one folder: `cluster.toml`, and for each machine its data, its log, and the cluster
file as it has it.  Every process descends from a guard (guard.py), which ends with the launcher.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
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

from . import namespaces
from .asking import ask, until
from .machine import BRIDGE, NODE, Machine
from .plan import Places, Plan, Wires, cluster_text, name_of
from .ports import free_block, free_ports
from .processes import Processes, is_there, python

START_SECONDS: Final = 60.0
END_SECONDS: Final = 30.0
LOOK_SECONDS_MAX: Final = 5.0  # for one look at a node

WIRE_SOCKET, WIRE_LOG = "wires.sock", "wires.log"
PLAN, CLUSTER_FILE = "plan.json", "cluster.toml"


class LocalCluster:
    """Machines are named m1, m2, ..., or told by their place: 0 is m1."""

    def __init__(self, folder: Path, plan: Plan, places: Places, block: str = "") -> None:
        self.folder, self.plan = folder, plan
        self._places, self._block = places, block  # of addresses, if it has namespaces
        self.machines = tuple(
            Machine(id_, name_of(id_), f"duck://{place}", folder / name_of(id_))
            for id_, place in places.nodes.items()
        )
        self._processes = Processes(folder)
        self._clients: dict[int, Client] = {}
        self._begun: dict[int, int] = {}  # process, by machine: of the nodes that were started here
        self._owned = ExitStack()  # what ends with this object

    # -- its life ---------------------------------------------------------------------------

    @classmethod
    def launch(
        cls,
        plan: Plan | None = None,
        folder: Path | None = None,
        *,
        leash: bool = True,
        ports: Sequence[int] = (),
    ) -> Self:
        """All machines run, and order; without a folder it lives in a temporary one.

        `leash`: it ends when this process does, however that ends.  `ports`: instead of free ones.

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
            if plan.namespaces:
                block = free_block()
                found = cls(folder, plan, Places.in_namespaces(plan, block), block)
            else:
                taken = ports or free_ports(plan.ports_wanted)
                found = cls(folder, plan, Places.on_loopback(plan, taken))
            found._write()
            owned.callback(found._forget)
            found._processes.guard(leash=leash, owned=owned)
            owned.callback(found._end_processes)
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
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"there is no cluster in {folder}") from None
        plan, block = Plan.told(told["plan"]), told["block"]
        if block:
            return cls(folder, plan, Places.in_namespaces(plan, block), block)
        return cls(folder, plan, Places.on_loopback(plan, told["ports"]))

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
        self._end_processes()
        (self.folder / PLAN).unlink(missing_ok=True)
        self._owned.close()
        if late:
            raise Timeout(f"{'; '.join(late)}: killed")

    def abandon(self) -> None:
        """Ends all of it at once, for whoever does not look at what is left."""
        self._close_clients()
        self._end_processes()
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

    def links_are(self, wires: Wires) -> None:
        """All of them, from now on.

        Raises:
            Refused: there are no wires, or that cannot be without namespaces.
        """
        attrs.evolve(self.plan, wires=wires)
        self._tell_wires(links=attrs.asdict(wires))

    def link_is(self, one: int | str, other: int | str, wires: Wires) -> None:
        """That one, both ways, from now on.

        Raises:
            Refused: as `links_are`, or there is no such link.
        """
        attrs.evolve(self.plan, wires=wires)
        self._tell_wires(links=attrs.asdict(wires), between=self._pair(one, other))

    def link_between(self, one: int | str, other: int | str) -> Wires:
        """How that one is now.

        Raises:
            Refused: there is no such link.
        """
        pair = self._pair(one, other)
        return Wires(**self._ask_wires(how=pair)["how"]) if self.plan.has_wires else Wires()

    def inside(self, machine: Machine) -> list[str]:
        """The words before those of a program that is to run where that machine is."""
        if not self.plan.namespaces:
            return []
        there = f"/proc/{self._tell_wires()}/fd/{namespaces.NAMESPACE_FD + machine.id}"
        return [shutil.which("nsenter") or "", f"--net={there}"]

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
        places, block = self._places, self._block
        listening = [*places.nodes.values(), *places.bridges.values()]
        ports = [int(place.rpartition(":")[2]) for place in listening]
        ports += places.wires.values()
        told = {"plan": attrs.asdict(self.plan), "ports": ports, "block": block}
        (self.folder / PLAN).write_text(json.dumps(told), "utf-8")
        secret = random.SystemRandom().randbytes(16).hex() if block else ""
        own_files = {machine.id: machine.cluster_file for machine in self.machines}
        for id_, path in {0: self.folder / CLUSTER_FILE, **own_files}.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(cluster_text(self.plan, places, id_, secret), "utf-8")
            path.chmod(0o600)

    def _forget(self) -> None:
        (self.folder / PLAN).unlink(missing_ok=True)

    def _spawn(self, machine: Machine) -> None:
        words = ["node", "--cluster", str(machine.cluster_file), "--name", machine.name]
        words += ["--data", str(machine.data), "--listen", machine.url.replace("duck", "tcp", 1)]
        if self.plan.namespaces:
            words += ["--set", "node.insecure=true"]  # only this host reaches it
        program = [*self.inside(machine), *python("duckrow.tools.cli", *words)]
        self._begun[machine.id] = self._processes.run(program, machine.log)

    def _start_wires(self) -> None:
        """What carries the links, if that is not this host's loopback alone."""
        if not self.plan.has_wires:
            return
        wires = attrs.asdict(self.plan.wires or Wires())
        if self.plan.namespaces:
            module, where = "namespaces", {"machines": self.plan.ids, "block": self._block}
        else:
            links = [
                [one, other, port, int(self._places.bridges[other].rpartition(":")[2])]
                for (one, other), port in self._places.wires.items()
            ]
            module, where = "wire", {"links": links}
        path, log = self.folder / WIRE_SOCKET, self.folder / WIRE_LOG
        path.unlink(missing_ok=True)
        told = json.dumps({**wires, **where})
        # By its name in the folder of the guard, since the path of a socket has to be short.
        pid = self._processes.run(python(f"duckrow.cluster.{module}", WIRE_SOCKET, told), log)
        until(lambda: path.exists() or not is_there(pid), START_SECONDS, "the links do not start")
        if not path.exists():
            raise Refused(f"the links cannot be had: {log.read_text('utf-8', 'replace').strip()}")

    def _end_processes(self) -> None:
        self._processes.end()
        if self.plan.namespaces:
            namespaces.forget(self.plan.ids, self._block)

    def _runs(self, machine: Machine) -> bool:
        """Its node runs, or is about to: it takes its lock after a moment."""
        begun = self._begun.get(machine.id)
        return bool(machine.pids()) or (begun is not None and is_there(begun))

    def _tell_wires(self, **asked: Any) -> int:
        """The process that carries the links, which may be told something."""
        return int(self._ask_wires(**(asked or {"where": True}))["pid"])

    def _ask_wires(self, **asked: Any) -> dict[str, Any]:
        if not self.plan.has_wires:
            raise Refused("this cluster has no wires: only links over wires can be cut or slow")
        return ask(self.folder, WIRE_SOCKET, asked)

    def _close_clients(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            try:
                client.close(timeout=0)
            except DuckrowError:
                pass  # its node may be dead
