"""What a bridge writes into the row store: found again after every crash, and after damage."""

from __future__ import annotations

import random

import attrs
import pytest

from duckrow.node.doubt import leave_doubt
from duckrow.node.env import Env
from duckrow.node.errors import Conflict, Refused
from duckrow.node.journal import Journal, Recovered
from duckrow.node.lonerow import LoneRow
from duckrow.node.registerform import Register
from duckrow.node.row import Bundle, Member, View
from duckrow.node.segments import segment_file
from duckrow.node.storeoptions import FSYNC, WRITE
from sim.alone import Machine
from sim.journalkit import ME, Memory, Tale, act, bundle
from sim.park import SimCrashed
from sim.storekit import Story, flip, number_of, small


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


LIVES = [(begin, False), (go_on, True), (drop_some, False), (go_on, False)]


def tell(machine: Machine, tale: Tale, *, crash_at: int | None = None) -> bool:
    """False: it came to its end without a crash."""
    if crash_at is not None:
        machine.media.crash_before(crash_at, part=crash_at % 2 == 0)
    try:
        for work, orderly in LIVES:
            machine.run(tale.life(work, orderly=orderly))
    except SimCrashed:
        return True
    machine.media.disarm()
    return False


async def look(tale: Tale, journal: Journal) -> None:
    """All of what is told is really there."""
    store = journal.store
    for position in range(store.floor, store.position + 1):
        (item,) = await store.read_items(position, 1, bodies=True)
        assert item.position == position
    assert await store.scrub() == []
    assert not [d for d in store.recovered.damages if not d.mended]


def walk(level: str, *, power: bool, seed: int = 0, step: int = 1) -> int:
    machine, tale = Machine(1), Tale(small(level=level))
    assert not tell(machine, tale)
    count = machine.media.operations
    for k in range(1, count + 1, step):
        machine, tale = Machine(seed + k), Tale(small(level=level))
        crashed = tell(machine, tale, crash_at=k)
        machine.media.power_loss() if power else machine.media.kill()
        if not power and crashed:
            tale.durable = max(tale.durable, len(tale.accounts) - 2)  # the last was on its way
        try:
            machine.run(tale.life(look, orderly=False))
            machine.run(tale.life(go_on, orderly=True))
        except BaseException as error:
            error.add_note(f"seed {seed}, crash point {k} of {count}")
            raise
    return count


@pytest.mark.parametrize("level", [FSYNC, WRITE])
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
def test_after_a_crash_a_member_knows_what_it_said(level: str, power: bool) -> None:
    """I1, L2."""
    assert walk(level, power=power, step=7) > 200


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("level", [FSYNC, WRITE])
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
def test_after_a_crash_at_any_point_a_member_knows_what_it_said(level: str, power: bool) -> None:
    for seed in range(3):
        walk(level, power=power, seed=10_000 * seed)


def told(*, orderly: bool) -> tuple[Machine, Tale]:
    """Everything was synced, and so acknowledged."""

    async def end(tale: Tale, journal: Journal) -> None:
        await go_on(tale, journal)
        await tale.register(journal, Register(tale.now.newest.id + 1, (9, 1)))  # type: ignore[union-attr]
        await tale.sync(journal)

    machine, tale = Machine(3), Tale()
    for work in (begin, drop_some, end):
        machine.run(tale.life(work, orderly=orderly))
    return machine, tale


async def opened(env: Env) -> Recovered:
    return (await Journal.open(await env.disk.folder("row"), env, small(), ME)).recovered


def flips(machine: Machine) -> list[tuple[str, int]]:
    """Most in the last files, which are read record by record."""
    names = [n for n in machine.media.paths() if n.startswith("row/0")]
    names += 9 * [n for n in names if n.endswith(".seg")][-2:]
    return [(name, at) for name in names for at in range(len(machine.media.content(name)))]


