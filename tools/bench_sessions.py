"""Sessions: what many clients cost, that do nothing, or produce, or follow one producer.

    idle         thousands of connections that have said hello; memory of the node's process, each
    producers    32, each with one entry of 100 bytes under way, at level fsync and at level write
    fan-out      one producer, 50 followers, each of which gets every entry of 100 bytes

The node is a process of its own, and the clients are bare sockets in this one, which look at frames
and at no entry: the limit is the node.  Deliveries are those of a second of the node's processor
time, since it has one core at most and shares it.
"""

from __future__ import annotations

import resource
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

from duckrow.node import columns, frames, makers, requests
from duckrow.node.commands import PID_BYTES
from duckrow.node.env import Buffer
from duckrow.node.frames import FrameReader
from duckrow.node.limits import CONNECTIONS_SPARE_FILES, MIB
from duckrow.node.requests import Ask, Outcome, Verb

from .bench_figures import Figure, NoRoomError, Rounds, Settings, at_least, at_most, ratios
from .bench_node import Node, running_node

IDLE: Final = 10_000
IDLE_BYTES: Final = 100 * MIB
TOGETHER: Final = 100  # connects between two looks at the answers
FOLLOWERS: Final = 50
BATCH: Final = 100
BATCHES: Final = 400  # of a turn
OUT: Final = 4  # batches under way
TURNS: Final = 7
PRODUCERS: Final = 32
PRODUCES: Final = 3_200  # of a turn
CREDIT: Final = 1 << 40
TOPIC: Final = "fan"


