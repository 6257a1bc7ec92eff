"""A folder that lost its snapshots, or a part of its index, is made again from the segments (N4)."""

from __future__ import annotations

import copy

import attrs
import pytest
import trio

from duckrow.node import columns, makers
from duckrow.node.alone import LoneKeeper, StatelessError, open_node
from duckrow.node.entries import entries_of
from duckrow.node.env import Env
from duckrow.node.errors import Conflict, Corrupt, Damaged
from duckrow.node.places import offset_of, segment_of
from duckrow.node.producer import Producer
from duckrow.node.reading import Pull
from duckrow.node.rebuilding import Rebuilt, rebuild
from sim.alone import Machine
from sim.nodekit import SMALL, Owner, run
from sim.park import SimCrashed

TINY = attrs.evolve(
    SMALL,
    store=attrs.evolve(SMALL.store, segment_bytes=16384, followable_bytes=16384, window_bytes=4096),
    housekeeping=attrs.evolve(
        SMALL.housekeeping, snapshot_items=15, snapshot_bytes=8 * 1024, followable_bytes=16384
    ),
)
COUNT = 400
Seen = dict[tuple[str, int], dict[int, bytes]]


def rebuilt(machine: Machine) -> Rebuilt:
    return machine.run(lambda env: rebuild(env, TINY))


async def seen(node: LoneKeeper) -> Seen:
    """All entries, by topic, partition and number."""
    found: Seen = {}
    for name, topic in node.state.topics.rows.items():
        for partition in range(topic.policy.partitions):
            numbered = found[name, partition] = {}
            done = 0
            while entries := entries_of(
                name, await node.reader.pull(Pull(name, done, partition=partition))
            ):
                numbered |= {entry.number: entry.value for entry in entries}
                done = entries[-1].number
    return found


def filled() -> tuple[Machine, Seen]:
    """A row whose first segments are gone: `passing` was pruned, `kept` and `wide` never."""
    machine = Machine(1)

    async def work(node: LoneKeeper) -> Seen:
        kept, passing, owner = Producer(node), Producer(node), Owner(node)
        await owner.order(makers.create, "wide", {"partitions": 3})
        for number in range(1, COUNT + 1):
            await passing.produce("passing", [b"%d " % number + bytes(60)])
            if number % 50 == 0:
                await kept.produce("kept", [b"k%d" % number, b"l"])
                await kept.produce("wide", [b"w%d" % number], partition=2, partitions=3)
        await trio.sleep(10)
        await owner.order(makers.prune, "passing", COUNT - 60)
        await trio.sleep(60)
        for number in range(3):
            await kept.produce("kept", [b"late %d" % number])
            for other in range(60):
                await passing.produce("passing", [b"late %d" % other + bytes(60)])
        await trio.sleep(10)
        assert node.row.store.floor > 1
        assert any(segment.rewritten for segment in node.row.store.segments())
        return await seen(node)

    return machine, run(machine, work, TINY)


def lose(machine: Machine, *paths: str) -> None:
    async def unlink(env: Env) -> None:
        for path in paths:
            folder, name = path.split("/")
            await (await env.disk.folder(folder)).unlink(name)

    machine.run(unlink)


def files(machine: Machine, folder: str) -> list[str]:
    return [path for path in machine.media.paths() if path.startswith(f"{folder}/")]


def contains(now: Seen, before: Seen) -> bool:
    """All that was there is there, under its number; what was pruned may be there again."""
    return all(now[key].items() >= entries.items() for key, entries in before.items())


def cannot_start(machine: Machine) -> bool:
    try:
        run(machine, seen, TINY)
    except StatelessError:
        return True
    return False


async def lineage(node: LoneKeeper) -> int:
    assert node.state.view is not None
    return node.state.view.lineage


async def go_on(node: LoneKeeper) -> dict[str, int]:
    """The next number of each topic."""
    producer = Producer(node)
    return {
        name: (await producer.produce(name, [b"new"], partitions=topic.policy.partitions)).first
        for name, topic in sorted(node.state.topics.rows.items())
    }


def test_of_what_is_staged_when_the_state_is_made_again_the_place_is_kept() -> None:
    machine, _ = filled()

    async def stage(node: LoneKeeper) -> dict[int, int]:
        task = Owner(node, b"s" * 16)
        staged = await task.order(makers.stage, "s", b"body", 1, writer=b"w", batch=1, task=0)
        return {staged.position: await node.row.store.place_of(staged.position)}

    async def kept(node: LoneKeeper) -> dict[int, int]:
        return node.numbers.kept

    places = run(machine, stage, TINY)
    lose(machine, *files(machine, "state"))
    rebuilt(machine)

    assert run(machine, kept, TINY) == places


