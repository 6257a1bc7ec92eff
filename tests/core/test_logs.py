"""Logs: an event is the same for people and for machines, and no value can pretend to be one."""

import ast
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from duckrow.tools.logs import Json, Sparse, Text, event_of, start

ROOT = Path(__file__).parents[2]


def record(
    msg: str, *args: object, level: int = logging.INFO, at: float = 0.25
) -> logging.LogRecord:
    made = logging.LogRecord("duckrow.node.x", level, "x.py", 1, msg, args, None)
    made.created = at
    return made


LINK = "link_lost peer=%s state=streaming entries_unsent=%d error=%r"


def test_the_facts_of_an_event_are_taken_from_its_template() -> None:
    assert event_of(record(LINK, "b", 12, ValueError("x"))) == (
        "link_lost",
        {"peer": "b", "state": "streaming", "entries_unsent": 12, "error": "ValueError('x')"},
    )
    assert event_of(record("drained")) == ("drained", {})


def test_a_line_of_prose_from_elsewhere_is_a_message() -> None:
    assert event_of(record("Hello %s!", "you")) == (
        "message",
        {"text": "Hello you!", "by": "duckrow.node.x"},
    )


def test_a_file_gets_time_level_event_and_facts() -> None:
    assert Text(False, colour=False).format(record(LINK, "b", 12, "e")) == (
        "1970-01-01T00:00:00.250Z info link_lost peer=b state=streaming entries_unsent=12 error='e'"
    )


def test_a_terminal_gets_a_short_time_and_colours() -> None:
    line = Text(True, colour=True).format(record("drained clients=%d", 3))

    assert re.sub(r"\033\[[\d;]*m", "", line) == "00:00:00.250 info drained clients=3"
    assert "\033[" in line


def test_machines_get_an_object_a_line_with_numbers_as_numbers() -> None:
    assert json.loads(Json().format(record("drained clients=%d name=%s", 3, 'a"b\n'))) == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "info",
        "event": "drained",
        "clients": 3,
        "name": 'a"b\n',
    }


@pytest.mark.parametrize("value", ["b\nforged", "b peer=c", 'b"', "\033[2J", "", "b\x85c", "a\\"])
def test_no_value_can_forge_a_field_or_a_line(value: str) -> None:
    line = Text(False, colour=False).format(record("link_lost peer=%s", value))

    assert line.isprintable()
    assert json.loads(line.partition("peer=")[2]) == value


def test_a_fact_cannot_replace_the_event() -> None:
    told = json.loads(Json().format(record("drained level=%s event=%s", "x", "y")))

    assert (told["level"], told["event"]) == ("info", "drained")


def test_a_failure_shows_where_it_happened() -> None:
    try:
        raise ValueError("here")
    except ValueError as error:
        made = record("handler_failed")
        made.exc_info = (ValueError, error, error.__traceback__)

    assert "ValueError: here" in Text(False, colour=False).format(made)
    assert "ValueError: here" in json.loads(Json().format(made))["traceback"]


def test_a_flood_is_counted_and_told_with_the_next_line() -> None:
    sparse = Sparse(a_second=2)
    flood = [sparse.filter(record("x a=%d", n, at=5.0 + n / 100)) for n in range(10)]
    later = record("x a=%d", 10, at=6.0)

    assert flood == [True, True, *[False] * 8]
    assert sparse.filter(record("y"))
    assert sparse.filter(later)
    assert Text(False, colour=False).format(later).endswith(" x a=10 left_out=8")
    assert json.loads(Json().format(later))["left_out"] == 8


def test_errors_are_never_left_out() -> None:
    sparse = Sparse(a_second=1)

    assert all(sparse.filter(record("x", level=logging.ERROR)) for _ in range(5))


@pytest.fixture
def own_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger("duckrow")
    before = root.handlers, root.propagate, root.level
    yield logging.getLogger("duckrow.node.test")
    root.handlers, root.propagate = before[0], before[1]
    root.setLevel(before[2])


def test_events_go_to_the_stream_from_their_level_on(own_logger: logging.Logger) -> None:
    stream = io.StringIO()
    start("warning", "auto", stream, {})
    own_logger.info("quiet")
    own_logger.warning("loud times=%d", 3)

    assert stream.getvalue().endswith("Z warning loud times=3\n")
    assert "quiet" not in stream.getvalue()


def test_json_is_had_on_request(own_logger: logging.Logger) -> None:
    stream = io.StringIO()
    start("info", "json", stream, {})
    own_logger.info("loud times=%d", 3)

    assert json.loads(stream.getvalue())["times"] == 3


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": ""}, False)])
def test_a_terminal_is_coloured_unless_it_says_no(
    environ: dict[str, str], coloured: bool, own_logger: logging.Logger
) -> None:
    stream = Terminal()
    start("info", "auto", stream, environ)
    own_logger.info("loud")

    assert ("\033[" in stream.getvalue()) is coloured


LOGGED = {"debug", "info", "warning", "error", "exception", "critical"}


def test_every_event_of_the_product_has_the_form_of_one() -> None:
    """`event key=%s`, so that machines get facts; a template made at run time has none."""
    form = re.compile(r"[a-z][a-z0-9_]*( [a-z][a-z0-9_]*=\S+)*")
    wrong = []
    for folder in ("node", "bridge", "cluster", "tools"):
        for path in sorted((ROOT / folder).glob("*.py")):
            for call in ast.walk(ast.parse(path.read_text())):
                match call:
                    case ast.Call(ast.Attribute(ast.Name("log"), verb), [first, *rest]) if (
                        verb in LOGGED
                    ):
                        text = first.value if isinstance(first, ast.Constant) else ""
                        good = form.fullmatch(str(text)) and str(text).count("%") == len(rest)
                        if not good:
                            wrong.append(f"{folder}/{path.name}:{call.lineno}")

    assert wrong == []
