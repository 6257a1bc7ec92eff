"""Founding: the first view of a cluster, made once (G1).

The founder with the lowest id makes it when *all* of them are heard and blank.  Each needs it before
anything can be ordered, since every member has to ack, so a founding that goes wrong loses nothing: whoever
got another first view is refused by its cluster id, loudly.  Who is not blank never founds; so nobody
knows it before it is durable, the founder itself neither, or its next process might make another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import attrs

from duckrow.node.row import Member, View

from .messages import Join

LINEAGE_BITS: Final = 63


@attrs.frozen
class Charter:
    """What the configuration says of a cluster that is not there yet."""

    founders: tuple[tuple[int, int, bool], ...]  # (id, weight, data?)
    cluster: bytes  # 16 random bytes of this process
    lineage: int
    durability: str
    min_copies: int = 1

    def names(self, id_: int) -> bool:
        return any(founder[0] == id_ for founder in self.founders)


class Listed(NamedTuple):
    """What the configuration says of one machine; the view may say otherwise, and rules."""

    name: str
    votes: int
    witness: bool


def first_view(charter: Charter, me: int, joins: Mapping[int, Join]) -> View | None:
    """None: it is not mine to make, or not all are there and blank."""
    ids = [founder[0] for founder in charter.founders]
    if me != min(ids) or any(id_ not in joins for id_ in ids):
        return None
    if any(joins[id_].view or joins[id_].position for id_ in ids):
        return None
    return View(
        id=1,
        members=tuple(
            Member(id_, joins[id_].incarnation, weight)
            for id_, weight, data in charter.founders
            if data
        ),
        cluster=charter.cluster,
        lineage=charter.lineage,
        durability=charter.durability,
        min_copies=charter.min_copies,
        voters=tuple((i, weight, joins[i].uuid, data) for i, weight, data in charter.founders),
    )
