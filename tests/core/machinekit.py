"""Several machines with one row, each with a node beside a bridge of a few lines, and clients with real cores.

    client ── ORDER ──► node ── SUBMIT ──► fresh ─► bundles ─► the row
           ◄── answer ──     ◄── STAGED, REFUSED, ITEM ──────────┘

What a node keeps of what it submitted, what it takes for accepted, and what it tells whom, is the real code.
Nothing happens by itself: whoever plays says which of all that could is next.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine
from itertools import chain
from types import SimpleNamespace
from typing import Any

from core.nodetoy import Connection
from core.rowkit import NOW, Row
from duckrow.node import bridgewire as wire
from duckrow.node import columns, requests
from duckrow.node.apply import apply
from duckrow.node.bridgedrow import BridgedRow
from duckrow.node.bridgewire import Said, Welcome
from duckrow.node.calls import key_of
from duckrow.node.capture import capture, restore
from duckrow.node.clientcore import ClientCore
from duckrow.node.commands import Command, Kind, Produce, decode_head
from duckrow.node.effects import WAITING, Appended
from duckrow.node.env import Buffer
from duckrow.node.errors import Disconnected, DuckrowError, Full, NoQuorum, Timeout
from duckrow.node.frames import FrameReader
from duckrow.node.keeper import Keeper
from duckrow.node.lanes import remembered
from duckrow.node.orders import Orders
from duckrow.node.patches import crc_of
from duckrow.node.requests import Verb
from duckrow.node.reserve import OK, SOFT
from duckrow.node.row import Bundle, RowStatus
from duckrow.node.state import State

IDS = (1, 2, 3)


class Town:
    """The row, and what it has numbered."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.row = Row(*((id_, 1) for id_ in IDS))
        self.log: dict[tuple[str, int, int], list[tuple[int, bytes]]] = {}  # topic, id, partition
        self.machines = [Machine(self, id_) for id_ in IDS]
        self.clients: list[Client] = []

    def order(self, *commands: Command, origin: int = 9) -> None:
        """One item."""
        self.row.time += 1_000
        for effect in self.row.item(*commands, origin=origin):
            if isinstance(effect, Appended):
                bundle = self.row.items[effect.position - 1].content
                assert isinstance(bundle, Bundle)
                body = bundle.commands[effect.index].body
                values = columns.decode(body).value_list(0, effect.count)
                there = self.log.setdefault((effect.topic, effect.topic_id, effect.partition), [])
                there += enumerate(values, effect.first)


class _Link:
    """Of a node with its bridge."""

    is_up = is_away = False

    def __init__(self, machine: Machine) -> None:
        self._machine, self._reader = machine, FrameReader()
        self._reader.accept_hello()

    def send(self, buffers: list[Buffer]) -> None:
        if self.is_up:
            self._reader.receive_data(b"".join(buffers))
            while (frame := self._reader.next_frame()) is not None:
                self._machine.hear(*wire.opened(frame), frame.body)

    put = send

    def flush(self) -> None:
        pass


