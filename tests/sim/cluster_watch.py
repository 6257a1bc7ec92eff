"""What is looked at inside a cluster while it runs: all nodes make one state of one row.

Every item that any life of any node applies is the item that the first one applied at that position;
and the states at a position have one hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from duckrow.node.capture import state_hash
from duckrow.node.effects import Effect
from duckrow.node.keeper import Keeper
from duckrow.node.row import Item, View

from .cluster_machine import Machine
from .lives import Lives
from .watch import look_at_queues
from .workload import Observed

HASH_EVERY = 64  # items
CHANGED = "z"  # the topic that is deleted, made anew and grown, where a plan has that


class ClusterWatch:
    def __init__(self, seen: Observed) -> None:
        self._seen = seen
        self.position = 0  # of the last item that anybody has applied
        self._items: dict[int, int] = {}  # crc of the item at each position
        self._hashes: dict[int, bytes] = {}
        self.lives = Lives(CHANGED)
        self.marks: dict[int, int] = {}  # by view, its position
        self.on_moment: Callable[[Machine, str], None] = lambda _machine, _moment: None

    def attach(self, machine: Machine, node: Keeper) -> None:
        note, number = node.on_progress, node.numbers.note
        self.compare(machine, node)
        self.lives.look(node)

        def numbered(
            position: int, place: int, effects: Iterable[Effect], places: Mapping[int, int]
        ) -> None:
            self.lives.take(effects)
            number(position, place, effects, places)

        def applied(item: Item) -> None:
            self.position = max(self.position, item.position)
            known = self._items.setdefault(item.position, item.crc)
            if known != item.crc:
                self._seen.problem(
                    "row-differs",
                    f"{machine.node_name}: position {item.position} was {known:08x} and is "
                    f"{item.crc:08x}",
                )
            if item.position % HASH_EVERY == 0:
                self.compare(machine, node)
                look_at_queues(node, self._seen)
            self.lives.look(node, item)
            note(item)
            is_mark, view = isinstance(item.content, View), node.state.view
            assert view is not None
            if is_mark:
                self.marks[view.id] = item.position
            else:
                self.check_copies(view)
            self.on_moment(machine, "mark-applied" if is_mark else "applied")

        node.on_progress = applied
        node.numbers.note = numbered  # type: ignore[method-assign]

    def check_copies(self, view: View) -> None:
        """Nothing is ordered in a view that has fewer of them than an operator wants at least."""
        keep = {id_ for id_, _, _, keeps_row in view.voters if keeps_row}
        copies = sum(member.id in keep for member in view.members)
        if copies < view.min_copies:
            text = f"{copies} members of view {view.id} keep the row, {view.min_copies} have to"
            self._seen.problem("few-copies", text)

    def compare(self, machine: Machine, node: Keeper) -> None:
        value, position = state_hash(node.state), node.state.position
        if self._hashes.setdefault(position, value) != value:
            self._seen.problem("state-differs", f"{machine.node_name} at position {position}")
