"""Changing: what an operator may have of the next view, and what stands against it.

One voter at a time, or one setting.  Agreement would survive more, since the voters of a view decide
on the next one; but each change may leave a member behind, and two at once more copies than one
may lose (R2).

    wanted ──► objection? ──► flooded ──► the next view has it, or what stood against it is told

Pure: the operator's bridge asks here before it says anything, and whoever chooses the next view
asks again, since things may have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import attrs

from duckrow.node.row import View
from duckrow.node.storeoptions import LEVELS

from .electorate import Voter, voter_of
from .messages import Change, Join

WEIGHT_MAX: Final = 1000  # sums of them stay small
ID_MAX: Final = 1 << 16


def is_done(view: View, change: Change) -> bool:
    """Whether this view is as wanted."""
    voter = voter_of(view, change.id)
    if change.id and change.weight != (0 if voter is None else voter.weight):
        return False
    if change.instead_of and voter_of(view, change.instead_of):
        return False
    return (
        change.min_copies in (0, view.min_copies)
        and change.durability in ("", view.durability)  # N8
    )


def applied(
    view: View, change: Change | None, joins: Mapping[int, Join], cont: Collection[int], behind: int
) -> tuple[View, frozenset[int]]:
    """The view with its settings and voters as wanted, and who goes; as it is, if that cannot be.

    `cont` carry the old view over, and one of them has to stay; below position `behind` a newcomer
    has not caught up.
    """
    nothing: frozenset[int] = frozenset()
    if change is None or change.view != view.id or is_done(view, change):
        return view, nothing
    goes = change.instead_of or (change.id if not change.weight else 0)
    voters = {voter[0]: Voter(*voter) for voter in view.voters}
    if goes and (goes not in voters or not set(cont) - {goes}):
        return view, nothing
    if change.id and change.weight:
        voter, join = voters.get(change.id), joins.get(change.id)
        if voter is not None:
            voters[change.id] = voter._replace(weight=change.weight)
        elif join is None or (change.data and (join.view != view.id or join.position < behind)):
            return view, nothing
        else:
            voters[change.id] = Voter(change.id, change.weight, join.uuid, change.data)
    voters.pop(goes, None)
    wanted = attrs.evolve(
        view,
        voters=tuple(voters[id_] for id_ in sorted(voters)),
        min_copies=change.min_copies or view.min_copies,
        durability=change.durability or view.durability,
    )
    return wanted, frozenset({goes}) if goes else nothing


def objection(
    view: View,
    change: Change,
    come: Collection[int],
    reached: Collection[int],
    name: Callable[[int], str] = "node {}".format,
) -> str:
    """Why it may not be, as far as can be known before it is tried; empty: nothing is known.

    `come`: voters that the next view can count on; `reached`: nodes that there is a way to.
    """
    voters = {voter[0]: Voter(*voter) for voter in view.voters}
    id_, weight = change.id, change.weight
    if change.durability not in ("", *LEVELS):
        return f"durability {change.durability!r} is none of {', '.join(LEVELS)}"
    if weight > WEIGHT_MAX:
        return f"a weight is at most {WEIGHT_MAX}, and {weight} is more"
    if id_ > ID_MAX:
        return f"an id is at most {ID_MAX}, and {id_} is more"
    if change.instead_of:
        if change.instead_of not in voters:
            return f"{name(change.instead_of)} has no vote in view {view.id}"
        if id_ in voters:
            return f"{name(id_)} has a vote in view {view.id} already"
    if id_ and not weight and id_ not in voters:
        return f"{name(id_)} has no vote in view {view.id}"
    if id_ and weight and id_ not in voters and id_ not in reached:
        return f"{name(id_)} is not reached: it has to run, and to have a link with the others"
    if id_ in voters and weight and voters[id_].data != change.data:
        return f"node {id_} is {'no ' if voters[id_].data else 'a '}witness: retire it, and add it anew"
    voters.pop(change.instead_of, None)
    if id_ and not weight:
        del voters[id_]
    elif id_:
        known = voters.get(id_, Voter(id_, weight, b"", change.data))
        voters[id_] = known._replace(weight=weight)
    copies = change.min_copies or view.min_copies
    holders = [voter for voter in voters.values() if voter.data]
    here = set(come)
    if change.data and voter_of(view, id_) is None:
        here.add(id_)  # a new witness would have promised nothing
    running = [voter for voter in voters.values() if voter.id in here]
    if not holders:
        return "no voter that keeps the row would be left"
    if len(holders) < copies:
        return f"{copies} copies are the least that may be, and {len(holders)} voters would keep the row"
    if change.min_copies and sum(voter.data for voter in running) < copies:
        return f"only {sum(v.data for v in running)} of the voters that keep the row run, and have caught up"
    there, all_ = sum(v.weight for v in running), sum(v.weight for v in voters.values())
    if 2 * there <= all_:
        return (
            f"no majority would be left: of a weight of {all_} voters with {there} seem to run, and have "
            "caught up"
        )
    return ""
