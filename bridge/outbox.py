"""Outbox: the effects of one round, and what follows when they are durable.

A round is: any number of inputs, then `take`.  So all that a round wrote shares one Sync, and what
waits for it is a list of things to do, done in order when it is there.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from .effects import Effect, Send, Serve, Sync

Then = Callable[[], None]


@attrs.define
class Outbox:
    _effects: list[Effect] = attrs.field(factory=list, init=False)
    _thens: list[Then] = attrs.field(factory=list, init=False)  # of the round that goes on
    _waiting: dict[int, list[Then]] = attrs.field(factory=dict, init=False)  # by token
    _token: int = attrs.field(default=0, init=False)

    def put(self, effect: Effect) -> None:
        self._effects.append(effect)

    def forget(self, peer: int) -> None:
        """The link is down: what was to go over it must not go over the next one."""
        self._effects = [
            effect
            for effect in self._effects
            if not (isinstance(effect, Send | Serve) and effect.peer == peer)
        ]

    def when_durable(self, then: Then) -> None:
        """Everything that this round has written, and writes until its end, comes before."""
        self._thens.append(then)

    def take(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        if self._thens:
            self._token += 1
            self._waiting[self._token], self._thens = self._thens, []
            effects.append(Sync(self._token))
        return effects

    def synced(self, token: int) -> None:
        """This sync has returned, and so have all before it."""
        for due in [each for each in self._waiting if each <= token]:
            for then in self._waiting.pop(due):
                then()
