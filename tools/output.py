"""Output: rows as a table, JSON, JSON lines, CSV, bare values, or by a template.

    json     one document: an array of rows, or the one row of a command that has only one
    jsonl    a row a line, each as soon as it is there
    csv      a head, then a row a line
    table    for people; columns grow as they must, and the last one is cut at the edge
    value    values alone, exactly as they are, each with the end that was asked for

Who says nothing gets a table on a terminal, and JSON lines anywhere else.
"""

from __future__ import annotations

import csv
import json
import re
import unicodedata
from base64 import b64decode
from collections.abc import Sequence
from typing import Any, Final, Protocol

from .command import UsageError
from .console import Console
from .rows import Row, cell, to_json

FORMS: Final = ("table", "json", "jsonl", "csv")
_GAP: Final = "  "
_CRLF: Final = "\r\n"
_ENDS: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


class Output(Protocol):
    def put(self, rows: Sequence[Row]) -> None:
        """Some rows; they are seen when this returns."""
        ...

    def close(self) -> None: ...


def for_people(console: Console, form: str | None) -> bool:
    """Whether a table will be shown."""
    return (form or ("table" if console.terminal else "")) == "table"


def output_of(
    console: Console,
    form: str | None,
    fields: Sequence[str],
    *,
    columns: Sequence[str] = (),  # of a table, if it shows fewer
    one: bool = False,  # there is always one row
) -> Output:
    match form or ("table" if console.terminal else "jsonl"):
        case "json":
            return Json(console, one)
        case "jsonl":
            return JsonLines(console)
        case "csv":
            return Csv(console, fields)
        case _ if one:
            return Sheet(console, columns or fields)
        case _:
            return Table(console, columns or fields)


class Json:
    def __init__(self, console: Console, one: bool) -> None:
        self._console, self._one = console, one
        self._begun = False

    def put(self, rows: Sequence[Row]) -> None:
        parts = []
        for row in rows:
            if self._one:
                parts.append(json.dumps(row, ensure_ascii=False, indent=2) + "\n")
            else:
                parts.append(f"{',' if self._begun else '['}\n{to_json(row)}")
            self._begun = True
        self._console.out.write("".join(parts).encode())
        self._console.out.flush()

    def close(self) -> None:
        if not self._one:
            self._console.print("\n]" if self._begun else "[]")


class JsonLines:
    def __init__(self, console: Console) -> None:
        self._console = console

    def put(self, rows: Sequence[Row]) -> None:
        self.put_lines("".join([f"{to_json(row)}\n" for row in rows]))

    def put_lines(self, lines: str) -> None:
        self._console.out.write(lines.encode())
        self._console.out.flush()

    def close(self) -> None:
        pass


