"""Bugs planted into the protocol: for each rule one that somebody could have written.

    PYTHONPATH=src:tests python -m sim.protocol_run 0 --count 300 --mutant skip_head --until-found

`planting.py` says how they are planted; each has the profile of faults that meets it soonest.
"""

from __future__ import annotations

import attrs

from .planting import Change, Planted

MIXED, DUEL, TAIL, POWER = "mixed", "duel", "tail", "power"
HOUSE, DISASTER, IMAGES = "house", "disaster", "images"


@attrs.frozen
class Bug(Planted):
    rule: str = ""
    profile: str = MIXED


def _bug(name: str, rule: str, breaks: str, *changes: tuple[str, str, str], profile: str) -> Bug:
    return Bug(name, breaks, tuple(Change(*change) for change in changes), rule, profile)


_EMPTY_HANDED = (
    "bridge/council.py",
    "            if not self.ordering.holds(accept.value):\n",
    "            if False:\n",
)
_JOURNALS_NOTHING = (
    "bridge/council.py",
    "            self.ordering.journal_cut(accept.value)\n",
    "            pass\n",
)
_RELAYS_DROP = (
    "bridge/ordering.py",
    "        return not standing.holds_data or standing.installed < standing.newest.id\n",
    "        return True\n",
)

_BUGS = [
    _bug(
        "ack_before_persist",
        "T3",
        "an ack means durable",
        (
            "bridge/ordering.py",
            "        if self.standing.waits_for_disk:\n            self._unsynced = True\n",
            (
                "        self._durable(self.streams, {bundle.origin: bundle.s})\n"
                "        if self.standing.waits_for_disk:\n            self._unsynced = True\n"
            ),
        ),
        profile=MIXED,
    ),
    _bug(
        "own_ack_assumed",
        "B3",
        "the origin's copy is not taken for granted",
        (
            "bridge/ordering.py",
            "            self._unsynced = True\n            if own:\n",
            (
                "            self._unsynced = True\n            if own:\n"
                "                self._durable(self.streams, {bundle.origin: bundle.s})\n"
            ),
        ),
        profile=MIXED,
    ),
    _bug(
        "majority_delivers",
        "O1",
        "every member acks what is delivered",
        (
            "bridge/ordering.py",
            "            if head is None or streams.lacking(head):\n",
            "            if head is None or 2 * len(streams.lacking(head)) >= len(streams.of):\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "skip_head",
        "O1",
        "nothing overtakes the head",
        (
            "bridge/streams.py",
            "            if s <= stream.have:\n                bundle",
            (
                "            if s <= stream.have and not self.lacking(stream.bundles[s]):\n"
                "                bundle"
            ),
        ),
        profile=MIXED,
    ),
    _bug(
        "acks_unordered",
        "T2",
        "an ack counts after what its member made before",
        (
            "bridge/streams.py",
            "        if acks is not None and self.of[member].have >= acks.s:\n",
            "        if acks is not None:\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "clock_not_raised",
        "B2",
        "what is made after an ack sorts behind what was acked",
        (
            "bridge/ordering.py",
            "        self.clock = max(self.clock, bundle.lamport)\n",
            "",
        ),
        profile=MIXED,
    ),
    _bug(
        "no_wedge",
        "W1",
        "nothing is acked after the report",
        (
            "bridge/views.py",
            "        self.standing.active, self.standing.wedged = False, self.standing.newest.id\n",
            "        pass\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "same_incarnation",
        "I2",
        "a view is never resumed after a restart",
        (
            "bridge/standing.py",
            "            and incarnation_of(self.newest, self.id) == self.incarnation\n",
            "            and incarnation_of(self.newest, self.id) is not None\n",
        ),
        (
            "bridge/member.py",
            "        self.views.try_install()\n\n    # Inputs.\n",
            (
                "        self.views.try_install()\n        self.views._activate(standing.newest.id)\n\n"
                "    # Inputs.\n"
            ),
        ),
        profile=MIXED,
    ),
    _bug(
        "cut_unsorted",
        "V8",
        "what is installed has the order of the row",
        (
            "bridge/streams.py",
            "        return sorted(rest, key=lambda bundle: (bundle.lamport, bundle.origin))\n",
            "        return rest\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "join_without_prefix",
        "V11",
        "a joiner acts when it has the whole row",
        (
            "bridge/views.py",
            "            return  # counters would not do: a relay may have dropped what it counted\n",
            (
                "            if any(m.incarnation == standing.incarnation for m in view.members):\n"
                "                self.install(view)\n"
                "            return\n"
            ),
        ),
        profile=MIXED,
    ),
    _bug(
        "accepted_ignored",
        "V4",
        "what may have been decided is proposed as it is",
        (
            "bridge/council.py",
            "        value = proposal.found() or choose(\n",
            "        value = choose(\n",
        ),
        profile=DUEL,
    ),
    _bug(
        "accept_any_ballot",
        "V6",
        "nothing is accepted below one's promise",
        (
            "bridge/council.py",
            "        if promised is not None and standing.acceptor.refuses(message.ballot):\n",
            (
                "        if promised is not None and standing.acceptor.refuses(message.ballot) and (\n"
                "            isinstance(message, Prepare)\n"
                "        ):\n"
            ),
        ),
        (
            "bridge/acceptor.py",
            "        assert not self.refuses(ballot)\n        self.promised = self.acc",
            "        self.promised = self.acc",
        ),
        profile=DUEL,
    ),
    _bug(
        "promise_forgotten",
        "L2",
        "a promise outlives its process",
        (
            "bridge/acceptor.py",
            "        if state is None or state.register != register:\n",
            "        if True:\n",
        ),
        profile=DUEL,
    ),
    _bug(
        "any_two_are_a_quorum",
        "V5",
        "majorities are of the voters' weights",
        (
            "bridge/electorate.py",
            "    return 2 * present > sum(voter[1] for voter in view.voters)\n",
            "    return present > 0 and len(ids) >= 2\n",
        ),
        profile=DUEL,
    ),
    _bug(
        "accept_empty_handed",
        "V6",
        "what is decided can be installed by those who accepted it",
        _EMPTY_HANDED,
        _JOURNALS_NOTHING,
        _RELAYS_DROP,
        profile=TAIL,
    ),
    _bug(
        "highest_cut",
        "V4, V6",
        "what is decided can be installed by whoever survives",
        _EMPTY_HANDED,
        _JOURNALS_NOTHING,
        (
            "bridge/choosing.py",
            "min(each.get(m.id, 0) for each in journals)",
            "max(each.get(m.id, 0) for each in journals)",
        ),
        profile=TAIL,
    ),
    _bug(
        "amnesiac_reports",
        "X1",
        "who may have forgotten acks is not exact",
        (
            "bridge/exactness.py",
            "    return before.boot_id == starts[incarnation].boot_id",
            "    return before is not None",
        ),
        profile=POWER,
    ),
    _bug(
        "followed_again_is_exact",
        "X1, V9",
        "having the mark is no memory of what was acked",
        (
            "bridge/exactness.py",
            "    return before.boot_id == starts[incarnation].boot_id",
            "    return incarnation in installed_here",
        ),
        (
            "bridge/exactness.py",
            "def is_exact(\n",
            "installed_here: set[int] = set()\n\n\ndef is_exact(\n",
        ),
        (
            "bridge/views.py",
            "        standing.delivered = {}\n",
            (
                "        standing.delivered = {}\n"
                "        from .exactness import installed_here\n\n"
                "        installed_here.add(standing.incarnation)\n"
            ),
        ),
        (
            "bridge/views.py",
            (
                "            # V9, V11: at every level, since what it acks from now on says that it has"
                " all before.\n"
                "            self.outbox.when_durable(partial(self._activate, view.id))\n"
            ),
            (
                "            if standing.waits_for_disk:\n"
                "                self.outbox.when_durable(partial(self._activate, view.id))\n"
                "            else:\n"
                "                self._activate(view.id)\n"
            ),
        ),
        profile=POWER,
    ),
    _bug(
        "wiped_votes",
        "U2",
        "a wiped node is a stranger",
        (
            "bridge/electorate.py",
            "    return voter is not None and voter.uuid == uuid\n",
            "    return voter is not None\n",
        ),
        (
            "bridge/exactness.py",
            "        return False  # the start itself was lost\n",
            "        return True\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "ballot_used_again",
        "V1, I1",
        "no ballot has two values",
        (
            "bridge/proposer.py",
            "    return turn * STARTS_LIMIT + start_count, id_\n",
            "    return turn * STARTS_LIMIT, id_\n",
        ),
        profile=DUEL,
    ),
    _bug(
        "counters_are_possession",
        "V8, F6",
        "only what is here is installed",
        (
            "bridge/streams.py",
            "            while s < end and s + 1 in bundles:\n",
            "            while s < min(end, self.of[origin].have):\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "base_not_passed_on",
        "F5",
        "who is fed by a relay jumps with it",
        ("bridge/ordering.py", "            self.neighbours.pass_base(base)\n", ""),
        profile=MIXED,
    ),
    _bug(
        "only_members_relay",
        "F6, W3",
        "a chain goes on across a node that restarted",
        (
            "bridge/ordering.py",
            (
                "        self.neighbours.pass_on(bundle)  # before the own disk has it (F4, B3)\n"
                "        if self.standing.active:\n"
            ),
            "        if self.standing.active:\n            self.neighbours.pass_on(bundle)\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "wiped_witness_is_silent",
        "U3",
        "a wiped witness votes again",
        (
            "bridge/choosing.py",
            "            if not voter.data or caught_up:\n",
            "            if voter.data and caught_up:\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "first_majority",
        "V3",
        "views come to rest",
        (
            "bridge/council.py",
            "        if proposal.lacks_voices(self._seem_alive()) and now < ",
            "        if False and now < ",
        ),
        profile=MIXED,
    ),
    _bug(
        "suspects_its_links",
        "S1",
        "a cut between two who see a third removes nobody",
        (
            "bridge/neighbours.py",
            "for each in feeds if each in heard]",
            "for each in feeds if each in heard and each == self.standing.id]",
        ),
        profile=MIXED,
    ),
    _bug(
        "any_generation",
        "C1",
        "items of an older subscription are ignored",
        (
            "bridge/catchup.py",
            "        return self.upstream is not None and generation == self.generation\n",
            "        return True\n",
        ),
        (
            "bridge/member.py",
            "        if item.position != standing.position + 1:\n            return\n",
            "",
        ),
        profile=MIXED,
    ),
    _bug(
        "any_view",
        "F8",
        "streams of another view are ignored",
        (
            "bridge/streams.py",
            "        if bundle.view != self.view or stream is None or bundle.s <= stream.have:\n",
            "        if stream is None or bundle.s <= stream.have:\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "retry_is_new",
        "D1",
        "what was sent to two nodes is numbered once",
        (
            "node/lanes.py",
            "    if head.seq <= lane.last:\n        return remembered(lane, head.seq)",
            "    if head.seq <= lane.last:\n        return lane",
        ),
        profile=MIXED,
    ),
    _bug(
        "lanes_not_in_snapshots",
        "D1",
        "what was answered before is known after a restart",
        (
            "node/lanes.py",
            "    state.lanes_of = {}\n    for key in state.lanes.rows:",
            (
                "    state.lanes_of = {}\n    for key in [*state.lanes.rows]:\n"
                "        state.lanes.drop(key)\n"
                "    for key in [*state.producers.rows]:\n        state.producers.drop(key)\n"
                "    for key in state.lanes.rows:"
            ),
        ),
        profile=MIXED,
    ),
    _bug(
        "no_gap_rule",
        "D3",
        "a producer's entries keep their order at whichever node",
        (
            "node/lanes.py",
            "        and head.seq == lane.last + 1",
            "        and head.seq >= lane.last + 1",
        ),
        profile=MIXED,
    ),
    _bug(
        "late_sync_counts",
        "W2",
        "a sync that was under way at the promise acks nothing",
        (
            "bridge/ordering.py",
            "        if not self.standing.active or streams is not self.streams:\n",
            "        if streams is not self.streams:\n",
        ),
        (
            "bridge/ordering.py",
            "        if self.acks_due and self.standing.active:\n",
            "        if self.acks_due and self.standing.id in self.streams.of:\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "gives_up_at_once",
        "V4",
        "an exact report that comes a little later is heard",
        (
            "bridge/council.py",
            "        elif proposal.all_answered() or now >= proposal.began + last:\n",
            "        else:\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "tail_of_cont_alone",
        "V6",
        "whoever holds a tail is asked for it",
        (
            "bridge/tails.py",
            "        others = {v[0] for v in self.standing.newest.voters if v[3]} - {self.standing.id}\n",
            "        others = set(value.cont)\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "round_outlives_its_link",
        "F4",
        "a new link begins with a feed of its own",
        ("bridge/neighbours.py", "        self.outbox.forget(peer)\n", ""),
        profile=MIXED,
    ),
    _bug(
        "witness_begins_a_row",
        "C2",
        "who is followed can go on",
        (
            "bridge/views.py",
            "        if not standing.keeps_row:\n",
            "        if False:\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "stage_and_bundle_both_sent",
        "P4",
        "a command that is on disk twice is sent once",
        (
            "bridge/pending.py",
            "            if all(command.head in before for command in bundle.commands):\n",
            "            if False:\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "cut_sent_again",
        "P2, P3",
        "what is in the cut is not sent again",
        (
            "bridge/ordering.py",
            "        if origin == standing.id:\n",
            "        if origin == standing.id and standing.active:\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "retired_keeps_its_own",
        "R3",
        "what a retired machine accepted is ordered",
        ("bridge/handing.py", "        if not self.is_due:\n", "        if True:\n"),
        profile=HOUSE,
    ),
    _bug(
        "forced_without_what_it_acked",
        "R4",
        "who goes on alone has all that it acked",
        (
            "bridge/views.py",
            "        cut = held.journaled_on(standing.delivered)\n",
            "        cut: dict[int, int] = {}\n",
        ),
        profile=DISASTER,
    ),
    _bug(
        "too_few_copies_make_views",
        "N8",
        "a view in which nobody would act is not made",
        (
            "bridge/choosing.py",
            "    if len(members) < wanted.min_copies:\n",
            "    if wanted is not view and len(members) < wanted.min_copies:\n",
        ),
        profile=HOUSE,
    ),
    _bug(
        "founder_tells_first",
        "G1",
        "a founder makes one first view, whatever dies",
        (
            "bridge/member.py",
            "                self.outbox.when_durable(partial(self.neighbours.flood, Decided(view)))\n",
            "                self.neighbours.flood(Decided(view))\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "stalled_is_let_in",
        "S6",
        "who stalled waits before it comes back",
        (
            "bridge/council.py",
            "        return {(id_, incarnations[id_]) for id_ in slow & incarnations.keys()}\n",
            "        return set()\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "late_wish",
        "R1",
        "a wish is for one view",
        (
            "bridge/calling.py",
            "        return None if late or change.view != self.standing.newest.id else change\n",
            "        return None if late else change._replace(view=self.standing.newest.id)\n",
        ),
        profile=HOUSE,
    ),
    _bug(
        "all_leave_or_nobody",
        "N8",
        "of those who need an image as many leave as the rest can do without",
        (
            "bridge/choosing.py",
            "        smaller = without(gone | {each})\n",
            "        smaller = without(gone | needs | {each})\n",
        ),
        profile=IMAGES,
    ),
    _bug(
        "uncounted_follows",
        "V8",
        "who does not know what of the view is in its row does not go on with it",
        (
            "bridge/neighbours.py",
            "return standing.keeps_row and (standing.stateless or not standing.uncounted)\n",
            "return standing.keeps_row\n",
        ),
        profile=IMAGES,
    ),
    _bug(
        "image_is_not_passed_on",
        "C4",
        "who needs an image itself, and has to act, passes on another's",
        (
            "bridge/passing.py",
            "        if not neighbours.standing.active:\n            return False",
            "        if True:\n            return False",
        ),
        profile=IMAGES,
    ),
    _bug(
        "only_own_links_are_replaced",
        "F12",
        "a standby link heals what is broken elsewhere",
        (
            "bridge/standby.py",
            "        lacks = not self.primaries <= set(linked) or not self.machines <= set(reached)\n",
            "        lacks = not self.primaries <= set(linked)\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "old_copy_comes_in",
        "U4",
        "a restored store is refused by who knew it",
        (
            "bridge/handshake.py",
            "        if hello.start_count <= count and hello.incarnation != incarnation:\n",
            "        if False:\n",
        ),
        profile=MIXED,
    ),
    _bug(
        "clusters_mix",
        "G1, U5",
        "what belongs to another cluster is not taken",
        (
            "bridge/neighbours.py",
            "        if link.cluster and known and link.cluster != known:\n",
            "        if False:\n",
        ),
        profile=MIXED,
    ),
]
PLANTED = {bug.name: bug for bug in _BUGS}
