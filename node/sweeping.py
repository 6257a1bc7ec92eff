"""Sweeping: what one command changes for many partitions comes bit by bit, some with each item.

A new policy may drop entries, make room for those who wait, and bring forward when something is too
old, in each of 1,024 partitions; and a bundle has thousands of commands.  So a command only notes
that the partitions of its topic have to be looked at, and each item looks at 64:

    sweeps      topic 7: 300       partitions 0 to 299 have been brought under the policy
    item        64 more            topic 7: 364

What is noted is state, so every node sweeps the same with the same item.  A batch that comes meanwhile
is held to the new policy at once, in its partition.  Where more batches wait for room than one
item numbers, the sweep comes back to that partition, too.
"""

from __future__ import annotations

from .effects import Effect
from .numbering import hold_to_limits
from .state import State
from .values import PARTITION_BITS, PARTITION_MASK, Topic
from .waiting import fill, later


def begin(state: State, topic: Topic, effects: list[Effect]) -> None:
    """All partitions of the topic, as many as this item may."""
    later(state, topic, 0)
    sweep(state, effects)


def sweep(state: State, effects: list[Effect]) -> None:
    """A step of it; the topics in the order in which they were noted."""
    sweeps = state.sweeps
    while state.budget and sweeps:
        topic_id = sweeps.oldest()
        partition, topic = sweeps.rows[topic_id], state.topic_of(topic_id)
        assert topic is not None, "the sweep of a deleted topic"
        if partition >= state.widths.get(topic_id, 0):
            sweeps.drop(topic_id)
            continue
        state.budget -= 1
        key = topic.key(partition)
        now = state.partitions.rows.get(key)
        if now is not None:
            state.due.drop(key)  # a shorter age comes before what was noted
            hold_to_limits(state, topic, partition, now, effects)
        sweeps.put(topic_id, partition + 1)
        fill(state, topic, partition, effects)


def is_unswept(state: State, key: int) -> bool:
    """Whether the policy of the topic has not come to this partition yet."""
    at = state.sweeps.rows.get(key >> PARTITION_BITS)
    return at is not None and key & PARTITION_MASK >= at
