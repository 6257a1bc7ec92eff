"""The row behind a bridge: `node/row.py` over a socket, for as long as node and bridge live.

    submit ──► unsettled ──► the bridge ──► ... ──► an own item ──► `take`: it is settled

What was submitted is kept until its item comes; when the bridge was away, all of it is submitted
again, in order (N2): applying twice is impossible.  Items come from the position that was taken last,
so nothing is missed and nothing is doubled.

While the bridge is gone, reads of what is in memory go on, `active` is false, and what needs the
store waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import trio

from . import bridgewire as wire
from .bridgedstore import BridgedStore
from .bridgelink import BridgeLink
from .bridgewire import Name, Said, Told, Welcome, What
from .commands import Command
from .env import Buffer, Env
from .errors import Corrupt, DuckrowError, Full, Timeout, rebuilt
from .events import WARNING, Note, unheard
from .frames import Frame
from .giving import Given, Send
from .limits import KIB, MIB
from .reserve import OK
from .row import Bundle, Item, RowStatus
from .scrub import Scrub
from .segments import SegmentInfo
from .unsettled import Unsettled
from .wakeup import Wakeup

TOLD_SECONDS: Final = 1.0  # for a bridge to say how it is
SETTLE_AT: Final = 64  # bundles; fewer when the bridge has come to rest
SETTLED_AT_ONCE: Final = 1024  # names in a frame: the head holds them
AHEAD_BYTES: Final = 1 * MIB  # of an image, on its way to the bridge
TAKEN_AT: Final = 256 * KIB  # less than a bridge sends ahead


class ReplacedError(Exception):
    """Raised when all that the node knows is of a row that is no more: it has to begin anew."""


class BridgedRow:
    """One task calls `take`, another one runs `run`."""

    def __init__(self, env: Env, host: str, port: int, note: Note = unheard) -> None:
        self.broken: Corrupt | None = None
        self.stuck = False  # a full disk is the bridge's concern
        self.store = BridgedStore(self)
        self.welcome: Welcome | None = None
        self.on_give: Callable[[int], None] = self.give_nothing  # an image is wanted (N5)
        self.ready = trio.Event()  # the bridge has answered for the first time
        self._note = note
        self._link = BridgeLink(
            env,
            host,
            port,
            note,
            last=lambda: self._last,
            on_welcome=self._on_welcome,
            on_frame=self._on_frame,
            on_away=self._be_looked_at,
        )
        self._status = RowStatus(False, (), 0, 0, 0, OK)
        self._on_tight: Callable[[], None] = lambda: None
        self.caches: Sequence[Scrub] = ()  # read the files of the node through
        self._lacks = False  # the index has lost something
        self._connections = 0  # with a bridge, until now
        self._after: int | None = None  # position up to which items came
        self._last = 0, 0  # position and place of the last item that came
        self._items: deque[Item] = deque()
        self._came = self._unsaid = (
            0  # bytes of items by this connection: in `_items`; taken, not told
        )
        self._taken: list[Name] = []  # own bundles that the last `take` gave
        self._applied: list[Name] = []  # own bundles that are applied, and not settled
        self._ordered: tuple[Name, ...] = ()  # stages that were in the row before; settled later
        self._ordered_until = 0
        self._unsettled = Unsettled()
        self._refused: list[tuple[Command, DuckrowError]] = []
        self._staged: list[bytes] = []  # heads of what is durable on this machine (N3)
        self._has_news = False  # besides items: `take` returns, so that it is looked at
        self._taker = Wakeup()

    async def run(self) -> None:
        """Keeps the connection with the bridge, until cancelled, or the node ends without one.

        Raises:
            ReplacedError: another store is there than before, an image took the place of the row, or
                the row has lost its end.
        """
        await self._link.run()

    @property
    def image(self) -> str:
        """That the row began with; empty: with none."""
        assert self.welcome is not None
        return self.welcome.image

    @property
    def is_attached(self) -> bool:
        return self._link.is_up

    def leave(self) -> None:
        """The node ends, and waits for no bridge any more."""
        self._link.leave()

    def check_left(self) -> None:
        """See `BridgeLink.check_left`."""
        self._link.check_left()

    async def ask(
        self, what: What, *arguments: object, places: Sequence[int] = ()
    ) -> tuple[Any, Buffer]:
        """See `BridgeLink.ask`."""
        return await self._link.ask(what, *arguments, places=places)

    # -- N1 -----------------------------------------------------------------------------------

    def follow(self, after: int) -> None:
        """`take` begins behind position `after`."""
        self._after = after
        self._link.send(wire.frame([int(Said.FOLLOW), after]))

    def tend(self, on_tight: Callable[[], None], scrubs: Sequence[Scrub]) -> None:
        """The disk of the row is the bridge's, but room on it is made here."""
        self._on_tight, self.caches = on_tight, scrubs

    def lack(self) -> None:
        """The index has lost what no replay brings back: an image of another machine does (N5)."""
        if not self._lacks:
            self._lacks = True
            self._note(WARNING, "index_lacks")
            self._link.send(wire.frame([int(Said.LACKS)]))

    async def leads(self, after: int, upto: int) -> bool:
        """See `KeptRow.leads`; not asked of a bridge, so a start takes the newest snapshot."""
        return after >= upto

    def submit(
        self,
        commands: Sequence[Command],
        *,
        accepted: bool = False,
        later: bool = False,
        anew: bool = False,
    ) -> None:
        """See `KeptRow.submit`; the bridge orders, so nothing has to go on here."""
        if self._status.disk != OK and self._unsettled.has_fresh_body(commands):
            raise Full(
                "the disk of this machine is full, and what is left is kept for what makes room: "
                "delete or prune something, or produce at another machine"
            )
        self._unsettled.add(commands, accepted=accepted, sent=self._link.is_up)
        heads = [command.head for command in commands]
        if anew:
            self._unsettled.put_last(heads)
        if accepted and self._unsettled.are_durable(heads):
            # It is on this disk, and a second copy would only take room there.
            self._tell_staged(heads)
        else:
            self._link.send(wire.submit(commands, accepted=accepted))

    def go_on(self) -> None:
        pass

    def order_now(self) -> Item | None:
        return None

    def withdraw(self, command: Command) -> bool:
        """Only of what no bridge was given is it known that nothing took it."""
        return self._unsettled.is_unsent(command.head) and self._unsettled.forget(command.head)

    async def take(self) -> list[Item]:
        """See `KeptRow.take`; what the last call gave is applied, and so it is settled."""
        self._applied += self._taken
        self._taken.clear()
        # Where the bridge said with the last item that it has come to rest, it says no more.
        is_at_end = self._after == self._status.position
        if len(self._applied) >= (1 if is_at_end else SETTLE_AT):
            self._settle_applied()
            self._link.flush()
        while not (self._items or self._refused or self._has_news):
            await self._taker.wait()
        self._has_news = False
        items = list(self._items)
        self._items.clear()
        self._tell_taken()
        welcome = self.welcome
        own = welcome.id if welcome is not None else 0
        for item in items:
            content = item.content
            if not isinstance(content, Bundle):
                continue
            if content.origin == own:
                self._taken.append(content[:3])
            elif own in self._status.members:
                continue  # else it may have been handed on (R3)
            self._unsettled.came(item.position, content.commands)
        if items and self._ordered and items[-1].position >= self._ordered_until:
            self._taken += self._ordered
            self._ordered = ()
        return items

    @property
    def copies_upto(self) -> float:
        return self._unsettled.copies_upto

    def _tell_taken(self) -> None:
        """The bridge sends as much ahead and no more, or whoever applies slowly would hold all of the row."""
        self._unsaid, self._came = self._unsaid + self._came, 0
        if self._unsaid >= TAKEN_AT:
            self._link.send(wire.frame([int(Said.TAKEN), self._unsaid]))
            self._unsaid = 0

    def take_refused(self) -> list[tuple[Command, DuckrowError]]:
        """Commands that `submit` took and the bridge then did not: certainly not written, or in doubt."""
        refused, self._refused = self._refused, []
        return refused

    @property
    def stages(self) -> bool:
        return True

    @property
    def accepts(self) -> bool:
        return self._link.is_up

    def take_staged(self) -> list[bytes]:
        staged, self._staged = self._staged, []
        return staged

    def release(self, position: int, oldest_body: int) -> None:
        self._link.send(wire.frame([int(Said.RELEASE), position, oldest_body]))

    @property
    def missing(self) -> tuple[str, ...]:
        return self.status().missing

    @property
    def is_witness(self) -> bool:
        return self._status.witness

    def status(self) -> RowStatus:
        if self._link.is_up:
            return self._status
        missing = ("its bridge",) if self._link.is_away else ()
        return self._status._replace(active=False, missing=missing)

    async def told(self) -> dict[str, Any]:
        with trio.move_on_after(TOLD_SECONDS):
            if self.is_attached:
                return await self.administer({"what": "status"})
        return {"waiting_for": ["its bridge"]}

    async def administer(self, asked: dict[str, Any]) -> dict[str, Any]:
        return dict((await self.ask(What.MEMBER, asked))[0])

    async def keep_last(self) -> None:
        """The reserve is the bridge's."""

    async def use_reserve(self) -> bool:
        return False

    def _settle_applied(self) -> None:
        """Goes out with what is said next: nobody waits for it."""
        if self._applied and self._link.is_up:
            names, self._applied = self._applied, []
            for first in range(0, len(names), SETTLED_AT_ONCE):
                some = names[first : first + SETTLED_AT_ONCE]
                self._link.put(wire.frame([int(Said.SETTLE), [list(name) for name in some]]))

    def _tell_staged(self, heads: list[bytes]) -> None:
        self._staged += heads
        self._be_looked_at()

    def _be_looked_at(self) -> None:
        """`take` returns, and whoever called it looks at the rest, too."""
        self._has_news = True
        self._taker.wake()

    def giver(self, number: int) -> Send:
        """Of parts of the image of that number, and of what it is; see giving.py."""
        return partial(self._give, self._connections, number)

    async def _give(self, connection: int, number: int, given: Given | None, data: bytes) -> None:
        if connection != self._connections:
            return  # that bridge is gone, and the next one counts its images anew
        if given is not None:
            position, view, segments = given
            self._link.send(wire.given(number, position, view, segments))
        else:
            self._link.send(wire.frame([int(Said.PIECE), number], data))
        await self._link.wait(AHEAD_BYTES)

    def give_nothing(self, number: int) -> None:
        """There is no state yet."""
        self._link.send(wire.frame([int(Said.PIECE), number]))

    # -- what the bridge says -----------------------------------------------------------------

    def _on_welcome(self, welcome: Welcome) -> None:
        before = self.welcome
        if before is not None and before.uuid not in (welcome.uuid, *welcome.formers):
            # Its disk was replaced; or damage took what told of its former names.
            raise ReplacedError(
                f"the bridge now has the store {welcome.uuid.hex()}, and had {before.uuid.hex()}, "
                "which all that this node knows belongs to"
            )
        if before is not None and before.image != welcome.image:
            raise ReplacedError(
                f"an image took the place of the row, which begins behind position "
                f"{welcome.floor - 1} now, and this node had come to {self._after}"
            )
        if not welcome.leads_on:
            raise ReplacedError(
                f"the row has lost its end, up to position {self._after}: what was in it comes again, and "
                "lies elsewhere"
            )
        self.welcome = welcome
        self._status = self._status._replace(missing=())  # who ordered meanwhile is to hear of it
        self._connections += 1
        self._came = self._unsaid = 0
        self._unsettled.doubt()
        self._ordered, self._ordered_until = welcome.ordered, 0
        if self._after is not None:
            self._link.put(wire.frame([int(Said.FOLLOW), self._after]))
        for command in self._unsettled:
            accepted = self._unsettled.is_awaited(command.head)
            self._link.put(wire.submit([command], accepted=accepted))
        if self._lacks:
            self._link.put(wire.frame([int(Said.LACKS)]))

    def _on_frame(self, kind: int, fields: list[Any], frame: Frame) -> None:
        if kind == Told.ITEM:
            item = wire.item_of(fields, frame.body)
            if self._after is None or item.position != self._after + 1:
                raise Corrupt(f"item {item.position} comes behind {self._after}")
            self._after, self._last = item.position, (item.position, item.place)
            self._items.append(self._with_own_bodies(item))
            self._came += frame.size
            self._taker.wake()
        elif kind == Told.STATUS:
            had = self._status.missing
            self.store.floor, self._status = wire.status_of(fields)
            if self._status.missing and not had:
                self._be_looked_at()
            if self._status.disk != OK:
                self._on_tight()
            if not self._ordered_until:
                self._ordered_until = self._status.position
            self.ready.set()
            if self._applied:
                self._settle_applied()
                self._link.flush()
        elif kind == Told.SEGMENTS:
            self.store.told = [SegmentInfo(*each) for each in wire.segments_of(frame.body)]
        elif kind == Told.GIVE:
            self.on_give(fields[0])
        elif kind == Told.STAGED:
            bundle = wire.commands_of(fields, frame.body, heads_only=True)
            heads = [command.head for command in bundle.commands]
            self._unsettled.note_durable(heads)
            self._tell_staged(heads)
        elif kind == Told.REFUSED:
            code, text, values, *heads = fields
            self._on_refused(
                rebuilt(code, text, values), wire.commands_of(heads, frame.body, heads_only=True)
            )
        else:
            raise Corrupt(f"a bridge says {kind} to its node")

    def _with_own_bodies(self, item: Item) -> Item:
        """The bridge does not send back what was submitted here; all of it is known, or none."""
        content, welcome = item.content, self.welcome
        if welcome is None or not isinstance(content, Bundle) or content.origin != welcome.id:
            return item
        return item._replace(content=self._unsettled.filled(content))

    def _on_refused(self, error: DuckrowError, bundle: Bundle) -> None:
        """Certainly not written, but for what was given before, to this bridge or another one, which may have
        taken it: that may still be ordered.

        What is on this disk is ordered in any case: only a copy of it was refused.
        """
        doubt = Timeout(f"whether it was written is not known: {error}")
        for command in bundle.commands:
            if self._unsettled.are_durable([command.head]):
                continue
            is_doubted = self._unsettled.is_doubted(command.head)
            if self._unsettled.forget(command.head):
                self._refused.append((command, doubt if is_doubted else error))
        self._taker.wake()
