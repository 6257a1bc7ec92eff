"""Reserving: on a full disk the protocol goes on from the reserve, until somebody has made room."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from duckrow.node.errors import DiskFailed, Full
from duckrow.node.rowstore import RowStore

T = TypeVar("T")


async def insist(store: RowStore, write: Callable[..., Awaitable[T]], *args: object) -> T:
    """What the protocol has to write may use the reserve.

    Raises:
        DiskFailed: even that is used up.
    """
    try:
        return await write(*args)
    except Full as error:
        with trio.CancelScope(shield=True):  # sim-ok: a name, and the dead take none away
            has_room = await store.reserve.give_up()
        if not has_room:
            raise DiskFailed(f"the bridge cannot go on: {error}") from error
        return await write(*args)


async def look_on(store: RowStore, changed: Callable[[], None]) -> None:
    """Free space comes and goes, whoever else uses the disk."""
    reserve = store.reserve
    while True:
        before = reserve.state
        await reserve.restore()
        reserve.look()
        if reserve.state != before:
            changed()
        await trio.sleep(store.options.reserve_seconds)
