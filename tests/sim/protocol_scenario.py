"""One seed of the protocol's simulation, from founding to the end, and what came of it."""

from __future__ import annotations

import attrs

from duckrow.node.storeoptions import FSYNC

from .protocol_faults import Faults
from .protocol_ledger import Broken
from .protocol_load import Load
from .protocol_plan import Plan, draw
from .protocol_world import World

FOUNDED_IN = 1.0  # seconds
DISASTER_SECONDS = 2.0  # until an operator has seen it
SETTLES_IN = 25.0  # seconds after all is well again


@attrs.frozen
class Outcome:
    plan: Plan
    kind: str  # "": nothing is wrong
    text: str
    views: int
    items: int
    acknowledged: int
    settled: float  # seconds from the end of the faults until everything was done
    seconds: float  # simulated
    events: int
    marks: dict[str, int]
    story: list[str]

    @property
    def ok(self) -> bool:
        return not self.kind

    def __str__(self) -> str:
        found = f"{self.kind}: {self.text}" if self.kind else "fine"
        return f"{self.plan.profile} {self.plan.seed}: {found}"


def run_seed(seed: int, profile: str = "mixed", *, keep_story: bool = False) -> Outcome:
    plan = draw(seed, profile)
    story: list[str] = []
    world = World(plan, story if keep_story else None)
    kind = text = ""
    settled = 0.0
    try:
        settled = _play(world)
    except Broken as broken:
        kind, text = broken.kind, str(broken).removeprefix(f"{broken.kind}: ")
    except (AssertionError, LookupError, TypeError, ValueError, RecursionError) as crash:
        kind, text = "CRASH", f"{type(crash).__name__}: {crash}"
    return Outcome(
        plan,
        kind,
        text,
        max(world.ledger.views, default=0),
        len(world.ledger.row),
        world.ledger.acknowledged,
        settled,
        world.now,
        world._events,
        dict(world.marks),
        story,
    )


def _play(world: World) -> float:
    plan = world.plan
    world.run_until(FOUNDED_IN)
    if 1 not in world.ledger.views:
        raise Broken("LIVENESS", "the cluster was not founded")
    load, faults = Load(world), Faults(world)
    faults.begin()
    end = FOUNDED_IN + plan.seconds
    while world.now < end and faults.ends_early is None:
        world.run_until(min(world.now + 0.01, end))
    if plan.profile in ("disaster", "ruin") and faults.ends_early is None:
        left = faults.lose_all_but_one()
        world.run_until(world.now + DISASTER_SECONDS)
        if left is not None:
            faults.force(left)
    faults.heal()
    healed = world.now
    world.run_until(healed + 0.3)
    load.stop()
    since: float | None = None  # when everything was done
    view = 0
    while since is None or world.now - since < plan.calm:
        world.run_until(world.now + 0.2)
        unfinished = _unfinished(world, load, faults)
        if world.ledger.view.id != view:
            unfinished = unfinished or f"view {world.ledger.view.id} follows view {view}"
        view = world.ledger.view.id
        since = None if unfinished else since or world.now
        if unfinished and world.now - healed > SETTLES_IN:
            raise Broken("LIVENESS", f"{SETTLES_IN:.0f} s later: {unfinished}")
    _end(world)
    return since - healed


def _unfinished(world: World, load: Load, faults: Faults) -> str:
    for producer in load.producers:
        # Its last voter with a state may be retired as another one loses its own, which then has to stay.
        if producer.unanswered and load.usable():
            return f"a producer waits for {list(producer.unanswered)}"
    view, row = world.ledger.view, world.ledger.row
    wanted = {voter[0] for voter in view.voters if voter[3]} - world.dead
    witnesses = {voter[0] for voter in view.voters if not voter[3]}
    for id_, machine in world.machines.items():
        if id_ in world.dead:
            continue
        if machine.member is None:
            return f"{id_} is down"
        standing = machine.member.standing
        if machine.node.is_lost and faults.stores.is_free_to_leave(id_):
            return f"{id_} has no state"
        if id_ not in witnesses and len(machine.row) != len(row):
            where = f"installed {standing.installed}, newest {standing.newest.id}"
            return f"{id_} is at {len(machine.row)} of {len(row)}, {where}"
        if id_ in wanted and not standing.active:
            return f"{id_} does not act in view {standing.newest.id}"
        if id_ not in witnesses and len(machine.member.pending):
            return f"{id_} has pending commands"
    for id_, _, uuid, _ in view.voters:
        if id_ not in world.dead and world.machines[id_].disk.uuid != uuid:
            return f"{id_} has no vote since its disk was wiped"
    if {member.id for member in view.members} != wanted:
        return f"view {view.id} has the members {[member.id for member in view.members]}"
    return ""


def _end(world: World) -> None:
    ledger = world.ledger
    if world.plan.level == FSYNC:
        for body, (id_, uuid) in ledger.accepted.items():
            if (
                id_ not in world.dead
                and world.machines[id_].disk.uuid == uuid
                and body not in ledger.placed
            ):
                raise Broken("LOST", f"{body!r} was accepted by {id_}")
    for id_, machine in world.machines.items():
        if machine.member is not None and machine.row != ledger.row[: len(machine.row)]:
            raise Broken("ORDER", f"the row of {id_} is another one")
