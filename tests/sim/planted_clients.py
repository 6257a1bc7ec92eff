"""Planted bugs of clients, and of what a node says to them."""

from __future__ import annotations

CLIENTS = [
    (
        "resent_as_new",
        "a batch keeps its seq over reconnects",
        "node/outbox.py",
        "        for slot in self._slots:\n            slot.again |= slot.state != READY\n",
        """\
        for slot in [*self._slots]:
            if slot.seq == self._slots.last and slot.stop is None:
                self._return(slot)
                continue
            slot.again |= slot.state != READY
""",
    ),
    (
        "given_up_for_certain",
        "what certainly was not written is never read",
        "node/outbox.py",
        "                slot.again |= slot.state != READY\n                slot.state = READY",
        "                slot.state = READY",
    ),
    (
        "half_a_frame_sent_again",
        "what a socket took in part goes on where it stopped",
        "node/output.py",
        "            queue[0] = memoryview(queue[0])[count:]",
        "            pass",
    ),
    (
        "nothing_in_the_place_of_a_batch",
        "a batch that its client gave up is never numbered afterwards",
        "node/outbox.py",
        "        if slot.stop is None:\n            sent",
        "        if True:\n            sent",
    ),
    (
        "runs_too_far_ahead",
        "the row keeps the answer to a batch that waits until its client has it",
        "node/outbox.py",
        ">= LANE_RESULTS_MAX - 1:",
        ">= 1 << 60:",
    ),
    (
        "old_row_believed",
        "on another row a client takes nothing for what the old one did",
        "node/clientcore.py",
        "            self._begin_anew(before, welcome)",
        "            pass",
    ),
]
