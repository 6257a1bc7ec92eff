"""Questions to a view: who votes, with which disk and weight, and who acts in it.

`voters` decide on the next view; `members` are the incarnations that must ack everything in this
one.  A voter is its id *with its disk*: a wiped machine is a stranger with a familiar id, since it
forgot what it promised (U2).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from duckrow.node.row import View

# Before any view is known here: nobody votes, nobody acts.
NOTHING: Final = View(id=0, members=(), cluster=b"", lineage=0, durability="fsync")


class Voter(NamedTuple):
    id: int
    weight: int
    uuid: bytes  # of its disk
    data: bool  # False: a witness, which votes and relays but keeps no row


def voter_of(view: View, id_: int) -> Voter | None:
    for voter in view.voters:
        if voter[0] == id_:
            return Voter(*voter)
    return None


def votes(view: View, id_: int, uuid: bytes) -> bool:
    """U2: right id and right disk."""
    voter = voter_of(view, id_)
    return voter is not None and voter.uuid == uuid


def incarnation_of(view: View, id_: int) -> int | None:
    """Which run of this node acts as a member; None: none does."""
    for member in view.members:
        if member.id == id_:
            return member.incarnation
    return None


def is_majority(view: View, ids: Collection[int]) -> bool:
    """More than half of all weights: of the voters, not of the members, and not of the heads (V5)."""
    present = sum(voter[1] for voter in view.voters if voter[0] in ids)
    return 2 * present > sum(voter[1] for voter in view.voters)


def missing(view: View, reached: Collection[int]) -> list[int]:
    """Voters that are away, if those who are not are too few to order anything."""
    copies = sum(voter[0] in reached for voter in view.voters if voter[3])
    if is_majority(view, reached) and copies >= view.min_copies:
        return []
    return [voter[0] for voter in view.voters if voter[0] not in reached]
