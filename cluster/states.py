"""The state of a machine in a word, by its processes and by what its node tells.  Pure.

down           its node does not run
paused         its node or its bridge stands still, by a signal
catching-up    it starts, or follows the row and does not act yet
wedged         it can order nothing: those that it reaches are no majority, or lack what was ordered last, or
               its disk is full
up             it orders; one without a vote follows
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def row_of(
    name: str,
    url: str,
    *,
    pid: int,
    bridge_pid: int,
    runs: bool,
    is_paused: bool,
    status: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Of a machine, as `duckrow cluster status` shows it; a process 0 is none, or not known."""
    told = status or {}
    return {
        "name": name,
        "url": url,
        "pid": pid or None,
        "bridge_pid": bridge_pid or None,
        "state": state_of(name, runs=runs, is_paused=is_paused, status=status),
        "view": told.get("view"),
        "position": told.get("position"),
        "state_hash": told.get("state_hash"),
        "why": told.get("why") or told.get("waits") or _of_its_disk(told) or None,
    }


def _of_its_disk(told: Mapping[str, Any]) -> str:
    """It may order what others produce, and take nothing itself."""
    disk = told.get("disk", {})
    if disk.get("state", "ok") == "ok":
        return ""
    return (
        f"its disk is full, {disk.get('free', 0):,} bytes are free: it takes no entries of clients"
    )


def state_of(name: str, *, runs: bool, is_paused: bool, status: Mapping[str, Any] | None) -> str:
    """`status` as its node tells it; None: it does not answer."""
    if not runs:
        return "down"
    if is_paused:
        return "paused"
    if status is None or not status["ready"]:
        return "catching-up"
    if status["active"]:
        return "up"
    if status["waiting_for"] or status.get("waits") or status["disk"]["state"] != "ok":
        return "wedged"
    follows = any(
        peer["name"] == name and peer["state"] == "follows" for peer in status.get("peers", ())
    )
    return "up" if follows else "catching-up"
