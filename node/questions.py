"""Questions that a node asks its bridge, each until it is answered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import trio

from . import bridgewire as wire
from .bridgewire import What
from .env import Buffer
from .errors import DuckrowError


class Questions:
    def __init__(self) -> None:
        self._asked: dict[int, Question] = {}
        self._references = 0

    def frames(self) -> Iterator[list[Buffer]]:
        """Of all that have no answer yet."""
        return (question.frame for question in self._asked.values())

    def ask(self, what: What, arguments: Sequence[object], places: Sequence[int]) -> Question:
        """To be sent, and waited for."""
        self._references += 1
        frame = wire.ask(self._references, what, *arguments, places=places)
        question = Question(self._references, frame)
        self._asked[question.reference] = question
        return question

    def answer(self, reference: int, value: object, body: Buffer) -> None:
        question = self._asked.pop(reference, None)
        if question is not None:
            question.answer(value, body)

    def fail_all(self, error: DuckrowError) -> None:
        for question in self._asked.values():
            question.answer(error, b"")

    def drop(self, question: Question) -> None:
        """Nobody waits for it any more."""
        self._asked.pop(question.reference, None)


class Question:
    def __init__(self, reference: int, frame: list[Buffer]) -> None:
        self.reference, self.frame = reference, frame
        self._answered = trio.Event()
        self._value: object = None
        self._body: Buffer = b""

    def answer(self, value: object, body: Buffer) -> None:
        self._value, self._body = value, body
        self._answered.set()

    async def wait(self) -> tuple[Any, Buffer]:
        """
        Raises:
            DuckrowError: the answer is one.
        """
        await self._answered.wait()
        if isinstance(self._value, DuckrowError):
            raise self._value
        return self._value, self._body
