"""Applying and opening: CPU time of what every node does with every command, and every reader.

A command of one entry is the dearest thing there is for each entry.  `apply` begins with the bytes
of the head, as they come from the row, and ends with the effects.  Columns are opened with every
check that bodies from strangers get.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sized

from duckrow.node import columns, makers
from duckrow.node.apply import apply
from duckrow.node.commands import PID_BYTES, Command
from duckrow.node.entries import Batch
from duckrow.node.row import Bundle, Item, Member, View
from duckrow.node.state import State

from .bench_figures import Figure, Rounds, Settings, Target, at_least, at_most

STAMP = 1_700_000_000_000_000
COMMANDS_A_TURN = 10_000
ENTRIES = 1_000  # of a batch of columns


def apply_commands(settings: Settings) -> Iterator[Figure]:
    turns = settings.scaled(15, 3)
    for topics, together in ((1, 1), (10_000, 1), (1, 64), (10_000, 64)):
        settings.tell(f"apply: {topics:,} topics, {together} in a bundle")
        work = _Applying(topics, together)
        work.turn()  # topics and lanes are made
        yield Figure.of(
            f"{_topics(topics)}, {_commands(together)} in a bundle",
            Rounds.of([work.turn() for _ in range(turns)], 1e6),
            "CPU µs",
            at_most(15),
        )


class _Applying:
    """Bundles of produces, each topic in its turn."""

    def __init__(self, topics: int, together: int) -> None:
        self._state = State()
        view = View(
            id=1, members=(Member(1, 1, 1),), cluster=bytes(16), lineage=1, durability="write"
        )
        apply(self._state, Item(1, 8, 0, view))
        self._topics = [f"topic-{number}" for number in range(topics)]
        self._together = together
        self._made = 0
        self._body = columns.encode([bytes(100)])

    def turn(self) -> float:
        """CPU seconds of one command."""
        items = list(self._items())
        state = self._state
        began = time.process_time()
        for item in items:
            apply(state, item)
        return (time.process_time() - began) / (len(items) * self._together)

    def _items(self) -> Iterator[Item]:
        position = self._state.position
        for _ in range(0, COMMANDS_A_TURN, self._together):
            position += 1
            commands = tuple(self._command() for _ in range(self._together))
            bundle = Bundle(1, 1, position, position, STAMP + position, commands)
            yield Item(position, 8 * position, 0, bundle)

    def _command(self) -> Command:
        round_, topic = divmod(self._made, len(self._topics))
        self._made += 1
        turn = makers.Turn(bytes(PID_BYTES), round_ + 1, done=round_, time=STAMP)
        return makers.produce(turn, self._topics[topic], self._body, 1)


def open_columns(settings: Settings) -> Iterator[Figure]:
    turns = settings.scaled(51, 5)
    values = [b"%0100d" % number for number in range(ENTRIES)]
    keys = [b"key-%d" % number for number in range(ENTRIES)]
    created = list(range(STAMP, STAMP + ENTRIES))
    for what, body, alone, objects in (
        ("values of 100 B", columns.encode(values), at_least(10e6), at_least(1.5e6)),
        ("with keys and times", columns.encode(values, keys, None, created), None, None),
    ):
        settings.tell(f"columns: {what}")
        yield _rate(f"columns alone, {what}", turns, alone, _columns(body))
        yield _rate(f"body to Entry objects, {what}", turns, objects, _objects(body))


def _columns(body: bytes) -> Callable[[], Sized]:
    return lambda: columns.decode(body)


def _objects(body: bytes) -> Callable[[], Sized]:
    pid = bytes(PID_BYTES)
    return lambda: Batch("topic", 0, 1, STAMP, pid, columns.decode(body)).entries()


def _rate(name: str, turns: int, target: Target | None, work: Callable[[], Sized]) -> Figure:
    """Of batches that are opened one after the other."""
    rates = []
    for _ in range(turns):
        began = time.process_time()
        for _ in range(20):
            assert len(work()) == ENTRIES
        rates.append(20 * ENTRIES / (time.process_time() - began))
    return Figure.of(name, Rounds.of(rates), "entries/CPU s", target)


def _commands(count: int) -> str:
    return "1 command" if count == 1 else f"{count:,} commands"


def _topics(count: int) -> str:
    return "1 topic" if count == 1 else f"{count:,} topics"
