"""Housekeeping: what keeps restarts short and the disk small, while the keeper goes on.

    a segment was sealed      ─► its index file
    64 MiB, 25,000 items or
    30,000 commands           ─► a snapshot; the older one tells the store what it may forget
    a segment died, or half   ─► dead segments go, mostly dead ones are rewritten

Nothing here is needed for what was answered to stay true.  A full disk makes it wait; and where
something is dead that only the older snapshot still needs, newer ones are written at once, if need be
in the space of the hard reserve, or of the older snapshot:

    snapshots    A ....... B ...... the end      a segment between A and B is dead, and full the disk
                           B ...... C            A is given up for C; the segment goes
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from itertools import chain

import attrs
import trio

from . import keptplaces
from .capture import CHUNK_BYTES, capture
from .damage import Damage
from .errors import Corrupt, Full, NoQuorum, NotFound, Refused, Timeout
from .giving import Send, give
from .keeper import Keeper
from .limits import FOLLOWABLE_BYTES_MIN, MIB
from .numberfolder import NumberFolder
from .places import NOWHERE, Places, bytes_between, offset_of, segment_of
from .reserve import OK
from .row import Bundle, Item
from .scrub import Pace, at_once
from .segments import segment_file
from .snapshots import IDLE_SHARE, KEPT, Identity, Snapshots, place_chunk
from .state import oldest_waiting
from .upkeep import Plan

RETRY_SECONDS = 5.0  # after a full disk, or a segment that was held back
FILES_AT_ONCE = 8  # of the index, between two looks whether a snapshot is due


@attrs.frozen(kw_only=True)
class HousekeepingOptions:
    # What a restart may have to read and to apply again: items at ten microseconds, commands too.
    snapshot_items: int = 25_000
    snapshot_commands: int = 30_000
    snapshot_bytes: int = 64 * MIB
    followable_bytes: int = FOLLOWABLE_BYTES_MIN
    slice_bytes: int = CHUNK_BYTES  # of the state, encoded in one go
    slice_seconds: float = 0.0  # it counts as long as this, at least, for the rest after it


class Housekeeping:
    def __init__(
        self,
        keeper: Keeper,
        snapshots: Snapshots,
        folder: NumberFolder,
        options: HousekeepingOptions,
        unknown: Collection[int] = (),  # segments of which the index has lost something
    ) -> None:
        self._keeper = keeper
        self._store = keeper.row.store
        self._snapshots = snapshots
        self._folder = folder
        self._options = options
        self.unknown = unknown
        self._work = trio.Event()
        self._items = self._commands = self._bytes = 0  # since the last snapshot
        self._place = 0  # of the last item that was counted
        self._released = 0  # position of the older snapshot
        self._held = False  # a body that waited may have kept segments
        self._missed = False  # a snapshot that was due did not fit
        self._image: Send | None = None  # who wants one
        self._full: dict[str, float] = {}  # what did not fit, and when it is tried again
        # Segments that the row did not rewrite, as while it gives an image, and when they are asked for again.
        self._refused: dict[int, float] = {}
        keeper.on_progress = self._count
        keeper.pins.on_told = self._look
        keeper.row.tend(self._look, (self._scrub_index, self._scrub_snapshots))

    def give_image(self, send: Send) -> None:
        """Soon: the state is captured by one at a time."""
        self._image = send
        self._work.set()

    def resume(self) -> None:
        """After the snapshots were read."""
        if len(self._snapshots.whole) > 1:
            self._released = self._snapshots.whole[0]
            self._work.set()

    async def run(self) -> None:
        """
        Raises:
            DiskFailed: the process has to end.
        """
        row, waiting = self._keeper.row, self._keeper.numbers.waiting
        while True:
            with trio.move_on_at(
                min((*self._full.values(), *self._refused.values()), default=math.inf)
            ):
                await self._work.wait()
            self._work = trio.Event()
            now = trio.current_time()
            self._full = {what: again for what, again in self._full.items() if again > now}
            self._refused = {which: again for which, again in self._refused.items() if again > now}
            # There may always be one more that waits, and a snapshot may be due all the time.
            for _ in range(FILES_AT_ONCE):
                if not (waiting() and await self._fits("index", self._index)):
                    break
            if row.status().disk != OK and row.broken is None:
                await self._make_room()
            if self._image is not None:
                send, self._image = self._image, None
                if self.unknown or not await self._give(send):
                    await send(None, b"")
            if self._is_due():
                await self._fits("snapshot", self.snapshot)
            await self._tidy()
            if waiting() and not self._full:
                self._work.set()

    async def _give(self, send: Send) -> bool:
        """Nothing that is damaged: nobody could begin with it.  What a scrub puts right is given next time."""
        try:
            return await give(self._keeper, send)
        except Corrupt:
            await self._scrub_index(at_once)
            return False

    async def snapshot(self, *, idle_share: float = IDLE_SHARE) -> bool:
        """Writes one of the state as it is now.

        False: the disk is full, or does not give the digest of the row here; there is another one.
        """
        keeper, store = self._keeper, self._store
        if keeper.row.broken is not None:
            return True  # the state is behind its own index, and a good snapshot would have to go
        await keeper.at_rest()
        position = keeper.state.position
        if position == 0:
            return True
        # From here to the captures there is no checkpoint: both show the same moment.
        state = capture(keeper.state, self._options.slice_bytes)
        try:
            keeper.numbers.kept = keptplaces.of_waiting(keeper.numbers.kept, keeper.state)
            index, pins = keeper.numbers.capture(), keeper.pins.capture()
            self._items = self._commands = self._bytes = 0
            self._missed = True
            lineage = keeper.state.view.lineage if keeper.state.view is not None else 0
            place = 0
            try:
                digest = await store.digest_of(position)
                with suppress(NotFound):  # an image stands for that item
                    place = await store.place_of(position)
            except Corrupt:
                return False  # the next snapshot is of another position
            identity = Identity(store.uuid, lineage, position, digest)
            of_state = (("state", chunk) for chunk in state)
            chunks = chain(of_state, [place_chunk(place)], index, pins)
            written = await self._snapshots.write(
                identity,
                chunks,
                store.sync,
                idle_share=idle_share,
                slice_seconds=self._options.slice_seconds,
            )
        finally:
            state.close()
        if written:
            keeper.tally.snapshot_position = position
            keeper.tally.snapshot_time = trio.current_time()
            self._missed = False
            whole = self._snapshots.whole
            if len(whole) > 1:
                self._released = whole[0]
        return written

    async def _fits(self, what: str, work: Callable[[], Awaitable[bool]]) -> bool:
        """Does something that needs space, but not right after it did not fit."""
        if what in self._full:
            return False
        fits = await work()
        if not fits:
            await self._keeper.row.keep_last()
            self._full[what] = trio.current_time() + RETRY_SECONDS
        return fits

    async def _index(self) -> bool:
        """Writes the file that has waited longest.  False: the disk is full."""
        numbers, row = self._keeper.numbers, self._keeper.row
        cover = numbers.waiting()
        assert cover is not None, "nothing waits"
        if cover.upto > self._store.durable_position:
            await self._store.sync()
        # Nothing of a segment goes before it has one: it may use the reserve.
        return await self._folder.write(numbers) or (
            await row.use_reserve() and await self._folder.write(numbers)
        )

    async def _make_room(self) -> None:
        """The disk is full: what is dead goes at once, not with the second snapshot from here."""
        keeper, snapshots = self._keeper, self._snapshots
        if keeper.row.stuck and len(snapshots.whole) == KEPT:
            await snapshots.forget(snapshots.whole[0])  # room for the command that makes room
        while await self._is_held_by_snapshots():
            if snapshots.newest == keeper.state.position:
                try:
                    with trio.move_on_after(RETRY_SECONDS):
                        await keeper.barrier()  # two snapshots are of two positions
                except (Corrupt, NoQuorum, Timeout):
                    return  # the row ends here, or the node does
                if snapshots.newest == keeper.state.position:
                    return
            if not await self._fits("room", self._snapshot_for_room):
                return
            await self._tidy()

    async def _is_held_by_snapshots(self) -> bool:
        """Whether something would go if the older snapshot were of this moment."""
        await self._keeper.applied()
        plan = self._plan(self._keeper.state.position)
        reach = {segment.number: segment.reach for segment in self._store.segments()}
        return any(reach[number] >= self._released for number in (*plan.drop, *plan.rewrite))

    async def _snapshot_for_room(self) -> bool:
        """In the space of the reserve if it must be, and then in that of the older snapshot."""
        snapshots = self._snapshots
        if await self.snapshot():
            return True
        if await self._keeper.row.use_reserve() and await self.snapshot():
            return True
        if await snapshots.forget_damaged() and await self.snapshot():
            return True
        if len(snapshots.whole) == KEPT:
            await snapshots.forget(snapshots.whole[0])
            if await self.snapshot():
                return True
        # Not one block is free.  The row behind the only snapshot may go, if that can be read.
        newest = snapshots.newest
        if self._released < newest and await snapshots.look_again(newest):
            self._released = newest
            return True
        return False

    async def _tidy(self) -> None:
        """Gives back what nobody can read any more."""
        if not self._released:
            return
        keeper, numbers = self._keeper, self._keeper.numbers
        # A batch that waited may just have got its numbers, and the index not know that it lives.
        await keeper.applied()
        plan = self._plan(self._released)
        waited = oldest_waiting(keeper.state)
        keeper.row.release(self._released, keeper.state.position if waited is None else waited)
        for segment in await self._store.drop(plan.drop):
            await self._folder.drop(numbers, segment)
            self._full.clear()
        for number in plan.rewrite:
            if number in self._refused:
                continue
            await self._fits(f"segment {number}", partial(self._rewrite, number))

    def _plan(self, snapshot: int) -> Plan:
        """What is dead, and may go if the older snapshot is of that position."""
        numbers, waited = self._keeper.numbers, oldest_waiting(self._keeper.state)
        self._held = waited is not None
        return numbers.usage.plan(
            self._store.segments(),
            snapshot=snapshot,
            oldest_body=waited,
            in_memory=numbers.in_memory,
            unknown=self.unknown,
            followable=self._options.followable_bytes,
        )

    async def _rewrite(self, segment: int) -> bool:
        """False: there is no room for the copy."""
        live = Places()
        fits = await self._leave_out(segment, live)
        while live.shed():
            await trio.lowlevel.checkpoint()
        return fits

    async def _leave_out(self, segment: int, live: Places) -> bool:
        numbers = self._keeper.numbers
        try:
            for places in numbers.live_places(segment):
                live.update(places)
                await trio.lowlevel.checkpoint()
            try:
                await self._store.rewrite(segment, live)
            except Full:
                if not await self._keeper.row.use_reserve():
                    return False
                await self._store.rewrite(segment, live)
        except Full:
            return False
        except Refused:
            self._refused[segment] = trio.current_time() + RETRY_SECONDS
            return True
        except Corrupt:
            pass  # it stays as it is, and readers and the scrub say what is wrong with it
        numbers.usage.rewritten(segment)
        return True

    async def _scrub_index(self, pace: Pace) -> list[Damage]:
        numbers = self._keeper.numbers
        damages = await self._folder.scrub(numbers, pace) + self._lost()
        if any(not damage.mended for damage in damages):
            numbers.on_lost()
        return damages

    def _lost(self) -> list[Damage]:
        """Segments in which something is alive, and that are gone: of those of an image nothing else tells which
        there were.
        """
        there = {segment.number for segment in self._store.segments()}
        newest = max(there, default=0)  # that is known here
        held = self._keeper.numbers.usage.held()
        nowhere = segment_of(NOWHERE)  # whoever reads from there asks for it
        lost = [number for number in held if nowhere < number < newest and number not in there]
        return [Damage(segment_file(number), 0, 0, "the whole file") for number in lost]

    async def _scrub_snapshots(self, pace: Pace) -> list[Damage]:
        damages = await self._snapshots.scrub(pace)
        if damages:
            self._missed = True
            self._work.set()
        return damages

    def _is_due(self) -> bool:
        options = self._options
        if "snapshot" in self._full:
            return False
        return (
            self._missed
            or self._items >= options.snapshot_items
            or self._commands >= options.snapshot_commands
            or self._bytes >= options.snapshot_bytes
        )

    def _count(self, item: Item) -> None:
        self._items += 1
        if isinstance(item.content, Bundle):
            self._commands += len(item.content.commands)
        last, self._place = self._place, item.place
        size = bytes_between(last, item.place)
        if size is None:
            self._bytes += offset_of(item.place)
            self._work.set()
        else:
            self._bytes += size
        if self._is_due():
            self._work.set()
        if self._released and (self._keeper.numbers.usage.stale or self._is_let_go()):
            self._work.set()

    def _look(self) -> None:
        self._work.set()

    def _is_let_go(self) -> bool:
        """Nothing waits any more."""
        state = self._keeper.state
        return self._held and not state.waiting and not state.stages
