"""The blocking client: plain sockets, no tasks, no threads of its own; the fastest of the three.

    with duckrow.connect() as row:
        print(row.produce("rides", b"one").number)

Several threads may share one.  After a fork the child is a new producer with a connection of its
own.  What was produced with `wait="none"` goes out with the calls that follow, and all of it before
`close` returns.  How bytes come and go is in blockingline.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from . import asks
from .addresses import Address
from .archivepull import FollowingThrough, Pulling, Through, Where
from .asks import PULL_BYTES, PULL_ENTRIES, TIMEOUT, Following, Wish
from .blockingline import Line
from .blockingreads import Between, Follow, FollowThrough, Watch
from .blockingstages import Name, Staging
from .clientcalls import Receipt, Receipts
from .columns import HeadersLike
from .entries import Entries
from .errors import DuckrowError, NoQuorum
from .limits import CLIENT_BYTES_MAX
from .parts import Text
from .topicinfo import Pin, Pinned, TopicInfo
from .unwatched import Unwatched

__all__ = ["TIMEOUT", "Client"]

T = TypeVar("T")


class Client:
    """See the module; made by `duckrow.connect`."""

    def __init__(
        self, addresses: Sequence[Address], *, name: str = "", token: str = "", timeout: float
    ) -> None:
        line = self._line = Line(addresses, name=name, token=token)
        self._timeout = timeout
        self._unwatched = Unwatched()  # of wait="none"
        self._process = line.process
        self._through: Through | None = None

    # -- producing --------------------------------------------------------------------------------

    def produce(
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
        return self._receipt_of(self._do(wish) if wait != "none" else self._unwatched_of(wish))

    def produce_many(
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
        return self._do(wish) if wait != "none" else self._unwatched_of(wish)

    def flush(self, timeout: float | None = None) -> None:
        """Waits until everything that was produced with `wait="none"` has its answer.

        Raises:
            DuckrowError: the first thing that went wrong with it.
            Timeout: not all of it has one yet; nothing is given up, and it goes on.
        """
        deadline = self._line.deadline(self._timeout if timeout is None else timeout)
        self._forget_the_parents()
        if not self._line.wait_until(self._unwatched, deadline):
            raise self._line.too_late(asks.still_waits(len(self._unwatched)))
        self._unwatched.check()

    def receipt(self, receipt: str | Receipt, *, timeout: float | None = None) -> Receipt:
        """What became of an accepted entry; without a number it waits for room, or for its machine to
        reach the others.

        Raises:
            DuckrowError: it was refused, or nothing is known of it.
        """
        return self._receipt_of(self._do(asks.receipt(receipt, timeout, wait=False)))

    # -- reading ------------------------------------------------------------------------------------

    def pull(
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
            return self._pulled(self._archives().pull(Where.of(*where, archive=archive)))
        return self._do(asks.pull(*where, kept=kept))

    def pins(self) -> Pinned:
        """The partitions that have an archive, and what of them only this node still has."""
        found, more = self._do(asks.pins())
        while more:
            page, more = self._do(asks.pins(found.pins[-1]))
            found.pins.extend(page.pins)
        return found

    def unpin(
        self, pin: Pin | None, safe: int = 0, *, place: str, trouble: str = "", archive: str = ""
    ) -> None:
        """The archive at `place` has that partition up to `safe`: the node need not keep it.

        Raises:
            NotFound, Conflict, Refused: the topic is gone, another one, or not as far; or the node
                has another archiver.
        """
        self._do(asks.unpin(pin, safe, place, trouble, archive))

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
            through = FollowingThrough(self._archives(), topic, after, partition, place)
            return FollowThrough(self._line, through, self._timeout, self._pulled)
        return Follow(self._line, Following(topic, after, partition), self._timeout)

    def between(
        self,
        topic: str,
        first: int,
        last: int,
        *,
        partition: int = 0,
        max_bytes: int = PULL_BYTES,
        topic_id: int = 0,
        timeout: float | None = None,
        kept: bool = False,
    ) -> Between:
        """Entries `first` to `last` of a partition, a pull after the other; the next one is on its way
        while one is looked at.  What was pruned is left out; what is not there yet is waited for.
        """
        seconds = self._timeout if timeout is None else timeout
        where = topic, partition, topic_id, max_bytes
        return Between(self._line, where, first, last, seconds, kept=kept)

    def watch(self) -> Watch:
        """Waits for news of several topics at once."""
        return Watch(self._line)

    # -- jobs -----------------------------------------------------------------------------------------

    def staging(self, writer: bytes, batch: int, *, task: int = 0) -> Staging:
        """Hands over entries that get their numbers together, by `commit`."""
        return Staging(self._line, self._timeout, writer, batch, task)

    def commit(self, writer: bytes, batch: int, stages: Sequence[Name]) -> int:
        """Numbers what these names stand for, in this order: all of it, and once for each writer and
        batch, whoever asks how often.  How many entries there are.

        Raises:
            Exists: the writer has committed a later batch.
            Full: there is no room for all; nothing was numbered, and it can be tried again.
            Refused: a stage is gone, or of another batch; nothing was numbered.
        """
        return self._do(asks.commit(writer, batch, stages))

    # -- topics ---------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        found, more = self._do(asks.topics())
        while more:
            page, more = self._do(asks.topics(found[-1]))
            found += page
        return found

    def topic(self, name: str) -> TopicInfo:
        """What it is and holds.

        Raises:
            NotFound: there is no such topic.
        """
        return self._do(asks.topic(name))

    def create_topic(self, name: str, **policy: Any) -> TopicInfo:
        """A topic with a policy: `max_age` in seconds, `max_entries`, `partitions` and so on.

        Raises:
            Exists: there is one of that name.
            Refused: the name, or the policy.
        """
        self._do(asks.create_topic(name, policy))
        return self.topic(name)

    def set_topic(self, name: str, **policy: Any) -> TopicInfo:
        """Changes what is named and nothing else; None brings a default back.

        Raises:
            NotFound: there is no such topic.
            Refused: the policy.
        """
        self._do(asks.set_topic(name, policy))
        return self.topic(name)

    def delete_topic(self, name: str) -> None:
        """With all its entries, and for good.

        Raises:
            NotFound: there is no such topic.
        """
        self._do(asks.delete_topic(name))

    def prune(self, topic: str, upto: int, *, partition: int = 0) -> None:
        """All entries up to this number go.

        Raises:
            NotFound: there is no such topic or partition.
        """
        self._do(asks.prune(topic, upto, partition))

    # -- the node ---------------------------------------------------------------------------------------

    def barrier(self, timeout: float | None = None) -> int:
        """Waits until everything that was ordered before is applied here; the position."""
        return self._do(asks.barrier(timeout))

    def status(self) -> dict[str, Any]:
        """What the node says of itself, as `duckrow status` shows it."""
        return self._do(asks.status())

    def digest(self, position: int) -> bytes:
        """Of the row up to and with a position: the same on every node, or their rows differ.

        Raises:
            NotFound, Corrupt, Refused: it is not known there, any more or yet.
        """
        return self._do(asks.digest(position))

    def members(self, what: str = "members", **asked: Any) -> dict[str, Any]:
        """Who votes; or changes that, as `duckrow member` does: `what` is one of its verbs.

        Raises:
            Refused, NoQuorum, Timeout: it is not to be had; says why.
        """
        return self._do(asks.members(what, asked))

    def clients(self) -> list[dict[str, Any]]:
        """All sessions of the node."""
        found, more = self._do(asks.clients())
        while more:
            page, more = self._do(asks.clients(found[-1]["id"]))
            found += page
        return found

    def close(self, timeout: float | None = None) -> None:
        """Waits for what was produced with `wait="none"`, and hangs up.

        Raises:
            DuckrowError: something that was produced with `wait="none"` went wrong.
        """
        if self._line.is_closed:
            return
        try:
            self.flush(timeout)
        finally:
            self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except DuckrowError:
            pass  # what broke first is on its way already

    # -- calls ------------------------------------------------------------------------------------------

    def _do(self, wish: Wish[T]) -> T:
        line = self._line
        seconds = self._timeout if wish.timeout is None else wish.timeout
        deadline = line.deadline(seconds + wish.wait)
        found: T = line.wait(line.begin(wish.make), deadline)
        return found if wish.read is None else wish.read(found)

    def _pulled(self, pulling: Pulling) -> Entries:
        """Does what a pull through the archive asks for."""
        try:
            step = next(pulling)
            while True:
                step = pulling.send(self._do(step) if isinstance(step, Wish) else step())
        except StopIteration as done:
            found: Entries = done.value
            return found

    def _archives(self) -> Through:
        if self._through is None:
            self._through = Through()
        return self._through

    def _unwatched_of(self, wish: Wish[T]) -> T:
        """Of a produce that nobody waits for."""
        line = self._line
        self._forget_the_parents()
        # First, so that what is raised here never leaves behind what may be written all the same.
        if line.unsent_bytes > CLIENT_BYTES_MAX:
            seconds = self._timeout if wish.timeout is None else wish.timeout
            if not line.wait_for_room(CLIENT_BYTES_MAX, line.deadline(seconds)):
                raise NoQuorum(asks.NO_ROOM)
        self._unwatched.check()
        self._unwatched.add(line.begin(wish.make))
        line.advance()
        return None  # type: ignore[return-value]  # nothing is known of it

    def _forget_the_parents(self) -> None:
        """After a fork: what the parent has produced is the parent's to send."""
        if self._process != self._line.own_process():
            self._process = self._line.process
            self._unwatched = Unwatched()

    def _receipt_of(self, receipt: Receipt | None) -> Receipt:
        if receipt is not None:
            receipt.ask = self._ask_again
        return receipt  # type: ignore[return-value]  # None: with wait="none"

    def _ask_again(self, receipt: Receipt) -> Receipt:
        return self._receipt_of(self._do(asks.receipt(receipt, None, wait=True)))
