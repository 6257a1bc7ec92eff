"""Space comes back by itself: also on a node where nothing else happens any more."""

from __future__ import annotations

from collections.abc import Collection

import attrs
import pytest
import trio

from duckrow.node import makers
from duckrow.node.alone import LoneKeeper
from duckrow.node.housekeeping import RETRY_SECONDS
from duckrow.node.limits import KIB
from duckrow.node.numberfolder import NumberFolder
from duckrow.node.numbers import Numbers
from duckrow.node.producer import Producer
from duckrow.node.rowstore import RowStore
from duckrow.node.snapshots import KEPT
from duckrow.node.storeoptions import MEMORY

from .alone import Machine
from .nodekit import SMALL, Owner, at_level, keep_no_places, run, values

PATIENCE = 5.0  # seconds
OPTIONS = attrs.evolve(
    SMALL,
    store=attrs.evolve(SMALL.store, segment_bytes=64 * KIB, followable_bytes=64 * KIB),
    housekeeping=attrs.evolve(
        SMALL.housekeeping, snapshot_bytes=64 * KIB, followable_bytes=64 * KIB
    ),
)
WRITTEN = 1_000_000  # bytes of values


def row_bytes(machine: Machine) -> int:
    """That the row store has on the disk."""
    paths = [path for path in machine.media.paths() if path.endswith((".seg", ".pos"))]
    return sum(machine.media.pages(path).allocated for path in paths) * 4 * KIB


