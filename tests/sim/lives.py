"""The topics that had one name, one after the other, as the nodes of a cluster apply them.

Who makes them writes down one name only, since nobody says of a batch to which of them it went.  In the
end each life gets a name of its own, and what was done goes to where it was seen, or could have been:

    z  made ─────── deleted   made ── grown ──────────        produce  z/1 "t0.7"
       │    z#1    │          │        z#2                     seen in  z#2/1

One item may make a topic and delete it again: it is in no state that anybody looks at, but who produced to it
was told a number.  And what was pruned before anybody read it had a number, too, also a late copy, which may be
anywhere.  So it is noted what the items did: which topics they deleted, and in which they numbered a batch.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from math import inf
from typing import Any

import attrs
import trio

from duckrow.cluster.history import FAIL, INFO, OK, History, Key, Produce, Pull, Value
from duckrow.node import codec, columns
from duckrow.node.commands import Kind, decode_head
from duckrow.node.commands import Produce as Batch
from duckrow.node.effects import Answer, Appended, Created, Deleted, Effect, Pruned
from duckrow.node.keeper import Keeper
from duckrow.node.row import Bundle, Item
from duckrow.node.values import ticket_of

from .workload import key_of

ANY = -1  # the partition of what goes where its key belongs, which depends on how many there are
PARTITIONS_MAX = 4


@attrs.define
class Life:
    id: int
    since: float  # somebody had applied it
    until: float = inf
    counts: list[int] = attrs.field(factory=list)  # of its partitions


class Lives:
    def __init__(self, name: str) -> None:
        self.name = name
        self.all: list[Life] = []
        self.placed: dict[Value, int] = {}  # the position in the row, as readers were told
        self.problems: list[str] = []
        self._made: dict[int, float] = {}  # when a node that serves made a topic, by its id
        self._batches: dict[Value, dict[int, None]] = {}  # tickets of those that it is in
        self._numbered: dict[
            int, tuple[int, int]
        ] = {}  # by ticket, in which topic id and partition
        self._position = 0

    @property
    def newest(self) -> Life | None:
        return self.all[-1] if self.all and self.all[-1].until == inf else None

    @property
    def partitions(self) -> int:
        return self.all[-1].counts[-1] if self.all else 1

    def look(self, node: Keeper, item: Item | None = None) -> None:
        """The first one that comes to a position tells of all; of what is in it, who has the bodies."""
        topic, newest = node.state.topic(self.name), self.newest
        if item is not None and isinstance(item.content, Bundle):
            self._note(item.position, item.content)
        if node.state.position <= self._position:
            return
        self._position, now = node.state.position, trio.current_time()
        if newest is not None and (topic is None or topic.id != newest.id):
            newest.until, newest = now, None
        if topic is None:
            return
        if newest is None:
            newest = Life(topic.id, now)
            self.all.append(newest)
        if topic.policy.partitions not in newest.counts:
            newest.counts.append(topic.policy.partitions)

    def take(self, effects: Iterable[Effect]) -> None:
        """What an item did, of each node that applies it while it serves: it answers of that."""
        now = trio.current_time()
        for effect in effects:
            if isinstance(effect, Answer | Pruned) or effect.topic != self.name:
                continue
            if isinstance(effect, Created):
                self._made.setdefault(effect.topic_id, now)
            elif isinstance(effect, Deleted):
                self._end(effect.topic_id, now)
            elif isinstance(effect, Appended):
                ticket = ticket_of(effect.position, effect.index)
                self._numbered[ticket] = effect.topic_id, effect.partition

    def _end(self, id_: int, now: float) -> None:
        for life in self.all:
            if life.id == id_:
                life.until = min(life.until, now)
                return
        # Nobody found it in a state, which would tell how many partitions it has.
        life = Life(id_, self._made.get(id_, now), now, [PARTITIONS_MAX])
        insort(self.all, life, key=lambda each: each.id)

    def _note(self, position: int, bundle: Bundle) -> None:
        for ticket, (raw, body) in enumerate(bundle.commands, ticket_of(position, 0)):
            head = decode_head(raw)
            if head.kind != Kind.PRODUCE or head.topic != self.name or not len(body):
                continue
            batch = Batch.of(head)
            for text in codec.decode(batch.codec, body).value_list(0, batch.entries):
                self._batches.setdefault(text.decode().strip(), {})[ticket] = None

    def has_ended(self, id_: int) -> bool:
        return any(life.id == id_ and life.until < inf for life in self.all)

    # -- in the end -------------------------------------------------------------------------------

    def tell_apart(self, history: History) -> list[str]:
        """Of all that was done with the name, says with which of the topics; and what is wrong there."""
        names = {life.id: f"{self.name}#{number}" for number, life in enumerate(self.all, 1)}
        history.pulls = [*self._pulls(history, names)]
        for contents in history.finals.values():
            for key in [key for key in contents if key[0] == self.name]:
                contents[names[self.all[-1].id], key[1]] = contents.pop(key)
        seen = self._seen(history, names)
        self._check_keys(history.produces, names, seen)
        history.produces = [
            each for made in history.produces for each in self._produced(made, names, seen)
        ]
        if len(names) > 1:  # of one of them, and nobody says of which
            for prune in history.prunes:
                if prune.key[0] == self.name and prune.outcome == OK:
                    prune.outcome = INFO
        for attribute, name in (("prunes", "key"), ("configured", "topic")):
            told = getattr(history, attribute)
            setattr(history, attribute, [*self._in_all(told, name, names.values())])
        for key in [key for key in history.told if key[0] == self.name]:
            spans = history.told.pop(key)
            history.told |= {(name, key[1]): [*spans] for name in names.values()}
        gone = [names[life.id] for life in self.all if life.until < inf]
        history.deleted += [(name, n) for name in gone for n in range(PARTITIONS_MAX)]
        return self.problems

    def _pulls(self, history: History, names: dict[int, str]) -> Iterator[Pull]:
        """Where nobody was told of a topic there was none, or no answer; in calm times it is the last."""
        calm_since = min((began for began, _ in history.calm), default=inf)
        for pull in history.pulls:
            if pull.key[0] == self.name:
                id_ = pull.topic_id
                if not id_ and pull.began >= calm_since and self.newest is not None:
                    id_ = self.newest.id
                if id_ not in names:
                    continue
                pull.key = names[id_], pull.key[1]
            yield pull

    def _seen(self, history: History, names: dict[int, str]) -> dict[Value, dict[Key, None]]:
        mine, seen = {*names.values()}, dict[Value, dict[Key, None]]()
        read = [(pull.key, pull.values) for pull in history.pulls]
        for contents in history.finals.values():
            read += [(key, content.values) for key, content in contents.items()]
        for key, values in read:
            if key[0] in mine:
                for value in values:
                    seen.setdefault(value, {})[key] = None
        return seen

    def _produced(
        self, made: Produce, names: dict[int, str], seen: dict[Value, dict[Key, None]]
    ) -> Iterable[Produce]:
        if made.key[0] != self.name:
            return [made]
        there = {
            key: None
            for value in made.values
            for key in (*seen.get(value, ()), *self._row_of(value, names))
        }
        meanwhile = self._meanwhile(made)
        possible = [
            (names[life.id], partition)
            for life in meanwhile
            for partition in ([made.key[1]] if made.key[1] != ANY else range(max(life.counts)))
        ]
        topics = {topic for topic, _ in possible}
        if len(meanwhile) > 1:
            made.may_repeat, made.lane = True, ""
            made.outcome = INFO if made.outcome == FAIL else made.outcome
        in_time = [key for key in there if key[0] in topics]
        doubt = attrs.evolve(made, outcome=INFO, first=0, together="", lane="")
        if made.outcome != FAIL and (len(in_time) == 1 or (not in_time and len(possible) == 1)):
            (made.key,) = in_time or possible
            told = [made]
        else:  # a doubt everywhere: what it says of its numbers, or of what is with it, is of one of them
            outcome = FAIL if made.outcome == FAIL else INFO
            everywhere = dict.fromkeys((*in_time, *possible))
            told = [attrs.evolve(doubt, key=key, outcome=outcome) for key in everywhere]
        # With a topic goes what was known of its lanes.  So what goes again as the first of one comes to
        # the next topic, too, whatever came of it before, and whether or not anybody read it there.
        topics = {each.key[0] for each in told}
        again = [key for key in there if key[0] not in topics]
        return [*told, *(attrs.evolve(doubt, key=key, may_repeat=True) for key in again)]

    def _row_of(self, value: Value, names: dict[int, str]) -> Iterator[Key]:
        for ticket in self._batches.get(value, ()):
            id_, partition = self._numbered.get(ticket, (0, 0))
            if id_ in names:
                yield names[id_], partition

    def _meanwhile(self, made: Produce) -> list[Life]:
        """Where it may have gone."""
        return [one for one in self.all if one.since <= made.ended and made.began <= one.until]

    def _in_all(self, told: Iterable[Any], name: str, names: Iterable[str]) -> Iterator[Any]:
        for each in told:
            topic, *rest = of if isinstance(of := getattr(each, name), tuple) else (of,)
            if topic != self.name:
                yield each
                continue
            for one in names:
                yield attrs.evolve(each, **{name: (one, *rest) if rest else one})

    # -- what the checker does not know -----------------------------------------------------------

    def _check_keys(
        self, produces: Iterable[Produce], names: dict[int, str], seen: dict[Value, dict[Key, None]]
    ) -> None:
        """Nothing is in two partitions, what has a key is where that belongs, and a key keeps its order."""
        counts = {names[life.id]: life.counts for life in self.all}
        last: dict[str, tuple[int, Value]] = {}
        for made in produces:
            if made.key[0] != self.name:
                continue
            meanwhile = [names[life.id] for life in self._meanwhile(made)]
            for value in made.values:
                there = [*seen.get(value, ())]
                may_repeat = len(meanwhile) > 1 or any(key[0] not in meanwhile for key in there)
                if len(there) > 1 and not may_repeat:
                    self.problems.append(f"twice: {value!r} is in {there}")
                if made.key[1] != ANY:
                    continue
                hash_ = memoryview(columns.key_hashes([key_of(str(value).encode())])).cast("I")[0]
                for topic, partition in there:
                    if partition not in [hash_ % count for count in counts[topic]]:
                        self.problems.append(f"wrong-partition: {value!r} is in {partition}")
                if value in self.placed and not may_repeat:
                    place = self.placed[value], value
                    before = last.get(made.lane, place)
                    if place[0] < before[0]:
                        self.problems.append(f"key-reorder: {before} was placed before {place}")
                    last[made.lane] = place
