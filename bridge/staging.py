"""Staging: the own bundles that are not settled yet, each of which keeps its segment (N3).

journaled ──► staged ──► settled by the node, once its commands have their final results
                 │
                 └── too many that wait for a view: merged (stages.py)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from duckrow.node.journal import Journal
from duckrow.node.row import Bundle

from .messages import Name, name_of
from .stages import MERGE_AT, STAGES_MAX, Stages

Insist = Callable[..., Awaitable[object]]  # that something is written


class Staging:
    def __init__(self, journal: Journal, insist: Insist) -> None:
        self.bundles: dict[Name, Bundle] = {each[:3]: each for each in journal.recovered.staged}
        self._journal, self._insist = journal, insist
        self._stages = Stages()
        self._settled: list[Name] = []  # to be written down
        self._fresh = 0  # of view 0, since the last `flush`

    @property
    def is_full(self) -> bool:
        return len(self.bundles) > STAGES_MAX

    def journaled(self, bundle: Bundle) -> None:
        self.bundles[name_of(bundle)] = bundle
        self._fresh += not bundle.view

    def settle(self, names: Sequence[Name]) -> None:
        """With the next `flush`."""
        self._settled += names

    async def flush(self) -> None:
        """
        Raises:
            DiskFailed.
        """
        if self._settled:
            names, self._settled = self._settled, []
            await self.settle_now(names)
        if self._fresh and len(self.bundles) > MERGE_AT:
            await self._merge()
        self._fresh = 0

    async def settle_now(self, names: Sequence[Name]) -> None:
        over = [whole for name in names if (whole := self._stages.settled(name)) is not None]
        await self._insist(self._journal.settle, over)
        for name in over:
            self.bundles.pop(name, None)

    async def lose(self, names: Iterable[Name]) -> list[Name]:
        """Damage took the bundles of these names: they keep their segments no longer, but for those that have
        a place in the row, which come from there.

        Returns those that are lost.

        Raises:
            DiskFailed.
        """
        stages = self._journal.store.chronicle.staged
        lost = [n for n in names if n not in self.bundles and n in stages and not stages[n].ordered]
        if lost:
            await self._insist(self._journal.settle, lost)
        return lost

    async def _merge(self) -> None:
        waiting = [bundle for name, bundle in self.bundles.items() if not name[0]]
        for bundle, over in self._stages.merge(waiting):
            await self._insist(self._journal.receive, bundle)
            await self._insist(self._journal.settle, over)
            self.bundles[name_of(bundle)] = bundle
            for name in over:
                del self.bundles[name]
