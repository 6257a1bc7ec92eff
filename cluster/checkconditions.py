"""Conditions: batches that are committed together, and batches that may follow one number only."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING

from .history import FAIL, OK, History, Key, Produce, Report

if TYPE_CHECKING:
    from .checkline import Line


def check(lines: dict[Key, Line], history: History, report: Report) -> None:
    together: dict[str, list[Produce]] = {}
    for produce in history.produces:
        if produce.together:
            together.setdefault(produce.together, []).append(produce)
    for name, batches in together.items():
        _check_together(name, batches, lines, report)
    if not history.losses:  # else numbers are used again
        for line in lines.values():
            _check_expected(line, report)


def _check_together(
    name: str, batches: list[Produce], lines: dict[Key, Line], report: Report
) -> None:
    """A value that nobody saw may have been pruned: where it is certain, none was, it has to be there."""
    there = [batch for batch in batches if _seen(batch, lines)]
    missing = [batch for batch in batches if batch not in there and _would_show(batch, lines)]
    committed = any(batch.outcome == OK for batch in batches)
    if missing and (there or committed):
        text = f"{name}: {missing[0].values!r} of {missing[0].key} is not there"
        report.add("torn-commit", f"{text}, {len(there)} of {len(batches)} batches are")


def _seen(batch: Produce, lines: dict[Key, Line]) -> bool:
    return any(value in lines[batch.key].numbers for value in batch.values)


def _would_show(batch: Produce, lines: dict[Key, Line]) -> bool:
    line = lines[batch.key]
    certain = line.finals and line.first_final == 1 and not line.has_excuse
    return bool(certain) and all(content.first == 1 for content in line.finals.values())


def _check_expected(line: Line, report: Report) -> None:
    """Numbers only grow, so whoever was answered before tells how many there were at least."""
    done = sorted((p.ended, p.first + len(p.values) - 1) for p in line.produces if p.outcome == OK)
    ends = [ended for ended, _ in done]
    lasts = list(accumulate((last for _, last in done), max))
    for produce in line.produces:
        if produce.expected is None:
            continue
        who = f"{line.name}: {produce.values[0]!r} was to follow {produce.expected}"
        if produce.outcome == OK and produce.first != produce.expected + 1:
            report.add("other-place", f"{who}, and has {produce.first}")
        if produce.outcome == FAIL and produce.conflict is not None and produce.ended < inf:
            before = bisect_left(ends, produce.began) - 1
            least = lasts[before] if before >= 0 else 0
            if produce.conflict == produce.expected:
                report.add("false-conflict", f"{who}, and was refused since it would not")
            elif produce.conflict < least:
                text = f"{who}; refused since {produce.conflict} was the last"
                report.add("false-conflict", f"{text}, when {least} was there")
