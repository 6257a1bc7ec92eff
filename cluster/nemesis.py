"""Does to the machines of a cluster what a plan says, and undoes it.

    plan (faultplan.py) ──► calm, hurt, undo ──► calm, hurt, undo ──► ... now and then all is well

Whoever stops it, and whatever goes wrong, what it has done is undone: links are whole, disks have room,
everybody runs and votes.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Final, Protocol

from duckrow.node.addresses import read_url
from duckrow.node.blocking import Client
from duckrow.node.errors import Conflict, DuckrowError, Full

from .asking import until
from .faultplan import Fault
from .flips import flip_bits
from .local import LocalCluster
from .machine import NODE
from .plan import Wires

HEAL_EVERY: Final = 8  # faults
IN_SECONDS: Final = 330.0  # until a machine orders: one that stalled often is let in that late
PROGRESS_SECONDS: Final = 60.0  # in which a cluster has to order something again
VOTE_SECONDS: Final = 15.0  # until a vote is taken or given, if it can be
VOTES_SECONDS: Final = 60.0  # until everybody has the own one again
SLOW: Final = Wires(delay=0.02, jitter=0.02, loss=0.03)
SLOW_PACKETS: Final = Wires(
    delay=0.002, jitter=0.02, loss=0.03, overtakes=0.05, comes_twice=0.02, is_flipped=0.01
)


class Disk(Protocol):
    """The disk of one machine alone."""

    def fill(self) -> None: ...
    def fail_syncs(self) -> None: ...
    def heal(self) -> None: ...


class Nemesis:
    def __init__(
        self,
        cluster: LocalCluster,
        plan: Iterator[Fault],
        disks: Mapping[str, Disk],
        told: Callable[[Fault], None],
    ) -> None:
        self.cluster = cluster
        self.faults: Counter[str] = Counter()
        self.progress: list[float] = []  # seconds, from each healing to the next ordered command
        self.stuck: list[
            str
        ] = []  # what did not go on after a healing, or was not done in its time
        self.failed: Exception | None = None  # no fault of the cluster, and the end of this
        self._trail: list[Fault] = []  # since the last one
        self._plan, self._disks, self._told = plan, disks, told
        self._stop = threading.Event()
        self._acts: Mapping[str, Callable[[Fault], None]] = {
            "kill-node": self._kill_node,
            "kill-bridge": self._kill_bridge,
            "kill": self._kill,
            "power": self._power,
            "pause": self._pause,
            "cut": self._cut,
            "one-way": self._cut,
            "isolate": self._cut,
            "slow-link": self._slow,
            "disk-full": self._full,
            "failed-syncs": self._failed_syncs,
            "flip": self._flip,
            "churn": self._churn,
            "rolling-restart": self._restart,
        }

    def run(self, stop: threading.Event) -> None:
        """Until told to stop; then all is well again."""
        self._stop = stop
        try:
            with ExitStack() as undone:
                undone.callback(self.heal)
                for fault in self._plan:
                    if stop.wait(fault.calm):
                        break
                    self._hurt(fault)
        except Exception as error:  # noqa: BLE001 - whoever has started this thread raises it
            self.failed = error

    def _hurt(self, fault: Fault) -> None:
        self.faults[fault.kind] += 1
        self._trail.append(fault)
        self._told(fault)
        try:
            self._acts[fault.kind](fault)
        except DuckrowError as error:
            self.stuck.append(f"{fault}: {error}")
            self.heal()  # it may be half done
        if self.faults.total() % HEAL_EVERY == 0:
            self.heal()

    def heal(self) -> None:
        """Nothing hurts any more; how long until something is ordered is noted."""
        try:
            for machine in self.cluster.machines:
                if machine.look()[1]:
                    self.cluster.resume(machine.name)
                self._begin(machine.name)
            began = time.monotonic()
            until(self._orders, PROGRESS_SECONDS, lambda: "nothing is ordered")
            self.progress.append(time.monotonic() - began)
            until(self._all_vote, VOTES_SECONDS, lambda: "a vote cannot be given back")
        except DuckrowError as error:
            self.stuck.append(f"after {', '.join(map(str, self._trail))}: {error}")
        self._trail.clear()

    def _orders(self) -> bool:
        """A machine whose disk was full looks now and then whether there is room again."""
        try:
            with self._anybody(PROGRESS_SECONDS) as row:
                row.barrier()
        except Full:
            return False
        return True

    # -- processes --------------------------------------------------------------------------

    def _kill_node(self, fault: Fault) -> None:
        self.cluster.kill(fault.machines[0], NODE)
        self._wait(fault)
        self._begin(fault.machines[0])

    def _kill_bridge(self, fault: Fault) -> None:
        """Its node starts it again."""
        self.cluster.kill(fault.machines[0], "bridge")

    def _kill(self, fault: Fault) -> None:
        self.cluster.kill(fault.machines[0])
        self._wait(fault)
        self._begin(fault.machines[0])

    def _power(self, fault: Fault) -> None:
        for name in fault.machines:  # before anybody can notice
            self.cluster.machine(name).signal(signal.SIGKILL)
        for name in fault.machines:
            self.cluster.kill(name)
        for name in reversed(fault.machines):
            self._begin(name)

    def _pause(self, fault: Fault) -> None:
        name = fault.machines[0]
        try:
            self.cluster.pause(name, *fault.processes)
            self._wait(fault)
        finally:
            self.cluster.resume(name)

    def _restart(self, fault: Fault) -> None:
        for name in fault.machines:
            if self._stop.is_set():
                return
            self.cluster.stop(name)
            self.cluster.begin(name)
            self.cluster.wait(name, seconds=IN_SECONDS)

    # -- links ------------------------------------------------------------------------------

    def _cut(self, fault: Fault) -> None:
        try:
            for one, other in fault.links:
                self.cluster.cut(one, other, one_way=fault.one_way)
            self._wait(fault)
        finally:
            self.cluster.heal()

    def _slow(self, fault: Fault) -> None:
        ((one, other),) = fault.links
        before = self.cluster.link_between(one, other)
        try:
            weather = SLOW_PACKETS if self.cluster.plan.namespaces else SLOW
            self.cluster.link_is(one, other, before.worse(weather))
            self._wait(fault)
        finally:
            self.cluster.link_is(one, other, before)

    # -- disks ------------------------------------------------------------------------------

    def _full(self, fault: Fault) -> None:
        disk = self._disks[fault.machines[0]]
        try:
            disk.fill()
            self._wait(fault)
        finally:
            disk.heal()

    def _failed_syncs(self, fault: Fault) -> None:
        """Whoever syncs ends, and is started again, perhaps to fail again."""
        disk = self._disks[fault.machines[0]]
        try:
            disk.fail_syncs()
            self._wait(fault)
        finally:
            disk.heal()
        self._begin(fault.machines[0])

    def _flip(self, fault: Fault) -> None:
        row = self.cluster.machine(fault.machines[0]).data / "row"
        flip_bits(row, random.Random(fault.seed))

    # -- votes ------------------------------------------------------------------------------

    def _churn(self, fault: Fault) -> None:
        """What cannot be now is refused, and no harm."""
        name = fault.machines[0]
        try:
            with self._anybody(VOTE_SECONDS) as row:
                row.members("retire", node=name, seconds=VOTE_SECONDS)
        except DuckrowError:
            return
        self._wait(fault)
        self._give_vote(name)

    def _give_vote(self, name: str) -> None:
        try:
            with self._anybody(VOTE_SECONDS) as row:
                row.members("add", node=name, weight=1, witness=False, seconds=VOTE_SECONDS)
        except DuckrowError:
            pass  # it is too far behind yet: `heal` tries again

    def _all_vote(self) -> bool:
        """Who should, by the cluster file."""
        if not self.faults["churn"]:
            return True
        try:
            with self._anybody(VOTE_SECONDS) as row:
                nodes = row.members()["nodes"]
        except DuckrowError:
            return False
        without = [each["name"] for each in nodes if each["listed"] and not each["weight"]]
        for name in without:
            self._give_vote(name)
        return not without

    # -- ------------------------------------------------------------------------------------

    def _begin(self, name: str) -> None:
        if NODE in self.cluster.machine(name).look()[0]:
            return
        try:
            self.cluster.begin(name)
        except Conflict:
            pass  # it was still starting when it was to be killed

    def _wait(self, fault: Fault) -> None:
        self._stop.wait(fault.hurt)

    def _anybody(self, seconds: float) -> Client:
        """A client of whichever machine answers."""
        return Client(read_url(self.cluster.everywhere), name="nemesis", timeout=seconds)
