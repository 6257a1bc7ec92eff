"""Cuts between machines whose links nobody carries: the bridges at both ends refuse each other.

What is cut is written down in the folder of the cluster, for whoever cuts and heals, and what of it concerns
a machine in that machine's own folder, for its bridge (bridge/refusals.py): it may be started by somebody
who knows nothing of this, such as its node.
"""

from __future__ import annotations

import json
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

import attrs

from duckrow.node.clusterfile import Pair

from .wholetext import read_told, write_whole

CUTS: Final = "cuts.json"


@attrs.frozen
class Cuts:
    folder: Path

    @property
    def are_used(self) -> bool:
        return (self.folder / CUTS).exists()

    @property
    def pairs(self) -> set[Pair]:
        """Of ids, the lower first."""
        try:
            return read_told(self.folder / CUTS, lambda told: {(low, high) for low, high in told})
        except FileNotFoundError:
            return set()

    def add(self, pair: Pair) -> None:
        self._write(self.pairs | {pair})

    def remove(self, pair: Pair | None) -> None:
        """None: all."""
        self._write(self.pairs - ({pair} if pair else self.pairs))

    def forget(self) -> None:
        """Nothing is cut when a cluster starts."""
        (self.folder / CUTS).unlink(missing_ok=True)

    def of(self, id_: int) -> list[int]:
        """Whom a machine refuses."""
        return sorted(low + high - id_ for low, high in self.pairs if id_ in (low, high))

    def _write(self, pairs: AbstractSet[Pair]) -> None:
        write_whole(self.folder / CUTS, json.dumps(sorted(pairs)))