class Machine:
    def __init__(self, town: Town, id_: int) -> None:
        self.town, self.id, self.state = town, id_, State()
        self.is_cut = self.misses = self.is_full = self.refuses = False
        self.fresh: list[Command] = []
        self.bundles: list[tuple[list[Command], bool]] = []  # and whether it is durable
        self._awaited: set[bytes] = set()
        self._said: list[list[Buffer]] = []  # and not heard yet
        self.start_node()

    # The bridge.

    def hear(self, kind: int, fields: list[Any], body: Buffer) -> None:
        if kind == Said.SUBMIT:
            commands = wire.commands_of(fields, body).commands
            if self.refuses:
                self.refuses = False
                error = self.town.rng.choice((Full("no room"), NoQuorum("too much waits")))
                self._say(wire.refused(commands, error))
                return
            self.fresh += commands
            if wire.is_awaited(fields):
                self._awaited.update(command.head for command in commands)

    def bundle(self) -> None:
        """Some of what is fresh."""
        count = self.town.rng.randint(1, 4)
        some, self.fresh = self.fresh[:count], self.fresh[count:]
        if some:
            self.bundles.append((some, False))

    def sync(self) -> None:
        """The next bundle."""
        for index, (commands, is_durable) in enumerate(self.bundles):
            if not is_durable:
                self.bundles[index] = commands, True
                if self._awaited.intersection(command.head for command in commands):
                    self._say_staged(commands)
                return

    def deliver(self) -> None:
        """The oldest bundle comes into the row."""
        if self.bundles and not self.is_cut:
            self.town.order(*self.bundles.pop(0)[0], origin=self.id)

    def tell_items(self, count: int) -> None:
        items, after = self.town.row.items, self.state.position
        for item in items[after : after + count]:
            self._say(wire.item(item._replace(crc=crc_of(item.content)), self.id))

    def tell_status(self) -> None:
        missing = ("the others",) if self.misses else ()
        last, disk = len(self.town.row.items), SOFT if self.is_full else OK
        self._say(wire.status(RowStatus(not missing, IDS, last, last, 1, disk, missing), 1))

    def cut_off_or_back(self) -> None:
        self.is_cut, self.misses = not self.is_cut, False
        self.tell_status()

    def miss_the_others(self) -> None:
        self.misses = self.is_cut
        self.tell_status()

    def fill_or_empty(self) -> None:
        self.is_full = not self.is_full
        self.tell_status()

    def refuse_next(self) -> None:
        self.refuses = True

    def lose_link(self) -> None:
        self.link.is_up = False

    def be_well(self) -> None:
        """All that waits gets its place."""
        self.is_cut = self.misses = self.is_full = self.refuses = False
        if not self.link.is_up:
            self.attach()
        self.tell_status()
        while self.fresh or self.bundles:
            self.bundle()
            self.sync()
            self.deliver()

    def end_bridge(self) -> None:
        """What it has written stays."""
        self.fresh.clear()
        self.link.is_up = False

    def lose_power(self) -> None:
        self.end_bridge()
        self.bundles = [bundle for bundle in self.bundles if bundle[1]]
        self.end_node()

    def attach(self) -> None:
        """The link is there again."""
        self._awaited.clear()
        self._said.clear()
        self.link.is_up = True
        self.row._on_welcome(
            Welcome(wire.VERSION, self.id, bytes(16), (), "fsync", 1, (), "", leads_on=True)
        )
        for commands, is_durable in self.bundles:
            if is_durable:
                self._say_staged(commands)
        self.tell_status()

    def _say_staged(self, commands: list[Command]) -> None:
        self._say(wire.staged(Bundle(1, self.id, 1, 1, 0, tuple(commands))))

    def _say(self, buffers: list[Buffer]) -> None:
        if self.link.is_up:
            self._said.append(buffers)

    # The node.

    def start_node(self) -> None:
        self.state = restore(list(capture(self.state)))
        nothing: Any = SimpleNamespace(prune=lambda *_: None)  # of what it needs here
        self.row = BridgedRow(nothing, "", 0)
        self.link = _Link(self)
        self.row._link = self.link  # type: ignore[assignment]
        self.orders: dict[Connection, Orders] = {}
        rng, wall_us = self.town.rng, lambda: NOW
        self.keeper = Keeper(self.row, self.state, nothing, rng=rng, wall_us=wall_us)
        self.attach()
        self.row.follow(self.state.position)
        self._hear_bridge()
        for raw in self.row.take_staged():
            self.keeper.acceptance.came(decode_head(raw))

    def end_node(self) -> None:
        for client in self.town.clients:
            if client.machine is self:
                client.lose()
            client.old = [(machine, old) for machine, old in client.old if machine is not self]
        self.start_node()

    def come_on(self, count: int = 3) -> None:
        """So many items come, if anything does."""
        rng = self.town.rng
        if not self.link.is_up and rng.random() < 0.5:
            self.attach()
        if not self.is_cut or rng.random() < 0.1:
            self.tell_items(count)
        self.turn()

    def turn(self) -> None:
        """As `Keeper._follow` does it."""
        row, keeper = self.row, self.keeper
        self._hear_bridge()
        if not (row._items or row._refused or row._has_news):
            return
        items = _at_once(row.take())
        for command, error in row.take_refused():
            head = decode_head(command.head)
            keeper.acceptance.refused(head)
            keeper.calls.fail(key_of(head), error)
        for item in items:
            keeper._tell(apply(self.state, item))
        keeper._accept()
        if row.missing:
            for orders in self.orders.values():
                orders.give_back(Timeout("the majority went"), keeper.acceptance.holds)

    def _hear_bridge(self) -> None:
        reader = FrameReader()
        reader.accept_hello()
        reader.receive_data(b"".join(chain.from_iterable(self._said)))
        self._said.clear()
        while (frame := reader.next_frame()) is not None:
            self.row._on_frame(*wire.opened(frame), frame)

    def take(self, connection: Connection) -> None:
        """The oldest request of a connection."""
        reference, verb, fields, body = connection.inbox.pop(0)
        if verb == Verb.HELLO:
            welcome = requests.Welcome(requests.VERSION, f"m{self.id}", 7, b"c" * 16, 0, {})
            connection.answer(requests.answer(reference, *welcome))
        elif verb == Verb.ORDER:
            raw, accepted = fields[:2]
            assert isinstance(raw, bytes)
            try:
                self._order(connection, reference, Command(raw, bytes(body)), accepted is True)
            except DuckrowError as error:
                connection.answer(requests.failure(reference, error))
        else:
            assert verb == Verb.CANCEL, verb

    def _order(
        self, connection: Connection, reference: int, command: Command, accepted: bool
    ) -> None:
        """As `Session._order` does it."""
        keeper, head = self.keeper, decode_head(command.head)
        if accepted and head.kind == Kind.PRODUCE:
            topic = self.state.topic(head.topic)
            accepted = topic is None or topic.policy.partitions == Produce.of(head).partitions
        if self.row.missing:
            lane = self.state.lanes.rows.get(head.lane)
            if lane is not None and lane.epoch == head.epoch and head.seq <= lane.last:
                result = remembered(lane, head.seq)
                if result.code != WAITING:
                    connection.answer(requests.answer(reference, *result))
                    return
            is_next = keeper.acceptance.expected(head) >= head.seq
            if not (accepted and self.row.accepts and is_next):
                raise NoQuorum("the others are missing")
        key = keeper.submit(command, head=head, accepted=accepted, later=True)
        orders = self.orders.get(connection)
        if orders is None:
            orders = self.orders[connection] = Orders(keeper.calls, connection.tell)
        orders.add(reference, key, len(command.body), accepted=accepted)


