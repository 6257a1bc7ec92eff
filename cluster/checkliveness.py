"""Waiting: in calm times nobody waits for what is there already."""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import TYPE_CHECKING

from .history import FAIL, OK, History, Produce, Pull, Report, Value

if TYPE_CHECKING:
    from .checkline import Line
    from .checkpruning import Allowed

TICK = 1e-3  # seconds by which a wait may be rounded
WAY = 0.1  # share of the bound: so long, at most, a pull is on its way before it waits


def check(line: Line, history: History, allowed: Allowed, report: Report) -> None:
    if not history.calm:
        return
    there, shown = _There(line, allowed), _shown(line)
    for pull in line.pulls:
        calm_end = _calm_end(history, pull.began)
        if calm_end is not None and pull.outcome != FAIL:
            _check_pull(line, pull, there, calm_end, history.wake_bound, report)
            _check_wait(line, pull, calm_end, history.wake_bound, report)
    for produce in line.produces:
        calm_end = _calm_end(history, produce.began)
        if calm_end is not None and not (produce.may_wait or produce.accepted_at):
            _check_produce(line, produce, calm_end, history.produce_bound, report)
        elif produce.may_wait and not (
            produce.accepted_at or produce.may_repeat or produce.in_part
        ):
            _check_told(line, produce, shown, history, report)


class _There:
    """From when on there was something beyond a number, for certain."""

    def __init__(self, line: Line, allowed: Allowed) -> None:
        self._allowed = allowed
        acks = self._acks = sorted(
            (produce.first + len(produce.values) - 1, produce.ended)
            for produce in line.produces
            if produce.outcome == OK and not any(map(line.may_have_vanished, produce.values))
        )
        self._numbers = [number for number, _ in acks]
        self._since = [ended for _, ended in acks]
        for index in range(len(acks) - 2, -1, -1):
            self._since[index] = min(self._since[index], self._since[index + 1])

    def after(self, number: int) -> float:
        """Perhaps only for a while: see `is_due`."""
        index = bisect_right(self._numbers, number)
        return self._since[index] if index < len(self._since) else inf

    def is_due(self, number: int, began: float, bound: float, until: float) -> bool:
        """Whether a pull that began then had to see something beyond the number before `until`.

        Once it waits, it sees what comes when it comes.  What had come before may have gone before
        the pull was there.
        """
        waits = began + WAY * bound
        return any(
            max(ended, began) + bound < until and not self._allowed.gone_by(last, max(ended, waits))
            for last, ended in self._acks[bisect_right(self._numbers, number) :]
        )


def _calm_end(history: History, began: float) -> float | None:
    for start, end in history.calm:
        if start <= began < end:
            return end
    return None


def _check_pull(
    line: Line, pull: Pull, there: _There, calm_end: float, bound: float, report: Report
) -> None:
    # What the answer says was pruned may have gone before the pull came.
    number, until = pull.after + pull.missing, min(pull.ended, calm_end)
    due = max(there.after(number), pull.began) + bound
    answered = pull.outcome == OK and pull.ended < inf
    if due >= until or not there.is_due(number, pull.began, bound, until):
        return  # in time, or it was not calm long enough to tell
    text = f"{line.name}: {pull.process} after {pull.after}, due at {due:.6f}, "
    if not answered or not (pull.numbers or pull.missing):
        report.add("stuck-pull", text + "and it came back with nothing")
    else:
        report.add("late-wakeup", text + f"and it came back at {pull.ended:.6f}")


def _check_wait(line: Line, pull: Pull, calm_end: float, bound: float, report: Report) -> None:
    """Who finds nothing waits as long as he wanted to."""
    if not pull.wait or pull.outcome != OK or pull.numbers or pull.missing:
        return
    waited = pull.ended - pull.began
    text = f"{line.name}: {pull.process} after {pull.after} waited {waited:.6f} of {pull.wait} s"
    if waited < pull.wait - TICK and pull.ended <= calm_end:
        report.add("short-wait", text)
    elif pull.began + pull.wait + bound < min(pull.ended, calm_end):
        report.add("long-wait", text)


def _shown(line: Line) -> dict[Value, float]:
    """When somebody had read it first."""
    shown: dict[Value, float] = {}
    for pull in line.pulls:
        for value in pull.values if pull.outcome == OK else ():
            shown[value] = min(pull.ended, shown.get(value, inf))
    return shown


def _check_told(
    line: Line, produce: Produce, shown: dict[Value, float], history: History, report: Report
) -> None:
    """Whoever waits for room is told when there was some: others read it already."""
    since = shown.get(produce.values[-1], inf) if produce.values else inf
    for start, end in history.calm:
        if max(since, start) + history.produce_bound < min(produce.ended, end):
            text = f"{line.name}: {produce.process} seq {produce.seq}, read at {since:.6f}"
            report.add("stuck-produce", text)


def _check_produce(
    line: Line, produce: Produce, calm_end: float, bound: float, report: Report
) -> None:
    due = produce.began + bound
    if due < min(produce.ended, calm_end):
        text = f"{line.name}: {produce.process} seq {produce.seq}, due at {due:.6f}"
        report.add("stuck-produce", text)