@pytest.mark.parametrize("orderly", [False, True], ids=["killed", "closed"])
def test_where_damage_may_have_hit_a_promise_the_store_has_a_new_name(orderly: bool) -> None:
    """U1, U3."""
    rng, renamed, kept = random.Random(5), 0, 0
    machine, tale = told(orderly=orderly)
    before = tale.now
    for path, offset in rng.sample(flips(machine), 100):
        machine, tale = told(orderly=orderly)
        content = machine.media.content(path)
        machine.media.pages(path).write(0, flip(content, offset, rng))

        try:
            found = machine.run(opened)
        except BaseException as error:
            error.add_note(f"{path}, offset {offset}")
            raise
        if found.uuid != tale.uuid:
            renamed += 1
            # A stranger follows, whatever it thinks it has; from where its row ends, if it knows.
            assert found.delivered is None or sum(found.delivered.values()) < found.position
            assert not found.bundles
            continue
        kept += 1
        after, staged = Memory.of(found), {b[:3] for b in found.staged}
        assert after.register == before.register
        assert after.newest == before.newest
        assert after.holds() == before.holds(), (path, offset)
        assert all(b == before.waiting.get(n, b) for n, b in after.waiting.items())
        # One that was settled comes again if damage hit what said so: the node settles it again.
        assert set(before.staged) <= staged | set(found.lost_stages)
    assert renamed > 10
    assert kept > 10


def test_a_lone_folder_is_taken_over_unchanged_and_given_back() -> None:
    """N7: Nothing is converted: a lone node's items, a bridge's view of one, a lone node's again."""
    machine, story = Machine(4), Story(small(), submitted=[[]])

    async def alone(row: LoneRow, story: Story) -> None:
        await story.produce(row, 100, 900)
        await story.produce(row, 2000)

    async def bridged(env: Env) -> None:
        journal = await Journal.open(await env.disk.folder("row"), env, small(), 1)
        found = journal.recovered
        view = found.installed
        assert view is not None
        assert found.delivered is not None
        assert found.newest == view
        assert (found.position, found.delivered) == (max(story.seen), {1: found.delivered[1]})
        assert (found.register, found.bundles, found.staged) == (None, (), ())
        member = view.members[0]._replace(incarnation=found.incarnation)
        mark = View(
            id=view.id + 1,
            members=(member,),
            cluster=view.cluster,
            lineage=view.lineage,
            durability=view.durability,
            voters=view.voters,
            cut=((1, found.delivered[1]),),
            cont=(1,),
        )
        await journal.register(Register(mark.id, (1, 1), (1, 1), mark))
        await journal.learn(mark)
        position = found.position
        story.see(await journal.order(position + 1, mark))
        for s in range(1, 4):
            number = story.make(300)
            await journal.receive(Bundle(mark.id, 1, s, s, 1, (number,)))
            story.submitted[-1].append(number_of(number))
        story.see(await journal.order(position + 2, (mark.id, 1, 1)))
        await journal.sync()
        story.durable = position + 2
        story.submitted.append([])

    machine.run(story.life(alone))
    machine.run(bridged)
    machine.media.power_loss()
    machine.run(story.life(alone, orderly=False))

    async def check(env: Env) -> None:
        row = await LoneRow.open(await env.disk.folder("row"), env, story.options)
        await story.check(row, power=True)

    machine.run(check)


def test_a_node_that_goes_on_alone_orders_what_was_staged_once() -> None:
    """Accepted means that it will be ordered; also if the others were retired meanwhile.

    A view takes the oldest that is staged, so what it has left of a stage comes behind its bundles.
    """

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.receive(journal, bundle(0, ME, 9, 0, 10, 20))
        await tale.change_view(journal)
        for s in (1, 2, 3):
            await tale.receive(journal, bundle(1, ME, s, s, 10))
        await tale.order(journal, bundle(1, ME, 1, 1, 10))
        view = tale.now.installed
        assert view is not None
        alone = attrs.evolve(
            view,
            id=2,
            members=tuple(each for each in view.members if each.id == ME),
            voters=tuple(each for each in view.voters if each[0] == ME),
        )
        await tale.order(journal, alone)
        await tale.sync(journal)

    async def go_on_alone(env: Env) -> list[list[int]]:
        row = await LoneRow.open(await env.disk.folder("row"), env, small(), id_=ME)
        assert row.store.chronicle.staged == {}
        assert row.store.durable_position == row.store.position
        items = await row.store.read_items(1, 1 << 30, bodies=True)
        return [
            [number_of(command) for command in each.content.commands]
            for each in items
            if isinstance(each.content, Bundle)
        ]

    count = 0
    for crash in range(200):
        machine, tale = Machine(11), Tale()
        machine.run(tale.life(work, orderly=False))
        if crash:
            machine.media.crash_before(crash)
        try:
            found = machine.run(go_on_alone)
        except SimCrashed:
            machine.media.power_loss()
            found = machine.run(go_on_alone)
            count += 1
        else:
            machine.media.disarm()
            if crash:
                break
        expected = [[1201], [1202], [1203], [209, 210]]
        once = [each for i, each in enumerate(found) if each not in found[:i]]
        assert once == expected
        assert crash or found == expected
    assert count > 10