def test_a_whole_folder_is_left_as_it_is() -> None:
    machine, before = filled()
    first = run(machine, lineage, TINY)

    assert rebuilt(machine).made == ()

    assert run(machine, lineage, TINY) == first
    assert run(machine, seen, TINY) == before


def test_without_snapshots_every_entry_is_found_under_its_number() -> None:
    machine, before = filled()
    first = run(machine, lineage, TINY)
    lose(machine, *files(machine, "state"))
    assert cannot_start(machine)

    done = rebuilt(machine)

    now = run(machine, seen, TINY)
    assert contains(now, before)
    assert set(now) == set(before)
    assert "a state up to position" in done.made[0]
    assert any("the policies of" in said and "kept" in said for said in done.lost)
    assert run(machine, lineage, TINY) != first
    assert run(machine, go_on, TINY) == {"kept": 20, "passing": COUNT + 181, "wide": 1}
    assert rebuilt(machine).made == ()


def test_with_damaged_snapshots_it_is_the_same() -> None:
    machine, before = filled()
    for path in files(machine, "state"):
        machine.media.flip(path, 200, 3)
    assert cannot_start(machine)

    rebuilt(machine)

    assert contains(run(machine, seen, TINY), before)


def test_without_snapshots_after_a_kill_the_newest_entries_are_counted_again() -> None:
    machine, before = filled()

    async def produce(node: LoneKeeper) -> None:
        producer = Producer(node)
        for number in range(200):
            await producer.produce("passing", [b"more %d" % number + bytes(40)])
        await producer.produce("fresh", [b"one", b"two"])
        before.update(await seen(node))
        machine.media.crash_before(1)

    with pytest.raises(SimCrashed):
        run(machine, produce, TINY)
    machine.media.kill()
    lose(machine, *files(machine, "state"))

    done = rebuilt(machine)

    assert contains(run(machine, seen, TINY), before)
    assert any("were counted again" in said for said in done.lost)


def test_a_lost_file_of_the_index_is_made_again_with_a_snapshot_and_without() -> None:
    for snapshots in (True, False):
        machine, before = filled()
        first = run(machine, lineage, TINY)
        floor = run(machine, _floor, TINY)
        lose(machine, files(machine, "numbers")[-2])
        if not snapshots:
            lose(machine, *files(machine, "state"))

        assert rebuilt(machine).made

        assert contains(run(machine, seen, TINY), before)
        assert (run(machine, lineage, TINY) == first) is snapshots
        assert run(machine, _floor, TINY) >= floor


def test_a_topic_of_which_only_newer_files_of_the_index_tell_keeps_its_identity() -> None:
    """Else its next batch would make another one of the same name."""
    machine, before = filled()
    floor = run(machine, _floor, TINY)
    names = files(machine, "numbers")
    around = [name for name in names if f"row/{name[8:16]}.seg" in _from(machine, floor)]
    lose(machine, around[0], *files(machine, "state"))

    rebuilt(machine)

    now = run(machine, seen, TINY)
    assert now["passing", 0].items() >= dict([*before["passing", 0].items()][-50:]).items()
    assert set(now) == set(before)


def _from(machine: Machine, position: int) -> list[str]:
    """The segments with items from a position on."""

    async def look(node: LoneKeeper) -> list[str]:
        return [f"row/{s.number:08d}.seg" for s in node.row.store.segments() if s.last >= position]

    return run(machine, look, TINY)


async def _floor(node: LoneKeeper) -> int:
    return node.row.store.floor


def test_a_damaged_file_of_the_index_is_made_again() -> None:
    machine, before = filled()
    machine.media.flip(files(machine, "numbers")[-2], 9, 3)
    machine.media.flip(files(machine, "numbers")[-2], 20, 3)
    with pytest.raises(Damaged):
        run(machine, seen, TINY)

    assert rebuilt(machine).made == (
        f"what lacked of the index of numbers, from position {run(machine, _floor, TINY):,} on",
    )

    assert run(machine, seen, TINY) == before
    assert rebuilt(machine).made == ()


