"""The outbox of one lane of a client: entries gather, batches go out, and each gets one answer.

    put ─► waiting ─► slot 7: READY ─► OUT ─► answered: its parts are told
              ▲                 ▲       │ ╲
              │                 └───────┤  ╰► PARKED: the batch waits in the row, for room
              └── returned ◄────────────┤
                  ROUTING_CHANGED,      GAP, NoQuorum, the connection broke: the same again
                  the lane is gone

No I/O, no clock.  A seq stands for one body for ever, and every seq reaches the row, or nothing
behind it would be applied: in the place of a batch that nobody wants any more goes a *skip*.  Its
answer tells what became of the seq: withdrawn, or what an earlier copy has become.  Only what the
node would not take, with nothing behind it, leaves no trace: its seq is the next one again.

Slots are sent in the order of their seqs, and nothing new while something came back, so that
entries keep the order in which they were put.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from . import makers, parts
from .commands import Command, decode_head
from .effects import Code, Reason, Result, explain
from .errors import (
    Conflict,
    Disconnected,
    DuckrowError,
    Exists,
    Full,
    NoQuorum,
    NotFound,
    Refused,
    Timeout,
)
from .limits import KEYED_ENTRIES_MAX, LANE_RESULTS_MAX
from .parts import BATCH_BYTES, Part

BATCHES_OUT: Final = 8  # full ones, on their way
PARKED_MAX: Final = 32  # then the client keeps what comes; the row would refuse it
HOLD_SECONDS: Final = 0.1  # before a refused skip goes again
HOLD_SECONDS_MAX: Final = 1.0

READY, OUT, PARKED = range(3)

_WAITING: Final = int(Code.WAITING)
_GAP: Final = int(Code.GAP)
_UNKNOWN: Final = int(Code.UNKNOWN_PRODUCER)
_WITHDRAWN: Final = int(Code.WITHDRAWN)
_GOOD: Final = (int(Code.ORDERED), int(Code.STAGED))

_ERRORS: Final[dict[int, type[DuckrowError]]] = {
    Code.FULL: Full,
    Code.NOT_FOUND: NotFound,
    Code.REFUSED: Refused,
    Code.EXISTS: Exists,
    Code.FORGOTTEN: Timeout,
}


class Slot:
    """A seq, from when its batch was made until it is known what became of it."""

    __slots__ = ("again", "command", "newest", "parts", "seq", "state", "stop")

    def __init__(self, seq: int, command: Command, parts_: list[Part]) -> None:
        self.seq, self.command, self.parts = seq, command, parts_
        self.state = READY
        self.newest: Sent | None = None  # the copy that was sent last
        self.again = False  # an earlier copy may have been applied
        self.stop: DuckrowError | None = None  # skips go, and this is told if it never came

    @property
    def is_unused(self) -> bool:
        """The node refused it, and nobody waits for it any more: its seq is in no row."""
        return self.state == READY and self.stop is not None and not (self.again or self.parts)


class Sent:
    """What goes out once: the batch of a slot, or a skip in its place."""

    __slots__ = ("command", "is_skip", "slot")

    def __init__(self, slot: Slot, command: Command, *, is_skip: bool) -> None:
        self.slot, self.command, self.is_skip = slot, command, is_skip

    @property
    def accepted(self) -> bool:
        parts_ = self.slot.parts
        return not self.is_skip and bool(parts_) and parts_[0].accepted


class Outbox:
    def __init__(self, pid: bytes, topic: str, partition: int, *, partitions: int = 1) -> None:
        self.pid, self.topic, self.partition = pid, topic, partition
        self.partitions = partitions  # how many the topic has, as far as we know
        self.waiting_bytes = 0
        self.holds = False  # no new batches: parts are about to move to other lanes
        self.is_gone = False  # the row does not know the lane any more
        self.told_partitions: int | None = None  # by the last ROUTING_CHANGED
        self._last = 0  # seq of the last batch
        self._slots: dict[int, Slot] = {}  # by seq, in ascending order
        self._waiting: deque[Part] = deque()
        self._waiting_entries = 0
        self._returned: list[Part] = []  # to be put anew
        self._keeps = False  # receipts were given: their results are to be kept

    @property
    def is_idle(self) -> bool:
        return not (self._waiting or self._slots or self._returned)

    @property
    def may_have_more(self) -> bool:
        """Something to send, perhaps: one batch that is out by itself is nothing."""
        slots = self._slots
        return (
            bool(self._waiting) or len(slots) > 1 or any(s.state == READY for s in slots.values())
        )

    @property
    def is_settled(self) -> bool:
        """Nothing is on its way, or has to go again."""
        return all(slot.state == PARKED for slot in self._slots.values())

    @property
    def has_returned(self) -> bool:
        """Parts have to be put anew, once the lane is settled."""
        return bool(self._returned) or self.is_gone

    def put(self, part: Part) -> None:
        self._waiting.append(part)
        self.waiting_bytes += part.size
        self._waiting_entries += len(part)

    def give_up(self, part: Part) -> bool:
        """Nobody waits for it any more: what can be stopped is stopped.  True: it certainly was not
        written, and will not be.
        """
        if self.drop(part):
            return True
        for slot in self._slots.values():
            if slot.parts == [part]:
                slot.again |= slot.state != READY
                slot.state = READY
                slot.stop = slot.stop or Timeout("it was given up")
                return not slot.again
        return False

    def drop(self, part: Part) -> bool:
        """True: it is in no batch yet, and never will be."""
        try:
            self._waiting.remove(part)
        except ValueError:
            if part not in self._returned:
                return False
            self._returned.remove(part)
            return True
        self.waiting_bytes -= part.size
        self._waiting_entries -= len(part)
        return True

    def next(self, now_us: int) -> Sent | None:
        """What to send next; None: nothing now."""
        if self.is_gone:
            return None
        out = parked = 0
        for slot in self._slots.values():
            if slot.state == READY:
                newest = self._slots.get(self._last)
                if slot.is_unused and newest is not None and newest.state == OUT:
                    return None  # if that is refused as well, neither needs a skip
                return self._go(slot, now_us)
            parked += slot.state == PARKED
            out += slot.state == OUT
        if self.holds or self._returned or not self._waiting or parked >= PARKED_MAX:
            return None
        if self._slots and self._last - next(iter(self._slots)) >= LANE_RESULTS_MAX - 1:
            return None  # the row would forget the answer to the oldest, which may be asked again
        # One at a time, so that the next gathers; what would gather no more need not wait.
        if out and not (out < BATCHES_OUT and self._is_full()):
            return None
        return self._go(self._batch(now_us), now_us)

    # -- what came of it --------------------------------------------------------------------------

    def answered(self, sent: Sent, result: Result) -> None:
        slot, code = sent.slot, result.code
        if self._slots.get(slot.seq) is not slot:
            return  # another copy told
        if code == _WAITING:
            if sent.accepted:
                self._numbered(slot, result)
            elif slot.newest is sent:
                slot.state = PARKED
        elif code in (_GAP, _UNKNOWN):
            if slot.newest is sent:
                slot.state = READY
                self._missed(slot, result)
        elif code in _GOOD:
            self._numbered(slot, result)
        elif result.reason == Reason.ROUTING_CHANGED:
            self.told_partitions = result.detail
            self._return(slot)
        elif self._was_judged_together(slot, result):
            self._settle(slot)
            for part in reversed(slot.parts):
                part.alone = True
                self._put_first(part)
        else:
            self._settle(slot)
            error = slot.stop if code == _WITHDRAWN else None
            self._failed(slot, error or error_of(result, _subject(sent.command)))

    def refused(self, sent: Sent, error: DuckrowError) -> float:
        """The node would not take it.  In so many seconds it may be asked again."""
        slot = sent.slot
        if self._slots.get(slot.seq) is not slot or slot.newest is not sent:
            return 0.0
        slot.state = READY
        pause = 0.0
        if isinstance(error, NoQuorum):
            pause = min(max(error.retry_after, HOLD_SECONDS), HOLD_SECONDS_MAX)
        elif isinstance(error, Timeout | Disconnected):
            slot.again = True  # it had been taken
            pause = HOLD_SECONDS
        elif sent.is_skip:
            pause = HOLD_SECONDS
            if isinstance(error, Full):  # nothing behind it will be taken either
                for part in self.take_unsent():
                    part.asker.failed(part, error)
        else:
            slot.stop = error
            if not slot.again:
                self._failed(slot, error)
                slot.parts = []
                self._take_back()
        if self.is_gone:
            self._missed_all()
        return pause

    def _take_back(self) -> None:
        """The newest seqs that are in no row are free for the next batches.

        Skips in their places would fill a full disk further, and have to wait for it.
        """
        while (newest := self._slots.get(self._last)) is not None and newest.is_unused:
            del self._slots[self._last]
            self._last -= 1

    def lost(self) -> None:
        """The connection broke: what has no answer goes again, in its order."""
        for slot in self._slots.values():
            slot.again |= slot.state != READY
            slot.state = READY
            slot.newest = None
        if self.is_gone:
            self._missed_all()

    def forsake(self) -> None:
        """The row is another one now: of what was sent nobody will know any more."""
        self._missed_all()

    def fail(self, error: DuckrowError) -> None:
        """The end: nobody will send anything of this any more."""
        doubt = Timeout(f"whether it was written is not known: {error}")
        for slot in [*self._slots.values()]:
            self._failed(slot, doubt if slot.again else error)
        self._slots.clear()
        for part in self.take_unsent():
            part.asker.failed(part, error)

    # -- moving -----------------------------------------------------------------------------------

    def take_unsent(self) -> list[Part]:
        """All that has no seq, to be put anew."""
        found = [*self._returned, *self._waiting]
        self._returned.clear()
        self._waiting.clear()
        self.waiting_bytes = self._waiting_entries = 0
        return found

    def begin_anew(self, pid: bytes) -> None:
        """The lane is gone: another one, of another producer, so that no copy of old batches that is
        still on its way can be taken for one of the new.
        """
        assert self.is_settled, "something is on its way"
        for slot in [*self._slots.values()]:
            self._settle(slot)
            self._failed(slot, _in_doubt(self.topic))
        self.pid, self._last, self._keeps, self.is_gone = pid, 0, False, False

    def _put_first(self, part: Part) -> None:
        self._waiting.appendleft(part)
        self.waiting_bytes += part.size
        self._waiting_entries += len(part)

    # -- batches ----------------------------------------------------------------------------------

    def _is_full(self) -> bool:
        return (
            self.waiting_bytes >= BATCH_BYTES // 2
            or self._waiting_entries >= KEYED_ENTRIES_MAX // 2
            or self._waiting[0].alone
        )

    def _batch(self, now_us: int) -> Slot:
        waiting = self._waiting
        taken = [waiting.popleft()]
        if waiting:
            for _ in range(parts.gathered(taken[0], waiting)):
                taken.append(waiting.popleft())
        for part in taken:
            self.waiting_bytes -= part.size
            self._waiting_entries -= len(part)
        self._keeps |= taken[0].accepted
        seq = self._last + 1
        turn = makers.Turn(self.pid, seq, 0, self._done(), now_us)
        command = parts.command_of(taken, turn, self.topic, self.partition, self.partitions)
        self._last = seq
        slot = self._slots[seq] = Slot(seq, command, taken)
        return slot

    def _go(self, slot: Slot, now_us: int) -> Sent:
        if slot.stop is None:
            sent = Sent(slot, slot.command, is_skip=False)
        else:
            turn = makers.Turn(self.pid, slot.seq, 0, self._done(), now_us)
            skip = makers.skip(turn, self.topic, self.partition)
            sent = Sent(slot, skip, is_skip=True)
        slot.state, slot.newest = OUT, sent
        return sent

    def _done(self) -> int:
        """Up to here all answers have come."""
        if self._keeps:
            return 0
        return next(iter(self._slots), self._last + 1) - 1

    # -- answers ----------------------------------------------------------------------------------

    def _settle(self, slot: Slot) -> None:
        del self._slots[slot.seq]
        slot.newest = None  # which names the slot: a ring would keep its body for the collector

    def _numbered(self, slot: Slot, result: Result) -> None:
        self._settle(slot)
        offset = 0
        for part in slot.parts:
            part.asker.numbered(part, result, offset, slot.seq)
            offset += len(part)

    def _failed(self, slot: Slot, error: DuckrowError) -> None:
        for part in slot.parts:
            part.asker.failed(part, error)

    def _return(self, slot: Slot) -> None:
        """Decided, and not written: its parts will be put anew."""
        self._settle(slot)
        if slot.stop is not None:
            self._failed(slot, slot.stop)
        else:
            self._returned += slot.parts

    def _was_judged_together(self, slot: Slot, result: Result) -> bool:
        """No room for all: there may be some for each.  Not if later ones may be written first."""
        full = result.code == Code.FULL or result.reason == Reason.TOO_LARGE
        return (
            full
            and slot.stop is None
            and len(slot.parts) > 1
            and all(other is slot or other.state == PARKED for other in self._slots.values())
        )

    def _missed(self, slot: Slot, result: Result) -> None:
        """Something before it is missing: it comes, or nobody has it any more."""
        lowest = next(s.seq for s in self._slots.values() if s.state != PARKED)
        if self.is_gone:
            self._missed_all()
        elif result.code == _UNKNOWN:
            self.is_gone = slot.seq == lowest
        else:
            # What the row asks for was answered: since then it has forgotten the lane.
            self.is_gone = result.detail not in self._slots and slot.seq == lowest
        if self.is_gone:
            self._missed_all()

    def _missed_all(self) -> None:
        """The lane went: with its topic, or as the one that was used longest ago."""
        self.is_gone = True
        for slot in [*self._slots.values()]:
            if slot.state != READY:
                continue
            if slot.again:
                self._settle(slot)
                self._failed(slot, _in_doubt(self.topic))
            else:
                self._return(slot)


def _subject(command: Command) -> str:
    """What a command is about; one that makes or changes a topic has its name inside."""
    head = decode_head(command.head)
    name = head.topic or next((each for each in head.extra[:1] if isinstance(each, str)), "")
    return f"topic {name!r}" if name else "the command"


def error_of(result: Result, what: str) -> DuckrowError:
    """The exception for a result that is no success."""
    kind = _ERRORS.get(result.code, Conflict)
    if result.reason == Reason.BAD_PARTITION:
        kind = NotFound
    return kind(f"{what}: {explain(result)}")


def _in_doubt(topic: str) -> DuckrowError:
    return Timeout(
        f"topic {topic!r}: whether it was written is not known: the connection broke, and since then "
        "the node has forgotten this producer, or has another row, or lacks what another machine accepted"
    )
