"""What state a machine of a cluster is said to be in."""

from __future__ import annotations

from typing import Any

import pytest

from duckrow.cluster.states import row_of, state_of


def status(**more: Any) -> dict[str, Any]:
    """Of a node that is ready and orders nothing, where all are reached."""
    told = {"ready": True, "active": False, "waiting_for": [], "disk": {"state": "ok"}}
    return {**told, "peers": [{"name": "m1", "state": "catches up"}], **more}


@pytest.mark.parametrize(
    ("told", "state"),
    [
        (None, "catching-up"),
        (status(ready=False, active=True), "catching-up"),
        (status(active=True), "up"),
        (status(), "catching-up"),
        (status(waiting_for=["m2"]), "wedged"),
        (status(disk={"state": "full"}), "wedged"),
        (status(waits="nobody that runs is known to have all"), "wedged"),
        (status(peers=[{"name": "m1", "state": "follows"}]), "up"),
        (status(peers=[{"name": "m2", "state": "follows"}]), "catching-up"),
        (status(active=True, waiting_for=["m2"]), "up"),
    ],
)
def test_a_machine_that_runs_is_in_the_state_that_its_node_tells(
    told: dict[str, Any] | None, state: str
) -> None:
    assert state_of("m1", runs=True, is_paused=False, status=told) == state
    assert state_of("m1", runs=True, is_paused=True, status=told) == "paused"
    assert state_of("m1", runs=False, is_paused=False, status=told) == "down"


def test_a_machine_that_takes_no_entries_since_its_disk_is_full_says_why() -> None:
    told = status(active=True, disk={"state": "soft", "free": 1_000_000})
    row = row_of("m1", "duck://h:1", pid=1, bridge_pid=7, runs=True, is_paused=False, status=told)

    assert (row["state"], "1,000,000 bytes are free" in row["why"]) == ("up", True)


def test_a_machine_that_waits_for_one_that_has_all_says_so() -> None:
    """It was told to be catching up, for ever."""
    told = status(why="", waits="m3 is missing")
    row = row_of("m1", "duck://h:1", pid=1, bridge_pid=7, runs=True, is_paused=False, status=told)

    assert (row["state"], row["why"]) == ("wedged", "m3 is missing")


def test_what_is_not_known_of_a_machine_is_null() -> None:
    row = row_of("m1", "duck://h:1", pid=0, bridge_pid=7, runs=False, is_paused=False, status=None)

    assert row == {
        "name": "m1",
        "url": "duck://h:1",
        "pid": None,
        "bridge_pid": 7,
        "state": "down",
        "view": None,
        "position": None,
        "state_hash": None,
        "why": None,
    }
