"""Stages: commands that wait on this disk for a view to act in, kept in few bundles.

A machine that is cut off takes commands one by one, and each is a bundle of view 0 of its own.  The
row store tells each new segment which there are, and that has to fit a page; so older ones are merged,
as many as one bundle holds:

    staged   [1][2][3] ... [300] [301]          1 .. 256 in one bundle, written again
    merged   [1 ......... 256][257] ...         under the name of the first; the others are settled

A merged one is over when all that it holds is.  Until then it may be submitted again after a crash,
which changes nothing (D2).  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import attrs

from duckrow.node.commands import Command
from duckrow.node.limits import BUNDLE_BYTES_MAX
from duckrow.node.row import Bundle

from .messages import Name, name_of

MERGE_AT: Final = 512  # bundles of view 0
STAGES_MAX: Final = 1_800  # of all views: their list in a segment's first record is below 64 KiB
COMMANDS_MAX: Final = 256


class Merged(NamedTuple):
    bundle: Bundle  # to be written, under the name of the oldest of its parts
    over: tuple[Name, ...]  # the names of the others: to be settled after it


@attrs.define
class Stages:
    _parts: dict[Name, dict[Name, None]] = attrs.field(factory=dict)  # of merged ones, those open
    _whole: dict[Name, Name] = attrs.field(factory=dict)  # part -> the merged one that has it

    def settled(self, name: Name) -> Name | None:
        """Which stage is over with it, if any is."""
        whole = self._whole.pop(name, None)
        if whole is None:
            return name
        parts = self._parts[whole]
        parts.pop(name, None)
        if parts:
            return None
        del self._parts[whole]
        return whole

    def merge(self, staged: Iterable[Bundle]) -> list[Merged]:
        """Of bundles of view 0, the oldest first; those that are as large as can be stay."""
        found = []
        for group in _groups(staged):
            if len(group) > 1:
                commands = tuple([each for bundle in group for each in bundle.commands])
                first, *others = map(name_of, group)
                parts = {part: None for each in group for part in self._open_parts(name_of(each))}
                self._parts[first] = parts
                self._whole.update(dict.fromkeys(parts, first))
                found.append(Merged(group[0]._replace(commands=commands), tuple(others)))
        return found

    def _open_parts(self, name: Name) -> dict[Name, None]:
        return self._parts.pop(name, None) or {name: None}


def _groups(staged: Iterable[Bundle]) -> Iterable[list[Bundle]]:
    group: list[Bundle] = []
    count = size = 0
    for bundle in staged:
        more, weight = len(bundle.commands), sum(map(_size, bundle.commands))
        if group and (count + more > COMMANDS_MAX or size + weight > BUNDLE_BYTES_MAX):
            yield group
            group, count, size = [], 0, 0
        group.append(bundle)
        count += more
        size += weight
    yield group


def _size(command: Command) -> int:
    return len(command.head) + len(command.body)
