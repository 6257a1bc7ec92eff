"""Clusters on one machine: nodes with their bridges as processes on loopback, for tests and experiments.

    with LocalCluster.launch(Plan(nodes=3, topology="chain")) as cluster:
        cluster.client("m1").produce("rides", b"one")
        cluster.kill("m2")

Everything lies in one folder: `cluster.toml`, and for each machine its data, its log, and the cluster
file as it has it.  Every process descends from a guard (guard.py), which ends with the launcher.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import attrs

from duckrow.node.addresses import bridge_socket, read_url
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

from .asking import until
from .home import (
    CLUSTER_FILE,
    PLAN,
    Told,
    check_free,
    check_room,
    clear,
    is_guarded,
    owned,
)
from .links import Links
from .machine import BRIDGE, NODE, Machine
from .plan import Places, Plan, Wires, cluster_text, name_of
from .ports import free_block, free_ports
from .processes import Processes, is_there
from .states import row_of

START_SECONDS: Final = 60.0
END_SECONDS: Final = 30.0
LOOK_SECONDS_MAX: Final = 5.0  # for one look at a node


class LocalCluster:
    """Machines are named m1, m2, ..., or told by their place: 0 is m1."""

    def __init__(self, folder: Path, told: Told) -> None:
        self.folder, self.told, self.plan = folder, told, told.plan
        self._places = places = (
            Places.in_namespaces(told.plan, told.block)
            if told.block
            else Places.on_loopback(told.plan, told.ports)
        )
        self.machines = tuple(
            Machine(id_, name_of(id_), f"duck://{place}", folder / name_of(id_))
            for id_, place in places.nodes.items()
        )
        self.guard: subprocess.Popen[bytes] | None = None  # if this process has started it
        self.links = Links(folder, told.plan, places, told.block)
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
        keep: bool | None = None,
        prepare: Callable[[Sequence[Machine]], None] | None = None,
    ) -> Self:
        """All machines run, and order; without a folder it lives in a temporary one.

        `leash`: it ends when this process does, however that ends.  `ports`: instead of free ones.
        `keep`: what is in its folder stays when it ends, and the next one there goes on with the disks;
        else nothing is left of it.  If nothing is said of it, it stays in a folder that was given; what was
        kept once stays.  `prepare`: is called when its folders are there and nothing runs yet.

        Raises:
            Conflict: there is a cluster in that folder, or something else.
            Refused: a machine could not start; says why.
            Timeout.
        """
        plan = plan or Plan()
        keep = folder is not None if keep is None else keep
        folder = Path(folder or _temporary()).absolute()
        with ExitStack() as owned:
            processes = Processes(folder)
            guard = processes.guard(owned)
            keep |= check_free(folder, plan)
            block = free_block() if plan.namespaces else ""
            taken = () if block else tuple(ports or free_ports(plan.ports_wanted))
            found = cls(folder, Told(plan=plan, ports=taken, block=block, keep=keep))
            check_room(folder, plan)
            if not keep:
                processes.own(found.owned)
            with ExitStack() as undo:
                undo.callback(found._end_processes, keep=keep)
                found._write()
                if prepare is not None:
                    prepare(found.machines)
                found.links.start(processes)
                found._start_machines()
                for machine in found.machines:
                    found.wait(machine.name)
                undo.pop_all()
            found._owned = owned.pop_all()
            if not leash:
                processes.stay(guard)
                found._owned.pop_all()
            found.guard = guard
        return found

    @classmethod
    def at(cls, folder: Path) -> Self:
        """One that somebody has started, and that stays when this object goes.

        Raises:
            NotFound: there is none.
        """
        folder = folder.absolute()
        told = Told.read(folder)
        if told.keep and not is_guarded(folder):
            raise NotFound(
                f"no cluster runs in {folder}: its disks were kept, and `duckrow cluster up --dir "
                f"{folder}` goes on with them"
            )
        return cls(folder, told)

    def down(self, *, keep: bool | None = None) -> None:
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
        self.abandon(keep=keep)
        if late:
            raise Timeout(f"{'; '.join(late)}: killed")

    def abandon(self, *, keep: bool | None = None) -> None:
        """Ends all of it at once, for whoever does not look at what is left."""
        self._close_clients()
        self._end_processes(keep=self.told.keep if keep is None else keep)
        self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def report(self) -> list[dict[str, Any]]:
        """How all machines are, as `duckrow cluster status` tells it."""
        with ThreadPoolExecutor(len(self.machines)) as threads:
            return [*threads.map(self._report, self.machines)]

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

    @property
    def everywhere(self) -> str:
        """The addresses of all its nodes, as one URL."""
        return "duck://" + ",".join(each.url.removeprefix("duck://") for each in self.machines)

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
        machine, done, said = self.machine(which), "order" if active else "serve", ""

        def is_so() -> bool:
            nonlocal said
            try:
                with self.connect(which, timeout=LOOK_SECONDS_MAX) as client:
                    client.barrier() if active else client.status()
                    return True
            except (Disconnected, Timeout, NoQuorum, OSError) as error:
                if not self._runs(machine):
                    raise Refused(f"{machine.name} has ended:\n{machine.last_words()}") from error
                said = f": {error}"
                return False

        until(is_so, seconds, lambda: f"{machine.name} does not {done}{said}")

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
            raise Conflict(f"{machine.name} runs already, its node is process {machine.pid(NODE)}")
        self._start_both(machine)

    def pause(self, which: int | str, *processes: str) -> None:
        """SIGSTOP; they do nothing more when this returns."""
        machine = self.machine(which)
        machine.signal(signal.SIGSTOP, *processes)
        until(
            lambda: machine.stands_still(*processes),
            END_SECONDS,
            lambda: f"{machine.name} does not stand still",
        )

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
        self.links.cut(self._pair(one, other), one_way=one_way)

    def heal(self, one: int | str | None = None, other: int | str | None = None) -> None:
        """That link, or all of them."""
        whole = one is None or other is None
        self.links.heal(None if whole else self._pair(one, other))

    def links_are(self, wires: Wires) -> None:
        """All of them, from now on.

        Raises:
            Refused: there are no wires, or that cannot be without namespaces.
        """
        self.links.are(wires)

    def link_is(self, one: int | str, other: int | str, wires: Wires) -> None:
        """That one, both ways, from now on.

        Raises:
            Refused: as `links_are`, or there is no such link.
        """
        self.links.is_(self._pair(one, other), wires)

    def link_between(self, one: int | str, other: int | str) -> Wires:
        """How that one is now.

        Raises:
            Refused: there is no such link.
        """
        return self.links.how(self._pair(one, other))

    def inside(self, machine: Machine) -> list[str]:
        """The words before those of a program that is to run where that machine is."""
        there = self.links.network_of(machine.id)
        return [shutil.which("nsenter") or "", f"--net={there}"] if there else []

    def _report(self, machine: Machine) -> dict[str, Any]:
        pids, is_paused = machine.pids(), machine.is_paused
        status = None
        if NODE in pids and not is_paused:
            try:
                with self.connect(machine.name, timeout=LOOK_SECONDS_MAX) as client:
                    status = client.status()
            except (DuckrowError, OSError):
                pass  # that it does not answer is what is told
        return row_of(
            machine.name,
            machine.url,
            pid=pids.get(NODE, 0),
            bridge_pid=pids.get(BRIDGE, 0),
            is_paused=is_paused,
            status=status,
        )

    def _pair(self, one: int | str | None, other: int | str | None) -> tuple[int, int]:
        assert one is not None
        assert other is not None
        pair = self.machine(one).id, self.machine(other).id
        if tuple(sorted(pair)) not in self.plan.links:
            raise Refused(f"there is no link between {name_of(pair[0])} and {name_of(pair[1])}")
        return pair

    # -- processes --------------------------------------------------------------------------

    @property
    def owned(self) -> list[str]:
        """All that is put into the folder, and sockets that are too long for it."""
        sockets = [bridge_socket(str(each.data), os.environ, os.getuid()) for each in self.machines]
        outside = [each.path for each in sockets if not each.path.startswith(str(self.folder))]
        return [*outside, *owned(self.plan)]

    def _write(self) -> None:
        self.told.write(self.folder)
        secret = random.SystemRandom().randbytes(16).hex() if self.told.block else ""
        own_files = {machine.id: machine.cluster_file for machine in self.machines}
        for id_, path in {0: self.folder / CLUSTER_FILE, **own_files}.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(cluster_text(self.plan, self._places, id_, secret), "utf-8")
            path.chmod(0o600)

    def _start_machines(self) -> None:
        """All at once."""
        for machine in self.machines:
            self._start(BRIDGE, machine)
        for machine in self.machines:
            self._start_at_bridge(machine)

    def _start_both(self, machine: Machine) -> None:
        if not machine.pid(BRIDGE):
            self._start(BRIDGE, machine)
        self._start_at_bridge(machine)

    def _start_at_bridge(self, machine: Machine) -> None:
        """A node that finds its bridge running does not start one, so that both are forked from the guard."""
        until(
            lambda: machine.pid(BRIDGE) > 0 or not self._runs(machine),
            START_SECONDS,
            lambda: f"the bridge of {machine.name} does not start",
        )
        if not machine.pid(BRIDGE):
            raise Refused(f"{machine.name} has ended:\n{machine.last_words()}")
        self._start(NODE, machine)

    def _start(self, process: str, machine: Machine) -> None:
        words = ["--cluster", str(machine.cluster_file), "--name", machine.name]
        words += ["--data", str(machine.data)]
        if self.plan.namespaces:
            words += ["--set", "node.insecure=true"]  # only this host reaches it
        net = self.links.network_of(machine.id)
        if process == NODE:
            words = ["node", *words, "--listen", machine.url.replace("duck", "tcp", 1)]
        else:
            words = ["bridge", "run", "--supervised", *words]
        self._begun[machine.id] = self._processes.run(words, machine.log, net)

    def _end_processes(self, *, keep: bool) -> None:
        """By the guard; where that was killed, what it has left, bridges without a node first of all."""
        if keep and not self.told.keep:
            attrs.evolve(self.told, keep=True).write(self.folder)
        if not self._processes.end(keep=keep) and (self.folder / PLAN).exists():
            for machine in self.machines:
                machine.kill(seconds=END_SECONDS)
            if not keep:
                clear(self.folder, self.owned)
        self.links.forget()

    def _runs(self, machine: Machine) -> bool:
        """Its node runs, or is about to: it takes its lock after a moment."""
        begun = self._begun.get(machine.id)
        return bool(machine.pids()) or (begun is not None and is_there(begun))

    def _close_clients(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            try:
                client.close(timeout=0)
            except DuckrowError:
                pass  # its node may be dead


def _temporary() -> Path:
    """One that is not there yet: the guard makes it."""
    return Path(
        tempfile.gettempdir(), f"duckrow-cluster-{random.SystemRandom().randbytes(8).hex()}"
    )
