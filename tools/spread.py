"""The same entries over one topic, or spread over many: whether a topic waits for another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import cycle, islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from duckrow import Client

PATIENCE = 60.0


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
    errors: list[Exception] = []
    ready = threading.Barrier(clients + 1)

    def produce(which: int) -> None:
        try:
            with connect(which) as client:
                client.status()  # connected
                ready.wait(PATIENCE)
                # Client 1 begins at another topic than client 0, so that each is at one of its own.
                turns = islice(cycle(names), which * topics // clients, None)
                for topic in islice(
                    turns, count * (which + 1) // clients - count * which // clients
                ):
                    began = time.perf_counter()
                    client.produce(topic, bytes(size))
                    times.append(time.perf_counter() - began)
                    tell(1)
        except Exception as error:  # noqa: BLE001 - it is raised below
            errors.append(error)
            ready.abort()

    with connect(0) as admin:
        for topic in names:
            admin.create_topic(topic)
        try:
            threads = [
                threading.Thread(target=produce, args=(which,), daemon=True)
                for which in range(clients)
            ]
            for thread in threads:
                thread.start()
            try:
                ready.wait(PATIENCE)
            except threading.BrokenBarrierError:
                pass  # somebody could not connect: it is among the errors
            began = time.perf_counter()
            for thread in threads:
                thread.join()
            took = time.perf_counter() - began
            if errors:
                raise errors[0]
            admin.barrier()
            there = sum(
                partition.entries for topic in names for partition in admin.topic(topic).partitions
            )
        finally:
            for topic in names:
                admin.delete_topic(topic)
    return Outcome(took, times, there == count)