def test_a_folder_of_several_voters_is_not_taken_over_by_a_lone_node() -> None:
    machine, tale = Machine(5), Tale()
    machine.run(tale.life(begin, orderly=True))

    async def alone(env: Env) -> None:
        await LoneRow.open(await env.disk.folder("row"), env, small(), id_=ME)

    with pytest.raises(Conflict, match="start it with its bridge"):
        machine.run(alone)


def test_what_is_staged_or_waits_keeps_its_segment() -> None:
    """N6."""

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        await tale.receive(journal, bundle(1, ME, 1, 1, 3000))
        await tale.receive(journal, bundle(1, 1, 1, 2, 3000))
        await tale.order(journal, bundle(1, ME, 1, 1, 3000))
        for s in range(1, 6):
            await tale.receive(journal, bundle(1, 3, s, 2 + s, 3000))
            await tale.order(journal, bundle(1, 3, s, 2 + s, 3000))
        store = journal.store
        await tale.sync(journal)
        await store.index_sealed()
        store.release(store.position, store.position)
        held = sorted(store.chronicle.held)
        assert len(held) == 2
        for number in held:
            with pytest.raises(Refused, match="staged, or waits"):
                await store.rewrite(number, frozenset())
        assert set(held).isdisjoint(await store.drop([s.number for s in store.segments()]))

        await tale.settle(journal, (1, ME, 1))
        await tale.order(journal, bundle(1, 1, 1, 2, 3000))
        await tale.sync(journal)
        store.release(store.position + 1, store.position + 1)
        assert await store.drop(held) == held

    machine, tale = Machine(6), Tale()
    machine.run(tale.life(work, orderly=True))
    machine.run(tale.life(go_on, orderly=True))


def test_what_waited_when_damage_was_found_counts_for_nothing_from_then_on() -> None:
    """U3: It comes again, into the same view; the next start knows what of it is in the row."""
    comes = [bundle(1, 3, s, s, 300) for s in (1, 2, 3)]
    machine = Machine(8)
    tale = Tale()

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        for each in comes:
            await tale.receive(journal, each)
        await tale.order(journal, comes[0])
        await tale.sync(journal)

    machine.run(tale.life(work, orderly=False))
    (name,) = [path for path in machine.media.paths() if path.endswith(".seg")]
    body = comes[1].commands[0].body
    machine.media.flip(name, machine.media.content(name).index(bytes(body)) + 5)

    async def follow(env: Env) -> None:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        assert journal.recovered.damaged
        assert journal.recovered.bundles == ()
        assert (journal.recovered.delivered or {})[3] == 1
        for each in comes[1:]:
            await journal.receive(each)
            await journal.order(journal.store.position + 1, each[:3])
        await journal.sync()

    machine.run(follow)

    async def again(env: Env) -> None:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        assert not journal.recovered.damaged
        assert (journal.recovered.delivered or {})[3] == 3
        assert journal.recovered.bundles == ()

    machine.run(again)


@pytest.mark.parametrize("late", [False, True], ids=["whole segments", "its record stays"])
def test_what_of_the_view_was_dropped_with_the_row_is_known_after_damage_too(late: bool) -> None:
    """Of a member that had nothing since, it seemed that nothing was in the row: its next did not fit."""
    machine, tale = Machine(6), Tale()

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        first = bundle(1, 3, 1, 1, 1500)
        await tale.receive(journal, first)
        if late:
            await journal.store.seal(1)
        await tale.order(journal, first)
        for s in range(1, 9):
            for origin in (1, ME):
                each = bundle(1, origin, s, 2 * s + origin, 1500)
                await tale.receive(journal, each)
                await tale.order(journal, each)
            await tale.settle(journal, (1, ME, s))
        await tale.sync(journal)
        store = journal.store
        await store.index_sealed()
        limit = 3 if late else store.position
        store.release(limit, limit)
        assert await store.drop([1, 2, 3])
        assert store.floor == 3 if late else store.floor > 3
        assert journal.delivered() == {1: 8, ME: 8, 3: 1}

    async def copied(env: Env) -> None:
        await (await (await env.disk.folder("row")).open("restored", create=True)).sync()

    machine.run(tale.life(work, orderly=False))
    machine.run(copied)
    found = machine.run(opened)
    assert found.damaged
    assert found.delivered == {1: 8, ME: 8, 3: 1}


