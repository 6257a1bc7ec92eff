"""Errors say what happened with values, also to programs, and stay what they are on their way."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from duckrow.node import addresses, asks, codec, cursors, errors, names, requests, units
from duckrow.node.clientcalls import ReceiptName, Receipts
from duckrow.node.effects import Code, Reason, Result, detail_of, named, wording
from duckrow.node.errors import (
    Conflict,
    Corrupt,
    Damaged,
    DuckrowError,
    LimitExceeded,
    NoQuorum,
    Refused,
)
from duckrow.node.outcomes import error_of

FAILED = [code for code in Code if code not in (Code.ORDERED, Code.WAITING, Code.STAGED)]
KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, DuckrowError)
]


def example(kind: type[DuckrowError]) -> DuckrowError:
    if issubclass(kind, LimitExceeded):
        return kind("an entry", 9, 8)
    if issubclass(kind, NoQuorum):
        return kind("not now", retry_after=2.5)
    if issubclass(kind, Damaged):
        return kind("rides", 1, 17, 18, "a bit")
    return kind("it cannot be", topic="rides", number=17)


@pytest.mark.parametrize("code", FAILED)
def test_every_failure_has_its_values_for_programs_and_for_people(code: Code) -> None:
    error = error_of(Result(int(code), detail=12_345), "rides")

    expected: dict[str, object] = {"result": named(code), "topic": "rides"}
    if name := detail_of(code):
        expected[name] = 12_345
        assert "12,345" in str(error) or "12345" in str(error)
    assert error.values() == expected
    assert str(error).startswith("topic 'rides': ")


@pytest.mark.parametrize("reason", [each for each in Reason if each])
def test_every_reason_has_its_values_for_programs_and_for_people(reason: Reason) -> None:
    error = error_of(Result(int(Code.REFUSED), detail=12_345, reason=int(reason)), "")

    values = error.values()
    assert (values.pop("result"), values.pop("reason")) == ("refused", named(reason))
    assert values == ({detail_of(reason): 12_345} if detail_of(reason) else {})
    assert ("12,345" in str(error) or "12345" in str(error)) is bool(values)
    assert ("{" in wording(reason)) is bool(values)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_the_same_at_the_other_end_and_in_another_process(
    kind: type[DuckrowError],
) -> None:
    error = example(kind)
    _, _, (code, text, values) = requests.opened(requests.failure(7, error))

    for other in (errors.rebuilt(code, text, values), pickle.loads(pickle.dumps(error))):
        assert type(other) is kind
        assert str(other) == str(error)
        assert other.values() == error.values()
        assert {name: getattr(other, name) for name in kind.told} == {
            name: getattr(error, name) for name in kind.told
        }


@pytest.mark.parametrize(
    ("wrong", "values"),
    [
        (lambda: names.check_topic_name("a b"), {"topic": "a b", "characters": 3, "limit": 128}),
        (lambda: asks.check_wait("soon"), {"wait": "soon"}),
        (
            lambda: asks.pull("t", 0, None, 0, 1, 0, 0, None),
            {"what": "limit of a pull", "value": 0, "least": 1},
        ),
        (lambda: cursors.check(-1), {"after": -1}),
        (lambda: cursors.read(datetime(2026, 1, 2)), {"after": "2026-01-02T00:00:00"}),
        (lambda: cursors.read("soon"), {"after": "'soon'"}),
        (lambda: codec.unpack(9, b""), {"codec": 9}),
        (lambda: ReceiptName.parse("no receipt"), {"receipt": "no receipt"}),
        (lambda: Receipts([]).first, {"runs": 0}),
        (lambda: units.read_share("many"), {"value": "many"}),
        (lambda: units.read_size("many"), {"value": "many"}),
        (lambda: addresses.read_url("http://x"), {"url": "http://x"}),
    ],
)
def test_a_refused_argument_has_its_values_for_programs(
    wrong: Callable[[], Any], values: dict[str, object]
) -> None:
    with pytest.raises(Refused) as caught:
        wrong()

    assert caught.value.values() == values


def test_an_error_of_a_newer_node_is_a_plain_one() -> None:
    """Without a value that its kind always has; or of a kind that is not known here."""
    assert type(errors.rebuilt("limit", "too large", {"what": "an entry"})) is DuckrowError
    assert type(errors.rebuilt("of-tomorrow", "said", {"a": 1})) is DuckrowError
    assert errors.rebuilt("conflict", "said", {"a": 1, "b": [2], "c": "d"}).values() == {
        "a": 1,
        "c": "d",
    }


def test_a_kind_that_is_known_here_alone_travels_as_the_one_above_it() -> None:
    class OurOwnError(Corrupt):
        """Not told over wires."""

    assert type(pickle.loads(pickle.dumps(OurOwnError("lost", file="a")))) is Corrupt
    assert isinstance(Conflict("x"), DuckrowError)
