"""Jobs: what others want done between two rounds, when nobody else writes the journal."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import trio

from duckrow.node.errors import Full

Work = Callable[[], Awaitable[object]]


class _Job:
    __slots__ = ("done", "error", "result", "work")

    def __init__(self, work: Work) -> None:
        self.work, self.done = work, trio.Event()
        self.result: object = None
        self.error: Full | None = None


class Jobs:
    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._jobs: deque[_Job] = deque()

    @property
    def waiting(self) -> bool:
        return bool(self._jobs)

    async def do(self, work: Work) -> object:
        """What it gives.

        Raises:
            Full: it raised that; any other error is one of the rounds.
        """
        job = _Job(work)
        self._jobs.append(job)
        self._wake()
        await job.done.wait()
        if job.error is not None:
            raise job.error
        return job.result

    async def run(self) -> None:
        while self._jobs:
            job = self._jobs.popleft()
            try:
                job.result = await job.work()
            except Full as error:
                job.error = error
            job.done.set()  # not after another error: then nobody goes on
