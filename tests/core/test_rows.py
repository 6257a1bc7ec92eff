"""Rows: every byte that was produced can be had back from what is printed, in every form."""

import base64
import csv
import io
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clikit import console_of
from duckrow.node import columns
from duckrow.node.entries import Batch
from duckrow.tools.command import UsageError
from duckrow.tools.console import Console
from duckrow.tools.output import Table, Template, Values, output_of
from duckrow.tools.rows import ENTRY_COLUMNS, ENTRY_FIELDS, Row, cell, entry_rows, json_lines

HEADERS = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=4)
NOON = 1_795_003_200_000_000


def entry_row(
    value: bytes = b"one", key: bytes | None = None, headers: list[tuple[str, bytes]] | None = None
) -> Row:
    (row,) = entry_rows(batch_of(value, key, headers))
    return row


def batch_of(value: bytes, key: bytes | None, headers: list[tuple[str, bytes]] | None) -> Batch:
    body = columns.encode([value], keys=None if key is None else [key], headers=[headers])
    return Batch("rides", 2, 7, NOON, b"\1" * 16, columns.decode(body))


def out(console: Console) -> bytes:
    assert isinstance(console.out, io.BytesIO)
    return console.out.getvalue()


def bytes_of(row: Row, name: str) -> bytes | None:
    if f"{name}_base64" in row:
        return base64.b64decode(row[f"{name}_base64"])
    return None if row[name] is None else row[name].encode()


def test_a_row_has_the_fields_of_the_contract_in_their_order() -> None:
    row = entry_row()

    assert tuple(row) == ENTRY_FIELDS
    assert row == {
        "topic": "rides",
        "partition": 2,
        "number": 7,
        "time": "2026-11-18T12:00:00.000000Z",
        "producer": "01" * 16,
        "key": None,
        "value": "one",
    }


def test_what_is_not_utf8_stands_as_base64_instead() -> None:
    row = entry_row(b"\xff\0", b"\xfe")

    assert (row["value_base64"], row["key_base64"]) == ("/wA=", "/g==")
    assert "value" not in row
    assert "key" not in row


@given(st.binary(), st.none() | st.binary(), HEADERS)
def test_json_lines_give_back_every_byte(
    value: bytes, key: bytes | None, headers: list[tuple[str, bytes]]
) -> None:
    console = console_of()
    output_of(console, None, ENTRY_FIELDS).put([entry_row(value, key, headers)])

    assert out(console).count(b"\n") == 1
    row = json.loads(out(console))
    assert bytes_of(row, "value") == value
    assert bytes_of(row, "key") == key
    found = {
        (name, each if field == "headers" else base64.b64encode(each).decode())
        for field in ("headers", "headers_base64")
        for name, several in row.get(field, {}).items()
        for each in (several if isinstance(several, list) else [several])
        if field == "headers"
    }
    assert found == {(name, each.decode()) for name, each in headers if is_text(each)}


@given(st.binary() | st.text().map(str.encode), st.none() | st.binary(max_size=4), HEADERS)
def test_the_quick_way_to_json_lines_gives_the_same_text(
    value: bytes, key: bytes | None, headers: list[tuple[str, bytes]]
) -> None:
    console = console_of()
    output_of(console, None, ENTRY_FIELDS).put([entry_row(value, key, headers)])

    assert json_lines(batch_of(value, key, headers)).encode() == out(console)


def is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_a_header_that_occurs_twice_has_a_list() -> None:
    row = entry_row(headers=[("a", b"1"), ("b", b"\xff"), ("a", b"2"), ("a", b"3")])

    assert row["headers"] == {"a": ["1", "2", "3"]}
    assert row["headers_base64"] == {"b": "/w=="}


@given(st.lists(st.binary(max_size=9), max_size=5))
@example([b"\r"])
@example([b"\n", b"\r\n", b'"'])
def test_csv_gives_back_every_byte(values: list[bytes]) -> None:
    console = console_of()
    output = output_of(console, "csv", ENTRY_COLUMNS)
    output.put([entry_row(value) for value in values])
    output.close()

    rows = list(csv.DictReader(io.StringIO(out(console).decode(), newline="")))
    found = [base64.b64decode(r["value_base64"]) or r["value"].encode() for r in rows]
    assert found == values


