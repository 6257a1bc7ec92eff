"""What is looked at inside the node while it runs, in every life of it.

Every item that any life applies is the same item as any earlier life applied at that position, and
the state's hash at a position is always the same, or a new lineage says why not.  A row that ended,
damaged, stays ended.  Nobody waits for room that is there.
"""

from __future__ import annotations

from math import inf

import trio

from duckrow.node.capture import state_hash
from duckrow.node.keeper import Keeper
from duckrow.node.row import Item
from duckrow.node.rowstore import RowStore

from .service import NODE
from .workload import Observed
from .world import World

HASH_EVERY = 64  # items


def cut_bytes(node: Keeper) -> int:
    """How much this start took for what was not durable."""
    assert isinstance(node.row.store, RowStore)
    return node.row.store.recovered.cut_bytes


def look_at_queues(node: Keeper, seen: Observed) -> None:
    """The first of those who wait does not fit; else it would not wait."""
    state = node.state
    for queue in state.queues.values():
        batch = state.waiting.rows[next(iter(queue))]
        topic = state.topics.rows[batch.topic]
        now, policy = state.partition(topic.id, batch.partition), topic.policy
        count = now.last - now.first + 1 + batch.entries
        if not (policy.max_entries and count > policy.max_entries) and not (
            policy.max_bytes and now.size + batch.size > policy.max_bytes
        ):
            seen.problem("waits-with-room", f"{batch.topic}/{batch.partition}")


class Watch:
    def __init__(self, world: World, seen: Observed) -> None:
        self._world, self._seen = world, seen
        self._items: dict[int, int] = {}  # crc of the item at each position
        self._hashes: dict[int, bytes] = {}
        self._lineage = 0

    def attach(self, node: Keeper) -> None:
        """Looks at each item when it was applied, before anybody else does."""
        note = node.on_progress
        self._note_lineage(node)
        self._note_end(node)
        self._compare_hash(node)

        def applied(item: Item) -> None:
            known = self._items.setdefault(item.position, item.crc)
            if known != item.crc:
                self._seen.problems.append(
                    f"row-changed: position {item.position} was {known:08x} and is {item.crc:08x}"
                )
            if item.position % HASH_EVERY == 0:
                self._compare_hash(node)
                self._note_covered(node)
                look_at_queues(node, self._seen)
            note(item)

        node.on_progress = applied

    def _note_lineage(self, node: Keeper) -> None:
        seen = self._seen
        lineage = node.state.view.lineage if node.state.view is not None else 0
        if lineage != self._lineage and seen.doubted and seen.flips and cut_bytes(node):
            # Nothing behind a failed sync tells whether what is damaged had been durable: the row
            # ends before it, though no power was lost.
            seen.lose()
        if seen.ambiguous or ((seen.lossy or seen.doubted) and lineage != self._lineage):
            # What a loss of power, or a disk that failed a sync, took: others may now be in its
            # place, and the lineage says so.
            self._items.clear()
            self._hashes.clear()
        elif lineage != self._lineage and self._lineage and not (seen.flips or seen.doubted):
            seen.problems.append("lineage: there is a new one, and nothing can be lost")
        seen.new_lineage |= self._lineage not in (0, lineage)
        self._lineage = lineage
        seen.fresh, seen.ambiguous = None, False

    def _note_end(self, node: Keeper) -> None:
        """Damage may end the row: from then on it takes nothing, and never goes on.

        Unless it was no damage: the disk did not give at one start what it gave at the next.
        """
        broken, seen = node.row.broken, self._seen
        if broken is not None and seen.history.broken == inf:
            seen.history.broken = trio.current_time()
            self._world.note("broken")
            if not seen.wild:
                seen.problems.append(f"broken: {broken}, and nothing that it needs was damaged")
        elif broken is None and seen.history.broken < inf and "read-error" not in seen.plan.faults:
            seen.problems.append("broken: the row had ended, and goes on")

    def _compare_hash(self, node: Keeper) -> None:
        value = state_hash(node.state)
        if self._hashes.setdefault(node.state.position, value) != value:
            self._seen.problems.append(f"state-differs: at position {node.state.position}")

    def _note_covered(self, node: Keeper) -> None:
        names = self._world.hosts[NODE].media.paths()
        snapshots = sorted(name for name in names if name.startswith("state/snapshot-"))
        if snapshots:
            below = int(snapshots[0].removeprefix("state/snapshot-"))
            self._seen.covered = {
                f"{info.number:08d}.seg"
                for info in node.row.store.segments()
                if info.sealed and info.last < below
            }
