"""Acceptor: this voter's memory of the register in which the next view is decided.

One register for each view number; plain Paxos for a single value.  Two numbers never go back:

    promised   the highest ballot that was answered; lower ones are refused, in both phases
    accepted   the value of the highest ballot that was accepted, and that ballot

Every change is written, and durable before it is told, at every level (L2).  What makes a promise
more than Paxos, that it wedges the old view, is in `council.py`.
"""

from __future__ import annotations

from typing import Self

import attrs

from duckrow.node.row import View

from .effects import Registered
from .messages import Ballot


@attrs.define
class Acceptor:
    register: int
    promised: Ballot | None = None
    accepted_ballot: Ballot | None = None
    accepted: View | None = None

    @classmethod
    def recovered(cls, register: int, state: Registered | None) -> Self:
        """The memory of this register; that of an older one says nothing any more."""
        if state is None or state.register != register:
            return cls(register)
        return cls(*state)

    def refuses(self, ballot: Ballot) -> bool:
        return self.promised is not None and ballot < self.promised

    def promise(self, ballot: Ballot) -> Registered:
        assert not self.refuses(ballot)
        self.promised = ballot
        return self._state(ballot)

    def accept(self, ballot: Ballot, value: View) -> Registered:
        assert not self.refuses(ballot)
        self.promised = self.accepted_ballot = ballot
        self.accepted = value
        return self._state(ballot)

    def _state(self, promised: Ballot) -> Registered:
        return Registered(self.register, promised, self.accepted_ballot, self.accepted)
