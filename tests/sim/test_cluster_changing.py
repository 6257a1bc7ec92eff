"""A topic that is deleted, made anew and grown while it is used: what seeds do, and what they would meet."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from math import inf
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing

from core.rowkit import ANN, BOB, Row
from duckrow.cluster.checker import check
from duckrow.cluster.history import FAIL, INFO, OK, Content, History, Produce, Prune, Pull, Report
from duckrow.node import columns, makers, staging, topics
from duckrow.node.commands import Command, Head
from duckrow.node.effects import Effect, Result
from duckrow.node.errors import Conflict
from duckrow.node.keeper import Keeper
from duckrow.node.makers import Turn
from duckrow.node.reading import Reader
from duckrow.node.state import State
from duckrow.node.values import Topic
from sim import cluster_scenario
from sim.cluster_machine import Machine
from sim.cluster_plan import ClusterPlan, drawn
from sim.cluster_scenario import run_seed
from sim.cluster_watch import ClusterWatch
from sim.lives import ANY, Life, Lives
from sim.workload import Observed

CHANGING = ClusterPlan(
    seconds=6.0, calm=2.5, producers=1, consumers=1, gap=0.1, doors=3, changes=0.3
)


def test_a_topic_is_made_anew_and_grows_while_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """No seed had ever deleted one."""
    histories = list[History]()

    def judged(history: History) -> Report:
        histories.append(history)
        return check(history)

    monkeypatch.setattr(cluster_scenario, "check", judged)

    outcome = run_seed(2, CHANGING)

    assert outcome.ok, outcome
    (history,) = histories
    mine = [made for made in history.produces if made.key[0].startswith("z#")]
    assert len({made.key[0] for made in mine}) > 3
    assert {made.key[1] for made in mine} >= {0, 1, 2}
    assert sum(made.outcome == OK for made in mine) > 30
    assert any(made.outcome == OK and made.together for made in mine)
    assert {pull.key[0] for pull in history.pulls} >= {made.key[0] for made in mine[-5:]}


def test_some_seeds_change_a_topic() -> None:
    plans = [drawn(random.Random(seed)) for seed in range(100)]

    assert 20 < sum(plan.changes > 0 for plan in plans) < 60


# -- what would be met ----------------------------------------------------------------------------


def test_a_batch_that_is_taken_wherever_its_client_thought_it_belongs_is_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for_batch = topics.for_batch

    def lenient(
        state: State, head: Head, partitions: int, ticket: int, effects: list[Effect]
    ) -> Topic | Result:
        topic = state.topics.rows.get(head.topic)
        if topic is not None and head.partition < topic.policy.partitions:
            return topic
        return for_batch(state, head, partitions, ticket, effects)

    for module in (topics, staging):
        monkeypatch.setattr(module, "for_batch", lenient)

    assert "wrong-partition" in run_seed(1, CHANGING).kinds


def test_a_reader_that_is_given_another_topic_of_the_name_is_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Reader, "_topic", lambda reader, name, _: reader._state.topic(name))

    assert "other-topic" in run_seed(1, CHANGING).kinds


def test_a_reader_that_is_not_told_that_its_topic_is_gone_is_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meant = Reader._topic

    def silent(reader: Reader, name: str, id_: int) -> Topic | None:
        try:
            return meant(reader, name, id_)
        except Conflict:
            return None

    monkeypatch.setattr(Reader, "_topic", silent)

    assert "not-told" in run_seed(1, CHANGING).kinds


# -- what belongs to which topic ------------------------------------------------------------------


def lives(*spans: tuple[float, float]) -> Lives:
    found = Lives("z")
    found.all = [Life(n, since, until, [2]) for n, (since, until) in enumerate(spans, 1)]
    return found


def test_what_was_in_a_topic_that_is_gone_need_not_be_there_in_the_end_and_what_is_in_the_last_one_has_to() -> (
    None
):
    history = History(
        produces=[
            Produce("p", ("z", 0), ["a"], 1.0, 1.5, OK, 1),
            Produce("p", ("z", 0), ["b"], 4.0, 4.5, OK, 1),
        ],
        finals={"n1": {("z", 0): Content(1, ["b"])}},
        ended=9.0,
    )
    assert lives((0.5, 2.0), (3.0, inf)).tell_apart(history) == []
    assert check(history).ok
    assert [made.key for made in history.produces] == [("z#1", 0), ("z#2", 0)]

    history.finals["n1"]["z#2", 0] = Content(1, [])

    assert check(history).kinds == ["lost"]


def test_what_may_have_gone_to_two_topics_is_where_it_was_read() -> None:
    made = Produce("p", ("z", 0), ["a"], 1.0, 4.5, OK, 1)
    read = Pull("c", ("z", 0), 0, 5.0, 5.1, OK, numbers=[1], values=["a"], topic_id=2)
    history = History(produces=[made], pulls=[read])

    lives((0.5, 2.0), (3.0, inf)).tell_apart(history)

    assert [(made.key, made.outcome) for made in history.produces] == [(("z#2", 0), OK)]


def test_what_may_have_gone_to_two_topics_and_was_never_read_may_be_in_each() -> None:
    history = History(produces=[Produce("p", ("z", 0), ["a"], 1.0, 4.5, OK, 1)])

    lives((0.5, 2.0), (3.0, inf)).tell_apart(history)

    told = [(made.key, made.outcome, made.first) for made in history.produces]
    assert told == [(("z#1", 0), INFO, 0), (("z#2", 0), INFO, 0)]


def test_what_may_have_gone_to_two_topics_may_have_been_done_in_both() -> None:
    """With the first one went what was known of its lane, so an old copy is taken for a new batch."""
    made = Produce("p", ("z", 0), ["a"], 1.0, 4.5, OK, 2)
    read = Pull("c", ("z", 0), 0, 5.0, 5.1, OK, numbers=[1], values=["a"], topic_id=2)
    refused = Produce("p", ("z", 0), ["b"], 1.0, 4.5, FAIL)
    other = Pull("c", ("z", 0), 3, 5.2, 5.3, OK, numbers=[4], values=["b"], topic_id=2)
    history = History(produces=[made, refused], pulls=[read, other])

    lives((0.5, 2.0), (3.0, inf)).tell_apart(history)

    assert check(history).ok

    for each in history.produces:
        each.may_repeat, each.outcome = False, OK if each.values == ["a"] else FAIL
    assert check(history).kinds == ["duplicate", "number-too-high", "refused-yet-read"]


def test_a_copy_may_come_to_the_next_topic_when_all_was_answered_long_ago() -> None:
    made = [Produce("p", ("z", 0), [value], 1.0, 1.5, OK, 1 + (value == "b")) for value in "ab"]
    pulls = [
        Pull("c", ("z", 0), 0, 5.0, 5.1, OK, numbers=[1], values=["a"], topic_id=id_)
        for id_ in (1, 2)
    ]
    history = History(produces=made, pulls=pulls)

    lives((0.5, 2.0), (3.0, inf)).tell_apart(history)

    assert check(history).ok
    told = [(made.key[0], made.values, made.outcome) for made in history.produces]
    assert told == [("z#1", ["a"], OK), ("z#2", ["a"], INFO), ("z#1", ["b"], OK)]


class Told:
    """What a node that serves tells of a row of its own, a second for each item."""

    def __init__(self) -> None:
        self.row = Row()
        numbers = SimpleNamespace(note=lambda *_: None)
        self.node = SimpleNamespace(
            state=self.row.state, numbers=numbers, on_progress=lambda _item: None
        )

    async def apply(self, *commands: Command) -> None:
        await trio.sleep(1)
        effects, item = self.row.item(*commands), self.row.items[-1]
        self.node.numbers.note(item.position, 0, effects, {})
        self.node.on_progress(item)

    async def make(self, *commands: Command) -> int:
        """A topic."""
        await self.apply(makers.create(self.row.turn(), "z", {}), *commands)
        return self.row.topic("z").id

    async def produce(self, letter: str, number: int, *commands: Command) -> Produce:
        """Answered with the number, when all of them were applied."""
        made = Produce("p", ("z", 0), [letter], trio.current_time(), outcome=OK, first=number)
        await self.apply(*commands)
        made.ended = trio.current_time()
        return made

    def delete(self) -> Command:
        return makers.delete(self.row.turn(), "z")

    def check(self, story: Callable[[], Awaitable[History]]) -> list[str]:
        watch = ClusterWatch(Observed(CHANGING))

        async def watched() -> History:
            watch.attach(cast(Machine, None), cast(Keeper, self.node))
            return await story()

        history = trio.run(watched, clock=trio.testing.MockClock(autojump_threshold=0))
        assert watch.lives.tell_apart(history) == []
        return check(history).kinds


def batch_of(letter: str, pid: bytes = ANN) -> Command:
    return makers.produce(Turn(pid, 1), "z", columns.encode([letter.encode()]), 1)


def pull_of(letter: str, number: int, topic_id: int) -> Pull:
    now = trio.current_time()
    pull = Pull("c", ("z", 0), 0, now, now, OK, numbers=[number], values=[letter])
    pull.missing, pull.topic_id = number - 1, topic_id
    return pull


@pytest.mark.parametrize(("copied", "kinds"), [(True, []), (False, ["number-too-high"])])
def test_a_late_copy_that_was_pruned_before_anybody_read_it_had_a_number_in_the_next_topic(
    copied: bool, kinds: list[str]
) -> None:
    told = Told()

    async def story() -> History:
        await told.make()
        first = await told.produce("a", 1, batch_of("a"))
        await told.apply(told.delete())
        id_ = await told.make(*([batch_of("a")] if copied else []))
        second = await told.produce("b", 2, batch_of("b", BOB))
        pruned = Prune(("z", 0), 1, trio.current_time(), OK)
        return History(produces=[first, second], pulls=[pull_of("b", 2, id_)], prunes=[pruned])

    assert told.check(story) == kinds


@pytest.mark.parametrize(("gone", "kinds"), [(True, []), (False, ["divergent"])])
def test_what_was_numbered_in_a_topic_that_one_item_made_and_deleted_is_of_no_other_one(
    gone: bool, kinds: list[str]
) -> None:
    """The one before is there until that item is applied, for whoever looks at states only."""
    told = Told()

    async def story() -> History:
        id_ = await told.make()
        first = await told.produce("a", 1, batch_of("a"))
        read = pull_of("a", 1, id_)
        await told.apply(*([told.delete()] if gone else []))
        second = await told.produce("b", 1, batch_of("b", BOB), told.delete())
        second.began = first.ended
        return History(produces=[first, second], pulls=[read])

    assert told.check(story) == kinds


@pytest.mark.parametrize(("copied", "kinds"), [(True, []), (False, ["number-too-high"])])
def test_a_late_copy_in_an_item_that_deletes_the_topic_had_a_number_there(
    copied: bool, kinds: list[str]
) -> None:
    told = Told()

    async def story() -> History:
        await told.make()
        first = await told.produce("a", 1, batch_of("a"))
        await told.apply(told.delete())
        await told.make()
        late = [batch_of("a")] if copied else []
        second = await told.produce("b", 2, *late, batch_of("b", BOB), told.delete())
        return History(produces=[first, second])

    assert told.check(story) == kinds


@pytest.mark.parametrize(
    ("partitions", "kinds"),
    [((1,), []), ((0,), ["wrong-partition"]), ((0, 1), ["twice", "wrong-partition"])],
)
def test_an_entry_is_once_in_a_topic_where_its_key_belongs(
    partitions: tuple[int, ...], kinds: list[str]
) -> None:
    history = History(
        produces=[Produce("p", ("z", ANY), ["1"], 1.0, 1.5, OK)],
        finals={"n1": {("z", partition): Content(1, ["1"]) for partition in partitions}},
    )

    problems = lives((0.5, inf)).tell_apart(history)

    assert sorted(text.split(":")[0] for text in problems) == kinds


@pytest.mark.parametrize(("places", "kinds"), [((5, 5, 7), []), ((5, 7, 6), ["key-reorder"])])
def test_a_key_keeps_its_order_over_partitions_and_topics(
    places: tuple[int, ...], kinds: list[str]
) -> None:
    values = ["a1", "b1", "c1"]
    history = History(
        produces=[Produce("p", ("z", ANY), [each], 1.0, 1.5, OK, lane="p 1") for each in values]
    )
    told = lives((0.5, inf))
    told.placed.update(zip(values, places, strict=True))

    assert [text.split(":")[0] for text in told.tell_apart(history)] == kinds
