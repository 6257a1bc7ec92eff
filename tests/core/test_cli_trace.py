"""`duckrow trace` looks twice, and in between entries come and go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from duckrow.node.topicinfo import PartitionInfo
from duckrow.tools import cli_trace

STATUS = {"node": "m1"}


class Found(list[Any]):
    """What a pull gave: entries of one batch."""

    batches = (SimpleNamespace(first=5, lo=0, columns=SimpleNamespace(entries=1)),)


def told(number: int, first: int, last: int, *found: int) -> Any:
    part = PartitionInfo(0, first, last, last - first + 1, 0)
    entries: Any = Found(SimpleNamespace(number=n, value=b"a") for n in found)
    return cli_trace.told("rides", number, 0, part, entries, STATUS)


def test_an_entry_that_has_just_come_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told that -1 came after it."""
    monkeypatch.setattr(cli_trace, "entry_rows", lambda _batch: iter([{}]))

    row = told(5, 1, 4, 5)

    assert row["state"] == "there"
    assert row["said"] == "it came in a batch of 1, and 0 came after it"


@pytest.mark.parametrize(
    ("found", "said"),
    [((7,), "it was pruned; the oldest there is now is 7"), ((), "it was pruned")],
)
def test_an_entry_that_has_just_gone_was_pruned(found: tuple[int, ...], said: str) -> None:
    """It was told as not there yet, where the last number was 9."""
    row = told(5, 3, 9, *found)

    assert (row["state"], row["said"]) == ("pruned", said)


def test_an_entry_that_is_still_to_come_is_not_there_yet() -> None:
    row = told(10, 3, 9)

    assert (row["state"], row["said"]) == ("not yet", "the last number is 9")
