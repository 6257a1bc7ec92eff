"""Whether nodes have the same row, by the digests of it up to any position."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from duckrow.node.blocking import Client
from duckrow.node.errors import Corrupt, NotFound

Digest = Callable[[int], bytes | None]  # of a node's row up to a position; None: not known there


def digest_of(client: Client) -> Digest:
    def digest(position: int) -> bytes | None:
        try:
            return client.digest(position)
        except (NotFound, Corrupt):
            return None

    return digest


def compared(statuses: Sequence[Mapping[str, Any]], digests: Sequence[Digest]) -> dict[str, Any]:
    """The rows up to the position that all have come to; and the states, where they are of one.

    `unknown` are the nodes that do not keep their digest of that position any more: their rows are compared
    with nobody's.
    """
    position = min(status["position"] for status in statuses)
    here = [digest(position) for digest in digests]
    first = None if _alike(here) else _first(digests, position)
    hashes: dict[int, set[str]] = {}
    for status in statuses:
        hashes.setdefault(status["hashed"], set()).add(status["state_hash"])
    if first is None:
        first = min((at for at, found in hashes.items() if len(found) > 1), default=None)
    return {
        "same": first is None,
        "position": position,
        "nodes": {
            status["node"]: {"position": status["position"], "hash": status["state_hash"]}
            for status in statuses
        },
        "first_difference": first,
        "unknown": [
            status["node"] for status, digest in zip(statuses, here, strict=True) if digest is None
        ],
    }


def apart(rows: Sequence[tuple[str, int, str]]) -> list[dict[str, Any]]:
    """The rows that these are: with the lineage, the cluster if one is known, and the nodes of each; empty: one.

    A lineage, which a forced view and whatever else may lose entries begins, is what makes a row another one
    to clients, too.  Of each node come its name, lineage and cluster; lineage 0: it has no row yet.
    """
    found: dict[int, dict[str, Any]] = {}
    for name, lineage, cluster in rows:
        if lineage:
            each = found.setdefault(lineage, {"lineage": lineage, "cluster": cluster, "nodes": []})
            each["cluster"] = each["cluster"] or cluster
            each["nodes"].append(name)
    return [*found.values()] if len(found) > 1 else []


def _alike(digests: Sequence[bytes | None]) -> bool:
    """As far as they are known: what a node keeps no more, it cannot be asked for."""
    return len({digest for digest in digests if digest is not None}) <= 1


def _first(digests: Sequence[Digest], position: int) -> int:
    """Of the positions at which they differ: a digest is of all up to there."""
    same, differs = 0, position
    while differs - same > 1:
        middle = (same + differs) // 2
        if _alike([digest(middle) for digest in digests]):
            same = middle
        else:
            differs = middle
    return differs
