"""A producer inside the node's own process: names its batches, and takes answers for what they are.

It lives as long as the process, so it never has to ask again: an answer, or the end.  Clients that
live elsewhere, and outlive connections, are another matter.

A seq that was taken for a batch has to come, or the lane stands still behind it (D3).  Where the
batch did not come, because the disk was full or whoever waited for it gave up, a skip comes in its
place; and a skip that comes after its batch does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import columns, makers
from .commands import Command
from .effects import Code, Result
from .errors import DuckrowError
from .keeper import Keeper
from .outcomes import error_of


class _Lane:
    """What the producer knows of one of its lanes."""

    __slots__ = ("last", "open", "skips", "stopped")

    def __init__(self) -> None:
        self.last = 0  # seq of the last batch
        self.open: dict[int, None] = {}  # seqs that somebody waits for
        self.stopped: dict[int, None] = {}  # seqs that may not have come
        self.skips = False  # they have to be sent


class Producer:
    """Any number of tasks may produce at the same time; what one of them awaits keeps its order."""

    def __init__(self, node: Keeper) -> None:
        self._node = node
        self._pid = node.fresh_pid()
        self._lanes: dict[tuple[str, int], _Lane] = {}

    async def produce(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        ids: Sequence[bytes] | None = None,
        expect_last: int | None = None,
        partition: int = 0,
        partitions: int = 1,
    ) -> Result:
        """Waits until the batch has its numbers.  Cancelled: it has them already, or never will.

        `ids`, one for each value, are numbered once, whoever brings them; with `expect_last` the
        batch is written only if that is the last number of the partition.

        Raises:
            Full, NotFound, Refused, Conflict, NoQuorum: certainly not written; it says why.
            Timeout: the node stops; it may or may not be there afterwards.
        """
        key = topic, partition
        lane = self._lanes.get(key) or _Lane()
        seq = lane.last + 1
        body = columns.encode(values, keys)
        turn, count = self._turn(lane, seq), len(values)
        command = makers.produce(
            turn,
            topic,
            body,
            count,
            partition=partition,
            partitions=partitions,
            key_hashes=None if keys is None else columns.key_hashes(keys),
            ids=ids,
            expect_last=expect_last,
        )
        skips = [self._skip(key, lane, each) for each in sorted(lane.stopped)] if lane.skips else []
        call = self._node.submit(command, *skips)
        # Only now it is taken: what was refused before has left no trace.
        self._lanes[key] = lane
        lane.last, lane.open[seq], lane.skips = seq, None, False
        code: int | None = None
        told = False
        try:
            result = await self._node.calls.wait(call)
            code, told = result.code, True
        except DuckrowError:
            told = True
            raise
        finally:
            del lane.open[seq]
            self._note(key, lane, seq, code)
            if not told:
                self._give_up(key, lane, seq)
        if code != Code.ORDERED:
            raise error_of(result, topic)
        return result

    def _note(self, key: tuple[str, int], lane: _Lane, seq: int, code: int | None) -> None:
        if code is None or code == Code.GAP:
            lane.stopped[seq] = None
            lane.skips = True
        elif code == Code.UNKNOWN_PRODUCER:  # it went with its topic: begin with the new one
            if self._lanes.get(key) is lane:
                del self._lanes[key]
        else:
            lane.stopped = {each: None for each in lane.stopped if each > seq}

    def _give_up(self, key: tuple[str, int], lane: _Lane, seq: int) -> None:
        """A batch that waits for room must not get it any more."""
        try:
            self._node.submit(self._skip(key, lane, seq))
        except DuckrowError:
            pass  # it goes before the next batch

    def _skip(self, key: tuple[str, int], lane: _Lane, seq: int) -> Command:
        return makers.skip(self._turn(lane, seq), *key)

    def _turn(self, lane: _Lane, seq: int) -> makers.Turn:
        waits = next(iter(lane.open), seq)  # they grow, so the first is the lowest
        done = min(waits, min(lane.stopped, default=seq)) - 1
        return makers.Turn(self._pid, seq, done=done, time=self._node.wall_us())
