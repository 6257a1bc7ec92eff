"""What the cluster file says of one bridge, and what must not be otherwise in its folder.  Pure, but
for the chance that names a cluster that is not there yet.
"""

from __future__ import annotations

import random

import attrs

from duckrow.node.addresses import Tcp
from duckrow.node.clusterfile import BEAT_SECONDS, ClusterFile, Peer
from duckrow.node.errors import Conflict
from duckrow.node.forms import UUID_BYTES
from duckrow.node.row import View
from duckrow.node.storeoptions import StoreOptions

from .founding import LINEAGE_BITS, Charter, Listed
from .handshake import check_secret
from .links import Neighbour
from .options import BridgeOptions
from .timing import Timing


def options_of(
    cluster: ClusterFile,
    own: Peer,
    store: StoreOptions,
    rng: random.Random,
    listen: Tcp | None = None,
) -> BridgeOptions:
    """`listen`: if that is not where the others find it.

    Raises:
        Refused: others than processes of this machine could come in.
    """
    listen = listen or own.address
    check_secret(cluster.secret, [listen, *(peer.address for peer in cluster.peers.values())])
    founders = tuple((p.id, p.votes, not p.witness) for p in cluster.peers.values() if p.votes)
    charter = Charter(
        founders,
        cluster.id or rng.randbytes(UUID_BYTES),
        rng.getrandbits(LINEAGE_BITS),
        cluster.durability,
        cluster.min_copies,
    )
    links, standby = (
        {
            peer.id: Neighbour(peer.id, peer.name, peer.address.port)
            for peer in cluster.neighbours(own.id, standby=spare)
        }
        for spare in (False, True)
    )
    return BridgeOptions(
        id=own.id,
        port=listen.port,
        neighbours=links,
        standby=standby,
        secret=cluster.secret,
        store=attrs.evolve(store, level=cluster.durability),
        timing=Timing().scaled(cluster.beat / BEAT_SECONDS),
        charter=charter if own.votes else None,
        cluster=cluster.id,
        listed={p.id: Listed(p.name, p.votes, p.witness) for p in cluster.peers.values()},
    )


def check_row(view: View | None, cluster: ClusterFile, own: Peer, uuid: bytes) -> None:
    """That the row in the folder, whose newest view this is, may be this member's.

    Raises:
        Conflict.
    """
    if view is None:
        return
    if cluster.id and view.cluster != cluster.id:
        raise Conflict(
            f"the row here belongs to cluster {view.cluster.hex()}, and the cluster file is of "
            f"{cluster.id.hex()}: rows of different clusters are never merged"
        )
    for id_, _, disk, _ in view.voters:
        if disk == uuid and id_ != own.id:
            raise Conflict(
                f"the row here is that of member {id_}, and the cluster file gives {own.name} the "
                f"id {own.id}: a machine keeps its id; one that was alone has the id 1"
            )