@pytest.mark.parametrize("indexed", [False, True])
def test_a_lost_file_that_recorded_no_item_is_told_and_the_journal_opens(indexed: bool) -> None:
    """It held bundles only; what later files record of them could not be found, and no start could be made."""
    machine, tale = Machine(6), Tale()

    async def work(tale: Tale, journal: Journal) -> None:
        store = journal.store
        await tale.change_view(journal)
        await store.seal(1)
        for origin in (1, 3):
            await tale.receive(journal, bundle(1, origin, 1, origin, 1500))
        await store.seal(2)
        await tale.order(journal, bundle(1, 1, 1, 1, 1500))
        await tale.sync(journal)
        if indexed:
            await store.index_sealed()

    async def lose(env: Env) -> None:
        await (await env.disk.folder("row")).unlink(segment_file(2))

    async def again(env: Env) -> None:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        assert journal.recovered.damaged
        assert journal.recovered.delivered is None, "damage hides it"
        (damage,) = journal.store.recovered.damages
        assert (damage.file, damage.last) == (segment_file(2), 2)

    machine.run(tale.life(work, orderly=False))
    machine.run(lose)
    machine.run(again)


def test_the_index_of_a_file_that_was_lost_is_not_taken_for_that_of_the_next_one_of_its_number() -> (
    None
):
    """At the end of the row, after an orderly end: what was acknowledged since then was lost, or read wrongly."""
    machine, tale = Machine(6), Tale()

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        await tale.receive(journal, bundle(1, 3, 1, 1, 1500))
        await journal.store.seal(1)
        await tale.order(journal, bundle(1, 3, 1, 1, 1500))

    async def lose(env: Env) -> None:
        await (await env.disk.folder("row")).unlink(segment_file(2))

    async def go_on(env: Env) -> tuple[bytes, int, bytes]:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        store = journal.store
        assert journal.recovered.damaged
        assert [segment.number for segment in store.segments()] == [1, 2]
        for s in range(1, 4):
            await journal.receive(bundle(1, 3, s, s, 700))
            await journal.order(store.position + 1, (1, 3, s))
        await journal.sync()
        return store.uuid, store.position, store.digest

    machine.run(tale.life(work, orderly=True))
    machine.run(lose)
    uuid, position, digest = machine.run(go_on)
    found = machine.run(opened)
    assert not found.damaged
    assert (found.uuid, found.position, found.digest) == (uuid, position, digest)


def test_a_start_that_dies_leaves_what_says_that_the_end_of_the_row_is_lost() -> None:
    """Else the next one had the old name, with less than others were promised under it (U3)."""
    for at in range(1, 100):
        machine, tale = Machine(6), Tale()

        async def work(tale: Tale, journal: Journal) -> None:
            await tale.change_view(journal)
            await journal.store.seal(1)
            await tale.receive(journal, bundle(1, 3, 1, 1, 1500))
            await tale.order(journal, bundle(1, 3, 1, 1, 1500))

        async def lose(env: Env) -> None:
            folder = await env.disk.folder("row")
            await folder.unlink(segment_file(2))
            await folder.sync_names()

        machine.run(tale.life(work, orderly=True))
        machine.run(lose)
        machine.media.crash_before(at)
        try:
            machine.run(opened)
            break
        except SimCrashed:
            pass
        machine.media.power_loss() if at % 2 else machine.media.kill()
        found = machine.run(opened)
        assert found.uuid != tale.uuid, f"after a crash before operation {at}"
        assert "row/restored" not in machine.media.paths()


