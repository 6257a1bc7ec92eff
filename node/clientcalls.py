"""What a client waits for: one object for each request, done once, with a value or an error.

A shell (blocking, trio, asyncio) hangs its own way of waking somebody on `on_done`.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, Final, NamedTuple

from . import cbor
from .commands import PID_BYTES
from .effects import Code, Reason, Result
from .errors import Corrupt, DuckrowError, Refused

_WAITING: Final = int(Code.WAITING)


class Call:
    """One request of a user."""

    __slots__ = ("done", "error", "on_done", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: Any = None
        self.error: DuckrowError | None = None
        self.on_done: Callable[[], None] | None = None

    def result(self) -> Any:
        """
        Raises:
            DuckrowError: what went wrong.
        """
        assert self.done, "nobody has answered yet"
        if self.error is not None:
            raise self.error
        return self.value

    def give_up(self, error: DuckrowError) -> None:
        """Whoever waited does not any more."""
        self.finish(error=error)

    def finish(self, value: Any = None, error: DuckrowError | None = None) -> None:
        if self.done:
            return
        self.done, self.value, self.error = True, value, error
        if self.on_done is not None:
            self.on_done()


class Run(NamedTuple):
    """Entries that were numbered one after the other; `number` 0: they have no numbers yet."""

    topic: str
    partition: int
    number: int
    count: int  # type: ignore[assignment]  # nobody counts in a tuple
    time: int  # microseconds since 1970
    seq: int  # of their batch in its lane
    offset: int  # of the first of them in the batch


_WHERE: Final = "which is what `duckrow produce --wait accepted` prints, or `Receipt.text`"


class ReceiptName(NamedTuple):
    """What an accepted entry can be asked for by, at any time, by anybody."""

    topic: str
    partition: int
    pid: bytes
    epoch: int
    seq: int
    offset: int

    def __str__(self) -> str:
        return urlsafe_b64encode(cbor.dumps(list(self))).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> ReceiptName:
        """
        Raises:
            Refused: no receipt was ever written so.
        """
        try:
            fields = cbor.loads_array(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        except (NotBase64, ValueError, Corrupt) as error:
            raise Refused(f"{text!r:.60} is not a receipt, {_WHERE}", receipt=text[:60]) from error
        match fields:
            case [str(), int(), bytes(pid), int(), int(), int()] if len(pid) == PID_BYTES:
                return cls(*fields)
        raise Refused(f"{text!r:.60} is not a receipt, {_WHERE}", receipt=text[:60])


class Receipt:
    """One entry that was produced; `number` is None as long as it is only accepted.

    Its text names the entry for ever: `duckrow receipt TEXT`, or `Client.receipt(text)`.
    """

    __slots__ = ("ask", "name", "number", "time")

    def __init__(self, name: ReceiptName, number: int | None, time: int | None) -> None:
        self.name = name
        self.number = number
        self.time = time  # microseconds since 1970
        self.ask: Callable[[Receipt], Any] | None = None  # of the client that it came from

    @classmethod
    def of(cls, run: Run, pid: bytes) -> Receipt:
        """Of the only entry of a run."""
        topic, partition, number, _, time, seq, offset = run
        name: ReceiptName = tuple.__new__(ReceiptName, (topic, partition, pid, 0, seq, offset))
        return cls(name, number or None, time or None)

    @property
    def topic(self) -> str:
        return self.name.topic

    @property
    def partition(self) -> int:
        return self.name.partition

    def ordered(self) -> Any:
        """Waits until the entry has its number; the receipt with it.  To be awaited where the
        client is.

        Raises:
            DuckrowError: it was refused after all; says why.
        """
        assert self.ask is not None, "this receipt came without a client"
        return self.ask(self)

    def __str__(self) -> str:
        return str(self.name)

    def __repr__(self) -> str:
        return f"<Receipt {self.topic}/{self.partition} {self.number or 'accepted'}>"


class Receipts:
    """Entries that were produced together: runs of numbers, usually one."""

    __slots__ = ("runs",)

    def __init__(self, runs: list[Run]) -> None:
        self.runs = runs

    def __len__(self) -> int:
        return sum(run.count for run in self.runs)

    @property
    def count(self) -> int:
        """How many entries there are."""
        return len(self)

    @property
    def first(self) -> int:
        """The number of the first entry.

        Raises:
            Refused: the numbers are several runs, or none: see `runs`.
        """
        return self._only().number

    @property
    def last(self) -> int:
        """As `first`."""
        run = self._only()
        return run.number + run.count - 1

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        """Topic, partition and number of each entry; 0 as long as it is only accepted."""
        for topic, partition, first, count, *_ in self.runs:
            numbers = range(first, first + count) if first else repeat(0, count)
            for number in numbers:
                yield topic, partition, number

    def __repr__(self) -> str:
        spans = ", ".join(f"{r.topic}/{r.partition} {r.number}+{r.count}" for r in self.runs)
        return f"<Receipts {spans}>"

    def _only(self) -> Run:
        if len(self.runs) != 1:
            text = f"these entries are in {len(self.runs)} runs of numbers: look at .runs"
            raise Refused(text, runs=len(self.runs))
        return self.runs[0]


def run_of(topic: str, partition: int, result: Result, count: int, offset: int, seq: int) -> Run:
    number = 0 if result.code == _WAITING or not result.first else result.first + offset
    if result.reason == Reason.ELSEWHERE:  # an entry that was known by its id
        partition = result.detail
    run: Run = tuple.__new__(  # past its constructor, see commands.py
        Run, (topic, partition, number, count, result.time, seq, offset)
    )
    return run


def joined(runs: list[Run]) -> list[Run]:
    """Neighbours made one, where one batch's numbers follow the other's."""
    found: list[Run] = []
    for run in runs:
        before = found[-1] if found else None
        if (
            before is not None
            and before.number
            and before[:2] == run[:2]
            and before.number + before.count == run.number
        ):
            found[-1] = before._replace(count=before.count + run.count)
        else:
            found.append(run)
    return found
