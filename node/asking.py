"""What a client asks besides its orders: requests on their way to the node, and those it has not answered.

    put ─► at once     ─┐
           will wait   ─┴► next ─► under way ─► answered
                 ▲                     │
                 └── asked again ◄─────┘        it brought nothing, or the connection broke

Reads that wait at the node leave room there for what does not.  The first of them wait for as long as they may, the
others in turns, so that each is asked now and then however many there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from .clientcalls import Call
from .cursors import Back, Last
from .entries import Entries
from .env import Buffer
from .requests import Ask, Verb
from .underway import IN_FLIGHT

STANDING_MAX: Final = IN_FLIGHT * 3 // 4
LONG_MAX: Final = IN_FLIGHT // 2
TURN_US: Final = 250_000


class Request:
    """One that is not of an outbox; without `read`, nobody answers it."""

    __slots__ = ("ask", "call", "fields", "read", "takes_turns", "until", "verb", "waits")

    def __init__(
        self,
        call: Call,
        verb: int,
        fields: Sequence[Any],
        read: Callable[[list[Any], Buffer], Any] | None,
        *,
        waits: bool = False,
    ) -> None:
        self.call, self.verb, self.fields, self.read = call, verb, fields, read
        self.waits = waits  # at the node, for what is still to come
        self.takes_turns = False  # it waits there for a moment only, since many others do
        self.ask: Ask | None = None  # of a pull, whose fields are made when it goes out
        self.until = 0  # it waits, by the wall clock

    def asks(self, seen: int, now: int) -> Sequence[Any]:
        """The fields of a pull, as it goes out now, perhaps once more."""
        ask = self.ask
        assert ask is not None, "not a pull"
        # Another node would count from the end that it has then: so nobody waits before he knows where
        # he stands.
        left = 0 if isinstance(ask.after, Back | Last) else self.until - now
        wait_us = min(max(0, left), ask.wait_us)  # a clock that is set lets nobody wait longer
        if self.takes_turns:
            wait_us = min(wait_us, TURN_US)
        return ask._replace(seen=max(ask.seen, seen), wait_us=wait_us).fields()

    def goes_on(self, found: Entries, now: int) -> bool:
        """A pull brought nothing, and has not waited for as long as it may: it is to be asked again."""
        ask = self.ask
        if found or ask is None:
            return False
        left = ask.wait_us
        if not isinstance(ask.after, Back | Last):
            # Counted, and not only looked at: a node that stops lets nobody wait.
            left -= TURN_US if self.takes_turns else left
            if found.missing or self.until <= now:
                return False
        if left <= 0:
            return False
        topic_id = found.topic_id or ask.topic_id
        self.ask = ask._replace(after=found.after, topic_id=topic_id, wait_us=left)
        return True


class Asking:
    def __init__(self) -> None:
        self._at_once: deque[Request] = deque()
        self._standing: deque[Request] = deque()  # those that will wait at the node
        self._under_way: dict[int, Request] = {}  # by reference

    @property
    def has_unsent(self) -> bool:
        return bool(self._at_once or self._standing)

    def __len__(self) -> int:
        return len(self._at_once) + len(self._standing) + len(self._under_way)

    def put(self, request: Request) -> None:
        (self._standing if request.waits else self._at_once).append(request)

    def next(self, reference: int) -> Request | None:
        """What is asked now, under that reference."""
        count = len(self._under_way)
        if self._at_once and count < IN_FLIGHT:
            request = self._at_once.popleft()
        elif self._standing and count < STANDING_MAX:
            request = self._standing.popleft()
        else:
            return None
        request.takes_turns = count >= LONG_MAX
        if request.read is not None:
            self._under_way[reference] = request
        return request

    def answered(self, reference: int, *, more: bool) -> Request | None:
        """None: it was given up.  With `more`, that was not its last answer."""
        if more:
            return self._under_way.get(reference)
        return self._under_way.pop(reference, None)

    def give_up(self, call: Call) -> None:
        for queue in (self._at_once, self._standing):
            for request in queue:
                if request.call is call:
                    queue.remove(request)
                    return
        for reference, request in self._under_way.items():
            if request.call is call:
                del self._under_way[reference]  # an answer finds nobody
                # First: what waits for its room would be one too many before.
                self._at_once.appendleft(Request(Call(), Verb.CANCEL, (reference,), None))
                return

    def lost(self) -> None:
        """What has no answer goes again, over the next connection."""
        under_way = [*self._under_way.values()]
        self._under_way.clear()
        for request in under_way + self.take_unsent():
            if request.read is not None:
                self.put(request)

    def take_unsent(self) -> list[Request]:
        found = [*self._at_once, *self._standing]
        self._at_once.clear()
        self._standing.clear()
        return found
