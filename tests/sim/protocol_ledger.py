"""The ledger: what must hold, looked at after every step of a simulated cluster.

    ORDER     every node has the same item at a position, and it has the same effects
    SPLIT     one decided view under each number, decided by a majority of those who vote on it
    NAME      one content under a bundle's name
    COPIES    what is delivered lies durably at every member (level fsync)
    BARRIER   whoever waited for a barrier has all that was delivered anywhere before it began
    NUMBERS   entries are numbered without gaps
    DUP       nothing is numbered twice
    FIFO      a producer's entries have its order, and none is left out
    LOST      what was acknowledged is in the row, under that number
    LIVENESS  everything is finished some time after all is well again

The first node that delivers a position says what belongs there; all others are compared at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from duckrow.bridge.effects import Registered
from duckrow.bridge.messages import Ballot, Name, name_of
from duckrow.node.effects import Appended, Effect
from duckrow.node.row import Bundle, View


class Broken(AssertionError):
    """A promise of the protocol does not hold."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind


@attrs.define
class Ledger:
    row: list[Bundle | View] = attrs.field(factory=list)
    effects: list[Sequence[Effect] | None] = attrs.field(factory=list)  # of each item
    views: dict[int, View] = attrs.field(factory=dict)  # decided
    made: dict[Name, Bundle] = attrs.field(factory=dict)
    proposed: dict[tuple[int, Ballot], View] = attrs.field(factory=dict)
    votes: dict[tuple[int, Ballot], set[int]] = attrs.field(factory=dict)
    numbers: dict[tuple[int, int], int] = attrs.field(factory=dict)  # the last of each partition
    placed: dict[bytes, tuple[str, int]] = attrs.field(factory=dict)  # by body: topic, number
    last: dict[bytes, int] = attrs.field(factory=dict)  # by producer, its last entry in the row
    acknowledged: int = 0
    forced: set[bytes] = attrs.field(factory=set)  # clusters that an operator began
    accepted: dict[bytes, tuple[int, bytes]] = attrs.field(factory=dict)  # body: node, its disk

    @property
    def view(self) -> View:
        return self.views[max(self.views)]

    # Views.

    def accepts(self, id_: int, memory: Registered) -> None:
        register, _, ballot, value = memory
        if ballot is None or value is None:
            return
        if self.proposed.setdefault((register, ballot), value) != value:
            raise Broken("SPLIT", f"two values under ballot {ballot} for view {register}")
        self.votes.setdefault((register, ballot), set()).add(id_)

    def learns(self, id_: int, view: View) -> None:
        known = self.views.get(view.id)
        forced = view.cluster in self.forced and all(
            view.cluster != other.cluster for other in self.views.values()
        )
        if known is None and view.id > 1 and not forced and not self._was_decided(view):
            raise Broken("SPLIT", f"node {id_} learns view {view.id}, which nobody decided")
        if self.views.setdefault(view.id, view) != view:
            raise Broken("SPLIT", f"node {id_} learns another view {view.id} than others")

    def _was_decided(self, view: View) -> bool:
        return any(
            register == view.id
            and self.proposed.get((register, ballot)) == view
            and _is_majority(self.views[view.id - 1], voters)
            for (register, ballot), voters in self.votes.items()
        )

    # The row.

    def makes(self, bundle: Bundle) -> None:
        if self.made.setdefault(name_of(bundle), bundle) != bundle:
            raise Broken("NAME", f"two bundles are called {name_of(bundle)}")

    def delivers(
        self, id_: int, position: int, content: Bundle | View, effects: Sequence[Effect] | None
    ) -> None:
        """The effects are not known to a node that has lost its state."""
        if position <= len(self.row):
            there = self.row[position - 1]
            if content is not there and content != there:
                raise Broken(
                    "ORDER",
                    f"node {id_} has {short(content)} at {position}, others {short(there)}",
                )
        elif position == len(self.row) + 1:
            self.row.append(content)
            self.effects.append(None)
        else:
            raise Broken("ORDER", f"node {id_} delivers {position} after {len(self.row)}")
        known = self.effects[position - 1]
        if effects is None or effects == known:
            return
        if known is not None:
            raise Broken("ORDER", f"node {id_} has other effects at {position}")
        self.effects[position - 1] = effects
        for effect in effects:
            if isinstance(effect, Appended):
                self._numbered(effect)

    def _numbered(self, entry: Appended) -> None:
        key = entry.topic_id, entry.partition
        if entry.first != self.numbers.get(key, 0) + 1:
            raise Broken("NUMBERS", f"{entry.topic} has {entry.first} after {self.numbers[key]}")
        self.numbers[key] = entry.first
        content = self.row[entry.position - 1]
        assert isinstance(content, Bundle)
        body = bytes(content.commands[entry.index].body)
        if body in self.placed:
            raise Broken("DUP", f"{body!r} is numbered twice")
        self.placed[body] = entry.topic, entry.first
        producer, _, count = body.partition(b"-")
        if count:
            if int(count) != self.last.get(producer, 0) + 1:
                raise Broken("FIFO", f"{body!r} follows {self.last.get(producer, 0)}")
            self.last[producer] = int(count)

    # What users were told.

    def acknowledges(self, body: bytes, topic: str, number: int) -> None:
        self.acknowledged += 1
        if self.placed.get(body) != (topic, number):
            raise Broken(
                "LOST",
                f"{body!r} was acknowledged as {topic} {number}, is {self.placed.get(body)}",
            )

    def passes(self, id_: int, position: int, least: int) -> None:
        if position < least:
            raise Broken("BARRIER", f"node {id_} answers at {position}, {least} was delivered")


def _is_majority(view: View, ids: set[int]) -> bool:
    """Not the product's own, which may be broken on purpose."""
    weights = {voter[0]: voter[1] for voter in view.voters}
    return 2 * sum(weights[id_] for id_ in ids if id_ in weights) > sum(weights.values())


def short(content: Bundle | View) -> str:
    if isinstance(content, Bundle):
        return f"bundle {name_of(content)} at {content.lamport}"
    members = [(member.id, member.incarnation) for member in content.members]
    return f"view {content.id} of {members}, cut {dict(content.cut)}"
