"""Policies of topics: reading them, and what they say about one partition.

All of them can be combined and changed while the topic runs:

    max_age         microseconds; entries go once the time of the row has come so far
    max_entries     how many a partition holds, exactly; pruning may cut inside a batch
    max_bytes       stored bytes of a partition; pruning goes by runs, and is never exceeded
    when_full       what max_entries and max_bytes mean to a batch that comes:
                    drop-oldest  it is numbered, and the oldest entries go
                    reject       it is answered FULL
                    block        it waits in the row until there is room, up to 64 of a lane
                    slot         the same, one of a lane
    partitions      how many; they only grow
    archive         span; entries go by whole spans of so many numbers, so that every node's
                    archive has the same files; the oldest span may then outstay the limits;
                    what went stays on each node's disk until its archive has it
    retention       limits; until-consumed needs groups
    delete          never; last-unsubscribe needs groups
    protect_groups, require_group     need groups

A batch is taken whole or not at all.  One that could not even fit alone is refused at once.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .effects import Reason, named
from .errors import Refused
from .limits import NUMBER_LIMIT, PARTITIONS_MAX

if TYPE_CHECKING:
    from .values import Partition


class WhenFull(enum.IntEnum):
    """The numbers are in snapshots: never reuse one."""

    DROP_OLDEST = 0
    REJECT = 1
    BLOCK = 2
    SLOT = 3


class Policy(NamedTuple):
    max_age: int = 0  # microseconds; 0 everywhere: without a limit
    max_entries: int = 0
    max_bytes: int = 0
    when_full: int = WhenFull.DROP_OLDEST
    partitions: int = 1
    archive: int = 0  # span; 0: no archive


DEFAULT: Final = Policy()

WHEN_FULL: Final = {
    "drop-oldest": WhenFull.DROP_OLDEST,
    "reject": WhenFull.REJECT,
    "block": WhenFull.BLOCK,
    "slot": WhenFull.SLOT,
}


class Unfit(Refused):
    """Raised when a field of a map of policies or settings cannot be; `field` counts from 1."""

    def __init__(self, reason: Reason, field: int, text: str) -> None:
        super().__init__(text, reason=named(reason), field=field)
        self.reason, self.field = reason, field


def changed(policy: Policy, changes: Mapping[str, Any]) -> Policy:
    """`policy` with what `changes` names; None brings a default back.

    The state refuses by reason and field; whoever asks before submitting has the text as well.

    Raises:
        Unfit: the first field that cannot be.
    """
    values: dict[str, int] = {}
    for field, (name, value) in enumerate(changes.items(), 1):
        if name in _NUMBERS:
            least, limit = _NUMBERS[name]
            if value is None:
                value = getattr(DEFAULT, name)
            elif type(value) is not int or not least <= value < limit:
                raise _bad(field, name, value, f"a whole number from {least:,} to {limit - 1:,}")
            values[name] = value
        elif name == "when_full":
            if value is not None and (type(value) is not str or value not in WHEN_FULL):
                raise _bad(field, name, value, "one of " + ", ".join(WHEN_FULL))
            values[name] = WHEN_FULL[value or "drop-oldest"]
        elif name in _RESERVED:
            if value is not None and value != _RESERVED[name]:
                text = f"{name} = {value!r} needs consumer groups, which this version lacks"
                raise Unfit(Reason.NEEDS_GROUPS, field, text)
        elif name == "create":
            raise _bad(field, name, value, "left to the settings of the cluster")
        else:
            known = ", ".join([*_NUMBERS, "when_full", *_RESERVED])
            raise Unfit(Reason.BAD_POLICY, field, f"there is no policy {name!r}; there are {known}")
    return policy._replace(**values)


def described(policy: Policy) -> dict[str, Any]:
    """As `changed` takes it; all of it."""
    names = {value: name for name, value in WHEN_FULL.items()}
    return {**policy._asdict(), "when_full": names[WhenFull(policy.when_full)]}


def too_large(policy: Policy, count: int, size: int) -> int:
    """The limit that a batch breaks all by itself; 0 if there is none."""
    if policy.max_bytes and size > policy.max_bytes:
        return policy.max_bytes
    if policy.when_full and policy.max_entries and count > policy.max_entries:
        return policy.max_entries
    return 0


def has_room(policy: Policy, partition: Partition, count: int, size: int) -> bool:
    """Whether the batch can be numbered now.  Dropping the oldest always makes room."""
    if not policy.when_full:
        return True
    entries = partition.last - partition.first + 1
    return not (policy.max_entries and entries + count > policy.max_entries) and not (
        policy.max_bytes and partition.size + size > policy.max_bytes
    )


def whole_spans(policy: Policy, first: int) -> int:
    """How far `first` may move towards the one that is wished for."""
    if policy.archive:
        return (first - 1) // policy.archive * policy.archive + 1
    return first


def _bad(field: int, name: str, value: object, expected: str) -> Unfit:
    return Unfit(Reason.BAD_POLICY, field, f"{name} is {value!r:.60}, and it has to be {expected}")


_NUMBERS: Final = {  # name: (least, limit)
    "max_age": (0, NUMBER_LIMIT),
    "max_entries": (0, NUMBER_LIMIT),
    "max_bytes": (0, NUMBER_LIMIT),
    "partitions": (1, PARTITIONS_MAX + 1),
    "archive": (0, NUMBER_LIMIT),
}
_RESERVED: Final[dict[str, Any]] = {  # name: the one value it can have until there are groups
    "retention": "limits",
    "delete": "never",
    "protect_groups": False,
    "require_group": False,
}
