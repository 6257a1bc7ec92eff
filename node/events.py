"""Events: how code that also runs in the simulation says what an operator should know.

    note(WARNING, "client_too_slow client=%s queued=%d", client, queued)

A template of facts, as the log wants them.  The daemon passes them to the log, which knows the time
of the day; the simulation has none, and its tests read them.
"""

from __future__ import annotations

from typing import Final, Protocol

INFO: Final = 20  # the numbers of the standard library
WARNING: Final = 30
ERROR: Final = 40


class Note(Protocol):
    def __call__(
        self, level: int, template: str, /, *args: object, exc_info: BaseException | None = None
    ) -> None: ...


def unheard(
    level: int, template: str, /, *args: object, exc_info: BaseException | None = None
) -> None:
    """For whoever does not want to know."""
