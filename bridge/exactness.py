"""Exactness: whose memory of a view may be trusted to hold all that the member acked in it (X1).

The cut of the next view is the least that the exact ones journaled.  An amnesiac that reported in
good faith what it *now* has would cut away what others have delivered.  So the question is never
"have I got the view mark": a node that lost its end and followed the row again has it, and an
empty memory of what it acked.  The question is what the incarnation that the view names could lose.
"""

from __future__ import annotations

from collections.abc import Mapping

from duckrow.node.forms import Start
from duckrow.node.row import View
from duckrow.node.storeoptions import FSYNC

from .electorate import incarnation_of, votes


def is_exact(
    view: View,
    id_: int,
    *,
    installed: int,  # the view of the last mark in the row here
    uuid: bytes,
    incarnation: int,  # this one
    starts: Mapping[int, Start],  # of incarnations, this one too
) -> bool:
    named = incarnation_of(view, id_)
    if named is None or installed != view.id or not votes(view, id_, uuid):
        return False
    if named == incarnation:
        return True  # (a) it is the very process
    before = starts.get(named)
    if before is None:
        return False  # the start itself was lost
    # Acks waited for what the view says, whatever the cluster file said when it started (N8).
    if view.durability == FSYNC or before.clean:
        return True  # (b) it acked nothing that was not durable, (d) or made all durable at its end
    # (c) The kernel still has what it wrote, at level memory as at write: that was before any ack.
    return before.boot_id == starts[incarnation].boot_id
