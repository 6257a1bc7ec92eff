"""Sending: what goes out over one link, in the order that serves all best.

    urgent   Link, Acks, Control, Newer            first; of Link and Acks only the newest is kept
    bulk     Bundle, Base, Follow, Tail, Hand      in order, one behind the other
    leisure  ImageSlice                            when nothing else waits; of what is asked for now
                 |
    fill ------->| out: bytes for the socket, of the bulk a quarter of a MiB at most

A socket that is full takes a part of what it is given.  What is urgent then passes all of the rest but
the message that is begun: over a slow link that would be seconds, in which a ballot fails (F10).

A Bundle may be overtaken by any Acks: those count only once the bundles before them are there (T2).
A Base stays among the bundles, since it says where they go on.  Bundles wait as what they are, not as
bytes, so a link costs no copy of what the streams hold anyway.  No I/O here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from itertools import chain
from typing import Final

from duckrow.node.env import Buffer
from duckrow.node.limits import KIB
from duckrow.node.row import Bundle, View

from .imageforms import ImageOffer, ImageSlice, NoImage
from .messages import Acks, Base, Control, Follow, Hand, Link, Mended, Message, Tail
from .pending import size_of as size_of_commands
from .wire import Encoder

AT_ONCE_BYTES: Final = 256 * KIB  # are given to the socket, which mostly takes less
_BULK: Final = frozenset((Bundle, Base, Follow, Mended))
MESSAGE_BYTES: Final = 256  # what one that carries no bundle is taken for


class Sending:
    def __init__(self, encoder: Encoder) -> None:
        self.bulk_bytes = 0  # that wait, in bundles
        self._of: dict[int | None, int] = {}  # of them, by whose stream it is; None: of no stream
        self._encoder = encoder
        self._urgent: dict[Hashable, Message] = {}
        self._bulk: deque[tuple[Message, int]] = deque()
        # Who takes an image asks for the beginnings of some segments together, and for all else one by
        # one: what waited before was asked for again.
        self._leisure: dict[Hashable, ImageSlice] = {}
        self._are_beginnings = False
        self._out: list[list[Buffer]] = []  # by message
        self._out_bytes = 0
        self._unpassed = 0  # so many of them nothing passes: one that is begun, and what is urgent
        self._count = 0
        self._link: tuple[Link, list[Buffer]] | None = None  # the last, which is mostly the next

    @property
    def is_empty(self) -> bool:
        return not (self._out or self._urgent or self._bulk or self._leisure)

    @property
    def most_bytes(self) -> int:
        """That wait of one member's stream, or of none.

        Each member may have its own under way, and all of that may have to go over one link of a chain.
        """
        return max(self._of.values(), default=0)

    def put(self, message: Message) -> None:
        if isinstance(message, Acks):
            key = message[:2]  # view and member
            self._urgent.pop(key, None)  # its place is behind what it may speak of
            self._urgent[key] = message
        elif _is_bulk(message):
            if isinstance(message, Control) and self._waits(message):
                return
            size = size_of(message)
            self._bulk.append((message, size))
            self._weigh(message, size)
        elif isinstance(message, ImageSlice):
            is_beginning = message.segment > 0 and not message.offset
            if not (is_beginning and self._are_beginnings):
                self._leisure.clear()
            self._are_beginnings = is_beginning
            self._leisure[message[:3]] = message
        elif isinstance(message, Link):
            self._urgent.pop(Link, None)
            self._urgent[Link] = message
        else:
            if isinstance(message, ImageOffer | NoImage):
                self._leisure.clear()  # of an earlier try, and perhaps of another machine's image
            self._count += 1
            self._urgent[self._count] = message

    def _waits(self, said: Control) -> bool:
        """A Hand that was said again: who says it cannot know how slow the link is."""
        return isinstance(said.payload, Hand) and any(
            isinstance(each, Control)
            and isinstance(each.payload, Hand)
            and (each.to, each.payload.commands) == (said.to, said.payload.commands)
            for each, _ in self._bulk
        )

    def fill(self) -> list[Buffer]:
        """What to give to the socket, something unless it is empty; call `sent` with what it took."""
        if self._unpassed <= 1:  # else of Link and Acks newer ones may take the place of those here
            while self._urgent:
                message = self._urgent.pop(next(iter(self._urgent)))
                self._give(message, self._unpassed)
                self._unpassed += 1
        while self._out_bytes < AT_ONCE_BYTES:
            if self._bulk:
                message, size = self._bulk.popleft()
                self._weigh(message, -size)
                self._give(message, len(self._out))
            elif self._leisure and not self._out:
                self._give(self._leisure.pop(next(iter(self._leisure))), 0)
                # Else it came behind the word that there is no such image any more.
                self._unpassed = 1
            else:
                break
        out = self._out[: self._unpassed] if self._urgent else self._out
        return list(chain.from_iterable(out))

    def _give(self, message: Message, place: int) -> None:
        buffers = self._encoded(message)
        self._out.insert(place, buffers)
        self._out_bytes += sum(map(len, buffers))

    def _weigh(self, message: Message, size: int) -> None:
        origin = message.origin if isinstance(message, Bundle) else None
        self.bulk_bytes += size
        self._of[origin] = self._of.get(origin, 0) + size

    def _encoded(self, message: Message) -> list[Buffer]:
        if not isinstance(message, Link):
            return self._encoder.encode(message)
        if self._link is None or self._link[0] != message:
            self._link = message, self._encoder.encode(message)
        return self._link[1]

    def sent(self, count: int) -> None:
        self._out_bytes -= count
        out, whole = self._out, 0
        for buffers in out:
            size = sum(map(len, buffers))
            if size > count:
                break
            count -= size
            whole += 1
        del out[:whole]
        self._unpassed = max(self._unpassed - whole, 0)
        if count:
            out[0] = list(_rest(out[0], count))
            self._unpassed = max(self._unpassed, 1)


def _rest(buffers: Iterable[Buffer], count: int) -> Iterator[Buffer]:
    """Behind the first `count` bytes."""
    for buffer in buffers:
        if count < len(buffer):
            yield memoryview(buffer)[count:]
        count = max(count - len(buffer), 0)


def size_of(message: Message) -> int:
    """In memory, about."""
    match message:
        case Bundle():
            return size_of_content(message)
        case Follow() | Mended():
            return size_of_content(message.item.content)
        case Control(payload=Tail() as tail):
            return MESSAGE_BYTES + sum(map(size_of_content, tail.bundles))
        case Control(payload=Hand() as hand):
            return MESSAGE_BYTES + size_of_commands(hand.commands)
        case _:
            return MESSAGE_BYTES


def size_of_content(content: Bundle | View) -> int:
    """Of an item, or of a message that carries one."""
    size = MESSAGE_BYTES
    if isinstance(content, Bundle):
        size += size_of_commands(content.commands)
    return size


def _is_bulk(message: Message) -> bool:
    if isinstance(message, Control):
        return isinstance(message.payload, Tail | Hand)
    return type(message) in _BULK
