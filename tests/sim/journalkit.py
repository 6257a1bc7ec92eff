"""A member's life, told to a journal, and what the next life has to know of it.

`Memory` is a second, naive account of what was written.  After each call it is noted, so whatever a
crash leaves must be one of these accounts: none older than the last sync, none that never was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import attrs

from duckrow.node.checksum import crc32c
from duckrow.node.chronicle import Name
from duckrow.node.env import Env
from duckrow.node.errors import Full
from duckrow.node.forms import chain, encode_view, item_crc, join_heads
from duckrow.node.journal import Journal, Recovered
from duckrow.node.registerform import Register
from duckrow.node.row import Bundle, Item, Member, View
from duckrow.node.storeoptions import StoreOptions

from .storekit import command, small

ME = 2
MEMBERS = (1, ME, 3)


def bundle(view: int, origin: int, s: int, lamport: int, *sizes: int) -> Bundle:
    number = 1000 * view + 100 * origin + s
    commands = tuple(command(number + i, size) for i, size in enumerate(sizes))
    return Bundle(view, origin, s, lamport, 1_700_000_000_000_000 + lamport, commands)


@attrs.frozen
class Memory:
    position: int = 0
    digest: bytes = bytes(16)
    newest: View | None = None
    installed: View | None = None
    delivered: dict[int, int] = attrs.field(factory=dict)
    register: Register | None = None
    waiting: dict[Name, Bundle] = attrs.field(factory=dict)
    staged: dict[Name, Bundle] = attrs.field(factory=dict)
    placed: dict[Name, None] = attrs.field(factory=dict)  # of these, those in the row

    @classmethod
    def of(cls, recovered: Recovered) -> Memory:
        return cls(
            recovered.position,
            recovered.digest,
            recovered.newest,
            recovered.installed,
            {origin: s for origin, s in (recovered.delivered or {}).items() if s},
            recovered.register,
            {each[:3]: each for each in recovered.bundles},
            {each[:3]: each for each in recovered.staged},
            dict.fromkeys(recovered.ordered),
        )

    def holds(self) -> dict[int, int]:
        """Per origin, what was received of the installed view."""
        found = dict(self.delivered)
        for _, origin, s in self.waiting:
            found[origin] = max(s, found.get(origin, 0))
        return found

    def received(self, bundle: Bundle) -> Memory:
        name = bundle[:3]
        staged = {**self.staged, name: bundle} if bundle.origin == ME else self.staged
        waiting = {**self.waiting, name: bundle} if bundle.view else self.waiting
        return attrs.evolve(self, waiting=waiting, staged=staged)

    def learned(self, view: View) -> Memory:
        newest = view if self.newest is None or self.newest.id < view.id else self.newest
        register = self.register
        if register is not None and register.register <= newest.id:
            register = None
        return attrs.evolve(self, newest=newest, register=register)

    def ordered(self, content: Bundle | View) -> Memory:
        position = self.position + 1
        if isinstance(content, View):
            digest = chain(self.digest, position, crc32c(encode_view(content)))
            return attrs.evolve(
                self.learned(content),
                position=position,
                digest=digest,
                installed=content,
                delivered={},
                waiting={},
            )
        count = len(content.commands)
        crc = item_crc(*content[:5], count, join_heads(content.commands))
        return attrs.evolve(
            self,
            position=position,
            digest=chain(self.digest, position, crc),
            delivered={**self.delivered, content.origin: content.s},
            waiting={n: b for n, b in self.waiting.items() if n != content[:3]},
            placed=self.placed | ({content[:3]: None} if content[:3] in self.staged else {}),
        )

    def settled(self, name: Name) -> Memory:
        return attrs.evolve(
            self,
            staged={n: b for n, b in self.staged.items() if n != name},
            placed={n: None for n in self.placed if n != name},
        )


@attrs.define
class Tale:
    """Told by several lives on one machine."""

    options: StoreOptions = attrs.field(factory=small)
    accounts: list[Memory] = attrs.field(factory=lambda: [Memory()])  # one after each call
    durable: int = 0  # the account that a power loss must not go behind
    uuid: bytes = b""

    @property
    def now(self) -> Memory:
        return self.accounts[-1]

    def life(
        self, work: Callable[[Tale, Journal], Awaitable[None]], *, orderly: bool
    ) -> Callable[[Env], Awaitable[None]]:
        async def main(env: Env) -> None:
            journal = await Journal.open(await env.disk.folder("row"), env, self.options, ME)
            self.found(journal.recovered)
            await work(self, journal)
            if orderly:
                await journal.close()
                self.durable = len(self.accounts) - 1

        return main

    def found(self, recovered: Recovered) -> None:
        """Without damage: the whole of an account, and its name."""
        memory = Memory.of(recovered)
        assert memory in self.accounts[self.durable :]
        assert not recovered.lost_stages
        assert self.uuid in (b"", recovered.uuid)
        self.uuid = recovered.uuid
        self.accounts, self.durable = [memory], 0

    async def call(self, then: Memory, step: Awaitable[object]) -> None:
        self.accounts.append(then)  # from here on it may be there
        await step

    async def receive(self, journal: Journal, bundle: Bundle) -> None:
        await self.call(self.now.received(bundle), journal.receive(bundle))

    async def order(self, journal: Journal, content: Bundle | View) -> None:
        name = content if isinstance(content, View) else content[:3]
        position = self.now.position + 1
        if isinstance(content, View):
            await self.learn(journal, content)
        await self.call(self.now.ordered(content), journal.order(position, name))
        assert journal.store.digest == self.now.digest

    async def learn(self, journal: Journal, view: View) -> None:
        await self.call(self.now.learned(view), journal.learn(view))

    async def register(self, journal: Journal, register: Register) -> None:
        await self.call(attrs.evolve(self.now, register=register), journal.register(register))

    async def settle(self, journal: Journal, name: Name) -> None:
        await self.call(self.now.settled(name), journal.settle([name]))

    async def sync(self, journal: Journal) -> None:
        account = len(self.accounts) - 1
        await journal.sync()
        self.durable = max(self.durable, account)

    async def change_view(self, journal: Journal, *, cut: int | None = None) -> None:
        """Promise, accept, learn, install: what is beyond the cut is dropped, if there is one."""
        now = self.now
        number = 1 if now.newest is None else now.newest.id + 1
        start = journal.recovered
        held = now.holds()
        view = View(
            id=number,
            members=tuple(Member(i, start.incarnation if i == ME else 70 + i, 1) for i in MEMBERS),
            cluster=b"c" * 16,
            lineage=7,
            durability=self.options.level,
            voters=tuple((i, 1, start.uuid if i == ME else b"%016d" % i, True) for i in MEMBERS),
            cut=tuple((i, held.get(i, 0) if cut is None else cut) for i in MEMBERS),
            cont=(ME,),
        )
        await self.register(journal, Register(number, (1, 3)))
        await self.sync(journal)
        await self.register(journal, Register(number, (1, 3), (1, 3), view))
        await self.sync(journal)
        await self.learn(journal, view)
        await self.install(journal, view)

    async def install(self, journal: Journal, view: View) -> None:
        cut = dict(view.cut)
        rest = [b for b in self.now.waiting.values() if b.s <= cut[b.origin]]
        for each in sorted(rest, key=lambda b: (b.lamport, b.origin)):
            await self.order(journal, each)
        await self.order(journal, view)
        await self.sync(journal)


async def act(tale: Tale, journal: Journal, rounds: int = 6, keep: int = 3) -> None:
    """Bundles of three origins come, some are placed, some own ones are settled."""
    now = tale.now
    assert now.installed is not None
    view, held = now.installed.id, now.holds()
    lamport = 1 + sum(held.values())
    for turn in range(1, rounds + 1):
        for origin in MEMBERS:
            s = held.get(origin, 0) + turn
            size = (30, 700, 0, 1500)[(turn + origin) % 4]
            await tale.receive(journal, bundle(view, origin, s, lamport, size, 40))
            lamport += 1
        if turn % 2:
            await tale.sync(journal)
        waiting = sorted(tale.now.waiting.values(), key=lambda b: (b.lamport, b.origin))
        for each in waiting[:-keep]:
            await tale.order(journal, each)
        staged = [name for name in tale.now.staged if name not in tale.now.waiting]
        for name in staged[: turn % 3]:
            await tale.settle(journal, name)


async def begin(tale: Tale, journal: Journal) -> None:
    await tale.change_view(journal)
    await act(tale, journal)


async def go_on(tale: Tale, journal: Journal) -> None:
    """A restart is a wedge: what was acknowledged is in the cut, and a new view follows."""
    await tale.change_view(journal)
    await act(tale, journal, 5, 2)
    await tale.receive(journal, bundle(0, ME, tale.now.position, 0, 60))
    await tale.sync(journal)


async def drop_some(tale: Tale, journal: Journal) -> None:
    """A cut below what came: the rest is dropped; and so are segments that nobody needs."""
    await tale.change_view(journal, cut=1)
    await act(tale, journal, 4, 5)
    for name in list(tale.now.staged)[:-1]:
        await tale.settle(journal, name)
    await tale.sync(journal)
    store = journal.store
    while store.unindexed:
        await store.index_sealed()
    store.release(store.position, store.position)
    sealed = [segment.number for segment in store.segments() if segment.sealed]
    assert await store.drop(sealed)
    await act(tale, journal, 2)


async def opened(env: Env) -> Recovered:
    return (await Journal.open(await env.disk.folder("row"), env, small(), ME)).recovered


NOT_HURT = "it is not hurt"


async def mend(journal: Journal, number: int, items: Mapping[int, Item]) -> str:
    """A segment, with what lacks from `items`; why it is not mended, empty: it is."""
    store = journal.store
    if store.mending.is_open(number):
        await store.seal(number)
        await store.sync()
    wound = await store.mending.look(number, journal.waiting())
    if wound is None:
        return NOT_HURT
    for position in wound.lacking:
        if position in items:
            wound.give(items[position])
    assert await store.mending.refuse(wound) == []
    if wound.lacking:
        return wound.unfit or f"nobody has {wound.lacking}"
    return "" if await store.mending.mend(wound) else wound.unfit


__all__ = ["ME", "Full", "Memory", "Tale", "act", "bundle"]
