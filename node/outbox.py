"""The outbox of one lane of a client: entries gather, batches go out, and each gets one answer.

    put ─► waiting ─► slot 7: READY ─► OUT ─► answered: its parts are told
              ▲                 ▲       │ ╲
              │                 └───────┤  ╰► PARKED: the batch waits in the row, for room
              └── returned ◄────────────┤
                  ROUTING_CHANGED,      GAP, NoQuorum, the connection broke: the same again,
                  the lane is gone      and before it what was accepted, and is not ordered yet

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
from .effects import Code, Reason, Result
from .errors import Disconnected, DuckrowError, Full, NoQuorum, Timeout
from .limits import KEYED_ENTRIES_MAX, LANE_RESULTS_MAX
from .outcomes import doubt_about, error_of, topic_of
from .parts import BATCH_BYTES, Part
from .slots import OUT, PARKED, READY, Sent, Slot, Slots

BATCHES_OUT: Final = 8  # full ones, on their way
PARKED_MAX: Final = 32  # then the client keeps what comes; the row would refuse it
HOLD_SECONDS: Final = 0.1  # before a refused skip goes again
HOLD_SECONDS_MAX: Final = 1.0

_WAITING: Final = int(Code.WAITING)
_GAP: Final = int(Code.GAP)
_UNKNOWN: Final = int(Code.UNKNOWN_PRODUCER)
_WITHDRAWN: Final = int(Code.WITHDRAWN)
_GOOD: Final = (int(Code.ORDERED), int(Code.STAGED))


class Waiting:
    """Of all lanes of a client together."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0  # of entries that are in no batch yet, about