async def fill(node: LoneKeeper, topic: str = "t", size: int = 1_000) -> None:
    producer = Producer(node)
    for _ in range(WRITTEN // size):
        await producer.produce(topic, [bytes(size)])
    await trio.sleep(PATIENCE)


async def fill_beside_kept(node: LoneKeeper) -> None:
    """30 entries of a topic that stays, each before a hundred of one that goes."""
    kept, passing = Producer(node), Producer(node)
    for number in range(30):
        await kept.produce("kept", [b"%d" % number])
        for _ in range(100):
            await passing.produce("t", [bytes(100)])
    await trio.sleep(PATIENCE)


@pytest.mark.parametrize("how", ["pruned", "deleted", "configured"])
def test_what_is_pruned_on_an_idle_node_gives_its_space_back(how: str) -> None:
    machine = Machine()

    async def work(node: LoneKeeper) -> None:
        await fill(node)
        assert row_bytes(machine) > WRITTEN
        if how == "pruned":
            await Owner(node).order(makers.prune, "t", WRITTEN)
        elif how == "deleted":
            await Owner(node).order(makers.delete, "t")
        else:
            await Owner(node).order(makers.configure, "t", {"max_entries": 1})
        await trio.sleep(PATIENCE)
        assert row_bytes(machine) < WRITTEN / 3

    run(machine, work, OPTIONS)


def test_nor_does_it_matter_that_the_node_was_restarted_in_between() -> None:
    machine = Machine()
    run(machine, fill, OPTIONS)
    assert row_bytes(machine) > WRITTEN

    async def work(node: LoneKeeper) -> None:
        await Owner(node).order(makers.prune, "t", WRITTEN)
        await trio.sleep(PATIENCE)
        assert row_bytes(machine) < WRITTEN / 3

    run(machine, work, OPTIONS)


def test_a_body_that_waited_holds_nothing_once_it_has_its_number() -> None:
    machine = Machine()

    async def work(node: LoneKeeper) -> None:
        owner = Owner(node)
        await owner.order(makers.create, "w", {"max_entries": 1, "when_full": "block"})
        patient = Producer(node)
        await patient.produce("w", [b"first"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(patient.produce, "w", [b"second"])
            await trio.sleep(0.1)
            await fill(node)
            await owner.order(makers.prune, "t", WRITTEN)
            await trio.sleep(PATIENCE)
            assert row_bytes(machine) > WRITTEN, "it may want any number"
            await owner.order(makers.prune, "w", 1)
            await trio.sleep(PATIENCE)
        assert row_bytes(machine) < WRITTEN / 3
        assert await values(node, "w") == [b"second"]

    run(machine, work, OPTIONS)
    assert run(machine, lambda node: values(node, "w"), OPTIONS) == [b"second"]


def test_a_batch_that_gets_its_number_just_now_is_not_taken_for_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The state has it already, and the index not yet: its segment seems to hold nothing."""
    keep_no_places(monkeypatch)
    looked = trio.Event()

    async def work(node: LoneKeeper) -> None:
        owner, place_of = Owner(node), node.row.store.place_of

        async def slow(position: int) -> int:
            looked.set()
            node.row.care.on_tight()  # housekeeping looks
            await trio.sleep(1.0)
            return await place_of(position)

        await owner.order(makers.create, "t", {"max_entries": 1, "when_full": "block"})
        await Producer(node).produce("t", [b"first"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Producer(node).produce, "t", [b"second"])
            await trio.sleep(0.1)
            await fill(node, "other")
            await owner.order(makers.delete, "other")
            node.row.store.place_of = slow  # type: ignore[method-assign]
            await owner.order(makers.prune, "t", 1)
        await trio.sleep(PATIENCE)

        assert looked.is_set()
        assert await values(node, "t") == [b"second"]

    run(Machine(), work, OPTIONS)


def test_a_stage_holds_nothing_once_it_is_committed() -> None:
    machine = Machine()

    async def work(node: LoneKeeper) -> None:
        owner, task = Owner(node), Owner(node, b"s" * 16)
        staged = await task.order(makers.stage, "s", b"body", 1, writer=b"writer", batch=1, task=0)
        await fill(node)
        await owner.order(makers.prune, "t", WRITTEN)
        await trio.sleep(PATIENCE)
        assert row_bytes(machine) > WRITTEN
        await owner.order(makers.commit, b"writer", 1, [(staged.position, staged.detail)])
        await trio.sleep(PATIENCE)
        assert row_bytes(machine) < WRITTEN / 3

    run(machine, work, OPTIONS)


@pytest.mark.parametrize("size", [10, 100, 1_000, 5_000])
def test_a_segment_that_is_alive_is_not_taken_for_dead_however_small_its_entries(
    size: int,
) -> None:
    machine = Machine()

    async def work(node: LoneKeeper) -> None:
        producer = Producer(node)
        while len(node.row.store.segments()) < 4:
            await producer.produce("t", [bytes(size)])
        await trio.sleep(PATIENCE)
        numbers, store = node.numbers, node.row.store
        plan = numbers.usage.plan(
            store.segments(),
            snapshot=store.position,
            oldest_body=None,
            in_memory=numbers.in_memory,
            followable=0,
        )
        assert numbers.in_memory > 2
        assert plan.rewrite == plan.drop == ()
        assert store.floor == 1

    run(machine, work, OPTIONS)


def test_segments_of_small_entries_are_rewritten_when_most_have_died_and_not_before() -> None:
    machine = Machine()

    async def work(node: LoneKeeper) -> None:
        owner = Owner(node)
        await fill_beside_kept(node)
        before = row_bytes(machine)
        await owner.order(makers.prune, "t", 3_000)
        await trio.sleep(PATIENCE)
        assert row_bytes(machine) < before / 2
        assert node.row.store.floor > 1
        rewritten = [segment for segment in node.row.store.segments() if segment.rewritten]
        assert len(rewritten) > 5
        assert await values(node, "kept") == [b"%d" % number for number in range(30)]
        assert await node.row.store.scrub() == []

    run(machine, work, OPTIONS)
    found = run(machine, lambda node: values(node, "kept"), OPTIONS)
    assert found == [b"%d" % number for number in range(30)]


def test_a_segment_that_is_held_back_is_asked_for_again_after_some_seconds_and_not_with_each_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look had found out anew what lives in hundreds of them, for as long as an image was given (seed 1040272)."""
    machine = Machine()
    asked: list[int] = []
    rewrite = RowStore.rewrite

    async def ask(store: RowStore, segment: int, live: Collection[int]) -> int:
        asked.append(segment)
        return await rewrite(store, segment, live)

    async def work(node: LoneKeeper) -> None:
        owner = Owner(node)
        await fill_beside_kept(node)
        node.row.store.pin(1, 0, [])
        monkeypatch.setattr(RowStore, "rewrite", ask)
        for number in range(100, 3_000, 100):
            await owner.order(makers.prune, "t", number)
        assert len(asked) > 5
        assert len(set(asked)) == len(asked)
        node.row.store.unpin(1)
        await trio.sleep(2 * RETRY_SECONDS)
        rewritten = [segment.number for segment in node.row.store.segments() if segment.rewritten]
        assert set(rewritten) >= set(asked)

    run(machine, work, OPTIONS)


@pytest.mark.parametrize("due", ["now and then", "always"])
def test_neither_snapshots_nor_index_files_wait_for_the_others_to_end(due: str) -> None:
    """When segments are sealed faster than files are written, there is always one more."""
    machine = Machine()
    machine.media.sync_latency = 0.01
    options = attrs.evolve(OPTIONS, store=attrs.evolve(OPTIONS.store, level="write"))
    if due == "always":
        options = attrs.evolve(
            options, housekeeping=attrs.evolve(options.housekeeping, snapshot_items=1)
        )

    async def work(node: LoneKeeper) -> None:
        producer = Producer(node)
        for _ in range(200):  # each has a segment of its own
            await producer.produce("t", [bytes(64 * KIB)])
            await trio.sleep(machine.media.sync_latency)
        assert any("snapshot-" in path for path in machine.media.paths())
        assert node.numbers.installed

    run(machine, work, options)


def test_what_the_row_is_dropped_for_is_there_after_a_loss_of_power() -> None:
    """A snapshot whose name is lost again is none."""
    machine = Machine()

    async def work(node: LoneKeeper) -> None:
        producer = Producer(node)
        for _ in range(3 * SMALL.housekeeping.snapshot_items):
            await producer.produce("t", [b"x"])
        await trio.sleep(PATIENCE)
        snapshots = {path for path in machine.media.paths() if path.startswith("state/snapshot-")}
        assert len(snapshots) == KEPT
        assert snapshots <= {*machine.media.paths(durable=True)}

    run(machine, work, at_level(MEMORY))


def test_an_index_never_speaks_of_items_that_a_loss_of_power_can_take_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At level memory the sync of a sealed segment may come later than its index is due."""
    write, covered = NumberFolder.write, list[bool]()

    async def work(node: LoneKeeper) -> None:
        store = node.row.store

        async def watched(folder: NumberFolder, numbers: Numbers) -> bool:
            cover = numbers.waiting()
            assert cover is not None
            covered.append(cover.upto <= store.durable_position)
            return await write(folder, numbers)

        monkeypatch.setattr(NumberFolder, "write", watched)
        producer = Producer(node)
        for _ in range(100):
            await producer.produce("t", [bytes(1000)])
        await trio.sleep(PATIENCE)
        assert covered
        assert all(covered)

    run(Machine(), work, at_level(MEMORY))


def test_a_snapshot_never_speaks_of_items_that_a_loss_of_power_can_take_back() -> None:
    """N4: At level memory nobody else syncs the row."""
    machine = Machine()

    async def work(node: LoneKeeper) -> None:
        producer = Producer(node)
        for _ in range(3 * SMALL.housekeeping.snapshot_items):
            await producer.produce("t", [b"x"])
        await trio.sleep(PATIENCE)
        snapshots = [path for path in machine.media.paths() if path.startswith("state/snapshot-")]
        newest = max(int(path.removeprefix("state/snapshot-")) for path in snapshots)
        assert newest <= node.row.status().durable

    run(machine, work, at_level(MEMORY))