class _Ends:
    """Lines end with LF.  Told so, Python's csv writes a lone CR without quotes in some versions, and
    readers take it for the end of a line.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, line: str) -> None:
        self.lines.append(line.removesuffix(_CRLF) + "\n")


class Csv:
    def __init__(self, console: Console, fields: Sequence[str]) -> None:
        self._console, self._fields = console, fields
        self._write([list(fields)])

    def put(self, rows: Sequence[Row]) -> None:
        self._write([[self._cell(row.get(field)) for field in self._fields] for row in rows])
        self._console.out.flush()

    def close(self) -> None:
        pass

    def _write(self, lines: Sequence[Sequence[Any]]) -> None:
        ends = _Ends()
        csv.writer(ends, lineterminator=_CRLF).writerows(lines)
        self._console.out.write("".join(ends.lines).encode())

    def _cell(self, value: Any) -> Any:
        if isinstance(value, bool | dict | list | tuple):
            return to_json(value)
        return value


class Table:
    def __init__(self, console: Console, columns: Sequence[str]) -> None:
        self._console, self._columns = console, columns
        self._widths = [len(column) for column in columns]
        self._begun = False

    def put(self, rows: Sequence[Row]) -> None:
        """Widths are those of the rows that came so far: they may grow, and never shrink."""
        lines = [[cell(shown(row, column)) for column in self._columns] for row in rows]
        for at in range(len(self._columns)):
            longest = max((_width(line[at]) for line in lines), default=0)
            self._widths[at] = max(self._widths[at], longest)
        if rows and not self._begun:
            self._begun = True
            lines.insert(0, [column.upper() for column in self._columns])
        for line in lines:
            *others, last = line
            padded = [_padded(text, w) for text, w in zip(others, self._widths, strict=False)]
            self._console.print(self._cut(_GAP.join([*padded, last])))
        self._console.out.flush()

    def close(self) -> None:
        pass

    def _cut(self, line: str) -> str:
        line = line.rstrip()
        if not self._console.terminal or _width(line) <= self._console.width:
            return line
        room, kept = self._console.width - 1, []
        for character in line:
            room -= _width(character)
            if room < 0:
                break
            kept.append(character)
        return f"{''.join(kept)}…"


class Sheet:
    """A single row, a line for each of its fields; rows in it are tables below."""

    def __init__(self, console: Console, columns: Sequence[str]) -> None:
        self._console, self._columns = console, columns

    def put(self, rows: Sequence[Row]) -> None:
        for row in rows:
            there = [name for name in self._columns if {name, f"{name}_base64"} & row.keys()]
            wide = max(map(len, there), default=0)
            tables = []
            for name in there:
                value = shown(row, name)
                if isinstance(value, list) and value and isinstance(value[0], dict):
                    tables.append(value)
                elif isinstance(value, dict):
                    pairs = ", ".join(f"{key} {cell(each)}" for key, each in value.items())
                    self._console.print(f"{name.ljust(wide)}{_GAP}{pairs}".rstrip())
                else:
                    self._console.print(f"{name.ljust(wide)}{_GAP}{cell(value)}".rstrip())
            for table in tables:
                self._console.print()
                Table(self._console, list(table[0])).put(table)
        self._console.out.flush()

    def close(self) -> None:
        pass


class Values:
    """Of entries: the bytes as they were produced, which no other form gives."""

    def __init__(self, console: Console, end: bytes) -> None:
        self._console, self._end = console, end

    def put(self, rows: Sequence[Row]) -> None:
        self.put_values([_bytes(row, "value") for row in rows])

    def put_values(self, values: Sequence[bytes]) -> None:
        if values:
            self._console.out.write(self._end.join([*values, b""]))
        self._console.out.flush()

    def close(self) -> None:
        pass


class Template:
    """`{number} {value}` with the fields of a row; \\n, \\t and \\0 are what they are in C."""

    def __init__(
        self, console: Console, template: str, fields: Sequence[str], end: bytes = b"\n"
    ) -> None:
        self._console, self._end = console, end
        parts = re.split(r"\{(\w+)\}|\\([nrt0\\])", template)
        self._parts: list[tuple[bytes, str]] = []  # text before, and a field behind it
        before = ""
        for text, field, escape in zip(
            parts[::3], [*parts[1::3], None], [*parts[2::3], None], strict=True
        ):
            before += text
            if escape:
                before += _ENDS[escape]
                continue
            if field and field not in fields:
                raise UsageError(f"{{{field}}} is no field; there are {', '.join(fields)}")
            self._parts.append((before.encode(), field or ""))
            before = ""

    def put(self, rows: Sequence[Row]) -> None:
        parts: list[bytes] = []
        for row in rows:
            for before, field in self._parts:
                parts.append(before)
                if field:
                    parts.append(_bytes(row, field))
            parts.append(self._end)
        self._console.out.write(b"".join(parts))
        self._console.out.flush()

    def close(self) -> None:
        pass


def shown(row: Row, name: str) -> Any:
    """A field for people: if it is not UTF-8, its base64."""
    return row[name] if name in row else row.get(f"{name}_base64")


def _bytes(row: Row, name: str) -> bytes:
    if f"{name}_base64" in row and name not in row:
        return b64decode(row[f"{name}_base64"])
    value = row.get(name)
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode()
    return b"%d" % value if type(value) is int else to_json(value).encode()


def _width(text: str) -> int:
    """Columns on a terminal."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))
