"""A client's core with a connection to a toy node, and short ways to ask what came of it."""

from __future__ import annotations

from core.nodetoy import Connection, Toy
from duckrow.node.clientcalls import Call, Receipt
from duckrow.node.clientcore import ClientCore
from duckrow.node.errors import DuckrowError

PID = b"p" * 16


class Client:
    """A core, and its connection to a toy node."""

    def __init__(self, toy: Toy) -> None:
        self.toy, self.now = toy, 1_000_000
        self.core = ClientCore(PID, wall_us=lambda: self.now, name="test")
        self.connection = Connection()
        self.connect()

    def connect(self, toy: Toy | None = None) -> None:
        """To the node where it was, or to another one."""
        self.toy = toy or self.toy
        self.connection = Connection()
        self.core.connected()

    def lose(self, to: Toy | None = None) -> Connection:
        """The old connection, which may still hold what was sent."""
        old = self.connection
        old.is_open = False
        self.core.lost()
        self.connect(to)
        return old

    def send(self) -> None:
        self.connection.send(self.core.data_to_send())

    def take(self) -> None:
        """All answers that have come."""
        answers, self.connection.answers = self.connection.answers, []
        for answer in answers:
            self.core.receive_data(answer)

    def take_and_send(self) -> None:
        while self.connection.inbox:
            self.toy.take(self.connection)
        self.take()
        self.send()

    def run(self) -> None:
        """Until nothing moves any more."""
        for _ in range(10_000):
            self.send()
            while self.connection.inbox:
                self.toy.take(self.connection)
            if not self.connection.answers:
                if self.core.pause_seconds() is None:
                    return
                self.now += 2_000_000
            self.take()
        raise AssertionError("it never came to rest")


def values_of(toy: Toy, name: str = "t", partition: int = 0) -> list[bytes]:
    return [value for _, value in toy.log.get((toy.row.topic(name).id, partition), [])]


def result(call: Call) -> object:
    assert call.done, "it has no answer"
    return call.value if call.error is None else type(call.error)


def number(call: Call) -> int | None:
    found = call.result()
    assert isinstance(found, Receipt)
    return found.number


def refuse_once(toy: Toy, *errors: DuckrowError) -> None:
    left = list(errors)
    toy.refuse = lambda: left.pop(0) if left else None


def number_of_next(client: Client) -> int | None:
    call = client.core.produce("t", b"next")
    client.run()
    return number(call)
