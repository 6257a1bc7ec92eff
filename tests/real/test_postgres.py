"""Rows of a task come into a table of PostgreSQL, each once; the server is real, and no Spark runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pyarrow as pa
import pytest

import duckrow as library
from clikit import duckrow
from duckrow.node.errors import Refused
from duckrow.tools.pipeline.postgres import count, prepare, put
from postgreskit import postgres

TIME = datetime(2026, 11, 19, 12, 0, 0, 1, UTC)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres() as found:
        yield found


def rows(first: int, last: int, **more: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "topic": "loads",
                "partition": 0,
                "number": number,
                "position": 7,
                "time": TIME,
                "name": "ms",
                "value": number / 2,
                "labels": '{"host": "m1"}',
                **more,
            }
            for number in range(first, last + 1)
        ]
    )


def test_what_is_there_already_is_left_as_it_is(url: str) -> None:
    prepare(url, "once")
    put(url, "once", iter([rows(1, 5)]))

    put(url, "once", iter([rows(1, 3, value=0.0), rows(4, 8)]))
    put(url, "once", iter([]))
    prepare(url, "once")

    assert count(url, "once", "loads") == 8
    assert count(url, "once", "others") == 0
    with psycopg.connect(url) as connection:
        found = connection.execute("select * from once order by number").fetchall()
    assert found[0] == ("loads", 0, 1, 7, TIME, "ms", 0.5, {"host": "m1"})
    assert [row[6] for row in found] == [number / 2 for number in range(1, 9)]


def test_an_entry_of_another_topic_of_that_name_is_another_row(url: str) -> None:
    prepare(url, "anew")
    put(url, "anew", iter([rows(1, 5)]))

    put(url, "anew", iter([rows(1, 5, position=900)]))

    assert count(url, "anew", "loads") == 10


def test_any_text_comes_in_as_it_is_and_names_are_no_code(url: str) -> None:
    table, name = 'odd"; drop table once; --', "tab\t, line\n, \\N, quote' and ü"
    prepare(url, table)

    put(url, table, iter([rows(1, 1, name=name, labels='{"a\\"b": "\\\\n"}')]))

    with psycopg.connect(url) as connection:
        found = connection.execute('select name, labels from "odd""; drop table once; --"')
        assert found.fetchall() == [(name, {'a"b': "\\n"})]


def test_nothing_of_a_task_that_fails_is_there(url: str) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield rows(1, 5)
        raise OSError("gone")

    prepare(url, "whole")
    with pytest.raises(OSError, match="gone"):
        put(url, "whole", broken())

    assert count(url, "whole", "loads") == 0


def test_a_table_into_which_rows_cannot_come_once_is_refused(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("create table other (a int)")
    prepare(url, "keyed")
    with psycopg.connect(url) as connection:
        connection.execute("create table unkeyed as select * from keyed")

    with pytest.raises(Refused, match='column "topic" of relation "other" does not exist'):
        prepare(url, "other")
    with pytest.raises(Refused, match="no unique or exclusion constraint"):
        prepare(url, "unkeyed")
    with pytest.raises(Refused, match='schema "no" does not exist'):
        prepare(url, "no.table")


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("loads", 2, "say into which database, with --to URL or DUCKROW_POSTGRES"),
        ("nothing --to postgresql://", 3, "there is no topic 'nothing'"),
        ("loads --to postgresql:///x?host=/nowhere", 1, "PostgreSQL says: connection"),
    ],
)
def test_measurements_that_cannot_go_anywhere_are_refused_before_java_starts(
    line: str, code: int, said: str
) -> None:
    with library.Node() as node:
        node.client.produce("loads", "{}")
        done = duckrow(f"--url {node.url} pipeline metrics {line}")

    assert (done.code, done.out) == (code, b"")
    assert said in done.err