class Outbox:
    def __init__(
        self,
        pid: bytes,
        topic: str,
        partition: int,
        *,
        partitions: int = 1,
        together: Waiting | None = None,
    ) -> None:
        self._together = together or Waiting()
        self.pid, self.topic, self.partition = pid, topic, partition
        self.partitions = partitions  # how many the topic has, as far as we know
        self.waiting_bytes = 0
        self.holds = False  # no new batches: parts are about to move to other lanes
        self.is_gone = False  # the row does not know the lane any more
        self.told_partitions: int | None = None  # by the last ROUTING_CHANGED
        self._slots = Slots()
        self._waiting: deque[Part] = deque()
        self._waiting_entries = 0
        self._returned: list[Part] = []  # to be put anew
        self._keeps = False  # receipts were given: their results are to be kept

    @property
    def is_idle(self) -> bool:
        """Nobody waits for anything."""
        return not (self._waiting or self._slots.open or self._returned)

    @property
    def is_over(self) -> bool:
        """All that was ever put is decided; what comes next may begin in another lane."""
        return self.is_idle and self._slots.are_over and not (self.holds or self.is_gone)

    @property
    def may_have_more(self) -> bool:
        """Something to send, perhaps: one batch that is out by itself is nothing."""
        slots = self._slots.open
        if self._waiting or len(slots) > 1:
            return True
        for slot in slots.values():
            return slot.state == READY
        return False

    @property
    def is_settled(self) -> bool:
        """Nothing is on its way, or has to go again."""
        return all(slot.state == PARKED for slot in self._slots)

    @property
    def has_returned(self) -> bool:
        """Parts have to be put anew, once the lane is settled."""
        return bool(self._returned) or self.is_gone

    def put(self, part: Part) -> None:
        self._waiting.append(part)
        self._count(part.size, len(part))

    def give_up(self, part: Part) -> bool:
        """Nobody waits for it any more: what can be stopped is stopped.  True: it certainly was not
        written, and will not be.
        """
        if self.drop(part):
            return True
        for slot in self._slots:
            if slot.parts == [part]:
                slot.again |= slot.state != READY
                slot.state = READY
                slot.stop = slot.stop or Timeout("it was given up")
                if self.is_gone:
                    self._missed_all()  # it cannot be asked for there, and the others wait for it
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
        self._count(-part.size, -len(part))
        return True

    def next(self, now_us: int) -> Sent | None:
        """What to send next; None: nothing now."""
        if self.is_gone:
            return None
        out = parked = 0
        for slot in self._slots.open.values():
            if slot.state == READY:
                newest = self._slots.newest
                if slot.is_unused and newest is not None and newest.state == OUT:
                    return None  # if that is refused as well, neither needs a skip
                return self._go(slot, now_us)
            parked += slot.state == PARKED
            out += slot.state == OUT
        if self.holds or self._returned or not self._waiting or parked >= PARKED_MAX:
            return None
        if self._slots.last - self._slots.first >= LANE_RESULTS_MAX - 1:
            return None  # the row would forget the answer to the oldest, which may be asked again
        # One at a time, so that the next gathers; what would gather no more need not wait.
        if out and not (out < BATCHES_OUT and self._is_full()):
            return None
        return self._go(self._batch(now_us), now_us)

    # -- what came of it --------------------------------------------------------------------------

    def answered(self, sent: Sent, result: Result) -> None:
        slot, code = sent.slot, result.code
        if slot not in self._slots:
            return  # another copy told
        if code == _WAITING:
            if sent.accepted:
                self._numbered(slot, result)
                self._slots.keep(slot, sent)
            elif slot.newest is sent:
                slot.state = PARKED
        elif code in (_GAP, _UNKNOWN):
            if slot.newest is sent:
                self._slots.reopen(slot.seq)
                slot.state = READY
                self._missed(slot, result)
        elif code in _GOOD:
            self._slots.settle(slot)
            self._numbered(slot, result)
        elif result.reason == Reason.ROUTING_CHANGED:
            self.told_partitions = result.detail
            self._return(slot)
        elif self._was_judged_together(slot, result):
            self._slots.settle(slot)
            for part in reversed(slot.parts):
                part.alone = True
                self._put_first(part)
        else:
            self._slots.settle(slot)
            error = slot.stop if code == _WITHDRAWN else None
            self._failed(slot, error or error_of(result, topic_of(sent.command)))

    def refused(self, sent: Sent, error: DuckrowError) -> float:
        """The node would not take it.  In so many seconds it may be asked again."""
        slot = sent.slot
        if slot not in self._slots or slot.newest is not sent:
            return 0.0
        self._slots.reopen(slot.seq)
        slot.state = READY
        pause = 0.0
        if isinstance(error, NoQuorum):
            pause = min(max(error.retry_after, HOLD_SECONDS), HOLD_SECONDS_MAX)
        elif isinstance(error, Timeout | Disconnected):
            slot.again = True  # it had been taken
            pause = HOLD_SECONDS
        elif sent.is_skip or slot.is_told:
            pause = HOLD_SECONDS
            if isinstance(error, Full):  # nothing behind it will be taken either
                for part in self.take_unsent():
                    part.asker.failed(part, error)
        else:
            slot.stop = error
            if not slot.again:
                self._failed(slot, error)
                slot.parts = []
                # Skips in their places would fill a full disk further, and have to wait for it.
                self._slots.take_back()
        if self.is_gone:
            self._missed_all()
        return pause

    def let_go(self, sent: Sent) -> None:
        """Of what was accepted, this is kept no longer."""
        self._slots.let_go(sent.slot)

    def lost(self) -> None:
        """The connection broke: what has no answer goes again, in its order, and what was accepted
        there, since the next one may be to another machine.
        """
        self._slots.reopen(0)
        for slot in self._slots:
            slot.again |= slot.state != READY
            slot.state = READY
            slot.newest = None
        if self.is_gone:
            self._missed_all()

    def forsake(self) -> None:
        """The row is another one now: of what was sent nobody will know any more."""
        self._slots.forget_kept()
        self._missed_all()

    def fail(self, error: DuckrowError) -> None:
        """The end: nobody will send anything of this any more."""
        doubt = Timeout(f"whether it was written is not known: {error}")
        for slot in [*self._slots]:
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
        self._count(-self.waiting_bytes, -self._waiting_entries)
        return found

    def begin_anew(self, pid: bytes) -> None:
        """The lane is gone: another one, of another producer, so that no copy of old batches that is
        still on its way can be taken for one of the new.
        """
        assert self.is_settled, "something is on its way"
        for slot in [*self._slots]:
            self._slots.settle(slot)
            self._failed(slot, doubt_about(self.topic))
        self._slots = Slots()
        self.pid, self._keeps, self.is_gone = pid, False, False

    def _put_first(self, part: Part) -> None:
        self._waiting.appendleft(part)
        self._count(part.size, len(part))

    def _count(self, size: int, entries: int) -> None:
        """So much more waits, or less."""
        self.waiting_bytes += size
        self._together.bytes += size
        self._waiting_entries += entries

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
            self._count(-part.size, -len(part))
        self._keeps |= taken[0].accepted
        seq = self._slots.last + 1
        turn = makers.Turn(self.pid, seq, 0, self._done(), now_us)
        command = parts.command_of(taken, turn, self.topic, self.partition, self.partitions)
        slot = Slot(seq, command, taken)
        self._slots.add(slot)
        return slot

    def _go(self, slot: Slot, now_us: int) -> Sent:
        if slot.stop is None:
            sent = Sent(slot, slot.command)
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
        slots = self._slots
        return slots.first - 1 if slots.open else slots.last

    # -- answers ----------------------------------------------------------------------------------

    def _numbered(self, slot: Slot, result: Result) -> None:
        offset = 0
        for part in slot.parts:
            part.asker.numbered(part, result, offset, slot.seq)
            offset += len(part)

    def _failed(self, slot: Slot, error: DuckrowError) -> None:
        for part in slot.parts:
            part.asker.failed(part, error)

    def _return(self, slot: Slot) -> None:
        """Decided, and not written: its parts will be put anew."""
        self._slots.settle(slot)
        if slot.stop is not None:
            self._failed(slot, slot.stop)
        else:
            self._returned += slot.parts

    def _was_judged_together(self, slot: Slot, result: Result) -> bool:
        """No room for all: there may be some for each.  Not if later ones may be written first: they
        are on their way, wait for room, or were accepted, and then no slot is open for them any more.
        """
        full = result.code == Code.FULL or result.reason == Reason.TOO_LARGE
        return full and slot.stop is None and len(slot.parts) > 1 and slot.seq == self._slots.last

    def _missed(self, slot: Slot, result: Result) -> None:
        """Something before it is missing: it comes, or nobody has it any more."""
        if result.code == _UNKNOWN:
            self._slots.reopen(1)
            is_forgotten = True
        else:
            # What the row asks for was answered: since then it has forgotten the lane.
            is_forgotten = not self._slots.reopen(result.detail)
        lowest = next(each.seq for each in self._slots if each.state != PARKED)
        if not self.is_gone:
            self.is_gone = is_forgotten and slot.seq == lowest
        if self.is_gone:
            self._missed_all()

    def _missed_all(self) -> None:
        """The lane went: with its topic, or as the one that was used longest ago."""
        self.is_gone = True
        for slot in [*self._slots]:
            if slot.state != READY:
                continue
            if slot.again:
                self._slots.settle(slot)
                self._failed(slot, doubt_about(self.topic))
            else:
                self._return(slot)
