"""The row of a cluster of one: `node/row.py` with nothing to wait for but the disk.

    submit ─► open bundle ─► BUNDLE and ITEM written ─┬─► take     level write, memory
                 gathers while a sync is under way    └─► sync ─► take     level fsync

The task that calls `take` does the ordering: it is woken by `submit` and by the end of a sync, makes
one bundle of all that is open, writes it, and gets what may be seen by now.  `run` only syncs, and
does what can wait (lonecare.py).  So a lone command at level `write` costs one wake-up, and many that come
together share one bundle, one write and one sync.  Who knows that nobody else comes along orders by
himself, with no wake-up (`order_now`).

    row = await LoneRow.open(disk, env, StoreOptions())
    row.follow(position of the snapshot)
    nursery.start_soon(row.run)
    while True:
        items = await row.take()
        refused = row.take_refused()
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import trio

from . import doubt, restored
from .commands import Command
from .env import Disk, Env
from .errors import Corrupt, DiskFailed, Full, NoQuorum, NotFound, Refused
from .findings import Hole, end_at
from .limits import KIB
from .lonecare import Care
from .lonestart import ALONE_ID, LoneStart, Prove, check_alone, lost_end
from .reserve import OK
from .row import Item, RowStatus, alone
from .rowstore import RowStore
from .scrub import Scrub
from .scrubrounds import ScrubRounds
from .storeoptions import FSYNC, StoreOptions
from .takeover import take_over
from .wakeup import Wakeup

REPLAY_BYTES: Final = 256 * KIB  # of heads, handed out at once while the past is read
LARGE: Final = 64  # commands of a bundle: to apply them takes a millisecond, to write them too
_GO_ON: Final = "stop the node, and `duckrow doctor --rebuild` makes a state behind it"
COMMAND_BYTES: Final = 256  # what a pending command costs besides its bytes


class LoneRow:
    stages: Final = False
    accepts: Final = False
    missing: Final = ()
    is_witness: Final = False
    copies_upto: Final = 0

    def __init__(self, store: RowStore, disk: Disk, env: Env, id_: int) -> None:
        self.store = store
        self.broken: Corrupt | None = None  # the row ends where this says, and takes nothing more
        self._env, self._id = env, id_
        self._waits_for_sync = store.options.level == FSYNC
        self._view = 0
        self._s = 0  # of the last own bundle in this view; its lamport time, too
        # The past is what was in the row when it was opened.
        self._past_next, self._past_end = 1, store.position
        # What was submitted, and is in no bundle yet.
        self._open: list[Command] = []
        self._open_bytes = 0
        self.stuck = (
            False  # there was no room even for what makes room, and nothing was written since
        )
        self._refused: list[tuple[Command, Full]] = []
        self._written: deque[Item] = deque()  # in the row, not handed out
        self._gave = False  # the last `take` gave what a sync has made durable
        self._closed = False
        self._taker = Wakeup()
        if self._waits_for_sync:
            store.on_synced(self._taker.wake)
        self.scrubs = ScrubRounds(disk, env.wall_us, store.options, [store.scrub])
        self.care = Care(store, self.scrubs, self._taker)

    @classmethod
    async def open(
        cls,
        disk: Disk,
        env: Env,
        options: StoreOptions,
        *,
        id_: int = ALONE_ID,
        prove: Prove | None = None,
    ) -> LoneRow:
        """Recovers, and starts a new incarnation: START, leftovers, the mark of the next view (N7).

        `prove` finds what says that the row had come further than it does now.

        Raises:
            Conflict: another process has the folder; or the row belongs to a cluster of several.
            Corrupt: no row can be made of what is there.
            Full: not even the start could be written.
            DiskFailed: a write or a sync failed.
        """
        doubted, copied = await disk.exists(doubt.NAME), await disk.exists(restored.NAME)
        beyond = None
        if prove is not None:
            beyond = partial(lost_end, prove, boot_id=env.boot_id, doubted=doubted)
        store = await RowStore.open(disk, env, options, beyond=beyond)
        done = False
        try:
            start = LoneStart(store, env, id_, doubted=doubted, copied=copied)
            check_alone(store.chronicle, id_)
            row = cls(store, disk, env, id_)
            if store.lost is None:
                row._view = await start.begin()
                row._s = await take_over(store, row._view, id_, env.wall_us)
                row._past_end = store.position
                if doubted:
                    await doubt.clear_doubt(disk)
                if copied:
                    await restored.forget(disk)
            else:
                row._break(store.lost)
            done = True
            return row
        finally:
            if not done:
                store.abandon()

    def follow(self, after: int) -> None:
        """`take` begins behind position `after`, with the past: items whose bodies stay on the disk.

        Once, before the first `take`.

        Raises:
            Corrupt: the row does not have what follows, any more or yet (N4).
        """
        store = self.store
        if after > store.position or after + 1 < store.floor:
            raise Corrupt(
                f"the row store has items {store.floor} to {store.position}, and what is to follow "
                f"is item {after + 1}: a snapshot at {store.floor - 1} or later is missing"
            )
        self._past_next = after + 1
        ahead = [hole for hole in store.holes if hole.last > after]
        if ahead:
            first = min(ahead, key=_first)
            self._past_end = min(self._past_end, first.first - 1)
            self._break(Corrupt(f"{end_at(first)}; {_GO_ON}"))

    async def leads(self, after: int, upto: int) -> bool:
        """Whether the row can be read from the one position to the other."""
        while after < upto:
            try:
                after += len(await self.store.read_items(after + 1, REPLAY_BYTES, end=upto))
            except (Corrupt, NotFound):
                return False
        return True

    def tend(self, on_tight: Callable[[], None], scrubs: Sequence[Scrub]) -> None:
        self.care.on_tight = on_tight
        self.scrubs.scrubs = [self.store.scrub, *scrubs]

    async def run(self) -> None:
        """Syncs, indexes sealed segments, looks after a disk that is full, scrubs; until cancelled.

        Raises:
            DiskFailed: in a group; the process has to end.
        """
        await self.care.run()

    async def close(self) -> None:
        """Orderly: what is in the row is synced and indexed, `clean` written, the lock given back.

        What was submitted and is in no bundle is forgotten; `run` has ended before.

        Raises:
            DiskFailed.
        """
        self._closed = True
        await self.store.close()

    def abandon(self) -> None:
        """In no order: what is written stays, files and lock are free; also after `close`."""
        self._closed = True
        self.store.abandon()

    # -- N1 ---------------------------------------------------------------------------------

    def submit(
        self,
        commands: Sequence[Command],
        *,
        accepted: bool = False,
        later: bool = False,
        anew: bool = False,
    ) -> None:
        """See `KeptRow.submit`.  Each body was checked against its head by whoever took it in.

        Raises:
            Full, NoQuorum: as there.
            Corrupt: the row is damaged, and ends where this says.
            DiskFailed: the process has to end.
        """
        size = 0
        for head, body in commands:
            size += len(head) + len(body) + COMMAND_BYTES
        self._check_open(commands, size)
        self._open += commands
        self._open_bytes += size
        if not later:
            self._taker.wake()

    def go_on(self) -> None:
        self._taker.wake()

    def order_now(self) -> Item | None:
        """See `KeptRow.order_now`.  Only while somebody waits in `take`, who then has everything that
        was ordered before; and what goes wrong here is met there again, and told.
        """
        if self._waits_for_sync or self.care.stuck or not self._taker.is_awaited:
            return None
        commands, size = self._open, self._open_bytes
        options, s = self.store.options, self._s + 1
        most = min(LARGE - 1, options.bundle_commands)
        if size > options.bundle_bytes or len(commands) > most:
            return None
        try:
            item = self.store.appending.append_now(
                self._view, self._id, s, s, self._env.wall_us(), commands
            )
        except (Full, DiskFailed):
            return None
        if item is not None:
            self._open, self._open_bytes = [], 0
            self._s, self.stuck = s, False
            self.care.wrote(size)
        return item

    def withdraw(self, command: Command) -> bool:
        for index, each in enumerate(self._open):
            if each is command:
                del self._open[index]
                self._open_bytes -= _size(command)
                return True
        return False

    async def take(self) -> list[Item]:
        """See `KeptRow.take`.

        An empty list says to look at `take_refused`, or that damage ends the row here: `broken`.

        Raises:
            DiskFailed: the process has to end.
        """
        if self._past_next <= self._past_end:
            return await self._take_past()
        if self._gave:
            self._gave = False
            if self._open:
                # Those who were answered may have more, and it shares the next sync with what
                # gathered meanwhile.  Else two groups take turns, and each waits for both.
                await trio.lowlevel.checkpoint()
        while True:
            self.store.check()
            ready = self._ready()
            while not ready and self._open and self._may_write():
                await self._order()
                ready = self._ready()
            if ready or self._refused:
                self._gave = self._waits_for_sync
                return ready
            await self._taker.wait()

    def take_refused(self) -> list[tuple[Command, Full]]:
        """Commands that `submit` took and a full disk then kept out: certainly not written."""
        refused, self._refused = self._refused, []
        return refused

    def take_staged(self) -> Sequence[bytes]:
        """None: what is on this disk is ordered."""
        return ()

    def release(self, position: int, oldest_body: int) -> None:
        self.store.release(position, oldest_body)

    async def told(self) -> dict[str, Any]:
        return {}

    async def administer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """See `KeptRow.administer`; here is nobody else."""
        if asked.get("what") != "members":
            raise Refused(
                "this node is alone: whoever shall have others needs a cluster file, and a bridge"
            )
        return alone(self._id, self.store.uuid, self.store.options.level, self.status())

    def status(self) -> RowStatus:
        store = self.store
        position = store.position if self.broken is None else self._past_end
        return RowStatus(
            active=self.broken is None and not self._closed,
            members=(self._id,),
            position=position,
            durable=min(position, store.durable_position),
            view=self._view,
            disk=store.reserve.state,
        )

    # -- ordering ---------------------------------------------------------------------------

    def _may_write(self) -> bool:
        """While a sync is under way, bundles gather: what is written now would wait for the next."""
        if self.care.stuck:
            return False
        return (
            not self._waits_for_sync
            or not self.store.syncing
            or self._open_bytes >= self.store.options.bundle_bytes
        )

    async def _order(self) -> None:
        """One bundle of what is open."""
        commands, size = self._gather()
        done = False
        try:
            s = self._s + 1
            item = await self.store.appending.append(
                self._view, self._id, s, s, self._env.wall_us(), commands
            )
            done = True
        except Full:
            pass
        finally:
            if not done:
                self._open[:0] = commands
                self._open_bytes += size
        if not done:
            await self._give_way()
            return
        self._s, self.stuck = s, False
        self._written.append(item)
        self.care.wrote(size)
        if len(commands) >= LARGE and not self._waits_for_sync:
            await trio.lowlevel.checkpoint()  # written in one turn, applied in the next

    def _gather(self) -> tuple[list[Command], int]:
        """Takes from what is open as much as a bundle holds: one command, or more within the limit."""
        options = self.store.options
        commands, size = self._open, self._open_bytes
        if size <= options.bundle_bytes and len(commands) <= options.bundle_commands:
            self._open, self._open_bytes = [], 0
            return commands, size
        size = count = 0
        for command in commands[: options.bundle_commands]:
            more = _size(command)
            if count and size + more > options.bundle_bytes:
                break
            size += more
            count += 1
        self._open = commands[count:]
        self._open_bytes -= size
        return commands[:count], size

    def _ready(self) -> list[Item]:
        """What is in the row and, by the level of durability, may be seen."""
        written = self._written
        if not self._waits_for_sync:
            items = list(written)
            written.clear()
            return items
        durable = self.store.durable_position
        items = []
        while written and written[0].position <= durable:
            items.append(written.popleft())
        return items

    async def _take_past(self) -> list[Item]:
        try:
            items = await self.store.read_items(self._past_next, REPLAY_BYTES, end=self._past_end)
        except (Corrupt, NotFound) as error:
            self._past_end = self._past_next - 1
            self._break(Corrupt(f"the row ends at position {self._past_end}: {error}; {_GO_ON}"))
            return []
        self._past_next += len(items)
        return items

    # -- a full disk ------------------------------------------------------------------------

    async def _give_way(self) -> None:
        """A bundle did not fit: the reserve goes, and of what is open only what makes room stays."""
        reserve = self.store.reserve
        small = [command for command in self._open if not len(command.body)]
        has_room = await reserve.give_up(last=bool(small))
        full = reserve.full()
        self._refused += [(command, full) for command in self._open if len(command.body)]
        self._open = [command for command in self._open if not len(command.body)]
        self._open_bytes = sum(map(_size, self._open))
        self.stuck = self.care.stuck = not has_room and bool(self._open)

    async def keep_last(self) -> None:
        await self.store.reserve.keep_last()

    async def use_reserve(self) -> bool:
        """For what makes room and does not fit.  True: there is more space now."""
        return await self.store.reserve.give_up()

    # -- checks -----------------------------------------------------------------------------

    def _check_open(self, commands: Sequence[Command], size: int) -> None:
        self.store.check()
        if self.broken is not None:
            raise Corrupt(str(self.broken)) from self.broken
        if self._closed:
            raise NoQuorum("this node is stopping")
        if self.store.reserve.state != OK and any(len(command.body) for command in commands):
            raise self.store.reserve.full()
        if self._open and self._open_bytes + size > self.store.options.pending_bytes:
            raise NoQuorum(
                f"{self._open_bytes:,} bytes of commands wait for the disk already, and the limit "
                f"is {self.store.options.pending_bytes:,}"
            )

    def _break(self, error: Corrupt) -> None:
        if self.broken is None:
            self.broken = error


def _size(command: Command) -> int:
    return len(command.head) + len(command.body) + COMMAND_BYTES


def _first(hole: Hole) -> int:
    return hole.first
