"""The folder of a cluster: what lies in it, and what was found there.

    plan.json       what the cluster consists of, and where it listens; whether its disks are to stay
    cluster.toml    the cluster file, for commands that ask all nodes
    m1/ ...         of each machine: `cluster.toml` as it has it, `data/`, `log`
    guard.sock      of the guard (guard.py), which holds a lock on the folder as well
    cuts.json       what is cut where only bridges can do it (cuts.py)
    wires.sock      of what carries the links (wire.py, namespaces.py); `wires.log`

A folder whose guard does not run, and whose plan does not say that disks are to stay, was left by a
cluster whose guard was killed, or by a machine that was switched off.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

import attrs

from duckrow.node.errors import Conflict, NotFound, Refused
from duckrow.node.limits import (
    HARD_RESERVE_BYTES,
    MIB,
    SOFT_RESERVE_BYTES,
    SOFT_RESERVE_FRACTION,
)

from .asking import answers
from .cuts import CUTS
from .guard import SOCKET, remove
from .plan import Plan, name_of
from .wholetext import ASIDE, read_told, write_whole

PLAN, CLUSTER_FILE = "plan.json", "cluster.toml"
HOSTS: Final = "hosts.json"  # instead of a plan, of machines elsewhere (remote.py)
WIRE_SOCKET, WIRE_LOG = "wires.sock", "wires.log"
MACHINE_BYTES: Final = HARD_RESERVE_BYTES * 9 // 8 + 4 * MIB  # what an empty one takes
DOWN: Final = "duckrow cluster down --dir"


@attrs.frozen(kw_only=True)
class Told:
    """What plan.json says."""

    plan: Plan
    ports: tuple[int, ...]
    block: str  # of addresses, if it has namespaces
    keep: bool

    def write(self, folder: Path) -> None:
        write_whole(folder / PLAN, json.dumps(attrs.asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """
        Raises:
            NotFound: there is no cluster; says what to do.
            Refused: it is one of machines elsewhere.
            Corrupt: what is there is no plan.
        """
        try:
            return read_told(folder / PLAN, cls._of)
        except (FileNotFoundError, NotADirectoryError):
            if (folder / HOSTS).exists():
                raise Refused(
                    f"the machines of the cluster in {folder} are elsewhere: this can be done only "
                    "with a cluster on this machine"
                ) from None
            raise NotFound(
                f"there is no cluster in {folder}: start one with `duckrow cluster up --dir {folder}`, "
                "or say with --dir where it is"
            ) from None

    @classmethod
    def _of(cls, told: dict[str, Any]) -> Self:
        return cls(
            plan=Plan.told(told["plan"]),
            ports=tuple(told["ports"]),
            block=told["block"],
            keep=told["keep"],
        )


def is_guarded(folder: Path) -> bool:
    """Whether a cluster runs there."""
    return answers(folder, SOCKET)


def owned(plan: Plan) -> list[str]:
    """All that a cluster puts there."""
    files = (CLUSTER_FILE, CUTS, PLAN)
    machines = [name_of(id_) for id_ in plan.ids]
    return [*machines, *with_asides(files), WIRE_SOCKET, WIRE_LOG]


def with_asides(names: Sequence[str]) -> list[str]:
    """And what is left of one that somebody was killed in writing."""
    return [each for name in names for each in (name, name + ASIDE)]


def check_free(folder: Path, plan: Plan) -> bool:
    """Nothing in it is somebody else's; disks that were kept fit, and are not lost later.  Are there any?

    Raises:
        Conflict: there is something; says what to do.
        Refused: the disks are those of another number of machines, or of another durability.
    """
    there = sorted(path.name for path in folder.iterdir() if path.name != SOCKET)
    if not there:
        return False
    if PLAN not in there:
        raise Conflict(
            f"{folder} is not empty, it has {there[0]}: a cluster wants a folder of its own, choose "
            "another one with --dir"
        )
    found = Told.read(folder)
    if not found.keep:
        raise Conflict(
            f"in {folder} is what a cluster left whose guard was killed: `{DOWN} {folder}` removes "
            "it, and with --keep the disks stay"
        )
    if found.plan.nodes != plan.nodes:
        raise Refused(
            f"in {folder} are the disks of {found.plan.nodes} machines, and {plan.nodes} are to be "
            f"started: say --nodes {found.plan.nodes}, or choose another folder with --dir"
        )
    was, level = found.plan.durability, plan.durability
    if was != level:
        raise Refused(
            f"the row in {folder} began with durability {was}, which {level} in the cluster file would not "
            f"change: say --durability {was}, and then `duckrow member set --durability {level}`, or choose "
            "another folder with --dir"
        )
    return True


def level_kept(folder: Path, otherwise: str) -> str:
    """The durability with which the row on disks that were kept there began."""
    return Told.read(folder).plan.durability if (folder / PLAN).exists() else otherwise


def check_room(folder: Path, machines: int, option: str) -> None:
    """Disks of so many machines have room, and there stays more than at which they refuse entries.

    Raises:
        Refused: there is less; `option` says where else the folder can be.
    """
    disk = os.statvfs(folder)
    free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    stays = max(SOFT_RESERVE_BYTES, int(size * SOFT_RESERVE_FRACTION))
    wanted = machines * MACHINE_BYTES + stays
    if free < wanted:
        raise Refused(
            f"{folder} has {free // MIB} MiB of free space, and {wanted // MIB} are wanted: a node "
            f"takes no entries with less than {stays // MIB} MiB; make room, say with {option} where "
            "there is more, or start fewer machines"
        )


def clear(folder: Path, names: Sequence[str]) -> None:
    """What a dead guard has left; the folder too, if nothing else is in it."""
    remove(folder, [*names, SOCKET])
    try:
        folder.rmdir()
    except OSError:
        pass  # somebody else has put something there
