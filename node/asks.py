"""What a user may ask for, the same for the blocking, the trio and the asyncio client.

A *wish* says how to make the call, how long it may take, and what its value means to the user.  A
client of either kind does wishes; its methods are nothing but their names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from . import cursors, makers, policies
from .clientcalls import Call, Receipt, ReceiptName, Receipts
from .clientcore import ClientCore
from .columns import HeadersLike
from .entries import Entries
from .errors import Refused
from .limits import MIB, NUMBER_LIMIT, PULL_BYTES_MAX
from .names import check_topic_name
from .parts import Text
from .requests import Ask, Verb
from .topicinfo import Pin, Pinned, TopicInfo, in_row, is_number

TIMEOUT: Final = 10.0  # seconds, of a call
PULL_ENTRIES: Final = 1_000
PULL_BYTES: Final = 1 * MIB
FOLLOW_ENTRIES: Final = 65_536  # of one answer; its bytes are the limit that counts
WAIT_SECONDS_MAX: Final = 1e9  # thirty years: more than that no clock here adds to its time
FOLLOW_SECONDS: Final = 30.0  # then an idle follow asks again

NO_ROOM: Final = "too much waits to be sent, and this was not taken: produce it again later"

_WAITS: Final = ("ordered", "accepted", "none")

T = TypeVar("T")


class Wish(Generic[T]):
    __slots__ = ("make", "read", "timeout", "wait")

    def __init__(
        self,
        make: Callable[[ClientCore], Call],
        read: Callable[[Any], T] | None = None,
        *,
        timeout: float | None = None,
        wait: float = 0.0,
    ) -> None:
        self.make = make
        self.read = read  # None: the value is what the user gets
        self.timeout = timeout  # None: that of the client
        self.wait = wait  # more seconds than that, because the node is to wait


def check_wait(wait: str) -> None:
    """
    Raises:
        Refused: nobody can wait for that.
    """
    if wait not in _WAITS:
        raise Refused(f"wait={wait!r}: it is 'ordered', 'accepted' or 'none'", wait=wait)


def still_waits(count: int) -> str:
    """What a flush adds to its error."""
    return f"; {count:,} that nobody waits for have none yet"


def produce(
    topic: str,
    value: Text,
    key: Text | None,
    headers: HeadersLike,
    partition: int | None,
    wait: str,
    id_: Text | None,
    expect_last: int | None,
    timeout: float | None,
) -> Wish[Receipt]:
    if wait not in _WAITS:
        check_wait(wait)
    return Wish(
        lambda core: core.produce(
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            id_=id_,
            expect_last=expect_last,
            accepted=wait == "accepted",
        ),
        timeout=timeout,
    )


def produce_many(
    topic: str,
    values: Sequence[Text],
    keys: Sequence[Text | None] | None,
    headers: Sequence[HeadersLike] | None,
    partition: int | None,
    wait: str,
    timeout: float | None,
) -> Wish[Receipts]:
    check_wait(wait)
    return Wish(
        lambda core: core.produce_many(
            topic,
            values,
            keys=keys,
            headers=headers,
            partition=partition,
            accepted=wait == "accepted",
        ),
        timeout=timeout,
    )


def receipt(asked: str | Receipt, timeout: float | None, *, wait: bool) -> Wish[Receipt]:
    name = asked.name if isinstance(asked, Receipt) else ReceiptName.parse(asked)
    return Wish(lambda core: core.receipt(name, wait=wait), timeout=timeout)


def pull(
    topic: str,
    after: object,
    partition: int | None,
    limit: int,
    max_bytes: int,
    wait: float,
    topic_id: int,
    timeout: float | None,
    *,
    kept: bool = False,
) -> Wish[Entries]:
    check_topic_name(topic)  # it would be empty for ever
    makers.check_whole("limit of a pull", limit, 1)
    makers.check_whole("max_bytes of a pull", max_bytes, 1, PULL_BYTES_MAX)
    makers.check_whole("the partition", 0 if partition is None else partition)
    makers.check_whole("topic_id", topic_id)
    if not wait >= 0:  # nor is it "not a number"
        raise Refused(f"wait={wait}: it is 0 or more", what="wait", value=wait, least=0)
    wait, where = min(wait, WAIT_SECONDS_MAX), cursors.read(after)
    ask = Ask(topic, where, partition, topic_id, limit, max_bytes, int(wait * 1e6))
    return Wish(lambda core: core.pull(ask, kept=kept), timeout=timeout, wait=wait)


class Following:
    """Where a follow stands; the next pull goes out before its entries are looked at."""

    kept = False  # also what is pruned, and pinned for the archive

    def __init__(self, topic: str, after: object, partition: int | None) -> None:
        self._topic, self._partition, self._topic_id = topic, partition, 0
        self._after = cursors.read(after)

    def wish(self) -> Wish[Entries]:
        return pull(
            self._topic,
            self._after,
            self._partition,
            FOLLOW_ENTRIES,
            PULL_BYTES,
            FOLLOW_SECONDS,
            self._topic_id,
            None,
            kept=self.kept,
        )

    def takes(self, found: Entries) -> bool:
        """False: these are not the next ones, which have to be asked for in another way."""
        self.took(found)
        return True

    def took(self, found: Entries) -> None:
        self._after = found.after
        self._topic_id = found.topic_id or self._topic_id


def topics(after: str = "") -> Wish[tuple[list[str], bool]]:
    """A page of the names behind that one, and whether others follow."""
    return Wish(
        lambda core: core.ask(Verb.TOPICS, after),
        lambda fields: ([row[0] for row in fields[0]], bool(fields[1])),
    )


def topic(name: str) -> Wish[TopicInfo]:
    return Wish(lambda core: core.ask(Verb.TOPIC, name), lambda fields: TopicInfo.of(name, fields))


def pins(after: Pin | None = None) -> Wish[tuple[Pinned, bool]]:
    """A page of them, and whether others follow."""
    last = (after.topic, after.partition) if after else ()

    def read(fields: Sequence[Any]) -> tuple[Pinned, bool]:
        rows, more, *about = fields[:5]
        return Pinned([Pin(*row[: len(Pin._fields)]) for row in rows], *about), bool(more)

    return Wish(lambda core: core.ask(Verb.PINS, *last), read)


def unpin(pin: Pin | None, safe: int, place: str, trouble: str, archive: str) -> Wish[None]:
    what = (pin.topic, pin.topic_id, pin.partition) if pin else ("", 0, 0)
    return Wish(
        lambda core: core.ask(Verb.UNPIN, *what, safe, place, trouble, archive),
        lambda _fields: None,
    )


def create_topic(name: str, policy: dict[str, Any]) -> Wish[None]:
    values = _checked(policy)
    return _order(lambda turn: makers.create(turn, name, values))


def set_topic(name: str, policy: dict[str, Any]) -> Wish[None]:
    values = _checked(policy)
    return _order(lambda turn: makers.configure(turn, name, values))


def delete_topic(name: str) -> Wish[None]:
    return _order(lambda turn: makers.delete(turn, name))


def prune(name: str, upto: int, partition: int) -> Wish[None]:
    return _order(lambda turn: makers.prune(turn, name, upto, partition=partition))


def commit(writer: bytes, batch: int, stages: Sequence[tuple[int, int]]) -> Wish[int]:
    return Wish(
        lambda core: core.order(lambda turn: makers.commit(turn, writer, batch, stages)),
        lambda result: int(result.count),
    )


def barrier(timeout: float | None) -> Wish[int]:
    return Wish(
        lambda core: core.order(makers.barrier),
        lambda result: int(result.position),
        timeout=timeout,
    )


def status() -> Wish[dict[str, Any]]:
    return Wish(lambda core: core.ask(Verb.STATUS), lambda fields: dict(fields[0]))


def digest(position: int) -> Wish[bytes]:
    makers.check_whole("the position", position)
    return Wish(lambda core: core.ask(Verb.DIGEST, position), lambda fields: bytes(fields[0]))


def members(what: str, asked: dict[str, Any]) -> Wish[dict[str, Any]]:
    return Wish(
        lambda core: core.ask(Verb.MEMBER, {"what": what, **asked}),
        lambda fields: dict(fields[0]),
        wait=asked.get("seconds", 0.0),
    )


def clients(after: int = 0) -> Wish[tuple[list[dict[str, Any]], bool]]:
    """A page of the sessions behind the one with that id, and whether others follow."""
    return Wish(
        lambda core: core.ask(Verb.CLIENTS, after),
        lambda fields: (list(fields[0]), bool(fields[1])),
    )


def _order(make: Callable[[makers.Turn], Any]) -> Wish[None]:
    return Wish(lambda core: core.order(make), lambda _result: None)


def _checked(policy: dict[str, Any]) -> dict[str, Any]:
    """A policy as the row has it.  The row would say which field cannot be, and no more.

    Raises:
        Refused: it cannot be; says what can.
    """
    age = policy.get("max_age")
    if age is not None and not (is_number(age) and 0 <= age < NUMBER_LIMIT / 1e6):
        raise Refused(
            f"max_age is {age!r:.60}, and it has to be a number of seconds", policy="max_age"
        )
    values = in_row(policy)
    try:
        policies.changed(policies.DEFAULT, values)
    except policies.Unfit as unfit:
        raise Refused(str(unfit), **unfit.values()) from None
    return values
