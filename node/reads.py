"""What one client reads: its pulls and follows, and receipts that it waits for, a task each.

    PULL      look ──► something: the answer, and the end         nothing: wait for the topic, look
    FOLLOW    look ──► something: an answer, go on while there is credit      again

Before a look there has to be room in the output, and only one of a session looks at a time: so a
client that does not read has one answer more in our memory, however much it asked for.  Between
finding nothing and waiting there is no checkpoint, so nothing is missed.

When the node stops, a pull that waits ends with what there is, which is nothing.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import trio

from . import frames, requests
from .calls import Key
from .effects import WAITING, Code, Result
from .errors import Conflict, DuckrowError, Full, LimitExceeded, NoQuorum
from .lanes import remembered
from .limits import CLIENT_REQUESTS_MAX
from .looks import Look, look_of
from .output import AHEAD_BYTES, Output
from .reading import Pull
from .requests import Ask, Outcome
from .waiters import ALL

if TYPE_CHECKING:
    from .keeper import Keeper
    from .server import Server

WAIT_SECONDS_MAX: Final = 1e9  # what a clock can add to
SEEN_SECONDS_MAX: Final = 5.0  # for a node to come as far as its reader has been elsewhere
_MISSED: Final = int(Code.GAP), int(Code.UNKNOWN_PRODUCER)  # something before it was missing


class Reads:
    """Those of one session."""

    __slots__ = ("_looking", "_output", "_owed", "_server", "_tasks")

    def __init__(self, server: Server, output: Output) -> None:
        self._server, self._output = server, output
        self._tasks: dict[int, _Read] = {}  # by reference
        self._owed: dict[int, _Read] = {}  # of these, those that were there when the node stopped
        self._looking: trio.Event | None = None

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def are_owed(self) -> bool:
        """To a node that stops; who follows asks again at once."""
        return any(self._tasks.get(each) is read for each, read in self._owed.items())

    def pull(self, reference: int, ask: Ask, *, kept: bool = False) -> None:
        """
        Raises:
            Refused: it cannot be served; says why.
        """
        pull = _pull_of(ask, kept=kept)
        self._start(reference, self._pull, pull, ask.wait_us / 1e6, ask.seen)

    def follow(self, reference: int, ask: Ask, credit: int) -> None:
        """As `pull`; `credit` is of bytes that may be sent before more is granted."""
        pull = _pull_of(ask)
        self._server.refuse_if_stopping()
        self._start(reference, self._follow, pull, ask.seen, credit=credit)

    def receipt(self, reference: int, key: Key) -> None:
        """Answers once it is known what became of the command."""
        self._start(reference, self._receipt, key)

    def serve(self, reference: int, work: Callable[[], Sequence[object]], seen: int = 0) -> None:
        """Answers with what takes more than a moment; others get their turns in between."""
        self._start(reference, self._work, work, seen)

    def ask(
        self,
        reference: int,
        question: Callable[[], Awaitable[object]],
    ) -> None:
        """Answers with what somebody else knows, who may take his time."""
        self._start(reference, self._ask, question)

    def grant(self, reference: int, credit: int) -> None:
        if (read := self._tasks.get(reference)) is not None and credit > 0:
            read.credit += credit
            if read.granted is not None:
                read.granted.set()

    def cancel(self, reference: int) -> None:
        # It counts no more: what takes its room may have come with this, before its task has ended.
        if (read := self._tasks.pop(reference, None)) is not None:
            read.scope.cancel()

    def cancel_all(self) -> None:
        for read in self._tasks.values():
            read.scope.cancel()

    def stop_waiting(self) -> None:
        """The node stops: who waits gets what there is."""
        self._owed = {**self._tasks}
        for read in self._tasks.values():
            if read.waiting is not None:
                read.waiting.cancel()

    # -- tasks ----------------------------------------------------------------------------------

    def _start(
        self, reference: int, task: Callable[..., Awaitable[None]], *args: object, credit: int = 0
    ) -> None:
        if reference in self._tasks or len(self._tasks) >= CLIENT_REQUESTS_MAX:
            raise LimitExceeded("the number of reads", len(self._tasks) + 1, CLIENT_REQUESTS_MAX)
        read = self._tasks[reference] = _Read(reference, credit)
        self._server.spawn(self._run, read, task, args)

    async def _run(
        self, read: _Read, task: Callable[..., Awaitable[None]], args: tuple[object, ...]
    ) -> None:
        try:
            with read.scope:
                await task(read, *args)
        except DuckrowError as error:
            self._output.put(frames.encode(requests.failure(read.reference, error)))
        finally:
            if self._tasks.get(read.reference) is read:
                del self._tasks[read.reference]
            self._output.flush()

    async def _come_to(self, read: _Read, position: int) -> None:
        """This node knows what the reader has been told elsewhere.

        Raises:
            NoQuorum: it is too far behind.
        """
        server = self._server
        deadline = trio.current_time() + SEEN_SECONDS_MAX
        while (here := server.node.reader.position) < position:
            server.refuse_if_stopping()
            if trio.current_time() >= deadline:
                raise NoQuorum(
                    f"{server.options.name} has come to position {here:,}, and this reader has seen "
                    f"position {position:,} elsewhere"
                )
            with trio.CancelScope(deadline=deadline) as read.waiting:
                await server.node.turned.park()
            read.waiting = None

    async def _pull(self, read: _Read, pull: Pull, seconds: float, seen: int) -> None:
        server, missing, archive = self._server, 0, ""
        deadline = trio.current_time() + min(seconds, WAIT_SECONDS_MAX)
        await self._come_to(read, seen)
        await server.node.subscribe(pull.topic)
        while True:
            await self._turn()
            try:
                look = await server.looks.look(pull)
                pulled = look.pulled
                if pulled.batches or server.stopping or trio.current_time() >= deadline:
                    if missing:
                        pulled = attrs.evolve(
                            pulled, missing=pulled.missing + missing, archive=archive
                        )
                        look = look_of(pull, pulled)
                    self._put(read, look, Outcome.DONE)
                    return
            finally:
                self._end_turn()
            missing, archive = missing + pulled.missing, pulled.archive or archive
            pull = look.onward
            await self._wait(read, pull, deadline)

    async def _follow(self, read: _Read, pull: Pull, seen: int) -> None:
        server = self._server
        await self._come_to(read, seen)
        await server.node.subscribe(pull.topic)
        while True:
            await self._turn()
            try:
                look = await server.looks.look(pull)
                pull = look.onward
                if found := bool(look.pulled.batches or look.pulled.missing):
                    read.credit -= self._put(read, look, Outcome.MORE)
                    self._output.flush()
            finally:
                self._end_turn()
            server.refuse_if_stopping()
            if not found:
                await self._wait(read, pull, math.inf)
                continue
            while read.credit <= 0:
                await read.wait_for_credit()
                server.refuse_if_stopping()
            await trio.lowlevel.checkpoint()  # nor does one that is far behind hold up the others

    async def _receipt(self, read: _Read, key: Key) -> None:
        server = self._server
        result = known(server.node, key)
        while result is None or result.code == WAITING:
            server.refuse_if_stopping()
            with trio.CancelScope() as read.waiting:
                try:
                    result = await server.node.calls.wait(key)
                except (Full, NoQuorum):  # a copy was not taken
                    result = known(server.node, key)
                if result is not None and result.code in _MISSED:  # one did nothing: others decide
                    result = known(server.node, key)
            read.waiting = None
        self._output.put(frames.encode(requests.answer(read.reference, *result)))

    async def _work(self, read: _Read, work: Callable[[], Sequence[object]], seen: int) -> None:
        await self._come_to(read, seen)
        await self._turn()
        try:
            await trio.lowlevel.checkpoint()
            self._output.put(frames.encode(requests.answer(read.reference, *work())))
        finally:
            self._end_turn()

    async def _ask(self, read: _Read, question: Callable[[], Awaitable[object]]) -> None:
        found = await question()
        self._output.put(frames.encode(requests.answer(read.reference, found)))

    def _put(self, read: _Read, look: Look, outcome: Outcome) -> int:
        """The bytes of the body."""
        head = requests.found(read.reference, outcome, look.fields)
        self._output.put(frames.encode(head, *look.body))
        return look.size

    # -- turns ----------------------------------------------------------------------------------

    async def _turn(self) -> None:
        """Until nobody else of this session looks, and there is room for what is found."""
        while self._looking is not None or not self._output.has_room:
            if self._looking is not None:
                await self._looking.wait()
            else:
                await self._output.wait(AHEAD_BYTES)
        self._looking = trio.Event()

    def _end_turn(self) -> None:
        assert self._looking is not None
        self._looking.set()
        self._looking = None

    async def _wait(self, read: _Read, pull: Pull, deadline: float) -> None:
        """Comes to no checkpoint before it waits."""
        partition = ALL if pull.partition is None else pull.partition
        with trio.CancelScope(deadline=deadline) as read.waiting:
            await self._server.node.waiters.wait(pull.topic, partition)
        read.waiting = None


def _pull_of(ask: Ask, *, kept: bool = False) -> Pull:
    return Pull(
        ask.topic,
        ask.after,
        partition=ask.partition,
        topic_id=ask.topic_id,
        limit=ask.limit,
        max_bytes=ask.max_bytes,
        kept=kept,
    )


def known(node: Keeper, key: Key) -> Result | None:
    """What became of a command; None: it has not come yet, and nothing is known of it here.

    Raises:
        Conflict: its lane is gone, or another epoch's.
    """
    pid, epoch, topic, partition, seq = key
    lane = node.state.lanes.rows.get((pid, topic, partition))
    if node.acceptance.holds(*key) and (lane is None or seq > lane.last):
        return Result(WAITING)
    if lane is None and node.row.stages:  # it may come from the machine that accepted it
        return None
    if lane is None or lane.epoch != epoch:
        raise Conflict(
            "nothing is known of this receipt any more: its topic was deleted, or its producer "
            "is among those that produced nothing for longest"
        )
    return remembered(lane, seq) if seq <= lane.last else None


class _Read:
    """One that is under way."""

    __slots__ = ("credit", "granted", "reference", "scope", "waiting")

    def __init__(self, reference: int, credit: int) -> None:
        self.reference = reference
        self.credit = credit  # bytes that a follow may still send
        self.granted: trio.Event | None = None
        self.scope = trio.CancelScope()  # of all of it
        self.waiting: trio.CancelScope | None = None  # of a wait that can be cut short

    async def wait_for_credit(self) -> None:
        self.granted = trio.Event()
        with trio.CancelScope() as self.waiting:
            await self.granted.wait()
        self.granted = self.waiting = None
