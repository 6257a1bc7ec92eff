"""Journals with one to three faults of the disk, as a seed says: mended, all is there as it was.

Damage may end the row earlier, or take what nothing can put back; it must never show something else.
"""

from __future__ import annotations

import random
from functools import partial

import pytest

from duckrow.node.env import Env
from duckrow.node.errors import Corrupt, DiskFailed, NotFound
from duckrow.node.forms import DIGEST_ZERO, chain
from duckrow.node.journal import Journal
from duckrow.node.row import Item
from duckrow.node.segments import segment_number
from duckrow.node.storeoptions import FSYNC
from sim.alone import Machine
from sim.journalkit import ME, Tale, act
from sim.storekit import small

SECTOR = 512
SEEDS_AT_ONCE = 40
ROUNDS = 4  # of looks: what is mended may show what else is damaged


def hurt(machine: Machine, rng: random.Random) -> None:
    media = machine.media
    files = [name for name in media.paths() if name.endswith((".seg", ".pos"))]
    name = rng.choice([name for name in files if media.content(name)])
    pages, size = media.pages(name), len(media.content(name))
    at, how = rng.randrange(size), rng.choice(["flip", "flip", "spoil", "zeros", "cut", "lost"])
    if how == "flip":
        media.flip(name, at)
    elif how == "spoil":
        media.spoil(name, at)
    elif how == "lost" and sum(each.endswith(".seg") for each in files) > 1:
        machine.run(partial(unlink, name=name.removeprefix("row/")))
    else:
        sector = at // SECTOR * SECTOR
        if how == "zeros":
            pages.write(sector, bytes(min(SECTOR, size - sector)))
        else:
            pages.truncate(at)
        pages.sync(pages.count)


async def unlink(env: Env, name: str) -> None:
    await (await env.disk.folder("row")).unlink(name)


async def check(env: Env, items: dict[int, Item], tale: Tale) -> None:
    """Opens it, mends with what others would give, and compares."""
    try:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
    except (Corrupt, DiskFailed):
        return  # it says so, and nothing was changed
    store, digest = journal.store, DIGEST_ZERO
    for position in range(1, store.position + 1):
        digest = chain(digest, position, items[position].crc)
    assert digest == store.digest
    found = [*store.recovered.damages, *await store.scrub()]
    suspects = {segment_number(each.file) for each in found if not each.mended}
    is_fit = not suspects - {each.number for each in store.segments()}
    for _ in range(ROUNDS):
        for number in sorted(each for each in suspects if each is not None):
            is_fit &= await is_mended(journal, number, items)
        suspects = set[int | None]()
        for position in range(store.floor, store.position + 1):
            try:
                (item,) = await store.read_items(position, 1, bodies=True)
            except Corrupt:
                suspects.update(await store.holders(position))
            except NotFound:
                is_fit = False
            else:
                assert item.content == items[position].content
    assert not (is_fit and suspects)


async def is_mended(journal: Journal, number: int, items: dict[int, Item]) -> bool:
    store = journal.store
    if store.mending.is_open(number):
        await store.seal(number)
        await store.sync()
    wound = await store.mending.look(number, journal.waiting())
    if wound is None:
        return True
    for position in wound.lacking:
        if position in items:
            wound.give(items[position])
    if wound.unfit or wound.lacking:
        return False
    assert await store.mending.refuse(wound) == []
    return await store.mending.mend(wound)


def play(seed: int) -> None:
    rng, machine, tale = random.Random(seed), Machine(seed), Tale(small(level=FSYNC))
    items = dict[int, Item]()

    async def live(tale: Tale, journal: Journal) -> None:
        if tale.now.installed is None or rng.random() < 0.4:
            await tale.change_view(journal)
        await act(tale, journal, rng.randint(1, 7), rng.randint(1, 6))
        await tale.sync(journal)
        store = journal.store
        for position in range(len(items) + 1, store.position + 1):
            (items[position],) = await store.read_items(position, 1, bodies=True)
        if rng.random() < 0.7:
            await store.index_sealed()
        if rng.random() < 0.5:
            end = rng.randint(1, store.position)
            store.release(end, end)
            await store.drop([each.number for each in store.segments()])

    for _ in range(rng.randint(1, 3)):
        machine.run(tale.life(live, orderly=rng.random() < 0.5))
        if rng.random() < 0.3:
            machine.media.power_loss()
    for _ in range(rng.choice([1, 1, 2, 2, 3])):
        hurt(machine, rng)
    machine.run(partial(check, items=items, tale=tale))
    if rng.random() < 0.4:
        machine.media.power_loss()
    machine.run(partial(check, items=items, tale=tale))


@pytest.mark.parametrize("first", range(0, 4 * SEEDS_AT_ONCE, SEEDS_AT_ONCE))
def test_whatever_is_damaged_is_mended_as_it_was_or_told(first: int) -> None:
    for seed in range(first, first + SEEDS_AT_ONCE):
        try:
            play(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
