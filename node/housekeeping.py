"""Housekeeping: what keeps restarts short and the disk small, while the keeper goes on.

    a segment was sealed      ─► its index file
    64 MiB, 50,000 items or
    100,000 commands          ─► a snapshot; the older one tells the store what it may forget
    a segment died, or half   ─► dead segments go, mostly dead ones are rewritten

Nothing here is needed for what was answered to stay true.  A full disk makes it wait.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

import attrs
import trio

from .capture import capture
from .errors import Corrupt, Full, Refused
from .keeper import Keeper
from .limits import FOLLOWABLE_BYTES_MIN, MIB
from .numberfolder import NumberFolder
from .places import offset_of, segment_of
from .row import Bundle, Item
from .snapshots import IDLE_SHARE, Identity, Snapshots
from .state import oldest_waiting

RETRY_SECONDS = 5.0  # after a full disk


@attrs.frozen(kw_only=True)
class HousekeepingOptions:
    # What a restart may have to read and to apply again: items at ten microseconds, commands too.
    snapshot_items: int = 50_000
    snapshot_commands: int = 100_000
    snapshot_bytes: int = 64 * MIB
    followable_bytes: int = FOLLOWABLE_BYTES_MIN


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
        self._unknown = unknown
        self._work = trio.Event()
        self._items = self._commands = self._bytes = 0  # since the last snapshot
        self._place = 0  # of the last item that was counted
        self._released = 0  # position of the older snapshot
        self._held = False  # a body that waited may have kept segments
        keeper.on_progress = self._count

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
        while True:
            await self._work.wait()
            self._work = trio.Event()
            fits, waiting = True, self._keeper.numbers.waiting
            # A snapshot that is due does not wait for all files: there may always be one more.
            while fits and waiting() and not self._is_due():
                fits = await self._index()
            if self._is_due():
                fits = await self.snapshot() and fits
            await self._tidy()
            if waiting():
                self._work.set()
            if not fits:
                await trio.sleep(RETRY_SECONDS)

    async def snapshot(self, *, idle_share: float = IDLE_SHARE) -> bool:
        """Writes one of the state as it is now.  False: the disk is full."""
        keeper, store = self._keeper, self._store
        if keeper.row.broken is not None:
            return True  # the state is behind its own index, and a good snapshot would have to go
        while keeper.numbers.covered < keeper.state.position:
            await trio.lowlevel.checkpoint()  # an item is being applied
        position = keeper.state.position
        if position == 0:
            return True
        # From here to the captures there is no checkpoint: both show the same moment.
        state = capture(keeper.state)
        try:
            index = keeper.numbers.capture()
            self._items = self._commands = self._bytes = 0
            lineage = keeper.state.view.lineage if keeper.state.view is not None else 0
            digest = await store.digest_of(position)
            identity = Identity(store.uuid, lineage, position, digest)
            chunks = chain((("state", chunk) for chunk in state), index)
            written = await self._snapshots.write(
                identity, chunks, store.sync, idle_share=idle_share
            )
        finally:
            state.close()
        if written:
            whole = self._snapshots.whole
            if len(whole) > 1:
                self._released = whole[0]
        return written

    async def _index(self) -> bool:
        """Writes the file that has waited longest.  False: the disk is full."""
        numbers = self._keeper.numbers
        cover = numbers.waiting()
        assert cover is not None, "nothing waits"
        if cover.upto > self._store.durable_position:
            await self._store.sync()
        return await self._folder.write(numbers)

    async def _tidy(self) -> None:
        """Gives back what nobody can read any more."""
        if not self._released:
            return
        keeper, store, numbers = self._keeper, self._store, self._keeper.numbers
        waited = oldest_waiting(keeper.state)
        self._held = waited is not None
        keeper.row.release(self._released, keeper.state.position if waited is None else waited)
        plan = numbers.usage.plan(
            store.segments(),
            snapshot=self._released,
            oldest_body=waited,
            in_memory=numbers.in_memory,
            unknown=self._unknown,
            followable=self._options.followable_bytes,
        )
        for segment in await store.drop(plan.drop):
            await self._folder.drop(numbers, segment)
        for segment in plan.rewrite:
            await self._rewrite(segment)

    async def _rewrite(self, segment: int) -> None:
        numbers, live = self._keeper.numbers, set[int]()
        try:
            for places in numbers.live_places(segment):
                live.update(places)
                await trio.lowlevel.checkpoint()
            await self._store.rewrite(segment, live)
        except (Full, Refused):
            return  # not now; the next look may find space, or nothing that holds it back
        except Corrupt:
            pass  # it stays as it is, and readers and the scrub say what is wrong with it
        numbers.usage.rewritten(segment)

    def _is_due(self) -> bool:
        options = self._options
        return (
            self._items >= options.snapshot_items
            or self._commands >= options.snapshot_commands
            or self._bytes >= options.snapshot_bytes
        )

    def _count(self, item: Item) -> None:
        self._items += 1
        if isinstance(item.content, Bundle):
            self._commands += len(item.content.commands)
        last, self._place = self._place, item.place
        if segment_of(last) == segment_of(item.place):
            self._bytes += offset_of(item.place) - offset_of(last)
        else:
            self._bytes += offset_of(item.place)
            self._work.set()
        if self._is_due():
            self._work.set()
        if self._released and (self._keeper.numbers.usage.stale or self._is_let_go()):
            self._work.set()

    def _is_let_go(self) -> bool:
        """Nothing waits any more."""
        state = self._keeper.state
        return self._held and not state.waiting and not state.stages
