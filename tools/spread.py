"""The same entries over one topic, or spread over many: whether a topic waits for another."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, NamedTuple

from .crowd import Crowd

if TYPE_CHECKING:
    from duckrow import Client


class Outcome(NamedTuple):
    seconds: float
    times: list[float]  # of single calls
    ok: bool  # every entry is there, once


def run(
    connect: Callable[[int], Client],
    name: str,
    *,
    topics: int,
    clients: int,
    count: int,
    size: int,
    tell: Callable[[int], None],
) -> Outcome:
    """`connect` gives the n-th client.  `tell`: so many more are produced.

    Raises:
        DuckrowError: what went wrong first.
    """
    names = [f"{name}-{number}" for number in range(topics)]
    times: list[float] = []
    crowd = Crowd(connect)

    def produce(which: int, client: Client) -> None:
        # Client 1 begins at another topic than client 0, so that each is at one of its own.
        turns = islice(cycle(names), which * topics // clients, None)
        some = count * (which + 1) // clients - count * which // clients
        for topic in islice(turns, some):
            if crowd.failed.is_set():
                return
            began = time.perf_counter()
            client.produce(topic, bytes(size))
            times.append(time.perf_counter() - began)
            tell(1)

    with connect(0) as admin:
        for topic in names:
            admin.create_topic(topic)
        try:
            took = crowd.run([partial(produce, which) for which in range(clients)])
            if crowd.errors:
                raise crowd.errors[0]
            admin.barrier()
            there = sum(
                partition.entries for topic in names for partition in admin.topic(topic).partitions
            )
        finally:
            for topic in names:
                admin.delete_topic(topic)
    return Outcome(took, times, there == count)
