"""Apply: state and item make the next state, and the effects.  The only way state is ever made.

    item ─► time of the row ─► what is too old goes ─► commands, in order
                                                         │ lane: is it the next one?
                                                         │ handler, by kind
                                                         └ result into the lane, answer

Everything is decided here and on every node alike: no clock, no randomness, no local setting, no
order of a hash.  A command that cannot be read as its kind is refused and consumes its seq; one
whose head is no head at all belongs to no lane, so nobody is answered and nothing is done: it got
there by a fault of the node that took it, whose client will ask again.

The rules have a version, which SWITCH moves on by one (rule M5).  It holds from the next item on.
A node whose program does not know that version finishes the item, whose meaning it knows, and
stops there, with a whole state: it raises `UnknownVersion` at the next item, and a newer program
goes on from its snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from . import lanes, rowtime, settings, staging, topics
from .aging import age
from .commands import Head, Kind, Produce, Settings, Switch, decode_head
from .effects import Answer, Code, Effect, Reason, Result
from .errors import Corrupt, LimitExceeded, UnknownVersion
from .limits import PARTITIONS_PER_ITEM
from .policies import Unfit
from .row import Item, View
from .state import FIRST_VERSION, State
from .sweeping import sweep
from .values import PARTITION_BITS, Lane, Waiting, ticket_of
from .waiting import no_room, number, withdraw

# state, head, ticket of the command, its lane, effects so far.
Handler = Callable[[State, Head, int, Lane, list[Effect]], Result]
Rules = Mapping[int, Handler]  # by kind


def apply(
    state: State,
    item: Item,
    versions: Mapping[int, Rules] | None = None,
    *,
    heads: dict[bytes, Head] | None = None,
) -> list[Effect]:
    """Changes the state, and gives the effects in the order in which they happened.

    `heads` are some that were decoded before, by their bytes; those that come are taken out.

    Raises:
        UnknownVersion: a newer program has to apply this item; nothing was changed.
    """
    assert item.position == state.position + 1, f"{item.position} follows {state.position}"
    known = VERSIONS if versions is None else versions
    rules = known.get(state.version)
    if rules is None:
        raise UnknownVersion(state.version, state.position, max(known))
    effects: list[Effect] = []
    state.position, state.budget = item.position, PARTITIONS_PER_ITEM
    content = item.content
    if isinstance(content, View):
        rowtime.mark(state, content)
    else:
        rowtime.stamp(state, content.origin, content.stamp)
    age(state, effects)
    if state.sweeps.rows:
        sweep(state, effects)
    if isinstance(content, View):
        return effects
    for ticket, command in enumerate(content.commands, ticket_of(item.position, 0)):
        head = heads.pop(command.head, None) if heads else None
        if head is None:
            try:
                head = decode_head(command.head)
            except (Corrupt, LimitExceeded):
                continue
        _command(state, head, ticket, rules, effects)
    return effects


def _command(state: State, head: Head, ticket: int, rules: Rules, effects: list[Effect]) -> None:
    lane = lanes.admit(state, head)
    if isinstance(lane, Result):
        if head.kind == Kind.SKIP and lane.code == Code.WAITING:
            _withdraw(state, head, effects)
            return
        result = lane
    else:
        result = _handled(state, head, ticket, lane, rules, effects)
        lanes.record(state, lane, head, result, ticket)
    answer: Answer = tuple.__new__(  # past its constructor, see commands.py
        Answer, (head.pid, head.topic, head.partition, head.seq, result, head.epoch)
    )
    effects.append(answer)


def _handled(
    state: State, head: Head, ticket: int, lane: Lane, rules: Rules, effects: list[Effect]
) -> Result:
    handler = rules.get(head.kind)
    if handler is None:
        return _refused(state, Reason.UNKNOWN_KIND, head.kind)
    if head.topic and head.kind not in _OF_TOPIC_LANES:
        return _refused(state, Reason.TOPIC_LANE)
    try:
        return handler(state, head, ticket, lane, effects)
    except Corrupt:  # by the readers, before anything was changed
        return _refused(state, Reason.MALFORMED)


def _withdraw(state: State, head: Head, effects: list[Effect]) -> None:
    """The skip of a batch that waits: the answer is that of the batch."""
    waiting = lanes.waiting_ticket(state.lanes.rows[head.lane], head.seq)
    assert waiting is not None, "the lane said that it waits"
    withdraw(state, waiting, effects)


def _produce(state: State, head: Head, ticket: int, lane: Lane, effects: list[Effect]) -> Result:
    partitions, count, _, _, ids, expect_last = Produce.of(head)
    topic = state.topics.rows.get(head.topic)
    if topic is None and expect_last:  # or a batch that is not wanted would make a topic
        return Result(Code.CONFLICT, reason=Reason.OTHER_LAST, position=state.position)
    if topic is None or partitions != topic.policy.partitions or head.partition >= partitions:
        made = topics.for_batch(state, head, partitions, ticket, effects)
        if isinstance(made, Result):
            return made
        topic = made
    named = ids or ()
    expected = -1 if expect_last is None else expect_last
    if topic.id << PARTITION_BITS | head.partition not in state.queues:
        result = number(
            state,
            topic,
            head.partition,
            count,
            head.length,
            head.time,
            named,
            expected,
            ticket,
            effects,
        )
        if result is not None:
            return result
    batch = Waiting(
        head.pid,
        head.epoch,
        head.topic,
        head.partition,
        head.seq,
        count,
        head.length,
        head.time,
        tuple(named),
        expected,
    )
    return no_room(state, topic, batch, ticket, lane)


def _skip(state: State, head: Head, ticket: int, lane: Lane, effects: list[Effect]) -> Result:
    """The seq came as a skip before it came as anything else; it never will be anything else."""
    return Result(Code.WITHDRAWN, position=state.position)


def _nothing(state: State, head: Head, ticket: int, lane: Lane, effects: list[Effect]) -> Result:
    """CLOCK and BARRIER: being applied is all they are for."""
    return Result(Code.ORDERED, position=state.position)


def _settings(state: State, head: Head, ticket: int, lane: Lane, effects: list[Effect]) -> Result:
    try:
        state.settings = settings.changed(state.settings, Settings.of(head).values)
    except Unfit as unfit:
        return _refused(state, unfit.reason, unfit.field)
    staging.forget_writers(state)
    return Result(Code.ORDERED, position=state.position)


def _switch(state: State, head: Head, ticket: int, lane: Lane, effects: list[Effect]) -> Result:
    """One version at a time, so that a slip of the finger cannot stop every node for ever."""
    (version,) = Switch.of(head)
    if version not in (state.version, state.version + 1):
        return _refused(state, Reason.NOT_NEXT_VERSION, state.version)
    state.version = version
    return Result(Code.ORDERED, detail=version, position=state.position)


def _refused(state: State, reason: Reason, detail: int = 0) -> Result:
    return Result(Code.REFUSED, reason=reason, detail=detail, position=state.position)


_OF_TOPIC_LANES: Final = (Kind.PRODUCE, Kind.SKIP, Kind.STAGE)

VERSIONS: Final[Mapping[int, Rules]] = {
    FIRST_VERSION: {
        Kind.PRODUCE: _produce,
        Kind.SKIP: _skip,
        Kind.CREATE: topics.create,
        Kind.CONFIGURE: topics.configure,
        Kind.DELETE: topics.delete,
        Kind.PRUNE: topics.prune_topic,
        Kind.CLOCK: _nothing,
        Kind.STAGE: staging.stage,
        Kind.COMMIT: staging.commit,
        Kind.SWITCH: _switch,
        Kind.BARRIER: _nothing,
        Kind.SETTINGS: _settings,
    },
}
