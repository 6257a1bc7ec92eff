"""What the row store knows at the start of a bridge: all that the protocol remembers."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from duckrow.node.forms import Start
from duckrow.node.row import Bundle, View

from .effects import Registered


@attrs.frozen
class Recovered:
    uuid: bytes
    id: int
    incarnation: int  # of this start, which is in `starts` and durable (I1)
    starts: Mapping[int, Start]  # by incarnation
    newest: View | None = None  # None: a blank store, which knows of no view
    installed: View | None = None  # of the last mark in the row
    position: int = 0
    delivered: Mapping[int, int] = attrs.field(factory=dict)  # by origin, of the installed view
    register: Registered | None = None
    bundles: tuple[Bundle, ...] = ()  # of the installed view, past `delivered`, without gaps
    staged: tuple[Bundle, ...] = ()  # own, not settled and not in the row; in order of writing
    damaged: bool = False  # something is lost that was acked: no memory of it can be exact
