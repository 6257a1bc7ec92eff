"""A node that dies before any disk operation, while segments are sealed, indexed, rewritten and
dropped and snapshots come and go; then again while it recovers from that."""

from __future__ import annotations

import attrs
import pytest
import trio

from duckrow.node import makers
from duckrow.node.alone import LoneKeeper, Options, open_node
from duckrow.node.env import Env
from duckrow.node.housekeeping import HousekeepingOptions
from duckrow.node.producer import Producer
from duckrow.node.storeoptions import FSYNC, LEVELS, WRITE
from sim.alone import Machine
from sim.nodekit import SMALL, Owner, values
from sim.park import SimCrashed

COUNT = 70
SEGMENT_BYTES = 20 * 1024  # five blocks
KEPT_EVERY = 13  # entries of the topic that is kept, between those that are pruned


def options(level: str) -> Options:
    return Options(
        store=attrs.evolve(
            SMALL.store,
            level=level,
            segment_bytes=SEGMENT_BYTES,
            followable_bytes=SEGMENT_BYTES,
            window_bytes=8192,
        ),
        housekeeping=HousekeepingOptions(
            snapshot_items=15, snapshot_bytes=16 * 1024, followable_bytes=SEGMENT_BYTES
        ),
    )


@attrs.define
class Told:
    """What a node said, over all its lives, of one lineage."""

    level: str
    lineage: int = 0
    acknowledged: dict[str, dict[int, bytes]] = attrs.field(factory=dict)
    pruned: int = 0  # numbers of `t` that may be gone, because somebody said so
    next: int = 1  # makes values

    def check_lineage(self, node: LoneKeeper, *, power: bool) -> None:
        view = node.row.store.view
        assert view is not None
        if self.lineage and view.lineage != self.lineage:
            assert power, "nothing can be lost when a process dies"
            assert self.level != FSYNC, "nothing can be lost at this level"
            self.acknowledged.clear()
            self.pruned = 0
        self.lineage = view.lineage

    async def check(self, node: LoneKeeper, *, power: bool) -> None:
        assert node.row.broken is None
        store = node.row.store
        assert [d for d in store.recovered.damages if not d.mended] == [], "a crash is no damage"
        self.check_lineage(node, power=power)
        for topic, known in self.acknowledged.items():
            found = await values(node, topic)
            row = node.state.topic(topic)
            assert row is not None
            first = node.state.partition(row.id, 0).first
            assert topic == "t" or first == 1
            assert first <= self.pruned + 1
            for number, value in known.items():
                if number >= first:
                    assert found[number - first] == value, f"entry {number} of {topic}"
        assert await store.scrub() == []

    async def work(self, node: LoneKeeper) -> None:
        producer, owner = Producer(node), Owner(node, b"%16d" % self.next)
        for index in range(COUNT):
            # Later segments of a life die as a whole, the first ones but for some entries.
            topic = "kept" if index % KEPT_EVERY == 0 and index < COUNT // 2 else "t"
            value = b"%d " % self.next + bytes(900)
            self.next += 1
            result = await producer.produce(topic, [value])
            self.acknowledged.setdefault(topic, {})[result.first] = value
            if index % 20 == 19:
                self.pruned = max(self.acknowledged["t"]) - 3
                await owner.order(makers.prune, "t", self.pruned)
            if index % 10 == 5:
                await trio.sleep(1)  # housekeeping
        await trio.sleep(10)


def life(machine: Machine, told: Told, *, power: bool, work: bool = True) -> None:
    async def main(env: Env) -> None:
        async with open_node(env, options(told.level)) as node:
            await told.check(node, power=power)
            if work:
                await told.work(node)

    machine.run(main)


def crashes(machine: Machine, told: Told, at: int, *, power: bool, part: bool) -> bool:
    """False: the life came to its end before that operation."""
    machine.media.crash_before(at, part=part)
    try:
        life(machine, told, power=power)
    except SimCrashed:
        machine.media.power_loss() if power else machine.media.kill()
        return True
    machine.media.disarm()
    return False


def walk(level: str, step: int, first: int, *, power: bool, seed: int = 0) -> int:
    """Dies at every `step`-th operation; how often that was."""
    at = first % step + 1
    while True:
        machine, told = Machine(seed + at), Told(level)
        try:
            life(machine, told, power=False)
            if not crashes(machine, told, at, power=power, part=at % 2 == 0):
                return at // step
            if at % 3 == 0 and crashes(machine, told, at // 3 % 40 + 1, power=power, part=True):
                pass  # and again, while it recovers
            life(machine, told, power=power)
            life(machine, told, power=False, work=False)
        except BaseException as error:
            error.add_note(f"level {level}, seed {seed}, before operation {at}, power {power}")
            raise
        at += step


def test_the_walk_passes_everything_that_housekeeping_does() -> None:
    machine, told = Machine(1), Told(WRITE)
    seen: dict[str, None] = {}
    machine.media.note = lambda kind, path, _offset, _length: seen.setdefault(
        kind + " " + path.split("/")[-1].lstrip("0123456789").rstrip("-0123456789")
    )
    for _ in range(2):
        life(machine, told, power=False)
    assert {"rename .seg.new", "unlink .seg", "unlink snapshot", "rename writing"} <= set(seen)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
def test_a_crash_before_an_operation_loses_nothing_acknowledged(level: str, power: bool) -> None:
    assert walk(level, 37, 5 + power, power=power) > 5


def test_a_segment_that_housekeeping_drops_while_it_is_scrubbed_is_no_damage() -> None:
    """Its index is gone, and the file itself still open: that looked like a lost index."""
    once = 1_000_000
    assert walk(FSYNC, once, 108, power=False, seed=10_000) == 1


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
def test_no_crash_point_loses_anything_acknowledged(level: str, power: bool) -> None:
    walk(level, 1, 0, power=power, seed=10_000)


def test_what_is_answered_lies_in_a_file_whose_name_is_durable() -> None:
    machine = Machine()

    async def main(env: Env) -> None:
        async with open_node(env, SMALL) as node:
            producer = Producer(node)
            for _ in range(3 * SMALL.store.segment_bytes // 1000):
                await producer.produce("t", [bytes(1000)])
                newest = node.row.store.segments()[-1].number
                assert f"row/{newest:08d}.seg" in machine.media.paths(durable=True)
            assert newest > 2

    machine.run(main)
