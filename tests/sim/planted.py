"""The planted bugs: what somebody could have written, and what of the promises it breaks.

    PYTHONPATH=src:tests python -m sim.planted                          the list, as JSON
    PYTHONPATH=src:tests python -m duckrow.tools.fuzz --planted         how many seeds each takes

`planting.py` says how they are planted.  They measure the simulation: a bug that no seed meets
means a fault, a workload or a check that is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from .planted_clients import CLIENTS
from .planted_rare import RARE
from .planting import Change, Planted


def _bugs(bugs: Iterable[tuple[str, str, str, str, str]]) -> dict[str, Planted]:
    return {
        name: Planted(name, breaks, (Change(file, old, new),))
        for name, breaks, file, old, new in bugs
    }


PLANTED = _bugs(
    [
        (
            "answer_before_sync",
            "an answer at level fsync means fdatasync has returned",
            "node/lonerow.py",
            "        if not self._waits_for_sync:\n            items = list(written)",
            "        if True:\n            items = list(written)",
        ),
        (
            "sync_skipped",
            "a sync reaches the disk",
            "node/writing.py",
            "                await handle.file.sync()",
            "                pass",
        ),
        (
            "sync_error_ignored",
            "a failed sync ends the process",
            "node/writing.py",
            """\
            failed = self.fail("a sync", error)
            await leave_doubt(self._disk)
            raise failed from error""",
            "            pass",
        ),
        (
            "folder_names_not_synced",
            "a new segment's name is durable with what is in it",
            "node/writing.py",
            "                await self._disk.sync_names()\n            done = True",
            "                pass\n            done = True",
        ),
        (
            "recovered_tail_not_written_again",
            "what recovery keeps is on the disk, also after a failed sync",
            "node/carrying.py",
            "                await write_again(each.file, start, each.end)",
            "                pass",
        ),
        (
            "body_not_checked",
            "damaged entries are not served",
            "node/storereads.py",
            "        if len(body) == wanted.length and crc32c(body) == wanted.crc:",
            "        if len(body) == wanted.length:",
        ),
        (
            "lineage_kept",
            "whoever may have lost entries says so by a new lineage",
            "node/lonestart.py",
            "                lineage = rng.getrandbits(LINEAGE_BITS)\n        view",
            "                pass\n        view",
        ),
        (
            "retry_is_new",
            "what is sent again is stored once",
            "node/lanes.py",
            "    if head.seq <= lane.last:\n        return remembered(lane, head.seq)",
            "    if head.seq <= lane.last:\n        return lane",
        ),
        (
            "no_gap_rule",
            "a producer's batches keep their order",
            "node/lanes.py",
            "        and head.seq == lane.last + 1",
            "        and head.seq >= lane.last + 1",
        ),
        (
            "lost_wakeup",
            "a blocked pull returns when something comes",
            "node/waiters.py",
            "            self._unpark(lots.get(partition))",
            "            pass",
        ),
        (
            "one_waiter_woken",
            "everybody who waits for a topic is woken",
            "node/waiters.py",
            "            self.woken += len(lot.unpark_all())",
            "            self.woken += len(lot.unpark())",
        ),
        (
            "missing_not_counted",
            "a reader is told how many entries were pruned",
            "node/cursors.py",
            "            missing += max(0, first - 1 - done)",
            "            missing += 0",
        ),
        (
            "batch_end_skipped",
            "a reader never skips a number",
            "node/pulled.py",
            "        self.done[batch.partition] = batch.stop - 1",
            "        self.done[batch.partition] = batch.stop",
        ),
        (
            "batch_end_read_twice",
            "a reader never reads a number twice",
            "node/pulled.py",
            "        self.done[batch.partition] = batch.stop - 1",
            "        self.done[batch.partition] = max(0, batch.stop - 2)",
        ),
        (
            "half_the_capacity",
            "a topic is never fuller than its policy",
            "node/policies.py",
            "    if not policy.when_full:\n        return True",
            "    if policy.when_full != 1:\n        return True",
        ),
        (
            "waiting_never_numbered",
            "a batch that waits is numbered when there is room",
            "node/waiting.py",
            "    queue = state.queues.get(key)\n    while queue:",
            "    queue = state.queues.get(key)\n    while queue and state.position % 3 == 0:",
        ),
        (
            "age_in_half_the_time",
            "an entry goes only when it is too old",
            "node/numbering.py",
            "        return runs.oldest(now.chunks, now.tail)[2] + policy.max_age\n",
            "        return runs.oldest(now.chunks, now.tail)[2] + policy.max_age // 2\n",
        ),
        (
            "snapshot_shows_later_changes",
            "a snapshot shows one moment",
            "node/tables.py",
            "        if key not in self._noted and key in self.rows:",
            "        if False:",
        ),
        (
            "clock_never_sent",
            "entries grow old although nothing else happens",
            "node/keeper.py",
            "            if self.wall_us() >= self._due:",
            "            if False:",
        ),
        (
            "snapshot_ahead_of_the_row",
            "a snapshot never speaks of items that a power loss can take back",
            "node/snapshots.py",
            "            await settle()\n",
            "",
        ),
        *RARE,
        *CLIENTS,
    ]
)


if __name__ == "__main__":
    print(json.dumps({name: bug.breaks for name, bug in PLANTED.items()}, indent=1))
