"""`duckrow why` says why nothing is ordered, also where the node beside the bridge does not know it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest

from clikit import duckrow
from duckrow.tools import cli_why

WAITS = "nobody that runs is known to have all that was ordered in view 3: m1 is missing"
STATUS: dict[str, Any] = {"node": "m2", "view": 3, "active": False, "why": "", "waiting_for": []}


class Node:
    def __init__(self, waits: str = "", **status: Any) -> None:
        self.waits, self._status = waits, STATUS | status

    def status(self) -> dict[str, Any]:
        return dict(self._status)

    def members(self) -> dict[str, Any]:
        return {"waits": self.waits}

    def topics(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("waits", "said"),
    [
        (WAITS, f"m2 takes nothing new: {WAITS}.  Next: duckrow member ls"),
        ("", "m2 takes nothing new: it cannot order anything now.  Next: duckrow doctor"),
    ],
)
def test_what_the_bridge_waits_for_is_told(
    monkeypatch: pytest.MonkeyPatch, waits: str, said: str
) -> None:
    """It was that nothing can be ordered now, and a look at the folder, which is well."""

    @contextmanager
    def client_of(*_: object) -> Any:
        yield Node(waits)

    monkeypatch.setattr(cli_why, "client_of", client_of)

    done = duckrow("why", terminal=True)

    assert done.code == 1
    assert said in done.text


def test_what_a_stranger_said_moves_no_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may say at the port of the bridges that he is a neighbour, and refuses, and why."""
    link = {"peer": "m1", "up": False, "trouble": "it dialled in vain: \x1b[2Jall is well"}

    @contextmanager
    def client_of(*_: object) -> Any:
        yield Node(active=True, links=[link])

    monkeypatch.setattr(cli_why, "client_of", client_of)

    done = duckrow("why", terminal=True)

    assert "it dialled in vain: \\x1b[2Jall is well" in done.text
    assert "\x1b" not in done.text
