"""Topics: how they come, change and go.

A topic's identity is the ticket of the command that created it: position << 14 | index of the
command in its bundle, so two topics that one item creates differ, and a topic that was deleted
and created again is another one: it starts at 1, without lanes, ids or policy of the old one.
"""

from __future__ import annotations

from . import ids, lanes, policies, sweeping, waiting
from .commands import Delete, Head, Prune, TopicPolicy
from .effects import Code, Configured, Created, Deleted, Effect, Reason, Result
from .names import is_topic_name
from .numbering import note_age, prune, widen
from .policies import DEFAULT, Policy, Unfit
from .settings import Create
from .state import EMPTY, State
from .values import Lane, Topic


def for_batch(
    state: State, head: Head, partitions: int, ticket: int, effects: list[Effect]
) -> Topic | Result:
    """The topic that a batch is for, made if it may be; `partitions` is what the client assumed."""
    topic = state.topics.rows.get(head.topic)
    if topic is None:
        return _by_batch(state, head, partitions, ticket, effects)
    if partitions != topic.policy.partitions:
        return Result(
            Code.CONFLICT,
            reason=Reason.ROUTING_CHANGED,
            detail=topic.policy.partitions,
            position=state.position,
        )
    if head.partition >= partitions:
        return _bad_partition(state, partitions)
    return topic


def create(state: State, head: Head, ticket: int, lane: Lane, effects: list[Effect]) -> Result:
    name, changes = TopicPolicy.of(head)
    if not is_topic_name(name):
        return _bad_name(state)
    if (topic := state.topics.rows.get(name)) is not None:
        return Result(Code.EXISTS, detail=topic.id, position=state.position)
    if (full := _too_many(state)) is not None:
        return full
    try:
        policy = policies.changed(DEFAULT, changes)
    except Unfit as unfit:
        return _unfit(state, unfit)
    topic = _made(state, name, policy, ticket, effects)
    return Result(Code.ORDERED, detail=topic.id, position=state.position)


def configure(state: State, head: Head, ticket: int, lane: Lane, effects: list[Effect]) -> Result:
    """The new policy holds at once: what is too much goes, and who waited and fits is numbered."""
    name, changes = TopicPolicy.of(head)
    topic = _meant(state, head, name)
    if isinstance(topic, Result):
        return topic
    try:
        policy = policies.changed(topic.policy, changes)
    except Unfit as unfit:
        return _unfit(state, unfit)
    if policy.partitions < topic.policy.partitions:
        return Result(
            Code.REFUSED,
            reason=Reason.FEWER_PARTITIONS,
            detail=topic.policy.partitions,
            position=state.position,
        )
    effects.append(Configured(topic.id, name))
    if policy != topic.policy:
        topic = topic._replace(policy=_shared(policy))
        state.topics.put(name, topic)
        sweeping.begin(state, topic, effects)
    return Result(Code.ORDERED, detail=topic.id, position=state.position)


def delete(state: State, head: Head, ticket: int, lane: Lane, effects: list[Effect]) -> Result:
    (name,) = Delete.of(head)
    topic = _meant(state, head, name)
    if isinstance(topic, Result):
        return topic
    lanes.drop_of_topic(state, name)
    waiting.drop_of_topic(state, topic, effects)
    ids.drop_of_topic(state, topic)
    for partition in range(state.widths.pop(topic.id, 0)):
        key = topic.key(partition)
        state.due.drop(key)
        if key in state.partitions.rows:
            state.partitions.drop(key)
    if topic.id in state.sweeps.rows:
        state.sweeps.drop(topic.id)
    state.topics.drop(name)
    del state.names[topic.id]
    effects.append(Deleted(topic.id, name))
    return Result(Code.ORDERED, detail=topic.id, position=state.position)


def prune_topic(state: State, head: Head, ticket: int, lane: Lane, effects: list[Effect]) -> Result:
    """Answers with the number that is the first one now."""
    name, partition, number = Prune.of(head)
    topic = _meant(state, head, name)
    if isinstance(topic, Result):
        return topic
    if partition >= topic.policy.partitions:
        return _bad_partition(state, topic.policy.partitions)
    now = state.partitions.rows.get(topic.key(partition), EMPTY)
    now = prune(state, topic, partition, now, min(number, now.last) + 1, effects)
    note_age(state, topic, partition, now)
    waiting.fill(state, topic, partition, effects)
    return Result(Code.ORDERED, detail=now.first, position=state.position)


def derive(state: State) -> None:
    """Builds the indexes from the tables."""
    state.names = {topic.id: topic.name for topic in state.topics.rows.values()}
    state.widths = {}
    for key in state.partitions.rows:
        widen(state, key)
    for topic in state.topics.rows.values():
        if topic.policy.max_age:
            width = state.widths.get(topic.id, 0)
            for partition in range(state.sweeps.rows.get(topic.id, width)):
                note_age(state, topic, partition, state.partition(topic.id, partition))


def _by_batch(
    state: State, head: Head, partitions: int, ticket: int, effects: list[Effect]
) -> Topic | Result:
    if not is_topic_name(head.topic):
        return _bad_name(state)
    if state.settings.create != Create.ON_PRODUCE:
        return Result(Code.NOT_FOUND, position=state.position)
    if head.partition >= partitions:
        return _bad_partition(state, partitions)
    if (full := _too_many(state)) is not None:
        return full
    policy = DEFAULT if partitions == 1 else Policy(partitions=partitions)
    return _made(state, head.topic, policy, ticket, effects)


def _made(state: State, name: str, policy: Policy, ticket: int, effects: list[Effect]) -> Topic:
    topic = Topic(ticket, name, _shared(policy))
    state.topics.put(name, topic)
    state.names[topic.id] = name
    effects.append(Created(topic.id, name))
    return topic


def _meant(state: State, head: Head, name: str) -> Topic | Result:
    """The topic that an administrative command is about; it names it in its own part."""
    topic = state.topics.rows.get(name)
    if topic is None:
        return Result(Code.NOT_FOUND, position=state.position)
    if head.topic_id not in (0, topic.id):
        return Result(
            Code.CONFLICT, reason=Reason.OTHER_TOPIC, detail=topic.id, position=state.position
        )
    return topic


def _too_many(state: State) -> Result | None:
    limit = state.settings.topics_max
    if len(state.topics) < limit:
        return None
    return Result(
        Code.REFUSED, reason=Reason.TOO_MANY_TOPICS, detail=limit, position=state.position
    )


def _shared(policy: Policy) -> Policy:
    """Most topics have the policy that all have: one object, and recognised by it."""
    return DEFAULT if policy == DEFAULT else policy


def _bad_name(state: State) -> Result:
    return Result(Code.REFUSED, reason=Reason.BAD_NAME, position=state.position)


def _bad_partition(state: State, partitions: int) -> Result:
    return Result(
        Code.REFUSED, reason=Reason.BAD_PARTITION, detail=partitions, position=state.position
    )


def _unfit(state: State, unfit: Unfit) -> Result:
    return Result(Code.REFUSED, reason=unfit.reason, detail=unfit.field, position=state.position)
