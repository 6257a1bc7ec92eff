"""Many clients at once, each in a thread of its own.  None begins before all have connected."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from duckrow import Client

CONNECT_SECONDS: Final = 60.0  # until the last one has


class Crowd:
    """`connect` gives the n-th client, from 0 on."""

    def __init__(self, connect: Callable[[int], Client]) -> None:
        self.errors: list[Exception] = []  # what went wrong, the first of it first
        self.failed = threading.Event()  # nobody need go on, or wait for another one
        self._connect = connect

    def run(self, works: Sequence[Callable[[Client], None]]) -> float:
        """Seconds that it took them, from when all had connected.

        Who is interrupted waits for all of them: what they work on can be removed then.
        """
        ready = threading.Barrier(len(works) + 1)
        threads = [
            threading.Thread(target=self._do, args=(which, work, ready), daemon=True)
            for which, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        try:
            try:
                ready.wait(CONNECT_SECONDS)
            except threading.BrokenBarrierError:
                pass  # somebody could not connect: it is among the errors
            began = time.perf_counter()
            for thread in threads:
                thread.join()
            return time.perf_counter() - began
        except KeyboardInterrupt:
            self.failed.set()
            ready.abort()
            for thread in threads:
                thread.join()
            raise

    def _do(self, which: int, work: Callable[[Client], None], ready: threading.Barrier) -> None:
        try:
            with self._connect(which) as client:
                client.status()  # connected
                ready.wait(CONNECT_SECONDS)
                work(client)
        except threading.BrokenBarrierError:
            pass  # of somebody else's error
        except Exception as error:  # noqa: BLE001 - it is told to who has started this
            self.errors.append(error)
            self.failed.set()
            ready.abort()
