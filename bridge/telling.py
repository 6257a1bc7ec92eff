"""What a bridge tells of itself: its links, what stands still in it, and for whom it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from duckrow.node.row import RowStatus

from .electorate import missing

if TYPE_CHECKING:
    from .process import Bridge

WAITED_BEATS: Final = 5  # so long an ack may take before somebody is said to be waited for


def status_of(bridge: Bridge) -> RowStatus:
    standing, store = bridge.member.standing, bridge.store
    return RowStatus(
        active=standing.active,
        members=tuple(member.id for member in standing.newest.members),
        position=store.position,
        durable=min(store.position, store.durable_position),
        view=standing.newest.id,
        disk=store.reserve.state,
        missing=() if standing.active else _missing(bridge),
        witness=standing.is_witness,
    )


def _missing(bridge: Bridge) -> tuple[str, ...]:
    """Without which machines nothing can be ordered; none: what there is, is enough."""
    standing, charter = bridge.member.standing, bridge.options.charter
    reached, name = set(bridge.member.neighbours.routes.paths), bridge.options.name_of
    if standing.newest.id:
        away, how = missing(standing.newest, reached - strangers_of(bridge)), "with its former disk"
    else:  # it is founded when all are there (G1), and somebody's cluster file may say otherwise
        asking = reached & {standing.id, *bridge.member.calling.joins()}
        founders = charter.founders if charter is not None else ()
        away, how = [each[0] for each in founders if each[0] not in asking], "as a founder"
    return tuple([f"{name(id_)} {how}" if id_ in reached else name(id_) for id_ in away])


def strangers_of(bridge: Bridge) -> set[int]:
    """Who is there in the place of a voter with another disk: it promises nothing (U2)."""
    disks = {id_: hello.uuid for id_, hello in bridge.links.linked().items()}
    disks |= {id_: join.uuid for id_, join in bridge.member.calling.joins().items()}
    voters = bridge.member.standing.newest.voters
    return {id_ for id_, _, uuid, _ in voters if disks.get(id_, uuid) != uuid}


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
    if away := bridge.status().missing:
        return list(away)
    if not bridge.member.standing.active:
        return []
    seconds = WAITED_BEATS * bridge.options.timing.beat
    return [bridge.options.name_of(id_) for id_ in bridge.member.suspicion.awaited(seconds)]
