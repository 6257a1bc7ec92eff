"""Batches that a job hands over without numbers, and the commit that numbers all of them at once.

    task   staging = row.staging(writer, 7, task=0)      driver   row.commit(writer, 7, names)
           staging.put("rides", columns)  ...                     all of them, in this order, and once
           staging.names()   ──────────────────────────────►

What a task has staged is in the row, on every node; nobody sees it before its commit, and it is
forgotten if that does not come.  staging.py says what the row makes of both.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from . import makers
from .blockingline import Line
from .clientcalls import Call
from .commands import Command
from .effects import Result
from .env import Buffer

Name = tuple[int, int]  # of a stage, for its commit
UNDER_WAY: Final = 8  # of a staging: with batches of 1 MiB half of what a client may have


class Staging:
    """See `Client.staging`."""

    def __init__(self, line: Line, seconds: float, writer: bytes, batch: int, task: int) -> None:
        self._line, self._seconds = line, seconds
        self._writer, self._batch, self._task = writer, batch, task
        self._calls: deque[Call] = deque()
        self._names: list[Name] = []

    def put(
        self,
        topic: str,
        body: Buffer,
        count: int,
        *,
        partition: int = 0,
        partitions: int = 1,
        key_hashes: bytes | None = None,
    ) -> None:
        """The `count` entries of a body, for a partition of a topic that is thought to have so many;
        waits only if much is under way.

        Raises:
            Refused, NotFound: it could never be.
            Full: as much is staged as may be.
        """

        def make(turn: makers.Turn, partitions: int) -> Command:
            return makers.stage(
                turn,
                topic,
                body,
                count,
                writer=self._writer,
                batch=self._batch,
                task=self._task,
                partition=partition,
                partitions=partitions,
                key_hashes=key_hashes,
            )

        while len(self._calls) >= UNDER_WAY:
            self._take()
        line = self._line
        self._calls.append(line.begin(lambda core: core.stage(make, topic, partition, partitions)))
        line.advance()

    def names(self) -> list[Name]:
        """Of all that was put, in its order, once it is in the row.

        Raises:
            DuckrowError: some of it is not.
        """
        while self._calls:
            self._take()
        return self._names

    def _take(self) -> None:
        result: Result = self._line.wait(self._calls.popleft(), self._line.deadline(self._seconds))
        self._names.append((result.position, result.detail))
