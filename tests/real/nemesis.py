"""What hurts the machines of a cluster: one thing after the other, and now and then all is healed.

    processes   node, bridge, both or everything killed; machines, or one of their processes, paused
    links       cut, also in one direction only; in namespaces packets are lost, late, doubled, flipped
    disks       full, syncs that fail, bits that flip; always the same machines, fewer than half

What an acknowledged entry may survive is the loss of a minority of disks, so no more are hurt.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import duckrow
from duckrow.cluster.local import LocalCluster
from duckrow.cluster.machine import BRIDGE, NODE
from duckrow.cluster.plan import Wires
from duckrow.node.errors import Conflict, DuckrowError
from real.thindisk import ThinDisk, flip_bit

CALM_SECONDS: Final = 1.5  # at most, between two faults
HURT_SECONDS: Final = 4.0  # at most, of a pause, a cut, or until what was killed starts again
HEAL_EVERY: Final = 8  # faults
PROGRESS_SECONDS: Final = 60.0  # in which the cluster has to order something again
PROGRESS_TOLD_SECONDS: Final = 5.0  # after which all is told that can be known
FLIPS_MAX: Final = 20  # at once
BAD_WEATHER: Final = Wires(
    delay=0.002, jitter=0.02, loss=0.03, overtakes=0.05, comes_twice=0.02, is_flipped=0.01
)

Kind = tuple[int, Callable[[], None]]


class Nemesis:
    def __init__(
        self, cluster: LocalCluster, everywhere: str, seed: int, disks: Mapping[str, ThinDisk]
    ) -> None:
        self.cluster, self.everywhere = cluster, everywhere
        self.faults: Counter[str] = Counter()
        self.progress: list[float] = []  # seconds, from each healing to the next ordered command
        self._disks = disks
        self._trail: list[str] = []
        self._chance = random.Random(seed)

    def run(self, stop: threading.Event) -> None:
        """Until told; all is healed then, and everything has been started."""
        self._stop = stop
        kinds = self._kinds()
        while not stop.wait(self._chance.uniform(0, CALM_SECONDS)):
            (kind,) = self._chance.choices([k for _, k in kinds], [w for w, _ in kinds])
            name = kind.__name__.removeprefix("_")
            self.faults[name] += 1
            self._trail.append(name)
            kind()
            if not self.faults.total() % HEAL_EVERY:
                self.heal()

    def heal(self) -> None:
        """Nothing hurts any more; how long until something is ordered is noted."""
        for machine in self.cluster.machines:
            if not machine.pid(NODE):
                self._begin(machine.name)
        began = time.monotonic()
        late = threading.Timer(PROGRESS_TOLD_SECONDS, self._tell)
        late.start()
        with duckrow.connect(self.everywhere, timeout=PROGRESS_SECONDS) as row:
            row.barrier()
        late.cancel()
        self.progress.append(time.monotonic() - began)

    def _tell(self) -> None:
        """What each machine says, for whoever looks into why it takes so long."""
        print(f"{PROGRESS_TOLD_SECONDS:g} s after {self._trail[-HEAL_EVERY:]}:", file=sys.stderr)
        for machine in self.cluster.machines:
            try:
                with self.cluster.connect(machine.name, timeout=1.0) as row:
                    told = str(row.status())
            except DuckrowError as error:
                told = str(error)
            print(f"--- {machine.name}: {told}\n{machine.last_words()}", file=sys.stderr)

    def _kinds(self) -> list[Kind]:
        kinds: list[Kind] = [
            (4, self._kill_node),
            (4, self._kill_bridge),
            (3, self._kill_both),
            (1, self._kill_all),
            (3, self._pause),
            (3, self._cut),
            (2, self._cut_off),
        ]
        if self._disks:
            kinds += [(1, self._full_disk), (2, self._failed_syncs), (3, self._flips)]
        if self.cluster.plan.namespaces:
            kinds.append((2, self._weather))
        return kinds

    # -- processes --------------------------------------------------------------------------

    def _kill_node(self) -> None:
        name = self._one()
        self.cluster.kill(name, NODE)
        self._wait()
        self._begin(name)

    def _kill_bridge(self) -> None:
        self.cluster.kill(self._one(), BRIDGE)

    def _kill_both(self) -> None:
        name = self._one()
        self.cluster.kill(name)
        self._wait()
        self._begin(name)

    def _kill_all(self) -> None:
        for machine in self._shuffled():
            self.cluster.kill(machine)
        for machine in self._shuffled():
            self._begin(machine)

    def _pause(self) -> None:
        name = self._one()
        self.cluster.pause(name, *self._chance.choice(((), (NODE,), (BRIDGE,))))
        self._wait()
        self.cluster.resume(name)

    # -- links ------------------------------------------------------------------------------

    def _cut(self) -> None:
        """One link, perhaps in one direction only."""
        one, other = self._shuffled()[:2]
        self.cluster.cut(one, other, one_way=self._chance.random() < 0.5)
        self._wait()
        self.cluster.heal()

    def _cut_off(self) -> None:
        """A minority from all others, perhaps in one direction only."""
        names = self._shuffled()
        few = self._chance.randint(1, (len(names) - 1) // 2)
        one_way, inwards = self._chance.random() < 0.3, self._chance.random() < 0.5
        for inside in names[:few]:
            for outside in names[few:]:
                pair = (outside, inside) if inwards else (inside, outside)
                self.cluster.cut(*pair, one_way=one_way)
        self._wait()
        self.cluster.heal()

    def _weather(self) -> None:
        self.cluster.links_are(BAD_WEATHER)
        self._wait()
        self.cluster.links_are(self.cluster.plan.wires or Wires())

    # -- disks ------------------------------------------------------------------------------

    def _full_disk(self) -> None:
        disk = self._disks[self._victim()]
        disk.fill()
        self._wait()
        disk.heal()

    def _failed_syncs(self) -> None:
        """Whoever syncs ends, and is started again, perhaps to fail again."""
        name = self._victim()
        self._disks[name].fail_syncs()
        self._wait()
        self._disks[name].heal()
        if not self.cluster.machine(name).pid(NODE):
            self._begin(name)

    def _flips(self) -> None:
        row = self.cluster.machine(self._victim()).data / "row"
        for _ in range(self._chance.randint(1, FLIPS_MAX)):
            flip_bit(row, self._chance)

    # -- drawn ------------------------------------------------------------------------------

    def _begin(self, name: str) -> None:
        try:
            self.cluster.begin(name)
        except Conflict:
            pass  # it was still starting when it was to be killed

    def _wait(self) -> None:
        self._stop.wait(self._chance.uniform(0, HURT_SECONDS))

    def _one(self) -> str:
        return self._chance.choice(self.cluster.machines).name

    def _victim(self) -> str:
        return self._chance.choice(sorted(self._disks))

    def _shuffled(self) -> list[str]:
        names = [machine.name for machine in self.cluster.machines]
        self._chance.shuffle(names)
        return names
