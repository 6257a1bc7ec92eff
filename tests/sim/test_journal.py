"""What a bridge writes into the row store: found again after every crash, and kept as long as it is needed."""

from __future__ import annotations

import attrs
import pytest

from duckrow.node.doubt import leave_doubt
from duckrow.node.env import Env
from duckrow.node.errors import Refused
from duckrow.node.journal import Journal
from duckrow.node.row import Member
from duckrow.node.storeoptions import FSYNC, WRITE
from sim.alone import Machine
from sim.journalkit import ME, Tale, begin, bundle, drop_some, go_on
from sim.park import SimCrashed
from sim.storekit import small

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
