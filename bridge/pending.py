"""Pending: commands that have no place in the row yet, in the order in which they came.

    submitted --> fresh ----------> in a bundle of the view --> ordered: gone from here
                    |                   ^            |
                    '--> on disk as a --'            |
                         stage   ^---- the view is over

A command that is in a bundle leaves when that bundle becomes an item, whichever view or incarnation
brings it (P2): a bundle's name is given once.  The end of a view is no reason to send
anything again, since part of it may be in the cut (P3).  But who is *active* in the next view has
the whole row up to its mark: what is still here then was dropped by everybody.

While no view can be acted in, commands are kept on disk in a bundle of view 0, a stage.  When a
bundle carries them into the order the stage is over: both are on one disk, one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import attrs

from duckrow.node.commands import Command
from duckrow.node.limits import PENDING_BYTES_MAX
from duckrow.node.row import Bundle

from .before import Before, lane_of
from .messages import Name, name_of


class Waiting(NamedTuple):
    """Commands that go into one bundle."""

    commands: tuple[Command, ...]
    stages: tuple[Name, ...] = ()  # own bundles that hold them on disk already


@attrs.define
class Pending:
    _staged: deque[Waiting] = attrs.field(factory=deque, init=False)  # all older than the fresh
    _fresh: deque[Waiting] = attrs.field(factory=deque, init=False)  # in memory alone
    _bundled: dict[Name, Waiting] = attrs.field(factory=dict, init=False)  # in order of making
    fresh_bytes: int = attrs.field(default=0, init=False)

    def __len__(self) -> int:
        """How many bundles' worth, at most."""
        return len(self._staged) + len(self._fresh) + len(self._bundled)

    @property
    def waits(self) -> bool:
        return bool(self._staged or self._fresh)

    def recover(self, bundles: Iterable[Bundle]) -> list[Name]:
        """Own ones of earlier incarnations that are not in the row, as they were written: pending
        again, in their old order (P3, P4).

        A view takes the oldest that waits, so its bundles go before all that it has left.  What came
        again goes where it came first and has a place (before.py): whoever sends it again may leave
        out what came between.

        Gives those that are over, since they hold only what came before: such copies; and stages, if
        power was lost just before that was written.
        """
        before = Before()
        over = []
        for bundle in sorted(bundles, key=_newest_view_first):
            if all(command.head in before for command in bundle.commands):
                over.append(name_of(bundle))
            else:
                self.bundled(bundle)
            for command in bundle.commands:
                before.add(command.head)
        return over

    def submit(self, commands: Iterable[Command]) -> bool:
        """In this order (B4).  False: too much waits, and nothing of it was taken (P1)."""
        waiting = Waiting(tuple(commands))
        size = size_of(waiting.commands)
        if self.fresh_bytes + size > PENDING_BYTES_MAX:
            return False
        self.fresh_bytes += size
        self._fresh.append(waiting)
        return True

    def withdraw(self, command: Command) -> bool:
        """True: it was in no bundle and never will be."""
        for index, waiting in enumerate(self._fresh):
            if command in waiting.commands:
                rest = list(waiting.commands)
                rest.remove(command)
                self._fresh[index] = left = Waiting(tuple(rest))
                self.fresh_bytes -= size_of(waiting.commands) - size_of(left.commands)
                return True
        return False

    def take(self, commands_max: int, bytes_max: int, *, only_fresh: bool = False) -> Waiting:
        """What the next bundle holds: the oldest that waits, and as many more as fit.

        Whoever takes it says what became of it: `bundled` or `staged`.
        """
        commands: list[Command] = []
        stages: list[Name] = []
        size = 0
        queues = [self._fresh] if only_fresh else [self._staged, self._fresh]
        for queue in queues:
            while queue:
                first = queue.popleft()
                more = size_of(first.commands)
                too_many = len(commands) + len(first.commands) > commands_max
                if too_many or size + more > bytes_max:
                    if commands:
                        queue.appendleft(first)
                        return Waiting(tuple(commands), tuple(stages))
                    first, left = _split(first, commands_max, bytes_max)
                    if left.commands:
                        queue.appendleft(left)
                    more = size_of(first.commands)
                if queue is self._fresh:
                    self.fresh_bytes -= more
                commands += first.commands
                stages += first.stages
                size += more
        return Waiting(tuple(commands), tuple(stages))

    def first(self, commands_max: int, bytes_max: int) -> tuple[Command, ...]:
        """The oldest that are on disk, of a node that orders nothing itself; they stay (R3)."""
        found: list[Command] = []
        size = 0
        for waiting in (*self._bundled.values(), *self._staged):
            for command in waiting.commands:
                size += size_of([command])
                if found and (len(found) == commands_max or size > bytes_max):
                    return tuple(found)
                found.append(command)
        return tuple(found)

    def holds(self, commands: Iterable[Command]) -> bool:
        """Whether one of them has no place in the row yet."""
        heads = {command.head for command in commands}
        waiting = (*self._bundled.values(), *self._staged, *self._fresh)
        return any(command.head in heads for each in waiting for command in each.commands)

    def staged(self, bundle: Bundle) -> None:
        """What was taken fresh is on disk now, and waits for a view to act in."""
        self._staged.append(Waiting(bundle.commands, (name_of(bundle),)))

    def bundled(self, bundle: Bundle) -> None:
        self._bundled[name_of(bundle)] = Waiting(bundle.commands, (name_of(bundle),))

    def ordered(self, bundle: Bundle) -> list[Name]:
        """This own bundle is an item now (P2).  Gives the stages that are over by it.

        A bundle that is not known here was made before power was lost, which took its record but
        not that of the stage: then it is known by its commands.
        """
        if self._bundled.pop(name_of(bundle), None) is not None:
            return []
        waiting = [*self._bundled.values(), *self._staged]
        held = {command.head for each in waiting for command in each.commands}
        ordered = [command.head for command in bundle.commands if command.head in held]
        if not ordered:
            return []
        left = [list(each.commands) for each in waiting]
        lanes = cache(lane_of)
        for head in ordered:
            _take_out(head, left, lanes)
        waiting = [
            Waiting(tuple(some), each.stages) for some, each in zip(left, waiting, strict=True)
        ]
        count = len(self._bundled)
        self._bundled = {each.stages[0]: each for each in waiting[:count] if each.commands}
        self._staged = deque(each for each in waiting[count:] if each.commands)
        return [name for each in waiting if not each.commands for name in each.stages]

    def again(self) -> None:
        """This node acts in a new view: what has no place yet goes first, in its old order (P3)."""
        self._staged.extendleft(reversed(self._bundled.values()))
        self._bundled.clear()


def _newest_view_first(bundle: Bundle) -> int:
    return -bundle.view  # stages, of view 0, last


def _split(waiting: Waiting, commands_max: int, bytes_max: int) -> tuple[Waiting, Waiting]:
    """As many as fit, one at least, and the rest; a stage is over with the last of its commands."""
    size = 0
    for count, command in enumerate(waiting.commands):
        size += size_of([command])
        if count and (size > bytes_max or count == commands_max):
            left = Waiting(waiting.commands[count:], waiting.stages)
            return Waiting(waiting.commands[:count]), left
    return waiting, Waiting(())


def _take_out(head: bytes, left: Sequence[list[Command]], lanes: Callable[..., Any]) -> None:
    """Of what waits, the oldest copy.  One behind what has to come before it stays as long as that does:
    what was ordered is a copy from before that, which was refused (D3).
    """
    lane, seq = lanes(head)
    for commands in left:
        for index, each in enumerate(commands):
            if each.head == head:
                del commands[index]
                return
            other, lower = lanes(each.head)
            if lane is not None and other == lane and lower < seq:
                return


def size_of(commands: Sequence[Command]) -> int:
    return sum(len(command.head) + len(command.body) for command in commands)
