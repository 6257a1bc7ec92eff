"""What a blocking client reads piece by piece: for ever, or as far as it was told; or waits for.

    Follow           entries for ever
    FollowThrough    the same, through the archive
    Between          entries 40,001 to 90,000 of a partition, as pulls
    Watch            which of these topics have something behind these numbers

While what came is looked at, the next pull is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from . import asks
from .archivepull import FollowingThrough, Pulling
from .asks import FOLLOW_ENTRIES, FOLLOW_SECONDS, Following
from .blockingline import Line
from .clientcalls import Call
from .cursors import Cursor
from .entries import Entries, Entry
from .errors import Timeout

Where = tuple[str, int | None]  # a topic, and a partition or all of them
STANDING_SECONDS: Final = 30.0  # of a pull that waits for news; then it is asked again


class Follow(Iterator[Entry]):
    """Entries for ever.  Interrupted and asked again, it goes on where it was."""

    def __init__(self, line: Line, following: Following, timeout: float) -> None:
        self._line, self._following, self._timeout = line, following, timeout
        self._call: Call | None = None
        self._entries: Iterator[Entry] = iter(())

    def __iter__(self) -> Iterator[Entry]:  # noqa: PYI034 - what is quicker than itself
        """For loops: no Python runs for a single entry."""
        while True:
            yield from self._entries
            self._fetch()

    def __next__(self) -> Entry:
        """
        Raises:
            Conflict: the topic is another one now.
        """
        while True:
            for entry in self._entries:
                return entry
            self._fetch()

    def close(self) -> None:
        """The next entries are not fetched any more; what was fetched stays."""
        call, self._call = self._call, None
        if call is not None:
            self._line.give_up(call)

    def _fetch(self) -> None:
        line = self._line
        call = self._call or self._ask()
        self._call = None  # whatever comes now, it is not asked twice
        try:
            found: Entries = line.wait(call, line.deadline(self._timeout + FOLLOW_SECONDS))
        except Timeout:
            return
        if not self._following.takes(found):
            return
        self._call = self._ask()
        line.advance()
        self._entries = iter(found)

    def _ask(self) -> Call:
        return self._line.begin(self._following.wish().make)


class FollowThrough(Follow):
    """As long as it is behind, each pull goes through the archive, and there is none under way."""

    def __init__(
        self,
        line: Line,
        following: FollowingThrough,
        timeout: float,
        pulled: Callable[[Pulling], Entries],
    ) -> None:
        super().__init__(line, following, timeout)
        self._through, self._pulled = following, pulled

    def _fetch(self) -> None:
        following = self._through
        if not following.is_behind:
            super()._fetch()
            return
        try:
            found = self._pulled(following.pulling())
        except Timeout:
            return
        following.took(found)
        self._entries = iter(found)


class Between(Iterator[Entries]):
    """See `Client.between`."""

    def __init__(
        self,
        line: Line,
        where: tuple[str, int, int, int],
        first: int,
        last: int,
        seconds: float,
        *,
        kept: bool,
    ) -> None:
        self._line, self._seconds, self._kept = line, seconds, kept
        self._topic, self._partition, self._topic_id, self._max_bytes = where
        self._done, self._last = first - 1, last
        self._call: Call | None = None

    def __next__(self) -> Entries:
        """
        Raises:
            Timeout: the next entry is not there, and did not come.
            Conflict: the topic is another one now.
        """
        while self._done < self._last:
            call = self._call or self._ask()
            self._call = None
            found: Entries = self._line.wait(call, self._line.deadline(2 * self._seconds))
            if not found.batches:
                if found.missing:  # all that was asked for is gone
                    self._done = max(self._done, min(self._last, found.first - 1))
                    continue
                raise Timeout(
                    f"topic {self._topic!r} partition {self._partition}: entry {self._done + 1:,} was "
                    f"waited for {self._seconds:g} s, and it ends with {found.last:,}"
                )
            self._topic_id = found.topic_id
            if found.batches[0].first > self._last:
                break  # what was asked for is gone
            self._done = found.batches[-1].last
            if self._done > self._last:  # some in the middle were gone
                found = _upto(found, self._last)
            if self._done < self._last:
                self._call = self._ask()
                self._line.advance()
            return found
        raise StopIteration

    def close(self) -> None:
        """The next entries are not fetched any more."""
        call, self._call = self._call, None
        if call is not None:
            self._line.give_up(call)

    def _ask(self) -> Call:
        wish = asks.pull(
            self._topic,
            self._done,
            self._partition,
            min(self._last - self._done, FOLLOW_ENTRIES),
            self._max_bytes,
            self._seconds,
            self._topic_id,
            None,
            kept=self._kept,
        )
        return self._line.begin(wish.make)


def _upto(found: Entries, last: int) -> Entries:
    batches = [
        batch.part(0, min(len(batch), last + 1 - batch.first))
        for batch in found.batches
        if batch.first <= last
    ]
    return Entries(batches, missing=found.missing, after=last, topic_id=found.topic_id)


class Watch:
    """A pull stands at each of the topics, and is asked again only when it has brought something, so
    that nobody is asked while nothing happens.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self._standing: dict[Where, tuple[dict[int, int], Call]] = {}

    def wait(self, done: Mapping[Where, Mapping[int, int]], seconds: float) -> list[Where]:
        """Where there are entries behind the last ones done, by partition; nowhere after so many
        seconds.  Of a whole topic, a partition that is not named counts from its first entry.
        """
        line = self._line
        for where in [where for where in self._standing if where not in done]:
            line.give_up(self._standing.pop(where)[1])
        calls = [self._call(where, dict(lasts)) for where, lasts in done.items()]
        line.wait_until(_Any(calls), line.deadline(seconds))
        return [where for where, (_, call) in self._standing.items() if call.done]

    def close(self) -> None:
        """Nobody waits any more."""
        self.wait({}, 0.0)

    def _call(self, where: Where, lasts: dict[int, int]) -> Call:
        standing = self._standing.get(where)
        if standing is not None:
            before, call = standing
            if before == lasts and not (call.done and _is_over(call)):
                return call
            self._line.give_up(call)
        topic, partition = where
        wish = asks.pull(topic, Cursor(lasts), partition, 1, 1, STANDING_SECONDS, 0, None)
        call = self._line.begin(wish.make)
        self._standing[where] = lasts, call
        return call


def _is_over(call: Call) -> bool:
    """It brought nothing: its time was over, or something went wrong."""
    return call.error is not None or not call.value


class _Any:
    """One of them is done."""

    def __init__(self, calls: list[Call]) -> None:
        self._calls = calls

    @property
    def done(self) -> bool:
        return any(call.done for call in self._calls)
