"""What a seed decides before anything happens: the store, the topics, the clients, the faults.

Swarm testing: every seed draws a world of its own, with some kinds of faults and without others,
hasty or slow.  All faults at once would hide each other; and a bug that needs small segments and a
full topic is met when both happen to be drawn.
"""

from __future__ import annotations

import random
from typing import Any

import attrs

from duckrow.node.storeoptions import FSYNC, LEVELS, MEMORY, WRITE

KINDS = (
    "kill",
    "power",
    "crash-point",
    "pause",
    "cut",
    "one-way",
    "reset",
    "lossy",
    "slow-net",
    "slow-sync",
    "sync-error",
    "write-error",
    "names-error",
    "read-error",
    "disk-full",
    "flip",
    "flip-any",
    "spoil",
    "skew",
    "in-a-row",
    "stop",
    "client-kill",
    "client-pause",
)


@attrs.frozen
class TopicPlan:
    name: str
    policy: dict[str, Any]

    @property
    def partitions(self) -> int:
        return int(self.policy.get("partitions", 1))

    @property
    def may_wait(self) -> bool:
        """A batch may wait there for room."""
        return self.policy.get("when_full") in ("block", "slot")

    @property
    def may_refuse(self) -> bool:
        """A batch that has a place in the order may be refused there all the same, or wait."""
        return self.may_wait or self.policy.get("when_full") == "reject"


@attrs.frozen(kw_only=True)
class Plan:
    """A run, in a few lines; tests write one by hand, `drawn` makes one of a seed."""

    seconds: float = 10.0
    calm: float = 3.0  # at the end, without faults
    level: str = FSYNC
    segment_bytes: int = 32 * 1024
    snapshot_items: int = 100
    topics: tuple[TopicPlan, ...] = (TopicPlan("a", {}),)
    producers: int = 2
    consumers: int = 2
    stagers: int = 0
    keyed: float = 0.0  # share of the batches with keys
    expect: float = 0.0  # share of the batches that may follow one number only
    gap: float = 0.05  # mean seconds between two produces of a producer
    batch: int = 3  # entries at most
    value_bytes: int = 40
    window: int = 1  # calls for a lane in flight
    cancel: float = 0.0  # share of the calls that are cancelled
    accepted: float = 0.0  # share of the entries that are first accepted, and asked for later
    stream_bytes: int = 256 * 1024  # of a connection that are sent and not read
    faults: tuple[str, ...] = ()
    tempo: float = 1.0  # of the faults
    hands: int = 1  # faults at the same time
    split: float = 0.05  # probability that a segment of a stream is cut in two
    sync_seconds: float = 0.001
    admin: float = 0.0  # mean seconds between changes of policies; 0: none
    buggify: float = 0.25
    again: bool = (
        False  # who starts again sends the last entry with an id again, if it heard nothing of it
    )


def drawn(rng: random.Random, seconds: float = 10.0) -> Plan:
    kinds = KINDS
    level = rng.choice((FSYNC, FSYNC, WRITE, *LEVELS))
    topics = tuple(
        TopicPlan(name, _policy(rng)) for name in ("a", "b", "c", "d")[: rng.randint(1, 4)]
    )
    if level == MEMORY:
        # A topic that goes with the power comes back with the next produce, in one partition.
        for topic in topics:
            topic.policy.pop("partitions", None)
    return Plan(
        seconds=seconds,
        level=level,
        segment_bytes=rng.choice((4, 8, 8, 16, 64, 1024)) * 1024,
        snapshot_items=rng.choice((5, 20, 50, 300)),
        topics=topics,
        producers=rng.randint(1, 4),
        consumers=rng.randint(1, 4),
        gap=rng.choice((0.003, 0.01, 0.03, 0.2)),
        batch=rng.choice((1, 1, 3, 20)),
        value_bytes=rng.choice((16, 40, 40, 400)),
        window=rng.choice((1, 1, 3, 10)),
        cancel=rng.choice((0.0, 0.0, 0.1)),
        accepted=rng.choice((0.0, 0.3)),
        stream_bytes=rng.choice((1, 64, 64)) * 4 * 1024,
        faults=tuple(rng.sample(kinds, rng.randint(0, 8))),
        tempo=rng.choice((0.15, 0.4, 1.0)),
        hands=rng.choice((1, 1, 2)),
        split=rng.choice((0.0, 0.05, 0.5)),
        sync_seconds=rng.choice((0.0003, 0.001, 0.005)),
        admin=rng.choice((0.0, 0.0, 0.3, 1.0)),
        buggify=rng.choice((0.0, 0.25, 0.25, 1.0)),
        stagers=rng.choice((0, 0, 1)),
        keyed=rng.choice((0.0, 0.5)),
        expect=rng.choice((0.0, 0.0, 0.3)),
    )


def _policy(rng: random.Random) -> dict[str, Any]:
    policy: dict[str, Any] = {}
    if rng.random() < 0.3:
        policy["partitions"] = rng.choice((2, 3))
    if rng.random() < 0.3:
        policy["max_age"] = rng.choice((300_000, 2_000_000))
    if rng.random() < 0.3:
        policy["max_entries"] = rng.choice((5, 30, 200))
    if rng.random() < 0.2:
        policy["max_bytes"] = rng.choice((4_000, 20_000))
    if ("max_entries" in policy or "max_bytes" in policy) and rng.random() < 0.6:
        policy["when_full"] = rng.choice(("drop-oldest", "reject", "block", "slot"))
    return policy
