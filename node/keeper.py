"""The keeper: it follows the row, keeps the state, and tells everybody who waits.

    row ──► apply ──┬──► calls      who ordered a command learns what became of it
                    ├──► numbers    where the entry with a number lies
                    ├──► cache      the newest bundles
                    └──► waiters    who pulls from a topic, and found it empty

One task, `run`, owns all of these: items come one after the other, and between two of them
everything here belongs together.  While it waits for the next one, a client that is alone may have its
order made and applied in its own turn (`go_on`).  What takes long (snapshots, index files, dead segments) is in
housekeeping.py; it looks on from a task of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import trio

from . import keptplaces, makers
from .acceptance import Acceptance
from .aging import next_due
from .apply import VERSIONS, apply
from .cache import Cache
from .calls import Calls, Key, key_of
from .capture import hashing, state_hash
from .commands import PID_BYTES, Command, Head, decode_head
from .effects import Answer, Appended, Code, Configured, Created, Deleted, Effect, Result
from .errors import Corrupt, Disconnected, DuckrowError, NoQuorum, NotFound, Timeout
from .keptrow import KeptRow
from .names import check_topic_name
from .numbers import Numbers, older
from .pins import Pins
from .places import NOWHERE
from .reading import Reader
from .reserve import OK
from .row import Bundle, Item
from .settings import Create
from .state import State
from .tally import Tally
from .waiters import Waiters

REMIND_SECONDS_MIN = 0.001  # between two clock commands
REMIND_SECONDS_TIGHT = 1.0  # the same on a full disk, where each takes space of what makes room
REMIND_SECONDS_MAX = 1.0  # the wall clock may be set while somebody waits for it
SHOWN_FIRST = 4  # readers that wait for what came; more of them would hold up its producer
EFFECTS_AT_ONCE = 128  # of what is applied before others get a turn: some milliseconds
WISHES_MAX = (
    1_000  # for topics, at a machine without a majority: each is a task, and lies on the disk
)
MISSED = int(Code.GAP), int(Code.UNKNOWN_PRODUCER)  # something before it was missing
DOUBT = "whether it was written is not known: the bridge was away, and was given it again"
HEADS_MAX = 4_096  # decoded, of commands that are not applied yet


class Keeper:
    """The state of one node and all who wait for it."""

    def __init__(
        self,
        row: KeptRow,
        state: State,
        numbers: Numbers,
        *,
        rng: random.Random,
        wall_us: Callable[[], int],
        cache: Cache | None = None,
    ) -> None:
        self.row = row
        self.state = state
        self.numbers = numbers
        self.cache = Cache() if cache is None else cache
        self.waiters = Waiters()
        self.pins = Pins(state, numbers)
        self.reader = Reader(state, numbers, self.cache, row.store, self.waiters, self.pins)
        self.calls = Calls()
        self.acceptance = Acceptance(state.lanes.rows)
        self.tally = Tally()
        self.on_progress: Callable[[Item], None] = lambda _item: None  # housekeeping counts
        self.on_turn: Callable[[], None] = lambda: None  # what was answered may be sent
        self.turned = trio.lowlevel.ParkingLot()  # until the next items are applied
        self.on_missing: Callable[[], None] = lambda: None  # there is no majority any more
        self.wall_us = wall_us
        self._rng = rng
        self._pid = self.fresh_pid()  # of what the node itself wants (N2)
        self._seq = 0
        self.lost_places = False  # of bodies that got their numbers since this start
        self._ended = False
        self._heads: dict[bytes, Head] = {}  # of what was submitted here, decoded
        self._nursery: trio.Nursery | None = None
        # Topics, by name: set when it is made, or when that may take long.
        self._wished: dict[str, trio.Event] = {}
        self._finding = trio.Event()  # of the item that is being applied: older bodies
        self._hashed = trio.lowlevel.ParkingLot()  # until the hash of the state is made
        self._due: int | None = None  # when the clock task will look next
        self._due_changed = trio.Event()

    async def run(self) -> None:
        """Applies what the row brings, until cancelled.

        Raises:
            DiskFailed, UnknownVersion: the process has to end.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._remind)
            try:
                await self._follow()
            finally:
                self._ended = True
                # What is written and not yet seen comes to light with the next start.
                self.calls.fail_all(
                    Timeout("this node is stopping; whether it was written is not known here")
                )

    async def catch_up(self) -> None:
        """Applies the past: everything that was in the row when it was opened.

        Cancelled: state and index may be of two moments, and nobody may use them.
        """
        # Damage may end the row earlier than it seemed.
        while self.state.position < self.row.status().position:
            for item in await self.row.take():
                await self._apply(item, shield=False)

    def fresh_pid(self) -> bytes:
        """The name of a new producer."""
        return self._rng.randbytes(PID_BYTES)

    async def order(self, command: Command) -> Result:
        """Puts the command into the row and waits for its final result.

        Cancelled: it may or may not happen; the same command again, or a skip, tells.

        Raises:
            Full, NoQuorum: certainly not written.
            Timeout: the node stops; it may or may not happen.
        """
        return await self.calls.wait(self.submit(command))

    def submit(
        self,
        command: Command,
        *before: Command,
        head: Head | None = None,
        accepted: bool = False,
        later: bool = False,
    ) -> Key:
        """Puts the command into the row, behind those `before` it; `calls` knows it by this key.

        Whoever has read its head already gives that, too.  `accepted`: somebody is content with that.
        `later`: `go_on` is called next, perhaps for several.

        Raises:
            Full, NoQuorum: certainly none of them is written.
        """
        if self._ended:
            raise NoQuorum("this node is stopping")
        if head is None:
            head = decode_head(command.head)
        key = key_of(head)
        anew = accepted and not self.acceptance.holds(*key)
        self.row.submit([*before, command], accepted=accepted, later=later, anew=anew)
        if self.row.stages:
            self.acceptance.came(head)
        if len(self._heads) >= HEADS_MAX:
            self._heads.clear()
        self._heads[command.head] = head
        return key

    def go_on(self, *, alone: bool) -> bool:
        """What was submitted for later is ordered: by `run`, together with what others submit
        meanwhile; or, if its client is alone, at once, unless something else is to come first.

        True: it is applied, and has woken readers whom the answer should not hold up.
        """
        state, item = self.state, None
        # Only of what waits or is staged an older body may be looked for, which takes a while.
        if alone and not (state.waiting.rows or state.stages.rows) and state.version in VERSIONS:
            item = self.row.order_now()
        if item is None:
            self.row.go_on()
            return False
        woken = self.waiters.woken
        try:
            self._note(item, apply(state, item, heads=self._heads), {})
            self.tally.count(item)
            self._turned()
        except Exception as error:  # noqa: BLE001 - a defect; it ends the node, and not a session
            assert self._nursery is not None, "`run` waits for items"
            self._nursery.start_soon(_raise, error)
        return 0 < self.waiters.woken - woken <= SHOWN_FIRST

    async def barrier(self) -> int:
        """Waits until everything that was ordered before this call is applied; the position."""
        return (await self._order_own(makers.barrier)).position

    async def subscribe(self, topic: str) -> None:
        """Somebody reads from the topic: makes it, if it is not there and the cluster is set so.  Where
        nobody knows when that is ordered it is not waited for: until then it is as empty as before.

        Raises:
            Refused: no topic can be called so.
        """
        if self.state.settings.create != Create.ON_SUBSCRIBE or self.state.topic(topic) is not None:
            return
        check_topic_name(topic)
        wished = self._wished.get(topic)
        if wished is None:
            is_enough = self.row.missing and len(self._wished) >= WISHES_MAX
            if self._nursery is None or self._ended or is_enough:
                return
            wished = self._wished[topic] = trio.Event()
            self._nursery.start_soon(self._make, topic)
        if not self.row.missing:
            await wished.wait()

    async def _make(self, topic: str) -> None:
        try:
            await self._order_own(lambda turn: makers.create(turn, topic, {}))
        except DuckrowError:
            pass  # who reads from it next wishes it again
        finally:
            self._wished.pop(topic).set()

    async def _follow(self) -> None:
        for raw in self.row.take_staged():  # by an earlier life of this node
            self.acceptance.came(decode_head(raw))
        done = 0  # since the last turn for others, or longer; `take` need not wait
        while True:
            items = await self.row.take()
            woken = self.waiters.woken
            for command, error in self.row.take_refused():
                head = self._heads.pop(command.head, None) or decode_head(command.head)
                self.acceptance.refused(head)
                self.calls.fail(key_of(head), error)
            for item in items:
                done += await self._apply(item, shield=True)  # sim-ok: the dead read nothing
                self.tally.count(item)
                if done >= EFFECTS_AT_ONCE:
                    done = 0
                    self.on_turn()
                    await trio.lowlevel.checkpoint()
            self._accept()
            if self.row.missing:
                self.on_missing()
                for wished in self._wished.values():
                    wished.set()
            self._turned()
            if 0 < self.waiters.woken - woken <= SHOWN_FIRST:
                # A reader has all of the way before it, and the producer only the way back.  After
                # the first checkpoint it may or may not have looked, after the second it has.
                await trio.lowlevel.cancel_shielded_checkpoint()
                await trio.lowlevel.cancel_shielded_checkpoint()
            self.on_turn()

    def _turned(self) -> None:
        if self.turned:
            self.turned.unpark_all()
        self._note_due()

    def _accept(self) -> None:
        """What is on this disk now (N3)."""
        for raw in self.row.take_staged():
            key = key_of(decode_head(raw))
            if self.calls.awaits(key) and self.acceptance.holds(*key):
                self.calls.accept(key)

    async def _apply(self, item: Item, *, shield: bool) -> int:
        """How many effects it had."""
        effects = apply(self.state, item, heads=self._heads)
        places = dict.fromkeys(older(item.position, effects), NOWHERE)
        if places:
            # The state is ahead of the index here: whoever cancels has to wait for the index, so that
            # the last snapshot can be made.  A node that catches up makes none, and its connection
            # with the bridge is cancelled together with it: no answer would come.
            self._finding = trio.Event()
            with trio.CancelScope(shield=shield):
                found = await self._find(places)
            if not found:  # the index stays behind: no snapshot is made any more
                await trio.sleep_forever()
            self._finding.set()
        self._note(item, effects, places)
        return len(effects)

    def _note(self, item: Item, effects: list[Effect], places: dict[int, int]) -> None:
        """All else that an item changes here."""
        self.numbers.note(item.position, item.place, effects, places)
        keptplaces.note(self.numbers.kept, self.state, item)
        if isinstance(item.content, Bundle):
            commands = item.content.commands
            for _, body in commands:
                if len(body):  # else all of it may have been read again for its heads only
                    self.cache.put(item.place, commands)
                    break
        self._tell(effects)
        self.on_progress(item)

    async def applied(self) -> None:
        """Waits until index and state are of one moment; no checkpoint if they are."""
        while self.numbers.covered < self.state.position:
            await self._finding.wait()

    async def at_rest(self) -> None:
        """As `applied`; and nobody goes over the state slice by slice."""
        await self.applied()
        while self.state.capturing:
            await self._hashed.park()
            await self.applied()

    async def hashed(self) -> tuple[int, bytes, float]:
        """A position, the hash of the state there, and how long that took by itself.  Meanwhile the
        others get their turns; unless a snapshot is being written, which takes its time.
        """
        position, began = self.state.position, trio.current_time()
        if self.state.capturing:
            return position, state_hash(self.state), trio.current_time() - began
        slices, found, took = hashing(self.state), b"", 0.0
        try:
            for each in slices:
                found, took = each, took + trio.current_time() - began
                await trio.lowlevel.checkpoint()
                began = trio.current_time()
        finally:
            slices.close()
            self._hashed.unpark_all()
        return position, found, took

    async def _find(self, places: dict[int, int]) -> bool:
        """Where the bodies of older items lie; one that is damaged is told when it is read.

        False: the node is ending, and there is nobody who knows.
        """
        for position in places:
            try:
                places[position] = await self.place_of(position)
            except NotFound:
                pass  # stays NOWHERE
            except Corrupt:
                self.lost_places = True  # nobody asks here again
                self.numbers.on_lost()
            except Disconnected:
                return False
        return True

    async def place_of(self, position: int) -> int:
        """
        Raises:
            NotFound, Corrupt: as of the store.
        """
        kept = self.numbers.kept.get(position)
        return await self.row.store.place_of(position) if kept is None else kept

    def _tell(self, effects: Sequence[Effect]) -> None:
        may_be_copies = self.state.position <= self.row.copies_upto
        for effect in effects:
            if isinstance(effect, Answer):
                self.acceptance.answered(effect)
                if may_be_copies and effect.result.code in MISSED:  # and another one may be done
                    self.calls.fail(key_of(effect), Timeout(DOUBT))
                else:
                    self.calls.answer(effect)
            elif isinstance(effect, Appended):
                self.tally.entries += effect.count
                self.tally.bytes += effect.size
                self.waiters.wake(effect.topic, effect.partition)
            elif isinstance(effect, Configured):
                self.pins.configured(effect.topic_id)
            elif isinstance(effect, Created | Deleted):
                self.waiters.wake_all(effect.topic)

    # What falls due when nothing happens needs an item to happen at: a clock command.

    async def _remind(self) -> None:
        told = 0  # what this clock said last; who is behind says so itself, when it has come there
        while True:
            self._due = next_due(self.state)
            changed = self._due_changed = trio.Event()
            if self._due is None:
                await changed.wait()
                continue
            behind = self.state.row_time if told >= self._due else self.wall_us()
            seconds = (self._due - behind) / 1e6
            is_tight = self.row.status().disk != OK
            least = REMIND_SECONDS_TIGHT if is_tight else REMIND_SECONDS_MIN
            with trio.move_on_after(min(max(seconds, least), REMIND_SECONDS_MAX)):
                await changed.wait()
                continue
            if self.wall_us() >= self._due:
                told = self.wall_us()
                try:
                    await self._order_own(makers.clock)
                except DuckrowError:
                    await trio.sleep(1.0)  # the disk is full to the last byte, or the row has ended

    def _note_due(self) -> None:
        """Something may fall due earlier than the clock task thinks."""
        due = next_due(self.state)
        if due is not None and (self._due is None or due < self._due):
            self._due_changed.set()

    async def _order_own(self, make: Callable[[makers.Turn], Command]) -> Result:
        """A command that the node itself wants; its seq is used only if the row takes it."""
        while True:
            pid, seq = self._pid, self._seq + 1
            key = self.submit(make(makers.Turn(pid, seq, done=self._seq, time=self.wall_us())))
            self._seq = seq
            result = await self.calls.wait(key)
            if result.code not in MISSED:
                return result
            if pid == self._pid:  # the lane was forgotten, or something of it was not taken
                self._pid, self._seq = self.fresh_pid(), 0


async def _raise(error: Exception) -> None:
    raise error
