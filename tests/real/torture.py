"""Real processes under random faults and load, and the history that the checker of the simulation judges.

    producers   batches with names of their own, each through a client that knows all nodes; one of
                them waits only until its entry is accepted
    readers     one at each node, from the first entry on, waiting where there is nothing
    nemesis     hurts processes, links and disks (nemesis.py)

    PYTHONPATH=src:tests .venv/bin/python -m real.torture --seed 7 --entries 1000000 --seconds 900
    PYTHONPATH=src:tests .venv/bin/python -m real.torture --nodes 5 --namespaces --disks

In the end everything is healed, what each node has is read once more, and `duckrow verify` compares the
rows.  The faults follow from the seed, but the processes do not: a run cannot be repeated, only its plan.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

import duckrow
from duckrow.cluster.checker import check
from duckrow.cluster.history import FAIL, INFO, OK, Content, History, Produce, Pull, Report
from duckrow.cluster.home import CLUSTER_FILE
from duckrow.cluster.local import LocalCluster
from duckrow.cluster.plan import Plan, Wires, name_of
from duckrow.node.errors import Disconnected, DuckrowError, Full, NoQuorum, Refused, Timeout
from real.nemesis import Nemesis
from real.thindisk import ThinDisk, keep_mounts

TOPIC: Final = "torture"
KEY: Final = TOPIC, 0
BATCH_MAX: Final = 200
SHIFT: Final = 40  # a value is the number of its producer, and from here down a count
VALUE_BYTES: Final = 8
ANSWER_SECONDS: Final = 10.0
FAULTS_MIN: Final = 4  # kinds of them, or it was no torture
ACCEPT_SECONDS: Final = 0.02  # between two entries of the one who waits for that alone
AFTER_SECONDS: Final = 330.0  # until all is well in the end: who stalled often is let in that late

# Small disks, with reserves to match; many segments, so that much of the row is in sealed ones.
SETTINGS: Final = {
    "DUCKROW__STORE__SEGMENT": "2MiB",
    "DUCKROW__STORE__SOFT_RESERVE": "16MiB",
    "DUCKROW__STORE__SOFT_RESERVE_SHARE": "0%",
    "DUCKROW__STORE__HARD_RESERVE": "8MiB",
}


@attrs.define
class Result:
    history: History
    faults: Counter[str]
    acknowledged: int
    accepted: int
    unknown: int  # entries whose producer was told nothing certain
    seconds: float
    progress: list[float]  # from each healing to the next ordered command
    healed: float  # from the last healing until every node ordered one
    report: Report
    verified: str  # what `duckrow verify` said, if the rows differ

    @property
    def ok(self) -> bool:
        return self.report.ok and not self.verified

    def __str__(self) -> str:
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        progress = ", ".join(f"{each:.1f}" for each in sorted(self.progress))
        return (
            f"{self.acknowledged:,} entries acknowledged in {self.seconds:.0f} s, {self.accepted:,} "
            f"accepted, {self.unknown:,} in doubt, {len(self.history.pulls):,} pulls; "
            f"{self.faults.total()} faults: {faults}; "
            f"seconds from a healing to the next ordered command: {progress}; "
            f"all nodes ordered after {self.healed:.1f} s in the end; "
            f"anomalies: {str(self.report) or 'none'}{self.verified}"
        )


class Torture:
    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.everywhere = "duck://" + ",".join(
            each.url.removeprefix("duck://") for each in cluster.machines
        )
        self.history = History()
        self.acknowledged = self.unknown = 0
        self.accepted: list[int] = []
        self.errors: list[BaseException] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()  # of producers and nemesis
        self._read = threading.Event()  # of readers
        self._began = time.monotonic()

    def run(self, entries: int, seconds: float, nemesis: Nemesis) -> Result:
        """Until so many are acknowledged, or so long."""
        workers = [self._thread(self._produce, number) for number in (1, 2, 3)]
        workers.append(self._thread(self._accept))
        readers = [self._thread(self._pull, each.name) for each in self.cluster.machines]
        hurting = self._thread(nemesis.run, self._stop)
        while not self._stop.wait(0.2):
            if self.acknowledged >= entries or self._now() > seconds:
                self._stop.set()
        hurting.join()
        lasted, healed = self._now(), time.monotonic()
        if not self.errors:
            nemesis.heal()
        for machine in self.cluster.machines:
            self._wait(machine.name)
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
            faults=nemesis.faults,
            acknowledged=self.acknowledged,
            accepted=len(self.accepted),
            unknown=self.unknown,
            seconds=lasted,
            progress=nemesis.progress,
            healed=healed,
            report=self._judged(),
            verified=self._verified(),
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

        thread = threading.Thread(target=guarded, name=work.__name__, daemon=True)
        thread.start()
        return thread

    # -- load -------------------------------------------------------------------------------

    def _produce(self, number: int) -> None:
        chance, seq = random.Random(number), 0
        made = number << SHIFT
        lane = f"p{number}"
        row = duckrow.connect(self.everywhere, name=lane, timeout=ANSWER_SECONDS)
        while not self._stop.is_set():
            values = range(made, made + chance.randint(1, BATCH_MAX))
            made, seq = values.stop, seq + 1
            batch = Produce(lane, KEY, values, self._now(), lane=lane, seq=seq)
            try:
                told = row.produce_many(TOPIC, [_bytes(value) for value in values])
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
        _close(row)

    def _accept(self) -> None:
        """Waits for no machine but the one that it is connected to."""
        made, seq, lane = 0, 0, "accepted"
        row = duckrow.connect(self.everywhere, name=lane, timeout=ANSWER_SECONDS)
        while not self._stop.wait(ACCEPT_SECONDS):
            made, seq = made + 1, seq + 1
            batch = Produce(lane, KEY, [made], self._now(), lane=lane, seq=seq)
            try:
                row.produce(TOPIC, _bytes(made), wait="accepted")
                self.accepted.append(made)
            except (NoQuorum, Full):
                batch.outcome = FAIL
            except (Timeout, Disconnected):
                pass
            with self._lock:
                self.history.produces.append(batch)
        _close(row)

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

    # -- the end ----------------------------------------------------------------------------

    def _wait(self, name: str) -> None:
        """Until it orders.  Like a service manager: what ended while its disk failed is started again."""
        try:
            self.cluster.wait(name, seconds=AFTER_SECONDS)
        except Refused:
            self.cluster.start(name)

    def _all_of(self, node: str) -> list[int]:
        found: list[int] = []
        with self.cluster.connect(node, timeout=AFTER_SECONDS) as row:
            row.barrier()
            while page := row.pull(TOPIC, len(found), limit=10_000):
                assert page[0].number == len(found) + 1
                found += [int.from_bytes(each.value, "big") for each in page]
        return found

    def _judged(self) -> Report:
        report = check(self.history)
        for node, contents in self.history.finals.items():
            for value in {*self.accepted} - {*contents[KEY].values}:
                report.add("accepted-lost", f"{value} was accepted, and is not at {node}")
        return report

    def _verified(self) -> str:
        command = [sys.executable, "-m", "duckrow.tools.cli", "verify", "-o", "json"]
        command += ["--cluster", str(self.cluster.folder / CLUSTER_FILE)]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        return "" if found.returncode == 0 else f"; verify: {found.stdout}{found.stderr}"


def _bytes(value: int) -> bytes:
    return value.to_bytes(VALUE_BYTES, "big")


def _close(row: duckrow.Client) -> None:
    try:
        row.close(timeout=ANSWER_SECONDS)
    except DuckrowError:
        pass  # what is in doubt stays so


def torture(seed: int, entries: int, seconds: float, plan: Plan, *, disks: bool = False) -> Result:
    """With `disks` less than half of the machines have disks that fail; that is for root."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="duckrow-torture-", ignore_cleanup_errors=True) as at:
        thin: dict[str, ThinDisk] = {}
        if disks:
            keep_mounts()
            os.environ.update(SETTINGS)
            for id_ in chance.sample(plan.ids, (plan.nodes - 1) // 2):
                thin[name_of(id_)] = ThinDisk(Path(at, name_of(id_)))
        with LocalCluster.launch(plan, Path(at)) as cluster:
            try:
                work = Torture(cluster)
                return work.run(entries, seconds, Nemesis(cluster, work.everywhere, seed, thin))
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
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--namespaces", action="store_true", help="real packets; for root")
    parser.add_argument("--disks", action="store_true", help="that fail, too; for root")
    asked = parser.parse_args()
    plan = Plan(
        nodes=asked.nodes,
        durability=asked.durability,
        wires=None if asked.namespaces else Wires(),
        namespaces=asked.namespaces,
    )
    result = torture(asked.seed, asked.entries, asked.seconds, plan, disks=asked.disks)
    print(result)
    enough = result.acknowledged >= asked.entries and len(result.faults) >= FAULTS_MIN
    return 0 if result.ok and enough else 1


if __name__ == "__main__":
    sys.exit(main())
