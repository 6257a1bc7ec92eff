"""All lanes of a client: which entry goes in which, and when lanes have to be left.

A topic's entries go round its partitions, those with a key to the partition of the key.  When the
topic has grown, or a lane is gone, whatever comes back is put anew; to keep the order, that waits
until every lane of the topic is settled, and what is new waits behind it:

    lane 0   [7 OUT] [8 returned] waiting ...  ╮
    lane 1   [3 returned]                      ├─► all settled: by age, each to its new lane
    new ones go to the old lanes meanwhile     ╯
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from . import columns, makers, parts
from .clientcalls import Call, Receipt, Receipts, Run, joined, run_of
from .columns import HeadersLike
from .commands import PID_BYTES, Command
from .effects import Result
from .errors import DuckrowError, NoQuorum, Timeout, rebuilt
from .limits import LANES_MAX
from .outbox import Outbox, Waiting
from .parts import Maker, Part
from .slots import Sent

PartitionedMaker = Callable[[makers.Turn, int], Command]  # for a topic with so many partitions
_age = attrgetter("order")


class Outboxes:
    def __init__(self, pid: bytes) -> None:
        self._name = pid
        self._pids = 0  # derived from the name
        self._pid = pid  # of new lanes
        self._boxes: dict[tuple[str, int], Outbox] = {}
        self._most = LANES_MAX  # of them: then those that are over are forgotten
        self._busy: dict[tuple[str, int], Outbox] = {}  # those that may have something to send
        self._active: dict[Outbox, None] = {}  # all that are not idle, and some that are
        self._partitions: dict[str, int] = {}  # of topics that have several
        self._moving: dict[str, None] = {}  # topics whose parts wait to be put anew
        self._waiting = Waiting()
        self._turn = 0  # of batches without keys, over the partitions
        self._order = 0

    @property
    def is_idle(self) -> bool:
        """Nothing waits to be sent, or for an answer."""
        self._active = {outbox: None for outbox in self._active if not outbox.is_idle}
        return not self._active

    @property
    def is_busy(self) -> bool:
        """There may be something to send."""
        return bool(self._busy)

    @property
    def waiting_bytes(self) -> int:
        """Of entries that are in no batch yet, about."""
        return self._waiting.bytes

    # -- what goes in -----------------------------------------------------------------------------

    def put(
        self,
        call: Produce,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[HeadersLike] | None = None,
        *,
        ids: Sequence[bytes] | None = None,
        expect_last: int | None = None,
        accepted: bool = False,
    ) -> None:
        """
        Raises:
            Refused: no batch could be made of it; nothing was put.
        """
        if len(values) == 1 and keys is None and headers is None:
            size = parts.size_of_one(values[0])
            self._order += 1
            only = Part(
                call,
                values,
                ids=ids,
                expect_last=expect_last,
                accepted=accepted,
                size=size,
                order=self._order,
            )
            self.route(call, only)
            return
        whole = 0, len(values)
        made: list[Part] = []
        for lo, hi, size, ends in parts.cut(values, keys, headers):
            is_whole = (lo, hi) == whole
            self._order += 1
            made.append(
                Part(
                    call,
                    values if is_whole else values[lo:hi],
                    keys=keys if is_whole or keys is None else keys[lo:hi],
                    headers=headers if is_whole or headers is None else headers[lo:hi],
                    ids=ids,
                    expect_last=expect_last,
                    accepted=accepted,
                    size=size,
                    order=self._order,
                    ends=ends,
                )
            )
        for part in made:
            self.route(call, part)

    def put_order(self, call: Order, make: Maker) -> None:
        self._order += 1
        self.into(call, Part(call, make=make, order=self._order), "", 0, 1)

    def route(self, call: Produce, part: Part) -> None:
        """Into the lane of its partition; into several, if its keys belong there."""
        topic, partition = call.topic, call.partition
        count = self._partitions.get(topic, 1)
        if partition is None and count > 1:
            if part.keys is not None:
                self._route_keys(call, part, count)
                return
            if part.partition is None or part.partition >= count:
                self._turn += 1
                part.partition = self._turn % count
            partition = part.partition
        self.into(call, part, topic, partition or 0, count)

    def put_stage(self, call: Stage, partitions: int) -> None:
        """`partitions` is what whoever asks thinks there are."""
        self._order += 1
        count = self._partitions.setdefault(call.topic, partitions)
        part = Part(call, make=lambda turn: call.make(turn, count), order=self._order)
        self.into(call, part, call.topic, call.partition, count)

    def partitions(self, topic: str) -> int:
        """As many as it has, as far as is known."""
        return self._partitions.get(topic, 1)

    def into(
        self, call: Produce | Order, part: Part, topic: str, partition: int, count: int
    ) -> None:
        key = topic, partition
        outbox = self._boxes.get(key)
        if outbox is None:
            if len(self._boxes) >= self._most:
                self._forget_those_over(topic)
            outbox = self._boxes[key] = Outbox(
                self._pid, topic, partition, partitions=count, together=self._waiting
            )
            outbox.holds = topic in self._moving
        elif outbox.is_idle:
            outbox.partitions = count
        call.parts[part] = outbox
        outbox.put(part)
        self._busy[key] = outbox
        self._active[outbox] = None

    def give_up(self, call: Produce | Order) -> bool:
        """True: certainly nothing of what has no answer yet was written, or will be."""
        certain = True
        topics = dict.fromkeys(outbox.topic for outbox in call.parts.values())
        for part, outbox in [*call.parts.items()]:
            if not outbox.give_up(part):
                certain = False
            self._busy[outbox.topic, outbox.partition] = outbox
        for topic in topics:
            if topic in self._moving:
                self._move(topic)
        return certain

    # -- what goes out, and what comes of it ------------------------------------------------------

    def next(self, now_us: int) -> tuple[Outbox, Sent] | None:
        """What to send next, from each lane in turn."""
        busy = self._busy
        while busy:
            key = next(iter(busy))
            outbox = busy.pop(key)
            sent = outbox.next(now_us)
            if sent is not None:
                if outbox.may_have_more:
                    busy[key] = outbox  # behind the others
                return outbox, sent
        return None

    def answered(self, outbox: Outbox, sent: Sent, result: Result) -> None:
        outbox.answered(sent, result)
        self._after(outbox)

    def refused(self, outbox: Outbox, sent: Sent, error: DuckrowError) -> float:
        """In so many seconds the node may be asked again."""
        pause = outbox.refused(sent, error)
        self._after(outbox)
        return pause

    def lost(self) -> None:
        for key, outbox in self._boxes.items():
            outbox.lost()
            if not outbox.is_idle:
                self._busy[key] = outbox
                self._active[outbox] = None
        for topic in list(self._moving):
            self._move(topic)

    def fail(self, error: DuckrowError) -> None:
        for outbox in [*self._boxes.values()]:
            outbox.fail(error)
        self._boxes.clear()
        self._busy.clear()
        self._active.clear()
        self._moving.clear()
        self._pid = self._fresh_pid()  # its lanes begin anew, and the node may know the old ones

    def begin_anew(self) -> None:
        """Another row: a new producer, so that nothing is taken for what the old one has done."""
        boxes, self._boxes = self._boxes, {}
        self._busy.clear()
        self._active.clear()
        self._moving.clear()
        self._partitions.clear()
        self._pid = self._fresh_pid()
        for outbox in boxes.values():
            outbox.forsake()
        self._put_anew(part for outbox in boxes.values() for part in outbox.take_unsent())

    def _after(self, outbox: Outbox) -> None:
        topic = outbox.topic
        if outbox.may_have_more:
            self._busy[topic, outbox.partition] = outbox
            self._active[outbox] = None
        if outbox.has_returned:
            self._moving[topic] = None
        if topic in self._moving:
            self._move(topic)

    def _move(self, topic: str) -> None:
        """Puts everything of the topic anew, once nothing of it is on its way."""
        boxes = [outbox for (name, _), outbox in self._boxes.items() if name == topic]
        for outbox in boxes:
            outbox.holds = True
            if outbox.told_partitions is not None:
                self._partitions[topic], outbox.told_partitions = outbox.told_partitions, None
        if not all(outbox.is_settled for outbox in boxes):
            return
        self._moving.pop(topic, None)
        count = self._partitions.get(topic, 1)
        unsent = [part for outbox in boxes for part in outbox.take_unsent()]
        for outbox in boxes:
            outbox.holds, outbox.partitions = False, count
            if outbox.is_gone:
                outbox.begin_anew(self._fresh_pid())
        self._put_anew(unsent)

    def _put_anew(self, unsent: Iterable[Part]) -> None:
        for part in sorted(unsent, key=_age):
            part.asker.rerouted(part)

    def _forget_those_over(self, wanted: str) -> None:
        """Topics come and go, and the row remembers no more lanes than that, either.  What comes to these later
        is of another producer, so that nothing of it is taken for what they did.
        """
        for key in [key for key, outbox in self._boxes.items() if outbox.is_over]:
            outbox = self._boxes.pop(key)
            self._busy.pop(key, None)
            self._active.pop(outbox, None)
        there = {wanted, *(topic for topic, _ in self._boxes)}
        self._partitions = {t: count for t, count in self._partitions.items() if t in there}
        self._most = max(LANES_MAX, 2 * len(self._boxes))
        self._pid = self._fresh_pid()

    def _route_keys(self, call: Produce, part: Part, count: int) -> None:
        assert part.keys is not None
        hashes = memoryview(columns.key_hashes(part.keys)).cast("I")
        rows: dict[int, list[int]] = {}
        for index, hash_ in enumerate(hashes):
            rows.setdefault(hash_ % count, []).append(index)
        for partition, chosen in rows.items():
            self.into(call, part.chosen(chosen), call.topic, partition, count)

    def _fresh_pid(self) -> bytes:
        self._pids += 1
        named = self._name + self._pids.to_bytes(8, "little")
        return hashlib.blake2b(named, digest_size=PID_BYTES).digest()


class Produce(Call):
    """Entries that are being produced: done when all of them are."""

    __slots__ = ("_boxes", "_error", "_one", "_pid", "_runs", "partition", "parts", "topic")

    def __init__(self, boxes: Outboxes, topic: str, partition: int | None, *, one: bool) -> None:
        self.done = False
        self.value = self.error = self.on_done = None
        self.topic, self.partition = topic, partition
        self.parts: dict[Part, Outbox] = {}  # that have no answer yet
        self._boxes, self._one = boxes, one
        self._pid = b""  # that produced the last part
        self._runs: list[Run] = []
        self._error: DuckrowError | None = None

    def numbered(self, part: Part, result: Result, offset: int, seq: int) -> None:
        outbox = self.parts.pop(part)
        self._pid = outbox.pid
        self._runs.append(run_of(outbox.topic, outbox.partition, result, len(part), offset, seq))
        self._finish_if_all()

    def failed(self, part: Part, error: DuckrowError) -> None:
        self.parts.pop(part, None)
        if self._error is None or isinstance(error, Timeout):  # a doubt is a doubt of the whole
            self._error = error
        # The rest would leave a hole: what has not gone out stays here.
        for other in [p for p, outbox in self.parts.items() if outbox.drop(p)]:
            del self.parts[other]
        self._finish_if_all()

    def rerouted(self, part: Part) -> None:
        self.parts.pop(part, None)
        if not self.done:  # else nobody wants it any more
            self._boxes.route(self, part)

    def give_up(self, error: DuckrowError) -> None:
        if not self._boxes.give_up(self):
            self._error = error
        elif self._error is None:
            certain = isinstance(error, Timeout) and not self._runs
            self._error = NoQuorum(f"{error}; nothing was written") if certain else error
        self.finish(error=self._with_count(self._error))

    def _finish_if_all(self) -> None:
        if self.parts:
            return
        if self._error is not None:
            self.finish(error=self._with_count(self._error))
        elif self._one:
            run = self._runs[0]
            self.finish(Receipt.of(run, self._pid))
        else:
            self.finish(Receipts(joined(self._runs)))

    def _with_count(self, error: DuckrowError) -> DuckrowError:
        done = sum(run.count for run in self._runs)
        if not done:
            return error
        told = f"{error} ({done:,} entries of the call were written)"
        return rebuilt(error.code, told, error.values())


class Order(Call):
    """One command of another kind."""

    __slots__ = ("_boxes", "parts")

    def __init__(self, boxes: Outboxes) -> None:
        super().__init__()
        self.parts: dict[Part, Outbox] = {}
        self._boxes = boxes

    def numbered(self, part: Part, result: Result, offset: int, seq: int) -> None:
        self.finish(result)

    def failed(self, part: Part, error: DuckrowError) -> None:
        self.finish(error=error)

    def rerouted(self, part: Part) -> None:
        self._boxes.into(self, part, "", 0, 1)

    def give_up(self, error: DuckrowError) -> None:
        if self._boxes.give_up(self) and isinstance(error, Timeout):
            error = NoQuorum(f"{error}; nothing was changed")
        self.finish(error=error)


class Stage(Order):
    """A batch without numbers, in the lane of its partition, where it stays if the topic grows."""

    __slots__ = ("make", "partition", "topic")

    def __init__(self, boxes: Outboxes, topic: str, partition: int, make: PartitionedMaker) -> None:
        super().__init__(boxes)
        self.topic, self.partition, self.make = topic, partition, make

    def rerouted(self, part: Part) -> None:
        self.parts.pop(part, None)
        if not self.done:
            self._boxes.put_stage(self, self._boxes.partitions(self.topic))
