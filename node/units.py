"""Sizes, durations and shares as people write them: "64MiB", "1h30m", "2%".

    size        bytes              512   64KiB   64 MiB   1.5GiB   10MB   (KiB is 1,024, kB is 1,000)
    duration    microseconds       3     3s      500ms    1h30m    7d     (without a unit: seconds)
    share       0 to 1             2%    0.02

What `show_…` writes is read back as the same number, to the last digit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from .errors import Refused
from .limits import NUMBER_LIMIT

_SIZES: Final = {
    **{f"{letter}iB": 1024 ** (power + 1) for power, letter in enumerate("KMGTP")},
    **{f"{letter}B": 1000 ** (power + 1) for power, letter in enumerate("kMGTP")},
    "B": 1,
}
_DURATIONS: Final = {
    "w": 7 * 86_400_000_000,
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_PARTS: Final = re.compile(r"(\d+(?:\.\d+)?) ?([a-zA-Zµ%]*)", re.ASCII)
_WHOLE: Final = re.compile(rf"(?:{_PARTS.pattern} ?)+", re.ASCII).fullmatch


def read_size(text: str) -> int:
    """Bytes.

    Raises:
        Refused: it is no size.
    """
    sizes = {unit.lower(): factor for unit, factor in _SIZES.items()}  # nobody means 1,000 by KIB
    return _read(text, sizes, 1, "a size, such as 64MiB, 10MB or 512", parts=1)


def read_duration(text: str) -> int:
    """Microseconds.

    Raises:
        Refused: it is no duration.
    """
    durations = {**_DURATIONS, "µs": 1, "min": _DURATIONS["m"]}
    known = "a duration, such as 500ms, 3s, 10m, 1h30m or 7d"
    return _read(text, durations, _DURATIONS["s"], known, parts=len(_DURATIONS))


def read_share(text: str) -> float:
    """
    Raises:
        Refused: it is no share of a whole.
    """
    bare = text.removesuffix("%").strip()
    if re.fullmatch(r"\d+(\.\d+)?", bare, re.ASCII):
        share = float(Decimal(bare) / (100 if text.endswith("%") else 1))
        if share <= 1:
            return share
    raise Refused(f"{text!r} is no share of a whole: write 2% or 0.02", value=text)


def show_size(size: int) -> str:
    """The largest unit that leaves a whole number; plain below 1 KiB."""
    binary = [(unit, factor) for unit, factor in _SIZES.items() if unit.endswith("iB")]
    return _show(size, dict(reversed(binary))) or str(size)


def show_duration(duration: int) -> str:
    return _show(duration, {"d": _DURATIONS["d"], **_DURATIONS}) or "0s"


def show_share(share: float) -> str:
    text = f"{Decimal(repr(share)) * 100:f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}%"


def _read(text: str, units: Mapping[str, int], bare: int, known: str, *, parts: int) -> int:
    value = Decimal(0)
    found = _PARTS.findall(text) if _WHOLE(text) else []
    for digits, unit in found:
        factor = units.get(unit) or units.get(unit.lower())
        if not unit and len(found) == 1:
            factor = bare
        if factor is None:
            break
        value += Decimal(digits) * factor
    else:
        if 0 < len(found) <= parts and value == int(value) and value < NUMBER_LIMIT:
            return int(value)
    raise Refused(f"{text!r} is not {known}", value=text)


def _show(value: int, units: Mapping[str, int]) -> str:
    for unit, factor in units.items():
        if value and value % factor == 0:
            return f"{value // factor}{unit}"
    return ""
