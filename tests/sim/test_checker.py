"""The checker of histories: silent about what is right, and it names each wrong by its kind."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckrow.cluster.checker import check
from duckrow.cluster.history import Configured, Content, History, Loss, Policy, Produce, Prune, Pull

KEY = ("rides", 0)


def ten_entries() -> History:
    """Ten batches of one by two lanes, one a second; all read, by two nodes, in calm times."""
    history = History(ended=100.0, calm=[(0.0, 60.0)], produce_bound=1.0)
    for number in range(1, 11):
        lane = "p" if number % 2 else "q"
        history.produces.append(
            Produce(
                process=lane,
                key=KEY,
                values=[f"v{number}"],
                began=number,
                ended=number + 0.5,
                outcome="ok",
                first=number,
                lane=lane,
                seq=(number + 1) // 2,
                size=100,
            )
        )
    values = [f"v{number}" for number in range(1, 11)]
    for node, began in (("a", 20.0), ("b", 21.0), ("a", 22.0)):
        history.pulls.append(
            Pull(
                process="c",
                key=KEY,
                after=0,
                began=began,
                ended=began + 0.1,
                outcome="ok",
                node=node,
                numbers=range(1, 11),
                values=list(values),
            )
        )
    history.finals = {node: {KEY: Content(1, list(values))} for node in ("a", "b")}
    return history


def pruned(first: int) -> History:
    """The same, and entries before `first` are gone in the end and in the last pull."""
    history = ten_entries()
    for contents in history.finals.values():
        contents[KEY] = Content(first, contents[KEY].values[first - 1 :])
    history.pulls.pop()
    history.pulls[-1].node = "a"
    last = history.pulls[-1]
    last.numbers, last.values = range(first, 11), last.values[first - 1 :]
    last.missing = first - 1
    return history


def put_batch(history: History) -> Produce:
    """A batch of three, acknowledged and there."""
    batch = Produce("p", KEY, ["x", "y", "z"], 30.0, 30.5, "ok", 11, "p", 9)
    history.produces.append(batch)
    for contents in history.finals.values():
        contents[KEY] = Content(1, [*contents[KEY].values, "x", "y", "z"])
    return batch


def values(history: History, node: str) -> list[object]:
    kept = history.finals[node][KEY].values
    assert isinstance(kept, list)
    return kept


# -- planted anomalies --------------------------------------------------------------------

Plant = Callable[[History], object]


def everywhere(change: Callable[[list[object]], object]) -> Plant:
    def plant(history: History) -> None:
        for node in history.finals:
            change(values(history, node))

    return plant


def forget_reads(history: History) -> None:
    history.pulls.clear()


def unread_and_lost(history: History) -> None:
    forget_reads(history)
    everywhere(list.pop)(history)


def read_and_lost(history: History) -> None:
    history.produces[9].outcome = "info"
    everywhere(list.pop)(history)


def swap_order(history: History) -> None:
    """q's first is sent after p's last was acknowledged."""
    history.produces[1].began, history.produces[1].ended = 40.0, 40.5
    forget_reads(history)


def torn(history: History) -> None:
    put_batch(history).outcome = "info"
    everywhere(list.pop)(history)


def scattered(history: History) -> None:
    put_batch(history).outcome = "info"
    for contents in history.finals.values():
        contents[KEY] = Content(1, [*contents[KEY].values[:10], "y", "x", "z"])


def hole(history: History) -> None:
    forget_reads(history)
    for contents in history.finals.values():
        contents[KEY] = Content(1, [], numbers=[])
        contents[KEY].values = [f"v{number}" for number in (1, 2, 4)]
        contents[KEY].numbers = [1, 2, 4]


def never_answered(history: History) -> None:
    history.pulls.append(Pull("c", KEY, after=3, began=25.0))


def empty_answer(history: History) -> None:
    history.pulls.append(Pull("c", KEY, after=3, began=25.0, ended=30.0, outcome="ok"))


def late_answer(history: History) -> None:
    history.pulls.append(
        Pull("c", KEY, 9, 25.0, 26.0, "ok", numbers=[10], values=["v10"], wait=5.0)
    )


def waited_too_long(history: History) -> None:
    """It was blocked when v10 came."""
    history.pulls.append(
        Pull("c", KEY, 9, 5.0, 11.1, "ok", numbers=[10], values=["v10"], wait=50.0)
    )


def unanswered_produce(history: History) -> None:
    history.produces.append(Produce("p", KEY, ["late"], 30.0))


def edit(index: int, **changes: object) -> Plant:
    def plant(history: History) -> None:
        for name, value in changes.items():
            setattr(history.pulls[index], name, value)

    return plant


PLANTED: list[tuple[str, Plant]] = [
    ("divergent", lambda h: values(h, "b").__setitem__(2, "v33")),
    ("divergent", edit(0, values=[f"v{n}" for n in (1, 2, 3, 4, 5, 6, 7, 8, 10, 9)])),
    ("duplicate", everywhere(lambda kept: kept.append("v1"))),
    ("torn-batch", torn),
    ("torn-batch", scattered),
    ("number-too-high", everywhere(lambda kept: kept.append("v1"))),
    ("number-too-high", edit(0, numbers=[10**12], values=["v1"], after=10**12 - 1)),
    ("lost", unread_and_lost),
    ("lost", lambda h: h.finals.update({node: {} for node in h.finals})),
    ("lost", lambda h: h.produces.append(Produce("p", KEY, ["w"], 30, 31, "ok", 11, "p", 9))),
    ("lost-observed", read_and_lost),
    ("phantom", everywhere(lambda kept: kept.append("ghost"))),
    ("phantom", edit(0, numbers=range(1, 12), values=[*(f"v{n}" for n in range(1, 11)), "ghost"])),
    ("refused-yet-read", lambda h: setattr(h.produces[9], "outcome", "fail")),
    ("future-read", lambda h: setattr(h.produces[9], "began", 50.0)),
    ("poll-skip", edit(0, numbers=[1, 2, 4], values=["v1", "v2", "v4"])),
    ("poll-skip", edit(0, numbers=[2, 3], values=["v2", "v3"])),
    ("poll-nonmonotonic", edit(0, numbers=[1, 2, 2], values=["v1", "v2", "v2"])),
    ("poll-nonmonotonic", edit(0, numbers=[2, 1], values=["v2", "v1"], after=1)),
    ("poll-nonmonotonic", edit(0, after=5)),
    ("wrong-missing", edit(0, numbers=[4], values=["v4"], missing=2)),
    ("wrong-missing", edit(0, missing=3)),
    ("stale-read", edit(0, numbers=range(1, 5), values=["v1", "v2", "v3", "v4"], at_least=5)),
    ("stale-read", edit(0, numbers=[], values=[], at_least=1)),
    ("producer-reorder", lambda h: setattr(h.produces[0], "seq", 99)),
    ("realtime-reorder", swap_order),
    ("not-converged", lambda h: values(h, "b").pop()),
    ("not-converged", lambda h: h.finals["b"].pop(KEY)),
    ("prune-hole", hole),
    ("stuck-pull", never_answered),
    ("stuck-pull", empty_answer),
    ("late-wakeup", late_answer),
    ("late-wakeup", waited_too_long),
    ("stuck-produce", unanswered_produce),
]


def test_a_clean_history_has_no_anomaly() -> None:
    history = ten_entries()
    put_batch(history)

    assert str(check(history)) == ""
    assert check(history).ok


@pytest.mark.parametrize(("kind", "plant"), PLANTED)
def test_a_planted_anomaly_is_named(kind: str, plant: Plant) -> None:
    history = ten_entries()
    plant(history)

    report = check(history)

    assert kind in report.kinds
    assert kind in str(report)


def test_a_history_without_final_contents_is_checked_as_far_as_it_goes() -> None:
    history = ten_entries()
    history.finals.clear()

    assert check(history).ok
    swap_order(history)
    assert check(history).kinds == ["realtime-reorder"]


def test_the_number_of_texts_is_bounded_and_all_are_counted() -> None:
    history = ten_entries()
    for number in range(1000):
        history.produces.append(Produce("p", KEY, [f"w{number}"], 30, 31, "ok", 11 + number))

    report = check(history)

    assert report.counts["lost"] == 1000
    assert len(report.anomalies["lost"]) == 20


def test_unknown_outcomes_may_appear_or_not() -> None:
    history = ten_entries()
    history.produces.append(Produce("p", KEY, ["never seen"], began=70.0))
    history.produces.append(Produce("p", KEY, ["seen"], began=70.0))
    everywhere(lambda kept: kept.append("seen"))(history)

    assert check(history).ok


def test_a_pull_at_the_end_may_wait_and_come_back_with_nothing() -> None:
    history = ten_entries()
    history.pulls.append(Pull("c", KEY, after=10, began=25.0, ended=30.0, outcome="ok"))
    history.pulls.append(Pull("c", KEY, after=10, began=25.0))

    assert check(history).ok


# -- pruning ------------------------------------------------------------------------------


def configure(history: History, policy: Policy, *, until: float | None = None) -> None:
    history.configured.append(Configured("rides", policy, 0.0, 0.5))
    if until is not None:
        history.configured.append(Configured("rides", Policy(), until, until + 0.5))


def jumped(history: History) -> None:
    configure(history, Policy(max_age=60))
    history.skew = 50.0


ALLOWED: list[tuple[str, Plant]] = [
    ("a prune command", lambda h: h.prunes.append(Prune(KEY, 4, 15.0, "ok"))),
    ("one with unknown outcome", lambda h: h.prunes.append(Prune(KEY, 4, 15.0))),
    ("a number of entries", lambda h: configure(h, Policy(max_entries=6))),
    ("a number of bytes", lambda h: configure(h, Policy(max_bytes=600))),
    ("an age", lambda h: configure(h, Policy(max_age=15.0))),
    ("an age, clocks having jumped", jumped),
    (
        "a policy that is over",
        lambda h: configure(h, Policy(max_entries=6), until=12.0),
    ),
]
REFUSED: list[tuple[str, Plant]] = [
    ("nothing", lambda h: None),
    ("a shorter prune", lambda h: h.prunes.append(Prune(KEY, 3, 15.0, "ok"))),
    ("a refused prune", lambda h: h.prunes.append(Prune(KEY, 4, 15.0, "fail"))),
    ("a later prune", lambda h: h.prunes.append(Prune(KEY, 4, 50.0, "ok"))),
    ("a prune of another partition", lambda h: h.prunes.append(Prune(("rides", 1), 9, 1.0))),
    ("more entries", lambda h: configure(h, Policy(max_entries=7))),
    ("more bytes", lambda h: configure(h, Policy(max_bytes=700))),
    ("a greater age", lambda h: configure(h, Policy(max_age=18.0))),
    ("full that refuses", lambda h: configure(h, Policy(max_entries=6, when_full="reject"))),
    ("another topic's", lambda h: h.configured.append(Configured("other", Policy(1.0), 0.0))),
    (
        "a policy that was over before",
        lambda h: configure(h, Policy(max_entries=6), until=7.0),
    ),
]


@pytest.mark.parametrize(("what", "allow"), ALLOWED)
def test_what_something_allowed_may_be_gone(what: str, allow: Plant) -> None:
    history = pruned(5)
    allow(history)

    assert check(history).ok, what


@pytest.mark.parametrize(("what", "allow"), REFUSED)
def test_what_nothing_allowed_is_gone_too_early(what: str, allow: Plant) -> None:
    history = pruned(5)
    allow(history)

    assert check(history).kinds == ["early-prune"], what


def test_one_entry_more_than_allowed_is_too_early() -> None:
    history = pruned(6)
    configure(history, Policy(max_entries=6))

    assert check(history).kinds == ["early-prune"]


def test_a_pruned_entry_does_not_come_back_on_the_same_node() -> None:
    history = pruned(5)
    history.prunes.append(Prune(KEY, 4, 1.0, "ok"))
    again = Pull("c", KEY, 0, 30.0, 30.1, "ok", "a", range(1, 11), [f"v{n}" for n in range(1, 11)])
    history.pulls.append(again)
    assert check(history).kinds == ["first-went-back"]

    again.node = "b"  # another node may lag
    assert check(history).ok

    again.node, again.began, again.ended = (
        "a",
        21.05,
        21.2,
    )  # nor is anything known of concurrent pulls
    assert check(history).ok


def test_a_prune_that_was_lost_with_the_power_may_come_back() -> None:
    history = pruned(5)
    history.prunes.append(Prune(KEY, 4, 1.0, "ok"))
    for contents in history.finals.values():
        contents[KEY] = Content(4, ["v4", *contents[KEY].values])
    history.losses.append(Loss(since=21.0, at=40.0))
    assert check(history).ok

    history.losses = [Loss(since=22.0, at=40.0)]
    assert check(history).kinds == ["first-went-back"]


def test_a_pruned_entry_does_not_come_back_in_the_end() -> None:
    history = pruned(5)
    history.prunes.append(Prune(KEY, 4, 1.0, "ok"))
    for contents in history.finals.values():
        contents[KEY] = Content(4, ["v4", *contents[KEY].values])

    assert check(history).kinds == ["first-went-back"]


@pytest.mark.parametrize(
    ("policy", "kinds"),
    [
        (Policy(max_entries=10), []),
        (Policy(max_entries=9), ["overfull"]),
        (Policy(max_entries=9, when_full="reject"), ["overfull"]),
        (Policy(max_bytes=1000), []),
        (Policy(max_bytes=999), ["overfull"]),
    ],
)
def test_a_bound_that_is_not_kept_is_overfull(policy: Policy, kinds: list[str]) -> None:
    history = ten_entries()
    configure(history, policy)

    assert check(history).kinds == kinds


def test_a_bound_that_came_later_makes_nobody_go_where_the_oldest_stay() -> None:
    history = ten_entries()
    configure(history, Policy())
    history.configured.append(Configured("rides", Policy(None, 9, None, "reject"), 50.0, 51.0))

    assert check(history).ok


def test_a_deleted_topic_need_not_be_there_in_the_end() -> None:
    history = ten_entries()
    history.finals = {"a": {}, "b": {}}
    history.deleted.append(KEY)

    assert check(history).ok


# -- levels that may lose -----------------------------------------------------------------


def test_what_became_known_shortly_before_a_loss_may_vanish_and_its_numbers_be_used_again() -> None:
    history = ten_entries()
    history.pulls.clear()
    for node in history.finals:
        kept = values(history, node)
        kept[8:] = ["w9", "w10"]
    for number in (9, 10):
        history.produces.append(
            Produce("p", KEY, [f"w{number}"], 20.0, 20.5, "ok", number, "p", 90 + number)
        )
    assert {"lost", "divergent"} <= set(check(history).kinds)

    history.losses.append(Loss(since=9.2, at=12.0))
    assert check(history).ok

    history.losses = [Loss(since=9.7, at=12.0)]  # the ninth was acknowledged at 9.5
    assert check(history).kinds == ["divergent", "lost"]


def test_numbers_that_a_loss_set_free_belong_to_whoever_was_acknowledged_after_it() -> None:
    history = pruned(11)  # in the end nothing is left that would say who had the numbers
    history.prunes.append(Prune(KEY, 10, 1.0, "ok"))
    for number in (9, 10):
        history.produces.append(
            Produce("p", KEY, [f"w{number}"], 24.0, 24.5, "ok", number, "p", 90 + number)
        )
    assert "divergent" in check(history).kinds

    history.losses.append(Loss(since=8.9, at=23.5))
    assert check(history).ok


def test_what_was_gone_before_a_loss_says_nothing_of_the_entries_with_its_number_now() -> None:
    history = pruned(5)
    history.prunes.append(Prune(KEY, 4, 22.0, "ok"))
    assert check(history).kinds == ["early-prune"]  # seen at 21

    history.losses.append(Loss(since=20.0, at=21.9))
    assert check(history).ok


def test_where_pruning_stood_before_a_loss_binds_nobody_after_it() -> None:
    history = pruned(3)
    configure(history, Policy(max_entries=8))
    told = ["v9", "v10"]  # by a prune that the loss took
    history.pulls.append(Pull("d", KEY, 0, 10.6, 10.7, "ok", "a", range(9, 11), told, 8))
    assert check(history).kinds == ["early-prune", "first-went-back"]

    history.losses.append(Loss(since=9.0, at=11.0))
    assert check(history).ok


def test_a_policy_that_was_lost_with_the_power_need_not_be_kept() -> None:
    history = ten_entries()
    configure(history, Policy(max_entries=9))
    assert check(history).kinds == ["overfull"]

    history.losses.append(Loss(since=0.0, at=0.9))
    assert check(history).ok


def test_a_refusal_that_was_lost_with_the_power_says_nothing() -> None:
    """A batch that waited was withdrawn; with the power the withdrawal went, and it got numbers."""
    history = ten_entries()
    history.produces[9].outcome, history.produces[9].ended = "fail", 10.5
    assert check(history).kinds == ["refused-yet-read"]

    history.losses.append(Loss(since=10.0, at=11.0))
    assert check(history).ok

    history.losses = [Loss(since=10.6, at=11.0)]
    assert check(history).kinds == ["refused-yet-read"]


def test_what_a_loss_took_has_no_bytes_in_the_end() -> None:
    """Its numbers were used again, by others who count for themselves."""
    history = ten_entries()
    history.pulls.clear()
    configure(history, Policy(max_bytes=1000))
    for number in (9, 10):
        history.produces.append(
            Produce("p", KEY, [f"w{number}"], 20.0, 20.5, "ok", number, "p", 90 + number)
        )
        for node in history.finals:
            values(history, node)[number - 1] = f"w{number}"
    for produce in history.produces:
        produce.size = 100
    history.losses.append(Loss(since=9.2, at=12.0))
    assert check(history).ok

    history.produces[0].size = 101
    assert check(history).kinds == ["overfull"]


def test_a_read_before_the_loss_window_must_hold() -> None:
    history = ten_entries()
    read_and_lost(history)
    history.losses.append(Loss(since=10.0, at=50.0))
    assert check(history).ok

    history.losses = [Loss(since=30.0, at=50.0)]  # read at 20
    assert check(history).kinds == ["lost-observed"]


# -- no false alarms ----------------------------------------------------------------------


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


# -- size ---------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("operations", "seconds"),
    [(50_000, 3.0), pytest.param(1_000_000, 30.0, marks=pytest.mark.long)],
)
def test_a_million_operations_take_seconds(operations: int, seconds: float) -> None:
    history = large_history(operations)
    started = time.process_time()

    report = check(history)

    spent = time.process_time() - started
    print(f"{operations:,} operations in {spent:.2f} CPU s")
    assert report.ok
    assert spent < seconds


def test_nobody_waits_for_an_entry_that_may_have_vanished() -> None:
    history = ten_entries()
    pull = Pull("d", KEY, 10, 30.0, 32.0, "ok", "a")
    history.pulls.append(pull)
    history.produces.append(Produce("p", KEY, ["gone"], 23.0, 23.5, "ok", 11, "p", 9))
    assert "stuck-pull" in check(history).kinds

    history.losses.append(Loss(since=23.0, at=29.0))
    assert check(history).ok
