"""Random commands that mean something: next seqs mostly, copies, gaps, epochs; few names, tight policies.

A drawn command is a handful of small numbers, which shrink well; what they mean is decided here,
looking at the state, so that most commands do something and every rule is met.
"""

import random
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from core.rowkit import ANN, BOB, EVE, SECOND, Row
from duckrow.node import makers
from duckrow.node.commands import Command
from duckrow.node.makers import Turn
from duckrow.node.state import State
from duckrow.node.values import index_of, position_of

Drawn = tuple[int, int, int, int, int, int, int]

COMMANDS = st.tuples(
    st.integers(0, 19),  # kind, see `command`
    st.integers(0, 2),  # pid
    st.integers(0, 1),  # topic
    st.integers(0, 1),  # partition
    st.integers(0, 11),
    st.integers(0, 7),
    st.integers(0, 9),  # which seq
)
ITEMS = st.lists(COMMANDS, min_size=1, max_size=3)  # commands that share a bundle

PIDS = [ANN, BOB, EVE]
TOPICS = ["t", "u"]
WRITERS = [b"w", b"v"]
POLICIES: list[dict[str, Any]] = [
    {},
    {"max_entries": 3},
    {"max_entries": 4, "when_full": "block"},
    {"max_bytes": 100, "when_full": "reject"},
    {"max_bytes": 150},
    {"max_age": 10 * SECOND},
    {"max_entries": 2, "when_full": "slot", "max_age": 20 * SECOND},
    {"max_bytes": 120, "max_entries": 5},
    {"archive": 3, "max_entries": 4},
    {"archive": 2, "max_age": 10 * SECOND},
    {"max_bytes": 120, "when_full": "block", "max_age": 30 * SECOND},
    {"max_entries": 3, "when_full": "block", "archive": 2},
]
NONE = dict.fromkeys(["max_age", "max_entries", "max_bytes", "when_full", "archive"])
SETTINGS: list[dict[str, Any]] = [
    {"lanes_max": 3},
    {"lanes_max": 6},
    {"lanes_max": None},
    {"ids_max": 2},
    {"create": "explicit"},
    {"create": None},
    {"stage_expiry": 15 * SECOND, "writers_max": 1},
    {"topics_max": 1, "waiting_max": 2},
    {"topics_max": None, "waiting_max": None, "stages_max": 1},
    {"stages_max": None, "writers_max": None, "stage_expiry": None},
]
PAUSES = [0, 1, 2, 5, 10, 30, -20, 60]


def drawn_by(rng: random.Random, items: int) -> list[list[Drawn]]:
    """More of them than hypothesis would draw: rules that meet seldom meet."""
    tight = rng.choice([TIGHT, TIGHT, CALM])
    return [[draw(rng, tight) for _ in range(rng.choice((1, 1, 1, 2, 5)))] for _ in range(items)]


def draw(rng: random.Random, kinds: Sequence[int]) -> Drawn:
    which = rng.choice((0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9))
    return (
        rng.choice(kinds),
        rng.randrange(3),
        rng.choice((0, 0, 1)),
        rng.randrange(2),
        rng.randrange(12),
        rng.randrange(8),
        which if which < 8 or rng.random() < 0.2 else 0,
    )


TIGHT = [*range(17), *range(7), 10, 12, 17, 18]
CALM = [*range(7), *range(7), 12, 13, 15, 17, 17]


def play(row: Row, items: list[list[Drawn]] | list[Drawn]) -> None:
    for drawn in items:
        group = drawn if isinstance(drawn, list) else [drawn]
        kind, _, _, _, a, b, _ = group[0]
        if kind == 19 and a < 4:
            row.mark(*[(1, 1), (2, 1), (3, 1)][: 1 + a % 3])
            continue
        if kind >= 17:
            row.time += PAUSES[b] * SECOND
            row.item(origin=1 + (a % 3 if kind == 18 else 0))
        commands = [command(row, each) for each in group]
        row.item(*commands, origin=1 + (a % 3 if kind == 18 else 0))


