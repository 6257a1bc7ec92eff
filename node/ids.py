"""Ids: a producer without a lane, or with several, may name single entries instead.

Each topic remembers the last `ids_max` ids that were numbered, with the numbers they got; fewer
when so many topics do that they share `ids_total_max`, and none in the end where others brought
theirs later:

    batch with ids             answer
    none of them known         it is numbered
    all known, numbered as     ORDERED with the old numbers, a duplicate
    a batch of this order
    anything else              REFUSED: a part of it is there already

The old numbers may lie in another partition than the one asked for, when the topic has grown since
or the producer chose anew: the answer says which.  An id may be given again once it has left the
window, or once the topic was created anew; that the entry was pruned does not forget it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from .effects import Code, Reason, Result
from .limits import FORGOTTEN_PER_COMMAND, IDS_PER_BATCH_MAX
from .state import State
from .values import Known, Topic


def look(state: State, topic: Topic, partition: int, ids: Sequence[bytes]) -> Result | None:
    """The final answer for a batch with these ids, if it is known already or never can be."""
    if len(set(ids)) < len(ids):
        return Result(Code.REFUSED, reason=Reason.IDS_REPEATED, position=state.position)
    rows = state.ids.rows
    found = [known for each in ids if (known := rows.get((topic.id, each))) is not None]
    if not found:
        return None
    first = found[0]
    in_order = all(
        known.partition == first.partition and known.number == first.number + offset
        for offset, known in enumerate(found)
    )
    if len(found) < len(ids) or not in_order:
        return Result(
            Code.REFUSED,
            reason=Reason.IDS_PARTLY_KNOWN,
            detail=first.number,
            position=state.position,
        )
    moved = first.partition != partition
    return Result(
        Code.ORDERED,
        first.number,
        len(ids),
        first.time,
        first.position,
        first.partition if moved else 0,
        Reason.ELSEWHERE if moved else Reason.NONE,
        True,
    )


def remember(
    state: State, topic: Topic, partition: int, first: int, time: int, ids: Sequence[bytes]
) -> None:
    window = state.ids_of.get(topic.id)
    if window is None:
        window = state.ids_of[topic.id] = deque()
    else:
        state.ids_of.move_to_end(topic.id)
    for number, each in enumerate(ids, first):
        state.turn += 1
        known = Known(state.turn, partition, number, time, state.position)
        state.ids.put((topic.id, each), known)
        window.append(each)
    share = max(IDS_PER_BATCH_MAX, state.settings.ids_total_max // len(state.ids_of))
    while len(window) > min(share, state.settings.ids_max):
        state.ids.drop((topic.id, window.popleft()))
    _hold_to_total(state, len(ids) + FORGOTTEN_PER_COMMAND)


def drop_of_topic(state: State, topic: Topic) -> None:
    for each in state.ids_of.pop(topic.id, ()):
        state.ids.drop((topic.id, each))


def derive(state: State) -> None:
    """Builds the index from the table."""
    state.ids_of = OrderedDict()
    for topic_id, each in sorted(state.ids.rows, key=lambda key: state.ids.rows[key].turn):
        state.ids_of.setdefault(topic_id, deque()).append(each)
        state.ids_of.move_to_end(topic_id)


def _hold_to_total(state: State, most: int) -> None:
    """Topics that had more when they were fewer: who brought none for longest forgets first."""
    total = max(IDS_PER_BATCH_MAX, state.settings.ids_total_max)
    for _ in range(min(most, len(state.ids) - total)):
        topic_id = next(iter(state.ids_of))
        window = state.ids_of[topic_id]
        state.ids.drop((topic_id, window.popleft()))
        if not window:
            del state.ids_of[topic_id]
