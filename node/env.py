"""The seams: whatever code does to the world outside, it does through an `Env` that it was given.

Trio itself (nurseries, cancel scopes, sleep, events) is used freely: it is deterministic in the
simulation.  Sockets, files, wall time and randomness are attributes of `Env`.  There are two
implementations, `node/realio.py` on the machine and `tests/sim/` in the simulation, and the same
tests run on both.

Writes are plain calls and reads and syncs are coroutines, on purpose.  A write ends in the page
cache within microseconds, where a thread would cost seventy; a sync waits for the disk.  Each call
is a crash point: no call does two durable things.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import attrs

if TYPE_CHECKING:
    import trio  # which plain clients do without, and Spark's workers with them

Buffer = bytes | bytearray | memoryview


class Held(Protocol):
    """A file that is read without waiting for anybody else, also after it was closed or unlinked."""

    @property
    def size(self) -> int:
        """As it was when this was made."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """All of these bytes.

        Raises:
            OSError: the disk does not give them, or they are no longer there.
        """
        ...


class File(Protocol):
    """One open file.  Offsets are explicit; there is no append mode and no current position."""

    @property
    def size(self) -> int: ...

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Puts all buffers, one after the other, into the page cache.

        Raises:
            OSError: with ENOSPC perhaps after a part was written.
        """
        ...

    async def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def hold(self) -> Held:
        """Only for files that no longer change."""
        ...

    def truncate(self, size: int) -> None: ...

    async def sync(self) -> None:
        """fdatasync: what was written before the call is durable after it.  Any error is final."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """One folder.  Names hold no slash.  Names are durable only after `sync_names`."""

    async def folder(self, name: str) -> Disk:
        """The folder `name` inside this one; made, with mode 0700, when it is missing."""
        ...

    async def open(self, name: str, *, create: bool = False) -> File:
        """Raises FileNotFoundError when it is missing and `create` is false."""
        ...

    async def reserve(self, name: str, size: int) -> None:
        """A file whose `size` bytes are really allocated, so that unlinking it frees them."""
        ...

    async def exists(self, name: str) -> bool: ...

    async def names(self) -> list[str]:
        """What is in the folder, sorted."""
        ...

    async def rename(self, old: str, new: str) -> None: ...

    async def unlink(self, name: str) -> None: ...

    async def sync_names(self) -> None: ...

    def lock(self, name: str) -> None:
        """Takes the lock file `name` until this process ends, however it ends.

        Raises:
            BlockingIOError: another process has it; the text names its pid.
        """
        ...

    def unlock(self, name: str) -> None:
        """Gives the lock back; for a process that goes on without the folder."""
        ...

    def free(self) -> tuple[int, int]:
        """Bytes that can still be written, and the size of the whole disk."""
        ...


class Peer(NamedTuple):
    """Who is at the other end of a stream, as far as the machine knows."""

    address: str
    trusted: bool  # a Unix socket: whoever can open it may use it
    host: str = ""  # of another machine, whose connections count together
    uid: int | None = None
    pid: int | None = None


Handler: TypeAlias = "Callable[[trio.abc.Stream], Awaitable[None]]"


class Network(Protocol):
    """Streams between named hosts.  Names, never addresses: the map is configuration."""

    async def connect(self, host: str, port: int) -> trio.abc.Stream: ...

    async def serve(
        self,
        handler: Handler,
        port: int,
        *,
        task_status: trio.TaskStatus[int] = ...,
    ) -> None:
        """Serves until cancelled.  A handler's exception ends the handler, never the server."""
        ...


def never(_site: str, _probability: float = 0.05) -> bool:
    """`buggify` outside the simulation."""
    return False


@attrs.define
class Env:
    """Everything outside: one process of one machine."""

    name: str
    disk: Disk
    net: Network
    rng: random.Random
    wall_us: Callable[[], int]  # microseconds since 1970; may jump either way; never for ordering
    boot_id: str  # changes when the machine restarts, not when the process does
    # Rare but legal behaviour is marked in product code with a site; true only in simulation.
    buggify: Callable[..., bool] = never
