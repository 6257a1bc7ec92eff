"""Histories that the checker of histories is shown."""

from __future__ import annotations

from collections.abc import Callable

from duckrow.cluster.history import Configured, Content, History, Policy, Produce, Pull

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


Plant = Callable[[History], object]


def configure(history: History, policy: Policy, *, until: float | None = None) -> None:
    history.configured.append(Configured("rides", policy, 0.0, 0.5))
    if until is not None:
        history.configured.append(Configured("rides", Policy(), until, until + 0.5))


def everywhere(change: Callable[[list[object]], object]) -> Plant:
    def plant(history: History) -> None:
        for node in history.finals:
            change(values(history, node))

    return plant


def read_and_lost(history: History) -> None:
    history.produces[9].outcome = "info"
    everywhere(list.pop)(history)
