"""Starting machines of a local cluster: the bridge first, and a node that finds it.

A node that finds no bridge starts one itself, which loads all anew.  So both are forked by the guard,
which has loaded it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from duckrow.node.errors import Refused

from .asking import until
from .machine import BRIDGE, NODE, Machine
from .processes import Processes, is_there

START_SECONDS: Final = 60.0


@attrs.define
class Starter:
    _processes: Processes
    _network_of: Callable[[int], str]  # by the id of a machine: a network namespace, or none
    _begun: dict[int, int] = attrs.field(factory=dict, init=False)  # the last process, by machine

    def start_all(self, machines: Sequence[Machine]) -> None:
        """At once; waits for none of the nodes.

        Raises:
            NotFound: the guard is gone.
            Refused: a bridge ended; says what it said.
            Timeout.
        """
        for machine in machines:
            if not machine.pid(BRIDGE):
                self._start(BRIDGE, machine)
        for machine in machines:
            self._wait_for_bridge(machine)
            self._start(NODE, machine)

    def start(self, machine: Machine) -> None:
        self.start_all([machine])

    def runs(self, machine: Machine) -> bool:
        """Its node runs, or is about to: it takes its lock after a moment."""
        begun = self._begun.get(machine.id)
        return bool(machine.pids()) or (begun is not None and is_there(begun))

    def _wait_for_bridge(self, machine: Machine) -> None:
        until(
            lambda: machine.pid(BRIDGE) > 0 or not self.runs(machine),
            START_SECONDS,
            lambda: f"the bridge of {machine.name} does not start",
        )
        if not machine.pid(BRIDGE):
            raise Refused(f"{machine.name} has ended:\n{machine.last_words()}")

    def _start(self, process: str, machine: Machine) -> None:
        words = ["--cluster", str(machine.cluster_file), "--name", machine.name]
        words += ["--data", str(machine.data)]
        if machine.config_file.exists():
            words += ["--config", str(machine.config_file)]
        net = self._network_of(machine.id)
        if net:
            words += ["--set", "node.insecure=true"]  # only this host reaches it
        if process == NODE:
            words = ["node", *words, "--listen", machine.url.replace("duck", "tcp", 1)]
        else:
            words = ["bridge", "run", "--supervised", *words]
        self._begun[machine.id] = self._processes.run(words, machine.log, net)
