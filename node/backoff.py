"""How long to wait before the next try: longer each time, and never the same for all."""

from __future__ import annotations

import random
from typing import Final

FIRST_SECONDS: Final = 0.02
MOST_SECONDS: Final = 2.0


class Backoff:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._tries = 0

    def worked(self) -> None:
        self._tries = 0

    def failed(self, addresses: int = 1) -> float:
        """Seconds to wait; with several addresses, nothing before each was tried once."""
        self._tries += 1
        rounds, place = divmod(self._tries, addresses)
        if place or not rounds:
            return 0.0
        longest = min(MOST_SECONDS, FIRST_SECONDS * 2 ** min(rounds, 16))
        return self._rng.uniform(longest / 2, longest)
