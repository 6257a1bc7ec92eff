"""Calls: who waits for what became of which command.

A command is known by (pid, epoch, topic, partition, seq), so an answer finds everybody who asked,
also when the same command came twice, from two connections, after the first one broke.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from .commands import Head
from .effects import WAITING, Answer, Result

Key = tuple[bytes, int, str, int, int]
Told = Callable[[Result | Exception], None]
_ACCEPTED: Final = Result(WAITING)


def key_of(asked: Head | Answer) -> Key:
    return asked.pid, asked.epoch, asked.topic, asked.partition, asked.seq


class Calls:
    """All commands that somebody waits for."""

    def __init__(self) -> None:
        self._waiting: dict[Key, list[Told]] = {}
        self._accepting: dict[Key, list[Told]] = {}  # of these, who is content with `accepted`

    def __len__(self) -> int:
        return len(self._waiting)

    def tell(self, key: Key, told: Told, *, accepted: bool = False) -> None:
        """`told` gets the final result, or an error; before it, perhaps, that a batch waits, be it in
        the row or, if `accepted` is enough, on this disk.
        """
        calls = self._waiting.get(key)
        if calls is None:
            self._waiting[key] = [told]
        else:
            calls.append(told)
        if accepted:
            self._accepting.setdefault(key, []).append(told)

    def forget(self, key: Key, told: Told) -> None:
        """Nobody is there any more."""
        for all_ in (self._waiting, self._accepting):
            calls = all_.get(key, [])
            if told in calls:
                calls.remove(told)
                if not calls:
                    del all_[key]

    async def wait(self, key: Key) -> Result:
        """Until the final result.  Cancelled: what becomes of the command is not known here.

        It parks without a checkpoint before, so what is submitted just before cannot be answered
        too early.
        """
        task = trio.lowlevel.current_task()
        final: Result | Exception | None = None

        def told(outcome: Result | Exception) -> None:
            nonlocal final
            if isinstance(outcome, Exception) or outcome.code != WAITING:
                final = outcome
                trio.lowlevel.reschedule(task)

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            self.forget(key, told)
            return trio.lowlevel.Abort.SUCCEEDED

        self.tell(key, told)
        await trio.lowlevel.wait_task_rescheduled(abort)
        if isinstance(final, Exception):
            raise final
        assert final is not None, "woken without an outcome"
        return final

    def answer(self, answer: Answer) -> None:
        pid, topic, partition, seq, result, epoch = answer
        key = pid, epoch, topic, partition, seq
        if result.code == WAITING:  # a second answer follows, and that one is final
            for told in tuple(self._waiting.get(key, ())):
                told(result)
        elif key in self._waiting:
            self._wake(key, result)

    def awaits(self, key: Key) -> bool:
        """Somebody is content with `accepted`."""
        return key in self._accepting

    def accept(self, key: Key) -> None:
        for told in self._accepting.pop(key, ()):
            told(_ACCEPTED)

    def fail(self, key: Key, error: Exception) -> None:
        """It certainly does not happen, or this node can no longer tell."""
        self._wake(key, error)

    def fail_all(self, error: Exception) -> None:
        for key in list(self._waiting):
            self._wake(key, error)

    def _wake(self, key: Key, outcome: Result | Exception) -> None:
        if self._accepting:
            self._accepting.pop(key, None)
        for told in self._waiting.pop(key, ()):
            told(outcome)
