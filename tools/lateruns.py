"""Runs the experiment of late.py: writers and readers at every machine of a cluster, and bare sites beside it.

    writer at m1 ──► m1 ═ cluster ═ m2, m3 ──► readers at each
          └────────► site 1 ── bare TCP ── sites 2, 3, which note what arrives, as it arrives

The connections between sites go over wires as late as the ways between the machines are.  Both get the
same entries at the same moments.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import combinations, pairwise
from typing import Final, NamedTuple

from duckrow.cluster.local import LocalCluster
from duckrow.cluster.plan import HOST, Wires
from duckrow.cluster.ports import free_ports
from duckrow.cluster.relays import PATIENCE, Programs, Wire
from duckrow.node.blocking import Client
from duckrow.node.clusterfile import Pair

from .late import Read, Verdict, Write, differing, judged, late

_FORM: Final = struct.Struct("<QII")  # clock, writer, nth


class Outcome(NamedTuple):
    writes: Sequence[Write]
    readers: Mapping[str, Sequence[Read]]
    sites: Sequence[Sequence[Write]]  # what arrived at each, in that order
    read_ms: Sequence[float]  # from the write to a reader at another machine
    arrived_ms: Sequence[float]  # from the write to another site
    seconds: float

    @property
    def verdict(self) -> Verdict:
        return judged(self.readers, self.writes)

    @property
    def late(self) -> int:
        return sum(map(late, self.sites))

    @property
    def differing(self) -> int:
        return differing(self.sites)


Note = Callable[[Read], None]
Reader = Callable[[Client, str, int, Note], None]


def read(row: Client, topic: str, count: int, note: Note) -> None:
    """From the first entry on, until there are so many, or nothing comes any more."""
    after: object = 0
    while count > 0:
        found = row.pull(topic, after, wait=PATIENCE)
        if not found:
            return
        for entry in found:
            note(Read(entry.number, Write(*_FORM.unpack(entry.value))))
        after = found.after
        count -= len(found)


def run(
    cluster: LocalCluster,
    count: int,
    rate: float,
    readers: int,
    tell: Callable[[int], None],
    reader: Reader = read,
) -> Outcome:
    """So many entries of a writer at each machine, and so many readers there.  `tell`: so many more are
    written.
    """
    topic, total = f"late-{time.time_ns()}", count * len(cluster.machines)
    reads: dict[str, list[Read]] = {}
    read_ms: list[float] = []
    reading, writing, began = _Tasks(), _Tasks(), time.monotonic()
    with Programs.running() as programs, _sites(programs, cluster) as sites:
        for machine in cluster.machines:
            for number in range(1, readers + 1):
                notes = reads[f"{machine.name}-{number}"] = []
                reading.start(_reading, cluster, machine.name, topic, total, reader, notes, read_ms)
        for machine in cluster.machines:
            what = cluster, machine.name, topic, count, rate, sites, tell, writing.over
            writing.start(_writing, *what)
        try:
            writing.join()
            reading.join()
            sites.wait(total)
        finally:
            writing.stop()
            with cluster.connect(0) as row:
                if topic in row.topics():
                    row.delete_topic(topic)
        writes = [each for site in sites.own.values() for each in site]
        arrived = [*sites.arrivals.values()]
    return Outcome(writes, reads, arrived, read_ms, sites.ms, time.monotonic() - began)


def _writing(
    cluster: LocalCluster,
    name: str,
    topic: str,
    count: int,
    rate: float,
    sites: _Sites,
    tell: Callable[[int], None],
    over: threading.Event,
) -> None:
    writer = cluster.machine(name).id
    with cluster.connect(name, timeout=PATIENCE) as row:
        row.status()  # connected
        due = time.monotonic()
        for nth in range(count):
            if over.wait(max(0.0, due - time.monotonic())):
                return
            due += 1 / rate
            write = Write(time.time_ns(), writer, nth)
            row.produce(topic, _FORM.pack(*write), wait="none")
            sites.write(write)
            tell(1)


def _reading(
    cluster: LocalCluster,
    name: str,
    topic: str,
    total: int,
    reader: Reader,
    notes: list[Read],
    read_ms: list[float],
) -> None:
    own = cluster.machine(name).id

    def note(found: Read) -> None:
        notes.append(found)
        if found.write.writer != own:
            read_ms.append((time.time_ns() - found.write.clock) / 1e6)

    with cluster.connect(name, timeout=PATIENCE) as row:
        reader(row, topic, total, note)


class _Tasks:
    """Threads, of which the first error is told when all have ended."""

    def __init__(self) -> None:
        self.over = threading.Event()  # they need not go on
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def start(self, what: Callable[..., None], *args: object) -> None:
        def do() -> None:
            try:
                what(*args)
            except BaseException as error:  # noqa: BLE001 - it is raised in `join`
                self._errors.append(error)
                self.over.set()

        self._threads.append(threading.Thread(target=do, daemon=True))
        self._threads[-1].start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def stop(self) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join()


class _Sites:
    """Logs of several writers without an agreement: each has what was written there, and what arrives."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.own: dict[int, list[Write]] = {id_: [] for id_ in ids}
        self.arrivals: dict[int, list[Write]] = {id_: [] for id_ in ids}
        self.ms: list[float] = []
        self._others: dict[int, list[socket.socket]] = {id_: [] for id_ in ids}
        self._arrived = threading.Condition()

    def connect(self, site: int, sock: socket.socket) -> None:
        """To another one."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._others[site].append(sock)
        threading.Thread(target=self._receive, args=(site, sock), daemon=True).start()

    def write(self, write: Write) -> None:
        self.own[write.writer].append(write)
        self.arrivals[write.writer].append(write)
        for sock in self._others[write.writer]:
            sock.sendall(_FORM.pack(*write))

    def wait(self, total: int) -> None:
        """Until each has so many."""

        def all_there() -> bool:
            return all(len(each) >= total for each in self.arrivals.values())

        with self._arrived:
            assert self._arrived.wait_for(all_there, PATIENCE), "TCP has lost something"

    def _receive(self, site: int, sock: socket.socket) -> None:
        try:
            while len(found := sock.recv(_FORM.size, socket.MSG_WAITALL)) == _FORM.size:
                write = Write(*_FORM.unpack(found))
                self.arrivals[site].append(write)
                self.ms.append((time.time_ns() - write.clock) / 1e6)
                with self._arrived:
                    self._arrived.notify()
        except OSError:
            pass  # the experiment is over


@contextmanager
def _sites(programs: Programs, cluster: LocalCluster) -> Iterator[_Sites]:
    ids = cluster.plan.ids
    found = _Sites(ids)
    with ExitStack() as open_:
        doors: dict[Pair, socket.socket] = {}
        wires: dict[Pair, Wire] = {}
        pairs = [*combinations(ids, 2)]
        for pair, at in zip(pairs, free_ports(len(pairs)), strict=True):
            door = doors[pair] = open_.enter_context(socket.create_server((HOST, 0)))
            how = Wires(delay=delay_between(cluster, pair))
            wires[pair] = Wire(at, door.getsockname()[1], how)
        programs.wires(wires)
        for (one, other), door in doors.items():
            dialled = socket.create_connection((HOST, wires[one, other].at), PATIENCE)
            dialled.settimeout(None)
            found.connect(one, open_.enter_context(dialled))
            found.connect(other, open_.enter_context(door.accept()[0]))
        yield found


def delay_between(cluster: LocalCluster, pair: Pair) -> float:
    """Seconds, on the way that is shortest in links."""
    names = [f"m{id_}" for id_ in cluster.plan.way(*pair)]
    return sum(cluster.link_between(*link).delay for link in pairwise(names))
