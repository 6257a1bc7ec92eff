"""What the nodes of a town apply, in every life of each: one row, which means the same to all of them.

with applied() as row:          # what keepers call is looked at
    ...
row.problems                    # where two of them differ
row.entries()                   # what ever had a number, also of topics that are no more
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from duckrow.node import columns, keeper
from duckrow.node.apply import apply
from duckrow.node.capture import state_hash
from duckrow.node.effects import Answer, Appended, Code, Created, Effect, Result
from duckrow.node.row import Bundle, Item
from duckrow.node.state import State

HASH_EVERY = 7  # items
Log = dict[int, bytes]  # value, by number


@attrs.define
class Applied:
    problems: list[str] = attrs.field(factory=list)
    names: dict[int, str] = attrs.field(factory=dict)  # of topics, by id
    done: dict[tuple[bytes, int], list[Result]] = attrs.field(factory=dict)  # by pid and seq
    read: dict[tuple[int, int, int], bytes] = attrs.field(factory=dict)  # in the end, by topic id
    _effects: dict[int, list[Effect]] = attrs.field(factory=dict)
    _hashes: dict[int, bytes] = attrs.field(factory=dict)
    _commands: dict[int, list[tuple[bytes, bytes]]] = attrs.field(factory=dict)

    def apply(self, state: State, item: Item, **more: Any) -> list[Effect]:
        effects, position = apply(state, item, **more), item.position
        if position not in self._effects:
            self._effects[position] = effects
            self._note(effects)
        elif self._effects[position] != effects:
            first = self._effects[position]
            self.problems.append(f"item {position} did {effects}, and at another node {first}")
        if position % HASH_EVERY == 0:
            found = state_hash(state)
            if self._hashes.setdefault(position, found) != found:
                self.problems.append(f"there are two states at {position}")
        if isinstance(item.content, Bundle):
            # A node that starts may read it again for the heads alone.
            before = self._commands.get(position, [])
            commands = [(head, bytes(body)) for head, body in item.content.commands]
            self._commands[position] = max(before, commands, key=_size)
        return effects

    def _note(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Created):
                self.names[effect.topic_id] = effect.topic
            elif isinstance(effect, Answer):
                result = effect.result
                if result.code == Code.ORDERED and not result.duplicate:
                    self.done.setdefault((effect.pid, effect.seq), []).append(result)

    def entries(self) -> dict[tuple[int, int], Log]:
        """By topic id and partition."""
        logs: dict[tuple[int, int], Log] = {}
        for effects in self._effects.values():
            for effect in effects:
                if isinstance(effect, Appended):
                    log = logs.setdefault((effect.topic_id, effect.partition), {})
                    for number, value in enumerate(self._values(effect), effect.first):
                        if number in log:
                            self.problems.append(f"number {number} was given twice: {effect}")
                        log[number] = value
        return logs

    def _values(self, effect: Appended) -> list[bytes]:
        commands = self._commands.get(effect.position, [])
        if _size(commands):
            return columns.decode(commands[effect.index][1]).value_list(0, effect.count)
        # All nodes read it again for the heads alone, as after all of them were away at once.
        place = effect.topic_id, effect.partition
        numbers = range(effect.first, effect.first + effect.count)
        return [self.read.get((*place, number), b"") for number in numbers]


def _size(commands: list[tuple[bytes, bytes]]) -> int:
    return sum(len(body) for _, body in commands)


@contextmanager
def applied() -> Iterator[Applied]:
    found = Applied()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeper, "apply", found.apply)
        yield found
