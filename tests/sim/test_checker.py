"""The checker of histories: silent about what is right, and it names each wrong by its kind."""

from __future__ import annotations

import pytest

from duckrow.cluster.checker import check
from duckrow.cluster.history import Content, History, Produce, Pull

from .histories import KEY, Plant, everywhere, put_batch, read_and_lost, ten_entries, values


def forget_reads(history: History) -> None:
    history.pulls.clear()


def unread_and_lost(history: History) -> None:
    forget_reads(history)
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
    ("too-many", edit(0, limit=9)),
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
