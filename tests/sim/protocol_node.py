"""The node beside a simulated bridge: applies items to a real state, and matches answers to callers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from duckrow.node.apply import apply
from duckrow.node.capture import capture, restore
from duckrow.node.commands import Command, decode_head
from duckrow.node.effects import Answer, Effect, Result
from duckrow.node.row import Bundle, Item, View
from duckrow.node.state import State

Call = Callable[[Result], None]
Key = tuple[bytes, str, int, int]  # pid, topic, partition, seq


class Node:
    def __init__(self) -> None:
        self.state = State()
        self.is_lost = False  # the state: an image brings one
        self._calls: dict[Key, Call] = {}
        self._when_accepted: dict[bytes, Callable[[], None]] = {}  # by head

    def wipe(self) -> None:
        self.state, self.is_lost = State(), False

    def lose(self) -> None:
        """No snapshot can be read; its process has died of it, or with it."""
        self.is_lost = True
        self._calls.clear()
        self._when_accepted.clear()

    def captured(self) -> list[bytes]:
        return list(capture(self.state))

    def take(self, captured: Iterable[bytes]) -> None:
        self.state, self.is_lost = restore(captured), False

    def restart(self, row: Sequence[Bundle | View]) -> None:
        """From a snapshot, if its row still has all that is in it; then by following."""
        self._calls.clear()
        self._when_accepted.clear()
        if self.is_lost:
            return
        if 0 < self.state.position <= len(row):
            self.state = restore(capture(self.state))
        else:
            self.state = State()
        for position in range(self.state.position + 1, len(row) + 1):
            apply(self.state, Item(position, 0, 0, row[position - 1]))

    def waits(self, command: Command, call: Call) -> bool:
        """False: it waits for this already, so it need not be submitted again."""
        head = decode_head(command.head)
        key = (*head.lane, head.seq)
        known = key in self._calls
        self._calls[key] = call
        return not known

    def when_accepted(self, command: Command, call: Callable[[], None]) -> None:
        self._when_accepted[command.head] = call

    def accepted(self, command: Command) -> None:
        call = self._when_accepted.pop(command.head, None)
        if call is not None:
            call()

    def apply(self, item: Item) -> tuple[list[Effect] | None, list[tuple[Call, Result]]]:
        """The effects are not known where there is no state."""
        if self.is_lost:
            return None, []
        effects = apply(self.state, item)
        answers = []
        for effect in effects:
            if isinstance(effect, Answer):
                call = self._calls.pop(
                    (effect.pid, effect.topic, effect.partition, effect.seq), None
                )
                if call is not None:
                    answers.append((call, effect.result))
        return effects, answers
