"""A follow of the trio and the asyncio client: entries for ever, the next ones fetched meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from .archivepull import FollowingThrough
from .asks import FOLLOW_SECONDS, Following
from .asyncline import AsyncLine
from .clientcalls import Call
from .entries import Entries, Entry
from .errors import Timeout


class Follow(AsyncIterator[Entry]):
    """Entries for ever.  Cancelled and awaited again, it goes on where it was."""

    def __init__(self, client: AsyncLine, following: Following) -> None:
        self._client, self._following = client, following
        self._call: Call | None = None
        self._entries: Iterator[Entry] = iter(())

    async def __anext__(self) -> Entry:
        """
        Raises:
            Conflict: the topic is another one now.
        """
        while True:
            for entry in self._entries:
                return entry
            await self._fetch()

    def close(self) -> None:
        """The next entries are not fetched any more; what was fetched stays."""
        call, self._call = self._call, None
        if call is not None:
            self._client._give_up(call)

    async def _fetch(self) -> None:
        client, seconds = self._client, self._client._timeout + FOLLOW_SECONDS
        call = self._call or self._ask()
        self._call = None  # whatever comes now, it is not asked twice
        try:
            found: Entries = await client._result(call, seconds)
        except Timeout:
            return
        if not self._following.takes(found):
            return
        self._call = self._ask()
        self._entries = iter(found)

    def _ask(self) -> Call:
        return self._client._begin(self._following.wish().make)


class FollowThrough(Follow):
    """As long as it is behind, each pull goes through the archive, and there is none under way."""

    def __init__(self, client: AsyncLine, following: FollowingThrough) -> None:
        super().__init__(client, following)
        self._through = following

    async def _fetch(self) -> None:
        following = self._through
        if not following.is_behind:
            await super()._fetch()
            return
        try:
            found = await self._client._pulled(following.pulling())
        except Timeout:
            return
        following.took(found)
        self._entries = iter(found)
