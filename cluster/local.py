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
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import attrs

from duckrow.node.addresses import bridge_socket
from duckrow.node.clusterfile import Pair
from duckrow.node.errors import NotFound, Timeout

from .cluster import END_SECONDS, Cluster
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
from .machine import Machine
from .plan import Places, Plan, Wires, cluster_text, name_of
from .ports import free_block, free_ports
from .processes import Processes
from .starting import Starter
from .wholetext import write_whole


class LocalCluster(Cluster[Machine]):
    """Machines are named m1, m2, ..., or told by their place: 0 is m1."""

    def __init__(self, folder: Path, told: Told) -> None:
        self.told, self.plan, self.keep = told, told.plan, told.keep
        self._places = places = (
            Places.in_namespaces(told.plan, told.block)
            if told.block
            else Places.on_loopback(told.plan, told.ports)
        )
        machines = [
            Machine(id_, name_of(id_), f"duck://{place}", folder / name_of(id_))
            for id_, place in places.nodes.items()
        ]
        super().__init__(folder, machines, told.plan.links)
        self.guard: subprocess.Popen[bytes] | None = None  # if this process has started it
        self.links = Links(folder, told.plan, places, told.block)
        self._processes = Processes(folder)
        self._starter = Starter(self._processes, self.links.network_of)
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
        mounts: Sequence[str] = (),
    ) -> Self:
        """All machines run, and order; without a folder it lives in a temporary one.

        `leash`: it ends when this process does, however that ends.  `ports`: instead of free ones.
        `keep`: what is in its folder stays when it ends, and the next one there goes on with the disks;
        else nothing is left of it.  If nothing is said of it, it stays in a folder that was given; what was
        kept once stays.  `prepare`: is called when its folders are there and nothing runs yet; `mounts`: where
        it mounts something.

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
            kept = check_free(folder, plan)
            keep |= kept
            block = free_block() if plan.namespaces else ""
            taken = () if block else tuple(ports or free_ports(plan.ports_wanted))
            found = cls(folder, Told(plan=plan, ports=taken, block=block, keep=keep))
            check_room(folder, 0 if kept else plan.nodes, "--dir")
            if not keep:
                processes.own(found.owned, mounts)
            with ExitStack() as undo:
                undo.callback(found._end_processes, keep=keep)
                found._write()
                if prepare is not None:
                    prepare(found.machines)
                found.links.start(processes)
                found._starter.start_all(found.machines)
                for machine in found.machines:
                    found.wait(machine.name)
                if not leash:
                    processes.stay(guard)
                undo.pop_all()
            found._owned = owned.pop_all()
            if not leash:
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
        with ThreadPoolExecutor(len(self.machines)) as threads:
            late = [each for each in threads.map(_stopped, self.machines) if each]
        self.abandon(keep=keep)
        if late:
            raise Timeout(f"{'; '.join(late)}: killed")

    def abandon(self, *, keep: bool | None = None) -> None:
        """Ends all of it at once, for whoever does not look at what is left."""
        self._close_clients()
        self._end_processes(keep=self.keep if keep is None else keep)
        self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    # -- its machines and links ---------------------------------------------------------------

    def _begin(self, machine: Machine) -> None:
        self._starter.start(machine)

    def _runs(self, machine: Machine) -> bool:
        return self._starter.runs(machine)

    def _cut(self, pair: Pair, *, one_way: bool) -> str:
        if self.links.by:
            self.links.cut(pair, one_way=one_way)
        return self.links.by

    def _heal(self, pair: Pair | None) -> str:
        if self.links.by:
            self.links.heal(pair)
        return self.links.by

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
        return self.links.how(self._pair(one, other))

    def inside(self, machine: Machine) -> list[str]:
        """The words before those of a program that is to run where that machine is."""
        there = self.links.network_of(machine.id)
        return [shutil.which("nsenter") or "", f"--net={there}"] if there else []

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
            write_whole(path, cluster_text(self.plan, self._places, id_, secret))
        self.cuts.forget()
        for machine in self.machines:
            machine.refuse(())

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


def _temporary() -> Path:
    """One that is not there yet: the guard makes it."""
    return Path(
        tempfile.gettempdir(), f"duckrow-cluster-{random.SystemRandom().randbytes(8).hex()}"
    )


def _stopped(machine: Machine) -> str:
    """In order; else why not."""
    try:
        machine.stop(seconds=END_SECONDS)
    except Timeout as error:
        return str(error)
    return ""
