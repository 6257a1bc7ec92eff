"""Topic names: which are allowed.  They never become file names, but they do end up in URLs and logs."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from .errors import Refused
from .limits import TOPIC_NAME_MAX

# fullmatch, not match with $: that lets a newline through at the end.
_TOPIC: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{TOPIC_NAME_MAX}}}", re.ASCII).fullmatch


@lru_cache(maxsize=1_024)  # whoever produces or reads does so from few topics
def is_topic_name(name: str) -> bool:
    return _TOPIC(name) is not None and name not in {".", ".."}


def check_topic_name(name: str) -> None:
    """
    Raises:
        Refused: no topic may be called so.
    """
    if not is_topic_name(name):
        shown = repr(name) if len(name) <= TOPIC_NAME_MAX else f"{name[:20]!r}… of {len(name):,}"
        raise Refused(
            f"the topic name {shown} is not allowed: take 1 to {TOPIC_NAME_MAX} characters "
            "of a-z A-Z 0-9 . _ - (and neither '.' nor '..')",
            topic=name[:TOPIC_NAME_MAX],
            characters=len(name),
            limit=TOPIC_NAME_MAX,
        )
