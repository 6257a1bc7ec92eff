"""The checker of histories never accuses an honest log, and takes a time in proportion to it."""

from __future__ import annotations

import random
import sys
from math import inf
from types import FrameType

from hypothesis import given, settings
from hypothesis import strategies as st

from duckrow.cluster.checker import check
from duckrow.cluster.history import Configured, Content, History, Policy, Produce, Prune, Pull


def honest_history(seed: int, operations: int) -> History:
    """What clients of a correct log record: concurrency, unknown outcomes, pruning, two nodes."""
    rng = random.Random(seed)
    history = History(calm=[(0.0, 1e9)], produce_bound=1e9)
    bound = rng.choice((None, 20, 200))
    if bound is not None:
        history.configured.append(Configured("rides", Policy(max_entries=bound), -1.0, -0.5))
    logs: list[list[str]] = [[], []]
    firsts = [1, 1]
    seqs: dict[str, int] = {}
    now = 0.0
    for _ in range(operations):
        now += rng.random()
        partition = rng.randrange(2)
        key, log = ("rides", partition), logs[partition]
        if rng.random() < 0.5:
            lane = f"p{rng.randrange(3)}"
            seq = seqs[lane] = seqs.get(lane, 0) + 1
            batch = [f"{lane}.{seq}.{index}" for index in range(rng.randint(1, 5))]
            outcome = rng.choice(("ok", "ok", "ok", "info", "fail"))
            produce = Produce(lane, key, batch, now, inf, outcome, 0, lane, seq, size=len(batch))
            if outcome == "ok" or (outcome == "info" and rng.random() < 0.5):
                produce.first = len(log) + 1 if outcome == "ok" else 0
                log.extend(batch)
            if outcome != "info":
                produce.ended = now + rng.random() * 0.3
                now = produce.ended
            history.produces.append(produce)
            if bound is not None and rng.random() < 0.7:
                firsts[partition] = max(firsts[partition], len(log) - bound + 1)
            if rng.random() < 0.02 and log:
                number = rng.randint(0, len(log))
                history.prunes.append(Prune(key, number, now, "ok"))
                firsts[partition] = max(firsts[partition], number + 1)
        else:
            after = rng.choice((0, rng.randint(0, len(log)), len(log)))
            first = max(after + 1, firsts[partition])
            numbers = range(first, min(first + rng.randint(0, 30), len(log) + 1))
            pull = Pull("c", key, after, now, now + 0.1, "ok", "a", numbers)
            pull.values = [log[number - 1] for number in numbers]
            pull.missing = first - after - 1
            if not numbers and first <= len(log):
                continue
            history.pulls.append(pull)
    for partition, log in enumerate(logs):
        if bound is not None:
            firsts[partition] = max(firsts[partition], len(log) - bound + 1)
        kept = log[firsts[partition] - 1 :]
        for node in ("a", "b"):
            contents = history.finals.setdefault(node, {})
            contents["rides", partition] = Content(firsts[partition], kept)
    history.ended = now + 1
    return history


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 400))
def test_an_honest_log_is_never_accused(seed: int, operations: int) -> None:
    assert str(check(honest_history(seed, operations))) == ""


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 32))
def test_an_entry_taken_from_the_end_of_an_honest_log_is_missed(seed: int) -> None:
    history = honest_history(seed, 200)
    for contents in history.finals.values():
        for key, content in contents.items():
            contents[key] = Content(content.first, content.values[:-1])
    certain = any(produce.outcome == "ok" for produce in history.produces)

    kinds = set(check(history).kinds)

    assert (
        not certain or kinds & {"lost", "lost-observed", "torn-batch"} or last_is_unknown(history)
    )


def last_is_unknown(history: History) -> bool:
    """In both partitions the last batch had an unknown outcome and nobody read its end."""
    kept = {
        value
        for contents in history.finals.values()
        for c in contents.values()
        for value in c.values
    }
    return all(
        produce.outcome != "ok" or set(produce.values) <= kept or produce.first == 0
        for produce in history.produces[-50:]
    )


def large_history(operations: int) -> History:
    """Half produces, half pulls of twenty rows; ten partitions, 50 lanes; no pruning."""
    history = History(ended=1e9)
    logs: list[list[str]] = [[] for _ in range(10)]
    now = 0.0
    for index in range(operations // 2):
        now += 1.0
        log = logs[index % 10]
        key = ("rides", index % 10)
        lane = f"p{index % 50}"
        value = f"v{index}"
        log.append(value)
        history.produces.append(
            Produce(lane, key, [value], now, now + 5.0, "ok", len(log), lane, index)
        )
        after = max(0, len(log) - 20)
        rows = log[after:]
        numbers = list(range(after + 1, len(log) + 1))
        history.pulls.append(Pull("c", key, after, now + 0.5, now + 0.6, "ok", "a", numbers, rows))
    history.finals["a"] = {("rides", p): Content(1, log) for p, log in enumerate(logs)}
    return history


def calls_of_checking(operations: int) -> int:
    """How many functions are called on the way: a cost that is the same on every machine."""
    history, count = large_history(operations), 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        report = check(history)
    finally:
        sys.setprofile(None)
    assert report.ok
    return count


def test_ten_times_the_operations_cost_ten_times_as_much() -> None:
    assert calls_of_checking(20_000) < 11 * calls_of_checking(2_000)
