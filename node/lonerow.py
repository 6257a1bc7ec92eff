"""The row of a cluster of one.  (Skeleton: the interface that others build on.)"""

from __future__ import annotations

from collections.abc import Sequence

from .commands import Command
from .env import Disk, Env
from .errors import Full
from .row import Item, RowStatus
from .rowstore import RowStore
from .storeoptions import StoreOptions


class LoneRow:
    """`node/row.py` for one machine: nothing to wait for but the disk.

    row = await LoneRow.open(disk, env, StoreOptions(), id=1)
    row.follow(snapshot_position)
    nursery.start_soon(row.run)
    while True:
        items = await row.take()
        for command, error in row.take_refused(): ...
    await row.close()
    """

    store: RowStore

    @classmethod
    async def open(cls, disk: Disk, env: Env, options: StoreOptions, *, id: int = 1) -> LoneRow:  # noqa: A002
        """Recovers, and starts a new incarnation: START, leftovers, the mark of the next view (N7).

        Raises:
            Conflict: another process has the folder; or the row belongs to a cluster of several.
            Corrupt: no row can be made out of what is there.
            Full: not even the start could be written.
        """
        raise NotImplementedError

    def follow(self, after: int) -> None:
        """`take` begins with position `after` + 1: the items of the past without their bodies.

        Once, before the first `take`.

        Raises:
            Corrupt: the row no longer has, or does not have yet, what follows (N4).
        """
        raise NotImplementedError

    async def run(self) -> None:
        """Syncs, indexes sealed segments, drops released ones, looks at the free space.

        Raises:
            DiskFailed: the process has to end.
        """
        raise NotImplementedError

    def submit(self, commands: Sequence[Command]) -> None:
        raise NotImplementedError

    def withdraw(self, command: Command) -> bool:
        raise NotImplementedError

    async def staged(self) -> list[Command]:
        """None: alone, what is in the journal is in the row."""
        raise NotImplementedError

    def settle(self, bundle: tuple[int, int, int]) -> None:
        raise NotImplementedError

    async def take(self) -> list[Item]:
        """See `Row.take`.  An empty list says that `take_refused` has something."""
        raise NotImplementedError

    def take_refused(self) -> list[tuple[Command, Full]]:
        """Commands that `submit` took and a full disk then kept out; certainly not written."""
        raise NotImplementedError

    def release(self, position: int, oldest_body: int) -> None:
        raise NotImplementedError

    def status(self) -> RowStatus:
        raise NotImplementedError

    async def close(self) -> None:
        """Orderly: what is in the row is synced and indexed, `clean` written, the lock given back."""
        raise NotImplementedError