def command(row: Row, drawn: Drawn) -> Command:
    kind, pid, name, partition, a, b, which = drawn
    state, topic = row.state, TOPICS[name]
    found = state.topic(topic)
    partitions = found.policy.partitions if found else 1 + (a == 11)
    partition = min(partition, partitions - 1)
    policy = POLICIES[a]
    own = turn(row, PIDS[pid], topic, partition, which)
    plain = turn(row, PIDS[pid], "", 0, which)
    where: dict[str, Any] = {"partition": partition, "partitions": partitions}
    count, body = 1 + a % 4, bytes([0, 10, 50, 110][b % 4])
    if kind <= 2:
        return makers.produce(own, topic, body, count, **where)
    if kind == 3:
        ids = [b"%d" % ((b + n) % 6) for n in range(1 + a % 3)]
        return makers.produce(own, topic, body, len(ids), ids=ids, **where)
    if kind == 4:
        last = state.partition(found.id, partition).last if found else 0
        return makers.produce(
            own, topic, body, count, expect_last=max(0, last + b % 3 - 1), **where
        )
    if kind == 5:
        topic_id = (found.id if found else 5) + (a == 0)
        return makers.produce(own, topic, body, count, topic_id=topic_id, **where)
    if kind == 6:
        skewed = own._replace(time=own.time + (b - 4) * 20 * SECOND)
        where["partitions"] = max(partition + 1, partitions + (a == 0) - (a == 1))
        return makers.produce(skewed, topic, body, count, **where)
    if kind <= 8:
        return makers.skip(skipped(state, own, topic, partition), topic, partition)
    if kind == 9:
        return makers.create(plain, topic, {**policy, "partitions": 1 + b % 2})
    if kind == 10:
        base = {} if b % 2 else NONE
        return makers.configure(plain, topic, {**base, **policy, "partitions": 1 + b // 4})
    if kind == 11 and a < 4:
        return makers.delete(plain, topic, topic_id=5 * (a == 0))
    if kind in (11, 12):
        last = state.partition(found.id, partition).last if found else 0
        return makers.prune(plain, topic, max(0, last - b), partition=partition)
    if kind in (13, 14):
        writer = WRITERS[a % 2]
        return makers.stage(
            own, topic, body, count, **where, writer=writer, batch=1 + b, task=which
        )
    if kind == 15:
        return committed(state, plain, a, b)
    if kind == 16:
        return makers.settings(plain, SETTINGS[a % len(SETTINGS)])
    return makers.clock(plain)


def turn(row: Row, pid: bytes, topic: str, partition: int, which: int) -> Turn:
    """The next seq, mostly."""
    lane = row.state.lanes.rows.get((pid, topic, partition))
    producer = row.state.producers.rows.get(pid)
    epoch, last = (producer.epoch if producer else 0), (lane.last if lane else 0)
    if lane and lane.epoch < epoch:
        last = 0
    done = max(0, last - 3) if which % 2 else 0
    if which == 9:
        return Turn(pid, 1, epoch + 1, 0, row.time)
    if which == 8:
        return Turn(pid, last + 1, max(0, epoch - 1), 0, row.time)
    seq = {7: last + 2, 6: last or 1, 5: max(0, last - 2) if last > 1 else 1}.get(which, last + 1)
    return Turn(pid, seq, epoch, done, row.time)


def skipped(state: State, own: Turn, topic: str, partition: int) -> Turn:
    """What waits, if something does."""
    lane = state.lanes.rows.get((own.pid, topic, partition))
    return own._replace(seq=lane.waiting[-1][0]) if lane and lane.waiting else own


def committed(state: State, plain: Turn, a: int, b: int) -> Command:
    """What its writer staged, or some of it, or with something else."""
    writer = WRITERS[a % 2]
    staged = sorted(ticket for _, ticket in state.stages_of.get(writer, ()))
    batch = state.stages.rows[staged[-1]].batch if staged else 1 + b
    names = [name for name in staged if state.stages.rows[name].batch == batch]
    if a >= 9:
        names = names[1:]
    if a == 8:
        names = sorted(state.stages.rows)
    places = [(position_of(name), index_of(name)) for name in names]
    if b == 7:
        places.append((3, 0))
    return makers.commit(plain, writer, batch, places)
