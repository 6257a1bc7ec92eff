"""The outbox of one lane of a client: entries gather, batches go out, and each gets one answer.

    put ─► waiting ─► [batch, seq 7] ─► on its way ─► answered: its parts are told
              ▲          gathers while the lane has   │
              │          one under way                ├─ GAP, or the connection broke: the same again
              └────────── returned ◄──────────────────┘  ROUTING_CHANGED, UNKNOWN_PRODUCER: as new

No I/O, no clock.  A *part* is what one call has put in one lane; several parts share a batch.

A seq stands for one body for ever.  Where it was certainly not written (the door was shut), a skip
goes in its place before anything later does, so that the lane never stands still.  Nothing new
goes out while older batches have to go again, so entries keep the order in which they were put.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from . import columns, makers
from .columns import HeadersLike
from .commands import Command
from .effects import Code, Reason, Result, explain
from .errors import Conflict, DuckrowError, Exists, Full, NotFound, Refused, Timeout
from .limits import (
    BATCH_BYTES_MAX,
    BATCH_ENTRIES_MAX,
    IDS_PER_BATCH_MAX,
    KEYED_ENTRIES_MAX,
    MIB,
)

BATCH_BYTES: Final = 1 * MIB  # of a batch that is full: more in one would not be faster
_ENTRY_BYTES: Final = 8  # what an entry costs besides its bytes, about
_BATCHES_OUT: Final = 8  # full ones of a lane, on their way

_WAITING: Final = int(Code.WAITING)
_ORDERED: Final = int(Code.ORDERED)
_GAP: Final = int(Code.GAP)
_UNKNOWN: Final = int(Code.UNKNOWN_PRODUCER)
_GOOD: Final = (_ORDERED, _WAITING, int(Code.STAGED))

_ERRORS: Final[dict[int, type[DuckrowError]]] = {
    Code.FULL: Full,
    Code.NOT_FOUND: NotFound,
    Code.REFUSED: Refused,
    Code.EXISTS: Exists,
    Code.FORGOTTEN: Timeout,
}


class Asker(Protocol):
    """Who put entries, and waits for what becomes of them."""

    def numbered(self, part: Part, result: Result, offset: int, seq: int) -> None: ...
    def failed(self, part: Part, error: DuckrowError) -> None: ...
    def rerouted(self, part: Part, partitions: int) -> None: ...


Maker = Callable[[makers.Turn], Command]


class Part:
    """Entries that one call puts in one lane; it fits one batch.  Or one command of another kind."""

    __slots__ = (
        "accepted",
        "asker",
        "expect_last",
        "headers",
        "ids",
        "keys",
        "make",
        "size",
        "values",
    )

    def __init__(
        self,
        asker: Asker,
        values: Sequence[bytes] = (),
        *,
        make: Maker | None = None,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[HeadersLike] | None = None,
        ids: Sequence[bytes] | None = None,
        expect_last: int | None = None,
        accepted: bool = False,
        size: int = 0,
    ) -> None:
        self.make = make
        self.asker, self.values, self.keys, self.headers = asker, values, keys, headers
        self.ids, self.expect_last, self.accepted = ids, expect_last, accepted
        self.size = size  # in bytes, about

    def __len__(self) -> int:
        return len(self.values)


class Sent:
    """A batch with its seq, or a skip in its place."""

    __slots__ = ("again", "command", "parts", "seq", "size")

    def __init__(self, seq: int, command: Command, parts: list[Part]) -> None:
        self.seq, self.command, self.parts = seq, command, parts
        self.size = len(command.body)
        self.again = False  # it was sent before: an earlier copy may have been applied

    @property
    def accepted(self) -> bool:
        return bool(self.parts) and self.parts[0].accepted


class Outbox:
    def __init__(self, pid: bytes, topic: str, partition: int, *, partitions: int = 1) -> None:
        self.topic, self.partition = topic, partition
        self.partitions = partitions  # how many the topic has, as far as we know
        self._pid = pid
        self._last = 0  # seq of the last batch
        self._waiting: deque[Part] = deque()
        self._out: dict[int, Sent] = {}  # on their way, by seq
        self._again: dict[int, Sent] = {}  # to be sent again
        self._stopped: dict[int, bool] = {}  # seqs that never came; True: their skip is on its way
        self._returned: list[tuple[Part, int]] = []  # to be put anew, and the partitions there are
        self._keeps = False  # receipts were given: their results are to be kept

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._out or self._again or self._returned)

    @property
    def waiting_bytes(self) -> int:
        return sum(part.size for part in self._waiting)

    def put(self, part: Part) -> None:
        self._waiting.append(part)

    def drop(self, part: Part) -> bool:
        """True: it had not been sent, and never will be."""
        try:
            self._waiting.remove(part)
        except ValueError:
            return False
        return True

    def give_up(self, part: Part) -> None:
        """Whoever waited for it does not any more: what can still be stopped is stopped."""
        for sent in (*self._out.values(), *self._again.values()):
            if sent.parts == [part] and sent.seq not in self._stopped:
                self._stopped[sent.seq] = False

    def next(self, now_us: int) -> Sent | None:
        """What to send next; None: nothing now."""
        for seq, sent in self._stopped.items():
            if not sent and seq not in self._again:
                self._stopped[seq] = True
                turn = makers.Turn(self._pid, seq, done=self._done(), time=now_us)
                return Sent(seq, makers.skip(turn, self.topic, self.partition), [])
        if self._again:
            found = self._again.pop(min(self._again))
            self._out[found.seq] = found
            return found
        if self._stopped or self._returned or not self._may_send():
            return None
        return self._batch(now_us)

    def answered(self, sent: Sent, result: Result) -> None:
        """What became of it."""
        if not sent.parts:
            self._stopped.pop(sent.seq, None)
            return
        code = result.code
        if self._out.get(sent.seq) is not sent:
            return  # it was asked for again meanwhile, and that answer counts
        if code == _WAITING:
            if sent.accepted:
                self._tell(sent, result)
                sent.parts = []
            return
        del self._out[sent.seq]
        if code == _GAP:
            self._gap(sent, result)
        elif code == _UNKNOWN:
            self._unknown(sent, result)
        elif result.reason == Reason.ROUTING_CHANGED:
            self._returned += [(part, result.detail) for part in sent.parts]
            self._restore()
        else:
            self._stopped.pop(sent.seq, None)
            self._tell(sent, result)
            self._restore()

    def refused(self, sent: Sent, error: DuckrowError) -> None:
        """The door was shut: certainly not written."""
        if not sent.parts:
            self._stopped[sent.seq] = False  # the skip has to come some time
            return
        if self._out.get(sent.seq) is not sent:
            return
        del self._out[sent.seq]
        self._stopped[sent.seq] = False
        if sent.again:
            # An earlier copy may be there: only the skip will tell.
            error = Timeout(f"it may or may not have been written: {error}")
        for part in sent.parts:
            part.asker.failed(part, error)
        self._restore()

    def lost(self) -> None:
        """The connection broke: what has no answer goes again, in its order."""
        for seq, sent in self._out.items():
            sent.again = True
            self._again[seq] = sent
        self._out.clear()
        self._stopped = dict.fromkeys(self._stopped, False)

    def fail(self, error: DuckrowError) -> None:
        """The end: nobody will send anything of this any more."""
        for part in self._parts():
            part.asker.failed(part, error)
        for table in (self._waiting, self._out, self._again, self._returned, self._stopped):
            table.clear()

    # -- batches --------------------------------------------------------------------------------

    def _may_send(self) -> bool:
        """One at a time, so that the next gathers; full ones need not wait."""
        if not self._waiting:
            return False
        if not self._out:
            return True
        return len(self._out) < _BATCHES_OUT and self._is_full()

    def _is_full(self) -> bool:
        size = count = 0
        for part in self._waiting:
            size += part.size
            count += len(part)
            if size >= BATCH_BYTES // 2 or count >= KEYED_ENTRIES_MAX // 2:
                return True
        return False

    def _batch(self, now_us: int) -> Sent:
        parts = self._gathered()
        first = parts[0]
        self._keeps |= first.accepted
        seq = self._last + 1
        turn = makers.Turn(self._pid, seq, done=self._done(), time=now_us)
        command = self._joined(parts, turn) if first.make is None else first.make(turn)
        self._last = seq
        sent = self._out[seq] = Sent(seq, command, parts)
        return sent

    def _joined(self, parts: list[Part], turn: makers.Turn) -> Command:
        first = parts[0]
        if len(parts) == 1:
            values, keys, headers, ids = first.values, first.keys, first.headers, first.ids
        else:
            values = [value for part in parts for value in part.values]
            keys = _joined([part.keys for part in parts], parts)
            headers = _joined_headers(parts)
            ids = None if first.ids is None else [i for part in parts for i in part.ids or ()]
        body = columns.encode(values, keys=keys, headers=headers)
        return makers.produce(
            turn,
            self.topic,
            body,
            len(values),
            partition=self.partition,
            partitions=self.partitions,
            key_hashes=None if keys is None else columns.key_hashes(keys),
            ids=ids,
            expect_last=first.expect_last,
        )

    def _gathered(self) -> list[Part]:
        """Parts that can share a batch, from the oldest on."""
        waiting = self._waiting
        parts = [waiting.popleft()]
        first = parts[0]
        if first.expect_last is not None or first.make is not None:
            return parts
        size, count = first.size, len(first)
        keyed = first.keys is not None
        while waiting:
            part = waiting[0]
            size += part.size
            count += len(part)
            keyed |= part.keys is not None
            if (
                part.expect_last is not None
                or part.make is not None
                or part.accepted != first.accepted
                or (part.ids is None) != (first.ids is None)
                or size > BATCH_BYTES
                or count > entries_max(keyed=keyed, ids=part.ids is not None)
            ):
                break
            parts.append(waiting.popleft())
        return parts

    def _done(self) -> int:
        """Up to here all answers have come."""
        if self._keeps:
            return 0
        lowest = self._last + 1
        for table in (self._out, self._again, self._stopped):
            if table:
                lowest = min(lowest, min(table))
        return lowest - 1

    # -- answers --------------------------------------------------------------------------------

    def _tell(self, sent: Sent, result: Result) -> None:
        if result.code in _GOOD:
            offset = 0
            for part in sent.parts:
                part.asker.numbered(part, result, offset, sent.seq)
                offset += len(part)
            return
        error = error_of(result, f"topic {self.topic!r}")
        for part in sent.parts:
            part.asker.failed(part, error)

    def _gap(self, sent: Sent, result: Result) -> None:
        missing = result.detail
        if missing in self._stopped or missing in self._again or missing in self._out:
            self._again[sent.seq] = sent
            return
        # All answers up to there have come: the row has forgotten what it answered.
        error = Conflict(
            f"topic {self.topic!r}: the node asks for seq {missing} of this producer, which it has "
            "answered before: its row is another one now"
        )
        self._stopped.pop(sent.seq, None)
        for part in sent.parts:
            part.asker.failed(part, error)

    def _unknown(self, sent: Sent, result: Result) -> None:
        """The lane went: with its topic, or as the one that was used longest ago."""
        if sent.again:
            error = Timeout(
                f"topic {self.topic!r}: whether it was written is not known: {explain(result)}"
            )
            for part in sent.parts:
                part.asker.failed(part, error)
        else:
            self._returned += [(part, self.partitions) for part in sent.parts]
        self._stopped.clear()
        if not self._out and not self._again:
            self._last = 0
        self._restore()

    def _restore(self) -> None:
        """What came back is put anew once nothing is on its way, so that the order stays."""
        if self._out or self._again or not self._returned:
            return
        returned, self._returned = self._returned, []
        later, self._waiting = self._waiting, deque()
        count = max(partitions for _, partitions in returned)
        self.partitions = count
        for part in (*(part for part, _ in returned), *later):
            part.asker.rerouted(part, count)

    def _parts(self) -> Iterator[Part]:
        for sent in (*self._out.values(), *self._again.values()):
            yield from sent.parts
        yield from (part for part, _ in self._returned)
        yield from self._waiting


def entries_max(*, keyed: bool = False, ids: bool = False) -> int:
    """How many entries a batch can have."""
    if ids:
        return IDS_PER_BATCH_MAX
    return KEYED_ENTRIES_MAX if keyed else BATCH_ENTRIES_MAX


def size_of(values: Sequence[bytes]) -> int:
    """In bytes, about."""
    return sum(map(len, values)) + _ENTRY_BYTES * len(values)


def error_of(result: Result, what: str) -> DuckrowError:
    """The exception for a result that is no success."""
    text = f"{what}: {explain(result)}"
    if result.code == Code.REFUSED and result.reason == Reason.NONE:
        return Refused(text)
    return _ERRORS.get(result.code, Conflict)(text)


def _joined(
    columns_: Sequence[Sequence[bytes | None] | None], parts: Sequence[Part]
) -> list[bytes | None] | None:
    if all(column is None for column in columns_):
        return None
    joined: list[bytes | None] = []
    for column, part in zip(columns_, parts, strict=True):
        joined += [None] * len(part) if column is None else column
    return joined


def _joined_headers(parts: Sequence[Part]) -> list[HeadersLike] | None:
    if all(part.headers is None for part in parts):
        return None
    joined: list[HeadersLike] = []
    for part in parts:
        joined += [()] * len(part) if part.headers is None else part.headers
    return joined


assert BATCH_BYTES <= BATCH_BYTES_MAX
