"""Rows: how entries and answers look in JSON, CSV and tables; the names are a contract.

Bytes that are UTF-8 stand as text; others as `value_base64`, with `value` left out.  So do keys and
headers.  What a machine reads is exact; `cell` is for people, and hides what would disturb a
terminal.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, Any, Final

from .moments import show_time

if TYPE_CHECKING:
    from duckrow.node.entries import Batch, Entry

Row = dict[str, Any]
PLACE_FIELDS: Final = ("topic", "partition", "number", "time")
ENTRY_FIELDS: Final = (*PLACE_FIELDS, "producer", "key", "value")
ENTRY_COLUMNS: Final = (*ENTRY_FIELDS, "key_base64", "value_base64", "headers", "headers_base64")


def entry_rows(batch: Batch) -> Iterator[Row]:
    """What all entries of a batch have alike is made once."""
    topic, partition = batch.topic, batch.partition
    time, producer = show_time(batch.time), batch.producer.hex()
    for entry in batch.entries():
        yield {
            "topic": topic,
            "partition": partition,
            "number": entry.number,
            "time": time,
            "producer": producer,
            **_rest(entry),
        }


def json_lines(batch: Batch) -> str:
    """The rows of a batch as JSON lines: the same text, in a quarter of the time."""
    head = (
        f'{{"topic":{quoted(batch.topic)},"partition":{batch.partition},"number":',
        f',"time":"{show_time(batch.time)}","producer":"{batch.producer.hex()}",',
    )
    lines = []
    for entry in batch.entries():
        if entry.key is None and not entry.headers:
            try:
                value = quoted(entry.value.decode())
            except UnicodeDecodeError:
                value = ""
            if value:
                lines.append(f'{head[0]}{entry.number}{head[1]}"key":null,"value":{value}}}\n')
                continue
        rest = to_json(_rest(entry))
        lines.append(f"{head[0]}{entry.number}{head[1]}{rest[1:]}\n")
    return "".join(lines)


def _rest(entry: Entry) -> Row:
    """What entries of a batch have each for itself."""
    row: Row = {"key": None} if entry.key is None else text_or_base64("key", entry.key)
    if entry.headers:
        row |= headers_row(entry.headers)
    return row | text_or_base64("value", entry.value)


def text_or_base64(name: str, value: bytes) -> Row:
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(value).decode()}


def headers_row(headers: Sequence[tuple[str, bytes]]) -> Row:
    """By name; a name that occurs several times has a list."""
    row: Row = {}
    for name, value in headers:
        for field, shown in text_or_base64("headers", value).items():
            there = row.setdefault(field, {})
            if name not in there:
                there[name] = shown
            elif isinstance(there[name], list):
                there[name].append(shown)
            else:
                there[name] = [there[name], shown]
    return row


# Made once: `json.dumps` makes one for each call that has an option.
to_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def cell(value: Any) -> str:
    """For people: one line, and nothing that a terminal would obey."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = value if isinstance(value, str) else _plain(value)
    return text if text.isprintable() else "".join(map(_visible, text))


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple) and all(isinstance(each, str | int) for each in value):
        return ", ".join(map(str, value))
    return to_json(value) if isinstance(value, dict | list | tuple) else str(value)


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character) or f"\\x{ord(character):02x}"
