"""The order of each partition, from all that was seen of it, and what contradicts it.

For every partition a `Line` gathers cells: number n holds value v.  Most of what is seen is
already known, so ranges are compared as slices; only new or contradicting cells are looked at one
by one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import Any

from .history import FAIL, INFO, OK, Content, History, Key, Produce, Pull, Report, Value

SPARE = 1024  # cells beyond the last possible number, to name what is wrong there


class Line:
    """What is known of one partition."""

    def __init__(self, key: Key, history: History, report: Report) -> None:
        self.key, self.report = key, report
        self.name = f"{key[0]}/{key[1]}"
        self.produces: list[Produce] = []
        self.pulls: list[Pull] = []
        self.finals: dict[str, Content] = {}
        self.order: list[Value | None] = []  # order[n - 1] = value of number n
        self.numbers: dict[Value, int] = {}
        self.sources: dict[Value, Produce] = {}
        self.read = bytearray()  # read[n - 1]: a pull showed it
        self.began: list[float] = []  # began[n - 1]: of its produce; 0 where unknown
        self.stamped: list[float] = []  # likewise: when it got its time
        self._losses = history.losses
        self._broken = history.broken < inf
        self._forgetful = history.forgetful
        self._told = history.told.get(key, [])
        self._known: dict[Value, float] = {}  # when it was first acknowledged or read

    @property
    def last_final(self) -> int:
        return max((content.last for content in self.finals.values()), default=0)

    @property
    def first_final(self) -> int:
        return min((content.first for content in self.finals.values()), default=1)

    @property
    def _first_of_all(self) -> int:
        """What is retained anywhere begins here at the latest."""
        return max((content.first for content in self.finals.values()), default=1)

    @property
    def has_excuse(self) -> bool:
        """Something that was there may be gone, and nobody is to blame."""
        return bool(self._losses or self._told or self._broken)

    def build(self) -> None:
        for produce in self.produces:
            for value in produce.values:
                assert value not in self.sources, f"{value!r} was produced twice by the workload"
                self.sources[value] = produce
        possible = len(self.sources) + sum(len(p.values) for p in self.produces if p.may_repeat)
        self.order = [None] * (possible + SPARE)
        self.read = bytearray(possible + SPARE)
        if self._losses:
            self._learn_times()
        for node, content in self.finals.items():
            if content.numbers is not None:
                self._check_hole(node, content)
            self._see(content.first, content.values, f"in the end at {node}", read=True)
        for produce in self.produces:
            if produce.outcome == OK and produce.first:
                text = f"acknowledged to {produce.process}"
                self._see(produce.first, produce.values, text, read=False)
        for pull in self.pulls:
            self._see_rows(pull)
        beyond = [value for value in self.order[possible:] if value is not None]
        if beyond:
            text = f"{self.name}: {possible} values were produced, and {beyond[:5]} are beyond"
            self.report.add("number-too-high", text)
        sources = self.sources
        self.began = [
            0.0 if v is None or v not in sources else sources[v].began for v in self.order
        ]
        self.stamped = [
            began if v is None or v not in sources or (at := sources[v].stamped) is None else at
            for v, began in zip(self.order, self.began, strict=True)
        ]

    def may_have_vanished(self, value: Value) -> bool:
        return self._is_lost(self._known.get(value, inf))

    def _is_lost(self, ended: float) -> bool:
        """A loss may have taken what was answered then: of a refusal, too."""
        return any(loss.since < ended <= loss.at for loss in self._losses)

    def is_told(self, number: int) -> bool:
        """Said to be damaged: to a reader, in the end, or with all that lay beyond the row's end."""
        return (self._broken and number > self.last_final) or any(
            first <= number <= last for first, last in self._told
        )

    def check(self) -> None:
        for pull in self.pulls:
            if pull.outcome == OK:
                self._check_pull(pull)
        self._check_batches()
        self._check_lost()
        self._check_accepted()
        self._check_lanes()
        self._check_real_time()
        self._check_converged()

    # -- seeing ---------------------------------------------------------------------------

    def _see_rows(self, pull: Pull) -> None:
        """Rows need not be one range; if they are, they are seen as one."""
        numbers, values = pull.numbers, pull.values
        assert len(numbers) == len(values)
        if not numbers:
            return
        if _is_range(numbers):
            self._see(numbers[0], values, pull, read=True)
        else:
            for number, value in zip(numbers, values, strict=True):
                self._see(number, [value], pull, read=True)

    def _see(self, first: int, values: Sequence[Value], who: Any, *, read: bool) -> None:
        order, start, end = self.order, first - 1, first - 1 + len(values)
        if start < 0 or end > len(order):
            self._say_too_high(first, values, who)
            values = values[max(0, -start) : max(0, len(order) - start)]
            start, end = max(0, start), min(end, len(order))
            if end <= start:
                return
        if order[start:end] != (values if type(values) is list else list(values)):
            for number, value in enumerate(values, start + 1):
                self._see_cell(number, value, who, read)
        if read:
            self.read[start:end] = b"\1" * (end - start)

    def _see_cell(self, number: int, value: Value, who: Any, read: bool) -> None:
        old = self.order[number - 1]
        if old == value:
            return
        if value is None:
            self._told.append((number, number))
            return
        if read:
            self._check_source(number, value, who)
        if old is not None:
            vanished = self.may_have_vanished(old)
            if vanished and not self.may_have_vanished(value):
                if self.numbers.get(old) == number:  # it is gone, and its number was given again
                    del self.numbers[old]
            else:
                if not (vanished or self.may_have_vanished(value)):
                    text = f"{self.name} {number} is {old!r}, and {value!r} {_name(who)}"
                    self.report.add("divergent", text)
                return
        self.order[number - 1] = value
        other = self.numbers.setdefault(value, number)
        may_repeat = value in self.sources and self.sources[value].may_repeat
        if other != number and not (may_repeat or self.may_have_vanished(value)):
            text = f"{self.name}: {value!r} has numbers {other} and {number} ({_name(who)})"
            self.report.add("duplicate", text)

    def _check_source(self, number: int, value: Value, who: Any) -> None:
        source = self.sources.get(value)
        if source is None:
            text = f"{self.name} {number}: {value!r} was never produced, seen {_name(who)}"
            self.report.add("phantom", text)
        elif source.outcome == FAIL and not self._is_lost(source.ended):
            text = f"{self.name} {number}: {value!r} was refused, and seen {_name(who)}"
            self.report.add("refused-yet-read", text)

    def _say_too_high(self, first: int, values: Sequence[Value], who: Any) -> None:
        text = f"{self.name}: numbers {first} to {first + len(values) - 1} {_name(who)}, "
        self.report.add("number-too-high", text + f"{len(self.sources)} were ever produced")
        for number, value in enumerate(values, first):
            if value not in self.sources:
                self._check_source(number, value, who)

    def _learn_times(self) -> None:
        known = self._known
        for produce in self.produces:
            if produce.outcome == OK:
                for value in produce.values:
                    known[value] = produce.ended
        for pull in self.pulls:
            for value in pull.values:
                if pull.ended < known.get(value, inf):
                    known[value] = pull.ended

    # -- checking -------------------------------------------------------------------------

    def _check_pull(self, pull: Pull) -> None:
        numbers, who = pull.numbers, _name(pull)
        expected = pull.after + 1 + pull.missing
        if numbers:
            gap = numbers[0] - pull.after - 1
            if gap < 0:
                text = f"{self.name} {who}: {numbers[0]} after {pull.after}"
                self.report.add("poll-nonmonotonic", text)
            elif gap and not pull.missing:
                self.report.add("poll-skip", f"{self.name} {who}: {numbers[0]} after {pull.after}")
            elif numbers[0] != expected:
                text = f"{self.name} {who}: {pull.missing} missing said, {gap} are"
                self.report.add("wrong-missing", text)
            if len(numbers) > pull.limit:
                text = f"{self.name} {who}: {len(numbers)} entries, of {pull.limit}"
                self.report.add("too-many", text)
            if not _is_range(numbers):
                self._check_steps(numbers, who)
            self._check_future(pull)
        reached = numbers[-1] if numbers else expected - 1
        if pull.at_least > reached and len(numbers) < pull.limit:
            text = f"{self.name} {who}: {pull.at_least} existed, shown up to {reached}"
            if not self._gone_by_loss(pull.at_least):
                self.report.add("stale-read", text)

    def _check_steps(self, numbers: Sequence[int], who: str) -> None:
        for one, two in pairwise(numbers):
            if two > one + 1:
                self.report.add("poll-skip", f"{self.name} {who}: {two} after {one}")
            elif two <= one:
                self.report.add("poll-nonmonotonic", f"{self.name} {who}: {two} after {one}")

    def _check_future(self, pull: Pull) -> None:
        low, high = max(0, min(pull.numbers) - 1), max(pull.numbers)
        if max(self.began[low:high], default=0.0) <= pull.ended:
            return
        for number, value in zip(pull.numbers, pull.values, strict=True):
            source = self.sources.get(value)
            if source is not None and source.began > pull.ended:
                text = f"{self.name} {number}: {value!r} was read before it was produced"
                self.report.add("future-read", text)

    def _gone_by_loss(self, number: int) -> bool:
        value = self.order[number - 1] if 0 < number <= len(self.order) else None
        return bool(self._losses) and (value is None or self.may_have_vanished(value))

    def _check_batches(self) -> None:
        numbers, retained, last = self.numbers, self.first_final, self.last_final
        for produce in self.produces:
            if len(produce.values) < 2 or produce.may_repeat:
                continue
            found = [numbers.get(value, 0) for value in produce.values]
            known = [(index, number) for index, number in enumerate(found) if number]
            if not known:
                continue
            first = known[0][1] - known[0][0]
            torn = any(number != first + index for index, number in known)
            # What nobody saw may have been pruned; but what is retained in the end was seen.  Not so
            # of a row that ended: it shows what was there then, of which some was pruned since.
            torn |= (
                not self._broken
                and first <= last
                and any(
                    not number and first + index >= retained and not self.is_told(first + index)
                    for index, number in enumerate(found)
                )
            )
            if torn and not any(map(self.may_have_vanished, produce.values)):
                self.report.add("torn-batch", f"{self.name}: {produce.values!r} at {found}")

    def _check_lost(self) -> None:
        if not self.finals:
            return
        last, order = self.last_final, self.order
        for produce in self.produces:
            if produce.outcome != OK or not produce.first:
                continue
            for index, value in enumerate(produce.values):
                number = produce.first + index
                if number <= last and number <= len(order) and order[number - 1] == value:
                    continue
                if not self.may_have_vanished(value) and not self.is_told(number):
                    text = f"{self.name} {number}: {value!r}, acknowledged at {produce.ended:.6f}"
                    self.report.add("lost", text)
        for number in range(last + 1, len(order) + 1):
            value = order[number - 1]
            if not self.read[number - 1] or value is None or self.is_told(number):
                continue
            if not self.may_have_vanished(value):
                self.report.add("lost-observed", f"{self.name} {number}: {value!r} was read")

    def _check_accepted(self) -> None:
        """Nobody may have seen it before it was pruned; not so where all was seen that is pruned."""
        if not self.finals or self.has_excuse or None in self.order[: self._first_of_all - 1]:
            return
        for produce in self.produces:
            waits = produce.outcome == INFO and not produce.may_wait and produce.expected is None
            if not produce.accepted_at or not waits or produce.accepted_at in self._forgetful:
                continue
            if not any(value in self.numbers for value in produce.values):
                text = f"{self.name}: {produce.values!r}, accepted at {produce.accepted_at} by "
                self.report.add("accepted-lost", f"{text}{produce.ended:.6f}")

    def _check_lanes(self) -> None:
        newest: dict[str, tuple[int, int]] = {}  # by lane: seq and number
        for produce in sorted(self.produces, key=lambda produce: (produce.lane, produce.seq)):
            number = self.numbers.get(produce.values[0]) if produce.values else None
            if number is None or not produce.lane or self.may_have_vanished(produce.values[0]):
                continue
            seq, before = newest.get(produce.lane, (0, 0))
            if number < before:
                text = f"{self.name}: {produce.lane} seq {produce.seq} has {number}, "
                self.report.add("producer-reorder", text + f"seq {seq} has {before}")
            newest[produce.lane] = produce.seq, number

    def _check_real_time(self) -> None:
        """A acknowledged before B was sent: A's numbers are lower."""
        if self._losses:
            return  # numbers are used again
        numbers = self.numbers
        done = sorted(
            (produce.ended, produce.first + len(produce.values) - 1)
            for produce in self.produces
            if produce.outcome == OK
        )
        ends = [ended for ended, _ in done]
        highest, top = [], 0
        for _, last in done:
            top = max(top, last)
            highest.append(top)
        for produce in self.produces:
            first = numbers.get(produce.values[0]) if produce.values else None
            if first is None:
                continue
            before = bisect_left(ends, produce.began) - 1  # at the same instant: in either order
            if before >= 0 and highest[before] > first:
                text = f"{self.name}: {produce.values[0]!r} has {first}, produced after "
                self.report.add("realtime-reorder", f"{text}{highest[before]} was acknowledged")

    def _check_converged(self) -> None:
        if self._broken:
            return
        contents = sorted(self.finals.items())
        for (one, first), (two, second) in pairwise(contents):
            if (first.first, first.last) != (second.first, second.last):
                text = f"{self.name}: {one} has {first.first} to {first.last}, "
                self.report.add("not-converged", text + f"{two} {second.first} to {second.last}")

    def _check_hole(self, node: str, content: Content) -> None:
        assert content.numbers is not None
        if list(content.numbers) != list(range(content.first, content.last + 1)):
            text = f"{self.name}: {node} holds {list(content.numbers)[:20]} ..."
            self.report.add("prune-hole", text)


def _is_range(numbers: Sequence[int]) -> bool:
    if isinstance(numbers, range):
        return numbers.step == 1
    first, last = numbers[0], numbers[-1]
    return last - first == len(numbers) - 1 and list(numbers) == list(range(first, last + 1))


def _name(who: Any) -> str:
    if isinstance(who, Pull):
        at = f"@{who.node}" if who.node else ""
        return f"pulled by {who.process}{at} after {who.after} at {who.ended:.6f}"
    return str(who)
