"""The names of the trio and the asyncio client: those of the blocking one, as coroutines.

async with duckrow.trio.connect() as row:
    receipt = await row.produce("rides", b"one")
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from . import asks
from .archivepull import FollowingThrough, Where
from .asks import PULL_BYTES, PULL_ENTRIES, Following
from .asyncfollow import Follow, FollowThrough
from .asyncline import AsyncLine
from .clientcalls import Receipt, Receipts
from .columns import HeadersLike
from .entries import Entries
from .errors import Disconnected
from .parts import Text
from .topicinfo import Pin, Pinned, TopicInfo


class AsyncClient(AsyncLine):
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            self._closed = True
            self._core.fail(Disconnected("this client was closed"))
            await self._end()

    # -- producing --------------------------------------------------------------------------------

    async def produce(
        self,
        topic: str,
        value: Text,
        *,
        key: Text | None = None,
        headers: HeadersLike = None,
        partition: int | None = None,
        wait: str = "ordered",
        id: Text | None = None,  # noqa: A002 - the name is a contract
        expect_last: int | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """One entry; `wait` is "ordered", "accepted" or "none".

        Raises:
            Full, NoQuorum: certainly not written.
            Refused, Conflict, NotFound: it cannot be, and was not written.
            Timeout: it may or may not be there.
        """
        wish = asks.produce(topic, value, key, headers, partition, wait, id, expect_last, timeout)
        receipt = await self._produced(wish, wait)
        return self._receipt_of(receipt)

    async def produce_many(
        self,
        topic: str,
        values: Sequence[Text],
        *,
        keys: Sequence[Text | None] | None = None,
        headers: Sequence[HeadersLike] | None = None,
        partition: int | None = None,
        wait: str = "ordered",
        timeout: float | None = None,
    ) -> Receipts:
        """As `produce`; the entries of a partition keep their order.

        Raises:
            DuckrowError: see `produce`; says how many were written all the same.
        """
        wish = asks.produce_many(topic, values, keys, headers, partition, wait, timeout)
        return await self._produced(wish, wait)

    async def flush(self, timeout: float | None = None) -> None:
        """Waits until everything that was produced with `wait="none"` has its answer.

        Raises:
            DuckrowError: the first thing that went wrong with it.
            Timeout: not all of it has one yet; nothing is given up, and it goes on.
        """
        deadline = self._now() + (self._timeout if timeout is None else timeout)
        await self._pass()
        while not self._unwatched.done:
            if self._now() >= deadline:
                raise self._too_late(asks.still_waits(len(self._unwatched)))
            await self._wait_until_received(deadline - self._now())
        self._unwatched.check()

    async def receipt(self, receipt: str | Receipt, *, timeout: float | None = None) -> Receipt:
        """What became of an accepted entry; without a number it waits for room, or for its machine to
        reach the others.

        Raises:
            DuckrowError: it was refused, or nothing is known of it.
        """
        found = await self._do(asks.receipt(receipt, timeout, wait=False))
        return self._receipt_of(found)

    # -- reading ------------------------------------------------------------------------------------

    async def pull(
        self,
        topic: str,
        after: object = 0,
        *,
        partition: int | None = None,
        limit: int = PULL_ENTRIES,
        max_bytes: int = PULL_BYTES,
        wait: float = 0,
        topic_id: int = 0,
        timeout: float | None = None,
        kept: bool = False,
        archive: bool | str = False,
    ) -> Entries:
        """Entries from the one behind `after` on; none after `wait` seconds is no error.

        With `kept` also those that are pruned, and that the node keeps for the archive.  With `archive`
        all that was ever pruned, from the files of the archive: True, where the node says that it is;
        a text, there.

        Raises:
            NotFound: there is no such partition.
            Conflict: the topic is another one than `topic_id` says.
            Damaged: the next entries cannot be read.
            Timeout: no answer came.
        """
        where = topic, after, partition, limit, max_bytes, wait, topic_id, timeout
        if archive:
            return await self._pulled(self._archives().pull(Where.of(*where, archive=archive)))
        return await self._do(asks.pull(*where, kept=kept))

    async def pins(self) -> Pinned:
        """The partitions that have an archive, and what of them only this node still has."""
        found, more = await self._do(asks.pins())
        while more:
            page, more = await self._do(asks.pins(found.pins[-1]))
            found.pins.extend(page.pins)
        return found

    async def unpin(
        self, pin: Pin | None, safe: int = 0, *, place: str, trouble: str = "", archive: str = ""
    ) -> None:
        """The archive at `place` has that partition up to `safe`: the node need not keep it.

        Raises:
            NotFound, Conflict, Refused: the topic is gone, another one, or not as far; or the node
                has another archiver.
        """
        await self._do(asks.unpin(pin, safe, place, trouble, archive))

    def follow(
        self,
        topic: str,
        after: object = 0,
        *,
        partition: int | None = None,
        archive: bool | str = False,
    ) -> Follow:
        """Entries for ever, in the order of the row; the next ones are fetched meanwhile.

        With `archive` from the first one that is in the archive, as in `pull`.
        """
        if archive:
            place = archive if isinstance(archive, str) else ""
            return FollowThrough(
                self, FollowingThrough(self._archives(), topic, after, partition, place)
            )
        return Follow(self, Following(topic, after, partition))

    # -- topics ---------------------------------------------------------------------------------------

    async def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        found, more = await self._do(asks.topics())
        while more:
            page, more = await self._do(asks.topics(found[-1]))
            found += page
        return found

    async def topic(self, name: str) -> TopicInfo:
        """What it is and holds.

        Raises:
            NotFound: there is no such topic.
        """
        return await self._do(asks.topic(name))

    async def create_topic(self, name: str, **policy: Any) -> TopicInfo:
        """A topic with a policy: `max_age` in seconds, `max_entries`, `partitions` and so on.

        Raises:
            Exists: there is one of that name.
            Refused: the name, or the policy.
        """
        await self._do(asks.create_topic(name, policy))
        return await self.topic(name)

    async def set_topic(self, name: str, **policy: Any) -> TopicInfo:
        """Changes what is named and nothing else; None brings a default back.

        Raises:
            NotFound: there is no such topic.
            Refused: the policy.
        """
        await self._do(asks.set_topic(name, policy))
        return await self.topic(name)

    async def delete_topic(self, name: str) -> None:
        """With all its entries, and for good.

        Raises:
            NotFound: there is no such topic.
        """
        await self._do(asks.delete_topic(name))

    async def prune(self, topic: str, upto: int, *, partition: int = 0) -> None:
        """All entries up to this number go.

        Raises:
            NotFound: there is no such topic or partition.
        """
        await self._do(asks.prune(topic, upto, partition))

    # -- the node ---------------------------------------------------------------------------------------

    async def barrier(self, timeout: float | None = None) -> int:
        """Waits until everything that was ordered before is applied here; the position."""
        return await self._do(asks.barrier(timeout))

    async def status(self) -> dict[str, Any]:
        """What the node says of itself, as `duckrow status` shows it."""
        return await self._do(asks.status())

    async def digest(self, position: int) -> bytes:
        """Of the row up to and with a position: the same on every node, or their rows differ.

        Raises:
            NotFound, Corrupt, Refused: it is not known there, any more or yet.
        """
        return await self._do(asks.digest(position))

    async def members(self, what: str = "members", **asked: Any) -> dict[str, Any]:
        """Who votes; or changes that, as `duckrow member` does: `what` is one of its verbs.

        Raises:
            Refused, NoQuorum, Timeout: it is not to be had; says why.
        """
        return await self._do(asks.members(what, asked))

    async def clients(self) -> list[dict[str, Any]]:
        """All sessions of the node."""
        found, more = await self._do(asks.clients())
        while more:
            page, more = await self._do(asks.clients(found[-1]["id"]))
            found += page
        return found
