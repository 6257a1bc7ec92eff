"""The start of a row of one (N7): a new incarnation, and the mark of the next view.

    START fsynced ─► what waits gets its place ─► the mark of view e+1 fsynced ─► it may act

Where acknowledged items may be missing the mark names a new lineage.  Where they certainly are, and
should not be, nothing is written, and the row ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from .chronicle import Chronicle
from .env import Env
from .errors import Conflict, Corrupt
from .proof import Proof
from .registerform import is_binding
from .row import Member, View
from .rowstore import RowStore
from .segments import segment_file
from .storeoptions import FSYNC

INCARNATION_BITS: Final = 64
LINEAGE_BITS: Final = 63
ALONE_ID: Final = 1  # of a node alone
Prove = Callable[[Chronicle, int], Awaitable[Proof | None]]


class NotAlone(Conflict):
    """The row is of a machine of a cluster: its bridge goes on with it, and nobody else."""


def check_alone(chronicle: Chronicle, id_: int = ALONE_ID) -> None:
    """
    Raises:
        NotAlone: the row belongs to a cluster of several, or to another member.
    """
    views = [v for v in (chronicle.newest_view, chronicle.installed_view) if v is not None]
    ids = {member.id for view in views for member in view.members}
    ids |= {voter[0] for view in views for voter in view.voters}
    if is_binding(chronicle.register, chronicle.newest_view) or not ids <= {id_}:
        raise NotAlone(
            f"this row belongs to a cluster of the members {sorted(ids)}, and this is a node "
            f"alone with id {id_}: start it with its bridge, or with the id of the member"
        )


class LoneStart:
    """Of a store that was recovered; `doubted`: a sync of an earlier life failed; `copied`: it was
    restored from a backup, and the original may have gone on.
    """

    def __init__(
        self, store: RowStore, env: Env, id_: int, *, doubted: bool, copied: bool = False
    ) -> None:
        self._store, self._env, self._id = store, env, id_
        self._doubted, self._copied = doubted, copied

    async def begin(self) -> int:
        """START, leftovers and the mark of the next view, durably; the number of that view.

        Raises:
            Full, DiskFailed.
        """
        chronicle, rng, insist = self._store.chronicle, self._env.rng, self._store.reserve.insist
        before = chronicle.newest_view
        lost = self._copied or may_have_lost(chronicle, self._env.boot_id, doubted=self._doubted)
        if self._copied:
            self._store.take_new_name()
        incarnation = rng.getrandbits(INCARNATION_BITS)
        await insist(lambda: self._store.begin(incarnation))
        await insist(self._store.appending.order_waiting)
        if before is None:
            cluster, lineage, number = rng.randbytes(16), rng.getrandbits(LINEAGE_BITS), 1
        else:
            cluster, lineage, number = before.cluster, before.lineage, before.id + 1
            if lost:
                lineage = rng.getrandbits(LINEAGE_BITS)
        view = View(
            id=number,
            members=(Member(self._id, incarnation, 1),),
            cluster=cluster,
            lineage=lineage,
            durability=self._store.options.level,
            voters=((self._id, 1, self._store.uuid, True),),
            cut=((self._id, chronicle.heard.get(self._id, 0)),) if before else (),
            cont=(self._id,) if before else (),
        )
        await insist(lambda: self._store.appending.install(view))
        await self._store.sync()
        return number


async def lost_end(
    prove: Prove, chronicle: Chronicle, last: int, boot_id: str, *, doubted: bool
) -> Corrupt | None:
    """Why nothing may be written behind the last item that is there, nor anything be cut off.

    `last` is the segment that the row ends in.
    """
    proof = await prove(chronicle, last)
    # Where acknowledged items may be missing anyway, a new lineage says so.
    if proof is None or may_have_lost(chronicle, boot_id, doubted=doubted):
        return None
    return Corrupt(
        f"the row ends at position {chronicle.position}, and had come to {proof.position}, as "
        f"{proof.file} says: the end of {segment_file(last)}, or a file behind it, is lost"
    )


def may_have_lost(chronicle: Chronicle, boot_id: str, *, doubted: bool = False) -> bool:
    """May the incarnation that the newest view names have acknowledged what is no longer there?

    Its own start says under which boot it ran; without one (damage) it may have been another.
    `doubted`: a sync failed, and what it should have made durable may have left the cache, too.
    """
    view = chronicle.newest_view
    if view is None or view.durability == FSYNC:
        return False
    start = chronicle.starts.get(view.members[0].incarnation)
    if doubted or start is None:
        return True
    return not (start.clean or start.boot_id == boot_id)
