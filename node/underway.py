"""Orders of a client that have no final answer yet, over one connection.

    out       count against the window: no more are sent than the node reads
    parked    their batches wait in the row
    kept      their batches were accepted, and it is not known yet that they are ordered

What is kept is kept in memory, to go with the client to another machine.  Beyond a limit the oldest
is left to the machine that accepted it.
"""

from __future__ import annotations

from typing import Final

from .limits import CLIENT_ACCEPTED_MAX, CLIENT_BYTES_MAX, CLIENT_REQUESTS_MAX
from .outbox import Outbox
from .slots import Sent

REQUEST_BYTES: Final = 64  # what a request counts besides its body
IN_FLIGHT: Final = CLIENT_REQUESTS_MAX - 1  # orders, and as many reads
BYTES_IN_FLIGHT: Final = CLIENT_BYTES_MAX // 2
BYTES_KEPT: Final = CLIENT_BYTES_MAX

Order = tuple[Outbox, Sent]


class UnderWay:
    def __init__(self) -> None:
        self._orders: dict[int, Order] = {}  # by reference
        self._parked: set[int] = set()
        self._kept: dict[int, int] = {}  # bytes, by reference: the oldest first
        self._out_bytes = self._kept_bytes = 0

    def __len__(self) -> int:
        """Those that somebody waits for."""
        return len(self._orders) - len(self._kept)

    @property
    def has_room(self) -> bool:
        out = len(self._orders) - len(self._parked) - len(self._kept)
        return out < IN_FLIGHT and self._out_bytes < BYTES_IN_FLIGHT

    def get(self, reference: int) -> Order | None:
        return self._orders.get(reference)

    def add(self, reference: int, order: Order) -> None:
        self._orders[reference] = order
        self._out_bytes += len(order[1].command.body) + REQUEST_BYTES

    def wait(self, reference: int) -> None:
        """It was answered, and that is not the last answer."""
        if reference in self._parked or reference in self._kept:
            return
        sent = self._orders[reference][1]
        size = _size(sent)
        self._out_bytes -= size
        if not sent.accepted:
            self._parked.add(reference)
            return
        self._kept[reference] = size
        self._kept_bytes += size
        while self._kept_bytes > BYTES_KEPT or len(self._kept) > CLIENT_ACCEPTED_MAX:
            oldest = next(iter(self._kept))
            outbox, sent = self._orders[oldest]
            self.settle(oldest)
            outbox.let_go(sent)

    def settle(self, reference: int) -> None:
        """That was the last answer."""
        _, sent = self._orders.pop(reference)
        if reference in self._kept:
            self._kept_bytes -= self._kept.pop(reference)
        elif reference in self._parked:
            self._parked.discard(reference)
        else:
            self._out_bytes -= len(sent.command.body) + REQUEST_BYTES

    def clear(self) -> None:
        """The connection broke."""
        self._orders.clear()
        self._parked.clear()
        self._kept.clear()
        self._out_bytes = self._kept_bytes = 0


def _size(sent: Sent) -> int:
    return len(sent.command.body) + REQUEST_BYTES
