"""Clients of a cluster that is hurt, and a history of what they did and saw.

    producers   batches with names of their own, each through a client that knows all nodes; one of
                them waits only until its entry is accepted
    readers     one at each node, from the first entry on, waiting where there is nothing

A value is the number of its producer and a count, so that it is produced once in the whole history.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Final

from duckrow.node.addresses import read_url
from duckrow.node.blocking import Client
from duckrow.node.errors import Disconnected, DuckrowError, Full, NoQuorum, Timeout

from .asking import until
from .checker import check
from .history import FAIL, INFO, OK, Content, History, Key, Produce, Pull, Report
from .local import LocalCluster

PRODUCERS: Final = 3
ACCEPTED: Final = "accepted"  # the lane of the one who waits for no more than that
BATCH_MAX: Final = 200
SHIFT: Final = 40  # a value is the number of its producer, and from here down a count
VALUE_BYTES: Final = 8
ANSWER_SECONDS: Final = 10.0
ACCEPT_SECONDS: Final = 0.02  # between two entries of the one who waits for that alone
PULL_SECONDS: Final = 0.5
PULL_LIMIT: Final = 10_000
AGAIN_SECONDS: Final = 0.05  # until a reader that was hung up on tries again
READ_SECONDS: Final = 330.0  # for all that a node has, in the end


class Load:
    """Runs from `start` to `finish`."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.cluster, self.topic = cluster, topic
        self.history = History()
        self.acknowledged = self.unknown = 0  # entries
        self.accepted: list[int] = []  # values
        self.failed = threading.Event()
        self._answered: dict[str, float] = {}  # by lane: when what was answered last had been sent
        self._reached: dict[str, int] = {}  # by node: the last number that its reader has
        self._key: Key = (topic, 0)
        self._errors: list[BaseException] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()  # of producers
        self._read = threading.Event()  # of readers
        self._began = time.monotonic()

    def start(self) -> None:
        """
        Raises:
            DuckrowError: nothing can be produced even before anything is hurt.
        """
        with self._anybody("first") as row:
            first = Produce("first", self._key, [0], self.seconds, lane="first", seq=1)
            first.first = row.produce(self.topic, _bytes(0)).number or 0
            first.outcome, first.ended = OK, self.seconds
        self.history.produces.append(first)
        self.acknowledged += 1
        numbers = range(1, PRODUCERS + 1)
        self._answered |= dict.fromkeys([*map(_lane, numbers), ACCEPTED], -1.0)
        self._reached |= dict.fromkeys([each.name for each in self.cluster.machines], 0)
        self._producers = [self._thread(self._produce, number) for number in numbers]
        self._producers.append(self._thread(self._accept))
        self._readers = [self._thread(self._pull, each.name) for each in self.cluster.machines]

    def standing_still(self, seconds: float) -> list[tuple[str, str]]:
        """Who does not get on, now that nothing hurts: of each the kind of anomaly, and a sentence.

        A producer gets on if something is answered that it sends from now on, and a reader if it comes to
        what was acknowledged then.
        """
        now, found = self.seconds, list[tuple[str, str]]()

        def producers() -> list[str]:
            return [lane for lane, sent in self._answered.items() if sent < now]

        if not self._until(lambda: not producers(), seconds):
            text = f"nothing that it sent was answered for {seconds:g} s"
            found += [("stuck-produce", f"{lane}: {text}") for lane in producers()]
        with self._lock:
            last = max(
                (p.first + len(p.values) - 1 for p in self.history.produces if p.first), default=0
            )

        def readers() -> list[str]:
            return [node for node, number in self._reached.items() if number < last]

        if not self._until(lambda: not readers(), seconds):
            text = f"it did not come to {last} within {seconds:g} s"
            found += [("stuck-pull", f"the reader at {node}: {text}") for node in readers()]
        return found

    def _until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Or a client has failed, which is told in another way."""
        try:
            until(lambda: is_so() or self.failed.is_set(), seconds, str)
        except Timeout:
            return False
        return True

    def finish(self) -> None:
        """Nothing more is read, but all of it once more from each node.

        Raises:
            BaseException: whatever ended a client that should have gone on.
        """
        self.abandon()
        if self._errors:
            raise self._errors[0]
        for machine in self.cluster.machines:
            self.history.finals[machine.name] = {self._key: self._all_of(machine.name)}
        self.history.ended = self.seconds

    def abandon(self) -> None:
        """Ends its threads."""
        self._stop.set()
        self._read.set()
        for thread in (*self._producers, *self._readers):
            thread.join()

    def forget(self) -> None:
        """Its topic is gone."""
        with self._anybody("last") as row:
            if self.topic in row.topics():
                row.delete_topic(self.topic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def operations(self) -> int:
        return len(self.history.produces) + len(self.history.pulls)

    def judged(self) -> Report:
        report = check(self.history)
        for node, contents in self.history.finals.items():
            for value in sorted({*self.accepted} - {*contents[self._key].values}):
                report.add("accepted-lost", f"{value} was accepted, and is not at {node}")
        return report

    def _thread(self, work: Callable[..., None], *args: object) -> threading.Thread:
        def guarded() -> None:
            try:
                work(*args)
            except BaseException as error:  # noqa: BLE001 - raised again by `finish`
                self._errors.append(error)
                self._stop.set()
                self._read.set()
                self.failed.set()

        thread = threading.Thread(target=guarded, name=work.__name__, daemon=True)
        thread.start()
        return thread

    def _produce(self, number: int) -> None:
        chance, seq = random.Random(number), 0
        made = number << SHIFT
        lane = _lane(number)
        row = self._anybody(lane)
        while not self._stop.is_set():
            values = range(made, made + chance.randint(1, BATCH_MAX))
            made, seq = values.stop, seq + 1
            batch = Produce(lane, self._key, values, self.seconds, lane=lane, seq=seq)
            try:
                told = row.produce_many(self.topic, [_bytes(value) for value in values])
                assert told.count == len(values)
                batch.outcome, batch.first = OK, told.first
                self._answered[lane] = batch.began
            except (NoQuorum, Full):
                batch.outcome = FAIL
            except (Timeout, Disconnected):
                batch.outcome = INFO  # the client goes on trying behind this
            batch.ended = self.seconds
            with self._lock:
                self.history.produces.append(batch)
                self.acknowledged += len(values) * (batch.outcome == OK)
                self.unknown += len(values) * (batch.outcome == INFO)
        _close(row)

    def _accept(self) -> None:
        """Waits for no machine but the one that it is connected to."""
        made, seq, lane = 0, 0, ACCEPTED
        row = self._anybody(lane)
        while not self._stop.wait(ACCEPT_SECONDS):
            made, seq = made + 1, seq + 1
            batch = Produce(lane, self._key, [made], self.seconds, lane=lane, seq=seq)
            try:
                row.produce(self.topic, _bytes(made), wait="accepted")
                self.accepted.append(made)
                self._answered[lane] = batch.began
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
            pull = Pull(f"r-{node}", self._key, after, self.seconds, node=node, wait=PULL_SECONDS)
            try:
                if row is None:
                    row = self.cluster.connect(node, timeout=ANSWER_SECONDS)
                page = row.pull(self.topic, after, wait=PULL_SECONDS, limit=PULL_LIMIT)
            except (Disconnected, Timeout, NoQuorum):
                if row is not None:
                    row.close(timeout=0)
                row = None
                self._read.wait(AGAIN_SECONDS)
                continue
            pull.values = [int.from_bytes(each.value, "big") for each in page]
            pull.numbers = [each.number for each in page]
            pull.ended, pull.outcome, pull.missing = self.seconds, OK, page.missing
            after = self._reached[node] = pull.numbers[-1] if pull.numbers else after
            with self._lock:
                self.history.pulls.append(pull)
        if row is not None:
            row.close(timeout=0)

    def _all_of(self, node: str) -> Content:
        numbers: list[int] = []
        values: list[int] = []
        with self.cluster.connect(node, timeout=READ_SECONDS) as row:
            row.barrier()
            while page := row.pull(self.topic, numbers[-1] if numbers else 0, limit=PULL_LIMIT):
                numbers += [each.number for each in page]
                values += [int.from_bytes(each.value, "big") for each in page]
        return Content(numbers[0] if numbers else 1, values, numbers)

    def _anybody(self, name: str) -> Client:
        return Client(read_url(self.cluster.everywhere), name=name, timeout=ANSWER_SECONDS)


def _lane(number: int) -> str:
    return f"p{number}"


def _bytes(value: int) -> bytes:
    return value.to_bytes(VALUE_BYTES, "big")


def _close(row: Client) -> None:
    try:
        row.close(timeout=ANSWER_SECONDS)
    except DuckrowError:
        pass  # what is in doubt stays so
