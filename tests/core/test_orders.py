"""What a client that has ordered something is told, and when."""

from __future__ import annotations

from duckrow.node.calls import Calls
from duckrow.node.env import Buffer
from duckrow.node.errors import Timeout
from duckrow.node.orders import Orders

HELD, LOOSE, TO_BE_ORDERED = [(b"p" * 16, 0, "t", 0, seq) for seq in (1, 2, 3)]


def test_whoever_is_content_with_accepted_stays_where_his_order_has_a_place() -> None:
    """N3: Where nothing can be ordered now, it is on its way to this disk; the others look elsewhere."""
    calls, told = Calls(), list[list[Buffer]]()
    orders = Orders(calls, told.append)
    orders.add(1, HELD, 10, accepted=True)
    orders.add(2, LOOSE, 10, accepted=True)
    orders.add(3, TO_BE_ORDERED, 10, accepted=False)

    orders.give_back(Timeout("not known"), lambda *key: key in (HELD, TO_BE_ORDERED))

    assert len(told) == 2
    assert len(orders) == 1
    calls.accept(HELD)
    assert len(told) == 3
