"""Attach: the node at its bridge, over a Unix socket (N1).

One node at a time: a new one takes the place of an older one, which may be dead, as soon as it has said
that it is a node: whoever only looks whether somebody listens here takes nobody's.  It is told items
from where it says, each round's in one write as soon as they are in the row, and some twenty times a
second how far the row is durable (N4).  While it does not read, or does not take what it has read,
nothing is kept for it: it is a cursor (follower.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import trio

from duckrow.node import bridgewire as wire
from duckrow.node.bridgewire import Said, Welcome
from duckrow.node.env import Buffer
from duckrow.node.errors import (
    Corrupt,
    Disconnected,
    DiskFailed,
    DuckrowError,
    Full,
    NoQuorum,
    NotFound,
)
from duckrow.node.events import INFO, WARNING, Note
from duckrow.node.frames import Frame, FrameReader
from duckrow.node.giving import Given
from duckrow.node.limits import MIB
from duckrow.node.output import GONE, Output
from duckrow.node.receiving import receive
from duckrow.node.row import Bundle, Item, RowStatus
from duckrow.node.segments import SegmentInfo
from duckrow.node.wakeup import Wakeup

from .answers import Answers
from .before import Before
from .follower import Follower
from .fromnode import FromNode
from .links import Stream
from .process import Bridge

AHEAD_BYTES: Final = 1 * MIB  # in the socket's queue
UNTAKEN_BYTES_MAX: Final = 4 * MIB  # of items that the node holds, and has not begun to apply
STATUS_SECONDS: Final = 0.05  # the end of the row is told so late: items say it, too


class Attach:
    """The place at a bridge where its node comes in."""

    def __init__(self, bridge: Bridge, note: Note) -> None:
        self._bridge, self._note = bridge, note
        self._answers = Answers(bridge)
        self._node: _Node | None = None
        self._came = trio.Event()  # set while there is one
        self._left = trio.Event()  # while there is none
        bridge.on_round = self._on_round
        bridge.on_staged = self._on_staged
        bridge.on_image = self._on_image

    async def handle(self, given: trio.abc.Stream) -> None:
        stream: Stream = given  # type: ignore[assignment]  # those of an Env can do more
        try:
            await self._serve(stream)
        except* DiskFailed as failed:  # else this would be the end of a connection only (L1)
            self._bridge.fail(failed)

    async def _serve(self, stream: Stream) -> None:
        async with trio.open_nursery() as nursery:
            node = _Node(self._bridge, stream, nursery, self._note, self._answers, self._comes_in)
            try:
                await node.run()
            except (*GONE, Disconnected) as error:
                self._note(INFO, "node_lost error=%s", error)
            except Corrupt as error:
                self._note(WARNING, "node_broken error=%s", error)
            finally:
                node.leave()
                if self._node is node:
                    self._node, self._came = None, trio.Event()
                    self._left.set()
            nursery.cancel_scope.cancel()

    def _comes_in(self, node: _Node) -> None:
        if self._node is not None and self._node is not node:
            self._node.leave()
        self._node = node
        self._came.set()
        if self._left.is_set():
            self._left = trio.Event()

    async def wait_alone(self, seconds: float) -> None:
        """Until no node was here for so long."""
        while True:
            with trio.move_on_after(seconds) as alone:
                await self._came.wait()
            if alone.cancelled_caught:
                return
            await self._left.wait()

    def _on_round(self) -> None:
        if self._node is not None:
            self._node.tell_round()

    def _on_staged(self, bundle: Bundle) -> None:
        if self._node is not None:
            self._node.tell_staged(bundle)

    def _on_image(self) -> None:
        """What the node knows is of a row that is no more: it comes again, and sees."""
        if self._node is not None:
            self._node.leave()


class _Node:
    def __init__(
        self,
        bridge: Bridge,
        stream: Stream,
        nursery: trio.Nursery,
        note: Note,
        answers: Answers,
        comes_in: Callable[[_Node], None],
    ) -> None:
        self._bridge, self._stream, self._nursery = bridge, stream, nursery
        self._answers, self._comes_in = answers, comes_in
        self._is_in = False  # it has the place
        self._output = Output(stream, lambda work: nursery.start_soon(work), note, "node")
        self._follower: Follower | None = None
        self._image = FromNode(self.tell)
        self._row_image = ""  # with which the row began that it was told of
        self._untaken = 0  # bytes of items
        self._taken = Wakeup()
        self._told: tuple[int, RowStatus] | None = None
        self._segments: list[wire.Facts] = []
        self._attaches = False  # what it has to know first is to be said
        self._last = 0, 0  # position and place of the last item that it has
        self._welcome = False  # all of that was said
        self._says_at = 0.0  # that it runs
        self._changed: float | None = None  # since when the row has another end than was told
        self._awaited: set[bytes] = set()  # heads of commands of which `accepted` is waited for

    async def run(self) -> None:
        reader = FrameReader()
        reader.accept_hello()
        while True:
            while (frame := reader.next_frame()) is not None:
                self._on_frame(frame)
                if self._attaches:
                    await self._attach()
            await self._bridge.turn()
            if not await receive(self._stream, reader):
                return

    def leave(self) -> None:
        """Also while it is here: its connection ends."""
        if self._follower is not None:
            self._bridge.unfollow(self._follower)
            self._follower = None
        self._image.ends()
        if self._bridge.giving.source == self._image.take:
            self._bridge.giving.source = None
        self._output.hang_up()

    def tell(self, buffers: list[Buffer]) -> None:
        if self._welcome:
            self._output.put(buffers)
            self._output.flush()

    def tell_staged(self, bundle: Bundle) -> None:
        """If somebody waits for that: mostly the item follows at once."""
        if self._awaited:
            awaited = self._awaited.intersection([head for head, _ in bundle.commands])
            if awaited:
                self._awaited -= awaited
                self.tell(wire.staged(bundle))

    def tell_round(self) -> None:
        """What was ordered, and what else is new; without that now and then that there are rounds."""
        if (now := trio.current_time()) >= self._says_at:
            self._says_at = now + wire.RUNS_SECONDS
            if not self._output.bytes:
                self._output.put(wire.runs())
                self._output.flush()
        if not self._welcome:
            return
        follower, output = self._follower, self._output
        if follower is not None and follower.is_behind:
            items = follower.take_nowait() if self._has_room else []
            self._put_items(items)
            if not items:
                follower.wake()
        if self._is_status_due():
            self._tell_status()
        output.flush()

    def _is_status_due(self) -> bool:
        if self._told is None:
            return True
        floor, told = self._told
        store, standing = self._bridge.store, self._bridge.member.standing
        position, durable = store.position, store.durable_position
        if told.position == position and told.durable == min(durable, position):
            self._changed = None
        elif self._changed is None:
            self._changed = trio.current_time()
        elif trio.current_time() - self._changed >= STATUS_SECONDS:
            return True
        if floor != store.floor or told.disk != store.reserve.state:
            return True
        if told.active and standing.active:
            return told.view != standing.newest.id
        return _standing(told) != _standing(self._bridge.status())

    def _tell_status(self) -> None:
        store, status = self._bridge.store, self._bridge.status()
        self._changed = None
        segments = list(map(_facts, store.segments()))
        if segments[:-1] != self._segments[:-1] or len(segments) != len(self._segments):
            self._segments = segments
            self._output.put(wire.segments(segments))
        self._told = store.floor, status
        self._output.put(wire.status(status, store.floor))

    # -- what it says -------------------------------------------------------------------------

    def _on_frame(self, frame: Frame) -> None:
        kind, fields = wire.opened(frame)
        bridge = self._bridge
        if kind == Said.ATTACH:
            self._last, self._attaches = wire.last_of(fields), True
            self._is_in = True
            self._comes_in(self)
        elif not self._is_in:
            raise Corrupt(f"somebody says {kind} to a bridge, and not first that it is its node")
        elif kind == Said.FOLLOW:
            self._follow(fields[0])
        elif kind == Said.TAKEN:
            self._untaken -= fields[0]
            self._taken.wake()
        elif kind == Said.SUBMIT:
            commands = wire.commands_of(fields, frame.body).commands
            try:
                bridge.submit(commands)
            except (Full, NoQuorum) as error:
                self.tell(wire.refused(commands, error))
            else:
                if wire.is_awaited(fields):
                    self._awaited.update([head for head, _ in commands])
        elif kind == Said.SETTLE:
            bridge.settle([(view, origin, s) for view, origin, s in fields[0]])
        elif kind == Said.RELEASE:
            bridge.store.release(fields[0], fields[1])
        elif kind == Said.GIVEN:
            number, position, view, segments = wire.given_of(fields, frame.body)
            self._image.begins(number, Given(position, view, segments))
        elif kind == Said.PIECE:
            self._image.piece(fields[0], frame.body)
        elif kind == Said.LACKS:
            bridge.need_image()
        elif kind == Said.ASK:
            reference, what, *arguments = fields
            self._nursery.start_soon(self._answer, reference, what, arguments, frame.body)
        else:
            raise Corrupt(f"a node says {kind} to its bridge")

    async def _attach(self) -> None:
        """All that is staged and has a place, once it is durable; it may be more than the connection takes at once."""
        bridge, self._attaches = self._bridge, False
        await bridge.between(trio.lowlevel.checkpoint)  # a bridge that stands still has no node
        store, found = bridge.store, bridge.journal.recovered
        ordered = tuple(name for name, stage in store.chronicle.staged.items() if stage.ordered)
        staged = [each for name, each in bridge.staging.bundles.items() if name not in ordered]
        self._row_image = store.images.name
        self._output.put(
            wire.welcome(
                Welcome(
                    wire.VERSION,
                    found.id,
                    store.uuid,
                    store.formers,
                    store.options.level,
                    store.floor,
                    ordered,
                    self._row_image,
                    await self._leads_on(),
                )
            )
        )
        self._output.flush()
        if staged and bridge.member.standing.waits_for_disk:
            await store.sync()  # some may have been written just now
        before = Before()
        for bundle in staged:
            for command in bundle.commands:
                before.add(command.head)
            await trio.lowlevel.checkpoint()
        for bundle in staged:
            commands = tuple([each for each in bundle.commands if each.head in before])
            self._output.put(wire.staged(bundle._replace(commands=commands)))
            self._output.flush()
            await self._output.wait(AHEAD_BYTES)
        self._welcome = True
        self._tell_status()
        self._output.flush()

    async def _leads_on(self) -> bool:
        """A sync that failed may have taken the end of the row, which comes again and lies elsewhere."""
        position, place = self._last
        try:
            return not place or await self._bridge.store.place_of(position) == place
        except NotFound:
            return False
        except Corrupt:
            return True  # what is damaged there is mended where it lies

    def _follow(self, after: int) -> None:
        if self._follower is not None:
            self._bridge.unfollow(self._follower)
        self._follower = follower = self._bridge.follow(after)
        self._bridge.giving.source = self._image.take
        self._nursery.start_soon(self._send_items, follower)

    async def _send_items(self, follower: Follower) -> None:
        images = self._bridge.store.images
        while self._follower is follower:
            await follower.wait()
            # Rounds send, too, and what was placed since the last may be as much as a connection holds.
            while not self._has_room:
                await self._output.wait(AHEAD_BYTES)
                if self._untaken > UNTAKEN_BYTES_MAX:
                    await self._taken.wait()
            if not follower.is_behind:
                continue
            try:
                items = await follower.take()
            except NotFound:
                if self._follower is follower and images.name == self._row_image:
                    raise
                return  # an image took the place of the row, and says so when that is durable
            if self._follower is not follower:
                return
            self._put_items(items)
            self._output.flush()

    @property
    def _has_room(self) -> bool:
        return self._output.bytes <= AHEAD_BYTES and self._untaken <= UNTAKEN_BYTES_MAX

    def _put_items(self, items: Sequence[Item]) -> None:
        output, before = self._output, self._output.bytes
        for item in items:
            output.put(wire.item(item, self._bridge.options.id))
        self._untaken += output.bytes - before

    async def _answer(self, reference: int, what: int, arguments: list[Any], body: Buffer) -> None:
        try:
            buffers = await self._answers.to(reference, what, arguments, body)
        except DuckrowError as error:
            buffers = wire.failure(reference, error)
        # Who asks for many large bodies at once is not too slow to take them.
        await self._output.wait(AHEAD_BYTES)
        self.tell(buffers)


def _standing(status: RowStatus) -> tuple[object, ...]:
    """Without how far the row has come."""
    return status.active, status.members, status.view, status.missing, status.witness


def _facts(segment: SegmentInfo) -> wire.Facts:
    return (
        segment.number,
        segment.first,
        segment.last,
        segment.reach,
        segment.bytes,
        segment.sealed,
        segment.rewritten,
    )
