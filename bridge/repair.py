"""Repair: what is damaged in the row here is made good from neighbours, while the bridge goes on.

    a start, a reader, a scrub ──► suspects: segments that are looked at, each byte of them
        ──► what lacks is asked of neighbours (asking.py) ──► written anew (node/mending.py)
        ──► readers who waited go on (readers.py)

Until then the protocol knows how far the damage reaches (X1), and neighbours are told that the row can be
followed from behind it only.  What cannot be put back goes with the whole row: an image takes its place (C4).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Final

import trio

from duckrow.node.damage import TOLD, Damage
from duckrow.node.errors import Corrupt, Full, NotFound
from duckrow.node.events import ERROR, INFO, WARNING, Note
from duckrow.node.forms import decode_view
from duckrow.node.journal import Journal
from duckrow.node.limits import MIB
from duckrow.node.row import Item
from duckrow.node.segments import segment_number
from duckrow.node.wakeup import Wakeup
from duckrow.node.wounds import Content, Wound

from .asking import NEVER, Asking, is_dropped
from .links import Links
from .member import Member
from .messages import Ask, Mended
from .sending import size_of
from .staging import Staging

ANSWER_BYTES: Final = 4 * MIB  # for one question; what is left is asked again
FULL_SECONDS: Final = 5.0  # then it is tried again whether there is room

Between = Callable[[Callable[[], Awaitable[object]]], Awaitable[object]]


class Repair:
    def __init__(
        self,
        journal: Journal,
        staging: Staging,
        links: Links,
        note: Note,
        between: Between,  # rounds: nobody else writes then
        member: Member,
        wake: Callable[[], None],  # there is something for the next round
    ) -> None:
        self.wounds: dict[int, Wound] = {}  # by segment
        self.asking = Asking()
        self._journal, self._store, self._staging = journal, journal.store, staging
        self._links, self._note = links, note
        self._between, self._member, self._wake = between, member, wake
        self._suspects: dict[int, None] = {}
        self._came: list[tuple[int, Item]] = []
        self._asked: list[tuple[int, Ask]] = []
        self._givers: dict[int, int] = {}  # by position, who gave its item
        self._work, self._questions = Wakeup(), Wakeup()
        self._changed = trio.Event()
        self._told = 0  # the protocol
        self._gave_up = self._searched = False
        self._again = NEVER  # the disk is full: nothing is written before then
        recovered = [each for each in self._store.recovered.damages if not each.mended]
        there = {segment.number for segment in self._store.segments()}
        # Files between others, or before them, that are gone: without the last ones the row is shorter.
        self._gone = [
            each
            for each in recovered
            if (number := segment_number(each.file)) is not None
            and number not in there
            and number < max(there, default=0)
        ]
        self.suspect([each for each in recovered if each not in self._gone])
        # Damage that no start has met, as the index of its segment is whole, may hide what the view has.
        if self._gone or journal.recovered.delivered is None:
            self._work.wake()

    # -- what is told of it -------------------------------------------------------------------

    @property
    def floor(self) -> int:
        """From here on nothing is known to be damaged."""
        highest = [wound.highest for wound in self.wounds.values()]
        return max([*highest, *(gone.last for gone in self._gone)], default=0) + 1

    def told(self) -> list[str]:
        """For an operator; nothing: all is well."""
        lines = [f"{gone.file} is gone: an image has to take its place" for gone in self._gone]
        lines += map(str, self.wounds.values())
        if more := len(lines[TOLD:]):
            lines[TOLD:] = [f"there are {more:,} more files that are damaged, or gone"]
        if self.wounds and self.asking.hopeless:
            lines.append("no neighbour that is there has what lacks; they are asked again")
        return lines

    # -- what is heard ------------------------------------------------------------------------

    def suspect(self, damages: Iterable[Damage]) -> None:
        """What a start or a scrub has found."""
        numbers = [segment_number(damage.file) for damage in damages]
        self.look_at([number for number in numbers if number is not None])

    def look_at(self, segments: Iterable[int]) -> None:
        suspects = dict.fromkeys(segments)
        if suspects:  # or a reader who waits would wake itself
            self._suspects.update(suspects)
            self._work.wake()

    def look_again_at(self, segment: int) -> None:
        """It was written anew without what is dead: perhaps without what is damaged."""
        if segment in self.wounds:
            self.look_at([segment])

    def heard(self, peer: int, message: Ask | Mended) -> None:
        if isinstance(message, Ask):
            self._asked.append((peer, message))
            self._questions.wake()
        else:
            self._came.append((peer, message.item))
            self._work.wake()

    def beat(self) -> None:
        """There may be another neighbour to ask, or one that has more."""
        if self.wounds:
            self._work.wake()

    def replaced(self) -> None:
        """An image took the place of the row."""
        self._suspects.update(dict.fromkeys(self.wounds))
        self.wounds.clear()
        self._gone.clear()
        self._gave_up = False
        self._work.wake()

    # -- for readers (readers.py) -------------------------------------------------------------

    def is_looked_at(self, segments: Iterable[int]) -> bool:
        """It is not known yet whether one of them is damaged."""
        return any(number in self._suspects for number in segments)

    async def change(self) -> None:
        """Until something may be known, or mended, that was not."""
        await self._changed.wait()

    def are_dropped(self, wounds: Iterable[Wound], *positions: int) -> bool:
        """Something that these lack, or one of the positions, nobody has any more."""
        lacking = chain.from_iterable(wound.lacking for wound in wounds)
        return is_dropped([*positions, *lacking], self._member.neighbours.kept().values())

    def need_image(self) -> None:
        """What is damaged does not come back."""
        if not self._gave_up:
            self._gave_up = True
            self._member.need_image(trio.current_time())
            self._wake()

    # -- the work -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled.

        Raises:
            DiskFailed: in a group; the process has to end.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._repair_on)
            nursery.start_soon(self._answer_on)

    async def _repair_on(self) -> None:
        await self._between(self._give_up)
        while True:
            with trio.move_on_at(min(self.asking.due, self._again)):
                await self._work.wait()
            await self._take()
            if self._again == NEVER or trio.current_time() >= self._again:
                self._again = NEVER
                try:
                    await self._look()
                    await self._mend()
                except Full as error:
                    self._again = trio.current_time() + FULL_SECONDS
                    self._note(WARNING, "repair_waits error=%s", error)
            self._ask()
            self._let_go()
            await self._tell()

    async def _give_up(self) -> None:
        """Own commands that had no number yet, and that damage took."""
        if lost := await self._staging.lose(self._journal.recovered.lost_stages):
            what = f"{len(lost)} bundles of this machine, unless others had them already"
            self._note(ERROR, "commands_lost what=%s", what)

    async def _look(self) -> None:
        """
        Raises:
            Full: a segment that is written to could not be sealed.
        """
        store = self._store
        while self._suspects:
            number = next(iter(self._suspects))
            if self._is_over(number):
                self._forget(number)
                del self._suspects[number]
                continue
            if store.mending.is_open(number):
                await self._between(partial(store.seal, number))
                await store.sync()
            async with store.mending.lock:
                store.pin(-number, 1 << 62, (number,))
                wound = await store.mending.look(number, self._held())
            before = self.wounds.pop(number, None)
            if wound is None:
                store.unpin(-number)
            else:
                self.wounds[number] = wound
                if before is None:
                    self._note(ERROR, "damaged what=%s", wound)
            del self._suspects[number]

    def _is_over(self, number: int) -> bool:
        """An image took the place of all that lay there: nobody wants it back."""
        store = self._store
        return store.images.left_behind(number) and number not in store.chronicle.held

    def _forget(self, number: int) -> None:
        self.wounds.pop(number, None)
        self._store.unpin(-number)

    def _held(self) -> dict[int, Content]:
        """By place: what has no place in the row yet is in memory."""
        held: dict[int, Content] = dict(self._journal.waiting())
        chronicle, staged = self._store.chronicle, self._staging.bundles
        for where, waiting in chronicle.waiting.items():
            if waiting.raw:
                held[where] = decode_view(waiting.raw)
        for name, stage in chronicle.staged.items():
            if name in staged:
                held[stage.place] = staged[name]
        return held

    async def _take(self) -> None:
        """What came counts if the chain of digests knows it."""
        came, self._came = self._came, []
        for peer, item in came:
            self._givers[item.position] = peer
            self.asking.came(item.position, trio.current_time())
            for wound in self.wounds.values():
                wound.give(item)
        for wound in list(self.wounds.values()):  # an image may come meanwhile
            if wound.items and not wound.lacking and not wound.unfit:
                for position in await self._store.mending.refuse(wound):
                    peer = self._givers.get(position, 0)
                    self.asking.refused([position], peer)
                    self._note(ERROR, "repair_refused position=%d peer=%d", position, peer)

    async def _mend(self) -> None:
        """
        Raises:
            Full: there is no room for a segment; nothing was changed.
        """
        for number, wound in list(self.wounds.items()):
            if wound.lacking or wound.unfit:
                continue
            self._store.pin(-number, 1 << 62, (number,))  # it may have been let go
            async with self._store.mending.lock:
                done = await self._store.mending.mend(wound)
            if self.wounds.get(number) is not wound:
                continue  # an image took the place of the row meanwhile: it is looked at again
            if done:
                del self.wounds[number]
                self._store.unpin(-number)
                self._note(INFO, "mended segment=%d items=%d", number, len(wound.items))
            else:
                self._note(ERROR, "not_mended what=%s", wound)
                if not wound.unfit:  # more of it is damaged since it was looked at
                    self.look_at([number])

    def _ask(self) -> None:
        lacking = [p for w in self.wounds.values() if not w.unfit for p in w.lacking]
        self.asking.want(lacking)
        question = self.asking.step(trio.current_time(), self._member.neighbours.kept())
        if question is not None:
            self._links.put(question.peer, Ask(question.positions))
            self._links.flush()

    def _let_go(self) -> None:
        """What nobody has any more, and the row does without, may go as if it were whole."""
        there = {segment.number for segment in self._store.segments()}
        for number, wound in list(self.wounds.items()):
            if self.asking.hopeless and wound.highest < self._store.floor:
                self._store.unpin(-number)
            if number not in there or self._is_over(number):
                self._forget(number)

    async def _tell(self) -> None:
        """The protocol, and those who wait."""
        member, highest = self._member, self.floor - 1
        if highest != self._told:
            self._told = highest
            member.hear_damage(highest, trio.current_time())
            self._wake()
        # Where an image left it behind nothing of the row lies, and one more image changes nothing.
        left_behind = self._store.images.left_behind
        wounds = [wound for number, wound in self.wounds.items() if not left_behind(number)]
        if self._gone or any(wound.unfit for wound in wounds):
            self.need_image()
        if member.standing.uncounted and not self._suspects:
            if not wounds:
                await self._count()
            elif self.are_dropped(wounds):
                self.need_image()  # what would be counted does not come back
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def _count(self) -> None:
        """What of the view is in the row is to be seen again; nothing is added to it till then."""
        try:
            view, delivered = await self._journal.count()
        except (Corrupt, NotFound):
            if not self._member.standing.uncounted:
                pass  # an image came meanwhile
            elif self._searched:
                self.need_image()
            else:  # there is more than the start has seen
                self._searched = True
                self.look_at([segment.number for segment in self._store.segments()])
        else:
            self._member.counted(view, delivered, trio.current_time())
            self._wake()

    async def _answer_on(self) -> None:
        """Neighbours get what is whole here; of what is not, they hear nothing."""
        while True:
            await self._questions.wait()
            asked, self._asked = self._asked, []
            for peer, ask in asked:
                await self._answer(peer, ask.positions)
                self._links.flush()

    async def _answer(self, peer: int, positions: Iterable[int]) -> None:
        size = self._links.waiting_bytes(peer)  # of what was asked for before, over a slow link
        for position in positions:
            if size > ANSWER_BYTES:
                return
            with suppress(Corrupt, NotFound):
                for item in await self._store.read_items(position, 1, end=position, bodies=True):
                    mended = Mended(item)
                    size += size_of(mended)
                    self._links.put(peer, mended)
