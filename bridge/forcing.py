"""Forcing: how a cluster goes on from one machine, when those that could decide are gone for good (R4).

No majority has promised anything, so what the others acknowledged may be missing here, and they may
still run.  So the forced view begins another cluster: it has a new id, which every machine of the old
one is refused by until its disk is wiped, and a new lineage, by which clients see that entries they
know of may be gone.  The machine is its only voter; others are added as to any cluster.

All bundles that this machine has journaled of the view it installed are in the cut.  So if it was an
active member nothing that was acknowledged in that view is lost, since it acked all of it (O1).

Pure; only an operator asks for it, and `admin.py` says what may be lost.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from duckrow.node.row import Member, View

from .electorate import NOTHING


def forced_view(
    newest: View,
    me: int,
    uuid: bytes,
    incarnation: int,
    cut: Mapping[int, int],  # of the installed view
    cluster: bytes,
    lineage: int,
) -> View:
    """What follows `newest`, the last view that is known here, whether it is installed or not."""
    assert newest is not NOTHING
    return attrs.evolve(
        newest,
        id=newest.id + 1,
        members=(Member(me, incarnation, 1),),
        cluster=cluster,
        lineage=lineage,
        min_copies=1,
        voters=((me, 1, uuid, True),),
        cut=tuple(sorted(cut.items())),
        cont=(me,),
    )


def may_skip(view: View) -> bool:
    """Whether views may be missing before it: a machine that is forced need not have had them."""
    return len(view.voters) == 1 and view.cont == (view.voters[0][0],)
