"""What a node has submitted to its bridge, until the item with it comes.

    add ──► held ──► forget        its item came, or it was refused or withdrawn
             │
             ├ durable             on the disk of this machine, of what somebody waits for (N3)
             └ doubted             given to a bridge before, or twice to this one: it may have taken it

All of it is submitted again, in order, whenever the bridge was away (N2).  So what is said of one copy need
not be true of the other: one may be refused by the bridge, and the other one taken; or in the row

    submitted   2 1 |          | 2 1 | 3             the bridge was away
    the row     2 1              2 1   3             2 is refused at first, for 1 was missing before it
                              in doubt --'           (D3, D4), and is done then

A bridge orders what its node gives it in that order.  So behind the first command that it was given once
there are no copies any more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from .commands import Command
from .errors import NoQuorum
from .limits import PENDING_BYTES_MAX
from .row import Bundle

COMMAND_BYTES = 256  # what a command that waits costs besides its bytes


class Unsettled:
    def __init__(self) -> None:
        self._held: dict[bytes, Command] = {}  # by head
        self._bytes = 0
        self._awaited: set[bytes] = set()  # it is to be told when they are durable
        self._durable: set[bytes] = set()  # of these, those of which that was told
        self._unsent: set[bytes] = set()  # added while the bridge was away
        self._doubted: set[bytes] = set()
        # Position: what is refused in the row up to there may have another copy behind it.
        self.copies_upto: float = 0

    def __iter__(self) -> Iterator[Command]:
        return iter(self._held.values())

    def add(self, commands: Sequence[Command], *, accepted: bool, sent: bool = True) -> None:
        """
        Raises:
            NoQuorum: too much waits already; nothing was added.
        """
        size = sum(_size(command) for command in commands if command.head not in self._held)
        if size and self._held and self._bytes + size > PENDING_BYTES_MAX:
            raise NoQuorum(
                f"{self._bytes:,} bytes of commands wait to be ordered already, and the "
                f"limit is {PENDING_BYTES_MAX:,}"
            )
        for command in commands:
            if command.head in self._held:
                if sent:  # a copy: what is said of it is not said of the one before
                    self._doubted.add(command.head)
            else:
                self._held[command.head] = command
                self._bytes += _size(command)
                if accepted:
                    self._awaited.add(command.head)
                if not sent:
                    self._unsent.add(command.head)

    def has_fresh_body(self, commands: Iterable[Command]) -> bool:
        """Whether one of those that are not held yet has a body."""
        return any(len(command.body) for command in commands if command.head not in self._held)

    def forget(self, head: bytes) -> bool:
        """False: it was not held."""
        command = self._held.pop(head, None)
        if command is None:
            return False
        self._bytes -= _size(command)
        self._awaited.discard(head)
        self._durable.discard(head)
        self._unsent.discard(head)
        self._doubted.discard(head)
        return True

    def came(self, position: int, commands: Sequence[Command]) -> None:
        """Their item did."""
        if self.copies_upto == math.inf:
            held = [head for head, _ in commands if head in self._held]
            once = [head for head in held if head not in self._doubted]
            if once:
                self.copies_upto = position - (len(once) == len(held))
        for head, _ in commands:
            self.forget(head)

    def is_awaited(self, head: bytes) -> bool:
        return head in self._awaited

    def are_durable(self, heads: Iterable[bytes]) -> bool:
        return self._durable.issuperset(heads)

    def put_last(self, heads: Iterable[bytes]) -> None:
        """They go once more, behind all that came since."""
        for head in heads:
            if (command := self._held.pop(head, None)) is not None:
                self._held[head] = command
                self._durable.discard(head)

    def note_durable(self, heads: Iterable[bytes]) -> None:
        self._durable.update(head for head in heads if head in self._held)

    def is_unsent(self, head: bytes) -> bool:
        """No bridge was given it."""
        return head in self._unsent

    def is_doubted(self, head: bytes) -> bool:
        """What the bridge refuses of this it may have taken before."""
        return head in self._doubted

    def doubt(self) -> None:
        """The bridge was away, and gets all of it again; its machine may have lost its power, too."""
        self._durable.clear()
        self._doubted = self._held.keys() - self._unsent
        self._unsent.clear()
        if self._doubted:
            self.copies_upto = math.inf

    def filled(self, bundle: Bundle) -> Bundle:
        """The bundle with the bodies that are held here: of all its commands, or as it came."""
        try:
            return bundle._replace(commands=tuple(self._held[head] for head, _ in bundle.commands))
        except KeyError:
            return bundle  # by an earlier life, or handed on


def _size(command: Command) -> int:
    return len(command.head) + len(command.body) + COMMAND_BYTES
