"""Effects: what applying an item asks of the world, and the results that producers are answered with.

The state decides; the node then answers clients, writes its index, wakes readers.  Effects come in
the order in which they happened.  They are values: losing one changes nothing in the state.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class Code(enum.IntEnum):
    """What became of a command.  The numbers are in snapshots and on wires: never reuse one."""

    ORDERED = 1  # done; for entries: they have numbers
    WAITING = 2  # in the row without numbers until there is room; another answer follows
    STAGED = 3  # kept without numbers until a commit
    FULL = 4  # no room; certainly not written
    REFUSED = 5  # wrong in itself; `reason` says how
    NOT_FOUND = 6  # no such topic
    EXISTS = 7  # the topic is there already; detail: its id
    CONFLICT = 8  # the caller's picture is old; `reason` says of what, detail is what is true
    WITHDRAWN = 9  # skipped before it was numbered; it never will be
    FENCED = 10  # a higher epoch of this producer has spoken; detail: that epoch
    GAP = 11  # an earlier seq of the lane is missing, nothing was done; detail: the expected seq
    UNKNOWN_PRODUCER = 12  # this lane is not, or no longer, known, and its first seq is 1
    FORGOTTEN = 13  # done, but the result is no longer kept


ORDERED: Final = int(Code.ORDERED)  # plain numbers for the hottest path: enums are slow to look
WAITING: Final = int(Code.WAITING)  # up, to compare and to pack


class Reason(enum.IntEnum):
    """Why, where the code alone does not say it.  The numbers are in snapshots: never reuse one."""

    NONE = 0
    MALFORMED = 1  # the part of the head that belongs to the kind is not what the kind needs
    UNKNOWN_KIND = 2  # this version of the state has no such command; detail: the kind
    BAD_NAME = 3  # no topic may be called so
    BAD_LANE = 4  # no lane has this topic name or partition; no seq was consumed
    BAD_SEQ = 5  # seq counts from 1; no seq was consumed
    BAD_PARTITION = 6  # the topic has no such partition; detail: how many it has
    ROUTING_CHANGED = 7  # the topic has another number of partitions; detail: how many
    OTHER_TOPIC = 8  # of this name now; detail: its id, 0 if there is none; no seq was consumed
    OTHER_LAST = 9  # expect_last named another number; detail: the last number
    TOO_LARGE = 10  # it could not fit even if all else were pruned; detail: the limit
    TOO_MANY_WAITING = 11  # of this lane, or of all; detail: the limit
    TOO_MANY_TOPICS = 12  # detail: the limit
    TOO_MANY_STAGES = 13  # detail: the limit
    IDS_REPEATED = 14  # an id occurs twice in the batch
    IDS_PARTLY_KNOWN = 15  # some ids have numbers already; detail: the first such number
    ELSEWHERE = 16  # a duplicate by id, whose number is of another partition; detail: which
    BAD_POLICY = 17  # detail: which field of the map, from 1
    BAD_SETTING = 18  # detail: which field of the map, from 1
    NEEDS_GROUPS = 19  # reserved until consumer groups exist; detail: which field, from 1
    FEWER_PARTITIONS = 20  # they only grow; detail: how many there are
    TOPIC_LANE = 21  # belongs in the lane without a topic, since the topic's lanes go with it
    STAGE_GONE = 22  # never was, expired, dropped or committed; detail: which of the list, from 1
    STAGE_OTHERS = 23  # of another writer or batch; detail: which of the list, from 1
    STAGE_REPEATED = 24  # listed twice; detail: which of the list, from 1
    BATCH_PASSED = 25  # this writer has committed a later one; detail: that batch
    NOT_NEXT_VERSION = 26  # versions are switched on one by one; detail: the version now


class Result(NamedTuple):
    """The answer to one command; the same on every node, and again when it is asked again."""

    code: int  # a Code; results that were kept come back with the plain number
    first: int = 0  # number of the first entry; 0 if nothing was numbered, or in several places
    count: int = 0  # type: ignore[assignment]  # entries; nobody counts in a tuple
    time: int = 0  # of the entries, microseconds
    position: int = 0  # of the item that decided it
    detail: int = 0  # by code and reason
    reason: int = 0  # a Reason
    duplicate: bool = False  # decided before, by an earlier copy of the command

    @property
    def last(self) -> int:
        return self.first + self.count - 1


class Answer(NamedTuple):
    """For whoever waits for (pid, epoch, topic, partition, seq); two follow for one that waits."""

    pid: bytes
    topic: str
    partition: int
    seq: int
    result: Result
    epoch: int


class Appended(NamedTuple):
    """A batch got numbers.  Its body is that of a command of the item at `position`."""

    topic_id: int
    topic: str
    partition: int
    first: int
    count: int  # type: ignore[assignment]  # entries
    time: int  # of its entries
    size: int  # bytes of the body
    position: int  # below the item being applied, if the batch was staged or had to wait
    index: int  # type: ignore[assignment]  # of the command in the bundle of that item


class Pruned(NamedTuple):
    """Entries below `first` are no more."""

    topic_id: int
    topic: str
    partition: int
    first: int


class Created(NamedTuple):
    topic_id: int
    topic: str


class Configured(NamedTuple):
    topic_id: int
    topic: str


class Deleted(NamedTuple):
    """The topic with all its partitions; no `Pruned` is given for them."""

    topic_id: int
    topic: str


Effect = Answer | Appended | Pruned | Created | Configured | Deleted


def explain(result: Result) -> str:
    """A result in one sentence, for logs and error messages."""
    code, reason, detail = Code(result.code), Reason(result.reason), result.detail
    words = code.name.lower().replace("_", " ")
    if code is Code.ORDERED and result.first:
        words += f" as {result.first:,} to {result.last:,}"
    if reason is not Reason.NONE:
        words += f": {reason.name.lower().replace('_', ' ')}"
    if detail:
        words += f" ({detail:,})"
    return words + (", as it was before" if result.duplicate else "")
