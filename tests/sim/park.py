"""Standing still and being dead: what every call of a simulated process into the world goes through.

A process that was killed must not touch anything any more, whatever its `finally:` blocks and
shielded scopes would like to do.  So a kill is a fence first and a cancellation second: each call
asks its `Life`, and a dead one answers with `SimCrashed`, which no product code may catch.

A stopped process (SIGSTOP) is one whose calls do not return.  Code between two calls touches
nothing but its own memory, so nobody can tell it from a real stop.  Plain calls (writes) cannot
wait; a write of a stopped process happens, as if the signal had come a moment later.
"""

from __future__ import annotations

import trio


class SimCrashed(BaseException):
    """Raised into code of a process that no longer exists.  Nothing but the world may catch it."""


class Pulse:
    """Wakes all who wait, remembers nothing.  One thread, so there is no lock to it."""

    __slots__ = ("_lot",)

    def __init__(self) -> None:
        self._lot = trio.lowlevel.ParkingLot()

    async def wait(self) -> None:
        await self._lot.park()

    def fire(self) -> None:
        if self._lot:
            self._lot.unpark_all()


class Life:
    """One run of one process, from its start to its end."""

    __slots__ = ("_resumed", "alive", "paused", "pid")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.alive = True
        self.paused = False
        self._resumed = Pulse()

    def check(self) -> None:
        """For plain calls."""
        if not self.alive:
            raise SimCrashed

    async def gate(self) -> None:
        """For calls that wait: before they begin, and again when they have waited."""
        while self.alive and self.paused:
            await self._resumed.wait()
        if not self.alive:
            raise SimCrashed

    def end(self) -> None:
        self.alive = False
        self.resume()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._resumed.fire()


def bare(error: BaseException) -> BaseException:
    """The crash, if there is one in a group of groups; else the only error; else the group."""
    parts = leaves(error)
    for part in parts:
        if isinstance(part, SimCrashed):
            return part
    return parts[0] if len(parts) == 1 else error


def leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for part in error.exceptions for leaf in leaves(part)]
