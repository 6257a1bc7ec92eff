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

from .changing import applied
from .electorate import Voter, voter_of
from .messages import Change, Join, Report


def choose(
    view: View,
    reports: Mapping[int, Report],
    joins: Mapping[int, Join],
    *,
    lag_items: int,
    change: Change | None = None,
    leaving: AbstractSet[tuple[int, int]] = frozenset(),  # (id, incarnation)
) -> View | None:
    """The view after `view` (V4, V5).  `joins` are recent ones only.

    What would leave no majority is not granted: then nobody gets another vote, after that some have to stay,
    or all (N8).  Those who are slow, or end, go first, then those who need an image, and at last who is held off
    for its disk.  Who has to stay is no reason to grant less.
    """
    needs = {(id_, each.incarnation) for id_, each in reports.items() if not each.comes}
    late = {(id_, each.incarnation) for id_, each in reports.items() if each.held_off}

    def without(gone: AbstractSet[tuple[int, int]]) -> View | None:
        found = _choose(view, reports, joins, lag_items, change, gone)
        return found or _choose(view, reports, joins, lag_items, None, gone)

    gone = frozenset[tuple[int, int]]()
    found = without(gone)
    for each in (*sorted(leaving - needs), *sorted(needs), *sorted(late - needs - leaving)):
        smaller = without(gone | {each})
        if smaller is not None:
            gone, found = gone | {each}, smaller
    return found


def _choose(
    view: View,
    reports: Mapping[int, Report],
    joins: Mapping[int, Join],
    lag_items: int,
    change: Change | None,
    leaving: AbstractSet[tuple[int, int]],
) -> View | None:
    exact = {id_ for id_, report in reports.items() if report.exact}
    gone = {id_ for id_, report in reports.items() if (id_, report.incarnation) in leaving}
    cont = exact - gone
    if not cont:
        return None
    behind = max(reports[id_].position for id_ in cont) - lag_items
    whole = {id_ for id_ in cont if reports[id_].comes}
    # Somebody has to carry the view over, and if it can be had, to give images of the row (R1).
    wanted, goes = applied(view, change, joins, whole or cont, behind)
    cont -= goes
    gone |= goes
    voters = {voter[0]: Voter(*voter) for voter in wanted.voters}
    members = {id_: reports[id_].incarnation for id_ in cont}
    for id_, report in reports.items():
        caught_up = report.comes and report.position >= behind
        if id_ not in gone and voters[id_].data and caught_up:
            members.setdefault(id_, report.incarnation)
    for id_, join in sorted(joins.items()):
        voter = voters.get(id_)
        if voter is None or id_ in gone or join.view != view.id:
            continue
        caught_up = join.position >= behind
        if voter.uuid != join.uuid:  # U3; a witness has nothing to catch up
            if not voter.data or caught_up:
                voters[id_] = voter._replace(uuid=join.uuid)
                if voter.data:
                    members[id_] = join.incarnation
        elif voter.data and voter_of(view, id_) is None:
            members[id_] = join.incarnation  # a new voter (R1)
    copies = sum(voters[id_].weight for id_ in members)
    votes = sum(v.weight for v in voters.values() if v.id in reports and not v.data)
    if 2 * (copies + votes) <= sum(voter.weight for voter in voters.values()):
        return None  # V5
    if len(members) < wanted.min_copies:
        return None  # nobody would act in it (V10), and one like it would follow, for ever
    journals = [reports[id_].journaled or {} for id_ in cont]
    return attrs.evolve(
        wanted,
        id=view.id + 1,
        members=tuple(Member(i, members[i], voters[i].weight) for i in sorted(members)),
        voters=tuple(voters[id_] for id_ in sorted(voters)),
        cut=tuple((m.id, min(each.get(m.id, 0) for each in journals)) for m in view.members),
        cont=tuple(sorted(cont)),
    )
