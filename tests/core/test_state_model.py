"""Apply against a naive model of the same rules, and effects against what they claim."""

import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.commandsets import ITEMS, Drawn, drawn_by, play
from core.model import Model
from core.rowkit import Row
from duckrow.node.aging import next_due
from duckrow.node.apply import apply
from duckrow.node.effects import Answer, Appended, Created, Deleted, Effect, Pruned
from duckrow.node.row import Bundle, View
from duckrow.node.state import State, oldest_waiting

# topic id, partition: (number, time, position of the body, index) of each entry
Contents = dict[tuple[int, int], list[tuple[int, int, int, int]]]


class Watched(Row):
    """Every item goes to the model too, and both have to say the same."""

    def __init__(self) -> None:
        self.model = Model()
        self.contents: Contents = {}  # as the effects tell
        self.restarts = False
        super().__init__()

    def put(self, content: Bundle | View) -> list[Effect]:
        effects = super().put(content)
        expected = self.model.apply(self.items[-1])

        assert [effect for effect in effects if isinstance(effect, Answer)] == expected
        assert self.state.row_time == self.model.now
        self.follow(effects)
        kept = contents(self.model)
        assert self.contents == kept
        firsts = {
            (topic.id, partition): (self.model.first(topic, partition), topic.last[partition])
            for topic in self.model.topics.values()
            for partition in topic.last
        }
        assert firsts == {key: self.state.partition(*key)[:2] for key in firsts}, (
            "first and last of every partition"
        )
        assert oldest_waiting(self.state) == oldest(self.model)
        if isinstance(content, View) or not content.commands:
            due = next_due(self.state)
            assert due is None or due > self.state.row_time, "what was due is done"
        if self.restarts:
            self.rest()
        return effects

    def follow(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Created(topic_id, _):
                    assert not [key for key in self.contents if key[0] == topic_id]
                case Appended(topic_id, _, partition, first, count, time, _, position, index):
                    entries = self.contents.setdefault((topic_id, partition), [])
                    for number in range(first, first + count):
                        entries.append((number, time, position, index))
                case Pruned(topic_id, _, partition, first):
                    key = topic_id, partition
                    assert first > self.contents[key][0][0], "each says something new"
                    self.contents[key] = [e for e in self.contents[key] if e[0] >= first]
                case Deleted(topic_id, _):
                    for key in [key for key in self.contents if key[0] == topic_id]:
                        del self.contents[key]
        self.contents = {key: entries for key, entries in self.contents.items() if entries}


def contents(model: Model) -> Contents:
    return {
        (topic.id, partition): [(e.number, e.time, *e.batch.place) for e in entries]
        for topic in model.topics.values()
        for partition, entries in topic.entries.items()
        if entries
    }


def oldest(model: Model) -> int | None:
    """The lowest position of a body without numbers."""
    waiting = [batch for topic in model.topics.values() for batch in topic.waiting]
    return min((batch.place[0] for batch in [*waiting, *model.stages]), default=None)


@settings(max_examples=400, deadline=None)
@given(st.lists(ITEMS, max_size=50), st.booleans())
def test_apply_does_what_a_naive_model_does(items: list[list[Drawn]], restarts: bool) -> None:
    """With `restarts`, every item meets a state that was just restored from a capture."""
    row = Watched()
    row.restarts = restarts
    play(row, items)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
@example(4942)
def test_apply_does_what_a_naive_model_does_for_a_long_time(seed: int) -> None:
    """A policy that changes nothing makes nobody look at those who wait, though one is known by now (4942)."""
    rng = random.Random(seed)
    row = Watched()
    row.restarts = rng.random() < 0.1
    play(row, drawn_by(rng, 100))


@settings(max_examples=100, deadline=None)
@given(st.lists(ITEMS, max_size=40))
def test_the_same_items_give_the_same_effects(items: list[list[Drawn]]) -> None:
    row = Row()
    play(row, items)
    first, second = State(), State()

    for item in row.items:
        assert apply(first, item) == apply(second, item)
