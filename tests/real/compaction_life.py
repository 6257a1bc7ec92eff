"""A compaction that is killed at the Nth thing that it does to the disk.

    python -m real.compaction_life PLACE SIZE N

Things are: a file is begun, a file gets its name, a file goes.  It says `done` if it came to the end.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from typing import Any

from duckrow.node.archiveplace import Place
from duckrow.tools.pipeline.compacting import compact, jobs


class Dying(Place):
    """As its parent, and then it is killed: the thing is done, and nothing after it."""

    def __init__(self, where: str, last: int) -> None:
        super().__init__(where)
        self._things, self._last = count(1), last

    def create(self, path: str) -> Any:
        found = super().create(path)
        self._did()
        return found

    def publish(self, aside: str, path: str) -> None:
        super().publish(aside, path)
        self._did()

    def remove(self, path: str) -> None:
        super().remove(path)
        self._did()

    def _did(self) -> None:
        if next(self._things) == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def main(where: str, size: str, last: str) -> None:
    place = Dying(where, int(last))
    for job in jobs(place, None, int(size)):
        compact(place, job)
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
