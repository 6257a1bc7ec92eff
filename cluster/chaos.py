"""Hurts a cluster under load as a seed says, and judges what its clients were told and saw.

    faultplan.py ──► nemesis.py ──► cluster ◄── chaosload.py ──► history ──► checker.py

In the end everything is healed, each node is read once more, and the digests of the rows are compared.
The faults follow from the seed, but the processes do not: a run is repeated as far as its plan goes.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs

from duckrow.node.errors import DuckrowError

from . import faultplan
from .chaosload import Load
from .comparing import compared, digest_of
from .faultplan import OF_DISKS, Fault, Ground
from .history import Report
from .local import LocalCluster
from .machine import Machine
from .nemesis import IN_SECONDS, Disk, Nemesis
from .plan import Plan, name_of
from .thindisk import MountedDisk, ThinDisk, is_own, keep_mounts

LOOK_SECONDS: Final = 0.2
GO_ON_SECONDS: Final = 60.0  # in which every client has to get on then

# Of disks that are small: reserves to match, and many segments, so that much is in sealed ones.
SMALL: Final = {
    "DUCKROW__STORE__SEGMENT": "2MiB",
    "DUCKROW__STORE__SOFT_RESERVE": "16MiB",
    "DUCKROW__STORE__SOFT_RESERVE_SHARE": "0%",
    "DUCKROW__STORE__HARD_RESERVE": "8MiB",
}

Told = Callable[[float, Fault], None]  # seconds from the beginning, what happens now


@attrs.frozen
class Result:
    seconds: float  # of faults
    faults: Counter[str]
    operations: int
    acknowledged: int  # entries
    accepted: int
    unknown: int  # entries whose producer was told nothing certain
    progress: tuple[float, ...]  # seconds from each healing to the next ordered command
    healed: float  # seconds from the last healing until every node ordered one
    report: Report


def ground_of(cluster: LocalCluster, disks: Mapping[str, Disk]) -> Ground:
    """What of a cluster can be hurt, and why not the rest."""
    impossible: dict[str, str] = {}
    if not cluster.plan.has_wires:
        why = "its links have no wires: start the cluster with `duckrow cluster up --delay 0.1`"
        impossible |= {"one-way": why, "slow-link": why}
    if not disks:
        why = "its machines have no disks of their own: with --nodes, as root, they get some"
        impossible |= dict.fromkeys(OF_DISKS - {"flip"}, why)
    if disks and not all(isinstance(disk, ThinDisk) for disk in disks.values()):
        impossible["failed-syncs"] = (
            "nobody knows what its disks lie on: with --nodes, as root, they get others"
        )
    names = tuple(machine.name for machine in cluster.machines)
    return Ground(names, tuple(sorted(cluster.plan.links)), impossible)


def disks_of(cluster: LocalCluster) -> dict[str, Disk]:
    """Of those machines whose folder is a file system of its own."""
    found: dict[str, Disk] = {}
    for machine in cluster.machines:
        if is_own(machine.data):
            found[machine.name] = MountedDisk(machine.data)
    return found if len(found) == len(cluster.machines) else {}


@contextmanager
def own_cluster(plan: Plan, *, disks: bool) -> Iterator[tuple[LocalCluster, dict[str, Disk]]]:
    """One that ends with this.  `disks`: each machine gets a small one of its own; that is for root."""
    thin: dict[str, Disk] = {}

    def prepare(machines: Sequence[Machine]) -> None:
        for machine in machines:
            disk = thin[machine.name] = ThinDisk(machine.home)
            disk.mount()

    if disks:
        keep_mounts()
        os.environ.update(SMALL)
        mounts = [each for id_ in plan.ids for each in ThinDisk.mounts(name_of(id_))]
        launched = LocalCluster.launch(plan, prepare=prepare, mounts=mounts)
    else:
        launched = LocalCluster.launch(plan)
    with launched as cluster:
        yield cluster, thin


def run(
    cluster: LocalCluster,
    disks: Mapping[str, Disk],
    scenario: str,
    seed: int,
    seconds: float,
    told: Told,
    *,
    entries: int = 0,
) -> Result:
    """So long, or, if `entries` are asked for, until so many are acknowledged.

    Raises:
        NotFound, Refused: there is no such scenario, or not here.
        DuckrowError, OSError: what hurts it cannot go on, or a client that should have.
    """
    began = time.monotonic()
    plan = faultplan.faults(seed, scenario, ground_of(cluster, disks))
    nemesis = Nemesis(cluster, plan, disks, lambda fault: told(time.monotonic() - began, fault))
    load = Load(cluster, f"chaos-{seed}-{random.SystemRandom().getrandbits(32):08x}")
    stop = threading.Event()
    hurting = threading.Thread(target=nemesis.run, args=(stop,), name="nemesis", daemon=True)
    load.start()
    try:
        hurting.start()
        try:
            while not load.failed.wait(LOOK_SECONDS) and hurting.is_alive():
                if load.seconds > seconds or (entries and load.acknowledged >= entries):
                    break
            lasted = load.seconds
        finally:
            stop.set()
            hurting.join()
        if nemesis.failed is not None:
            raise nemesis.failed
        healed = time.monotonic()
        stuck = [("stuck-cluster", each) for each in (*nemesis.stuck, *_wait_for_all(cluster))]
        healed = time.monotonic() - healed
        stuck += load.standing_still(GO_ON_SECONDS)
        load.finish()
        same = _compared(cluster)
    except KeyboardInterrupt:
        load.abandon()
        load.forget()
        raise
    finally:
        load.abandon()
    report = load.judged()
    for kind, text in stuck:
        report.add(kind, text)
    for node in same["unknown"]:
        report.add("not-converged", f"{node} does not know its row at position {same['position']}")
    if not same["same"]:
        report.add("not-converged", f"the rows differ at position {same['first_difference']}")
    if report.ok:
        load.forget()
    return Result(
        seconds=lasted,
        faults=nemesis.faults,
        operations=load.operations,
        acknowledged=load.acknowledged,
        accepted=len(load.accepted),
        unknown=load.unknown,
        progress=tuple(nemesis.progress),
        healed=healed,
        report=report,
    )


def _wait_for_all(cluster: LocalCluster) -> Iterator[str]:
    for machine in cluster.machines:
        try:
            cluster.wait(machine.name, seconds=IN_SECONDS)
        except DuckrowError as error:
            yield str(error)


def _compared(cluster: LocalCluster) -> dict[str, Any]:
    clients = [cluster.client(machine.name) for machine in cluster.machines]
    return compared([each.status() for each in clients], [digest_of(each) for each in clients])
