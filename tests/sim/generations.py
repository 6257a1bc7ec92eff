"""The row of a bridge over generations: hurt, killed, left without power, and opened again; each start is judged.

    lives ─► [ hits ─► start, which may die ─► is it what it was? ─► others give what lacks ─► it goes on ] ...

`items` are what the row really is: they know what a start may show, and they are what neighbours give.
What a start had synced is promised to the next one:

- it is there, or that is told: a damaged file for what cannot be read, a new name for what was acknowledged;
- nothing else is ever shown, nothing is told if nothing was hit, and a start fails only behind a hit;
- no file stays that belongs to nothing.

A hit of the very end of the newest file, or behind a loss of power, may look like a torn tail
(docs/explanation/damage-and-crashes.md): then the next start may have less, without a word.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple

from duckrow.node.env import Env
from duckrow.node.errors import Corrupt, DiskFailed, NotFound
from duckrow.node.forms import DIGEST_ZERO, chain
from duckrow.node.journal import Journal, Recovered
from duckrow.node.places import segment_of
from duckrow.node.registerform import Register
from duckrow.node.row import Item, View
from duckrow.node.rowstore import RowStore
from duckrow.node.segments import index_file, index_number, segment_number

from .alone import Machine
from .hurting import Hit, hits_claim, hurt
from .journalkit import ME, NOT_HURT, Memory, Tale, mend
from .park import SimCrashed

ROUNDS = 4  # of looks: what is mended may show what else is damaged
CRASH_MAX = 60  # operations of a start
UNKNOWN = ("the whole file", "records of unknown kind")  # anything may have been there
KEPT = frozenset(("lock", "reserve", "last", "ended"))  # beside the row itself


class Promised(NamedTuple):
    """By what was synced."""

    uuid: bytes
    position: int
    held: dict[int, int]  # by origin, of the installed view
    register: int = 0  # which view it is for, if anything is promised
    ballot: int = 0


class Generations:
    def __init__(
        self,
        machine: Machine,
        tale: Tale,
        items: Mapping[int, Item],
        promised: Promised,
        rng: random.Random,
        bodies: Mapping[int, bytes] | None = None,
    ) -> None:
        """`bodies` came with an image, by their places."""
        self._machine, self._tale, self._rng = machine, tale, rng
        self._items, self._bodies = items, bodies or {}
        self._promised = promised
        self._digests = {0: DIGEST_ZERO}
        for position, item in sorted(items.items()):
            self._digests[position] = chain(self._digests[position - 1], position, item.crc)
        self._hit = False  # since the last start
        self._hits: list[Hit] = []  # what was
        self._spoilt = (
            False  # something cannot be read; what is written to that sector cannot, either
        )
        self._zeroed: set[int | None] = set()  # segments in which there may be zeros now
        self._unsaid: set[int | None] = set()  # segments whose index was hit
        self._torn = False  # and what was hit may look like a torn tail
        self._powerless = False  # since something was synced
        self._lacks: set[int] = set()  # positions and places that could not be read last time
        self._hurts = False  # something was found damaged, and not mended
        self.refused = ""  # why there is no start any more

    def hurt(self, count: int) -> None:
        segments = [path for path in self._machine.media.paths() if path.endswith(".seg")]
        sizes = {path: len(self._machine.media.content(path)) for path in segments}
        newest = max((path for path in segments if sizes[path]), default="")
        size = sizes.get(newest, 0)
        for _ in range(count):
            paths = self._paths()
            last = [path for path in paths if path in segments[-3:]]
            hit = hurt(self._machine, self._rng, last if self._rng.random() < 0.6 else paths)
            self._hits += [] if hit is None else [hit]
        self._hit = True
        self._spoilt |= any(hit.how == "spoil" for hit in self._hits)
        zeroed = [hit.path for hit in self._hits if hit.how in ("zeros", "spoil")]
        self._zeroed |= {segment_number(path.removeprefix("row/")) for path in zeroed}
        self._unsaid |= {index_number(hit.path.removeprefix("row/")) for hit in self._hits}
        self._torn |= self._powerless or hits_claim(self._hits, newest, size)

    def _paths(self) -> list[str]:
        """A segment or its index may be hit, not both: where one is lost, the other may be all that tells it."""
        there, hit = self._machine.media.paths(), {each.path for each in self._hits}
        of = {path[:-4] for path in hit}
        return [
            path
            for path in there
            if path.endswith((".seg", ".pos"))
            and f"{path[:-4]}.seg" in there
            and (path in hit or path[:-4] not in of)
        ]

    def power_loss(self) -> None:
        self._machine.media.power_loss()
        self._powerless = True
        self._torn |= self._hit

    def start(self) -> bool:
        """False: it was refused, or died."""
        media, rng = self._machine.media, self._rng
        if rng.random() < 0.3:
            media.crash_before(rng.randint(1, CRASH_MAX), part=rng.random() < 0.5)
        try:
            self._machine.run(self._live)
        except SimCrashed:
            self.power_loss() if rng.random() < 0.5 else media.kill()
            return False
        finally:
            media.disarm()
        return not self.refused

    async def _live(self, env: Env) -> None:
        if self._spoilt or "row/restored" in self._machine.media.paths():
            self._hit = True  # a loss of power has brought that back: one more new name
        try:
            journal = await Journal.open(await env.disk.folder("row"), env, self._tale.options, ME)
        except (Corrupt, DiskFailed) as error:
            assert self._hit, f"no start any more: {error}"
            self.refused = str(error)
            return
        self._machine.media.disarm()
        self._judge(journal.recovered)
        if self._bodies and journal.store.chronicle.base is None:
            self._bodies = {}  # the image went with the end of the row
        self._no_file_is_left_over(journal.store)
        await self._judge_content(journal.store)
        if self._lacks and self._rng.random() < 0.5:
            await self._mend(journal)
        await self._go_on(journal)

    def _judge(self, found: Recovered) -> None:
        assert found.digest == self._digests[found.position]
        uuid, position, promised, register, ballot = self._promised
        # Of what is known to have been in the row only the place may be lost: then it waits.
        gone = [self._items[each].content for each in range(found.position + 1, position + 1)]
        less = any(each not in found.bundles for each in gone)
        if found.delivered is not None:  # else it counts as one that forgot
            truth = delivered(self._items, found.position)
            told = {origin: s for origin, s in found.delivered.items() if s}
            assert told == truth or self._torn
            held = Memory.of(found).holds()
            if found.position == position:
                less |= any(held.get(origin, 0) < s for origin, s in promised.items())
        if register > (0 if found.newest is None else found.newest.id):  # else it binds nobody
            less |= found.register is None or found.register.promised[0] < ballot
        if not self._hit:
            assert found.uuid == uuid, "a new name"
            assert not found.damaged
            assert not less
        elif not self._torn:
            assert not less or found.uuid != uuid, f"{found.position} of {position}, the same name"

    def _no_file_is_left_over(self, store: RowStore) -> None:
        there = {segment.number for segment in store.segments()}
        for path in self._machine.media.paths():
            name = path.removeprefix("row/")
            if (number := segment_number(name)) is not None:
                assert number in there, name
            elif (number := index_number(name)) is not None:
                assert number in there or number < max(there), name  # it says what is not there
            else:
                assert name in KEPT or name == store.images.name, name

    async def _judge_content(self, store: RowStore) -> None:
        scrubbed = [each for each in await store.scrub() if not each.mended]
        damages = [each for each in store.recovered.damages if not each.mended]
        lacks = await self._unread(store)
        there = [path.removeprefix("row/") for path in self._machine.media.paths()]
        for each in lacks:
            number = segment_of(each)
            if each in self._bodies and (
                index_file(number) not in there or (each in self._lacks and number in self._unsaid)
            ):
                continue  # only its index told of what is gone, and it was told while that was there
            of = {number} if each in self._bodies else await store.holders(each)
            assert any(
                damage.first <= each <= damage.last
                or segment_number(damage.file) in of
                or damage.what in UNKNOWN
                for damage in (*damages, *scrubbed)
            ), f"{each} cannot be read, and nobody told"
        if not self._hit:
            assert lacks <= self._lacks
            assert self._hurts or not (damages or scrubbed)
        self._lacks, self._hurts = lacks, bool(damages or scrubbed or lacks)
        self._hit = self._torn = False
        self._hits.clear()

    async def _unread(self, store: RowStore) -> set[int]:
        """All else is what it was."""
        lacks = set[int]()
        for position in range(store.floor, store.position + 1):
            try:
                (item,) = await store.read_items(position, 1, bodies=True)
            except (Corrupt, NotFound):
                lacks.add(position)
            else:
                assert item.content == self._items[position].content
        for place, body in self._bodies.items():
            if segment_of(place) in self._zeroed:
                continue  # a body of zeros was left out, as it seems
            try:
                assert await store.read_body(place) == body
            except (Corrupt, NotFound):
                lacks.add(place)
        return lacks

    async def _mend(self, journal: Journal) -> None:
        """With what neighbours would give; where all fits, all is there again, and nothing is told any more."""
        store, fits = journal.store, True
        there = {segment.number for segment in store.segments()}
        damages = [*store.recovered.damages, *await store.scrub()]
        hurt = {segment_number(each.file) for each in damages if not each.mended}
        for _ in range(ROUNDS):
            fits &= hurt <= there
            for number in there & hurt:
                fits &= await mend(journal, number, self._items) in ("", NOT_HURT)
            hurt.clear()
            for each in await self._unread(store):
                hurt.update({0} if each in self._bodies else await store.holders(each))
        if fits:
            assert not hurt
            assert all(each.mended for each in await store.scrub())
        self._lacks = await self._unread(store)

    async def _go_on(self, journal: Journal) -> None:
        """As a follower; what had no place in the row comes again."""
        store, rng = journal.store, self._rng
        if journal.recovered.delivered is not None:
            end = min(max(self._items), store.position + rng.randint(0, 6))
            for position in range(store.position + 1, end + 1):
                content = self._items[position].content
                if isinstance(content, View):
                    await journal.order(position, content)
                else:
                    await journal.receive(content)
                    await journal.order(position, content[:3])
                if rng.random() < 0.3:
                    await journal.sync()
        register = await self._promise(journal)
        await journal.sync()
        held = {origin: s for origin, s in store.chronicle.heard.items() if origin}
        self._promised = Promised(store.uuid, store.position, held, *register)
        self._powerless = False
        if rng.random() < 0.4:
            await store.index_sealed()
        if rng.random() < 0.3:
            await journal.close()

    async def _promise(self, journal: Journal) -> tuple[int, int]:
        """More than before, perhaps: for which view, and what."""
        newest, register = journal.store.chronicle.newest_view, journal.recovered.register
        number = 1 if newest is None else newest.id + 1
        ballot = 0 if register is None or register.register < number else register.promised[0]
        for _ in range(self._rng.choice([0, 0, 1, 2])):
            ballot += 1
            await journal.register(Register(number, (ballot, 1)))
            if self._rng.random() < 0.3:
                await journal.store.seal(journal.store.segments()[-1].number)
        return number if ballot else 0, ballot


def delivered(items: Mapping[int, Item], position: int) -> dict[int, int]:
    """By origin, of the view that is installed there."""
    found = dict[int, int]()
    for each in range(1, position + 1):
        content = items[each].content
        if isinstance(content, View):
            found.clear()
        else:
            found[content.origin] = content.s
    return found
