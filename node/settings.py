"""Settings: limits and defaults of the whole cluster, changed by a command, so the same everywhere.

What decides whether a command is accepted may not be configured on one node alone (rule M1).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from .effects import Reason
from .limits import (
    IDS_MAX,
    IDS_TOTAL_MAX,
    LANES_MAX,
    NUMBER_LIMIT,
    STAGE_EXPIRY_US,
    STAGES_MAX,
    TOPICS_MAX,
    WAITING_MAX,
    WRITERS_MAX,
)
from .policies import Unfit


class Create(enum.IntEnum):
    """Who makes a topic that is not there.  The numbers are in snapshots: never reuse one."""

    ON_PRODUCE = 0  # its first batch
    ON_SUBSCRIBE = 1  # its first reader: the node then submits CREATE; a produce finds none
    EXPLICIT = 2  # CREATE alone


class Settings(NamedTuple):
    create: int = Create.ON_PRODUCE
    topics_max: int = TOPICS_MAX
    lanes_max: int = LANES_MAX
    ids_max: int = IDS_MAX
    ids_total_max: int = IDS_TOTAL_MAX
    waiting_max: int = WAITING_MAX
    stages_max: int = STAGES_MAX
    writers_max: int = WRITERS_MAX
    stage_expiry: int = STAGE_EXPIRY_US


CREATE: Final = {
    "on-produce": Create.ON_PRODUCE,
    "on-subscribe": Create.ON_SUBSCRIBE,
    "explicit": Create.EXPLICIT,
}


def changed(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """`settings` with what `changes` names; None brings a default back.

    Raises:
        Unfit: the first field that cannot be.
    """
    values: dict[str, int] = {}
    for field, (name, value) in enumerate(changes.items(), 1):
        if name == "create":
            if value is not None and (type(value) is not str or value not in CREATE):
                raise _bad(field, name, value, "one of " + ", ".join(CREATE))
            values[name] = CREATE[value or "on-produce"]
        elif name in Settings._fields:
            if value is None:
                value = getattr(DEFAULT, name)
            elif type(value) is not int or not 1 <= value <= _most(name):
                raise _bad(field, name, value, f"a whole number from 1 to {_most(name):,}")
            values[name] = value
        else:
            known = ", ".join(Settings._fields)
            raise Unfit(
                Reason.BAD_SETTING, field, f"there is no setting {name!r}; there are {known}"
            )
    return settings._replace(**values)


def _most(name: str) -> int:
    match name:
        case "topics_max":
            return TOPICS_MAX
        case "stage_expiry":
            return NUMBER_LIMIT - 1
        case _:
            return 100 * int(getattr(DEFAULT, name))  # memory to that amount is the operator's


def _bad(field: int, name: str, value: object, expected: str) -> Unfit:
    return Unfit(Reason.BAD_SETTING, field, f"{name} is {value!r:.60}, and it has to be {expected}")


DEFAULT: Final = Settings()
