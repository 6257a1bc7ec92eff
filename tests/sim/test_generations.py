"""Rows that are hit again and again, as a seed says, by damage, deaths and losses of power.

Damage may end the row earlier, or take what nothing can put back; it must never show something else, nor be
silent, nor come back.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs
import pytest

from duckrow.node.env import Env
from duckrow.node.forms import BaseForm, encode_view
from duckrow.node.incoming import Incoming, Piece
from duckrow.node.journal import Journal
from duckrow.node.places import place
from duckrow.node.row import Bundle, Item, View
from duckrow.node.storeoptions import FSYNC, MEMORY, WRITE
from sim.alone import Machine
from sim.generations import Generations, Promised, delivered
from sim.journalkit import ME, Tale, act
from sim.nodegenerations import NodeGenerations
from sim.park import SimCrashed
from sim.storekit import small

GIVERS = 1_000_000  # their seeds come behind those of the machines that take


def lived(seed: int) -> Generations:
    """Some lives of a member; segments that nobody needs are dropped."""
    rng, machine, items = random.Random(seed), Machine(seed), dict[int, Item]()
    tale = Tale(small(level=rng.choice([FSYNC, FSYNC, WRITE, MEMORY])))
    bare = rng.random() < 0.5  # nothing is dropped

    async def live(tale: Tale, journal: Journal) -> None:
        store = journal.store
        for position in [each for each in items if each > store.position]:
            del items[position]
        if tale.now.installed is None or rng.random() < 0.4:
            least = max(tale.now.delivered.values(), default=0)
            await tale.change_view(journal, cut=least if rng.random() < 0.3 else None)
        await act(tale, journal, rng.randint(1, 7), rng.randint(1, 6))
        if rng.random() < 0.8:
            await tale.sync(journal)
        for position in range(len(items) + 1, store.position + 1):
            (items[position],) = await store.read_items(position, 1, bodies=True)
        if rng.random() < 0.6:
            await store.index_sealed()
        if not bare and rng.random() < 0.5:
            end = rng.randint(1, store.position)
            store.release(end, end)
            await store.drop([each.number for each in store.segments()])

    lives = rng.randint(1, 3)
    for number in range(lives):
        machine.run(tale.life(live, orderly=rng.random() < 0.4))
        if number + 1 < lives and rng.random() < 0.3:
            machine.media.power_loss()
    synced = tale.accounts[tale.durable]
    promised = Promised(tale.uuid, synced.position, synced.holds())
    return Generations(machine, tale, items, promised, rng)


@attrs.frozen
class Given:
    """What another machine gives as an image of its row up to some position."""

    items: dict[int, Item]  # and what it has behind it
    position: int
    digest: bytes
    segments: dict[int, list[Piece]]
    live: list[int]  # places there


def given(seed: int) -> Given:
    rng, machine, found = random.Random(seed), Machine(seed), list[Given]()

    async def give(tale: Tale, journal: Journal) -> None:
        store = journal.store
        await tale.change_view(journal)
        await act(tale, journal, rng.randint(3, 8), 3)
        await tale.sync(journal)
        items = {
            position: (await store.read_items(position, 1, bodies=True))[0]
            for position in range(1, store.position + 1)
        }
        end = rng.randint(store.position // 2, store.position - 1)
        live = [items[each].place for each in range(2, end + 1) if rng.random() < 0.5]
        segments = dict[int, list[Piece]]()
        for segment in store.segments():
            _, pieces = await store.read_pieces(
                segment.number, 0, segment.bytes, 1 << 30, whole=True
            )
            kept = [each for each in pieces if place(segment.number, each.offset) in live]
            if kept:
                segments[segment.number] = kept
        found.append(Given(items, end, await store.digest_of(end), segments, live))

    machine.run(Tale().life(give, orderly=False))
    return found[0]


def imaged(seed: int) -> Generations:
    """A row whose beginning came with an image, though the machine died again and again meanwhile."""
    rng, machine, tale, image = random.Random(seed), Machine(seed), Tale(), given(GIVERS + seed)
    view, uuids = image.items[1].content, set[bytes]()
    assert isinstance(view, View)

    async def order(journal: Journal, end: int) -> None:
        for position in range(journal.store.position + 1, end + 1):
            content = image.items[position].content
            assert isinstance(content, Bundle)
            await journal.receive(content)
            await journal.order(position, content[:3])
            if rng.random() < 0.3:
                await journal.sync()

    async def begin(env: Env) -> None:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        await journal.order(1, view)
        await order(journal, rng.randint(1, image.position - 1))
        await journal.sync()
        if rng.random() < 0.5:
            await journal.store.index_sealed()
        if rng.random() < 0.4:
            await journal.close()

    async def take(env: Env) -> None:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        store, end = journal.store, image.position
        uuids.add(store.uuid)
        if store.chronicle.base is not None:
            return
        segments = image.segments or {1: []}
        first, last = min(segments), max(segments)
        own = await store.images.reserve(end, last + 1 - first, first)
        incoming = Incoming(store.disk, store.chronicle.copy(), end, first, last, own)
        await order(journal, min(end - 1, store.position + rng.randint(0, 3)))
        await incoming.write_state(0, b"state")
        for number, pieces in sorted(segments.items()):
            await incoming.write(number, pieces)
        files, taken = await incoming.finish()
        heard = tuple(sorted(delivered(image.items, end).items()))
        await journal.rebase(BaseForm(end, image.digest, encode_view(view), files, heard), taken)

    async def look(env: Env) -> tuple[Promised, dict[int, bytes]]:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        store, bodies = journal.store, dict[int, bytes]()
        assert uuids == {store.uuid}
        assert not journal.recovered.damaged
        base = store.chronicle.base
        assert base is not None
        shift = int(base.files[1].split("-")[0]) - min(image.segments, default=1)
        for position, item in image.items.items():
            if position <= image.position and item.place in image.live:
                assert isinstance(item.content, Bundle)
                for index, command in enumerate(item.content.commands):
                    bodies[item.place + index + place(shift, 0)] = bytes(command.body)
        held = delivered(image.items, store.position)
        return Promised(store.uuid, store.position, held), {p: b for p, b in bodies.items() if b}

    machine.run(begin)
    for tries in range(7):
        if tries < 6 and rng.random() < 0.6:
            machine.media.crash_before(rng.randint(1, 60), part=rng.random() < 0.5)
        try:
            machine.run(take)
            machine.media.disarm()
            break
        except SimCrashed:
            machine.media.power_loss() if rng.random() < 0.5 else machine.media.kill()
    promised, bodies = machine.run(look)
    return Generations(machine, tale, image.items, promised, rng, bodies)


def play(beginning: Callable[[int], Generations], seed: int) -> None:
    rng, row = random.Random(f"{seed}/events"), beginning(seed)
    for _ in range(rng.randint(3, 6)):
        if rng.random() < 0.3:
            row.power_loss()
        if rng.random() < 0.5:
            row.hurt(rng.choice([1, 1, 2, 3]))
        row.start()
        if row.refused:
            return  # it says so, and nothing was changed


def play_node(seed: int) -> None:
    rng, node = random.Random(f"{seed}/events"), NodeGenerations(seed)
    for _ in range(rng.randint(1, 3)):
        node.live()
    for _ in range(rng.randint(2, 4)):
        if rng.random() < 0.3:
            node.power_loss()
        if rng.random() < 0.6:
            node.hurt(rng.choice([1, 1, 2, 3]))
        node.start()
        if node.refused:
            return


def play_bridge(seed: int) -> None:
    play(lived, seed)


def play_image(seed: int) -> None:
    play(imaged, seed)


def play_all(game: Callable[[int], None], first: int, count: int) -> None:
    for seed in range(first, first + count):
        try:
            game(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize(("game", "count"), [(play_bridge, 40), (play_image, 40), (play_node, 20)])
@pytest.mark.parametrize("round_", range(3))
def test_what_was_synced_is_there_or_told_whatever_hits_it(
    game: Callable[[int], None], count: int, round_: int
) -> None:
    play_all(game, round_ * count, count)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("game", "count"), [(play_bridge, 2000), (play_image, 2000), (play_node, 500)]
)
@pytest.mark.parametrize("round_", range(1, 4))
def test_it_is_so_for_thousands_of_seeds(
    game: Callable[[int], None], count: int, round_: int
) -> None:
    play_all(game, round_ * count, count)
