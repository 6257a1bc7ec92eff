"""A node without anything around it: frames in, answers out, decided by a real state.

Connections that broke keep what they had received, and may still apply it later: a session that was
slow to read does just that.
"""

from __future__ import annotations

from collections.abc import Callable

from core.rowkit import Row
from duckrow.node import columns, frames, requests
from duckrow.node.commands import Command, decode_head
from duckrow.node.effects import WAITING, Answer, Appended, Result
from duckrow.node.env import Buffer
from duckrow.node.errors import DuckrowError, NoQuorum
from duckrow.node.frames import FrameReader
from duckrow.node.requests import Verb, Welcome

Key = tuple[bytes, int, str, int, int]


class Connection:
    """The node's side of one."""

    def __init__(self) -> None:
        self.reader = FrameReader()
        self.inbox: list[tuple[int, int, list[object], Buffer]] = []
        self.answers: list[bytes] = []
        self.is_open = True

    def send(self, buffers: list[Buffer]) -> None:
        if not buffers:
            return
        self.reader.receive_data(b"".join(buffers))
        while (frame := self.reader.next_frame()) is not None:
            self.reader.accept_hello()
            self.inbox.append((*requests.opened(frame.head), frame.body))

    def answer(self, head: bytes) -> None:
        self.tell(frames.encode(head))

    def tell(self, buffers: list[Buffer]) -> None:
        if self.is_open:
            self.answers.append(b"".join(bytes(part) for part in buffers))


class Toy:
    def __init__(self, lineage: int = 7) -> None:
        self.row = Row()
        self.lineage = lineage
        self.is_new = False  # its disk is, and it has no row yet
        self.refuse: Callable[[], DuckrowError | None] = lambda: None
        self.log: dict[tuple[int, int], list[tuple[int, bytes]]] = {}  # by (topic id, partition)
        self.orders: list[Command] = []  # as they were let in
        self._waiting: dict[Key, list[tuple[Connection, int]]] = {}
        self.is_cut_off = False  # it can order nothing, and stages what is to be accepted
        self.staged: list[Command] = []

    def take(self, connection: Connection) -> None:
        """The oldest request of a connection."""
        reference, verb, fields, body = connection.inbox.pop(0)
        if verb == Verb.HELLO:
            row = (0, b"") if self.is_new else (self.lineage, b"c" * 16)
            welcome = Welcome(requests.VERSION, "m1", *row, 0, {})
            connection.answer(requests.answer(reference, *welcome))
        elif verb == Verb.ORDER:
            error = self.refuse()
            if error is not None:
                connection.answer(requests.failure(reference, error))
                return
            raw, accepted = fields[0], fields[1]
            assert isinstance(raw, bytes)
            self._order(connection, reference, Command(raw, bytes(body)), accepted is True)
        else:
            raise AssertionError(f"the toy does not know {verb}")

    def _order(
        self, connection: Connection, reference: int, command: Command, accepted: bool
    ) -> None:
        head = decode_head(command.head)
        key = head.pid, head.epoch, head.topic, head.partition, head.seq
        if self.is_cut_off and not accepted:
            connection.answer(requests.failure(reference, NoQuorum("it reaches nobody")))
            return
        self._waiting.setdefault(key, []).append((connection, reference))
        if self.is_cut_off:
            self.staged.append(command)
            connection.answer(requests.result(reference, requests.MORE, Result(WAITING)))
            return
        self.orders.append(command)
        self.apply(command)

    def apply(self, *commands: Command) -> None:
        self.row.time += 1_000
        for effect in self.row.item(*commands):
            if isinstance(effect, Answer):
                self._answer(effect)
            elif isinstance(effect, Appended):
                self._append(effect)

    def _answer(self, answer: Answer) -> None:
        key = answer.pid, answer.epoch, answer.topic, answer.partition, answer.seq
        result: Result = answer.result
        waits = result.code == WAITING
        asked = self._waiting.pop(key, [])
        for connection, reference in asked:
            told = requests.MORE if waits else requests.DONE
            connection.answer(requests.result(reference, told, result))
        if waits:
            self._waiting[key] = asked

    def _append(self, effect: Appended) -> None:
        content = self.row.items[effect.position - 1].content
        body = content.commands[effect.index].body  # type: ignore[union-attr]
        values = columns.decode(body).value_list(0, effect.count)
        there = self.log.setdefault((effect.topic_id, effect.partition), [])
        there += enumerate(values, effect.first)
