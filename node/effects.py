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
    """A result in one sentence, for error messages and logs: what happened, and what to do."""
    code, reason = Code(result.code), Reason(result.reason)
    words = _BY_REASON.get(reason) or _BY_CODE[code]
    if code == Code.ORDERED and not reason and not result.first:
        # Not in one place: a topic was made, say, or stages were committed.
        words = "{count:,} entries are in the row" if result.count else "it is done"
    told = words.format(**{**result._asdict(), "last": result.last, **values(result)})
    return f"{told} (decided before)" if result.duplicate else told


def values(result: Result) -> dict[str, str | int]:
    """What a program may want to know of a result that is no success."""
    code, reason = Code(result.code), Reason(result.reason)
    found: dict[str, str | int] = {"result": named(code)}
    if reason:
        found["reason"] = named(reason)
    if name := detail_of(reason or code):
        found[name] = result.detail
    return found


def named(each: Code | Reason) -> str:
    """As users write it: other-last."""
    return each.name.lower().replace("_", "-")


def wording(each: Code | Reason) -> str:
    """The sentence of a code or reason, with the names of its values; empty if the code says it."""
    words = _BY_CODE.get(each, "") if isinstance(each, Code) else _BY_REASON.get(each, "")
    return words.replace(":,}", "}")


def detail_of(each: Code | Reason) -> str:
    """What `detail` is; empty: nothing."""
    # Apart: the numbers of codes and of reasons are the same ones.
    return _OF_CODE.get(each, "") if isinstance(each, Code) else _OF_REASON.get(each, "")


_OF_CODE: Final = {
    Code.STAGED: "index",
    Code.EXISTS: "topic_id",
    Code.FENCED: "epoch",
    Code.GAP: "seq",
}
_OF_REASON: Final = {
    Reason.UNKNOWN_KIND: "kind",
    Reason.BAD_PARTITION: "partitions",
    Reason.ROUTING_CHANGED: "partitions",
    Reason.OTHER_TOPIC: "topic_id",
    Reason.OTHER_LAST: "last",
    Reason.TOO_LARGE: "limit",
    Reason.TOO_MANY_WAITING: "limit",
    Reason.TOO_MANY_TOPICS: "limit",
    Reason.TOO_MANY_STAGES: "limit",
    Reason.IDS_PARTLY_KNOWN: "number",
    Reason.ELSEWHERE: "partition",
    Reason.BAD_POLICY: "field",
    Reason.BAD_SETTING: "field",
    Reason.NEEDS_GROUPS: "field",
    Reason.FEWER_PARTITIONS: "partitions",
    Reason.STAGE_GONE: "stage",
    Reason.STAGE_OTHERS: "stage",
    Reason.STAGE_REPEATED: "stage",
    Reason.BATCH_PASSED: "batch",
    Reason.NOT_NEXT_VERSION: "version",
}
_BY_CODE: Final = {
    Code.ORDERED: "{count:,} entries are in the row, the first as {first:,}",
    Code.WAITING: "{count:,} entries wait for room, and will be numbered when there is some",
    Code.STAGED: "{count:,} entries are staged as ({position}, {index})",
    Code.FULL: "the topic is full, and nothing was written: prune it, or raise its limits",
    Code.REFUSED: "the command was refused: the same again will be, too",
    Code.NOT_FOUND: "there is no such topic: look which there are, or create it",
    Code.EXISTS: "the topic is there already, with id {topic_id}: go on with it, or take another name",
    Code.CONFLICT: "somebody else was first: look again at what is there, and decide anew",
    Code.WITHDRAWN: "it was withdrawn before it was numbered, and never will be: send it anew if it is "
    "still wanted",
    Code.FENCED: "a newer instance of this producer, of epoch {epoch:,}, has taken over: end this one",
    Code.GAP: "an earlier command is missing, and nothing was done: send it from seq {seq:,} on",
    Code.UNKNOWN_PRODUCER: "this producer is not known here any more: begin with seq 1 again",
    Code.FORGOTTEN: "it was done, but the result is no longer kept: pull the topic to see it",
}
_SEND_RIGHT: Final = "correct the client"
_BY_REASON: Final = {
    Reason.MALFORMED: f"the head of the command is not what its kind needs: {_SEND_RIGHT}",
    Reason.UNKNOWN_KIND: "these rules know no command of kind {kind}: upgrade and switch first",
    Reason.BAD_NAME: "no topic may be called so: take letters, digits, '.', '_' and '-'",
    Reason.BAD_LANE: "no topic may be called so, or have such a partition: take letters, digits, '.', "
    "'_' and '-', and count partitions from 0",
    Reason.BAD_SEQ: f"seq counts from 1: {_SEND_RIGHT}",
    Reason.BAD_PARTITION: "there is no such partition: the topic has {partitions:,}, counted from 0",
    Reason.ROUTING_CHANGED: "the topic has {partitions:,} partitions: choose the partition anew",
    Reason.OTHER_TOPIC: "the topic of this name is another one now, with id {topic_id} (0: none): look "
    "again at what is there",
    Reason.OTHER_LAST: "the last number is {last:,}, and another was expected: read on up to there, and "
    "decide anew",
    Reason.TOO_LARGE: "the batch is larger than the limit of the topic, {limit:,}: send less at once, "
    "or raise it",
    Reason.TOO_MANY_WAITING: "as many as may wait for room do, {limit:,}, and nothing was written: prune "
    "the topic, or try again later",
    Reason.TOO_MANY_TOPICS: "there are as many topics as there may be, {limit:,}: delete some, or raise "
    "topics_max",
    Reason.TOO_MANY_STAGES: "as many batches as may be are staged, {limit:,}: commit some, or wait until "
    "they expire",
    Reason.IDS_REPEATED: "an id occurs twice in the batch: each entry needs one of its own",
    Reason.IDS_PARTLY_KNOWN: "a part of the batch is there already, entry {number:,} for one: send the "
    "same batch as before, or only what is new",
    Reason.ELSEWHERE: "the entry is number {first:,} of partition {partition:,}: it was produced before",
    Reason.BAD_POLICY: "field {field} of the policy cannot be: see the policies of topics",
    Reason.BAD_SETTING: "field {field} of the settings cannot be: see the settings of clusters",
    Reason.NEEDS_GROUPS: "field {field} of the policy needs consumer groups: leave it out",
    Reason.FEWER_PARTITIONS: "partitions only grow: ask for {partitions:,} or more",
    Reason.TOPIC_LANE: f"this command goes in the lane without a topic: {_SEND_RIGHT}",
    Reason.STAGE_GONE: "stage {stage:,} of the list is not there, or no longer: stage it again",
    Reason.STAGE_OTHERS: "stage {stage:,} of the list is of another writer or batch: list your own",
    Reason.STAGE_REPEATED: "stage {stage:,} of the list is in it twice: list it once",
    Reason.BATCH_PASSED: "the writer has committed a later batch, {batch:,}: go on behind it",
    Reason.NOT_NEXT_VERSION: "the version is {version:,}: switch to the next one only",
}
