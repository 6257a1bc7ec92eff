"""Produces that nobody waits for, of one client: what they come to is told by a later call."""

from __future__ import annotations

from .clientcalls import Call
from .errors import DuckrowError


class Unwatched:
    def __init__(self) -> None:
        self._calls: dict[Call, None] = {}
        self._errors: list[DuckrowError] = []

    def __len__(self) -> int:
        """How many have no answer yet."""
        return len(self._calls)

    @property
    def done(self) -> bool:
        """Everything has its answer: who closes when something went wrong would take back the rest."""
        return not self._calls

    def add(self, call: Call) -> None:
        if not call.done:
            self._calls[call] = None
            call.on_done = lambda: self._note(call)

    def check(self) -> None:
        """
        Raises:
            DuckrowError: the first thing that went wrong since the last time.
        """
        if self._errors:
            errors, self._errors = self._errors, []
            raise errors[0]

    def _note(self, call: Call) -> None:
        self._calls.pop(call, None)
        if call.error is not None:
            self._errors.append(call.error)
