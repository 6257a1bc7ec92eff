"""What a node holds in the end: all entries of all partitions, as a reader of it gets them."""

from __future__ import annotations

from duckrow.cluster.history import Content, History
from duckrow.cluster.history import Policy as Told
from duckrow.node.entries import entries_of
from duckrow.node.errors import Damaged, DuckrowError
from duckrow.node.keeper import Keeper
from duckrow.node.policies import WHEN_FULL, Policy
from duckrow.node.reading import Pull

from .service import NODE
from .workload import Observed

LATE_US = 1_500_000  # an entry that is so much too old should have gone


async def contents(
    node: Keeper, seen: Observed, now_us: int | None = None, *, name: str = NODE
) -> dict[tuple[str, int], Content]:
    """`now_us`: by which entries grow old, if that is not the clock of this node, which has a name."""
    now_us = node.wall_us() if now_us is None else now_us
    content: dict[tuple[str, int], Content] = {}
    for topic in node.state.topics.rows.values():
        for partition in range(topic.policy.partitions):
            content[topic.name, partition] = await _read(
                node, seen, topic.name, partition, now_us, name
            )
    return content


def forgive_age(history: History, earlier: str, later: str) -> None:
    """Entries go on growing old between the two looks, and make room for batches that wait."""
    aging = {one.topic for one in history.configured if one.policy.max_age}
    for key, after in history.finals.get(later, {}).items():
        before = history.finals.get(earlier, {}).get(key)
        if before is not None and key[0] in aging and before.first < after.first:
            gone = min(after.first - before.first, len(before.values))
            before.first += gone
            before.values = before.values[gone:]
            before.numbers = (before.numbers or [])[gone:]
        waits = any(one.policy.when_full in ("block", "slot") for one in history.configured)
        if before is not None and key[0] in aging and waits and after.last > before.last:
            more = after.last - max(before.last, after.first - 1)
            before.first = min(before.first, after.first) if before.values else after.first
            before.values = [*before.values, *after.values[-more:]]
            before.numbers = [*(before.numbers or []), *(after.numbers or [])[-more:]]


async def _read(
    node: Keeper, seen: Observed, topic: str, partition: int, now_us: int, name: str
) -> Content:
    numbers: list[int] = []
    values: list[str | None] = []
    places: list[tuple[int, int, int]] = []  # of batches: first number, time, position
    topic_now = node.state.topic(topic)
    assert topic_now is not None
    first = node.state.partition(topic_now.id, partition).first
    done, time = first - 1, 0
    while True:
        try:
            found = await node.reader.pull(Pull(topic, done, partition=partition, limit=1000))
        except Damaged as damage:
            seen.tell((topic, partition), damage.first, damage.last, nodes=[name])
            numbers += range(damage.first, damage.last + 1)
            values += [None] * (damage.last - damage.first + 1)
            done = damage.last
            continue
        except (DuckrowError, OSError) as error:
            seen.problems.append(f"unreadable: {topic}/{partition} after {done}: {error}")
            break
        batches = entries_of(topic, found).batches
        seen.shown(found.topic_id, batches)
        for batch in batches:
            if batch.time < time:
                seen.problems.append(f"time-back: {topic}/{partition} {batch.first}")
            time = batch.time
            places.append((batch.first, time, batch.position))
            age = now_us - batch.time - LATE_US
            if 0 < topic_now.policy.max_age < age and not seen.ended:
                seen.problems.append(f"too-old: {topic}/{partition} {batch.first}")
            for entry in batch.entries():
                numbers.append(entry.number)
                values.append(seen.read(entry))
        if not found.batches:
            break
        done = numbers[-1]
    if None not in values:
        _check_index(node, seen, (topic, topic_now.id, partition), places)
    return Content(first, values, numbers, policy_of(topic_now.policy))


def policy_of(policy: Policy) -> Told:
    return Told(
        policy.max_age / 1e6 if policy.max_age else None,
        policy.max_entries or None,
        policy.max_bytes or None,
        next(name for name, kind in WHEN_FULL.items() if kind == policy.when_full),
    )


def _check_index(
    node: Keeper, seen: Observed, key: tuple[str, int, int], places: list[tuple[int, int, int]]
) -> None:
    """Who asks from a time on, or for the last k, begins where that is; what was pruned is not asked for."""
    topic, id_, partition = key
    for field, look in ((1, node.numbers.at_time), (2, node.numbers.at_position)):
        before = places[0][field] if places else 0
        for place in places:
            if place[field] == before:
                continue  # the same time, or item, as the one before it
            before = place[field]
            row = look(id_, partition, before)
            if row is None or row.first != place[0]:
                text = (
                    f"{topic}/{partition}: from {before} on is {row}, and {place[0]} is the first"
                )
                seen.problem("wrong-place", text)
