"""What the clients of a simulation notice themselves: bodies and keys, cursors, and what they are told."""

from __future__ import annotations

from itertools import pairwise

import attrs
import pytest
import trio

from duckrow.node import ids
from duckrow.node.columns import decode, encode
from duckrow.node.cursors import Cursor
from duckrow.node.entries import Batch, Entries, Entry
from duckrow.node.env import Env
from duckrow.node.errors import NoQuorum

from .cluster_plan import ClusterPlan
from .cluster_scenario import run_seed
from .consumers import Consumer
from .plan import Plan, TopicPlan
from .workload import Observed
from .world import World

TOPIC = TopicPlan("a", {"partitions": 2})


def observed() -> Observed:
    return Observed(Plan(topics=(TOPIC,)))


def kinds(seen: Observed) -> list[str]:
    return [problem.split(":")[0] for problem in seen.problems]


def entry(value: bytes, key: bytes | None = None) -> Entry:
    return Entry("a", 0, 1, 0, bytes(16), key, (), value)


@pytest.mark.parametrize(
    ("value", "key", "told"),
    [
        (b"p0.1  ", b"1", []),
        (b"p0.1", b"1", ["wrong-value"]),
        (b"p0.1   ", b"1", ["wrong-value"]),
        (b"p0.1  ", None, ["wrong-key"]),
        (b"p0.1  ", b"2", ["wrong-key"]),
        (b"nobody sent it", None, []),
        (b"nobody sent it", b"1", ["wrong-key"]),
    ],
)
def test_what_is_read_is_what_was_sent(value: bytes, key: bytes | None, told: list[str]) -> None:
    seen = observed()
    seen.send([b"p0.1  ", b"p0.2  "], [b"1", None])

    seen.read(entry(value, key))

    assert kinds(seen) == told


def found(after: dict[int, int], *batches: tuple[int, int, int, int], missing: int = 0) -> Entries:
    """Of each batch its partition, first number, entries and position."""
    made = [
        Batch("a", p, first, 0, bytes(16), decode(encode([b"x"] * count)), position=position)
        for p, first, count, position in batches
    ]
    return Entries(made, missing=missing, after=Cursor(after))


def consumed(*pages: Entries) -> list[str]:
    """What is said of a consumer that was given these, one after the other."""
    seen, world = observed(), World(1)

    async def script(_: World) -> None:
        async def client(env: Env) -> None:
            consumer, position = Consumer(env, seen, "c0"), 0
            for before, page in pairwise(pages):
                assert isinstance(before.after, Cursor)
                assert isinstance(page.after, Cursor)
                consumer._check_cursor(before.after, page, page.after)
                position = consumer._check_order(position, page)

        world.start("c0", client)
        await trio.sleep(1.0)

    world.run(script)
    return kinds(seen)


BEGIN = found({0: 0, 1: 0})


@pytest.mark.parametrize(
    ("page", "told"),
    [
        (found({0: 2, 1: 1}, (0, 1, 2, 7), (1, 1, 1, 8)), []),
        (found({0: 5, 1: 1}, (0, 4, 2, 7), (1, 1, 1, 8), missing=3), []),
        (found({0: 5, 1: 1}, (1, 1, 1, 8), missing=5), []),
        (found({0: 3, 1: 1}, (0, 1, 2, 7), (1, 1, 1, 8)), ["wrong-cursor"]),
        (found({0: 1, 1: 1}, (0, 1, 2, 7), (1, 1, 1, 8)), ["wrong-cursor"]),
        (found({0: 1, 1: 2}, (0, 1, 2, 7), (1, 1, 1, 8)), ["wrong-cursor"]),
        (found({0: 2}, (0, 1, 2, 7), (1, 1, 1, 8), missing=1), ["wrong-cursor"]),
        (found({0: 2, 1: 1}, (1, 1, 1, 8), (0, 1, 2, 7)), ["row-reorder"]),
    ],
)
def test_a_cursor_is_behind_what_was_shown_in_the_order_of_the_row(
    page: Entries, told: list[str]
) -> None:
    assert consumed(BEGIN, page) == told


def test_also_what_comes_later_is_further_in_the_row() -> None:
    first = found({0: 1, 1: 0}, (0, 1, 1, 7))

    assert consumed(BEGIN, first, found({0: 1, 1: 1}, (1, 1, 1, 7))) == []
    assert consumed(BEGIN, first, found({0: 1, 1: 1}, (1, 1, 1, 6))) == ["row-reorder"]


def test_a_cursor_never_goes_back() -> None:
    first, back = found({0: 1, 1: 1}, (0, 1, 1, 7), (1, 1, 1, 8)), found({0: 0, 1: 2})

    assert consumed(BEGIN, first, back) == ["wrong-cursor"]


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("n1 can order nothing: it does not reach m2 and m3; nothing was written", []),
        ("n1 can order nothing: it does not reach its bridge", []),
        ("this node is stopping", []),
        ("n1 can order nothing: it does not reach ", ["names-nobody"]),
        ("n1 can order nothing: it does not reach m2, m1 and m3", ["names-nobody"]),
        ("n1 can order nothing: it does not reach m12", []),
        ("n1 can order nothing: it does not reach m2 and m1 with its former disk", []),
    ],
)
def test_who_can_order_nothing_says_who_is_missing(reason: str, told: list[str]) -> None:
    seen = observed()

    seen.check_reason(NoQuorum(reason))

    assert kinds(seen) == told


def test_damage_is_told_where_it_is_alone() -> None:
    seen = observed()
    seen.hurt, seen.flips = {"n3"}, 1

    seen.tell(("a", 0), 1, 2, nodes=["n2", "n3"])
    assert kinds(seen) == []

    seen.tell(("a", 0), 1, 2, nodes=["n2"])
    assert kinds(seen) == ["damage"]


@pytest.mark.parametrize(
    ("when_full", "waits", "refuses"),
    [
        (None, False, False),
        ("drop-oldest", False, False),
        ("reject", False, True),
        ("block", True, True),
        ("slot", True, True),
    ],
)
def test_who_waits_for_an_answer_has_a_reason(
    when_full: str | None, waits: bool, refuses: bool
) -> None:
    """Where nothing waits for room whoever had no answer was excused all the same."""
    topic = TopicPlan("a", {} if when_full is None else {"when_full": when_full})

    assert (topic.may_wait, topic.may_refuse) == (waits, refuses)


SENT_AGAIN = ClusterPlan(
    seconds=4.0,
    calm=1.0,
    producers=3,
    consumers=1,
    gap=0.02,
    batch=1,
    window=3,
    delays=dict.fromkeys(((1, 2), (1, 3), (2, 3)), 0.02),
    faults=("client-kill",),
    tempo=0.3,
    again=True,
)


def test_who_starts_again_sends_what_it_heard_nothing_of_and_it_is_there_once() -> None:
    outcome = run_seed(1, SENT_AGAIN)

    assert outcome.ok, outcome


def test_parts_of_a_call_with_many_entries_had_no_id_and_are_not_sent_again() -> None:
    """Seed 1120124: it was sent once more, with an id, and was there twice for good reason."""
    outcome = run_seed(2, attrs.evolve(SENT_AGAIN, batch=3, keyed=1.0, topics=(TOPIC,)))

    assert outcome.ok, outcome


def test_ids_that_nobody_remembers_are_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """No id had ever come twice."""
    monkeypatch.setattr(ids, "look", lambda *_: None)

    assert "duplicate" in run_seed(1, SENT_AGAIN).kinds
    assert run_seed(1, attrs.evolve(SENT_AGAIN, again=False)).ok
