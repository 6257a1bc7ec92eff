"""A producer inside the node's own process: names its batches, and takes answers for what they are.

It lives as long as the process, so it never has to ask again: an answer, or the end.  Clients that
live elsewhere, and outlive connections, are another matter.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import columns, makers
from .effects import Code, Result, explain
from .errors import Conflict, DuckrowError, Full, NotFound, Refused
from .keeper import Keeper

_ERRORS: dict[Code, type[DuckrowError]] = {
    Code.FULL: Full,
    Code.NOT_FOUND: NotFound,
    Code.REFUSED: Refused,
}


class Producer:
    """Any number of tasks may produce at the same time; what one of them awaits keeps its order."""

    def __init__(self, node: Keeper) -> None:
        self._node = node
        self._pid = node.fresh_pid()
        self._last: dict[tuple[str, int], int] = {}  # by lane: seq of the last command
        self._open: dict[tuple[str, int], dict[int, None]] = {}  # by lane: seqs without an answer

    async def produce(
        self, topic: str, values: Sequence[bytes], *, partition: int = 0, partitions: int = 1
    ) -> Result:
        """Waits until the batch has its numbers.

        Raises:
            Full, NotFound, Refused, Conflict, NoQuorum: certainly not written; it says why.
        """
        lane = topic, partition
        seq = self._last[lane] = self._last.get(lane, 0) + 1
        waiting = self._open.setdefault(lane, {})
        waiting[seq] = None
        try:
            turn = makers.Turn(self._pid, seq, done=min(waiting) - 1, time=self._node.wall_us())
            body = columns.encode(values)
            result = await self._node.order(
                makers.produce(
                    turn, topic, body, len(values), partition=partition, partitions=partitions
                )
            )
        finally:
            del waiting[seq]
        if result.code != Code.ORDERED:
            raise _ERRORS.get(Code(result.code), Conflict)(f"{topic!r}: {explain(result)}")
        return result
