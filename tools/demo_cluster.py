"""The part of the demonstration with three machines in a chain: m1 - m2 - m3, each with processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from duckrow.cluster.local import LocalCluster
from duckrow.cluster.machine import Machine
from duckrow.cluster.plan import Plan

from .roundtrips import Samples, summary
from .rtt import measured, path_of
from .samples import PERCENTILES

TOPIC: Final = "chain"
EACH: Final = 10_000  # entries that each machine's client produces
TRIPS: Final = 100
SIZE: Final = 100  # bytes of an entry that goes there and back
AUDIT: Final = (sys.executable, "-m", "duckrow.tools.cli", "pipeline", "audit")

Check = Callable[[bool, str], None]
Say = Callable[[str], None]


def three_in_a_chain(folder: str, check: Check, say: Say) -> None:
    with LocalCluster.launch(Plan(nodes=3, topology="chain"), Path(folder, "cluster")) as cluster:
        began = time.monotonic()
        with ThreadPoolExecutor() as threads:
            firsts = [*threads.map(lambda each: _produce(cluster, each), cluster.machines)]
        total = 3 * EACH
        say(
            f"m1, m2 and m3, level fsync: {total:,} entries produced on all at once, in "
            f"{time.monotonic() - began:.2f} s, the first of each under the numbers "
            f"{', '.join(f'{first:,}' for first in firsts)}"
        )
        rows = [_values(cluster, each.name, total) for each in cluster.machines]
        check(rows[0] == rows[1] == rows[2], "all three have the same row")
        check(len({*rows[0]}) == len(rows[0]) == total, "every entry is there, each once")
        say(f"each of the three has these {total:,} entries, under the same numbers")

        cluster.kill("m3")
        began = time.monotonic()
        number = _one(cluster, "m1", b"without m3")
        check(number == total + 1, "the others go on with the next number")
        say(f"m3 got kill -9, node and bridge; the others went on after {_since(began)}")

        began = time.monotonic()
        cluster.start("m3")
        check(_values(cluster, "m3", number)[-1] == b"without m3", "it got what it had missed")
        number = _one(cluster, "m3", b"back")
        check(number == total + 2, "it goes on where the others are")
        say(f"started again, it had what it had missed, and produced, after {_since(began)}")

        # Whatever comes back that is not what was sent, or nothing, ends it.
        path = path_of(cluster, "m1", "m3")
        for line in table(measured(cluster, path, SIZE, TRIPS, lambda _more: None)):
            say(line)
        rows = [_values(cluster, each.name, number) for each in cluster.machines]
        check(rows[0] == rows[1] == rows[2], "in the end all three have the same row")
        check(len({*rows[0]}) == len(rows[0]) == number, "every entry is there, each once")
        say(f"in the end all three have the same {number:,} entries")
        _audit(cluster, number, check, say)


def table(samples: Samples) -> Iterator[str]:
    """Round trips, for people."""
    found = summary(samples)
    yield (
        f"{found['count']} round trips of {found['size']} bytes from {found['near']} to {found['far']} and "
        f"back, level {found['durability']}, in milliseconds:"
    )
    yield f"{'':24}{''.join(f'{name:>8}' for name in PERCENTILES)}"
    for what, prefix in (("through the cluster", ""), ("over bare relays", "relay_")):
        times = "".join(f"{found[f'{prefix}{name}_ms']:>8.2f}" for name in PERCENTILES)
        yield f"{what:24}{times}"


def _audit(cluster: LocalCluster, total: int, check: Check, say: Say) -> None:
    """As a user runs it: the job reads every entry from each of the three, on Spark."""
    began = time.monotonic()
    hosts = ",".join(each.url.removeprefix("duck://") for each in cluster.machines)
    done = subprocess.run(
        [*AUDIT, TOPIC, "--url", f"duck://{hosts}", "--master", "local[2]", "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    check(done.returncode == 0, f"the audit on Spark finds nothing:\n{done.stdout}{done.stderr}")
    found = json.loads(done.stdout)
    check(len(found["nodes"]) == 3, f"it looked at three nodes, not at {found['nodes']}")
    check(found["entries"] == total, f"it compared {total:,} entries, not {found['entries']:,}")
    say(
        f"an audit on Spark, after {_since(began)}: {total:,} entries of {', '.join(found['nodes'])} compared, "
        f"{found['gaps']} gaps, {found['duplicates']} duplicates, {found['changed']} changed"
    )


def _produce(cluster: LocalCluster, machine: Machine) -> int:
    with cluster.connect(machine.name, timeout=60) as row:
        values = [b"%s %d" % (machine.name.encode(), index) for index in range(EACH)]
        return next(iter(row.produce_many(TOPIC, values)))[2]


def _one(cluster: LocalCluster, name: str, value: bytes) -> int:
    """Its number."""
    number = cluster.client(name).produce(TOPIC, value, timeout=30).number
    assert number is not None, "it was waited for"
    return number


def _values(cluster: LocalCluster, name: str, last: int) -> list[bytes]:
    """The first `last` entries of a machine, as soon as it has them."""
    found: list[bytes] = []
    while len(found) < last:
        page = cluster.client(name).pull(TOPIC, len(found), limit=last - len(found), wait=30)
        if not page:
            break
        found += [entry.value for entry in page]
    return found


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.2f} s"
