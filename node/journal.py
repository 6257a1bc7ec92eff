"""The journal: what a bridge writes into the row store that a lone node uses, too.

A lone node writes a bundle and its place in the row at once.  Between machines both happen apart:

    receive   [BUNDLE]     of this or of another member; it *waits*; one of view 0 only is a stage
    order     [ITEM]       what waits at that name is the next item of the row
    learn     [VIEW]       the newest decided view; its mark becomes an item when it is installed
    register  [REGISTER]   promised and accepted for the view after it; synced at every level (L2)
    settle    [SETTLED]    an own bundle needs no staging any more (N3)

Nothing here decides or waits for the disk: whoever calls says when `sync` is due.  What waits, and
what is staged, keeps its segment (N6); `RowStore.drop` has the veto.  When a mark is ordered, what
waits of older views never comes into the row, and is dead unless it is staged.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import attrs

from . import doubt, restored
from .chronicle import Name, Waiting
from .commands import Command
from .env import Disk, Env
from .errors import Corrupt, NotFound
from .forms import BaseForm, Start, encode_view
from .limits import MIB
from .records import RecordKind
from .registerform import Register, is_binding
from .row import Bundle, Item, View
from .rowstore import RowStore
from .segments import Segment
from .storeoptions import StoreOptions

INCARNATION_BITS = 64
SETTLED_AT_ONCE = 64  # in one write
COUNTED_AT_ONCE = 256  # items
READ_TRIES = 3  # of what the disk does not give


class _Held(NamedTuple):
    place: int
    bundle: Bundle


@attrs.frozen
class Recovered:
    """What a restarted member knows (PROTOCOL §11): all of it is durable."""

    id: int
    uuid: bytes
    formers: tuple[bytes, ...]  # uuids that damage, or a copy, made it give up: no voter by them
    incarnation: int  # the new one; its START is durable
    start_count: int
    boot_id: str
    level: str
    starts: dict[int, Start]  # of the incarnations that views may name (X1)
    newest: View | None
    installed: View | None
    position: int
    digest: bytes
    floor: int
    # By origin, the s of its last bundle of the installed view in the row; None: damage hides it.
    delivered: dict[int, int] | None
    register: Register | None  # for the view after `newest`
    bundles: tuple[Bundle, ...]  # of the installed view, behind `delivered`: each origin's in order
    staged: tuple[Bundle, ...]  # own ones that are not settled, the oldest first
    ordered: frozenset[Name]  # of these, those that are in the row
    lost_stages: tuple[Name, ...]  # those of them that damage took
    damaged: bool  # what was acknowledged may be lost: the uuid is a new one


class Journal:
    """Over an open row store; one caller at a time."""

    def __init__(self, store: RowStore) -> None:
        self.store = store
        self._waiting: dict[Name, _Held] = {}
        self._doubted = self._copied = False

    @classmethod
    async def open(cls, disk: Disk, env: Env, options: StoreOptions, id_: int) -> Journal:
        """Recovers, and records a new incarnation durably (I1); then `recovered` tells.

        Raises:
            Conflict: another process has the folder.
            Corrupt: no row can be made of what is there.
            Full: not even the start could be written.
            DiskFailed: a write or a sync failed.
        """
        store = await RowStore.open(disk, env, options)
        done = False
        try:
            journal = cls(store)
            journal._doubted = await disk.exists(doubt.NAME)
            journal._copied = await disk.exists(restored.NAME)
            await journal._begin(disk, env, id_)
            done = True
            return journal
        finally:
            if not done:
                store.abandon()

    async def _begin(self, disk: Disk, env: Env, id_: int) -> None:
        store = self.store
        chronicle = store.chronicle
        older = list(chronicle.starts.values())
        if chronicle.is_uncounted:
            with suppress(Corrupt, NotFound):
                await self.count()
        waiting = await self._load_waiting()
        stages = chronicle.staged
        staged = [(name, await self._read(stage.place)) for name, stage in stages.items()]
        if self._copied:
            store.take_new_name()  # the original may have gone on, and promised (U4)
        if store.exposed:
            # It is a stranger now, and follows from where its row ends.
            waiting = {}
            chronicle.forget_received()
            with suppress(Corrupt, NotFound):
                await self.count()
        self._waiting = waiting
        damaged = store.exposed
        incarnation = env.rng.getrandbits(INCARNATION_BITS)
        await store.reserve.insist(partial(store.begin, incarnation))
        if self._doubted:
            # A sync failed, and what the kernel had may be gone: nobody vouches for its boot (X1).
            for start in older:
                head = start._replace(boot_id="").encode()
                note = partial(store.appending.note, RecordKind.START, head)
                await store.reserve.insist(note)
            await store.sync()
            await doubt.clear_doubt(disk)
        if self._copied:
            await restored.forget(disk)
        register = chronicle.register
        self.recovered = Recovered(
            id=id_,
            uuid=store.uuid,
            formers=store.formers,
            incarnation=incarnation,
            start_count=chronicle.start_count,
            boot_id=env.boot_id,
            level=store.options.level,
            starts=dict(chronicle.starts),
            newest=chronicle.newest_view,
            installed=chronicle.installed_view,
            position=store.position,
            digest=store.digest,
            floor=store.floor,
            delivered=None if chronicle.is_uncounted else self.delivered(),
            register=(
                Register.decode(register) if is_binding(register, chronicle.newest_view) else None
            ),
            bundles=tuple(held.bundle for held in waiting.values()),
            staged=tuple(bundle for _, bundle in staged if bundle is not None),
            ordered=frozenset(name for name, stage in stages.items() if stage.ordered),
            lost_stages=tuple(name for name, bundle in staged if bundle is None),
            damaged=damaged,
        )

    def delivered(self) -> dict[int, int]:
        """By origin, the s of its last bundle of the installed view that is in the row.

        Bundles of an origin come into the row in the order of their s; the rest of them waits.
        """
        return self.store.chronicle.delivered()

    async def count(self) -> tuple[View | None, dict[int, int]]:
        """The installed view, and `delivered`, by the items themselves, after damage.

        Raises:
            Corrupt: one of those that would tell is damaged; or an image came meanwhile, which tells it.
        """
        base = self.store.chronicle.base
        view, delivered = await self._count()
        if self.store.chronicle.base is not base:
            raise Corrupt("an image took the place of the items that were counted")
        if view is not None:
            self.store.chronicle.counted(encode_view(view), delivered)
        return view, delivered

    async def _count(self) -> tuple[View | None, dict[int, int]]:
        store, view = self.store, self.store.view
        found, told, position = dict[int, int](), dict[int, int](), store.position
        base, end = store.chronicle.base, 0
        if base is not None:
            end, told = base.position, dict(base.heard)
        id_ = 0 if view is None else view.id  # unless damage hid a later mark
        all_ = set[int]() if view is None else {member.id for member in view.members}
        while position > end and not (all_ and found.keys() >= all_):
            first = max(end + 1, store.floor, position - COUNTED_AT_ONCE + 1)
            if first > position:
                told = await self._dropped(position, id_)
                break
            for item in reversed(await self._read_all(first, position)):
                if isinstance(item.content, View):
                    return item.content, found
                if item.content.view != id_:
                    id_, all_ = item.content.view, set()
                found.setdefault(item.content.origin, item.content.s)
            position = first - 1
        if view is None or id_ != view.id:
            if position or view is not None:
                raise Corrupt(f"the mark of view {id_} is not in the row")
            return None, {}
        return view, told | found

    async def _dropped(self, last: int, view: int) -> dict[int, int]:
        """As `delivered`, of the row up to there, which was dropped: by the copies in the segment that goes on.

        Raises:
            Corrupt, NotFound: it does not tell.
        """
        chronicle = await self.store.copies_before(last)
        for position in range(chronicle.position + 1, last + 1):
            place = await self.store.place_of(position)
            if place not in chronicle.waiting:
                (item,) = await self.store.read_items(position, 1, end=position)
                content = item.content
                if isinstance(content, View):
                    chronicle.decided(encode_view(content), place, item.crc)
                else:
                    chronicle.received(place, Waiting(*content[:3], item.crc))
            chronicle.order_next(place)
        installed = chronicle.installed_view
        if chronicle.is_uncounted or installed is None or installed.id != view:
            raise Corrupt(f"nothing says what of view {view} was dropped with the row up to {last}")
        return chronicle.delivered()

    async def _read_all(self, first: int, last: int) -> list[Item]:
        items: list[Item] = []
        while first + len(items) <= last:
            items += await self.store.read_items(first + len(items), MIB, end=last)
        return items

    async def _load_waiting(self) -> dict[Name, _Held]:
        """Of each origin a contiguous run (J2); where damage took one, this store has a new name."""
        chronicle = self.store.chronicle
        delivered, found = self.delivered(), {}
        installed = chronicle.installed_view
        waiting = [(w.origin, w.s, w.view, p) for p, w in chronicle.waiting.items() if not w.raw]
        for origin, s, view, place in sorted(waiting):
            here = installed is not None and view == installed.id
            bundle = await self._read(place) if here and s == delivered[origin] + 1 else None
            if bundle is None:
                # It was received, and perhaps acknowledged: nobody may count on this store (U3).
                self.store.take_new_name()
                continue
            delivered[origin] = s
            found[bundle[:3]] = _Held(place, bundle)
        return found

    async def _read(self, place: int) -> Bundle | None:
        """With its bodies; None: it is damaged.

        What is not read now is given up for ever, and what the disk does not give it may give another time.
        """
        for _ in range(READ_TRIES):
            with suppress(Corrupt, NotFound):
                stored = await self.store.read_heads(place)
                commands = [
                    Command(head, await self.store.read_body(place + index))
                    for index, (head, _) in enumerate(stored.bundle.commands)
                ]
                return stored.bundle._replace(commands=tuple(commands))
        return None

    def waiting(self) -> dict[int, Bundle]:
        """By place: received, and not in the row yet."""
        return {held.place: held.bundle for held in self._waiting.values()}

    # -- writing ----------------------------------------------------------------------------

    async def receive(self, bundle: Bundle) -> int:
        """Writes a bundle, whose bodies are those that its heads say; its place.

        Raises:
            Full: nothing of it was written.
            DiskFailed: the process has to end.
        """
        name = bundle[:3]
        held = self._waiting.get(name)
        if held is None:
            held = _Held(await self.store.appending.receive(bundle), bundle)
            if bundle.view:
                self._waiting[name] = held
        return held.place

    async def order(self, position: int, content: Name | View) -> Item:
        """What waits under that name is the next item; a mark's view need not have been learnt.

        Raises:
            Full, DiskFailed: as `receive`.
        """
        store = self.store
        assert position == store.position + 1, f"item {position} comes behind {store.position}"
        if isinstance(content, View):
            place = await self.learn(content)
            crc = store.chronicle.waiting[place].crc
            await store.appending.order(place)
            waiting = store.chronicle.waiting
            self._waiting = {n: held for n, held in self._waiting.items() if held.place in waiting}
            return Item(position, place, crc, content)
        place, bundle = self._waiting[content]
        crc = store.chronicle.waiting[place].crc
        await store.appending.order(place)
        del self._waiting[content]
        return Item(position, place, crc, bundle)

    async def learn(self, view: View) -> int:
        """Writes a decided view down; its place.

        Raises:
            Full, DiskFailed: as `receive`.
        """
        for place, waiting in self.store.chronicle.waiting.items():
            if waiting.raw and waiting.view == view.id:
                return place
        return await self.store.appending.decide(encode_view(view))

    async def register(self, register: Register) -> None:
        """To be synced before anybody hears of it, at every level (L2).

        Raises:
            Full, DiskFailed: as `receive`.
        """
        await self.store.appending.note(RecordKind.REGISTER, register.encode())

    async def settle(self, names: Sequence[Name]) -> None:
        """Those own bundles need no staging any more.

        Raises:
            Full, DiskFailed: as `receive`.
        """
        staged = self.store.chronicle.staged
        known = [name for name in names if name in staged]
        for first in range(0, len(known), SETTLED_AT_ONCE):
            await self.store.appending.settle(known[first : first + SETTLED_AT_ONCE])

    async def rebase(self, base: BaseForm, segments: list[Segment]) -> None:
        """An image is the row from here on; durable on return (images.py).

        Raises:
            Full: nothing has changed.
            DiskFailed.
        """
        await self.store.images.become(base, segments)
        waiting = self.store.chronicle.waiting
        self._waiting = {n: held for n, held in self._waiting.items() if held.place in waiting}

    async def sync(self) -> None:
        """What was written before the call is durable after it.

        Raises:
            DiskFailed: the process has to end.
        """
        await self.store.sync()

    # -- its end ----------------------------------------------------------------------------

    async def close(self) -> None:
        """Orderly: synced, and `clean` written (L3).

        Raises:
            DiskFailed.
        """
        await self.store.close()

    def abandon(self) -> None:
        self.store.abandon()