def idle(settings: Settings) -> Iterator[Figure]:
    count = settings.scaled(IDLE, 200)
    files = count + CONNECTIONS_SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < files:
        raise NoRoomError(f"{count:,} connections need {files:,} files, and {hard:,} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, files), hard))
    with running_node(settings) as node, ExitStack() as stack:
        before = node.resident()
        lines: list[_Line] = []
        for number in range(count):
            lines.append(stack.enter_context(_Line(node.path)))
            if number % TOGETHER == TOGETHER - 1 or number == count - 1:
                for line in lines[number - number % TOGETHER :]:
                    line.answer()
                settings.tell(f"{number + 1:,} connections")
        after = node.resident()
    each = (after - before) / count
    yield Figure(
        name=f"memory of a node with {IDLE:,} idle connections",
        measured=(before + each * IDLE) / MIB,
        unit="MiB",
        target=at_most(IDLE_BYTES / MIB),
        note=f"{before / MIB:.1f} MiB before, and {each / 1024:.2f} KiB each of {count:,}",
    )


def producers(settings: Settings) -> Iterator[Figure]:
    turns, count = settings.scaled(TURNS, 2), settings.scaled(PRODUCES, 2 * PRODUCERS)
    rates: dict[str, list[float]] = {"fsync": [], "write": []}
    shared: list[float] = []
    with ExitStack() as stack:
        crowds = {
            level: _Crowd(stack, stack.enter_context(running_node(settings, level=level)))
            for level in rates
        }
        for turn in range(turns + 1):
            for level, crowd in crowds.items():
                syncs, began = crowd.node.syncs(), time.monotonic()
                crowd.run(count)
                rates[level].append(count / (time.monotonic() - began))
                if level == "fsync":
                    shared.append(count / max(1, crowd.node.syncs() - syncs))
            settings.tell(f"producers: turn {turn} of {turns}")
    yield Figure.of(
        f"{PRODUCERS} producers, level fsync",
        Rounds.of(shared[1:]),
        "produces/sync",
        at_least(14),
    )
    yield Figure.of(
        f"{PRODUCERS} producers, level fsync, beside level write",
        ratios(rates["fsync"][1:], rates["write"][1:]),
        "of its rate",
        None,
        f"{median(rates['fsync'][1:]):,.0f} and {median(rates['write'][1:]):,.0f} a second of the "
        "time that passed; half of it is asked for where fewer than 14 share a sync",
    )


def fan_out(settings: Settings) -> Iterator[Figure]:
    turns = settings.scaled(TURNS, 2)
    for name, entries, batches, target in (
        (f"batches of {BATCH}", BATCH, settings.scaled(BATCHES, 10), at_least(300_000)),
        ("entries one by one", 1, settings.scaled(BATCHES, 10), None),
    ):
        with running_node(settings) as node, ExitStack() as stack:
            producer = stack.enter_context(_Line(node.path))
            producer.answer()
            ask = Ask(TOPIC, max_bytes=4 * MIB, limit=65_536)
            followers = [stack.enter_context(_Line(node.path)) for _ in range(FOLLOWERS)]
            for follower in followers:
                follower.answer()
                follower.send(Verb.FOLLOW, *ask.fields(), CREDIT)
            fan = _Fan(producer, followers, entries)
            rates, walls = [], []
            for turn in range(turns + 1):
                cpu, began = node.cpu_seconds(), time.monotonic()
                fan.run(batches)
                if turn:
                    deliveries = batches * entries * FOLLOWERS
                    # The kernel counts in hundredths of a second.
                    rates.append(deliveries / max(node.cpu_seconds() - cpu, 0.01))
                    walls.append(deliveries / (time.monotonic() - began))
                settings.tell(f"fan-out, {name}: turn {turn} of {turns}")
        passed = Rounds.of(walls)
        yield Figure.of(
            f"1 producer to {FOLLOWERS} followers, {name}",
            Rounds.of(rates),
            "entries/CPU-s",
            target,
            f"{passed.median:,.0f} entries/s of the time that passed",
        )


class _Crowd:
    """Producers, each of which waits for its answer before it goes on."""

    def __init__(self, stack: ExitStack, node: Node) -> None:
        self.node = node
        self._lines = [stack.enter_context(_Line(node.path)) for _ in range(PRODUCERS)]
        for line in self._lines:
            line.answer()
        self._seqs = dict.fromkeys(self._lines, 0)
        self._pids = {line: bytes([at]) * PID_BYTES for at, line in enumerate(self._lines)}
        self._body = columns.encode([bytes(100)])

    def run(self, count: int) -> None:
        with selectors.DefaultSelector() as selector:
            for line in self._lines:
                selector.register(line.socket, selectors.EVENT_READ, line)
                self._order(line)
            unsent, out = count - len(self._lines), len(self._lines)
            while out:
                for key, _ in selector.select():
                    for _reference, outcome, fields, _body in key.data.received():
                        if outcome == Outcome.FAILED:
                            raise NoRoomError(f"the node refused: {fields}")
                        out -= 1
                        if unsent:
                            self._order(key.data)
                            unsent, out = unsent - 1, out + 1

    def _order(self, line: _Line) -> None:
        seq = self._seqs[line] = self._seqs[line] + 1
        turn = makers.Turn(self._pids[line], seq, 1, seq - 1)
        command = makers.produce(turn, TOPIC, self._body, 1)
        line.send(Verb.ORDER, command.head, False, body=command.body)


class _Fan:
    """One turn after the other over the same connections."""

    def __init__(self, producer: _Line, followers: list[_Line], entries: int) -> None:
        self._producer, self._followers, self._entries = producer, followers, entries
        self._body = columns.encode([bytes(100)] * entries)
        self._seq = self._last = 0

    def run(self, batches: int) -> None:
        """Until everybody has everything."""
        self._last += batches * self._entries
        unsent, out, behind = batches, 0, len(self._followers)
        with selectors.DefaultSelector() as selector:
            for line in (self._producer, *self._followers):
                selector.register(line.socket, selectors.EVENT_READ, line)
            while unsent or out or behind:
                while unsent and out < OUT:
                    self._order()
                    unsent, out = unsent - 1, out + 1
                for key, _ in selector.select():
                    each: _Line = key.data
                    for _reference, outcome, fields, body in each.received():
                        if outcome == Outcome.FAILED:
                            raise NoRoomError(f"the node refused: {fields}")
                        if each is self._producer:
                            out -= 1
                            continue
                        each.last = requests.decode_pulled(fields, body).batches[-1].stop - 1
                        behind -= each.last == self._last

    def _order(self) -> None:
        self._seq += 1
        turn = makers.Turn(bytes(PID_BYTES), self._seq, 1, self._seq - 1)
        command = makers.produce(turn, TOPIC, self._body, self._entries)
        self._producer.send(Verb.ORDER, command.head, False, body=command.body)


class _Line:
    """A bare connection that has said hello."""

    def __init__(self, path: Path) -> None:
        self.last = 0  # number of the last entry that came
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(str(path))
        self._reader = FrameReader()
        self._reader.accept_hello()
        self.send(Verb.HELLO, requests.VERSION, "bench", "", {})

    def __enter__(self) -> _Line:  # noqa: PYI034 - private
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, verb: int, *fields: Any, body: Buffer = b"") -> None:
        self.socket.sendall(b"".join(frames.encode(requests.request(1, verb, *fields), body)))

    def answer(self) -> None:
        while not list(self.received()):
            pass

    def received(self) -> Iterator[tuple[int, int, list[Any], Buffer]]:
        data = self.socket.recv(MIB)
        if not data:
            raise NoRoomError("the node has ended")
        self._reader.receive_data(data)
        while (frame := self._reader.next_frame()) is not None:
            yield *requests.opened(frame.head), frame.body