def test_an_item_whose_heads_are_damaged_is_passed_over_and_the_row_goes_on() -> None:
    """Without a snapshot behind it the row ends there, read only."""
    machine, before = filled()
    number = COUNT + 5
    spoil_heads(machine, run(machine, lambda node: _place(node, number), TINY))
    lose(machine, *files(machine, "state"))

    done = rebuilt(machine)

    assert any("damaged items at positions" in said for said in done.lost)
    del before["passing", 0][number]
    now = run(machine, seen_but_damaged, TINY)
    assert contains(now, before)
    assert number not in now["passing", 0]
    assert run(machine, go_on, TINY)["passing"] == COUNT + 181


def test_behind_a_damaged_item_that_no_index_knows_numbers_are_lower_and_that_is_told() -> None:
    machine, before = filled()
    last = max(before["passing", 0])
    spoil_heads(machine, run(machine, lambda node: _place(node, last - 5), TINY))
    lose(machine, *files(machine, "state"))

    done = rebuilt(machine)

    assert any("those after them have lower numbers now" in said for said in done.lost)
    now = run(machine, seen, TINY)["passing", 0]
    assert now[last - 6] == before["passing", 0][last - 6]
    assert now[last - 5] == before["passing", 0][last - 4]
    assert now[last - 1] == before["passing", 0][last]


def spoil_heads(machine: Machine, where: int) -> None:
    machine.media.flip(f"row/{segment_of(where):08d}.seg", offset_of(where) + 40, 3)


async def _place(node: LoneKeeper, number: int) -> int:
    topic = node.state.topic("passing")
    assert topic is not None
    return node.numbers.rows(topic.id, 0, number, 1)[0].place


async def seen_but_damaged(node: LoneKeeper) -> Seen:
    found: Seen = {}
    for name, topic in node.state.topics.rows.items():
        for partition in range(topic.policy.partitions):
            numbered = found[name, partition] = {}
            done = 0
            while True:
                pull = Pull(name, done, partition=partition)
                try:
                    entries = entries_of(name, await node.reader.pull(pull))
                except Damaged as damaged:
                    done = damaged.last
                    continue
                if not entries:
                    break
                numbered |= {entry.number: entry.value for entry in entries}
                done = entries[-1].number
    return found


def test_what_was_deleted_configured_and_committed_behind_the_floor_stays_so() -> None:
    machine, before = filled()

    async def work(node: LoneKeeper) -> Seen:
        owner, task, producer = Owner(node, b"o" * 16), Owner(node, b"s" * 16), Producer(node)
        await owner.order(makers.delete, "wide")
        await owner.order(makers.configure, "kept", {"max_entries": 20})
        staged = await task.order(
            makers.stage, "staged", columns.encode([b"s"]), 1, writer=b"w", batch=1, task=0
        )
        for number in range(70):
            await producer.produce("passing", [b"after %d" % number + bytes(60)])
        await owner.order(makers.commit, b"w", 1, [(staged.position, staged.detail)])
        for number in range(70):
            await producer.produce("passing", [b"more %d" % number + bytes(60)])
        await trio.sleep(60)
        return await seen(node)

    before = run(machine, work, TINY)
    lose(machine, *files(machine, "state"))

    rebuilt(machine)

    now = run(machine, seen, TINY)
    assert contains(now, before)
    assert set(now) == set(before)
    assert now["kept", 0] == before["kept", 0]
    assert now["staged", 0] == {1: b"s"}


def test_a_rebuilding_that_dies_anywhere_is_done_again() -> None:
    machine, before = filled()
    lose(machine, *files(machine, "state"))
    media = copy.deepcopy(machine.media)
    operations = media.operations
    rebuilt(machine)
    for step in range(1, machine.media.operations - operations, 3):
        again = Machine(1, media=copy.deepcopy(media))
        again.now = machine.now
        again.media.crash_before(step)
        with pytest.raises(SimCrashed):
            rebuilt(again)
        again.media.power_loss()

        rebuilt(again)

        assert contains(run(again, seen, TINY), before)


def test_a_row_whose_end_is_lost_is_not_rebuilt() -> None:
    machine, _ = filled()
    last = files(machine, "row")
    segment = max(path for path in last if path.endswith(".seg"))
    machine.media.pages(segment).truncate(100)

    with pytest.raises(Corrupt, match="restore a backup, or export"):
        rebuilt(machine)


def test_a_folder_in_use_is_not_rebuilt() -> None:
    machine, _ = filled()

    async def both(env: Env) -> None:
        async with open_node(env, TINY):
            with pytest.raises(Conflict, match="one process may have it"):
                await rebuild(env, TINY)

    machine.run(both)