def test_the_index_of_a_file_that_lost_its_end_is_not_believed_once_the_row_goes_on_behind_it() -> (
    None
):
    """It spoke of items that came again elsewhere; and looking at what was taken for damage ended the bridge."""
    machine, tale = Machine(6), Tale()

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        await journal.store.seal(1)
        for s in (1, 2):
            await tale.receive(journal, bundle(1, 3, s, s, 1500))
            await tale.order(journal, bundle(1, 3, s, s, 1500))
        await journal.store.seal(2)
        await tale.sync(journal)
        await journal.store.index_sealed()

    async def lose(env: Env) -> None:
        await (await env.disk.folder("row")).unlink(segment_file(3))

    async def go_on(env: Env) -> tuple[bytes, int, bytes]:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        store = journal.store
        assert store.position == 2
        await journal.receive(bundle(1, 3, 2, 2, 1500))
        await journal.order(3, (1, 3, 2))
        await journal.sync()
        return store.uuid, store.position, store.digest

    machine.run(tale.life(work, orderly=False))
    machine.run(lose)
    pages = machine.media.pages(f"row/{segment_file(2)}")
    pages.truncate(pages.cache.size - 1000)  # the second bundle, and its place
    uuid, position, digest = machine.run(go_on)

    async def again(env: Env) -> None:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        store = journal.store
        assert not journal.recovered.damaged
        assert (store.uuid, store.position, store.digest) == (uuid, position, digest)
        for segment in store.segments():
            await store.seal(segment.number)
            await store.sync()
            await store.mending.look(segment.number, journal.waiting())

    machine.run(again)


def test_an_index_that_is_true_stays_when_a_start_takes_a_new_name() -> None:
    """It may be all that says where an item lies; it went, and the item was lost if that start was killed."""
    machine, tale = Machine(6), Tale(small(segment_bytes=1 << 16))
    offsets: list[int] = []

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        for origin in (1, 3):
            offsets.append(journal.store.segments()[-1].bytes)
            await tale.receive(journal, bundle(1, origin, 1, origin, 600))
        offsets.append(journal.store.segments()[-1].bytes)
        await tale.order(journal, bundle(1, 3, 1, 3, 600))
        await tale.receive(journal, bundle(1, 3, 2, 4, 600))
        await tale.order(journal, bundle(1, 3, 2, 4, 600))

    machine.run(tale.life(work, orderly=True))
    waits, _, item = offsets
    machine.media.flip(f"row/{segment_file(1)}", waits + 80)
    machine.media.flip(f"row/{segment_file(1)}", item + 8)

    async def read(env: Env) -> Recovered:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        for position, s in ((2, 1), (3, 2)):
            (found,) = await journal.store.read_items(position, 1, bodies=True)
            assert found.content == bundle(1, 3, s, 2 + s, 600)
        return journal.recovered

    assert machine.run(read).damaged
    assert not machine.run(read).damaged


def damaged_and_torn(seed: int, *, behind: int, size: int = 700) -> tuple[Machine, Tale]:
    """The last items that were durable are damaged; of what was written behind them the first is torn."""
    machine, tale = Machine(seed), Tale()
    ends: list[tuple[int, int]] = []

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        for s in range(1, 2 + behind):
            ends.append((journal.store.segments()[-1].number, journal.store.segments()[-1].bytes))
            await tale.receive(journal, bundle(1, 3, s, s, size))
            await tale.order(journal, bundle(1, 3, s, s, size))
            if s == 1:
                await tale.sync(journal)

    machine.run(tale.life(work, orderly=False))
    (number, start), (still, end) = ends[:2]
    assert number == still == 1
    pages = machine.media.pages(f"row/{segment_file(1)}")
    pages.write(start, bytes(end - start))
    pages.write(end + 100, bytes(200))
    pages.sync(pages.count)
    return machine, tale


@pytest.mark.parametrize("behind", [3, 20])
def test_what_damage_hides_behind_the_end_of_the_row_never_comes_back_once_it_goes_on(
    behind: int,
) -> None:
    """A bridge goes on with a new name.  What it got then was damaged at its next start, and what had lain
    behind its end was in the row instead; or a file of the old name was the newest, and there was no start.
    """
    machine, tale = damaged_and_torn(6, behind=behind)

    async def go_on(env: Env) -> tuple[bytes, int, bytes]:
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        store = journal.store
        assert journal.recovered.damaged
        assert journal.recovered.position == 1
        await journal.receive(bundle(1, 3, 1, 1, 700))
        await journal.order(2, (1, 3, 1))
        await journal.sync()
        return store.uuid, store.position, store.digest

    uuid, position, digest = machine.run(go_on)
    found = machine.run(opened)
    assert not found.damaged
    assert (found.uuid, found.position, found.digest) == (uuid, position, digest)


