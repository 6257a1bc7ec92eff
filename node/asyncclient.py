"""The names of the trio and the asyncio client: those of the blocking one, as coroutines.

    async with duckrow.trio.connect() as row:
        receipt = await row.produce("rides", b"one")

What a library does in its own way is below, without a body: waiting for a call, and sending.
"""

from __future__ import annotations

import os
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar

from . import asks
from .addresses import Address
from .archivepull import FollowingThrough, Pulling, Through, Where
from .asks import FOLLOW_SECONDS, PULL_BYTES, PULL_ENTRIES, Following, Wish
from .clientcalls import Call, Receipt, Receipts
from .clientcore import ClientCore
from .columns import HeadersLike
from .commands import PID_BYTES
from .entries import Entries, Entry
from .errors import Disconnected, DuckrowError, NoQuorum, Timeout
from .limits import CLIENT_BYTES_MAX
from .parts import Text
from .topicinfo import Pin, Pinned, TopicInfo

RECEIVE_BYTES: Final = 256 * 1024
HELLO_SECONDS: Final = 5.0  # of a node that took the connection
DIAL_SECONDS: Final = 0.9  # of each of several addresses

T = TypeVar("T")


class AsyncClient(ABC):
    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        name: str = "",
        token: str = "",
        timeout: float,
        rng: random.Random | None = None,  # with `wall_us`: of a simulated machine
        wall_us: Callable[[], int] | None = None,
    ) -> None:
        self._addresses, self._timeout = tuple(addresses), timeout
        self._rng = rng or random.Random(os.urandom(32))
        self._core = ClientCore(
            self._rng.randbytes(PID_BYTES), wall_us=wall_us or _wall_us, name=name, token=token
        )
        self._closed = True
        self._next_address = 0
        self._trouble: Exception | None = None
        self._unwatched: dict[Call, None] = {}  # of wait="none"
        self._errors: list[DuckrowError] = []
        self._through: Through | None = None

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
        """
        deadline = self._now() + (self._timeout if timeout is None else timeout)
        while self._unwatched:
            try:
                await self._result(next(iter(self._unwatched)), deadline - self._now())
            except DuckrowError:
                break  # it is among the errors
        self._raise_unwatched()

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

    # -- calls ------------------------------------------------------------------------------------------

    async def _do(self, wish: Wish[T]) -> T:
        seconds = self._timeout if wish.timeout is None else wish.timeout
        found: T = await self._result(self._begin(wish.make), seconds + wish.wait)
        return found if wish.read is None else wish.read(found)

    async def _pulled(self, pulling: Pulling) -> Entries:
        """Does what a pull through the archive asks for; files are read in a thread."""
        try:
            step = next(pulling)
            while True:
                found = await (self._do(step) if isinstance(step, Wish) else self._in_thread(step))
                step = pulling.send(found)
        except StopIteration as done:
            entries: Entries = done.value
            return entries

    def _archives(self) -> Through:
        if self._through is None:
            self._through = Through()
        return self._through

    async def _produced(self, wish: Wish[T], wait: str) -> T:
        if wait != "none":
            return await self._do(wish)
        call = self._begin(wish.make)
        if not call.done:
            self._unwatched[call] = None
            call.on_done = lambda: self._note_unwatched(call)
        deadline = self._now() + (self._timeout if wish.timeout is None else wish.timeout)
        await self._pass()
        while self._core.unsent_bytes > CLIENT_BYTES_MAX:
            if self._now() > deadline:
                raise NoQuorum("too much waits to be sent; nothing of what was given is lost yet")
            await self._wait_until_received(deadline - self._now())
        self._raise_unwatched()
        return None  # type: ignore[return-value]  # nothing is known of it

    def _begin(self, make: Callable[[ClientCore], Call]) -> Call:
        """
        Raises:
            Refused, TypeError: it could never be.
            Disconnected: the client is not open.
        """
        if self._closed:
            raise Disconnected("this client is not open: use `async with`")
        call = make(self._core)
        self._kick()
        return call

    def _give_up(self, call: Call) -> None:
        if not call.done:
            where = " or ".join(map(str, self._addresses))
            why = self._core.trouble(self._trouble)
            self._core.give_up(
                call, Timeout(f"no answer came in time from {where}{why}", node=where)
            )
            self._kick()

    def _note_unwatched(self, call: Call) -> None:
        self._unwatched.pop(call, None)
        if call.error is not None:
            self._errors.append(call.error)

    def _raise_unwatched(self) -> None:
        if self._errors:
            errors, self._errors = self._errors, []
            raise errors[0]

    def _receipt_of(self, receipt: Receipt | None) -> Receipt:
        async def ask(asked: Receipt) -> Receipt:
            found = await self._do(asks.receipt(asked, None, wait=True))
            return self._receipt_of(found)

        if receipt is not None:
            receipt.ask = ask
        return receipt  # type: ignore[return-value]  # None: with wait="none"

    def _next(self) -> tuple[Address, float]:
        """The address to try, and for how long."""
        address = self._addresses[self._next_address % len(self._addresses)]
        return address, DIAL_SECONDS if len(self._addresses) > 1 else HELLO_SECONDS

    def _lost(self, error: Exception) -> None:
        self._trouble = error
        self._next_address += 1
        self._core.lost()

    # -- to be done by each library in its way --------------------------------------------------------

    @abstractmethod
    async def _end(self) -> None:
        """Its tasks and its connection."""

    @abstractmethod
    def _now(self) -> float:
        """Seconds, of a clock that never jumps."""

    @abstractmethod
    async def _result(self, call: Call, seconds: float) -> Any:
        """Waits until the call is done, and gives it up when the time is over or on a cancel.

        Raises:
            DuckrowError: what went wrong with it.
        """

    @abstractmethod
    async def _in_thread(self, job: Callable[[], Any]) -> Any:
        """Does what blocks."""

    @abstractmethod
    async def _pass(self) -> None:
        """Lets others run."""

    @abstractmethod
    async def _wait_until_received(self, seconds: float) -> None:
        """Until something came, or the time is over."""

    @abstractmethod
    def _kick(self) -> None:
        """There may be something to send."""


class Follow(AsyncIterator[Entry]):
    """Entries for ever.  Cancelled and awaited again, it goes on where it was."""

    def __init__(self, client: AsyncClient, following: Following) -> None:
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

    def __init__(self, client: AsyncClient, following: FollowingThrough) -> None:
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


def _wall_us() -> int:
    return time.time_ns() // 1000
