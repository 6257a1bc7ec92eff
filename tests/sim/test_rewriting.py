"""Mostly dead segments lose what is dead, and nobody who needs the rest notices."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from copy import deepcopy
from functools import partial
from typing import TypeVar

import pytest
import trio

from duckrow.node.commands import Command
from duckrow.node.env import Env
from duckrow.node.errors import Corrupt, Full, NotFound, Refused
from duckrow.node.lonerow import LoneRow
from duckrow.node.places import segment_of
from duckrow.node.row import Bundle, Item
from duckrow.node.storeoptions import LEVELS, StoreOptions
from sim.alone import Machine
from sim.pages import BLOCK, SECTOR
from sim.park import SimCrashed
from sim.storekit import Story, one_life, small

T = TypeVar("T")
OPTIONS = small(segment_bytes=16 * BLOCK, followable_bytes=BLOCK)
DEAD = 2  # the segment with little that is alive
PATH = "row/00000002.seg"
LIVE_EVERY = 60  # items


def run(
    machine: Machine, work: Callable[[LoneRow, Story], Awaitable[T]], *, orderly: bool = False
) -> T:
    story = Story(OPTIONS, submitted=[[]])
    return one_life(machine, OPTIONS, lambda row: work(row, story), orderly=orderly)


async def fill(row: LoneRow, story: Story) -> list[Item]:
    """Small bundles, over three segments and more; those that the second segment holds."""
    items = []
    while row.store.segments()[-1].number <= DEAD + 1:
        items += await story.produce(row, 100)
    await row.store.sync()
    await row.store.index_sealed()
    row.release(row.store.position, row.store.position)
    return [item for item in items if segment_of(item.place) == DEAD]


async def rewrite(row: LoneRow, story: Story) -> tuple[list[Item], list[Item]]:
    """What stays, and what does not."""
    items = await fill(row, story)
    live = items[10::LIVE_EVERY]
    assert await row.store.rewrite(DEAD, {item.place for item in live}) > 0
    return live, [item for item in items if item not in live]


async def check(row: LoneRow, _story: Story, live: list[Item], dead: list[Item]) -> None:
    store = row.store
    assert all(damage.mended for damage in store.recovered.damages)
    assert all(damage.mended for damage in await store.scrub())
    assert store.floor > dead[-1].position
    for item in live:
        assert isinstance(item.content, Bundle)
        assert await store.place_of(item.position) == item.place
        assert await store.read_items(item.position, 1, bodies=True) == [item]
        assert await store.read_body(item.place) == item.content.commands[0].body
    gone = 0
    for item in dead:
        try:
            await store.place_of(item.position)
        except NotFound as error:
            assert "left out when 00000002.seg was rewritten" in str(error)
            gone += 1
        else:  # in a run too short to free a block
            assert await store.read_items(item.position, 1, bodies=True) == [item]
            continue
        # Whoever remembers its place meets a hole, or the beginning of one, or an old page.
        for read in (store.read_heads, store.read_body):
            with pytest.raises(NotFound, match="left out when the segment was rewritten"):
                await read(item.place)
    assert gone > 0.8 * len(dead)
    # Who has everything up to the floor can compare digests there, and go on.
    assert len(await store.digest_of(store.floor - 1)) == 16
    whole = await store.read_items(store.floor, 1 << 30, bodies=True)
    assert [item.position for item in whole] == list(range(store.floor, store.position + 1))


def test_a_segment_of_small_dead_bundles_gives_nearly_all_of_its_blocks_back() -> None:
    machine = Machine(1)

    async def work(row: LoneRow, story: Story) -> None:
        items = await fill(row, story)
        used, size = machine.media.used, row.store.segments()[DEAD - 1].bytes
        live = items[10::LIVE_EVERY]
        freed = await row.store.rewrite(DEAD, {item.place for item in live})
        assert freed == used - machine.media.used
        assert machine.media.pages(PATH).allocated <= 1 + 2 * len(live)
        assert freed >= 8 * BLOCK
        segment = row.store.segments()[DEAD - 1]
        assert (segment.bytes, segment.rewritten) == (size, True)
        await check(row, story, live, [item for item in items if item not in live])

    run(machine, work)


@pytest.mark.parametrize("lost", ["nothing", "its index", "a byte of its index", "all indexes"])
@pytest.mark.parametrize("orderly", [False, True], ids=["killed", "closed"])
def test_after_a_restart_a_rewritten_segment_is_known_as_it_is(lost: str, orderly: bool) -> None:
    machine = Machine(1)
    live, dead = run(machine, rewrite, orderly=orderly)
    machine.media.power_loss()
    names = [name for name in machine.media.paths() if name.endswith(".pos")]
    mine = PATH.replace(".seg", ".pos")
    assert mine in names
    before = machine.media.content(mine)

    async def lose(env: Env) -> None:
        folder = await env.disk.folder("row")
        for name in names if lost == "all indexes" else [mine]:
            await folder.unlink(name.removeprefix("row/"))

    if lost == "a byte of its index":
        machine.media.flip(mine, len(before) - 5)
    elif lost != "nothing":
        machine.run(lose)

    async def look(row: LoneRow, story: Story) -> None:
        assert row.store.segments()[DEAD - 1].rewritten
        await check(row, story, live, dead)
        await row.store.index_sealed()

    run(machine, look)
    run(machine, look, orderly=True)
    assert machine.media.content(mine) == before


@pytest.mark.parametrize("lost", ["its index", "all indexes"])
@pytest.mark.parametrize("at", [8, 11, 40], ids=["length", "flags", "head"])
def test_the_beginning_of_a_rewritten_segment_is_put_back_as_it_was(at: int, lost: str) -> None:
    """It said no more that it was rewritten; and where only its own index was lost, it was told as mended, and was
    not.
    """
    machine = Machine(1)
    live, dead = run(machine, rewrite)
    names = [name for name in machine.media.paths() if name.endswith(".pos")]
    before = machine.media.content(PATH)

    async def lose(env: Env) -> None:
        folder = await env.disk.folder("row")
        for name in names if lost == "all indexes" else [PATH.replace(".seg", ".pos")]:
            await folder.unlink(name.removeprefix("row/"))

    machine.run(lose)
    machine.media.flip(PATH, at)
    run(machine, partial(check, live=live, dead=dead))
    assert machine.media.content(PATH) == before


def test_it_can_be_rewritten_again_when_more_has_died() -> None:
    machine = Machine(1)

    async def work(row: LoneRow, story: Story) -> tuple[list[Item], list[Item]]:
        items = await fill(row, story)
        live = items[10::40]
        assert await row.store.rewrite(DEAD, {item.place for item in live})
        assert await row.store.rewrite(DEAD, {item.place for item in live}) == 0
        used = machine.media.used
        assert len(live) > 2
        freed = await row.store.rewrite(DEAD, {live[0].place})
        assert freed == used - machine.media.used >= 2 * BLOCK
        return live[:1], [item for item in items if item is not live[0]]

    live, dead = run(machine, work)
    run(machine, partial(check, live=live, dead=dead))


def test_what_a_crash_has_kept_from_its_place_is_left_out_by_the_next_rewrite() -> None:
    """The index says so first; by it, nothing of the file was an item any more, and all of it stayed."""
    filled = Machine(1)
    items = run(filled, fill)
    live = items[10::LIVE_EVERY]

    async def work(row: LoneRow, _story: Story) -> int:
        await row.store.sync()
        row.release(row.store.position, row.store.position)
        return await row.store.rewrite(DEAD, {item.place for item in live})

    for at in range(1, 100):
        machine = deepcopy(filled)
        used = machine.media.used
        machine.media.crash_before(at)
        try:
            assert run(machine, work) > 0
            break
        except SimCrashed:
            pass
        machine.media.kill()
        run(machine, work)
        assert machine.media.used < used - 8 * BLOCK, f"after a crash before operation {at}"
        run(machine, partial(check, live=live, dead=[item for item in items if item not in live]))


def test_what_would_free_less_than_half_is_left_as_it_is() -> None:
    machine = Machine(1)

    async def work(row: LoneRow, story: Story) -> None:
        items = await fill(row, story)
        before, floor = machine.media.content(PATH), row.store.floor
        for live in (items, items[::8], items[: len(items) * 3 // 5]):
            assert await row.store.rewrite(DEAD, {item.place for item in live}) == 0
        assert machine.media.content(PATH) == before
        assert (row.store.floor, row.store.segments()[DEAD - 1].rewritten) == (floor, False)
        assert await row.store.read_items(1, 1 << 30)
        assert await row.store.rewrite(DEAD, {item.place for item in items[: len(items) // 3]})

    run(machine, work)


def test_bundles_with_a_live_body_keep_their_heads_and_every_offset() -> None:
    machine = Machine(1)

    async def rewrite(row: LoneRow, story: Story) -> Item:
        items = await story.produce(row, 100, 8 * BLOCK, 200, 3 * BLOCK)
        while row.store.segments()[-1].number < 3:
            items += await story.produce(row, 8 * BLOCK)
        await row.store.sync()
        await row.store.index_sealed()
        row.release(row.store.position, row.store.position)
        first = items[0]
        assert segment_of(first.place) == 1
        freed = await row.store.rewrite(1, {first.place, first.place + 3})
        assert freed >= 7 * BLOCK
        await look(row, story, first)
        return first

    async def look(row: LoneRow, _story: Story, first: Item) -> None:
        assert isinstance(first.content, Bundle)
        heads = await row.store.read_heads(first.place)
        assert heads.bundle.commands == tuple(Command(head) for head, _ in first.content.commands)
        for index in (0, 3):
            body = first.content.commands[index].body
            assert await row.store.read_body(first.place + index) == body
        for index in (1, 2):
            with pytest.raises(NotFound, match="left out when the segment was rewritten"):
                await row.store.read_body(first.place + index)
        assert row.store.recovered.damages == ()
        assert await row.store.scrub() == []

    first = run(machine, rewrite)
    run(machine, partial(look, first=first))
    machine.media.power_loss()
    run(machine, partial(look, first=first), orderly=True)


def test_a_segment_that_is_still_needed_is_not_rewritten() -> None:
    async def work(row: LoneRow, story: Story) -> None:
        items = await fill(row, story)
        for number in (3, 4, 5):
            with pytest.raises(Refused, match="may be wanted whole"):
                await row.store.rewrite(number, {items[0].place})

    run(Machine(1), work)


async def end_at(machine: Machine, path: str, work: Callable[[], Awaitable[object]]) -> None:
    """Cancels who does that as soon as something else lies at the path."""

    def content() -> bytes | None:
        return machine.media.content(path) if path in machine.media.paths() else None

    before = content()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        for _ in range(10_000):
            await trio.lowlevel.checkpoint()
            if content() != before:
                break
        nursery.cancel_scope.cancel()


def test_a_segment_goes_as_a_whole_though_who_asked_ends_when_its_index_is_gone() -> None:
    """Its node died: the file, of which nobody knew any more, stayed until the bridge started again."""
    machine = Machine(1)

    async def work(row: LoneRow, story: Story) -> None:
        await fill(row, story)
        await end_at(machine, "row/00000001.pos", partial(row.store.drop, [1]))
        assert "row/00000001.seg" not in machine.media.paths()
        assert row.store.segments()[0].number == DEAD

    run(machine, work)


def test_a_segment_is_replaced_though_who_asked_ends_when_its_index_says_so() -> None:
    machine = Machine(1)

    async def work(row: LoneRow, story: Story) -> tuple[list[Item], list[Item]]:
        items = await fill(row, story)
        live = items[10::LIVE_EVERY]
        dead = [item for item in items if item not in live]
        again = partial(row.store.rewrite, DEAD, {item.place for item in live})
        await end_at(machine, "row/00000002.pos", again)
        await check(row, story, live, dead)
        return live, dead

    live, dead = run(machine, work)
    run(machine, lambda row, story: check(row, story, live, dead))


def test_nothing_is_left_of_a_copy_if_who_asked_for_it_ends() -> None:
    """And who asks next for the same waits until then."""
    machine = Machine(1)

    async def work(row: LoneRow, story: Story) -> None:
        live = {item.place for item in (await fill(row, story))[10::LIVE_EVERY]}
        before = machine.media.content(PATH)
        again = partial(row.store.rewrite, DEAD, live)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_at, machine, PATH + ".new", again)
            await trio.lowlevel.checkpoint()
            nursery.start_soon(again)
        assert PATH + ".new" not in machine.media.paths()
        assert row.store.segments()[DEAD - 1].rewritten
        assert machine.media.content(PATH) != before

        first = "row/00000001.seg.new"
        await end_at(machine, first, partial(row.store.rewrite, 1, set()))
        assert first not in machine.media.paths()
        assert not row.store.segments()[0].rewritten

    run(machine, work)


@pytest.mark.parametrize("what", ["a flip in a live body", "a flip in a record", "a bad sector"])
def test_a_damaged_segment_is_not_rewritten(what: str) -> None:
    machine = Machine(1)

    async def work(row: LoneRow, story: Story) -> None:
        items = await fill(row, story)
        content = machine.media.content(PATH)
        assert isinstance(items[3].content, Bundle)
        body = content.index(bytes(items[3].content.commands[0].body))
        if what == "a flip in a live body":
            machine.media.flip(PATH, body + 50)
        elif what == "a flip in a record":
            machine.media.flip(PATH, body - 150)
        else:
            machine.media.spoil(PATH, body)
        before = machine.media.content(PATH)
        with pytest.raises(Corrupt, match=r"00000002\.seg is damaged"):
            await row.store.rewrite(DEAD, {items[3].place})
        assert machine.media.content(PATH) == before
        assert "row/00000002.seg.new" not in machine.media.paths()
        row.store.check()

    run(machine, work)


def test_a_live_body_that_the_disk_does_not_give_is_damaged_and_was_not_left_out() -> None:
    """It looked as if it had been: nobody put it back, and what an archive still lacked was let go."""
    machine = Machine(1)

    async def work(row: LoneRow, story: Story) -> None:
        items, content = await fill(row, story), machine.media.content(PATH)
        for live in items:
            assert isinstance(live.content, Bundle)
            body = live.content.commands[0].body
            if content.index(bytes(body)) % SECTOR == 0 and len(body) <= SECTOR:
                break
        else:
            raise AssertionError("each lies in one sector with the heads before it")
        assert await row.store.rewrite(DEAD, {live.place}) > 0
        assert await row.store.scrub() == []
        machine.media.spoil(PATH, content.index(bytes(body)))
        with pytest.raises(Corrupt, match="are damaged"):
            await row.store.read_body(live.place)
        found = {damage.what for damage in await row.store.scrub()}
        assert "a body" in found

    run(machine, work)


def test_zeros_over_a_whole_body_that_is_alive_are_seen_by_a_scrub() -> None:
    """They looked as if a rewrite had left it out: only who read it heard of it."""
    machine = Machine(1)

    async def work(row: LoneRow, story: Story) -> None:
        live, _ = await rewrite(row, story)
        assert not await row.store.scrub()
        item = live[1]
        (body,) = (await row.store.read_heads(item.place)).bodies
        machine.media.pages(PATH).write(body.offset, bytes(body.length))

        (damage,) = await row.store.scrub()
        assert damage.what == "bodies that were alive"
        assert (damage.first, damage.last) == (item.position, item.position)
        wound = await row.store.mending.look(DEAD, {})
        assert wound is not None
        assert wound.lacking == [item.position]
        wound.give(item)
        assert await row.store.mending.refuse(wound) == []
        assert await row.store.mending.mend(wound)
        assert not await row.store.scrub()
        assert await row.store.read_items(item.position, 1, bodies=True) == [item]

    run(machine, work)


def test_a_live_body_that_was_cut_off_is_damaged_and_was_not_left_out() -> None:
    """Nothing of it is there, and that looked like a hole."""
    machine = Machine(1)

    async def work(row: LoneRow, story: Story) -> None:
        items, content = await fill(row, story), machine.media.content(PATH)
        live = items[3]
        assert isinstance(live.content, Bundle)
        assert await row.store.rewrite(DEAD, {live.place}) > 0
        machine.media.pages(PATH).truncate(content.index(bytes(live.content.commands[0].body)))
        with pytest.raises(Corrupt, match="are damaged"):
            await row.store.read_body(live.place)

    run(machine, work)


def test_a_rewrite_that_finds_no_space_changes_nothing() -> None:
    machine = Machine(1)

    async def work(row: LoneRow, story: Story) -> None:
        items = await fill(row, story)
        before = machine.media.content(PATH)
        machine.media.capacity = machine.media.used
        with pytest.raises(Full):
            await row.store.rewrite(DEAD, {items[0].place})
        assert not row.store.segments()[DEAD - 1].rewritten
        assert "row/00000002.seg.new" not in machine.media.paths()
        assert machine.media.content(PATH) == before

    run(machine, work)


@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "not indexed"])
def test_a_flip_anywhere_in_a_rewritten_segment_spoils_one_live_item_at_most(indexed: bool) -> None:
    machine = Machine(1)
    live, _ = run(machine, rewrite, orderly=True)
    size = len(machine.media.content(PATH))
    mine = PATH.replace(".seg", ".pos")
    noticed = 0
    blocks = machine.media.pages(PATH).blocks
    offsets = [at for at in range(0, size, 211) if any(blocks[at // BLOCK : at // BLOCK + 1])]
    assert len(offsets) > 50
    whole = machine
    for offset in offsets:
        machine = deepcopy(whole)
        machine.media.flip(PATH, offset)
        if not indexed:
            machine.media.flip(mine, 100)

        async def look(row: LoneRow, _story: Story, offset: int = offset) -> bool:
            damages = [*row.store.recovered.damages, *await row.store.scrub()]
            bad = 0
            for item in live:
                try:
                    body = await row.store.read_body(item.place)
                except Corrupt as error:
                    assert "00000002.seg" in str(error)
                    bad += 1
                else:
                    assert isinstance(item.content, Bundle)
                    assert body == item.content.commands[0].body
            assert bad <= 1, f"byte {offset}"
            assert row.broken is None, "all of it is below the floor"
            told = [d for d in damages if d.file == "00000002.seg"]
            assert told or not bad
            return bool(told)

        noticed += run(machine, look)
        run(machine, partial(_goes_on))
    # What nobody notices lies behind the head of a gap, in the same block, and means nothing.
    assert noticed > len(offsets) / 5


async def _goes_on(row: LoneRow, story: Story) -> None:
    assert await story.produce(row, 10)


# -- crash points -----------------------------------------------------------------------------


async def small_work(row: LoneRow, story: Story) -> None:
    while row.store.segments()[-1].number <= DEAD + 1:
        await story.produce(row, 100, 300, 2_000)
    await row.store.sync()
    await row.store.index_sealed()


async def rewrite_all(row: LoneRow, story: Story) -> None:
    """All but the newest, twice, with less that is alive; in between there is another life."""
    store = row.store
    row.release(store.position, store.position)
    for segment in store.segments()[:-2]:
        places = []
        for position in range(segment.first, segment.last + 1):
            try:
                places.append(await store.place_of(position))
            except NotFound:
                continue
        half = len(places) // 2
        await store.rewrite(segment.number, {place + 2 for place in places[half : half + 2]})
    await story.produce(row, 50)


LIVES = [(small_work, False), (rewrite_all, True), (rewrite_all, False), (small_work, True)]


def tell(machine: Machine, story: Story) -> bool:
    """False: it came to its end without a crash."""
    try:
        for work, orderly in LIVES:
            machine.run(story.life(work, orderly=orderly))
    except SimCrashed:
        return True
    machine.media.disarm()
    return False


def recover(machine: Machine, story: Story, *, power: bool) -> None:
    async def look(env: Env) -> None:
        row = await LoneRow.open(await env.disk.folder("row"), env, story.options)
        assert not [d for d in row.store.recovered.damages if not d.mended], "a crash is no damage"
        story.submitted.append([])
        row.follow(row.store.floor - 1)
        await story.check(row, power=power)
        assert await row.store.scrub() == []
        for segment in row.store.segments():
            if segment.rewritten:
                assert row.store.floor > segment.reach
        async with trio.open_nursery() as nursery:
            nursery.start_soon(row.run)
            await story.catch_up(row)
            await story.produce(row, 300, 300)
            nursery.cancel_scope.cancel()
        await row.close()

    machine.run(look)


def options_at(level: str) -> StoreOptions:
    return small(segment_bytes=12 * BLOCK, followable_bytes=BLOCK, level=level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
def test_a_crash_anywhere_in_a_rewrite_loses_nothing_promised(level: str, power: bool) -> None:
    machine, story = Machine(1), Story(options_at(level))
    machine.run(story.life(LIVES[0][0], orderly=LIVES[0][1]))
    begins = machine.media.operations
    machine, story = Machine(1), Story(options_at(level))
    assert not tell(machine, story)
    rewritten: list[bool] = []

    async def look(env: Env) -> None:
        row = await LoneRow.open(await env.disk.folder("row"), env, story.options)
        rewritten.extend(segment.rewritten for segment in row.store.segments())

    machine.run(look)
    assert sum(rewritten) >= 2
    k = begins + power
    while True:
        k += 2
        machine, story = Machine(k), Story(options_at(level))
        machine.media.crash_before(k, part=k % 4 < 2)
        if not tell(machine, story):
            break
        if power:
            machine.media.power_loss()
        else:
            machine.media.kill()
        try:
            recover(machine, story, power=power)
        except BaseException as error:
            error.add_note(f"crash point {k}")
            raise
    assert k > begins + 30