def test_a_start_that_dies_while_it_takes_away_what_lay_behind_the_end_has_a_new_name_next_time() -> (
    None
):
    for at in range(1, 100):
        machine, tale = damaged_and_torn(6, behind=20)
        machine.media.crash_before(at)
        try:
            machine.run(opened)
            break
        except SimCrashed:
            pass
        machine.media.power_loss() if at % 2 else machine.media.kill()
        for _ in range(2):
            found = machine.run(opened)
            assert (found.position, found.uuid == tale.uuid) == (1, False), f"died before {at}"
        assert "row/restored" not in machine.media.paths()


def test_a_bundle_that_comes_twice_is_written_once() -> None:
    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        first = await journal.receive(bundle(1, 3, 1, 1, 30))
        size = journal.store.segments()[-1].bytes

        assert await journal.receive(bundle(1, 3, 1, 1, 30)) == first
        assert journal.store.segments()[-1].bytes == size

    Machine(7).run(Tale().life(work, orderly=False))


def test_a_follower_that_knows_a_newer_view_writes_older_marks_down_and_forgets_nothing() -> None:
    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        first = tale.now.installed
        assert first is not None
        second, third = attrs.evolve(first, id=2), attrs.evolve(first, id=3)
        await tale.learn(journal, third)
        await tale.order(journal, second)
        await tale.sync(journal)

    machine, tale = Machine(8), Tale()
    machine.run(tale.life(work, orderly=False))
    machine.media.power_loss()

    async def look(tale: Tale, journal: Journal) -> None:
        newest, installed = journal.recovered.newest, journal.recovered.installed
        assert newest is not None
        assert installed is not None
        assert (newest.id, installed.id) == (3, 2)
        await tale.order(journal, newest)

    machine.run(tale.life(look, orderly=True))
    machine.run(tale.life(go_on, orderly=True))


def test_a_follower_knows_what_of_each_origin_is_in_the_row() -> None:
    """It writes bundles and places as a lone node does, so recovery takes the fast lane."""

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        assert tale.now.installed is not None
        without_me = tuple(each for each in tale.now.installed.members if each.id != ME)
        await tale.order(journal, attrs.evolve(tale.now.installed, id=2, members=without_me))
        for s in range(1, 9):
            for origin in (1, 3):
                await tale.receive(journal, bundle(2, origin, s, 2 * s + origin, 10))
                await tale.order(journal, bundle(2, origin, s, 2 * s + origin, 10))
        await tale.receive(journal, bundle(2, 1, 9, 20, 10))
        await tale.order(journal, bundle(2, 1, 9, 20, 10))
        await tale.sync(journal)

    machine, tale = Machine(10), Tale(small(segment_bytes=1 << 20))
    machine.run(tale.life(work, orderly=False))
    machine.run(tale.life(look, orderly=False))

    assert tale.now.delivered == {1: 9, 3: 8}


def test_a_start_that_a_later_view_names_is_known_although_others_came_in_between() -> None:
    """It promised and died; the view that its promise led to was decided when the next one ran."""
    machine, starts = Machine(11), list[int]()

    async def live(tale: Tale, journal: Journal) -> None:
        starts.append(journal.recovered.incarnation)

    async def meet(tale: Tale, journal: Journal) -> None:
        view = tale.now.installed
        assert view is not None
        named = Member(ME, starts[0], 1)
        members = tuple(named if each.id == ME else each for each in view.members)
        await tale.learn(journal, attrs.evolve(view, id=view.id + 1, members=members))
        await tale.sync(journal)

    async def look(tale: Tale, journal: Journal) -> None:
        assert starts[0] in journal.recovered.starts

    tale = Tale()
    for work in (begin, live, live, live, meet, live, look):
        machine.run(tale.life(work, orderly=False))


def test_after_a_failed_sync_no_start_vouches_for_its_boot() -> None:
    """X1."""
    machine, tale = Machine(9), Tale(small(level=WRITE))
    machine.run(tale.life(begin, orderly=False))
    boots: list[str] = []

    async def look(env: Env) -> None:
        journal = await Journal.open(await env.disk.folder("row"), env, small(), ME)
        found = journal.recovered
        assert found.installed is not None
        named = next(m.incarnation for m in found.installed.members if m.id == ME)
        boots.append(found.starts[named].boot_id)
        assert found.starts[found.incarnation].boot_id == env.boot_id

    machine.run(look)

    async def doubt(env: Env) -> None:
        await leave_doubt(await env.disk.folder("row"))

    machine.run(doubt)
    machine.run(look)
    machine.run(look)

    assert boots == ["boot-9-0", "", ""]


