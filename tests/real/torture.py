"""Real processes under random faults and load, and the history that the checker of the simulation judges.

    producers   batches with names of their own, each through a client that knows all nodes
    readers     one at each node, from the first entry on, waiting where there is nothing
    nemesis     kills nodes, bridges, both, everything at once; pauses machines; cuts links

    PYTHONPATH=src:tests .venv/bin/python -m real.torture --seed 7 --entries 1000000 --seconds 900

In the end everything is healed, and what each node has is read once more.  The faults follow from the
seed, but the processes do not: a run cannot be repeated, only its plan.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import attrs

import duckrow
from duckrow.cluster.checker import check
from duckrow.cluster.history import FAIL, INFO, OK, Content, History, Produce, Pull, Report
from duckrow.cluster.local import LocalCluster
from duckrow.cluster.machine import BRIDGE, NODE
from duckrow.cluster.plan import Plan, Wires
from duckrow.node.errors import Conflict, Disconnected, DuckrowError, Full, NoQuorum, Timeout

TOPIC: Final = "torture"
KEY: Final = TOPIC, 0
BATCH_MAX: Final = 200
SHIFT: Final = 40  # a value is the number of its producer, and from here down a count
VALUE_BYTES: Final = 8
ANSWER_SECONDS: Final = 10.0
CALM_SECONDS: Final = 1.5  # at most, between two faults
HURT_SECONDS: Final = 4.0  # at most, of a pause, a cut, or until what was killed starts again
AFTER_SECONDS: Final = 60.0  # until everything has to be well in the end


@attrs.define
class Result:
    history: History
    faults: Counter[str]
    acknowledged: int
    unknown: int  # entries whose producer was told nothing certain
    seconds: float
    healed: float  # from the last start to an answer at every node
    report: Report

    def __str__(self) -> str:
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        return (
            f"{self.acknowledged:,} entries acknowledged in {self.seconds:.0f} s, {self.unknown:,} in "
            f"doubt, {len(self.history.pulls):,} pulls; {sum(self.faults.values())} faults: {faults}; "
            f"all nodes answered {self.healed:.1f} s after the end of the faults; "
            f"anomalies: {str(self.report) or 'none'}"
        )


class Torture:
    def __init__(self, cluster: LocalCluster, seed: int) -> None:
        self.cluster = cluster
        self.history = History()
        self.faults: Counter[str] = Counter()
        self.acknowledged = self.unknown = 0
        self.errors: list[BaseException] = []
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._stop = threading.Event()  # of producers and nemesis
        self._read = threading.Event()  # of readers
        self._began = time.monotonic()

    def run(self, entries: int, seconds: float) -> Result:
        """Until so many are acknowledged, or so long."""
        everywhere = "duck://" + ",".join(
            each.url.removeprefix("duck://") for each in self.cluster.machines
        )
        workers = [self._thread(self._produce, number, everywhere) for number in (1, 2, 3)]
        readers = [self._thread(self._pull, each.name) for each in self.cluster.machines]
        hurting = self._thread(self._hurt)
        while not self._stop.wait(0.2):
            if self.acknowledged >= entries or self._now() > seconds:
                self._stop.set()
        hurting.join()
        lasted, healed = self._now(), time.monotonic()
        for machine in self.cluster.machines:
            self.cluster.wait(machine.name, seconds=AFTER_SECONDS)
        healed = time.monotonic() - healed
        for worker in workers:
            worker.join()
        self._read.set()
        for reader in readers:
            reader.join()
        if self.errors:
            raise self.errors[0]
        for machine in self.cluster.machines:
            self.history.finals[machine.name] = {KEY: Content(1, self._all_of(machine.name))}
        self.history.ended = self._now()
        return Result(
            history=self.history,
            faults=self.faults,
            acknowledged=self.acknowledged,
            unknown=self.unknown,
            seconds=lasted,
            healed=healed,
            report=check(self.history),
        )

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _thread(self, work: Callable[..., None], *args: object) -> threading.Thread:
        def guarded() -> None:
            try:
                work(*args)
            except BaseException as error:  # noqa: BLE001 - raised again by `run`
                self.errors.append(error)
                self._stop.set()
                self._read.set()

        thread = threading.Thread(target=guarded, name=work.__name__)
        thread.start()
        return thread

    # -- load -------------------------------------------------------------------------------

    def _produce(self, number: int, url: str) -> None:
        chance = random.Random(number)
        made = number << SHIFT
        row = duckrow.connect(url, name=f"producer-{number}", timeout=ANSWER_SECONDS)
        while not self._stop.is_set():
            values = range(made, made + chance.randint(1, BATCH_MAX))
            made = values.stop
            batch = Produce(f"p{number}", KEY, values, self._now())
            try:
                told = row.produce_many(TOPIC, [v.to_bytes(VALUE_BYTES, "big") for v in values])
                assert told.count == len(values)
                batch.outcome, batch.first = OK, told.first
            except (NoQuorum, Full):
                batch.outcome = FAIL
            except (Timeout, Disconnected):
                batch.outcome = INFO  # the client goes on trying behind this
            batch.ended = self._now()
            with self._lock:
                self.history.produces.append(batch)
                self.acknowledged += len(values) * (batch.outcome == OK)
                self.unknown += len(values) * (batch.outcome == INFO)
        try:
            row.close(timeout=ANSWER_SECONDS)
        except DuckrowError:
            pass  # what is in doubt stays so

    def _pull(self, node: str) -> None:
        after, row = 0, None
        while not self._read.is_set():
            pull = Pull(f"r-{node}", KEY, after, self._now(), node=node, wait=0.5)
            try:
                if row is None:
                    row = self.cluster.connect(node, timeout=ANSWER_SECONDS)
                page = row.pull(TOPIC, after, wait=0.5, limit=10_000)
            except (Disconnected, Timeout, NoQuorum):
                if row is not None:
                    row.close(timeout=0)
                row = None
                self._read.wait(0.05)
                continue
            pull.values = [int.from_bytes(each.value, "big") for each in page]
            pull.numbers = range(after + 1, after + 1 + len(page))
            assert [each.number for each in page] == [*pull.numbers], f"{node} skips after {after}"
            pull.ended, pull.outcome, pull.missing = self._now(), OK, page.missing
            after += len(page)
            with self._lock:
                self.history.pulls.append(pull)
        if row is not None:
            row.close(timeout=0)

    def _all_of(self, node: str) -> list[int]:
        found: list[int] = []
        with self.cluster.connect(node, timeout=AFTER_SECONDS) as row:
            row.barrier()
            while page := row.pull(TOPIC, len(found), limit=10_000):
                assert page[0].number == len(found) + 1
                found += [int.from_bytes(each.value, "big") for each in page]
        return found

    # -- faults -----------------------------------------------------------------------------

    def _hurt(self) -> None:
        kinds: tuple[Callable[[], None], ...] = (
            self._kill_node,
            self._kill_bridge,
            self._kill_both,
            self._kill_all,
            self._pause,
            self._cut,
        )
        while not self._stop.wait(self._chance.uniform(0, CALM_SECONDS)):
            kind = self._chance.choices(kinds, (4, 4, 3, 1, 3, 3))[0]
            self.faults[kind.__name__.removeprefix("_")] += 1
            kind()

    def _begin(self, name: str) -> None:
        try:
            self.cluster.begin(name)
        except Conflict:
            pass  # it was still starting when it was to be killed

    def _wait(self) -> None:
        self._stop.wait(self._chance.uniform(0, HURT_SECONDS))

    def _one(self) -> str:
        return self._chance.choice(self.cluster.machines).name

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

    def _cut(self) -> None:
        one, other = self._shuffled()[:2]
        self.cluster.cut(one, other, one_way=self._chance.random() < 0.3)
        if self._chance.random() < 0.5:
            third = next(m.name for m in self.cluster.machines if m.name not in (one, other))
            self.cluster.cut(one, third)
        self._wait()
        self.cluster.heal()

    def _shuffled(self) -> list[str]:
        names = [machine.name for machine in self.cluster.machines]
        self._chance.shuffle(names)
        return names


def torture(seed: int, entries: int, seconds: float, durability: str = "write") -> Result:
    plan = Plan(nodes=3, durability=durability, wires=Wires())
    with LocalCluster.launch(plan) as cluster:
        try:
            return Torture(cluster, seed).run(entries, seconds)
        except BaseException:
            for machine in cluster.machines:
                print(f"--- {machine.name}\n{machine.last_words()}", file=sys.stderr)
            raise


def main() -> int:
    parser = argparse.ArgumentParser(prog="real.torture")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--durability", choices=("fsync", "write", "memory"), default="write")
    asked = parser.parse_args()
    result = torture(asked.seed, asked.entries, asked.seconds, asked.durability)
    print(result)
    return 0 if result.report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
