"""Planted bugs of rare moments: damage, full disks, restarts, commits, batches that wait."""

from __future__ import annotations

RARE = [
    (
        "index_of_another_uuid",
        "an index file carries the uuid of its own segment",
        "node/shelf.py",
        "            uuid=segment.uuid,",
        "            uuid=chronicle.uuid,",
    ),
    (
        "full_disk_wakes_nobody",
        "a full disk gives back what was pruned, by itself",
        "node/housekeeping.py",
        "            if row.status().disk != OK and row.broken is None:",
        "            if False:",
    ),
    (
        "damaged_snapshot_kept",
        "of the two snapshots that are kept both are whole",
        "node/snapshots.py",
        "        self.whole = sorted({*self.whole, identity.position})",
        "        self.whole = await self.positions()",
    ),
    (
        "end_waits_for_what_cannot_come",
        "a node whose row has ended ends in order",
        "node/housekeeping.py",
        (
            "        if keeper.row.broken is not None:\n            return True  # the state is behind "
            "its own index, and a good snapshot would have to go\n        await keeper.at_rest()\n"
        ),
        (
            "        while keeper.numbers.covered != keeper.state.position:\n"
            "            await trio.lowlevel.checkpoint()\n"
        ),
    ),
    (
        "torn_tail_kept",
        "nothing is written behind a torn record",
        "node/opening.py",
        "each.end, column=column\n            )\n",
        "each.file.size, column=column\n            )\n",
    ),
    (
        "reserve_not_made_again",
        "a disk that was full goes on by itself when there is space",
        "node/reserve.py",
        "        if self.state != HARD or self._free() <",
        "        if True or self._free() <",
    ),
    (
        "lanes_not_in_snapshots",
        "what is sent again after a restart is stored once",
        "node/lanes.py",
        "    state.lanes_of = {}\n    for key in state.lanes.rows:",
        (
            "    state.lanes_of = {}\n    for key in [*state.lanes.rows]:\n        state.lanes.drop(key)\n"
            "    for key in [*state.producers.rows]:\n        state.producers.drop(key)\n"
            "    for key in state.lanes.rows:"
        ),
    ),
    (
        "stage_shown_at_once",
        "nobody sees a staged batch before its commit",
        "node/staging.py",
        "    insort(state.stages_of.setdefault(writer, []), (batch, ticket))\n",
        (
            "    insort(state.stages_of.setdefault(writer, []), (batch, ticket))\n"
            "    append(state, topic, head.partition, count, head.length, head.time, ticket, effects)\n"
        ),
    ),
    (
        "commit_in_part",
        "a commit numbers all of its stages, or none",
        "node/staging.py",
        "    for name, topic, staged in chosen:\n",
        "    for name, topic, staged in chosen[:3]:\n",
    ),
    (
        "commit_done_twice",
        "a commit that is sent again does nothing",
        "node/staging.py",
        "    if before is not None and batch == before.batch:\n",
        "    if False and before is not None:\n",
    ),
    (
        "pruned_entries_counted_wrong",
        "a pull across a pruned part goes on at the first entry there is",
        "node/cursors.py",
        "            found[partition] = max(first, done + 1)",
        "            found[partition] = max(first + (first > done + 1), done + 1)",
    ),
    (
        "oldest_waiting_lost",
        "a batch that waits gets its numbers, or its producer is told",
        "node/waiting.py",
        "    policy = topic.policy\n    final = _final(\n",
        (
            "    policy = topic.policy\n    if len(state.queues.get(topic.key(batch.partition), ())) > 1:\n"
            "        _leave(state, topic.key(batch.partition), next(iter(state.queues[topic.key("
            "batch.partition)])))\n    final = _final(\n"
        ),
    ),
    (
        "expected_number_ignored",
        "a batch that names the last number is numbered behind that one only",
        "node/waiting.py",
        "        if expect_last >= 0 and expect_last != now.last:",
        "        if False:",
    ),
    (
        "skip_ignored",
        "a batch that its producer gave up is never numbered",
        "node/apply.py",
        "        if head.kind == Kind.SKIP and lane.code == Code.WAITING:",
        "        if False:",
    ),
    (
        "clock_believed",
        "entries keep their age, whatever a client's clock says",
        "node/rowtime.py",
        "    return max(time, latest)",
        "    return time",
    ),
    (
        "no_mark",
        "damage to the last record is told from a torn tail",
        "node/writing.py",
        "        if not mark:",
        "        if True:",
    ),
    (
        "half_record_stays",
        "what a full disk kept out leaves nothing behind",
        "node/writing.py",
        "                handle.file.truncate(segment.size)",
        "                pass",
    ),
    (
        "doubt_forgotten",
        "a failed sync below level fsync begins a new lineage",
        "node/lonestart.py",
        "    if doubted or start is None:",
        "    if start is None:",
    ),
    (
        "dropped_too_early",
        "a segment stays while anybody may ask for it",
        "node/upkeep.py",
        "            if may_go and not self.holders(number):",
        "            if may_go and self.holders(number) < 3:",
    ),
    (
        "segment_rewritten_without_the_living",
        "a rewritten segment holds what can be read",
        "node/housekeeping.py",
        "                live.update(places)",
        "                live.update(places[1:])",
    ),
    (
        "key_of_another",
        "an entry has the key that it was produced with",
        "node/columns.py",
        "        keys = self.keys.slices(lo, hi)",
        "        keys = self.keys.slices(0, hi - lo)",
    ),
    (
        "broken_row_written_to",
        "a row that ended, damaged, takes nothing more",
        "node/lonerow.py",
        "                row._break(store.lost)",
        "                row._view = await start.begin()\n                row._past_end = store.position",
    ),
    (
        "capture_shows_later_rows",
        "the index in a snapshot shows the moment of the snapshot",
        "node/numbers.py",
        "        if growing.begun is not None:",
        "        if False:",
    ),
    (
        "partitions_merged_by_number",
        "who reads all partitions reads in the order of the row",
        "node/plans.py",
        "        heapreplace(heads, (row.position, partition, feed))",
        "        heapreplace(heads, (row.first, partition, feed))",
    ),
    (
        "older_epoch_not_fenced",
        "a producer that another one has replaced writes nothing more",
        "node/lanes.py",
        "    if producer is not None and head.epoch < producer.epoch:",
        "    if False:",
    ),
    (
        "answers_left_behind",
        "a node that stops waits until its answers are taken",
        "node/session.py",
        "        return bool(self._orders.are_open or self._output.bytes or self._reads.are_owed)",
        "        return bool(self._orders.are_open or self._reads.are_owed)",
    ),
    (
        "last_gap_alone",
        "a pull that waits tells all that was pruned before what it brings",
        "node/reads.py",
        "            missing, archive = missing + pulled.missing, pulled.archive or archive",
        "            missing, archive = pulled.missing, pulled.archive or archive",
    ),
    (
        "name_given_twice",
        "no two bundles have one name",
        "node/lonerow.py",
        "            self._s, self.stuck = s, False\n            self.care.wrote(size)",
        "            self.stuck = False\n            self.care.wrote(size)",
    ),
    (
        "credit_counted_twice",
        "a client that follows is sent no more than it has asked for",
        "node/reads.py",
        "            read.credit += credit\n",
        "            read.credit += 2 * credit\n",
    ),
    (
        "credit_runs_over",
        "a client that follows is sent nothing when its credit is used up",
        "node/reads.py",
        "            while read.credit <= 0:",
        "            while read.credit < 0:",
    ),
    (
        "deleted_in_silence",
        "who waits for a topic is told that it was deleted",
        "node/keeper.py",
        "            elif isinstance(effect, Created | Deleted):",
        "            elif isinstance(effect, Created):",
    ),
    (
        "ids_share_a_number",
        "who gives ids again is told the number of each entry",
        "node/ids.py",
        "        known = Known(state.turn, partition, number, time, state.position)",
        "        known = Known(state.turn, partition, first, time, state.position)",
    ),
    (
        "archived_span_cut",
        "a topic with an archive goes by whole spans",
        "node/numbering.py",
        "    first = whole_spans(topic.policy, first)\n    if first <= now.first:",
        "    if first <= now.first:",
    ),
    (
        "pins_do_not_hold",
        "what the archive lacks is not deleted",
        "node/pins.py",
        "        return min(first, self._safe.get(topic.key(partition), 0) + 1)",
        "        return first",
    ),
    (
        "pins_let_go_at_a_start",
        "what the archive lacks is not deleted after a restart either",
        "node/pins.py",
        "            if not chunks and self._has_archive(key):",
        "            if self._has_archive(key):",
    ),
]