@pytest.mark.parametrize("count", [0, 1, 3])
def test_json_is_one_document_however_many_rows_there_are(count: int) -> None:
    console = console_of()
    output = output_of(console, "json", ENTRY_FIELDS)
    for number in range(count):
        output.put([{"number": number}])
    output.close()

    assert json.loads(out(console)) == [{"number": number} for number in range(count)]


def test_json_of_a_command_that_has_one_row_is_that_row() -> None:
    console = console_of()
    output = output_of(console, "json", ("a",), one=True)
    output.put([{"a": 1}])
    output.close()

    assert json.loads(out(console)) == {"a": 1}


@given(st.lists(st.binary(max_size=9), max_size=5))
def test_bare_values_are_the_bytes_as_they_were_produced(values: list[bytes]) -> None:
    console = console_of()
    Values(console, b"\0").put([entry_row(value) for value in values])

    assert out(console) == b"".join(value + b"\0" for value in values)


def test_a_terminal_gets_a_table_and_a_pipe_json_lines() -> None:
    rows = [{"a": "x", "b": 1}, {"a": "longer", "b": 22}]
    terminal, pipe = console_of(terminal=True), console_of()
    for console in (terminal, pipe):
        output_of(console, None, ("a", "b")).put(rows)

    assert out(terminal).decode().splitlines() == ["A       B", "x       1", "longer  22"]
    assert out(pipe).decode().splitlines() == ['{"a":"x","b":1}', '{"a":"longer","b":22}']


def test_a_table_without_rows_is_nothing() -> None:
    console = console_of(terminal=True)
    output_of(console, None, ("a",)).put([])

    assert out(console) == b""


def test_a_line_is_cut_at_the_edge_of_the_terminal() -> None:
    console = console_of(environ={"COLUMNS": "10"}, terminal=True)
    Table(console, ("a", "value")).put([{"a": 1, "value": "x" * 100}, {"a": 2, "value": "鴨" * 9}])

    assert out(console).decode().splitlines() == ["A  VALUE", "1  xxxxxx…", "2  鴨鴨鴨…"]


def test_columns_of_a_table_grow_and_never_shrink() -> None:
    console = console_of(terminal=True)
    table = Table(console, ("a", "b"))
    for text in ("x", "longer", "y"):
        table.put([{"a": text, "b": 1}])

    assert out(console).decode().splitlines() == ["A  B", "x  1", "longer  1", "y       1"]


@pytest.mark.parametrize("text", ["\033[2J", "a\nb", "a\tb", "\r", "\x85", "\u202e"])
def test_nothing_that_a_terminal_would_obey_reaches_it(text: str) -> None:
    assert cell(text).isprintable()


def test_a_cell_is_what_a_person_would_write() -> None:
    values = [None, True, False, 3, ["a", 1], {"a": [1]}, [{"b": 2}], "x"]

    assert [cell(value) for value in values] == (
        ["", "yes", "no", "3", "a, 1", '{"a":[1]}', '[{"b":2}]', "x"]
    )


def test_a_single_row_has_a_line_for_each_field_and_tables_below() -> None:
    console = console_of(terminal=True)
    output = output_of(console, None, ("name", "gone", "disk", "parts", "none"), one=True)
    output.put([{"name": "m1", "disk": {"free": 1}, "parts": [{"a": 1, "b": 2}], "none": []}])

    assert out(console).decode().splitlines() == (
        ["name   m1", "disk   free 1", "none", "", "A  B", "1  2"]
    )


@given(st.binary(max_size=9), st.binary(max_size=5))
def test_a_template_has_the_fields_where_they_are_wanted(value: bytes, key: bytes) -> None:
    console = console_of()
    template = Template(console, r"{number}\t{key}={value}{{}}", ENTRY_FIELDS)
    template.put([entry_row(value, key)])

    assert out(console) == b"7\t" + key + b"=" + value + b"{{}}\n"


def test_a_template_without_fields_and_one_with_unknown_ones() -> None:
    console = console_of()
    Template(console, r"x\\n\0", ENTRY_FIELDS).put([entry_row()])

    assert out(console) == b"x\\n\0\n"
    with pytest.raises(UsageError, match="there are topic, partition"):
        Template(console, "{nix}", ENTRY_FIELDS)
