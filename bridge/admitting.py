"""Admitting: why a bridge does not take commands of its node now.

On a full disk only what makes room is taken; and who can order nothing, and hand nothing on, takes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from duckrow.node.commands import Command
from duckrow.node.errors import NoQuorum
from duckrow.node.reserve import HARD

if TYPE_CHECKING:
    from .process import Bridge


def check_admitted(bridge: Bridge, commands: Sequence[Command]) -> None:
    """
    Raises:
        NoQuorum: this machine can order nothing, or too much is staged here.
        Full: the reserve is being used, which is for what makes room.
    """
    standing, options, reserve = bridge.member.standing, bridge.options, bridge.store.reserve
    if reserve.state == HARD and any(len(body) for _, body in commands):
        raise reserve.full()  # a node that comes again has not heard of it
    if standing.newest.id and not standing.active and not standing.holds_data:
        what = "is a witness" if standing.is_witness else "has no vote"
        raise NoQuorum(
            f"{options.name_of(standing.id)} {what} in view {standing.newest.id}, so it orders "
            "nothing: produce at another one"
        )
    if not standing.newest.id and options.is_witness:
        raise NoQuorum(
            f"{options.name_of(standing.id)} is to be a witness, which orders nothing and hands "
            "nothing on: produce at another one"
        )
    if bridge.staging.is_full:
        raise NoQuorum("too many commands are staged on this machine, and it has no quorum")
