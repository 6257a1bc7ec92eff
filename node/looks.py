"""Looks: what followers at the same place are shown is found, and written down, once.

    50 followers woken by one batch ──► the first looks ──► kept until the next item
                                        the other 49 ─────► the same fields, the same bodies

Only the last look is kept, and only if it found something, so it holds no more than one answer.  At
the same position of its reader the same question has the same answer.
"""

from __future__ import annotations

from typing import NamedTuple

import attrs

from . import requests
from .env import Buffer
from .pulled import Pulled
from .reading import Pull, Reader


class Look(NamedTuple):
    pulled: Pulled
    onward: Pull  # what comes behind it
    fields: bytes  # of the answer, without its reference and outcome
    body: list[Buffer]
    size: int  # of the body


class Looks:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._pull: Pull | None = None
        self._position = -1
        self._look: Look | None = None

    async def look(self, pull: Pull) -> Look:
        """What there is now; comes to no checkpoint if that is nothing.

        Raises:
            DuckrowError: see `Reader.pull`.
        """
        position = self._reader.position
        if self._look is not None and position == self._position and pull == self._pull:
            return self._look
        look = look_of(pull, await self._reader.pull(pull))
        if look.pulled.batches:
            self._pull, self._position, self._look = pull, position, look
        return look


def look_of(pull: Pull, pulled: Pulled) -> Look:
    fields, body = requests.encode_found(pulled)
    topic_id = pulled.topic_id or pull.topic_id
    onward = attrs.evolve(pull, after=pulled.after, topic_id=topic_id)
    return Look(pulled, onward, fields, body, sum(map(len, body)))
