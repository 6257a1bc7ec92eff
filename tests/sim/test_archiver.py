"""A simulated archiver beside a node that dies again and again: nothing pinned is ever deleted.

The archiver keeps what it took outside of the machine, as a disk of its own would.  After every
death what it has and what the node keeps must be the whole row of the topic, without a gap.
"""

from __future__ import annotations

import random
from functools import partial

import attrs
import pytest

from duckrow.node import makers
from duckrow.node.alone import LoneKeeper
from duckrow.node.archivenames import due
from duckrow.node.commands import PID_BYTES
from duckrow.node.entries import entries_of
from duckrow.node.producer import Producer
from duckrow.node.reading import Pull

from .alone import Machine
from .nodekit import Owner, run
from .park import SimCrashed

SPAN = 10
LIVES, TURNS = 8, 12
WRITES_MAX = 60  # of a life, before it dies


@attrs.define
class Archive:
    """What its files hold."""

    rows: dict[int, bytes] = attrs.field(factory=dict)

    @property
    def safe(self) -> int:
        return max(self.rows, default=0)


async def kept(node: LoneKeeper) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    done = 0
    while entries := entries_of("t", await node.reader.pull(Pull("t", done, kept=True))):
        found |= {entry.number: entry.value for entry in entries}
        done = max(found)
    return found


async def archive_some(node: LoneKeeper, archive: Archive, rng: random.Random) -> None:
    """As the archiver does; it may end anywhere in between."""
    for pin in node.pins.listed(("", -1), 10):
        for each in due(max(pin.kept, archive.safe + 1), pin.first, pin.span):
            entries = await node.reader.pull(
                Pull("t", each.span.first - 1, partition=0, limit=len(each.span), kept=True)
            )
            found = {entry.number: entry.value for entry in entries_of("t", entries)}
            if any(batch.position > node.row.status().durable for batch in entries.batches):
                return
            if rng.random() < 0.3:
                return  # killed before the file had its name
            archive.rows |= found
            if rng.random() < 0.3:
                return  # killed before the node was told
            node.pins.tell(pin.topic, pin.topic_id, 0, each.span.last)


async def live(
    node: LoneKeeper, archive: Archive, seen: dict[int, bytes], rng: random.Random, turn: int
) -> None:
    """A life of the node; `seen` is all that was ever read, by number."""
    if node.state.topic("t") is None:
        await Owner(node).order(makers.create, "t", {"archive": SPAN, "max_entries": 20})
    here = await kept(node)
    assert sorted(archive.rows | here) == list(range(1, max(archive.rows | here, default=0) + 1))
    for number, value in (archive.rows | here).items():
        assert seen.setdefault(number, value) == value, f"entry {number} is another one now"
    assert all(archive.rows[number] == here[number] for number in archive.rows.keys() & here)
    for pin in node.pins.listed(("", -1), 10):
        assert pin.kept <= archive.safe + 1
    producer = Producer(node)
    owner = Owner(node, bytes([turn + 1]) * PID_BYTES)
    for step in range(TURNS):
        values = [
            b"%d.%d.%d" % (turn, step, each) + bytes(200) for each in range(rng.randint(1, 9))
        ]
        await producer.produce("t", values)
        if rng.random() < 0.4:
            await archive_some(node, archive, rng)
        if rng.random() < 0.1:
            more = {"max_entries": rng.choice([5, 20, 60])}
            await owner.order(makers.configure, "t", more)


@pytest.mark.parametrize("seed", range(12))
def test_what_the_archive_lacks_is_kept_through_every_death_of_the_node(seed: int) -> None:
    machine, archive, seen = Machine(seed), Archive(), dict[int, bytes]()
    rng = random.Random(seed)
    deaths = 0
    for turn in range(LIVES):
        if rng.random() < 0.8:
            machine.media.crash_before(rng.randint(1, WRITES_MAX))
        try:
            run(machine, partial(live, archive=archive, seen=seen, rng=rng, turn=turn))
        except SimCrashed:
            deaths += 1
            machine.media.power_loss() if rng.random() < 0.5 else machine.media.kill()

    assert deaths
    run(machine, lambda node: live(node, archive, seen, rng, LIVES))
    assert archive.rows
