"""Pruning: entries go only from the low end, only when something allowed it, and stay gone.

What may go is bounded from above, so that nothing is reported that could be right: policies act
from the start of the command that set them to the end of the one that replaced them, and entries
with unknown numbers count as if they had come.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING

from .history import FAIL, OK, Configured, History, Policy, Produce, Report

if TYPE_CHECKING:
    from .checkline import Line


def check(line: Line, history: History, allowed: Allowed, report: Report) -> None:
    seen = _Seen(line, history)
    for time, first, who in seen.firsts:
        # What a loss took, numbers and all, says nothing about the entries that have them now.
        if not (seen.is_forgotten(time) or allowed.gone_by(first - 1, time)):
            text = f"{line.name}: {first - 1} was gone at {min(time, history.ended):.6f} ({who})"
            report.add("early-prune", text)
    seen.check_going_back(report)
    if not history.losses and history.broken == inf:
        _check_done(line, history, report)
        _check_policy(line, history, report)
    for policy in allowed.in_force_at_the_end():
        for node, content in line.finals.items():
            count, size = len(content.values), allowed.bytes_from(content.first)
            text = f"{line.name}: {node} holds {count} entries, {size} bytes; policy: {policy}"
            if (policy.max_entries is not None and count > policy.max_entries) or (
                policy.max_bytes is not None and size > policy.max_bytes
            ):
                report.add("overfull", text)


def _check_done(line: Line, history: History, report: Report) -> None:
    """What a prune command was to take, as far as it was there for certain when it was given."""
    done = sorted((p.ended, p.first + len(p.values) - 1) for p in line.produces if p.outcome == OK)
    ends, lasts = [ended for ended, _ in done], list(accumulate((n for _, n in done), max))
    for prune in history.prunes:
        before = bisect_left(ends, prune.began) - 1
        if prune.key != line.key or prune.outcome != OK or before < 0:
            continue
        upto = min(prune.number, lasts[before])
        for node, content in line.finals.items():
            if content.values and content.first <= upto:
                text = f"{line.name}: {node} begins at {content.first}, pruned up to {upto}"
                report.add("unpruned", text)


def _check_policy(line: Line, history: History, report: Report) -> None:
    mine = [one for one in history.configured if one.topic == line.key[0]]
    if not mine or any(one.ended == inf for one in mine):
        return
    last = max(mine, key=lambda one: one.began)
    for node, content in line.finals.items():
        if content.policy is not None and content.policy != last.policy:
            text = f"{line.name}: {node} has {content.policy}, set was {last.policy}"
            report.add("other-policy", text)


class _Seen:
    """Moments at which a partition was seen to begin at a number above 1."""

    def __init__(self, line: Line, history: History) -> None:
        self._line, self._history = line, history
        self.firsts: list[tuple[float, int, str]] = []  # when, first, by whom
        self._floors: dict[str, list[tuple[float, int]]] = {}  # by node: from then on, at least
        self._shown: dict[str, list[tuple[float, int]]] = {}  # by node: not before then, this one
        for pull in line.pulls:
            if pull.outcome != OK:
                continue
            first = pull.numbers[0] if pull.numbers else pull.after + 1 + pull.missing
            if pull.missing > 0:
                self.firsts.append((pull.ended, first, f"pull by {pull.process}"))
                self._floors.setdefault(pull.node, []).append((pull.ended, first))
            if pull.numbers and not history.broken <= pull.ended:  # then it went back, and says so
                self._shown.setdefault(pull.node, []).append((pull.began, first))
        for node, content in line.finals.items():
            if content.first > 1:
                self.firsts.append((inf, content.first, f"{node} in the end"))
            if content.values and history.broken == inf:
                self._shown.setdefault(node, []).append((inf, content.first))

    def check_going_back(self, report: Report) -> None:
        for node, shown in self._shown.items():
            floors = sorted(f for f in self._floors.get(node, []) if not self.is_forgotten(f[0]))
            times = [time for time, _ in floors]
            highest, top = [], 0
            for _, first in floors:
                top = max(top, first)
                highest.append(top)
            for began, first in shown:
                before = bisect_left(times, began) - 1
                if before >= 0 and first < highest[before]:
                    text = f"{self._line.name}: {node} showed {first} after it began at "
                    report.add("first-went-back", text + str(highest[before]))

    def is_forgotten(self, time: float) -> bool:
        return any(loss.since < time <= loss.at for loss in self._history.losses)


class Allowed:
    """Which entries may be gone at a moment."""

    def __init__(self, line: Line, history: History) -> None:
        self._line, self._history = line, history
        self._prunes = [
            (prune.began, prune.number)
            for prune in history.prunes
            if prune.key == line.key and prune.outcome != FAIL
        ]
        mine = sorted(
            (one for one in history.configured if one.topic == line.key[0]),
            key=lambda one: one.began,
        )
        self._policies = [  # from when, until when at the latest, what
            (one.began, self._end(mine[index + 1]) if index + 1 < len(mine) else inf, one.policy)
            for index, one in enumerate(mine)
        ]
        self._starts: list[float] = []  # when produces began, ascending
        self._lasts: list[int] = []  # the highest number of all that began until then
        self._spare: list[int] = []  # entries whose numbers are unknown, likewise
        top = spare = 0
        for produce in sorted(line.produces, key=lambda produce: produce.began):
            number = line.numbers.get(produce.values[-1], 0) if produce.values else 0
            if number:
                top = max(top, number)
            elif produce.outcome != FAIL and not produce.first:
                spare += len(produce.values)
            if produce.may_repeat:
                spare += len(produce.values)
            self._starts.append(produce.began)
            self._lasts.append(top)
            self._spare.append(spare)
        self._shared = history.shared_bytes
        self._sums = self._sum_bytes([p.size for p in line.produces])  # of all up to a number
        own = [self._surely(produce) for produce in line.produces]
        self._own_sums = self._sum_bytes(own)
        self._unseen = sum(
            produce.size
            for produce in line.produces
            if produce.values and produce.values[0] not in line.numbers
        )
        self._ages = list(accumulate(line.stamped, _newest_known))

    def _end(self, next_one: Configured) -> float:
        """Of the policy before it; a loss may bring that back."""
        ended = next_one.ended
        return inf if any(loss.since < ended <= loss.at for loss in self._history.losses) else ended

    def in_force_at_the_end(self) -> list[Policy]:
        """Empty if it is not certain which policy is in force."""
        if not self._policies or self._history.broken < inf:
            return []
        now = self._policies[-1][2]
        if now.when_full != "drop-oldest" and (
            self._history.losses or any(_limits(one[2]) != _limits(now) for one in self._policies)
        ):
            return []  # what was there before the limit came stays
        ended = max(c.ended for c in self._history.configured if c.topic == self._line.key[0])
        # With the power a topic may have gone, and come back with the next batch, as topics are.
        lost = any(loss.since < ended <= loss.at for loss in self._history.losses)
        return [now] if ended < inf and not lost else []

    def gone_by(self, number: int, time: float) -> bool:
        if number <= 0 or any(began <= time and number <= upto for began, upto in self._prunes):
            return True
        time = min(time, self._history.ended or inf)
        for began, end, policy in self._policies:
            if began <= time and self._dropped(number, min(time, end), policy):
                return True
        return False

    def _dropped(self, number: int, time: float, policy: Policy) -> bool:
        if policy.max_age is not None:
            age = time - self._began_of(number) + self._history.skew
            if age >= policy.max_age:
                return True
        if policy.when_full != "drop-oldest":
            return False
        last = self._last_at(time)
        if policy.max_entries is not None and last - number >= policy.max_entries:
            return True
        return policy.max_bytes is not None and self._bytes(number, last) > policy.max_bytes

    def _began_of(self, number: int) -> float:
        """Of this entry, or if it was never seen, of the next older one that was."""
        return self._ages[min(number, len(self._ages)) - 1] if self._ages else 0.0

    def _last_at(self, time: float) -> int:
        index = bisect_right(self._starts, time) - 1
        return self._lasts[index] + self._spare[index] if index >= 0 else 0

    def bytes_from(self, first: int) -> int:
        """Of the batches that begin at or after a number: at least so much is retained."""
        return self._own_sums[-1] - self._own_sums[min(first, len(self._own_sums)) - 1]

    def _surely(self, produce: Produce) -> int:
        """What it still holds, at least: a loss may have taken it, and given its numbers to others."""
        line = self._line
        if any(map(line.may_have_vanished, produce.values)):
            return 0
        return produce.size if produce.own_size is None else produce.own_size

    def _sum_bytes(self, of_produces: Iterable[int]) -> list[int]:
        sizes = [0] * (len(self._line.order) + 1)
        for produce, size in zip(self._line.produces, of_produces, strict=True):
            number = self._line.numbers.get(produce.values[0], 0) if produce.values else 0
            if number:
                sizes[number] += size
        return list(accumulate(sizes))

    def _bytes(self, number: int, last: int) -> int:
        """Of the batch that holds `number` and all after it; of unseen ones, as much as can be."""
        line = self._line
        value = line.order[number - 1] if number <= len(line.order) else None
        source = line.sources.get(value) if value is not None else None
        # Where a loss took the beginning, that is among the unseen.
        first = line.numbers.get(source.values[0], number) if source is not None else number
        last = min(last, len(self._sums) - 1)
        return self._sums[last] - self._sums[max(0, first - 1)] + self._unseen + self._shared


def _limits(policy: Policy) -> tuple[int | None, int | None, str]:
    return policy.max_entries, policy.max_bytes, policy.when_full


def _newest_known(before: float, began: float) -> float:
    return began or before
