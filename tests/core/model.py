"""The state as one would write it without a thought for speed: lists of entries, looked through.

It was written from the rules, not from the code, and knows nothing of tables, runs, heaps, packed
results or indexes.  It answers items like `apply`; whatever differs is a fault in one of the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from duckrow.node.commands import (
    Commit,
    Delete,
    Head,
    Kind,
    Produce,
    Prune,
    Stage,
    TopicPolicy,
    decode_head,
)
from duckrow.node.commands import Settings as SettingsForm
from duckrow.node.effects import Answer, Code, Reason, Result
from duckrow.node.row import Item, View

DEFAULTS = {"max_age": 0, "max_entries": 0, "max_bytes": 0, "when_full": "drop-oldest"}
DEFAULTS |= {"partitions": 1, "archive": 0}
SETTINGS = {"create": "on-produce", "lanes_max": 100_000, "ids_max": 10_000}
SETTINGS |= {"stage_expiry": 3_600_000_000, "writers_max": 10_000, "topics_max": 100_000}
SETTINGS |= {"waiting_max": 100_000, "stages_max": 100_000}


@dataclass(eq=False)
class Batch:
    place: tuple[int, int]  # position, index
    topic: Topic
    partition: int
    count: int
    size: int
    time: int
    ids: list[bytes] = field(default_factory=list)
    expect_last: int | None = None
    head: Head | None = None  # of one that waits
    writer: bytes = b""  # of one that is staged
    number: int = 0  # of the job's batch it belongs to
    since: int = 0


@dataclass
class Entry:
    number: int
    time: int
    batch: Batch


@dataclass(eq=False)
class Topic:
    id: int
    name: str
    policy: dict[str, Any]
    entries: dict[int, list[Entry]] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    time: dict[int, int] = field(default_factory=dict)
    waiting: list[Batch] = field(default_factory=list)
    ids: list[tuple[bytes, int, int, int, int]] = field(default_factory=list)

    def queue(self, partition: int) -> list[Batch]:
        return [batch for batch in self.waiting if batch.partition == partition]

    def bytes(self, partition: int) -> int:
        batches = {id(entry.batch): entry.batch for entry in self.entries.get(partition, [])}
        return sum(batch.size for batch in batches.values())


@dataclass(eq=False)
class Lane:
    key: tuple[bytes, str, int]
    epoch: int
    last: int = 0
    results: dict[int, Result] = field(default_factory=dict)
    waiting: dict[int, Batch] = field(default_factory=dict)


class Model:
    def __init__(self) -> None:
        self.position = self.now = 0
        self.members: dict[int, int] = {}
        self.stamps: dict[int, int] = {}
        self.settings: dict[str, Any] = dict(SETTINGS)
        self.topics: dict[str, Topic] = {}
        self.lanes: list[Lane] = []  # the least recently applied first
        self.epochs: dict[bytes, int] = {}  # the highest of each producer that has a lane
        self.stages: list[Batch] = []
        self.writers: list[tuple[bytes, int, Result]] = []  # the least recently committed first
        self.answers: list[Answer] = []

    def apply(self, item: Item) -> list[Answer]:
        self.answers = []
        self.position = item.position
        if isinstance(item.content, View):
            self.members = {member.id: member.weight for member in item.content.members}
            self.stamps = {m: t for m, t in self.stamps.items() if m in self.members}
        elif item.content.origin in self.members:
            self.stamps[item.content.origin] = item.content.stamp
        self.tell_time()
        self.age()
        if not isinstance(item.content, View):
            for index, command in enumerate(item.content.commands):
                self.command(decode_head(command.head), index)
        return self.answers

    # Time.

    def tell_time(self) -> None:
        stamps = {member: self.stamps.get(member, self.now) for member in self.members}
        for time in sorted(stamps.values()):
            weight = sum(w for member, w in self.members.items() if stamps[member] >= time)
            if 2 * weight > sum(self.members.values()):
                self.now = max(self.now, time)

    def age(self) -> None:
        expiry = self.settings["stage_expiry"]
        self.stages = [batch for batch in self.stages if batch.since + expiry > self.now]
        while due := self.due():
            _, _, partition, topic = min(due, key=lambda each: each[:3])
            last = topic.last.get(partition, 0)
            old = [e.number for e in topic.entries[partition] if self.is_old(topic, e)]
            self.drop_up_to(topic, partition, max(old))
            assert topic.last.get(partition, 0) == last
            self.fill(topic, partition)

    def is_old(self, topic: Topic, entry: Entry) -> bool:
        age = topic.policy["max_age"]
        return bool(age) and entry.time + age <= self.now

    def due(self) -> list[tuple[int, int, int, Topic]]:
        """(when, topic id, partition) of what age would move now."""
        found = []
        for topic in self.topics.values():
            for partition, entries in topic.entries.items():
                span = topic.policy["archive"] or 1
                for entry in entries:
                    if topic.policy["max_age"] and (
                        not topic.policy["archive"] or entry.number % span == 0
                    ):
                        when = entry.time + topic.policy["max_age"]
                        if when <= self.now:
                            found.append((when, topic.id, partition, topic))
                        break
        return found

    # Lanes.

    def command(self, head: Head, index: int) -> None:
        result = self.of_lane(head, index)
        if result is not None:
            self.answer(head, result)

    def answer(self, head: Head, result: Result) -> None:
        self.answers.append(
            Answer(head.pid, head.topic, head.partition, head.seq, result, head.epoch)
        )

    def of_lane(self, head: Head, index: int) -> Result | None:
        if head.seq == 0:
            return self.refused(Reason.BAD_SEQ)
        topic = self.topics.get(head.topic)
        if head.topic and head.topic_id and (topic is None or topic.id != head.topic_id):
            return self.refused(Reason.OTHER_TOPIC, topic.id if topic else 0, Code.CONFLICT)
        pids = {lane.key[0] for lane in self.lanes}
        self.epochs = {pid: epoch for pid, epoch in self.epochs.items() if pid in pids}
        epoch = self.epochs.get(head.pid)
        lane = next((lane for lane in self.lanes if lane.key == head.lane), None)
        if epoch is not None and head.epoch < epoch:
            return self.refused(Reason.NONE, epoch, Code.FENCED)
        if lane is None and head.seq > 1 and epoch in (None, head.epoch):
            return self.refused(Reason.NONE, 0, Code.UNKNOWN_PRODUCER)
        last = lane.last if lane is not None and lane.epoch == head.epoch else 0
        if head.seq > last + 1:
            return self.refused(Reason.NONE, last + 1, Code.GAP)
        if head.seq <= last:
            assert lane is not None
            return self.again(lane, head)
        fresh = Lane(head.lane, head.epoch) if last == 0 else lane
        assert fresh is not None
        result = self.handle(head, index, fresh)
        if lane is not None:
            self.lanes.remove(lane)
        self.lanes.append(fresh)
        self.epochs[head.pid] = head.epoch
        fresh.last = head.seq
        kept = {
            seq: old
            for seq, old in fresh.results.items()
            if seq > head.done and seq > head.seq - 64
        }
        fresh.results = {**kept, head.seq: result}
        self.lanes = self.lanes[-self.settings["lanes_max"] :]
        return result

    def again(self, lane: Lane, head: Head) -> Result | None:
        batch = lane.waiting.get(head.seq)
        if batch is None:
            kept = lane.results.get(head.seq, Result(Code.FORGOTTEN))
            return kept._replace(duplicate=True)
        if head.kind != Kind.SKIP:
            return Result(Code.WAITING, duplicate=True)
        batch.topic.waiting.remove(batch)
        self.settle(batch, Result(Code.WITHDRAWN, position=self.position))
        self.fill(batch.topic, batch.partition)
        return None

    # Kinds.

    def handle(self, head: Head, index: int, lane: Lane) -> Result:
        match head.kind:
            case Kind.PRODUCE:
                return self.produce(head, index, lane)
            case Kind.SKIP:
                return Result(Code.WITHDRAWN, position=self.position)
            case Kind.STAGE:
                return self.stage(head, index)
            case Kind.COMMIT:
                return self.commit(Commit.of(head))
            case Kind.CREATE:
                return self.create(head, index)
            case Kind.CONFIGURE | Kind.DELETE | Kind.PRUNE:
                return self.on_topic(head)
            case Kind.SETTINGS:
                for name, value in SettingsForm.of(head).values.items():
                    self.settings[name] = SETTINGS[name] if value is None else value
                self.writers = self.writers[-self.settings["writers_max"] :]
        return Result(Code.ORDERED, position=self.position)

    def produce(self, head: Head, index: int, lane: Lane) -> Result:
        form = Produce.of(head)
        if head.topic not in self.topics and form.expect_last:
            return self.refused(Reason.OTHER_LAST, 0, Code.CONFLICT)
        topic = self.topic_for(head, form.partitions, index)
        if isinstance(topic, Result):
            return topic
        place = self.position, index
        batch = Batch(
            place, topic, head.partition, form.entries, head.length, head.time, form.ids or []
        )
        batch.expect_last, batch.head = form.expect_last, head
        if not topic.queue(head.partition) and (result := self.number(batch)) is not None:
            return result
        if (result := self.decided(batch)) is not None:
            return result
        when_full = topic.policy["when_full"]
        if when_full == "reject":
            return self.refused(Reason.NONE, 0, Code.FULL)
        most = 1 if when_full == "slot" else 64
        if len(lane.waiting) >= most:
            return self.refused(Reason.TOO_MANY_WAITING, most, Code.FULL)
        most = self.settings["waiting_max"]
        if sum(len(each.waiting) for each in self.topics.values()) >= most:
            return self.refused(Reason.TOO_MANY_WAITING, most, Code.FULL)
        topic.waiting.append(batch)
        lane.waiting[head.seq] = batch
        return Result(Code.WAITING, count=batch.count, position=self.position)

    def decided(self, batch: Batch) -> Result | None:
        """What no room would change."""
        topic, policy = batch.topic, batch.topic.policy
        known = [known for known in topic.ids if known[0] in batch.ids]
        if len(batch.ids) != len({*batch.ids}):
            return self.refused(Reason.IDS_REPEATED)
        if known:
            known.sort(key=lambda each: batch.ids.index(each[0]))
            _, partition, number, time, position = known[0]
            wanted = [(each, partition, number + n) for n, each in enumerate(batch.ids)]
            if [tuple(each[:3]) for each in known] != wanted:
                return self.refused(Reason.IDS_PARTLY_KNOWN, number)
            result = Result(Code.ORDERED, number, batch.count, time, position, duplicate=True)
            if partition != batch.partition:
                result = result._replace(reason=Reason.ELSEWHERE, detail=partition)
            return result
        if policy["max_bytes"] and batch.size > policy["max_bytes"]:
            return self.refused(Reason.TOO_LARGE, policy["max_bytes"])
        if (
            policy["when_full"] != "drop-oldest"
            and policy["max_entries"]
            and batch.count > policy["max_entries"]
        ):
            return self.refused(Reason.TOO_LARGE, policy["max_entries"])
        last = topic.last.get(batch.partition, 0)
        if batch.expect_last is not None and batch.expect_last < last:
            return self.refused(Reason.OTHER_LAST, last, Code.CONFLICT)
        return None

    def number(self, batch: Batch) -> Result | None:
        if (result := self.decided(batch)) is not None:
            return result
        topic = batch.topic
        if not self.fits(topic, batch.partition, batch.count, batch.size):
            return None
        last = topic.last.get(batch.partition, 0)
        if batch.expect_last not in (None, last):
            return self.refused(Reason.OTHER_LAST, last, Code.CONFLICT)
        time = self.append(batch)
        for offset, each in enumerate(batch.ids, 1):
            topic.ids.append((each, batch.partition, last + offset, time, self.position))
        if batch.ids:  # a window is held to its size when something comes in
            topic.ids = topic.ids[-self.settings["ids_max"] :]
        return Result(Code.ORDERED, last + 1, batch.count, time, self.position)

    def fits(self, topic: Topic, partition: int, count: int, size: int) -> bool:
        policy = topic.policy
        if policy["when_full"] == "drop-oldest":
            return True
        entries = len(topic.entries.get(partition, []))
        if policy["max_entries"] and entries + count > policy["max_entries"]:
            return False
        return not policy["max_bytes"] or topic.bytes(partition) + size <= policy["max_bytes"]

    def append(self, batch: Batch) -> int:
        topic, partition = batch.topic, batch.partition
        time = min(batch.time, self.now + 30_000_000) if self.now else batch.time
        time = max(time, topic.time.get(partition, 0))
        entries = topic.entries.setdefault(partition, [])
        for _ in range(batch.count):
            topic.last[partition] = topic.last.get(partition, 0) + 1
            entries.append(Entry(topic.last[partition], time, batch))
        topic.time[partition] = time
        self.hold(topic, partition)
        return time

    def hold(self, topic: Topic, partition: int) -> None:
        policy, entries = topic.policy, list(topic.entries.get(partition, []))
        if policy["when_full"] != "drop-oldest":
            return
        gone = 0
        if policy["max_entries"]:
            gone = topic.last.get(partition, 0) - policy["max_entries"]
        sizes = {id(entry.batch): entry.batch.size for entry in entries}
        while policy["max_bytes"] and sum(sizes.values()) > policy["max_bytes"]:
            oldest = next(iter(sizes))
            gone = max([gone] + [e.number for e in entries if id(e.batch) == oldest])
            del sizes[oldest]
        self.drop_up_to(topic, partition, gone)

    def drop_up_to(self, topic: Topic, partition: int, number: int) -> None:
        if topic.policy["archive"]:
            number = number // topic.policy["archive"] * topic.policy["archive"]
        entries = topic.entries.get(partition, [])
        topic.entries[partition] = [entry for entry in entries if entry.number > number]

    def fill(self, topic: Topic, partition: int) -> None:
        for batch in topic.queue(partition):
            result = self.number(batch)
            if result is None:
                return
            topic.waiting.remove(batch)
            self.settle(batch, result)

    def settle(self, batch: Batch, result: Result) -> None:
        assert batch.head is not None
        for lane in self.lanes:
            for seq in [seq for seq, each in lane.waiting.items() if each is batch]:
                del lane.waiting[seq]
                if seq in lane.results:
                    lane.results[seq] = result
        self.answer(batch.head, result)

    # Topics.

    def topic_for(self, head: Head, partitions: int, index: int) -> Topic | Result:
        topic = self.topics.get(head.topic)
        if topic is None:
            if self.settings["create"] != "on-produce":
                return Result(Code.NOT_FOUND, position=self.position)
            return self.make(head.topic, {**DEFAULTS, "partitions": partitions}, index)
        if topic.policy["partitions"] != partitions:
            there = topic.policy["partitions"]
            return self.refused(Reason.ROUTING_CHANGED, there, Code.CONFLICT)
        return topic

    def make(self, name: str, policy: dict[str, Any], index: int) -> Topic | Result:
        if len(self.topics) >= self.settings["topics_max"]:
            return self.refused(Reason.TOO_MANY_TOPICS, self.settings["topics_max"])
        topic = self.topics[name] = Topic(self.position << 14 | index, name, policy)
        return topic

    def create(self, head: Head, index: int) -> Result:
        name, policy = TopicPolicy.of(head)
        if name in self.topics:
            return self.refused(Reason.NONE, self.topics[name].id, Code.EXISTS)
        made = self.make(name, {**DEFAULTS, **policy}, index)
        if isinstance(made, Result):
            return made
        return Result(Code.ORDERED, detail=made.id, position=self.position)

    def on_topic(self, head: Head) -> Result:
        topic = self.topics.get(head.extra[0])
        if topic is None:
            return Result(Code.NOT_FOUND, position=self.position)
        if head.topic_id not in (0, topic.id):
            return self.refused(Reason.OTHER_TOPIC, topic.id, Code.CONFLICT)
        if head.kind == Kind.CONFIGURE:
            return self.configure(topic, TopicPolicy.of(head).policy)
        if head.kind == Kind.PRUNE:
            return self.prune(topic, Prune.of(head))
        del self.topics[Delete.of(head).topic]
        self.lanes = [lane for lane in self.lanes if lane.key[1] != topic.name]
        for partition in range(topic.policy["partitions"]):
            for batch in topic.queue(partition):
                self.settle(batch, Result(Code.NOT_FOUND, position=self.position))
        return Result(Code.ORDERED, detail=topic.id, position=self.position)

    def configure(self, topic: Topic, changes: dict[str, Any]) -> Result:
        named = {name: DEFAULTS[name] if v is None else v for name, v in changes.items()}
        if named.get("partitions", 1_024) < topic.policy["partitions"]:
            return self.refused(Reason.FEWER_PARTITIONS, topic.policy["partitions"])
        before = dict(topic.policy)
        topic.policy |= named
        if topic.policy == before:
            return Result(Code.ORDERED, detail=topic.id, position=self.position)
        for partition in range(topic.policy["partitions"]):
            self.hold(topic, partition)
            self.fill(topic, partition)
        return Result(Code.ORDERED, detail=topic.id, position=self.position)

    def prune(self, topic: Topic, form: Prune) -> Result:
        if form.partition >= topic.policy["partitions"]:
            return self.refused(Reason.BAD_PARTITION, topic.policy["partitions"])
        last = topic.last.get(form.partition, 0)
        self.drop_up_to(topic, form.partition, min(form.number, last))
        first = self.first(topic, form.partition)
        self.fill(topic, form.partition)
        return Result(Code.ORDERED, detail=first, position=self.position)

    def first(self, topic: Topic, partition: int) -> int:
        entries = topic.entries.get(partition)
        return entries[0].number if entries else topic.last.get(partition, 0) + 1

    # Stages.

    def stage(self, head: Head, index: int) -> Result:
        form = Stage.of(head)
        if len(self.stages) >= self.settings["stages_max"]:
            return self.refused(Reason.TOO_MANY_STAGES, self.settings["stages_max"], Code.FULL)
        topic = self.topic_for(head, form.partitions, index)
        if isinstance(topic, Result):
            return topic
        batch = Batch(
            (self.position, index), topic, head.partition, form.entries, head.length, head.time
        )
        if (refused := self.decided(batch)) is not None:
            return refused
        self.stages.append(
            replace(batch, writer=form.writer, number=form.batch, since=self.now or head.time)
        )
        return Result(Code.STAGED, 0, batch.count, batch.time, self.position, index)

    def commit(self, form: Commit) -> Result:
        for writer, number, result in self.writers:
            if writer == form.writer and number == form.batch:
                return result._replace(duplicate=True)
            if writer == form.writer and number > form.batch:
                return self.refused(Reason.BATCH_PASSED, number)
        chosen: list[Batch] = []
        expiry = self.settings["stage_expiry"]
        for nth, place in enumerate(form.stages, 1):
            batch = next((each for each in self.stages if each.place == place), None)
            if (
                batch is None
                or batch.since + expiry <= self.now
                or self.topics.get(batch.topic.name) is not batch.topic
            ):
                return self.refused(Reason.STAGE_GONE, nth)
            if (batch.writer, batch.number) != (form.writer, form.batch):
                return self.refused(Reason.STAGE_OTHERS, nth)
            if batch in chosen:
                return self.refused(Reason.STAGE_REPEATED, nth)
            chosen.append(batch)
        if (refused := self.no_room_for(chosen)) is not None:
            return refused
        for batch in chosen:
            self.append(batch)
        self.stages = [
            each for each in self.stages if each.writer != form.writer or each.number > form.batch
        ]
        count = sum(batch.count for batch in chosen)
        result = Result(Code.ORDERED, count=count, position=self.position)
        others = [each for each in self.writers if each[0] != form.writer]
        self.writers = [*others, (form.writer, form.batch, result)]
        self.writers = self.writers[-self.settings["writers_max"] :]
        return result

    def no_room_for(self, chosen: list[Batch]) -> Result | None:
        for nth, batch in enumerate(chosen, 1):
            topic, partition = batch.topic, batch.partition
            together = batch
            if topic.policy["when_full"] != "drop-oldest":
                before = [
                    each
                    for each in chosen[:nth]
                    if (each.topic, each.partition) == (topic, partition)
                ]
                together = replace(
                    batch,
                    count=sum(each.count for each in before),
                    size=sum(each.size for each in before),
                )
            if (refused := self.decided(together)) is not None:
                return refused
            if topic.queue(partition) or not self.fits(
                topic, partition, together.count, together.size
            ):
                return self.refused(Reason.NONE, 0, Code.FULL)
        return None

    def refused(self, reason: Reason, detail: int = 0, code: Code = Code.REFUSED) -> Result:
        return Result(code, reason=reason, detail=detail, position=self.position)
