"""A row of one's own to try the state with: items at the next position, seqs counted by lane."""

from collections.abc import Mapping
from typing import Any

from duckrow.node import makers
from duckrow.node.apply import apply
from duckrow.node.capture import capture, restore, state_hash
from duckrow.node.commands import Command, decode_head, encode_head
from duckrow.node.effects import Answer, Effect, Result
from duckrow.node.makers import Turn
from duckrow.node.row import Bundle, Item, Member, View
from duckrow.node.state import State
from duckrow.node.values import Partition, Topic

NOW = 1_700_000_000_000_000  # microseconds; a day in 2023
SECOND = 1_000_000
ANN, BOB, EVE = (bytes([n]) * 16 for n in (1, 2, 3))  # pids


class Row:
    """Commands in, effects out.  Every item is a bundle of node 1 unless it says otherwise."""

    def __init__(self, *members: tuple[int, int], **settings: Any) -> None:
        """`members` are (id, weight)."""
        self.state = State()
        self.time = NOW  # the stamp of the next item, and the time of its commands
        self.items: list[Item] = []
        self._seqs: dict[tuple[bytes, int, str, int], int] = {}
        self.mark(*(members or [(1, 1)]))
        if settings:
            self.set(**settings)

    # Items.

    def mark(self, *members: tuple[int, int]) -> list[Effect]:
        number = (self.state.view.id if self.state.view else 0) + 1
        listed = tuple(Member(id_, number, weight) for id_, weight in members)
        return self.put(View(number, listed, b"c" * 16, 7, "fsync"))

    def item(self, *commands: Command, origin: int = 1, stamp: int | None = None) -> list[Effect]:
        s = len(self.items) + 1
        return self.put(Bundle(1, origin, s, s, self.time if stamp is None else stamp, commands))

    def put(self, content: Bundle | View) -> list[Effect]:
        item = Item(self.state.position + 1, 0, 0, content)
        self.items.append(item)
        return apply(self.state, item)

    def tick(self, seconds: float = 0) -> list[Effect]:
        """The clock of node 1 goes on, and an item tells."""
        self.time += round(seconds * SECOND)
        return self.item()

    # Commands: each in an item of its own, answered.

    def ask(self, command: Command) -> Result:
        answers = [effect for effect in self.item(command) if isinstance(effect, Answer)]
        return answers[-1].result

    def turn(self, pid: bytes = ANN, topic: str = "", partition: int = 0, epoch: int = 0) -> Turn:
        """The next seq of the lane; all results stay wanted."""
        lane = pid, epoch, topic, partition
        self._seqs[lane] = self._seqs.get(lane, 0) + 1
        return Turn(pid, self._seqs[lane], epoch, 0, self.time)

    def batch(
        self,
        topic: str = "t",
        count: int = 1,
        *,
        pid: bytes = ANN,
        size: int = 10,
        epoch: int = 0,
        seq: int | None = None,
        time: int | None = None,
        done: int = 0,
        **more: Any,
    ) -> Command:
        partition = more.get("partition", 0)
        turn = self.turn(pid, topic, partition, epoch) if seq is None else Turn(pid, seq, epoch)
        turn = turn._replace(time=self.time if time is None else time, done=done)
        return makers.produce(turn, topic, bytes(size), count, **more)

    def produce(self, *args: Any, **more: Any) -> Result:
        return self.ask(self.batch(*args, **more))

    def skip(self, seq: int, topic: str = "t", *, pid: bytes = ANN, **more: Any) -> Result:
        return self.ask(makers.skip(Turn(pid, seq), topic, **more))

    def create(self, topic: str = "t", **policy: Any) -> Result:
        return self.ask(makers.create(self.turn(), topic, policy))

    def configure(self, topic: str = "t", topic_id: int = 0, **policy: Any) -> Result:
        return self.ask(makers.configure(self.turn(), topic, policy, topic_id=topic_id))

    def delete(self, topic: str = "t", **more: Any) -> Result:
        return self.ask(makers.delete(self.turn(), topic, **more))

    def prune(self, number: int, topic: str = "t", partition: int = 0) -> Result:
        return self.ask(makers.prune(self.turn(), topic, number, partition=partition))

    def set(self, values: Mapping[str, Any] | None = None, **more: Any) -> Result:
        return self.ask(makers.settings(self.turn(), {**(values or {}), **more}))

    # Looking.

    def topic(self, name: str = "t") -> Topic:
        topic = self.state.topic(name)
        assert topic is not None, f"there is no topic {name}"
        return topic

    def at(self, name: str = "t", partition: int = 0) -> Partition:
        return self.state.partition(self.topic(name).id, partition)

    def bounds(self, name: str = "t", partition: int = 0) -> tuple[int, int]:
        now = self.at(name, partition)
        return now.first, now.last

    def rest(self) -> None:
        """As after a restart from a snapshot: the same state, made anew."""
        before = state_hash(self.state)
        self.state = restore(capture(self.state))

        assert state_hash(self.state) == before


def answers(effects: list[Effect]) -> list[tuple[int, int]]:
    """(seq, code) of each."""
    return [(each.seq, each.result.code) for each in effects if isinstance(each, Answer)]


def altered(command: Command, **fields: Any) -> Command:
    """What no maker would make, but anybody could send."""
    return command._replace(head=encode_head(decode_head(command.head)._replace(**fields)))
