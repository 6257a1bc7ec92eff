"""Calls: who waits for what became of which command.

A command is known by (pid, epoch, topic, partition, seq), so an answer finds everybody who asked,
also when the same command came twice, from two connections, after the first one broke.
"""

from __future__ import annotations

import trio

from .commands import Head
from .effects import Answer, Code, Result

Key = tuple[bytes, int, str, int, int]


def key_of(asked: Head | Answer) -> Key:
    return asked.pid, asked.epoch, asked.topic, asked.partition, asked.seq


class _Call:
    """One who waits, and what it is woken with."""

    __slots__ = ("outcome", "task")

    def __init__(self) -> None:
        self.task = trio.lowlevel.current_task()
        self.outcome: Result | Exception | None = None


class Calls:
    """All commands that somebody waits for."""

    def __init__(self) -> None:
        self._waiting: dict[Key, list[_Call]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, key: Key) -> Result:
        """Until the final result.  Cancelled: what becomes of the command is not known here.

        It parks without a checkpoint before, so what is submitted just before cannot be answered
        too early.
        """
        call = _Call()
        self._waiting.setdefault(key, []).append(call)

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            self._leave(key, call)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        if isinstance(call.outcome, Exception):
            raise call.outcome
        assert call.outcome is not None, "woken without an outcome"
        return call.outcome

    def answer(self, answer: Answer) -> None:
        # A batch that waits for room gets a second answer, and that one is final.
        if answer.result.code != Code.WAITING:
            self._wake(key_of(answer), answer.result)

    def fail(self, key: Key, error: Exception) -> None:
        """It certainly does not happen, or this node can no longer tell."""
        self._wake(key, error)

    def fail_all(self, error: Exception) -> None:
        for key in list(self._waiting):
            self._wake(key, error)

    def _wake(self, key: Key, outcome: Result | Exception) -> None:
        for call in self._waiting.pop(key, ()):
            call.outcome = outcome
            trio.lowlevel.reschedule(call.task)

    def _leave(self, key: Key, call: _Call) -> None:
        calls = self._waiting[key]
        calls.remove(call)
        if not calls:
            del self._waiting[key]
