"""What one client has ordered: each order is told of until its final answer.

    _ordered ─► counts ─► accepted, or waits in the row ─► final
                  │        MORE: no work of this node        DONE, or FAILED
                  ╰► too many of them: nothing more is read from the client

Of what was accepted, the newest are told of once more, when they are ordered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from . import frames, requests
from .calls import Calls, Key
from .effects import WAITING, Result
from .env import Buffer
from .errors import DuckrowError
from .limits import CLIENT_ACCEPTED_MAX, CLIENT_BYTES_MAX, CLIENT_REQUESTS_MAX

REQUEST_BYTES: Final = 64  # what a request counts besides its body


class Orders:
    __slots__ = ("_accepted", "_all", "_bytes", "_calls", "_counting", "_put", "_room")

    def __init__(self, calls: Calls, put: Callable[[list[Buffer]], None]) -> None:
        self._calls, self._put = calls, put
        self._all: dict[Order, None] = {}  # whose final answer is still to come
        self._accepted: dict[Order, None] = {}  # of these, those that were told to be accepted
        self._counting = 0  # of all, those that are neither answered nor waiting in the row
        self._bytes = 0  # of these
        self._room: trio.Event | None = None

    def __len__(self) -> int:
        return len(self._all)

    @property
    def are_open(self) -> bool:
        """This node owes an answer."""
        return bool(self._counting)

    @property
    def is_full(self) -> bool:
        return self._counting >= CLIENT_REQUESTS_MAX or self._bytes >= CLIENT_BYTES_MAX

    async def wait_for_room(self) -> None:
        while self.is_full:
            self._room = trio.Event()
            await self._room.wait()

    def add(self, reference: int, key: Key, size: int, *, accepted: bool) -> None:
        order = Order(self, reference, key, accepted, size + REQUEST_BYTES)
        self._calls.tell(key, order, accepted=accepted)
        self._all[order] = None
        self._counting += 1
        self._bytes += order.size

    def forget(self) -> None:
        """The client has left."""
        for order in self._all:
            self._calls.forget(order.key, order)
        self._all.clear()
        self._accepted.clear()
        self._put = _nowhere  # which names the session: a ring would keep it for the collector

    def give_back(self, error: DuckrowError, holds: Callable[..., bool]) -> None:
        """Nobody can tell now when what is under way is ordered: who waits for that is told so.

        Who is content with `accepted` need not wait for it, if what he ordered has a place here.
        """
        for order in [each for each in self._all if each.counts]:
            if not (order.accepted and holds(*order.key)):
                self._calls.forget(order.key, order)
                self.told_of(order, error)

    def told_of(self, order: Order, outcome: Result | Exception) -> None:
        """The keeper knows more of an order."""
        waits = isinstance(outcome, Result) and outcome.code == WAITING
        if not waits:
            self._all.pop(order, None)
            if order.accepted:
                self._accepted.pop(order, None)
        elif order.accepted:
            self._accepted[order] = None
            if len(self._accepted) > CLIENT_ACCEPTED_MAX:
                oldest = next(iter(self._accepted))
                self._calls.forget(oldest.key, oldest)
                del self._accepted[oldest], self._all[oldest]
        if order.counts:  # what waits in the row is no work of this node any more
            order.counts = False
            self._counting -= 1
            self._bytes -= order.size
            if self._room is not None and not self.is_full:
                self._room.set()
                self._room = None
        if isinstance(outcome, Result):
            told = requests.MORE if waits else requests.DONE
            head = requests.result(order.reference, told, outcome)
        elif isinstance(outcome, DuckrowError):
            head = requests.failure(order.reference, outcome)
        else:
            raise outcome
        self._put(frames.encode(head))


class Order:
    """An order that somebody waits for."""

    __slots__ = ("_orders", "accepted", "counts", "key", "reference", "size")

    def __init__(self, orders: Orders, reference: int, key: Key, accepted: bool, size: int) -> None:
        self._orders, self.reference, self.key = orders, reference, key
        self.accepted, self.size = accepted, size
        self.counts = True

    def __call__(self, outcome: Result | Exception) -> None:
        self._orders.told_of(self, outcome)


def _nowhere(_buffers: list[Buffer]) -> None:
    pass
