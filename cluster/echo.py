"""A client that sends back what comes: the far end of a round trip, in a process of its own.

python -m duckrow.cluster.echo URL THERE BACK      what is produced to THERE it produces to BACK
"""

from __future__ import annotations

import os
import sys

import duckrow

WAIT_SECONDS = 60.0
FIRST = 1  # the number of an entry in each topic that is no trip (trips.py)


def main(url: str, there: str, back: str) -> None:
    """Until it is killed."""
    with duckrow.connect(url, name="echo", token=os.environ.get("DUCKROW_TOKEN", "")) as row:
        try:
            row.produce(back, b"")
        except duckrow.DuckrowError as error:
            sys.exit(f"nothing can be produced at {url}: {error}")
        print("ready", flush=True)
        after: object = FIRST
        while True:
            found = row.pull(there, after, wait=WAIT_SECONDS)
            for entry in found:
                # Not waited for: its answer may take as long as the way back.
                row.produce(back, entry.value, wait="none")
            after = found.after


if __name__ == "__main__":
    main(*sys.argv[1:])
