"""Whatever is cut, stopped, slow and started again, in whatever order: one row."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from core.bridgecluster import Cluster

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["submit", "submit", "beat", "beats", "cut", "link", "kill", "power", "start", "slow"]
        ),
        st.integers(1, 3),
    ),
    max_size=40,
)


def play(cluster: Cluster, what: str, id_: int, word: str) -> None:
    runs = id_ in cluster.members
    other = id_ % 3 + 1
    if what == "submit" and runs:
        cluster.submit(id_, word)
    elif what == "beat":
        cluster.beats()
    elif what == "beats":
        cluster.beats(12)  # long enough to be missed
    elif what == "cut":
        cluster.cut(min(id_, other), max(id_, other))
    elif what == "link":
        cluster.link(min(id_, other), max(id_, other))
    elif what in ("kill", "power") and runs:
        cluster.stop(id_, power=what == "power")
    elif what == "start" and not runs:
        cluster.start(id_)
    elif what == "slow":
        cluster.slow ^= {id_}


def are_one_row(cluster: Cluster) -> None:
    longest = max(cluster.rows.values(), key=len)
    for row in cluster.rows.values():
        assert row == longest[: len(row)]


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_all_rows_are_beginnings_of_one(steps: list[tuple[str, int]]) -> None:
    cluster = Cluster(1, 2, 3)
    accepted: set[str] = set()
    for number, (what, id_) in enumerate(steps):
        play(cluster, what, id_, str(number))
        are_one_row(cluster)
    accepted |= {bytes(c.head).decode() for bundle in cluster.staged for c in bundle.commands}

    cluster.slow = set()
    for id_ in (1, 2, 3):
        if id_ not in cluster.members:
            cluster.start(id_)
    for edge in cluster.edges:
        cluster.link(*edge)
    cluster.settle()
    cluster.beats(40)
    are_one_row(cluster)
    words = cluster.words(1)

    assert sorted(cluster.acting()) == [1, 2, 3]
    assert len(words) == len(set(words))
    assert accepted <= set(words)
    assert cluster.words(2) == cluster.words(3) == words
