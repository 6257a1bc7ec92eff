"""What is done to the machines of a cluster, wherever they are: looked at, hurt, and started again.

A machine is a folder of this host (machine.py), or one that is reached over ssh (remote.py).
"""

from __future__ import annotations

import fcntl
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from duckrow.node.addresses import read_url
from duckrow.node.blocking import TIMEOUT, Client
from duckrow.node.clusterfile import Pair
from duckrow.node.errors import (
    Conflict,
    Disconnected,
    DuckrowError,
    Full,
    NoQuorum,
    NotFound,
    Refused,
    Timeout,
)

from .asking import until
from .cuts import Cuts
from .home import CLUSTER_FILE
from .machine import BRIDGE, NODE
from .plan import Wires, way_between
from .states import row_of

START_SECONDS: Final = 60.0
END_SECONDS: Final = 30.0
LOOK_SECONDS_MAX: Final = 5.0  # for one look at a node
BRIDGES: Final = "bridges"


class AnyMachine(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def url(self) -> str: ...
    def look(self) -> tuple[dict[str, int], bool]:
        """Its processes, by kind, and whether one of them stands still."""
        ...

    def kill(self, *processes: str, seconds: float) -> None: ...
    def stop(self, *, seconds: float) -> None: ...
    def pause(self, *processes: str, seconds: float) -> None: ...
    def resume(self) -> None: ...
    def refuse(self, names: Collection[str]) -> None: ...
    def wipe(self) -> None: ...
    def last_words(self, count: int = ...) -> str: ...


M = TypeVar("M", bound=AnyMachine)


class Cluster(ABC, Generic[M]):
    """Machines are told by their names, or by their place: 0 is the first."""

    def __init__(
        self, folder: Path, machines: Sequence[M], pairs: Sequence[Pair], token: str = ""
    ) -> None:
        self.folder, self.machines, self.pairs = folder, tuple(machines), tuple(pairs)
        self.cuts = Cuts(folder)
        self.token = token
        self._clients: dict[int, Client] = {}

    # -- what differs ------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, machine: M) -> None:
        """Starts both of its processes."""

    @abstractmethod
    def _runs(self, machine: M) -> bool:
        """Or is about to."""

    def _cut(self, pair: Pair, *, one_way: bool) -> str:
        """At what carries the link, and what that is; empty: nothing does."""
        return ""

    def _heal(self, pair: Pair | None) -> str:
        return ""

    # -- looking -----------------------------------------------------------------------------

    def report(self) -> list[dict[str, Any]]:
        """How all machines are, as `duckrow cluster status` tells it."""
        with ThreadPoolExecutor(len(self.machines)) as threads:
            return [*threads.map(self._report, self.machines)]

    def machine(self, which: int | str) -> M:
        """
        Raises:
            NotFound: there is none.
        """
        for place, machine in enumerate(self.machines):
            if which in (place, machine.name):
                return machine
        there = ", ".join(machine.name for machine in self.machines)
        if isinstance(which, int):
            there += f", or 0 to {len(self.machines) - 1}"
        raise NotFound(f"there is no machine {which!r}: there are {there}")

    def way(self, one: int | str, other: int | str) -> list[M]:
        """The machines on a shortest one, with both ends."""
        by_id = {machine.id: machine for machine in self.machines}
        ids = way_between(self.pairs, self.machine(one).id, self.machine(other).id)
        return [by_id[id_] for id_ in ids]

    def link_between(self, one: int | str, other: int | str) -> Wires:
        """What is added to that link here, as it is now.

        Raises:
            Refused: there is no such link.
        """
        self._pair(one, other)
        return Wires()

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
        url = read_url(machine.url)
        return Client(url, name=machine.name, timeout=timeout, token=self.token)

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
            except (Disconnected, Timeout, NoQuorum, Full, OSError) as error:
                if not self._runs(machine):
                    raise Refused(f"{machine.name} has ended:\n{machine.last_words()}") from error
                said = f": {error}"
                return False

        until(is_so, seconds, lambda: f"{machine.name} does not {done}{said}")

    # -- hurting -----------------------------------------------------------------------------

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
        self.serve(which)
        if active:
            self.wait(which)

    def begin(self, which: int | str) -> None:
        """Starts it, and waits for nothing.

        Raises:
            Conflict: its node runs.
        """
        machine = self.machine(which)
        pid = machine.look()[0].get(NODE)
        if pid:
            raise Conflict(f"{machine.name} runs already, its node is process {pid}")
        if self.cuts.are_used:
            with self._no_other_cuts():
                machine.refuse(self._refused_by(machine))  # it may have been wiped, or away
        self._begin(machine)

    def serve(self, which: int | str) -> None:
        """Waits until it does; its bridge knows then whom it refuses."""
        self.wait(which, active=False)
        if self.cuts.are_used:
            with self._no_other_cuts():
                # To a bridge that had gone on without its node.
                self._tell_cuts(self.machine(which).id)

    def pause(self, which: int | str, *processes: str) -> None:
        """SIGSTOP; they do nothing more when this returns."""
        self.machine(which).pause(*processes, seconds=END_SECONDS)

    def resume(self, which: int | str) -> None:
        machine = self.machine(which)
        machine.resume()
        if self.cuts.are_used:
            with self._no_other_cuts():
                self._tell_cuts(machine.id)  # what was cut and healed meanwhile

    def wipe(self, which: int | str) -> None:
        """The disk of one that is stopped is gone."""
        self.machine(which).wipe()

    def cut(self, one: int | str, other: int | str, *, one_way: bool = False) -> str:
        """The link between two machines carries nothing more, or nothing from the one to the other.

        By what: the wires, the namespaces, or where there are neither the bridges at both ends.

        Raises:
            Refused: there is no such link, or it cannot be cut in one direction.
        """
        pair = self._pair(one, other)
        if by := self._cut(pair, one_way=one_way):
            return by
        if one_way:
            raise Refused(
                "without wires a link is cut in both directions: only over wires (a delay, a loss, "
                "a rate) or in namespaces it is cut in one"
            )
        with self._no_other_cuts():
            self.cuts.add((min(pair), max(pair)))
            self._tell_cuts(*pair)
        return BRIDGES

    def heal(self, one: int | str | None = None, other: int | str | None = None) -> str:
        """That link, or all of them; by what."""
        pair = None if one is None or other is None else self._pair(one, other)
        if by := self._heal(pair):
            return by
        with self._no_other_cuts():
            self.cuts.remove(pair and (min(pair), max(pair)))
            self._tell_cuts(*(pair or (machine.id for machine in self.machines)))
        return BRIDGES

    @contextmanager
    def _no_other_cuts(self) -> Iterator[None]:
        """By other commands: each would write down, and tell, what it saw before the other one."""
        with (self.folder / CLUSTER_FILE).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _tell_cuts(self, *ids: int) -> None:
        """Whom they refuse.  It is noted first: a bridge that does not run now reads it when it starts, and
        one that may have begun to is told.
        """
        for machine in self.machines:
            if machine.id in ids:
                refused = self._refused_by(machine)
                machine.refuse(refused)
                pids, is_paused = machine.look()
                if len(pids) == 2 and not is_paused:
                    with self.connect(machine.name) as row:
                        row.members("refuse", nodes=refused)

    def _refused_by(self, machine: M) -> list[str]:
        names = {each.id: each.name for each in self.machines}
        return [names[id_] for id_ in self.cuts.of(machine.id)]

    # -- helpers -----------------------------------------------------------------------------

    def _report(self, machine: M) -> dict[str, Any]:
        pids, is_paused, unseen = dict[str, int](), False, ""
        try:
            pids, is_paused = machine.look()
        except DuckrowError as error:
            unseen = str(error)
        status = None
        if (NODE in pids or unseen) and not is_paused:
            try:
                with self.connect(machine.name, timeout=LOOK_SECONDS_MAX) as client:
                    status = client.status()
                    if not status["active"] and not status["why"]:
                        status["waits"] = client.members()["waits"]
            except (DuckrowError, OSError):
                pass  # that it does not answer is what is told
        row = row_of(
            machine.name,
            machine.url,
            pid=pids.get(NODE, 0),
            bridge_pid=pids.get(BRIDGE, 0),
            runs=NODE in pids or status is not None,
            is_paused=is_paused,
            status=status,
        )
        return {**row, "why": unseen} if unseen else row

    def _pair(self, one: int | str, other: int | str) -> Pair:
        first, second = self.machine(one), self.machine(other)
        pair = first.id, second.id
        if (min(pair), max(pair)) not in self.pairs:
            raise Refused(f"there is no link between {first.name} and {second.name}")
        return pair

    def _close_clients(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            try:
                client.close(timeout=0)
            except DuckrowError:
                pass  # its node may be dead
