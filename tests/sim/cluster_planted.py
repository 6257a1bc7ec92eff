"""Bugs planted into the shells of a cluster: what somebody could have written between disk, links and core.

    PYTHONPATH=src:tests python -m sim.cluster_planted                           the list, as JSON
    PYTHONPATH=src:tests python -m sim.run 0 --cluster --planted link_lost_for_good --until-found

`planting.py` says how they are planted.  Those of the protocol itself are in protocol_planted.py.
"""

from __future__ import annotations

import json

from .planting import Change, Planted

_BUGS = [
    (
        "promise_not_written",
        "what was promised for the next view outlives the process",
        "bridge/process.py",
        "                    await self._insist(journal.register, Register(*effect))",
        "                    pass",
    ),
    (
        "synced_before_the_sync",
        "what is told to be durable is",
        "bridge/syncing.py",
        "                await self._store.sync()\n                self.done = token",
        "                self.done = token\n                await self._on_synced()\n                await self._store.sync()",
    ),
    (
        "sync_answers_for_later_writes",
        "a sync makes durable what was written before it, and nothing else",
        "bridge/syncing.py",
        "                await self._store.sync()\n                self.done = token",
        "                await self._store.sync()\n                self.done = self._wanted",
    ),
    (
        "synced_is_not_told",
        "who waits for a sync hears of it",
        "bridge/process.py",
        "            member.synced(self._told, now)",
        "            pass",
    ),
    (
        "end_of_a_link_is_not_told",
        "the protocol knows which links are up",
        "bridge/process.py",
        "                    member.link_down(peer, now, by_peer=by_peer)",
        "                    pass",
    ),
    (
        "silence_is_not_noticed",
        "a link that is deaf is hung up",
        "bridge/process.py",
        "                case do.Hang(peer, why):\n                    links.hang_up(peer, why)",
        "                case do.Hang(peer, why):\n                    pass",
    ),
    (
        "own_stages_not_kept",
        "what a node was told to be accepted is settled when it is in the row",
        "bridge/process.py",
        "                        self.staging.journaled(bundle)",
        "                        pass",
    ),
    (
        "known_items_told_again",
        "a node that knows more than its bridge is told nothing twice",
        "bridge/follower.py",
        "        if item.position < self._next:\n            return False\n",
        "",
    ),
    (
        "item_skipped_behind_the_past",
        "a node misses no item",
        "bridge/follower.py",
        "        self._next = items[-1].position + 1\n        return items\n\n    def _taken",
        "        self._next = items[-1].position + 2\n        return items\n\n    def _taken",
    ),
    (
        "old_node_stays",
        "one node at a time is at a bridge",
        "bridge/attach.py",
        "            self._node.leave()\n        self._node = node",
        "            pass\n        self._node = node",
    ),
    (
        "refused_in_silence",
        "what a bridge does not take is told to who asked",
        "bridge/attach.py",
        "                self.tell(wire.refused(commands, error))",
        "                pass",
    ),
    (
        "accepted_is_not_told",
        "who waits until a command is accepted hears of it",
        "bridge/attach.py",
        "                    self._awaited.update([head for head, _ in commands])",
        "                    pass",
    ),
    (
        "stages_in_the_row_are_not_told",
        "a node settles what its state has already",
        "bridge/attach.py",
        "                    ordered,\n                    self._row_image,",
        "                    (),\n                    self._row_image,",
    ),
    (
        "submitted_once",
        "what a bridge was told when it died is submitted again",
        "node/bridgedrow.py",
        "        for command in self._unsettled:\n            accepted",
        "        for command in ():\n            accepted",
    ),
    (
        "commands_lost_while_the_bridge_is_away",
        "a node takes commands while its bridge is away",
        "node/bridgedrow.py",
        "        self._unsettled.add(commands, accepted=accepted, sent=self._link.is_up)\n",
        "        if self._link.is_up: self._unsettled.add(commands, accepted=accepted)\n",
    ),
    (
        "followed_from_the_beginning",
        "a node that comes back goes on where it was",
        "node/bridgedrow.py",
        "            self._link.put(wire.frame([int(Said.FOLLOW), self._after]))\n        for command",
        "            self._link.put(wire.frame([int(Said.FOLLOW), 0]))\n        for command",
    ),
    (
        "withdrawn_from_a_bridge_that_has_it",
        "what certainly was not written is never read",
        "node/bridgedrow.py",
        "        return self._unsettled.is_unsent(command.head) and self._unsettled.forget",
        "        return self._unsettled.forget",
    ),
    (
        "refusals_not_heard",
        "a command that the bridge refused is answered",
        "node/bridgedrow.py",
        "                self._refused.append((command, doubt if is_doubted else error))",
        "                pass",
    ),
    (
        "another_store_is_taken",
        "a node whose bridge has another store begins anew",
        "node/bridgedrow.py",
        "before.uuid not in (welcome.uuid, *welcome.formers):",
        "False:",
    ),
    (
        "half_a_message_sent_again",
        "what a socket took in part goes on where it stopped",
        "bridge/sending.py",
        "            out[0] = list(_rest(out[0], count))",
        "            pass",
    ),
    (
        "bundles_sent_backwards",
        "bundles go out in order",
        "bridge/sending.py",
        "                message, size = self._bulk.popleft()",
        "                message, size = self._bulk.pop()",
    ),
    (
        "base_passes_the_bundles",
        "a jump of a stream stays behind the bundles before it",
        "bridge/sending.py",
        "frozenset((Bundle, Base, Follow, Mended))",
        "frozenset((Bundle, Follow, Mended))",
    ),
    (
        "newest_control_only",
        "of what is flooded nothing is left out",
        "bridge/sending.py",
        "            self._count += 1\n            self._urgent[self._count] = message",
        "            self._urgent[type(message)] = message",
    ),
    (
        "link_lost_for_good",
        "a neighbour that is gone is dialled again",
        "bridge/links.py",
        "            delay = RETRY_SECONDS_MIN if was_up",
        "            if was_up:\n                return\n            delay = RETRY_SECONDS_MIN if was_up",
    ),
    (
        "silent_stranger_is_waited_for",
        "a handshake takes five seconds at most",
        "bridge/links.py",
        "            with trio.fail_after(patience):",
        "            with trio.CancelScope():",
    ),
    (
        "old_link_is_kept",
        "a new connection takes the place of the old one",
        "bridge/links.py",
        '        self.hang_up(peer, "there is a new connection with it")\n        self._connections[peer]',
        "        self._connections[peer]",
    ),
    (
        "full_socket_for_ever",
        "a link goes on when the other side reads again",
        "bridge/links.py",
        "        if not connection.closed:\n            self._flush(peer, connection)\n",
        "",
    ),
    (
        "room_is_not_told",
        "who serves a neighbour goes on when its link has room",
        "bridge/links.py",
        "                self.on_sent(peer)",
        "                pass",
    ),
    (
        "item_left_out_in_serving",
        "who follows a neighbour gets every item",
        "bridge/serving.py",
        "            served.position = items[-1].position",
        "            served.position = items[-1].position + 1",
    ),
    (
        "followers_not_woken",
        "who follows a neighbour hears of what is new",
        "bridge/serving.py",
        "            served.wakeup.wake()\n\n    def _on_sent",
        "            pass\n\n    def _on_sent",
    ),
    (
        "starts_forgotten_with_the_next_one",
        "a process that a later view names is known",
        "node/chronicle.py",
        "key=_count)[-STARTS_KEPT:]",
        "key=_count)[-1:]",
    ),
    (
        "accepted_left_behind",
        "a client that moves takes along what only the machine it leaves has",
        "node/outbox.py",
        "        self._slots.reopen(0)\n",
        "",
    ),
    (
        "ordered_is_not_told",
        "a client keeps what was accepted no longer than it has to",
        "node/orders.py",
        "        if not waits:\n            self._all.pop(order, None)",
        """\
        if not waits and order in self._accepted:
            return
        if not waits:
            self._all.pop(order, None)""",
    ),
    (
        "hidden_mark_is_placed_again",
        "a view whose mark damage hid is not installed twice",
        "bridge/member.py",
        "                self.views.learn(view)\n                standing.installed, standing.cluster = view.id, view.cluster\n",
        "                self.views.learn(view)\n",
    ),
    (
        "what_waited_still_waits",
        "what was received before damage was found counts for nothing",
        "node/journal.py",
        "            chronicle.forget_received()\n",
        "            pass\n",
    ),
    (
        "waits_without_rest",
        "a bridge rests while its node waits for what nobody has",
        "bridge/repair.py",
        "        if suspects:  # or",
        "        if True:  # or",
    ),
    (
        "wound_keeps_its_segment",
        "what all have dropped goes, damaged or not",
        "bridge/repair.py",
        "                self._store.unpin(-number)\n            if number not in there",
        "                pass\n            if number not in there",
    ),
    (
        "clock_told_again_and_again",
        "a clock that is ahead tells its time once",
        "node/keeper.py",
        "self.state.row_time if told >= self._due else self.wall_us()",
        "self.wall_us()",
    ),
    (
        "staged_is_told_before_the_sync",
        "what was accepted outlives the power of its machine",
        "bridge/ordering.py",
        "            if self.standing.waits_for_disk:\n                self._own.append(bundle)\n            else:\n                self.outbox.put(Staged(bundle))\n\n    def _deliver",
        "            self.outbox.put(Staged(bundle))\n\n    def _deliver",
    ),
    (
        "seen_elsewhere_is_not_waited_for",
        "who was told of an entry reads it at any node",
        "node/reads.py",
        "server.node.reader.position) < position:",
        "server.node.reader.position) < 0:",
    ),
]

PLANTED = {
    name: Planted(name, breaks, (Change(file, old, new),)) for name, breaks, file, old, new in _BUGS
}


if __name__ == "__main__":
    print(json.dumps({name: bug.breaks for name, bug in PLANTED.items()}, indent=1))
