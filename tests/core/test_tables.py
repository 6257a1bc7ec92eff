"""Tables: what a capture has noted goes little by little."""

from __future__ import annotations

import weakref

from duckrow.node.tables import LET_GO_AT_ONCE, Table


class Value:
    pass


def captured_and_changed(count: int) -> tuple[Table[int, Value], list[weakref.ref[Value]]]:
    """A table of which every row was changed while it was captured, and what there was before."""
    table = Table[int, Value]()
    for key in range(count):
        table.put(key, Value())
    old = [weakref.ref(value) for value in table.rows.values()]
    rows = table.begin()
    for key in range(count):
        table.put(key, Value())
    assert [weakref.ref(value) for _, value in rows] == old
    table.end()
    return table, old


def test_what_was_noted_is_let_go_with_the_changes_that_follow_and_not_at_once() -> None:
    table, old = captured_and_changed(100)
    left = 100
    while left:
        table.put(0, Value())
        now = sum(ref() is not None for ref in old)
        assert left - LET_GO_AT_ONCE <= now < left
        left = now


def test_a_capture_that_begins_before_all_is_let_go_sees_the_rows_as_they_are_now() -> None:
    table, _ = captured_and_changed(100)
    table.put(0, Value())
    now = dict(table.rows)
    rows = table.begin()
    table.put(1, Value())
    table.drop(2)
    assert dict(rows) == now
