"""The links of a local cluster: the process that carries them, if there is one, and what it is told.

on loopback alone       nobody: bridges talk to each other directly
with wires              wire.py, a relay for each link
in namespaces           namespaces.py, which passes packets on
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import attrs

from duckrow.node.clusterfile import Pair
from duckrow.node.errors import Refused

from . import namespaces
from .asking import ask, until
from .home import WIRE_LOG, WIRE_SOCKET
from .plan import Places, Plan, Wires
from .processes import Processes, is_there, python

START_SECONDS: Final = 60.0


@attrs.frozen
class Links:
    folder: Path
    plan: Plan
    places: Places
    block: str  # of addresses, if there are namespaces

    @property
    def by(self) -> str:
        """What a cut is done by, in a word; empty: nothing here can."""
        if self.plan.namespaces:
            return "namespaces"
        return "wires" if self.plan.has_wires else ""

    def start(self, processes: Processes) -> None:
        """
        Raises:
            Refused: they cannot be had; says why.
            Timeout.
        """
        if not self.by:
            return
        wires = attrs.asdict(self.plan.wires or Wires())
        if self.plan.namespaces:
            module, where = "namespaces", {"machines": self.plan.ids, "block": self.block}
        else:
            links = [
                [one, other, port, int(self.places.bridges[other].rpartition(":")[2])]
                for (one, other), port in self.places.wires.items()
            ]
            module, where = "wire", {"links": links}
        path, log = self.folder / WIRE_SOCKET, self.folder / WIRE_LOG
        path.unlink(missing_ok=True)
        told = json.dumps({**wires, **where})
        # By its name in the folder of the guard, since the path of a socket has to be short.
        pid = processes.start(python(f"duckrow.cluster.{module}", WIRE_SOCKET, told), log)
        until(
            lambda: path.exists() or not is_there(pid),
            START_SECONDS,
            lambda: "the links do not start",
        )
        if not path.exists():
            raise Refused(f"the links cannot be had: {log.read_text('utf-8', 'replace').strip()}")

    def cut(self, pair: Pair, *, one_way: bool) -> None:
        self._tell(cut=pair, one_way=one_way)

    def heal(self, pair: Pair | None) -> None:
        """None: all."""
        self._tell(heal=pair or ())

    def are(self, wires: Wires) -> None:
        """All of them, from now on."""
        attrs.evolve(self.plan, wires=wires)  # refuses what cannot be
        self._tell(links=attrs.asdict(wires))

    def is_(self, pair: Pair, wires: Wires) -> None:
        """That one, both ways, from now on."""
        attrs.evolve(self.plan, wires=wires)
        self._tell(links=attrs.asdict(wires), between=pair)

    def how(self, pair: Pair) -> Wires:
        """That one is now."""
        return Wires(**self._tell(how=pair)["how"]) if self.by else Wires()

    def network_of(self, id_: int) -> str:
        """The file that is the network namespace of a machine; empty: it has none."""
        if not self.plan.namespaces:
            return ""
        return f"/proc/{self._tell(where=True)['pid']}/fd/{namespaces.NAMESPACE_FD + id_}"

    def forget(self) -> None:
        """Once all processes have ended."""
        if self.plan.namespaces:
            namespaces.forget(self.plan.ids, self.block)

    def _tell(self, **asked: Any) -> dict[str, Any]:
        if not self.by:
            raise Refused("this cluster has no wires: only links over wires can be cut or slow")
        return ask(self.folder, WIRE_SOCKET, asked)
