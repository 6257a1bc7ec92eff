"""Kinds of settings: how a value is read, from a file or as text, and how a file has it.

What cannot be read is refused with a whole sentence; where it stood, the caller knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, Final, Generic, TypeVar

import attrs

from .addresses import SOMEWHERE, Unix, read_listen
from .errors import Refused
from .units import read_duration, read_share, read_size, show_duration, show_share, show_size

T = TypeVar("T")
NAME_BYTES_MAX: Final = 64
TOKEN_BYTES_MAX: Final = 256


@attrs.frozen
class Kind(Generic[T]):
    """`read` takes what TOML has, or text from a flag; `show` gives it as TOML."""

    name: str
    read: Callable[[object], T]
    show: Callable[[T], str]
    secret: bool = False


def quoted(text: str) -> str:
    """A string as TOML has it."""
    special = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return f'"{"".join(special.get(c, c) for c in text)}"'


def _text(value: object) -> str:
    if isinstance(value, str) and value.isprintable():
        return value
    raise Refused(f"{value!r} is no text: write it in quotes, on one line")


def _short(limit: int) -> Callable[[object], str]:
    def read(value: object) -> str:
        text = _text(value)
        if len(text.encode()) > limit:
            raise Refused(f"{len(text.encode())} bytes are too many: at most {limit}")
        return text

    return read


def _measured(
    read: Callable[[str], float], least: float, most: float, show: Callable[[Any], str]
) -> Callable[[object], Any]:
    def read_it(value: object) -> float:
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        found = read(str(value) if plain else _text(value))
        if not least <= found <= most:
            raise Refused(f"{value} is not from {show(least)} to {show(most)}")
        return found

    return read_it


def _whole(value: object) -> int:
    if type(value) is int:
        return value
    text = _text(value)
    if text.isascii() and text.isdecimal():
        return int(text)
    raise Refused(f"{text!r} is no whole number")


def _yes(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise Refused(f"{value!r} is neither true nor false")


def _addresses(value: object) -> tuple[str, ...]:
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, Sequence):
        raise Refused(f"{value!r} is no list of addresses: write ['tcp://host:port']")
    found = tuple(_text(each).strip() for each in texts)
    for each in found:
        read_listen(each, SOMEWHERE)
    return found


def _maybe_tcp(value: object) -> str:
    text = _text(value)
    if text and isinstance(read_listen(text, SOMEWHERE), Unix):
        raise Refused(f"{text!r}: write tcp://host:port, or nothing")
    return text


def choice(*names: str) -> Kind[str]:
    def read(value: object) -> str:
        if value not in names:
            near = get_close_matches(str(value), names, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise Refused(f"{value!r} is none of {', '.join(names)}{meant}")
        return str(value)

    return Kind(" | ".join(names), read, quoted)


def size(least: int, most: int) -> Kind[int]:
    name = f"size, {show_size(least)} to {show_size(most)}" if least else "size"
    read = _measured(read_size, least, most, show_size)
    return Kind(name, read, lambda value: quoted(show_size(value)))


def number(most: int, least: int = 1) -> Kind[int]:
    def read(value: object) -> int:
        found = _whole(value)
        if not least <= found <= most:
            raise Refused(f"{found} is not from {least} to {most:,}")
        return found

    return Kind(f"number, {least} to {most:,}", read, str)


def _show_seconds(seconds: float) -> str:
    return show_duration(round(seconds * 1e6))


def _duration(days: int) -> Kind[float]:
    return Kind(
        "duration",
        _measured(lambda text: read_duration(text) / 1e6, 0, days * 86_400, _show_seconds),
        lambda seconds: quoted(_show_seconds(seconds)),
    )


DURATION: Final = _duration(1)
PERIOD: Final = _duration(366)
SHARE: Final[Kind[float]] = Kind(
    "share", _measured(read_share, 0, 1, show_share), lambda share: quoted(show_share(share))
)
TEXT: Final[Kind[str]] = Kind("text", _text, quoted)
NAME: Final[Kind[str]] = Kind("text", _short(NAME_BYTES_MAX), quoted)
SECRET: Final[Kind[str]] = Kind("text", _short(TOKEN_BYTES_MAX), quoted, secret=True)
YES: Final[Kind[bool]] = Kind("true | false", _yes, lambda yes: "true" if yes else "false")
ADDRESSES: Final[Kind[tuple[str, ...]]] = Kind(
    "addresses", _addresses, lambda texts: f"[{', '.join(map(quoted, texts))}]"
)
TCP: Final[Kind[str]] = Kind("address", _maybe_tcp, quoted)
