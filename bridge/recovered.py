"""What the row store knows at the start of a bridge: all that the protocol remembers."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from duckrow.node import journal
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
    # By origin, of the installed view; None: damage hides it.
    delivered: Mapping[int, int] | None = attrs.field(factory=dict)
    register: Registered | None = None
    bundles: tuple[Bundle, ...] = ()  # of the installed view, past `delivered`, without gaps
    staged: tuple[Bundle, ...] = ()  # own, not settled and not in the row; in order of writing

    @classmethod
    def of(cls, found: journal.Recovered) -> Recovered:
        """In the words of the protocol."""
        register = found.register
        return cls(
            uuid=found.uuid,
            id=found.id,
            incarnation=found.incarnation,
            starts=found.starts,
            newest=found.newest,
            installed=found.installed,
            position=found.position,
            delivered=found.delivered,
            register=None if register is None else Registered(*register),
            bundles=found.bundles,
            staged=tuple(each for each in found.staged if each[:3] not in found.ordered),
        )
