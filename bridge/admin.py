"""Admin: what an operator asks of a bridge about who votes, and has changed.

    members    who votes and who acts, beside what the cluster file lists, as this bridge sees it
    change     a wish for the next view, said again until a view has it or something is against it
    refuse     no links with these neighbours, for experiments: until it is said anew (refusals.py)
    force      this machine goes on alone, since nobody can decide any more (forcing.py)

Any bridge may be asked, and for `force` that of the machine which goes on.  The view rules; the file
gives the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import trio

from duckrow.node.errors import Corrupt, NoQuorum, Refused, Timeout
from duckrow.node.reserve import HARD
from duckrow.node.storeoptions import FSYNC

from .changing import is_done, objection
from .electorate import Voter, incarnation_of, voter_of
from .founding import Listed
from .messages import Change
from .process import Bridge
from .telling import strangers_of, told

AGAIN_SECONDS: Final = 0.25
WAIT_SECONDS_MAX: Final = 3600.0


class Admin:
    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._listed: Mapping[int, Listed] = bridge.options.listed

    async def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """
        Raises:
            Refused: it may not be, or cannot be understood; says why.
            NoQuorum: nobody could decide on it now.
            Timeout: it did not come to be in time; it may still.
            Corrupt: it is no question.
        """
        what = asked.get("what")
        if what == "status":
            return self.members() | told(self._bridge, trio.current_time())
        if what == "refuse":
            nodes = asked.get("nodes")
            if not isinstance(nodes, list):
                raise Corrupt(f"{nodes!r} are no machines to refuse")
            self._bridge.links.refuse(frozenset(map(self._id, nodes)))
            return self.members()
        seconds = asked.get("seconds", 10.0)
        if type(seconds) not in (int, float) or not 0 <= seconds <= WAIT_SECONDS_MAX:
            raise Corrupt(f"{seconds!r} is no time to wait")
        if what == "force-view":
            await self._force(self._id(asked.get("node")), asked.get("view"), seconds)
        elif what != "members":
            if not self._bridge.member.standing.newest.id:
                raise NoQuorum("this machine is in no cluster yet")
            await self._change(str(what), asked, seconds)
        return self.members()

    # -- what there is ------------------------------------------------------------------------

    def members(self) -> dict[str, Any]:
        standing = self._bridge.member.standing
        view = standing.newest
        ids = {voter[0] for voter in view.voters} | self._listed.keys() | self._reached()
        return {
            "view": view.id,
            "active": standing.active,
            "exact": standing.exact,
            "waits": self._waits(),
            "installed": standing.installed,
            "position": standing.position,
            "furthest": max(standing.position, self._bridge.member.neighbours.furthest),
            "cluster": view.cluster.hex(),
            "lineage": view.lineage,
            "durability": view.durability,
            "min_copies": view.min_copies,
            "name": self._name(standing.id),
            "nodes": [self._node(id_) for id_ in sorted(ids)],
        }

    def _waits(self) -> str:
        """Why nothing is ordered with this machine, as far as who is there tells; empty: it is."""
        standing = self._bridge.member.standing
        view = standing.newest
        if standing.active or not view.id:
            return "" if view.id else "this machine is in no cluster yet"
        alive, strangers = self._alive(), strangers_of(self._bridge)
        there = [voter for voter in view.voters if voter[0] in alive - strangers]
        away = [self._name(v[0]) for v in view.voters if v[0] not in alive]
        wiped = [self._name(id_) for id_ in sorted(alive & strangers)]
        missing = [f"{', '.join(away)} {'is' if len(away) == 1 else 'are'} missing"] if away else []
        missing += [f"{', '.join(wiped)} came with another disk than before"] if wiped else []
        there_weight, all_ = sum(v[1] for v in there), sum(v[1] for v in view.voters)
        if 2 * there_weight <= all_:
            return f"of a weight of {all_} voters with {there_weight} seem to run: {', '.join(missing)}"
        if sum(voter[3] for voter in there) < view.min_copies:
            copies = f"{view.min_copies} copies are the least that may be"
            return f"{copies}: {', '.join(missing)}"
        return "" if standing.exact or self._acting() else self._lacking()

    def _lacking(self) -> str:
        """A majority is there, and this machine knows of nobody who could carry the view over (X1)."""
        standing = self._bridge.member.standing
        view = standing.newest
        away = [self._name(m.id) for m in view.members if m.id not in self._reached()]
        known = f"nobody that runs is known to have all that was ordered in view {view.id}"
        if away:
            return f"{known}: {', '.join(away)} {'is' if len(away) == 1 else 'are'} missing"
        if view.durability == FSYNC or HARD in self._disks():
            return ""  # it passes
        return (
            f"{known}, and durability {view.durability} keeps no more; if that stays so, `duckrow member "
            "force-view` goes on from one of them"
        )

    def _disks(self) -> set[str]:
        """How they are, here and at the neighbours."""
        neighbours = self._bridge.member.neighbours
        links = [neighbours.of(peer) for peer in neighbours.linked]
        told = {each.link.disk for each in links if each is not None and each.link is not None}
        return told | {neighbours.disk}

    def _node(self, id_: int) -> dict[str, Any]:
        view = self._bridge.member.standing.newest
        voter, listed = voter_of(view, id_), self._listed.get(id_)
        return {
            "id": id_,
            "name": self._name(id_),
            "weight": 0 if voter is None else voter.weight,
            "witness": voter is not None and not voter.data,
            "uuid": "" if voter is None else voter.uuid.hex(),
            "state": self._state(id_, voter),
            "listed": None if listed is None else listed.votes,
            "listed_witness": listed is not None and listed.witness,
        }

    def _state(self, id_: int, voter: Voter | None) -> str:
        member, now = self._bridge.member, trio.current_time()
        standing = member.standing
        if id_ not in self._reached():
            return "away"
        if voter is None:
            return "follows"
        if not voter.data:
            return "votes"
        if incarnation_of(standing.newest, id_) is None:
            held_off = member.suspicion.holds_off(id_, now)
            return "held off" if held_off else "catches up"
        if id_ == standing.id and not standing.active:
            return "waits"
        suspects = member.suspicion.suspects(standing.newest, now)
        return "suspected" if id_ in suspects else "acts"

    def _reached(self) -> set[int]:
        return set(self._bridge.member.neighbours.routes.paths)

    def _name(self, id_: int) -> str:
        listed = self._listed.get(id_)
        return str(id_) if listed is None else listed.name

    # -- what is wanted -----------------------------------------------------------------------

    def _wanted(self, what: str, asked: Mapping[str, Any]) -> Change:
        """What is so already is no error: a node asks again whose bridge died before it could answer.

        Raises:
            Refused: it may not be, or cannot be understood; says why.
        """
        view = self._bridge.member.standing.newest
        if what == "add":
            id_, data = self._id(asked.get("node")), asked.get("witness") is not True
            weight, there = _count(asked, "weight"), voter_of(view, id_)
            if there is not None and (there.weight, there.data) != (weight, data):
                raise self._has_vote(there)
            return Change(view.id, id_, weight, data)
        if what == "replace":
            id_, out = self._id(asked.get("node")), self._id(asked.get("instead_of"))
            there, old = voter_of(view, id_), voter_of(view, out)
            if there is not None and old is not None:
                raise self._has_vote(there)
            voter = there or old
            if voter is None:
                raise self._has_none(out)
            return Change(view.id, id_, voter.weight, voter.data, out)
        if what == "weight":
            id_, weight = self._id(asked.get("node")), _count(asked, "weight")
            voter = voter_of(view, id_)
            if voter is None:
                raise self._has_none(id_)
            return Change(view.id, id_, weight, voter.data)
        if what == "retire":
            id_ = self._id(asked.get("node"))
            voter = voter_of(view, id_)
            return Change(view.id, id_, 0, voter is None or voter.data)
        if what == "set":
            durability = asked.get("durability", "")
            copies = _count(asked, "min_copies") if "min_copies" in asked else 0
            if type(durability) is not str or not (durability or copies):
                raise Refused("nothing is to be set")
            return Change(view.id, min_copies=copies, durability=durability)
        raise Refused(f"a bridge does not know how to {what!r} a member")

    def _has_vote(self, voter: Voter) -> Refused:
        view = self._bridge.member.standing.newest.id
        name = self._name(voter.id)
        return Refused(f"{name} has a vote already, of weight {voter.weight} in view {view}")

    def _has_none(self, id_: int) -> Refused:
        view = self._bridge.member.standing.newest.id
        return Refused(f"{self._name(id_)} has no vote in view {view}")

    def _id(self, named: object) -> int:
        # One may be called by a number that is the id of another.
        names = {str(id_): id_ for id_ in self._listed}
        names |= {listed.name: id_ for id_, listed in self._listed.items()}
        if isinstance(named, str) and named in names:
            return names[named]
        for voter in self._bridge.member.standing.newest.voters:
            if named == str(voter[0]):
                return voter[0]
        known = ", ".join(listed.name for listed in self._listed.values())
        raise Refused(
            f"the cluster file of this machine has no member {named!r}: there are {known}; "
            "one that is new has to be in the file of every machine first"
        )

    async def _change(self, what: str, asked: Mapping[str, Any], seconds: float) -> None:
        member, wanted = self._bridge.member, self._wanted(what, asked)
        against, wished = "", False
        with trio.move_on_after(seconds):
            while True:
                view = member.standing.newest
                if is_done(view, wanted):
                    return
                if view.id != wanted.view:  # somebody else has changed something, perhaps the same
                    wanted, wished = self._wanted(what, asked), False
                against = objection(view, wanted, self._come(), self._reached(), self._name)
                if not against:
                    self._bridge.wish(wanted)
                    wished = True
                elif not wished:
                    raise Refused(against)
                await trio.sleep(AGAIN_SECONDS)
        raise self._late(wanted, against)

    async def _force(self, id_: int, view: object, seconds: float) -> None:
        bridge, standing = self._bridge, self._bridge.member.standing
        if id_ != standing.id:
            raise Refused(
                f"this is {self._name(standing.id)}: ask {self._name(id_)}, if that shall go on"
            )
        if not standing.installed or not standing.keeps_row:
            raise Refused("this machine has no row to go on with")
        if standing.active:
            raise Refused(
                f"this machine acts in view {standing.newest.id}: nothing has to be forced; `member "
                "retire` takes the vote of a machine that is gone"
            )
        if acting := self._acting():
            raise Refused(
                f"{', '.join(map(self._name, acting))} {'acts' if len(acting) == 1 else 'act'} in view "
                f"{standing.newest.id}, so nothing has to be forced: this machine follows"
            )
        if view != standing.newest.id:
            raise Refused(
                f"the newest view here is {standing.newest.id}, and not {view!r}: look again"
            )
        bridge.force()
        with trio.move_on_after(seconds):
            while not standing.active:
                await trio.sleep(AGAIN_SECONDS)
            return
        raise Timeout("the forced view is not durable yet; ask for it with `member ls`")

    def _alive(self) -> set[int]:
        """Voters that seem to run.  Where nobody acts nobody has to give signs of it."""
        member = self._bridge.member
        view, now = member.standing.newest, trio.current_time()
        suspects = member.suspicion.suspects(view, now) if member.standing.active else set()
        return {v[0] for v in view.voters if v[0] in self._reached() and v[0] not in suspects}

    def _acting(self) -> list[int]:
        """Other members of the newest view that give signs of life, and to which a way leads."""
        member = self._bridge.member
        view, now = member.standing.newest, trio.current_time()
        suspects = member.suspicion.suspects(view, now) | {member.standing.id}
        return [m.id for m in view.members if m.id in self._reached() - suspects]

    def _come(self) -> set[int]:
        """Voters that would be there in the next view, and by a way from here."""
        return self._bridge.member.calling.would_come() & self._reached()

    def _late(self, wanted: Change, against: str) -> Timeout:
        standing, id_ = self._bridge.member.standing, wanted.id
        if against:  # what was said before may have come to those who decide
            return Timeout(f"{against}; that was not so when it was asked for: it may still come")
        if id_ and wanted.weight and voter_of(standing.newest, id_) is None:
            join = self._bridge.member.calling.joins().get(id_)
            if join is None:
                why = "" if wanted.data else "; what it has accepted is handed on first"
                return Timeout(f"{self._name(id_)} is reached, and does not ask to be let in{why}")
            if join.position < standing.position - standing.timing.lag_items:
                return Timeout(
                    f"{self._name(id_)} has come to position {join.position:,} of "
                    f"{standing.position:,}: it has to catch up first; ask again then"
                )
        return Timeout("the voters have not come to another view in time; it may still come")


def _count(asked: Mapping[str, Any], name: str) -> int:
    count = asked.get(name, 1)
    if type(count) is not int or not 0 <= count < 1 << 32:
        raise Corrupt(f"{count!r} is no {name}")
    if not count:
        raise Refused(
            "a weight is 1 or more: `member retire` takes the vote away"
            if name == "weight"
            else f"{name} is 1 or more"
        )
    return count
