"""A note in the folder of a bridge: with which machines it has no link.  For experiments (cluster/cuts.py).

Whoever cuts links writes the note and tells the bridge, if there is one; a bridge that starts reads it before it
listens.  So a cut holds however often a bridge is killed and started, until whoever made it takes it back.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from duckrow.node.clusterfile import ClusterFile

NOTE: Final = "refused"


def note(names: Collection[str]) -> str:
    return "".join(f"{name}\n" for name in sorted(names))


def refused(data: Path, cluster: ClusterFile) -> frozenset[int]:
    """The ids of those whom the note names; nobody, where there is none."""
    try:
        names = (data / NOTE).read_text("utf-8").splitlines()
    except FileNotFoundError:
        return frozenset()
    return frozenset(peer.id for peer in cluster.peers.values() if peer.name in names)