class Client:
    """It goes to any machine when its connection breaks."""

    def __init__(self, town: Town, name: int) -> None:
        self.town, self.now, self.old = town, 1_000_000, list[tuple[Machine, Connection]]()
        self.core = ClientCore(bytes([name]) * 16, wall_us=lambda: self.now, name="c", others=True)
        self._connect()

    def _connect(self) -> None:
        self.machine, self.connection = self.town.rng.choice(self.town.machines), Connection()
        self.core.connected()

    def lose(self) -> None:
        """What was sent may come all the same, later."""
        self.connection.is_open = False
        if self.town.rng.random() < 0.5:
            self.old.append((self.machine, self.connection))
        self.core.lost()
        self._connect()

    def send(self) -> None:
        self.connection.send(self.core.data_to_send())

    def ask(self) -> None:
        """The machine takes the next request, perhaps of a connection that broke."""
        late = [each for each in self.old if each[1].inbox]
        if self.connection.inbox:
            self.machine.take(self.connection)
        elif late:
            machine, connection = self.town.rng.choice(late)
            machine.take(connection)

    def later(self) -> None:
        self.now += 300_000

    def take(self, count: int | None = None) -> None:
        """So many answers; all of them."""
        answers = self.connection.answers
        for answer in answers[:count]:
            self.core.receive_data(answer)
        del answers[:count]
        try:
            self.core.check_turned_away()
        except Disconnected:
            self.lose()


def _at_once(task: Coroutine[Any, Any, Any]) -> Any:
    try:
        task.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")