def test_a_start_on_a_full_disk_may_use_the_reserve_as_that_of_a_node_alone_does() -> None:
    machine, tale = Machine(10), Tale(small(level=FSYNC))
    machine.run(tale.life(begin, orderly=False))
    machine.media.capacity = machine.media.used
    reserve, counts = [], [1]

    async def start(env: Env) -> None:
        journal = await Journal.open(await env.disk.folder("row"), env, small(), ME)
        reserve.append("row/reserve" in machine.media.paths())
        counts.append(journal.recovered.start_count)

    for _ in range(30):  # each writes something
        machine.run(start)

    assert (reserve[0], reserve[-1]) == (True, False)
    assert counts == sorted(set(counts))


def test_what_was_acked_without_a_sync_is_missed_though_the_process_started_at_level_fsync() -> (
    None
):
    """The durability of the view was lowered since (N8): what was damaged there was cut off as torn."""
    machine, tale = Machine(11), Tale(small(level=FSYNC))

    async def ack(tale: Tale, journal: Journal) -> None:
        tale.options = small(level=WRITE)
        await tale.change_view(journal)
        end = journal.store.segments()[-1].bytes
        for s in range(1, 4):
            await tale.receive(journal, bundle(1, 1, s, s, 50))
        assert journal.store.dirty, "an ack says that it is there"
        name = f"row/{segment_file(journal.store.segments()[-1].number)}"
        machine.media.pages(name).write(end + 16, b"damage")

    machine.run(tale.life(ack, orderly=False))

    assert machine.run(opened).damaged


def test_damage_where_items_waited_for_their_places_hides_no_digest_of_them() -> None:
    """Nobody looked at it for that, as no item lies there: nodes found none of their snapshots fitting."""
    machine, tale = Machine(12), Tale(small(level=FSYNC))

    async def wait(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        store, waiting = journal.store, [bundle(1, 1, s, s, 30) for s in (1, 2)]
        for each in waiting:
            await tale.receive(journal, each)
        await store.seal(1)
        await tale.receive(journal, bundle(1, 3, 1, 3, 30))
        await store.seal(2)
        for each in waiting:
            await tale.order(journal, each)
        await tale.order(journal, bundle(1, 3, 1, 3, 30))
        await tale.sync(journal)
        digest = await store.digest_of(3)
        machine.media.flip(f"row/{segment_file(2)}", store.segments()[1].bytes - 100, 1)
        assert 2 not in await store.holders(3)
        assert await store.digest_of(3) == digest

    machine.run(tale.life(wait, orderly=False))


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_an_index_that_the_disk_did_not_give_once_is_not_believed_when_other_items_have_come(
    *, power: bool
) -> None:
    """The file behind it was lost, so its segment went on, and has no other behind it yet: it was lost once more."""
    machine, tale = Machine(13), Tale(small(level=FSYNC))

    async def fill(tale: Tale, journal: Journal) -> None:
        await begin(tale, journal)
        await tale.sync(journal)
        await journal.store.index_sealed()

    machine.run(tale.life(fill, orderly=False))
    *_, sealed, last = [p for p in machine.media.paths() if p.endswith(".seg")]
    index = sealed.replace(".seg", ".pos")
    for offset in range(0, len(machine.media.content(index)), 512):
        machine.media.spoil(index, offset)

    async def go_on_without(env: Env) -> tuple[bytes, int]:
        await (await env.disk.folder("row")).unlink(last.removeprefix("row/"))
        journal = await Journal.open(await env.disk.folder("row"), env, tale.options, ME)
        held = [each.s for each in journal.waiting().values() if each.origin == 1]
        s = 1 + max([journal.delivered()[1], *held])
        await journal.receive(bundle(1, 1, s, 100 + s, 50))
        await journal.sync()
        return journal.store.uuid, journal.store.position

    uuid, position = machine.run(go_on_without)
    if power:
        machine.media.power_loss()
    if index in machine.media.paths():
        machine.media.pages(index).bad.clear()

    again = machine.run(opened)

    assert (again.uuid, again.position, again.damaged) == (uuid, position, False)
