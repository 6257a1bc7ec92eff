"""What a bridge tells of itself: its links, what stands still in it, and for whom it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .process import Bridge

WAITED_BEATS: Final = 5  # so long an ack may take before somebody is said to be waited for


def told(bridge: Bridge, now: float) -> dict[str, Any]:
    """For `duckrow status`.  A standby link is told of while it is there."""
    links = {*bridge.options.neighbours, *bridge.member.neighbours.linked}
    return {
        "links": [_link(bridge, id_, now) for id_ in sorted(links)],
        "waiting_for": _waiting_for(bridge),
        "backlog": len(bridge.member.ordering.pending),
        "staged": len(bridge.staging.bundles),
        "damaged": bridge.repair.told(),
    }


def _link(bridge: Bridge, id_: int, now: float) -> dict[str, Any]:
    neighbour = bridge.member.neighbours.of(id_)
    link = None if neighbour is None else neighbour.link
    return {
        "peer": bridge.options.name_of(id_),
        "up": neighbour is not None,
        "refused": id_ in bridge.links.refused,
        "trouble": "" if neighbour is not None else bridge.links.trouble(id_),
        "heard": None if neighbour is None else round(now - neighbour.heard, 3),  # seconds ago
        "queued": bridge.links.waiting_bytes(id_),
        "position": None if link is None else link.position,
        "view": None if link is None else link.view,
        "disk": "" if link is None else link.disk,
        "follows": neighbour is not None and neighbour.served is not None,
    }


def _waiting_for(bridge: Bridge) -> list[str]:
    """Without whom nothing goes on; empty: nothing stands still, or not for a neighbour."""
    if missing := bridge.status().missing:
        return list(missing)
    if not bridge.member.standing.active:
        return []
    seconds = WAITED_BEATS * bridge.options.timing.beat
    return [bridge.options.name_of(id_) for id_ in bridge.member.suspicion.awaited(seconds)]
