"""Logs: events with facts, for people on a terminal and for machines as JSON lines.

    log.info("link_lost peer=%s entries_unsent=%d", peer, unsent)          in the code

    12:00:00.250 info link_lost peer=b entries_unsent=12                   on a terminal
    2026-11-18T12:00:00.250Z info link_lost peer=b entries_unsent=12       in a file
    {"time":"2026-11-18T12:00:00.250Z","level":"info","event":"link_lost","peer":"b",...}

The facts are taken from the template and its arguments, so a plain call of `logging` is enough, and
no value can forge a field or a line.  What comes more often than `EVENTS_A_SECOND` under one name
is counted, and the next line says how many were left out.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

EVENTS_A_SECOND: Final = 20  # of one name: more is a flood, and somebody else can cause it
ROOT: Final = "duckrow"

_TEMPLATE: Final = re.compile(r"([a-z][a-z0-9_]*)((?: [a-z][a-z0-9_]*=\S+)*)", re.ASCII).fullmatch
_FACT: Final = re.compile(r" ([a-z0-9_]+)=(\S+)", re.ASCII)
_BARE: Final = re.compile(r"[^\s\"=\\]+").fullmatch
_LEFT_OUT: Final = "left_out"
_BOLD, _DIM, _RED, _YELLOW, _CYAN, _PLAIN = (
    f"\033[{code}m" for code in ("1", "2", "31;1", "33", "36", "0")
)
_COLOURS: Final = {"debug": _DIM, "info": _CYAN, "warning": _YELLOW, "error": _RED}


def start(
    level: str, form: str, stream: TextIO, environ: Mapping[str, str], process: str = ""
) -> logging.Handler:
    """Sends the events of the product to `stream`, and nowhere else.

    `process` says whose events these are, where several write to one place.
    """
    terminal = stream.isatty()
    handler = logging.StreamHandler(stream)
    colour = terminal and "NO_COLOR" not in environ
    handler.setFormatter(
        Json(process) if form == "json" else Text(terminal, colour=colour, process=process)
    )
    handler.addFilter(Sparse())
    root = logging.getLogger(ROOT)
    root.handlers = [handler]
    root.propagate = False
    root.setLevel(level.upper())
    return handler


def event_of(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """The name of the event, and its facts; a line of prose is the fact `text` of a `message`."""
    found = _TEMPLATE(record.msg) if isinstance(record.msg, str) else None
    args = record.args if isinstance(record.args, tuple) else ()
    if found is None:
        return "message", {"text": record.getMessage(), "by": record.name}
    facts: dict[str, Any] = {}
    values = iter(args)
    for key, form in _FACT.findall(found[2]):
        if form.startswith("%"):
            value = next(values, None)
            plain = value is None or isinstance(value, int | float | str)
            facts[key] = value if plain and form != "%r" else form % (value,)
        else:
            facts[key] = form
    return found[1], facts


class Text(logging.Formatter):
    def __init__(self, terminal: bool, *, colour: bool, process: str = "") -> None:
        super().__init__()
        self._terminal, self._colour, self._process = terminal, colour, process

    def format(self, record: logging.LogRecord) -> str:
        name, facts = event_of(record)
        level = record.levelname.lower()
        told = [f"{self._painted(_DIM, f'{key}=')}{_value(value)}" for key, value in facts.items()]
        if skipped := getattr(record, _LEFT_OUT, 0):
            told.append(f"{_LEFT_OUT}={skipped}")
        time = _time(record)[11:-1] if self._terminal else _time(record)
        tone = _COLOURS.get(level, _RED)
        words = [self._painted(_DIM, time), self._painted(tone, level)]
        words += [f"{self._process}:"] if self._process else []
        words.append(self._painted(_BOLD, name))
        line = " ".join([*words, *told])
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line

    def _painted(self, tone: str, text: str) -> str:
        return f"{tone}{text}{_PLAIN}" if self._colour else text


class Json(logging.Formatter):
    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        name, facts = event_of(record)
        head = {"time": _time(record), "level": record.levelname.lower(), "event": name}
        if self._process:
            head["process"] = self._process
        if skipped := getattr(record, _LEFT_OUT, 0):
            facts[_LEFT_OUT] = skipped
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        return json.dumps(facts | head if head.keys() & facts.keys() else head | facts)


class Sparse(logging.Filter):
    """Lets so many events of a name through in a second, and counts the others."""

    def __init__(self, a_second: int = EVENTS_A_SECOND) -> None:
        super().__init__()
        self._a_second = a_second
        self._seen: dict[str, tuple[int, int, int]] = {}  # template: second, events, left out

    def filter(self, record: logging.LogRecord) -> bool:
        name, now = str(record.msg), int(record.created)
        second, events, skipped = self._seen.get(name, (now, 0, 0))
        if now != second:
            second, events = now, 0
        if events >= self._a_second and record.levelno < logging.ERROR:
            self._seen[name] = second, events, skipped + 1
            return False
        if skipped:
            setattr(record, _LEFT_OUT, skipped)
        self._seen[name] = second, events + 1, 0
        return True


def _time(record: logging.LogRecord) -> str:
    when = datetime.fromtimestamp(record.created, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03}Z"


def _value(value: Any) -> str:
    text = str(value)
    return text if _BARE(text) and text.isprintable() else json.dumps(text)
