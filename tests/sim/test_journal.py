"""What a bridge writes into the row store: found again after every crash, and kept as long as it is needed."""

from __future__ import annotations

from typing import Any

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


@pytest.mark.parametrize("reads", [3, 4])  # the whole, a page, and sectors
def test_what_is_staged_or_waits_outlives_reads_that_fail(
    monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    """Seed 1200210: what had been accepted was given up for ever, and was there the next time."""
    machine, tale, begin_well = Machine(6), Tale(), Journal._begin

    async def begin_badly(journal: Journal, *rest: Any) -> None:
        machine.media.read_eio = reads
        await begin_well(journal, *rest)
        assert not machine.media.is_armed

    async def work(tale: Tale, journal: Journal) -> None:
        await tale.change_view(journal)
        await tale.receive(journal, bundle(1, ME, 1, 1, 30))
        await tale.receive(journal, bundle(1, 1, 1, 2, 30))

    machine.run(tale.life(work, orderly=True))
    monkeypatch.setattr(Journal, "_begin", begin_badly)

    machine.run(tale.life(go_on, orderly=True))  # which looks for both, and at the name


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
