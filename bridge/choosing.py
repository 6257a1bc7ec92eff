"""Choosing: what the next view should be, given what a majority of the voters reported.

    cut       for each origin the least that the exact ones hold.  Whatever anybody delivered was
              acked by all of them, so it is inside; and all of them hold it, so nobody has to
              fetch anything, whoever dies next
    members   the exact ones, and whoever else is so close that the rest comes while the view waits
    voters    as before, but for fresh disks, and at most one other change

None: nothing safe can be proposed with these reports; more of them may help.

Pure: the same reports give the same view.  That two proposers may choose differently is the
register's concern.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import attrs

from duckrow.node.row import Member, View

from .electorate import Voter
from .messages import Join, Report


def choose(
    view: View,
    reports: Mapping[int, Report],
    joins: Mapping[int, Join],
    *,
    lag_items: int,
    retired: int | None = None,
    leaving: AbstractSet[tuple[int, int]] = frozenset(),  # (id, incarnation)
) -> View | None:
    """The view after `view` (V4, V5).  `joins` are recent ones only.

    What would leave no majority is not granted: nobody gets another vote, goes or leaves then (N8).
    """
    found = _choose(view, reports, joins, lag_items, retired, leaving)
    if found is None:
        modest = {id_: join._replace(wish=0) for id_, join in joins.items()}
        found = _choose(view, reports, modest, lag_items, None, frozenset())
    return found


def _choose(
    view: View,
    reports: Mapping[int, Report],
    joins: Mapping[int, Join],
    lag_items: int,
    retired: int | None,
    leaving: AbstractSet[tuple[int, int]],
) -> View | None:
    exact = {id_ for id_, report in reports.items() if report.exact}
    gone = {id_ for id_, report in reports.items() if (id_, report.incarnation) in leaving}
    if retired is not None and exact - gone - {retired}:
        gone.add(retired)  # somebody has to carry the view over (R1)
    else:
        retired = None
    cont = exact - gone or exact
    if not cont:
        return None
    top = max(reports[id_].position for id_ in cont)
    voters = {voter[0]: Voter(*voter) for voter in view.voters}
    members = {id_: reports[id_].incarnation for id_ in cont}
    if retired is not None:
        voters.pop(retired, None)
    for id_, report in reports.items():
        if id_ not in gone and voters[id_].data and report.position >= top - lag_items:
            members.setdefault(id_, report.incarnation)
    one_change = retired is not None
    for id_, join in sorted(joins.items()):
        if id_ in gone or join.view != view.id:
            continue
        voter = voters.get(id_)
        caught_up = join.position >= top - lag_items
        if voter is None:
            if join.wish and caught_up and not one_change:  # R1, R2
                voters[id_] = Voter(id_, join.wish, join.uuid, True)
                members[id_] = join.incarnation
                one_change = True
        elif voter.uuid != join.uuid:  # U3; a witness has nothing to catch up
            if not voter.data or caught_up:
                voters[id_] = voter._replace(uuid=join.uuid)
                if voter.data:
                    members[id_] = join.incarnation
        elif join.wish and join.wish != voter.weight and not one_change:
            voters[id_] = voter._replace(weight=join.wish)
            one_change = True
    copies = sum(voters[id_].weight for id_ in members)
    votes = sum(v.weight for v in voters.values() if v.id in reports and not v.data)
    if 2 * (copies + votes) <= sum(voter.weight for voter in voters.values()):
        return None  # V5
    journals = [reports[id_].journaled or {} for id_ in cont]
    return attrs.evolve(
        view,
        id=view.id + 1,
        members=tuple(Member(i, members[i], voters[i].weight) for i in sorted(members)),
        voters=tuple(voters[id_] for id_ in sorted(voters)),
        cut=tuple((m.id, min(each.get(m.id, 0) for each in journals)) for m in view.members),
        cont=tuple(sorted(cont)),
    )
