"""Moments: RFC 3339 in UTC, and where a reader begins.

    after    first             from the oldest entry there is
             last              only what is new
             -10               the last ten
             1234              1234 was the last one done: from 1235 on
             2026-11-18T12:00:00Z, 2026-11-18, 10m      from the first entry at or after it

Times are microseconds since 1970 inside.  A time without a zone is UTC, as all times here are.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from duckrow.node.errors import Refused
from duckrow.node.limits import NUMBER_LIMIT
from duckrow.node.units import read_duration

if TYPE_CHECKING:
    from duckrow.node.cursors import After

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def show_time(us: int) -> str:
    """RFC 3339, always with six digits, so that texts sort as times do."""
    when = _EPOCH + timedelta(microseconds=min(us, _LATEST))
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond:06}Z"


def read_time(text: str) -> int:
    """
    Raises:
        Refused: it is no time, or one before 1970.
    """
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(
            f"{text!r} is no time: write 2026-11-18T12:00:00Z, or 10m for ten minutes ago"
        ) from None
    us = (when.replace(tzinfo=when.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)
    if us < 0:
        raise Refused(f"{text!r} is before 1970, and there are no entries that old")
    return us


def read_after(text: str, now_us: int) -> After:
    """
    Raises:
        Refused: it is none of the ways to say where a reader begins.
    """
    from duckrow.node.cursors import FIRST, LAST, Back, Cursor

    if text == "first":
        return FIRST
    if text == "last":
        return LAST
    if re.fullmatch(r"-?\d{1,19}", text, re.ASCII):
        number = int(text)
        if number >= NUMBER_LIMIT or text == "-0":
            raise Refused(f"{text}: numbers are below 2^63, and the last k are at least one")
        return Back(-number) if number < 0 else number
    if re.fullmatch(r"\d{4}-\d\d-\d\d.*", text, re.ASCII):
        return Cursor(since=read_time(text))
    try:
        if text[-1:].isalpha():
            return Cursor(since=max(now_us - read_duration(text), 0))
    except Refused:
        pass  # what is said below says more
    raise Refused(
        f"{text!r} is no place to begin: write first, last, -10 for the last ten, a number, "
        "a time such as 2026-11-18T12:00:00Z, or 10m for ten minutes ago"
    )
